//! Planted attacks are detected, losses raise an alert of their own, and benign traffic raises
//! none.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{env, fs};

use flowgauge_agent::alert::Alerts;
use flowgauge_agent::alert::notify::{LIMIT, Notifier};
use flowgauge_capture::Captures;
use flowgauge_core::packet::{Frame, LinkType};
use flowgauge_engine::report::{EpochReport, Gap};
use flowgauge_engine::sink::{Item, Sink};
use flowgauge_engine::source::{Burst, Columns, Source, SourceError};
use flowgauge_engine::{Config, EpochLength};
use flowgauge_synthetic::{self as synthetic, Packet, Profile, Traffic};

use super::{Log, rules, sample, watch, watch_source};

const SECOND: i64 = 1_000_000_000;

pub(crate) fn measurement(name: &str, key: &str, tasks: &[&str]) -> Config {
    Config {
        name: name.to_owned(),
        key: key.parse().unwrap(),
        algorithm: "linear-table".to_owned(),
        tasks: Some(tasks.iter().map(|task| (*task).to_owned()).collect()),
        epoch: EpochLength::Time(SECOND),
        memory_bytes: 64 << 20,
        ..Config::seeded(1)
    }
}

pub(crate) fn backbone(seconds: u64, rate: u64, plants: &[&str]) -> synthetic::Config {
    synthetic::Config {
        profile: Profile::Backbone { flows: None },
        packets: seconds * rate,
        rate,
        seed: 7,
        plants: plants.iter().map(|plant| plant.parse().unwrap()).collect(),
        ..synthetic::Config::default()
    }
}

/// The epoch of the first line in which an alert fires.
fn first_epoch(lines: &[String], alert: &str) -> Option<u64> {
    let begin = format!("alert {alert} firing: ");
    let line = lines.iter().find(|line| line.starts_with(&begin))?;
    line.split("epoch ").nth(1)?.split(':').next()?.parse().ok()
}

#[test]
fn a_flood_is_found_within_two_epochs_and_names_its_victim() {
    let config = measurement("victims", "five-tuple", &["victims"]);
    // The flood is from second 10 to 15 of 20.
    let traffic = backbone(20, 20_000, &["flood:sources=20000,packets=40000,start=0.5,end=0.75"]);
    let alert =
        "flood: { when: 'victims.victims.distinct.low > 1000', for: 2 epochs, clear-after: 3s }";
    let (lines, board) = watch(config, alert, traffic);
    let epoch = first_epoch(&lines, "flood").unwrap();
    assert!((10..12).contains(&epoch), "{lines:?}");
    assert!(lines[0].contains("198.18.0.0 victims.distinct"), "{lines:?}");
    assert!(lines[1].starts_with("alert flood cleared: victims epoch "), "{lines:?}");
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert_eq!(board.missed(), 0);
}

#[test]
fn a_scan_is_found_within_two_epochs_and_stays_until_it_is_surely_over() {
    let config = measurement("scanners", "five-tuple", &["superspreaders"]);
    let traffic =
        backbone(20, 20_000, &["scan:destinations=20000,packets=20000,start=0.5,end=0.75"]);
    let alert = "scan: { when: scanners.superspreaders.distinct > 500 }";
    let (lines, board) = watch(config, alert, traffic);
    assert_eq!(first_epoch(&lines, "scan"), Some(10), "{lines:?}");
    assert_eq!(lines.len(), 1, "five minutes of quiet have not passed: {lines:?}");
    let firing = board.standings().into_iter().find(|standing| standing.alert == "scan").unwrap();
    assert_eq!(serde_json::to_value(firing.state).unwrap(), "firing");
    assert_eq!(firing.items[0].item, "198.18.0.0");
}

#[test]
fn rates_and_entropy_are_those_of_the_epoch() {
    let config = measurement("main", "five-tuple", &["top", "entropy", "cardinality"]);
    let traffic = backbone(4, 10_000, &["burst:packets=20000,start=0.0,end=1.0"]);
    let alerts = "
        volume: { when: main.top.packets_per_second.low > 4900 and main.top.packets_per_second < 5100 }
        share: { when: main.top.share > 0.45 and not main.top.share > 0.55 }
        even: { when: main.entropy.normalized > 0.99 or main.cardinality.flows == 0 }
    ";
    let (lines, _) = watch(config, alerts, traffic);
    assert_eq!(first_epoch(&lines, "volume"), Some(0), "{lines:?}");
    assert_eq!(first_epoch(&lines, "share"), Some(0), "{lines:?}");
    assert_eq!(first_epoch(&lines, "even"), None, "{lines:?}");
}

/// Captured bytes of a generated packet.
const HEADERS: usize = 96;

/// The alerts of the documentation, in one measurement.
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

