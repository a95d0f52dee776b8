//! Inputs that several workers read: files and parts side by side, and what cannot be cut by turns.

use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{fs, slice, thread};

use flowgauge_capture::Captures;
use flowgauge_core::key::KeyKind;
use flowgauge_core::summary::Parameters;
use flowgauge_engine::sink::{Json, Written};
use flowgauge_engine::source::{Chunks, Inputs, Piece, SourceError};
use flowgauge_engine::{Config, Dispatch, EpochLength, Outcome, Plan};
use flowgauge_filter::Filter;
use serde_json::Value;

use crate::asking;
use crate::capture::{Pcap, mixed, udp};

/// An input that cannot be cut: each call returns all of it from the start.
struct Uncut<F>(F);

impl<F: Fn() -> Captures> Inputs for Uncut<F> {
    fn chain(&self) -> Box<dyn Chunks + Send> {
        Box::new(self.0())
    }

    fn divide(&self, _: usize) -> Option<Vec<Vec<Piece>>> {
        None
    }
}

/// Reads few bytes at a time, like a pipe.
struct Few(io::Cursor<Vec<u8>>);

impl Read for Few {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = buffer.len().min(5_000);
        self.0.read(&mut buffer[..most])
    }
}

/// The reports but for memory and parameters, and what the run came to.
fn reports(config: Config, input: impl Fn() -> Captures) -> (Vec<Value>, Outcome) {
    let mut out = Vec::new();
    let outcome = flowgauge_engine::run_inputs(
        Plan::new(config).unwrap(),
        &Uncut(input),
        &mut Written::new(Json, &mut out),
        &mut |_| {},
    )
    .unwrap();
    let lines = String::from_utf8(out).unwrap();
    let mut lines: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    lines[0]["summary"].take();
    (lines, outcome)
}

