//! Several queues, each with its own meter: their epochs are collected into one report.

use std::io;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use flowgauge_capture::Captures;
use flowgauge_core::packet::{Frame, LinkType};
use flowgauge_core::summary::Parameters;
use flowgauge_engine::report::EpochReport;
use flowgauge_engine::sink::{Each, Item, Json, Sink, SinkError, Written};
use flowgauge_engine::snapshot::Snapshot;
use flowgauge_engine::source::{Source, SourceError};
use flowgauge_engine::{Config, EpochLength, Group, Meter, Pace, Plan, run_queues};
use serde_json::Value;

use crate::capture::{Pcap, Random, udp};
use crate::epochs::SECOND;
use crate::meters::push;
use crate::{asking, refusal, run};

const PACKETS: u64 = 20_000;

/// Times and frames in order, one a millisecond from 1000 s on.
fn traffic(seed: u64) -> Vec<(i64, Vec<u8>)> {
    println!("seed {seed}");
    let mut random = Random(seed);
    let mut packet = |at: u64| {
        let source = (random.below(50) as u32 + 1, random.below(3) as u16);
        (
            1000 * SECOND + at.cast_signed() * SECOND / 1000,
            udp(source, (random.below(9) as u32, 80)),
        )
    };
    (0..PACKETS).map(&mut packet).collect()
}

fn frame((time_ns, bytes): &(i64, Vec<u8>)) -> Frame<'_> {
    let wire = bytes.len() as u32;
    Frame { bytes, wire, link: LinkType::ETHERNET, time_ns: *time_ns }
}

fn queues(config: Config, queues: usize, pace: Pace) -> (Vec<Box<dyn Meter>>, Group) {
    Plan::new(Config { queues, pace, ..config }).unwrap().build().unwrap()
}