/// Generated traffic, drawn packet by packet.
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

/// The longest pause between two packets of a capture. Longer ones are shortened, so that epochs
/// have packets.
const PAUSE_NS: i64 = SECOND / 100;

/// Captures in a row, repeated until `seconds` have passed.
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
        // Some captures are damaged; packets before the damage count.
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
            // Time passes without a packet too, so that the loop ends.
            self.now_ns += PAUSE_NS;
        }
        self.packets += self.frames.len() as u64;
        for ((bytes, wire, link), time_ns) in self.frames.iter().zip(&self.times_ns) {
            burst.push(Frame { bytes, wire: *wire, link: *link, time_ns: *time_ns });
        }
        Ok(true)
    }
}

/// An hour of 50,000 packets per second if `FLOWGAUGE_LONG` is set, otherwise a minute.
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

/// An hour of real captures if `FLOWGAUGE_LONG` is set, otherwise ten minutes.
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

// Losses raise their own alert, and never clear another one.

/// The report of second `second`, with this many lost packets.
fn epoch(like: &EpochReport, second: i64, lost: u64) -> EpochReport {
    let mut report = like.clone();
    report.epoch = second as u64;
    report.start_ns = Some(second * SECOND);
    report.end_ns = Some((second + 1) * SECOND);
    report.coverage = 1.0;
    report.account.lost = lost;
    report
}

fn deliver(alerts: &mut Alerts, report: EpochReport) {
    alerts.deliver(&Item::Epoch(Arc::new(report))).unwrap();
}

fn alerts(yaml: &str) -> (Alerts, Log) {
    let log = Log::default();
    let notifier = Notifier::start(Box::new(log.clone()), LIMIT, None).unwrap();
    (Alerts::new(rules(yaml), notifier), log)
}

#[test]
fn three_lossy_epochs_raise_an_alert_that_no_rule_names() {
    let (like, (mut alerts, log)) = (sample(), alerts("{}"));
    for (second, lost) in [(0, 5), (1, 5), (2, 0), (3, 5), (4, 5), (5, 7)] {
        deliver(&mut alerts, epoch(&like, second, lost));
    }
    drop(alerts);
    let expected = "alert loss firing: main epoch 5: account.dropped > 0; account.dropped 7";
    assert_eq!(log.lines(), [expected]);
}

#[test]
fn a_rule_named_loss_takes_the_place_of_that_one() {
    let yaml = "loss: { when: account.lost > 100 }";
    let (like, (mut alerts, log)) = (sample(), alerts(yaml));
    for second in 0..10 {
        deliver(&mut alerts, epoch(&like, second, 5));
    }
    drop(alerts);
    assert_eq!(log.lines(), [""; 0]);
}

#[test]
fn no_update_partial_or_lossy_epoch_gap_or_outage_clears_an_alert() {
    let yaml = "
        many: { when: main.cardinality.flows > 1, clear-after: 2s }
        loss: { when: account.lost > 1000000 }
    ";
    let (like, (mut alerts, log)) = (sample(), alerts(yaml));
    deliver(&mut alerts, epoch(&like, 0, 0));
    // From here on, the condition does not match.
    let mut quiet = like.clone();
    for (name, answer) in &mut quiet.tasks {
        if let flowgauge_core::task::Report::Cardinality { flows } = answer {
            assert_eq!(*name, "cardinality");
            *flows = flowgauge_core::summary::Estimate::exact(0);
        }
    }
    for second in 1..100 {
        deliver(&mut alerts, epoch(&quiet, second, 1));
        deliver(&mut alerts, EpochReport { coverage: 0.9, ..epoch(&quiet, second, 0) });
        let mut dark = epoch(&quiet, second, 0);
        dark.account.outages = 1;
        deliver(&mut alerts, dark);
        deliver(&mut alerts, EpochReport { missing: 1, ..epoch(&quiet, second, 0) });
        deliver(&mut alerts, EpochReport { update: true, ..epoch(&quiet, second, 0) });
        deliver(&mut alerts, EpochReport { tasks: Vec::new(), ..epoch(&quiet, second, 0) });
        let (start_ns, end_ns) = (second * SECOND, (second + 50) * SECOND);
        let measurement = Arc::clone(&quiet.measurement);
        let gap =
            Gap { measurement, run: None, epoch: second as u64, epochs: 50, start_ns, end_ns };
        alerts.deliver(&Item::Gap(gap)).unwrap();
    }
    deliver(&mut alerts, epoch(&quiet, 100, 0));
    deliver(&mut alerts, epoch(&quiet, 101, 0));
    drop(alerts);
    let lines = log.lines();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].starts_with("alert many firing: main epoch 0"), "{lines:?}");
    assert!(lines[1].starts_with("alert many cleared: main epoch 101"), "{lines:?}");
}
