//! Benign traffic raises no alert.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use flowgauge_capture::Captures;
use flowgauge_core::packet::{Frame, LinkType};
use flowgauge_engine::source::{Burst, Columns, Source, SourceError};
use flowgauge_engine::{Config, EpochLength};
use flowgauge_synthetic::{Packet, Traffic};

use super::attacks::{backbone, measurement};
use super::watch_source;

const SECOND: i64 = 1_000_000_000;

/// Bytes that are captured of a generated packet.
const HEADERS: usize = 96;

/// The alerts that the documentation shows, in one measurement.
const ALERTS: &str = "
    flood: { when: main.victims.distinct.low > 1000, for: 2 epochs }
    scan: { when: main.superspreaders.distinct.low > 500 }
    volume: { when: main.top.packets_per_second.low > 200000 }
    uniform: { when: main.entropy.normalized < 0.4 and main.cardinality.flows > 1000, for: 2 epochs }
";

fn config(epoch_ns: i64) -> Config {
    let tasks = ["victims", "superspreaders", "top", "entropy", "cardinality"];
    let config = measurement("main", "five-tuple", &tasks);
    Config { epoch: EpochLength::Time(epoch_ns), ..config }
}

fn is_long() -> bool {
    env::var_os("FLOWGAUGE_LONG").is_some()
}

/// Generated traffic, which is not kept in memory.
struct Generated {
    traffic: Traffic,
    bytes: Vec<u8>,
    frames: Vec<(Vec<u8>, u32, i64)>,
}

impl Source for Generated {
    fn poll<'a>(&'a mut self, burst: &mut Burst<'a>) -> Result<bool, SourceError> {
        self.frames.clear();
        for packet in self.traffic.by_ref().take(burst.room()) {
            let length = packet.frame(&mut self.bytes);
            let captured = &self.bytes[..length.min(HEADERS)];
            self.frames.push((captured.to_vec(), packet.wire, packet.time_ns));
        }
        for (bytes, wire, time_ns) in &self.frames {
            let (wire, time_ns) = (*wire, *time_ns);
            burst.push(Frame { bytes, wire, link: LinkType::ETHERNET, time_ns });
        }
        Ok(!self.frames.is_empty())
    }
}

/// The longest pause between two packets of a capture; longer ones are cut to it, so that there is something
/// to judge.
const PAUSE_NS: i64 = SECOND / 100;

/// Captures behind one another and again and again, until there were so many seconds.
struct Loop {
    files: Vec<PathBuf>,
    next: usize,
    capture: Option<Captures>,
    columns: Columns,
    frames: Vec<(Vec<u8>, u32, LinkType)>,
    times_ns: Vec<i64>,
    last_ns: Option<i64>,
    now_ns: i64,
    end_ns: i64,
    packets: u64,
}

impl Source for Loop {
    fn poll<'a>(&'a mut self, burst: &mut Burst<'a>) -> Result<bool, SourceError> {
        self.frames.clear();
        self.times_ns.clear();
        if self.now_ns >= self.end_ns {
            return Ok(false);
        }
        let file = &self.files[self.next % self.files.len()];
        let capture = self.capture.get_or_insert_with(|| Captures::open([file]));
        let mut read = Burst::new(&mut self.columns);
        // Some are damaged; packets before the damage count.
        let more = capture.poll(&mut read).unwrap_or(false);
        for frame in read.frames().iter() {
            let pause_ns = self.last_ns.map_or(PAUSE_NS, |last_ns| frame.time_ns - last_ns);
            self.last_ns = Some(frame.time_ns);
            self.now_ns += pause_ns.clamp(0, PAUSE_NS);
            self.times_ns.push(self.now_ns);
            self.frames.push((frame.bytes.to_vec(), frame.wire, frame.link));
        }
        drop(read);
        if !more {
            (self.capture, self.last_ns) = (None, None);
            self.next += 1;
            // Also where there is no packet, so that it ends.
            self.now_ns += PAUSE_NS;
        }
        self.packets += self.frames.len() as u64;
        for ((bytes, wire, link), time_ns) in self.frames.iter().zip(&self.times_ns) {
            burst.push(Frame { bytes, wire: *wire, link: *link, time_ns: *time_ns });
        }
        Ok(true)
    }
}

/// An hour of 50,000 packets a second where `FLOWGAUGE_LONG` is set, else a minute.
#[test]
fn a_backbone_raises_nothing() {
    let seconds = if is_long() { 3600 } else { 60 };
    let traffic = Traffic::new(backbone(seconds, 50_000, &[])).unwrap();
    let mut source = Generated { traffic, bytes: vec![0; Packet::MAX_WIRE], frames: Vec::new() };
    let (lines, board) = watch_source(config(10 * SECOND), ALERTS, &mut source);
    assert_eq!(lines, [""; 0]);
    assert_eq!(board.standings().len(), 5, "the four, and loss by default");
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> =
        entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect();
    files.sort();
    files
}

/// An hour of real captures where `FLOWGAUGE_LONG` is set, else ten minutes.
#[test]
fn real_captures_raise_nothing() {
    let Some(folder) = env::var_os("FLOWGAUGE_CAPTURES") else {
        println!("skipped: FLOWGAUGE_CAPTURES names no folder of captures");
        return;
    };
    let seconds = if is_long() { 3600 } else { 600 };
    let mut source = Loop {
        files: files(Path::new(&folder)),
        next: 0,
        capture: None,
        columns: Columns::default(),
        frames: Vec::new(),
        times_ns: Vec::new(),
        last_ns: None,
        now_ns: 0,
        end_ns: seconds * SECOND,
        packets: 0,
    };
    let (lines, board) = watch_source(config(10 * SECOND), ALERTS, &mut source);
    println!("{} packets of {} captures", source.packets, source.next);
    assert!(source.packets > 10_000);
    assert_eq!(lines, [""; 0]);
    assert_eq!(board.standings().len(), 5);
}