fn lines(out: Vec<u8>) -> Vec<Value> {
    let out = String::from_utf8(out).unwrap();
    out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The parts of a line that do not depend on how the packets were divided.
fn common(line: &Value) -> Value {
    let mut line = line.clone();
    line["summary"].take();
    line
}

#[test]
fn queues_report_together_the_same_as_one_meter() {
    let packets = traffic(41);
    let mut pcap = Pcap::new();
    for (time_ns, frame) in &packets {
        pcap.frame(*time_ns as u64, frame);
    }
    let base = Config {
        epoch: EpochLength::Time(3 * SECOND),
        ..asking(&["top", "heavy-hitters", "cardinality"])
    };
    let sketch = Config {
        algorithm: "count-min".to_owned(),
        parameters: Parameters::new([("columns", 4096), ("rows", 3)]),
        tasks: Some(vec!["flow-size".to_owned()]),
        flows: vec![base.key.parse_flow("source=10.0.0.1,destination=10.0.0.2,source_port=1,destination_port=80,protocol=17").unwrap()],
        ..base.clone()
    };
    let whole = Config { epoch: EpochLength::Whole, ..base.clone() };
    for config in [base, sketch, whole] {
        let expected: Vec<_> = run(config.clone(), &pcap.0).0.iter().map(common).collect();
        let (meters, group) = queues(config, 3, Pace::Replay);
        let mut out = Vec::new();
        let end_ns = packets[packets.len() - 1].0;
        thread::scope(|scope| {
            let mut sink = Written::new(Json, &mut out);
            let closing = scope.spawn(move || group.close(&mut sink).unwrap());
            for (queue, mut meter) in meters.into_iter().enumerate() {
                let own = packets.iter().skip(queue).step_by(3);
                scope.spawn(move || {
                    let frames: Vec<_> = own.map(frame).collect();
                    frames.chunks(32).for_each(|burst| push(&mut *meter, burst));
                    meter.advance(end_ns);
                    meter.finish();
                });
            }
            assert_eq!(closing.join().unwrap().totals[0].account.keyed, PACKETS);
        });
        let found: Vec<_> = lines(out).iter().map(common).collect();
        let epochs = |lines: &[Value]| {
            lines
                .iter()
                .map(|line| {
                    format!(
                        "{} {} {} {}",
                        line["type"], line["epoch"], line["account"]["keyed"], line["notes"]
                    )
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(found.len(), expected.len() - 1, "{:?} {:?}", epochs(&found), epochs(&expected));
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!(found, expected);
        }
    }
}

/// Reads from one queue only: the other, which no packet touched, does not keep epochs from closing.
#[test]
fn a_silent_queue_without_a_packet_keeps_no_epoch_open() {
    let config = Config { epoch: EpochLength::Time(SECOND), ..asking(&["top"]) };
    let (mut meters, group) = queues(config, 2, Pace::Live);
    let packets = traffic(42);
    let reported = Mutex::new(Vec::new());
    let so_far = || reported.lock().unwrap().len();
    thread::scope(|scope| {
        let mut sink = Each(|report: &EpochReport| {
            reported.lock().unwrap().push(report.account.keyed);
            Ok(())
        });
        let closing = scope.spawn(move || group.close(&mut sink).unwrap());
        let silent = meters.pop().unwrap();
        let mut busy = meters.pop().unwrap();
        for second in packets.chunks(1000) {
            let (before, begun) = (so_far(), Instant::now());
            let frames: Vec<_> = second.iter().map(frame).collect();
            push(&mut *busy, &frames);
            // Give the closer time to return summaries.
            while so_far() == before && begun.elapsed() < Duration::from_millis(20) {
                thread::sleep(Duration::from_millis(1));
            }
        }
        let begun = Instant::now();
        while so_far() < 2 {
            assert!(begun.elapsed() < Duration::from_secs(20), "an epoch is kept open");
            thread::sleep(Duration::from_millis(1));
        }
        busy.finish();
        drop(silent);
        assert_eq!(closing.join().unwrap().totals[0].account.keyed, PACKETS);
    });
    // A closer that is late reports epochs together.
    let reported = reported.into_inner().unwrap();
    assert!(reported.iter().all(|keyed| keyed % 1000 == 0), "{reported:?}");
    assert_eq!(reported.iter().sum::<u64>(), PACKETS);
}

/// A queue that touched an epoch and falls silent is waited for a moment, then named; its packets join
/// the epoch that is open when it speaks again.
#[test]
fn a_queue_that_is_missing_is_named_and_its_packets_come_later() {
    let config = Config { epoch: EpochLength::Time(SECOND), ..asking(&["top"]) };
    let (mut meters, group) = queues(config, 2, Pace::Live);
    let mut reports = Vec::new();
    let at = |ms: i64| (1000 * SECOND + ms * SECOND / 1000, udp((1, 1), (2, 2)));
    thread::scope(|scope| {
        let mut sink = Each(|report: &EpochReport| {
            reports.push((report.epoch, report.account.keyed, report.notes.clone()));
            Ok(())
        });
        let closing = scope.spawn(move || group.close(&mut sink).unwrap());
        let (mut slow, mut busy) = (meters.pop().unwrap(), meters.pop().unwrap());
        let (first, second, third) = (at(100), at(1100), at(2100));
        push(&mut *slow, &[frame(&first)]);
        push(&mut *busy, &[frame(&first)]);
        push(&mut *busy, &[frame(&second)]);
        thread::sleep(Duration::from_millis(400));
        push(&mut *slow, &[frame(&third)]);
        push(&mut *busy, &[frame(&third)]);
        slow.finish();
        busy.finish();
        assert_eq!(closing.join().unwrap().totals[0].account.keyed, 5);
    });
    let keyed: Vec<_> = reports.iter().map(|(epoch, keyed, _)| (*epoch, *keyed)).collect();
    assert_eq!(keyed, [(0, 1), (1, 2), (2, 2)]);
    assert!(
        reports[0].2.iter().any(|note| note.starts_with("queue 1 did not deliver")),
        "{reports:?}"
    );
    assert!(reports[1..].iter().all(|(.., notes)| notes.is_empty()), "{reports:?}");
}

/// One packet of one queue is far ahead, or the clock is set back under both: epochs go on closing, under
/// further numbers.
#[test]
fn a_step_of_the_clock_stops_no_reports() {
    for (ahead, back) in [(600, 0), (0, 60)] {
        let config = Config { epoch: EpochLength::Time(SECOND), ..asking(&["top"]) };
        let (mut meters, group) = queues(config, 2, Pace::Live);
        let reported = Mutex::new(Vec::new());
        let at = |second: i64| (second * SECOND + SECOND / 10, udp((1, 1), (2, 2)));
        thread::scope(|scope| {
            let mut sink = Each(|report: &EpochReport| {
                let second = report.start_ns.unwrap_or_default() / SECOND;
                reported.lock().unwrap().push((report.epoch, second, report.account.keyed));
                Ok(())
            });
            let closing = scope.spawn(move || group.close(&mut sink).unwrap());
            let mut both = |second: i64| {
                let (begun, before) = (Instant::now(), reported.lock().unwrap().len());
                let packet = at(second);
                for meter in &mut meters {
                    push(&mut **meter, &[frame(&packet)]);
                }
                // Give the closer time to return summaries.
                while reported.lock().unwrap().len() == before
                    && begun.elapsed() < Duration::from_millis(300)
                {
                    thread::sleep(Duration::from_millis(1));
                }
            };
            (1000..1003).for_each(&mut both);
            if ahead > 0 {
                let packet = at(1003 + ahead);
                push(&mut *meters[0], &[frame(&packet)]);
                thread::sleep(Duration::from_millis(300));
            }
            let mut both = |second: i64| {
                let packet = at(second - back);
                for meter in &mut meters {
                    push(&mut **meter, &[frame(&packet)]);
                }
                thread::sleep(Duration::from_millis(300));
            };
            (1003..1009).for_each(&mut both);
            meters.into_iter().for_each(Meter::finish);
            let keyed = closing.join().unwrap().totals[0].account.keyed;
            assert_eq!(keyed, 18 + u64::from(ahead > 0));
        });
        let reported = reported.into_inner().unwrap();
        assert!(reported.is_sorted_by_key(|(epoch, ..)| *epoch), "{reported:?}");
        // A closer that is late reports epochs together.
        let after =
            reported.iter().filter(|(_, second, _)| (1004..1008).contains(&(second + back)));
        assert!(after.count() >= 2, "{reported:?}");
    }
}

#[test]
fn a_note_of_a_queue_without_a_packet_comes_with_its_next_one() {
    let config = Config { epoch: EpochLength::Time(SECOND), ..asking(&["top"]) };
    let (mut meters, group) = queues(config, 2, Pace::Live);
    let mut reports = Vec::new();
    let at = |ms: i64| (1000 * SECOND + ms * SECOND / 1000, udp((1, 1), (2, 2)));
    thread::scope(|scope| {
        let mut sink = Each(|report: &EpochReport| {
            reports.push((report.account.keyed, report.notes.clone()));
            Ok(())
        });
        let closing = scope.spawn(move || group.close(&mut sink).unwrap());
        let (mut silent, mut busy) = (meters.pop().unwrap(), meters.pop().unwrap());
        silent.note("before the first epoch");
        for second in 0..4 {
            let (packet, time_ns) = (at(1000 * second + 100), at(1000 * second + 200).0);
            push(&mut *busy, &[frame(&packet)]);
            silent.advance(time_ns);
            if second == 1 {
                silent.note("in the second epoch");
            }
            if second == 3 {
                push(&mut *silent, &[frame(&packet)]);
            }
        }
        silent.finish();
        busy.finish();
        closing.join().unwrap();
    });
    // On a busy machine the closer may be late, and say so.
    for (_, notes) in &mut reports {
        notes.retain(|note| !note.starts_with("late"));
    }
    let notes: Vec<_> = reports.iter().flat_map(|(_, notes)| notes).collect();
    assert_eq!(notes, ["before the first epoch", "in the second epoch"], "{reports:?}");
    assert_eq!(reports.last().unwrap().1.len(), 2, "{reports:?}");
}

/// A sink that calls a function.
struct Kept<F>(F);

impl<F: FnMut(&Item) + Send> Sink for Kept<F> {
    fn deliver(&mut self, item: &Item) -> Result<(), SinkError> {
        (self.0)(item);
        Ok(())
    }
}

/// An interface is down while another one has packets, or is the only one.
#[test]
fn every_epoch_of_an_outage_says_so() {
    let config = Config { epoch: EpochLength::Time(SECOND), save: true, ..asking(&["top"]) };
    let at = |ms: i64| (1000 * SECOND + ms * SECOND / 1000, udp((1, 1), (2, 2)));
    for queues_of_run in [1, 2] {
        let (mut meters, group) = queues(config.clone(), queues_of_run, Pace::Live);
        let (mut reports, mut stored) = (Vec::new(), Vec::new());
        thread::scope(|scope| {
            let mut sink = Kept(|item: &Item| match item {
                Item::Epoch(report) => {
                    let notes = report.notes.iter().filter(|note| *note == "eth0 is down").count();
                    let second = report.start_ns.unwrap() / SECOND - 1000;
                    reports.push((second, notes, report.account.outages));
                }
                Item::Snapshot(saved) => stored.push(saved.bytes.clone()),
                _ => {}
            });
            let closing = scope.spawn(move || group.close(&mut sink).unwrap());
            let mut down = meters.remove(0);
            for second in 0..7 {
                let (packet, time_ns) = (at(1000 * second + 100), at(1000 * second + 200).0);
                for meter in &mut meters {
                    push(&mut **meter, &[frame(&packet)]);
                }
                down.advance(time_ns);
                match second {
                    1 => down.outage(Some("eth0 is down")),
                    4 => down.outage(None),
                    _ => {}
                }
                // So that the closer is not late.
                thread::sleep(Duration::from_millis(100));
            }
            down.finish();
            meters.into_iter().for_each(Meter::finish);
            closing.join().unwrap();
        });
        let expected = [(0, 0, 0), (1, 1, 1), (2, 1, 1), (3, 1, 1), (4, 1, 1)];
        let (during, after) = reports.split_at(5);
        assert_eq!(during, expected, "{queues_of_run} queues");
        assert_eq!(after[0], (5, 0, 0), "{queues_of_run} queues");
        let snapshots = stored.iter().map(|bytes| Snapshot::decode(bytes, 16 << 20, None).unwrap());
        let merged = snapshots.reduce(|mut sum, next| sum.merge(&next).map(|()| sum).unwrap());
        assert_eq!(merged.unwrap().account().outages, 4, "{queues_of_run} queues");
    }
}

#[test]
fn an_epoch_without_a_packet_in_any_queue_has_findings_of_none() {
    let config = Config { epoch: EpochLength::Time(SECOND), ..asking(&["findings"]) };
    let (meters, group) = queues(config, 2, Pace::Live);
    let mut out = Vec::new();
    thread::scope(|scope| {
        let mut sink = Written::new(Json, &mut out);
        let closing = scope.spawn(move || group.close(&mut sink).unwrap());
        for mut meter in meters {
            meter.advance(1000 * SECOND);
            meter.advance(1001 * SECOND + 1);
            meter.finish();
        }
        closing.join().unwrap();
    });
    let lines = lines(out);
    assert!(!lines.is_empty());
    for line in &lines {
        assert_eq!(line["tasks"]["findings"]["items"], Value::Array(Vec::new()), "{line}");
        assert_eq!(line["notes"], Value::Array(Vec::new()), "{line}");
    }
}

/// The closer is stopped by its sink: a live meter goes on counting in the summaries that it has, and the
/// epochs concerned come out together.
#[test]
fn a_live_meter_never_waits_for_the_closer() {
    let config = Config { epoch: EpochLength::Time(SECOND), ..asking(&["top"]) };
    for queues_of_run in [1, 2] {
        let (mut meters, group) = queues(config.clone(), queues_of_run, Pace::Live);
        let packets = traffic(43);
        let mut late = Vec::new();
        thread::scope(|scope| {
            let mut sink = Each(|report: &EpochReport| {
                late.push(report.notes.iter().any(|note| note.starts_with("late: ")));
                thread::sleep(Duration::from_millis(300));
                Ok(())
            });
            let closing = scope.spawn(move || group.close(&mut sink).unwrap());
            let begun = Instant::now();
            let mut meter = meters.remove(0);
            for burst in packets.chunks(50) {
                push(&mut *meter, &burst.iter().map(frame).collect::<Vec<_>>());
            }
            assert!(begun.elapsed() < Duration::from_millis(280), "{:?}", begun.elapsed());
            meter.finish();
            drop(meters);
            assert_eq!(closing.join().unwrap().totals[0].account.keyed, PACKETS);
        });
        assert!(late.len() < 20 && late.contains(&true), "{late:?}");
    }
}

#[test]
fn measurements_that_queues_cannot_gather_are_refused() {
    let of = |config: Config| refusal(Config { queues: 2, ..config }).to_string();
    let base = asking(&["top"]);
    let packets = of(Config { epoch: EpochLength::Packets(9), ..base.clone() });
    assert!(packets.contains("use an epoch by time"), "{packets}");
    let workers = of(Config { workers: 2, ..base.clone() });
    assert!(workers.contains("one worker"), "{workers}");
    let updates = of(Config { updates: EpochLength::Time(1), ..base });
    assert!(updates.contains("--updates supports only one queue"), "{updates}");
}

/// A sink that fails ends all meters.
#[test]
fn a_report_that_cannot_be_written_ends_the_meters() {
    struct Full;
    impl Sink for Full {
        fn deliver(&mut self, item: &Item) -> Result<(), SinkError> {
            match item {
                Item::Epoch(_) => Err(io::Error::from(io::ErrorKind::StorageFull).into()),
                Item::Gap(_) | Item::Snapshot(_) | Item::Total(_) => Ok(()),
            }
        }
    }
    let config = Config { epoch: EpochLength::Time(SECOND), ..asking(&["top"]) };
    let (mut meters, group) = queues(config, 2, Pace::Live);
    let packets = traffic(44);
    thread::scope(|scope| {
        let closing = scope.spawn(move || group.close(&mut Full).is_err());
        for meter in &mut meters {
            push(&mut **meter, &packets[..2500].iter().map(frame).collect::<Vec<_>>());
        }
        assert!(closing.join().unwrap());
        assert!(meters.iter().all(|meter| meter.is_done()));
    });
}

/// A source that is damaged ends its own queue only, and its problem is in the outcome.
#[test]
fn several_sources_are_read_at_once() {
    let packets = traffic(42);
    let part = |first: usize| {
        let mut pcap = Pcap::new();
        for (time_ns, frame) in packets.iter().skip(first).step_by(3) {
            pcap.frame(*time_ns as u64, frame);
        }
        pcap.0
    };
    let source = |name: &str, bytes: Vec<u8>| {
        let source: Box<dyn Source + Send> = Box::new(Captures::from_bytes(name, bytes));
        source
    };
    let config = || Config { queues: 3, ..asking(&["cardinality"]) };
    let mut out = Vec::new();
    let sources = ["a", "b", "c"].iter().enumerate().map(|(at, name)| source(name, part(at)));
    let mut sink = Written::new(Json, &mut out);
    let run = run_queues(Plan::new(config()).unwrap(), sources.collect(), &mut sink);
    assert_eq!(run.unwrap().total.account.keyed, PACKETS);
    let total = lines(out).pop().unwrap();
    assert_eq!(total["files"], serde_json::json!(["a", "b", "c"]));
    assert_eq!(total["counters"]["received"], PACKETS);

    let mut out = Vec::new();
    let mut cut = part(1);
    cut.truncate(cut.len() - 1);
    let sources = vec![source("a", part(0)), source("cut", cut), source("c", part(2))];
    let mut sink = Written::new(Json, &mut out);
    let outcome = run_queues(Plan::new(config()).unwrap(), sources, &mut sink).unwrap();
    assert_eq!(outcome.total.account.keyed, PACKETS - 1);
    assert!(matches!(outcome.problems[..], [SourceError::Damaged(_)]), "{outcome:?}");

    let mut sink = Written::new(Json, Vec::new());
    let few = run_queues(Plan::new(config()).unwrap(), Vec::new(), &mut sink);
    assert!(few.unwrap_err().to_string().contains("3 queues"));
}
