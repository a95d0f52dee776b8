//! The finder, on stretches that are short enough for small captures.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::{Path, PathBuf};
use std::{env, fs};

use flowgauge_engine::source::{Burst, Columns, Source};

use super::{Finder, Found, Part, Whole, cut};
use crate::captures::Captures;
use crate::format::Format;
use crate::pcap::Pcap;
use crate::record::Begin;

const SECONDS: u32 = 1_700_000_000;

/// A record: header and packet, microseconds, little-endian.
fn record(seconds: u32, fraction: u32, packet: &[u8]) -> Vec<u8> {
    let length = packet.len() as u32;
    let header = [seconds, fraction, length, length].map(u32::to_le_bytes);
    [header.as_flattened(), packet].concat()
}

fn header(magic: u32) -> Vec<u8> {
    [magic, 0x0004_0002, 0, 0, 262_144, 1].map(u32::to_le_bytes).as_flattened().to_vec()
}

fn pcap(bytes: &[u8]) -> Option<Pcap> {
    match Format::begin(bytes) {
        Ok(Begin::Found(Format::Pcap(pcap), _)) => Some(pcap),
        _ => None,
    }
}

/// The offsets of the records of a classic pcap, and of its end; `None` if it is damaged.
fn edges(pcap: &Pcap, bytes: &[u8]) -> Option<Vec<usize>> {
    let mut edges = vec![24];
    while edges[edges.len() - 1] < bytes.len() {
        let at = edges[edges.len() - 1];
        edges.push(at + pcap.record(&bytes[at..])?.bytes);
    }
    (edges[edges.len() - 1] == bytes.len()).then_some(edges)
}

/// Looks in a stretch at each `step` bytes. Returns how often a record is found, and how often not.
/// Each place found must be the start of a record.
fn look(name: &str, bytes: &[u8], step: usize) -> (usize, usize) {
    let Some(pcap) = pcap(bytes) else { return (0, 0) };
    let Some(edges) = edges(&pcap, bytes) else { return (0, 0) };
    let Some(largest) = edges.windows(2).map(|pair| pair[1] - pair[0]).max() else { return (0, 0) };
    let first = pcap.record(&bytes[24..]).unwrap();
    let Some(finder) = Finder::new(&pcap, &first) else { return (0, 0) };
    let (mut found, mut refused) = (0, 0);
    for from in (24..bytes.len()).step_by(step) {
        let Some(stretch) = bytes.get(from..from + 2 * largest) else { break };
        match finder.find_within(stretch, largest) {
            Found::At(at) => {
                found += 1;
                assert!(edges.binary_search(&(from + at)).is_ok(), "{name}: {from} + {at}");
            }
            Found::Several | Found::None => refused += 1,
        }
    }
    (found, refused)
}

fn captures(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            captures(&path, found);
        } else if path.extension().is_some_and(|end| end == "pcap") {
            found.push(path);
        }
    }
}

