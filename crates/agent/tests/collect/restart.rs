//! A collector killed at any point loses nothing, and repeated reports have the same id.

use std::collections::{BTreeMap, BTreeSet};

use flowgauge_agent::collect::Position;
use flowgauge_engine::report::{EpochReport, Network};
use flowgauge_kernel::Seed;

use crate::network::{
    LENGTH, LIMITS, SECOND, START, Sent, Watched, flows, listed, network, sizes, snapshots,
};

/// A message in the log: its arrival time and its position.
struct Logged {
    time_ns: i64,
    partition: i32,
    offset: i64,
    sent: Sent,
}

const AGENTS: [&str; 5] = ["a", "b", "c", "d", "e"];

/// Messages of 30 epochs in two partitions: some late, some repeated, some incompatible.
fn log() -> Vec<Logged> {
    let mut random = fastrand::Rng::with_seed(81);
    let mut log = Vec::new();
    for (agent, source) in AGENTS.iter().zip(1..) {
        let of_one = match *agent {
            "e" => flowgauge_engine::Config { seed: Seed::file(&[8; 64]), ..flows() },
            _ => flows(),
        };
        for (epoch, sent) in (0..).zip(snapshots(agent, &of_one, 30, &[source, 100])) {
            let late = match random.u32(0..10) {
                0 => random.i64(40..150),
                _ => random.i64(0..5),
            };
            let time_ns = START + (epoch + 1) * LENGTH + late * SECOND;
            let copies = if random.u32(0..10) == 0 { 2 } else { 1 };
            for copy in 0..copies {
                let (time_ns, sent) = (time_ns + copy * SECOND, sent.clone());
                log.push(Logged { time_ns, partition: (epoch % 2) as i32, offset: 0, sent });
            }
        }
    }
    log.sort_by_key(|logged| logged.time_ns);
    let mut next = [0; 2];
    for logged in &mut log {
        let next = &mut next[logged.partition as usize];
        logged.offset = *next;
        *next += 1;
    }
    log
}

/// Runs a collector from these positions, as if it had started when the log had reached `started`,
/// to the end of the log or until it is killed. Returns the committed positions.
fn collect(
    log: &[Logged],
    positions: &[Position],
    started: usize,
    killed: Option<usize>,
    reports: &mut Vec<EpochReport>,
) -> Vec<Position> {
    let mut all = Watched::new(LIMITS, listed(&AGENTS));
    for Position { partition, floors, .. } in positions {
        all.collector.assign(*partition, floors);
    }
    let since = |logged: &Logged| {
        let of = positions.iter().find(|position| position.partition == logged.partition);
        of.is_none_or(|position| logged.offset >= position.offset)
    };
    let mut committed = positions.to_vec();
    for (at, logged) in log.iter().enumerate().take(killed.unwrap_or(log.len())) {
        if !since(logged) {
            continue;
        }
        // When the collector comes back, it reads missed messages at once.
        let now_ns = logged.time_ns.max(log[started].time_ns);
        let Logged { partition, offset, sent, .. } = logged;
        let mut message = sent.message(*offset);
        message.partition = *partition;
        all.collector.feed(&message, now_ns);
        let mut emit = |report: EpochReport, _: &_| reports.push(report);
        all.collector.close_complete(now_ns, &mut emit).unwrap();
        if at >= started {
            all.collector.advance(now_ns, &mut emit).unwrap();
            for position in all.collector.positions() {
                committed.retain(|before| before.partition != position.partition);
                committed.push(position);
            }
        }
    }
    if killed.is_none() {
        let mut emit = |report: EpochReport, _: &_| reports.push(report);
        let end_ns = log.last().unwrap().time_ns;
        for seconds in 0..1000 {
            all.collector.advance(end_ns + seconds * SECOND, &mut emit).unwrap();
        }
    }
    committed
}

/// The last correction of each epoch's report, by start.
fn last(reports: &[EpochReport]) -> BTreeMap<i64, (Network, BTreeMap<Vec<u8>, u64>)> {
    let mut last = BTreeMap::<i64, (Network, _)>::new();
    for report in reports {
        let mut of = network(report).clone();
        of.late.clear();
        let start_ns = report.start_ns.unwrap();
        if last.get(&start_ns).is_none_or(|(before, _)| before.revision <= of.revision) {
            last.insert(start_ns, (of, sizes(report)));
        }
    }
    last
}