/// Any number of workers reports what one worker reports.
fn agree(config: &Config, input: impl Fn() -> Captures) -> (Vec<Value>, Outcome) {
    let (alone, alone_outcome) = reports(config.clone(), &input);
    for workers in [2, 3, 8] {
        let several = Config { workers, ..config.clone() };
        let (several, outcome) = reports(several, &input);
        assert_eq!(several, alone, "{workers} {}", config.algorithm);
        let texts = |outcome: &Outcome| {
            outcome.problems.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(texts(&outcome), texts(&alone_outcome));
    }
    (alone, alone_outcome)
}

fn table() -> Config {
    let parameters = Parameters::new([("buckets", 1 << 15)]);
    Config { parameters, memory_bytes: 64 << 20, ..Config::seeded(0) }
}

fn sketch() -> Config {
    Config {
        algorithm: "count-min".to_owned(),
        parameters: Parameters::new([("rows", 4), ("columns", 4096), ("candidates", 1024)]),
        key: KeyKind::SOURCE.into(),
        ..table()
    }
}

#[test]
fn workers_by_turns_report_the_same_as_one() {
    // Some five windows, with packets of all kinds whose times go back and forth.
    let bytes = mixed(31, 16_000);
    let few = || Captures::from_reader("pipe", Few(io::Cursor::new(bytes.clone())));
    let whole = || Captures::from_bytes("memory", bytes.clone());
    let distinct = Config {
        key: KeyKind::SOURCE.into(),
        spread: 5,
        parameters: Parameters::new([("buckets", "4096"), ("state", "distinct")]),
        ..table()
    };
    let filtered = Config { filter: Some(Filter::new("ip and udp").unwrap()), ..table() };
    let save = Config { save: true, ..table() };
    for config in [table(), sketch(), distinct, filtered, save] {
        agree(&config, few);
    }
    let (alone, _) = agree(&table(), whole);
    assert!(alone[0]["account"]["backwards"].as_u64().unwrap() > 10);
    for workers in [2, 3] {
        let shared = Config { workers, shared: true, ..table() };
        assert_eq!(reports(shared, whole).0, alone);
    }
}

/// A result that is not a sum depends on which packets a worker gets. This is the same in each run.
#[test]
fn a_run_can_be_repeated() {
    let bytes = mixed(32, 16_000);
    let config = Config {
        algorithm: "space-saving".to_owned(),
        parameters: Parameters::new([("counters", 64)]),
        key: KeyKind::SOURCE.into(),
        workers: 3,
        ..asking(&["top"])
    };
    let input = || Captures::from_bytes("memory", bytes.clone());
    let (first, _) = reports(config.clone(), input);
    for _ in 0..5 {
        assert_eq!(reports(config.clone(), input).0, first);
    }
}

#[test]
fn each_worker_has_its_flows_so_that_the_room_of_all_of_them_counts() {
    let mut pcap = Pcap::new();
    for i in 0..20_000_u64 {
        // Each flow comes twice, far apart.
        pcap.udp(i, ((i % 10_000) as u32, 7), (9, 80));
    }
    let input = || Captures::from_bytes("memory", pcap.0.clone());
    let tight = Config {
        key: KeyKind::SOURCE.into(),
        parameters: Parameters::new([("buckets", 8192)]),
        ..asking(&["cardinality"])
    };
    // One table has room for 6,144 of 10,000 flows, two of this size have room for all.
    let (alone, _) = reports(tight.clone(), input);
    assert!(alone[0]["account"]["untracked"].as_u64().unwrap() > 1000);
    let (two, _) = reports(Config { workers: 2, ..tight }, input);
    assert_eq!(two[0]["account"]["untracked"], 0);
    assert_eq!(two[0]["tasks"]["cardinality"]["flows"]["value"], 10_000);
}

#[test]
fn damage_ends_a_capture_and_keeps_earlier_packets() {
    let sound = mixed(33, 16_000);
    for cut in [sound.len() - 5, sound.len() / 2, 300_000, 100, 30, 10, 0] {
        let bytes = sound[..cut].to_vec();
        let (lines, outcome) = agree(&table(), || Captures::from_bytes("cut", bytes.clone()));
        assert_eq!(outcome.problems.len(), 1, "{cut}");
        // Without even a file header there is no epoch.
        assert_eq!(lines.len(), if cut < 24 { 1 } else { 2 }, "{cut}");
    }
    let mut bytes = sound;
    let at = bytes.len() / 2;
    let record = (at..bytes.len()).find(|&at| bytes[at..].starts_with(&[0xff; 12])).unwrap();
    bytes[record - 8..record - 4].copy_from_slice(&[0xff; 4]);
    let (lines, outcome) = agree(&table(), || Captures::from_bytes("damaged", bytes.clone()));
    assert_eq!((lines.len(), outcome.problems.len()), (2, 1));
    let (lines, outcome) = agree(&table(), || Captures::open([""; 0]));
    assert_eq!((lines.len(), outcome.problems.len()), (2, 0));
    let (lines, outcome) = agree(&table(), || Captures::open(["/no/such.pcap", "/no/other.pcap"]));
    assert_eq!((lines.len(), outcome.problems.len()), (1, 2));
}

#[test]
fn more_workers_than_chunks_are_too_many_and_no_harm() {
    let bytes = mixed(34, 100);
    for workers in [2, 16, 17, 100] {
        let parameters = Parameters::new([("buckets", 1 << 10)]);
        for config in [Config { parameters, ..table() }, sketch()] {
            let config = Config { memory_bytes: 512 << 20, ..config };
            let input = || Captures::from_bytes("memory", bytes.clone());
            let (alone, _) = reports(config.clone(), input);
            assert_eq!(reports(Config { workers, ..config }, input).0, alone, "{workers}");
        }
    }
}

/// A pcapng file of three interfaces, of which the last is described behind the first packets and of a
/// link type that the filter does not know.
fn several_interfaces(packets: u64) -> Vec<u8> {
    let block = |kind: u32, body: &[u8]| {
        let length = (body.len() as u32 + 12).to_le_bytes();
        [&kind.to_le_bytes()[..], &length, body, &length].concat()
    };
    let interface = |link: u16, resolution: u8| {
        let mut body = [&link.to_le_bytes()[..], &[0; 6]].concat();
        body.extend([9, 0, 1, 0, resolution, 0, 0, 0, 0, 0, 0, 0]);
        block(1, &body)
    };
    let mut section = 0x1a2b_3c4d_u32.to_le_bytes().to_vec();
    section.extend([1, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255]);
    let mut file = [block(0x0a0d_0d0a, &section), interface(1, 6), interface(1, 9)].concat();
    for i in 0..packets {
        if i == packets / 2 {
            file.extend(interface(147, 0x8a));
        }
        let interface = i % if i < packets / 2 { 2 } else { 3 };
        let ticks = 1_700_000_000 * [1_000_000, 1_000_000_000, 1 << 10][interface as usize] + i;
        let frame = udp(((i % 999) as u32, 5), (3, 80));
        let length = (frame.len() as u32).to_le_bytes();
        let (high, low) = ((ticks >> 32) as u32, ticks as u32);
        let mut body = (interface as u32).to_le_bytes().to_vec();
        body.extend([high.to_le_bytes(), low.to_le_bytes(), length, length].concat());
        body.extend(frame);
        file.extend(block(6, &body));
    }
    file
}

#[test]
fn interfaces_and_their_filter_notes_are_those_of_one_reader() {
    let bytes = several_interfaces(9_000);
    let filter = Some(Filter::new("udp").unwrap());
    for config in [table(), Config { filter, ..table() }] {
        let (lines, outcome) = agree(&config, || Captures::from_bytes("ng", bytes.clone()));
        assert_eq!(outcome.total.account.read, 9_000);
        let noted = lines[0]["notes"].to_string().contains("counted as filtered");
        assert_eq!(noted, config.filter.is_some());
    }
}

#[test]
fn a_pipe_is_read_to_its_end() {
    let bytes = mixed(35, 16_000);
    let (alone, _) = reports(table(), || Captures::from_bytes("pipe", bytes.clone()));
    for workers in [2, 3] {
        let piped = || {
            let (reader, mut writer) = io::pipe().unwrap();
            let bytes = bytes.clone();
            thread::spawn(move || {
                for piece in bytes.chunks(7_000) {
                    writer.write_all(piece).unwrap();
                }
            });
            Captures::from_reader("pipe", reader)
        };
        assert_eq!(reports(Config { workers, ..table() }, piped).0, alone);
    }
}

/// Files that are removed on drop.
pub(crate) struct Files(PathBuf);

impl Files {
    pub(crate) fn new(name: &str) -> Self {
        let folder = format!("flowgauge-parts-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, bytes).unwrap();
        path
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The reports but for memory and parameters, the largest number of bytes that the first worker read,
/// and what was wrong.
pub(crate) fn file_reports(
    config: Config,
    files: &[PathBuf],
) -> (Vec<Value>, u64, Vec<SourceError>) {
    let (mut out, mut read) = (Vec::new(), 0);
    let outcome = flowgauge_engine::run_inputs(
        Plan::new(config).unwrap(),
        &flowgauge_capture::Files::new(files.to_vec()),
        &mut Written::new(Json, &mut out),
        &mut |source| {
            read = read.max(source.progress().read);
        },
    );
    let lines = String::from_utf8(out).unwrap();
    let mut lines: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    lines[0]["summary"].take();
    (lines, read, outcome.unwrap().problems)
}

fn by(workers: usize, config: &Config) -> Config {
    Config { workers, ..config.clone() }
}

#[test]
fn parts_and_files_make_up_the_same_report() {
    let files = Files::new("same");
    let large = mixed(21, 60_000);
    let bytes = large.len() as u64;
    let large = files.write("large.pcap", &large);
    let small = files.write("small.pcap", &mixed(22, 500));
    let other = files.write("other.pcap", &mixed(23, 50_000));
    let table = Parameters::new([("buckets", 1 << 17)]);
    let table = Config { parameters: table, memory_bytes: 64 << 20, ..Config::seeded(0) };
    let sketch = Config {
        algorithm: "count-min".to_owned(),
        parameters: Parameters::new([("rows", 4), ("columns", 4096), ("candidates", 1024)]),
        key: KeyKind::SOURCE.into(),
        ..table.clone()
    };
    for config in [table, sketch] {
        for files in [
            &[large.clone()][..],
            &[large.clone(), small.clone(), other.clone()],
            &[small.clone(), other.clone()],
        ] {
            let (alone, ..) = file_reports(config.clone(), files);
            for workers in [2, 3] {
                let (several, read, _) = file_reports(by(workers, &config), files);
                assert_eq!(several, alone, "{workers} {}", config.algorithm);
                assert!(files.len() > 1 || read < bytes * 2 / 3, "{read} of {bytes}");
            }
        }
        // A configured dispatch, or epochs, imply one reader.
        let dispatch = Some(Dispatch::Digest);
        for config in [
            Config { dispatch, ..by(2, &config) },
            Config { epoch: EpochLength::Packets(30_000), ..by(2, &config) },
        ] {
            assert!(file_reports(config, slice::from_ref(&large)).1 > bytes * 9 / 10);
        }
    }
}

#[test]
fn a_damaged_part_and_a_full_table_make_one_reader_begin_anew() {
    let files = Files::new("anew");
    let mut bytes = mixed(24, 60_000);
    let whole = files.write("whole.pcap", &bytes);
    // A length in the middle of the file, far from where it is cut.
    let at = bytes.len() / 4;
    let record = (at..bytes.len()).find(|&at| bytes[at..].starts_with(&[0xff; 12])).unwrap();
    bytes[record - 8..record - 4].copy_from_slice(&[0xff; 4]);
    let damaged = files.write("damaged.pcap", &bytes);
    let config = asking(&["top", "cardinality"]);
    let (alone, _, problems) = file_reports(config.clone(), slice::from_ref(&damaged));
    let (several, _, same) = file_reports(by(2, &config), slice::from_ref(&damaged));
    assert_eq!(several, alone);
    assert_eq!((problems.len(), same.len()), (1, 1));

    let full = Config { parameters: Parameters::new([("buckets", 1024)]), ..config };
    let dispatched = Config { dispatch: Some(Dispatch::Digest), ..by(2, &full) };
    let (dispatched, ..) = file_reports(dispatched, slice::from_ref(&whole));
    assert!(dispatched[0]["account"]["untracked"].as_u64().unwrap() > 0);
    assert_eq!(file_reports(by(2, &full), slice::from_ref(&whole)).0, dispatched);
}

/// Reading is stopped after the first burst, which fills the table: what both workers read counts.
#[test]
fn parts_that_are_stopped_count_with_a_full_table() {
    let files = Files::new("stopped");
    let whole = files.write("whole.pcap", &mixed(25, 60_000));
    let full = Parameters::new([("buckets", 64)]);
    let config = Config { parameters: full, workers: 2, ..asking(&["top"]) };
    let stop = Arc::new(AtomicBool::new(false));
    let inputs = flowgauge_capture::Files::new(vec![whole]).until(Arc::clone(&stop));
    let outcome = flowgauge_engine::run_inputs(
        Plan::new(config).unwrap(),
        &inputs,
        &mut Written::new(Json, io::sink()),
        &mut |_| stop.store(true, Ordering::Relaxed),
    );
    let account = outcome.unwrap().total.account;
    assert!(account.read >= 256 && account.untracked.packets > 0, "{account:?}");
}