#[test]
fn finds_record_starts_in_real_captures() {
    let mut paths = Vec::new();
    captures(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data"), &mut paths);
    match env::var_os("FLOWGAUGE_CAPTURES") {
        Some(folder) => captures(Path::new(&folder), &mut paths),
        None => println!("only the captures that are here: FLOWGAUGE_CAPTURES names no folder"),
    }
    let (mut files, mut found, mut refused) = (0, 0, 0);
    for path in paths {
        let bytes = fs::read(&path).unwrap();
        let looked = look(&path.display().to_string(), &bytes, (bytes.len() / 50).max(1));
        files += usize::from(looked.0 > 0);
        found += looked.0;
        refused += looked.1;
        if looked.1 > 0 {
            println!("{}: {looked:?}", path.display());
        }
    }
    println!("{files} files, {found} begins found, {refused} refused");
    // Captures with invalid fractions or times are refused.
    assert!(found >= 100 && refused * 5 < found, "{found} found, {refused} refused");
}

#[test]
fn finds_record_starts_among_zeros_text_and_headers() {
    let headers = [header(0xa1b2_c3d4), record(SECONDS, 7, &[1; 50]), record(0, 0, &[])].concat();
    for payload in [vec![0; 700], vec![b'a'; 700], headers.repeat(5), vec![0xff; 700]] {
        let mut file = header(0xa1b2_c3d4);
        for index in 0..60 {
            // Consecutive fractions are as regular as seconds would be.
            file.extend(record(SECONDS, index, &payload[..(index as usize * 97) % payload.len()]));
        }
        let (found, refused) = look("payload", &file, 1);
        assert!(found > 10_000 && refused == 0, "{found} {refused}");
    }
}

#[test]
fn a_capture_in_a_packet_is_ignored_if_its_chain_ends_and_refused_otherwise() {
    let inner = record(SECONDS + 5, 1, &[3; 40]).repeat(10);
    // The last inner record extends over the next header, to the data after it.
    let bridge = record(SECONDS + 5, 1, &[3; 32])[..32].to_vec();
    for (payload, goes_on) in [(inner.clone(), false), ([inner, bridge].concat(), true)] {
        let mut file = header(0xa1b2_c3d4);
        file.extend(record(SECONDS, 0, &payload).repeat(30));
        let pcap = pcap(&file).unwrap();
        let finder = Finder::new(&pcap, &pcap.record(&file[24..]).unwrap()).unwrap();
        let largest = payload.len() + 16;
        for from in 24..file.len() - 2 * largest {
            match finder.find_within(&file[from..from + 2 * largest], largest) {
                Found::At(at) => {
                    assert!(!goes_on && (from + at - 24).is_multiple_of(largest), "{from} + {at}");
                }
                found => assert!(goes_on && found == Found::Several, "{from}: {found:?}"),
            }
        }
    }
}

#[test]
fn files_with_fractions_that_look_like_times_have_no_finder() {
    // After 11.6 days no fraction in microseconds is a plausible time, and after 31.7 years none in
    // nanoseconds.
    for (magic, least) in [(0xa1b2_c3d4, 1_000_000), (0xa1b2_3c4d, 1_000_000_000)] {
        let pcap = pcap(&header(magic)).unwrap();
        for (seconds, there) in
            [(0, false), (86_399, false), (least + 86_399, false), (least + 86_400, true)]
        {
            let first = pcap.record(&record(seconds, 0, &[])).unwrap();
            assert_eq!(Finder::new(&pcap, &first).is_some(), there, "{seconds}");
        }
    }
}

/// Times of the packets of a source.
fn times_ns(mut captures: Captures) -> Vec<i64> {
    let (mut columns, mut times) = (Columns::default(), Vec::new());
    loop {
        let mut burst = Burst::new(&mut columns);
        if !captures.poll(&mut burst).unwrap() {
            return times;
        }
        times.extend(burst.frames().iter().map(|frame| frame.time_ns));
    }
}

#[test]
fn a_part_is_found_again_by_its_byte_range() {
    let folder = env::temp_dir().join(format!("flowgauge-part-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let (plain, blocks) = (folder.join("a.pcap"), folder.join("a.pcapng"));
    let mut bytes = header(0xa1b2_c3d4);
    for packet in 0..30_000 {
        bytes.extend(record(SECONDS + packet, 7, &[1; 100]));
    }
    fs::write(&plain, &bytes).unwrap();
    let mut writer = crate::Writer::new(fs::File::create(&blocks).unwrap()).unwrap();
    let (mut whole, mut columns) = (Captures::open([&plain]), Columns::default());
    loop {
        let mut burst = Burst::new(&mut columns);
        if !whole.poll(&mut burst).unwrap() {
            break;
        }
        burst.frames().iter().for_each(|frame| writer.write(&frame).unwrap());
    }
    writer.flush().unwrap();
    drop(writer);
    for path in [&plain, &blocks] {
        let parts = cut(path, 3).unwrap();
        assert_eq!(parts.len(), 3);
        let read = parts.iter().flat_map(|part| {
            let again = Part::at(path, part.bytes()).unwrap();
            assert_eq!(times_ns(again.open()), times_ns(part.open()));
            times_ns(again.open())
        });
        assert_eq!(read.collect::<Vec<_>>(), times_ns(Captures::open([path])));
        let bytes = fs::metadata(path).unwrap().len();
        for outside in [bytes..bytes + 9, 24..bytes + 1, 500..500] {
            assert!(matches!(Part::at(path, outside), Err(Whole::Outside { .. })));
        }
        // Bytes between records are not read as records.
        let begin = parts[1].bytes().start + 1;
        let mut wrong = Part::at(path, begin..bytes).unwrap().open();
        let mut burst = Burst::new(&mut columns);
        assert!(wrong.poll(&mut burst).is_err() || burst.is_empty(), "{}", path.display());
    }
    fs::remove_dir_all(&folder).unwrap();
}