#[test]
fn killed_at_fifty_points_it_reports_the_same() {
    println!("seed 81");
    let log = log();
    let mut expected = Vec::new();
    collect(&log, &[], 0, None, &mut expected);
    assert_eq!(last(&expected).len(), 30);
    assert!(last(&expected).values().all(|(network, _)| network.left_out.len() == 1));
    assert!(expected.len() > 35, "some are corrected");
    for point in 0..50 {
        let killed = (point + 1) * log.len() / 51;
        let mut reports = Vec::new();
        let positions = collect(&log, &[], 0, Some(killed), &mut reports);
        collect(&log, &positions, killed, None, &mut reports);
        assert_eq!(last(&reports), last(&expected), "killed at {killed}");
        same_ids_say_the_same(&reports);
    }
}

#[test]
fn killed_again_and_again_it_reports_the_same() {
    println!("seed 81");
    let log = log();
    let (mut expected, mut reports) = (Vec::new(), Vec::new());
    collect(&log, &[], 0, None, &mut expected);
    let (mut positions, mut started) = (Vec::new(), 0);
    for point in 1..=50 {
        let killed = point * log.len() / 51;
        positions = collect(&log, &positions, started, Some(killed), &mut reports);
        started = killed;
    }
    collect(&log, &positions, started, None, &mut reports);
    assert_eq!(last(&reports), last(&expected));
    same_ids_say_the_same(&reports);
}

/// Among reports with the same id, any may be dropped.
fn same_ids_say_the_same(reports: &[EpochReport]) {
    let mut by_id = BTreeMap::new();
    for report in reports {
        let mut of = network(report).clone();
        of.late.clear();
        let of = (of, sizes(report));
        let before = by_id.entry(network(report).id.clone()).or_insert_with(|| of.clone());
        assert_eq!(*before, of);
    }
}

/// A partition that another collector takes over starts where its epochs start.
#[test]
fn partitions_move_between_collectors() {
    let log = log();
    let (mut one, mut other) =
        (Watched::new(LIMITS, listed(&AGENTS)), Watched::new(LIMITS, listed(&AGENTS)));
    let half = log.len() / 2;
    let mut reports = Vec::new();
    let mut emit = |report: EpochReport, _: &_| reports.push(report);
    let mut feed = |all: &mut Watched, logged: &Logged, now_ns: i64| {
        let mut message = logged.sent.message(logged.offset);
        message.partition = logged.partition;
        all.collector.feed(&message, now_ns);
        all.collector.close_complete(now_ns, &mut emit).unwrap();
    };
    one.collector.assign(1, "");
    assert_eq!(one.collector.positions(), [], "nothing was read yet");
    for logged in &log[..half] {
        feed(&mut one, logged, logged.time_ns);
    }
    let positions = one.collector.positions();
    one.collector.revoke(1);
    let of_one = positions.iter().find(|position| position.partition == 1).unwrap();
    let Position { offset, floors, .. } = of_one;
    other.collector.assign(1, floors);
    let moved_ns = log[half].time_ns;
    for logged in log[..half].iter().filter(|one| one.partition == 1 && one.offset >= *offset) {
        feed(&mut other, logged, moved_ns);
    }
    for logged in &log[half..] {
        feed(if logged.partition == 0 { &mut one } else { &mut other }, logged, logged.time_ns);
    }
    let end_ns = log.last().unwrap().time_ns + 1000 * SECOND;
    for all in [&mut one, &mut other] {
        all.advance(end_ns);
        reports.append(&mut all.reports);
    }
    let mut expected = Vec::new();
    collect(&log, &[], 0, None, &mut expected);
    let starts = |reports: &[EpochReport]| last(reports).into_keys().collect::<BTreeSet<_>>();
    assert_eq!(starts(&reports), starts(&expected));
    let whole = |reports: &[EpochReport]| {
        last(reports).values().filter(|(network, _)| network.missing.is_empty()).count()
    };
    assert!(whole(&reports) >= whole(&expected));
}
