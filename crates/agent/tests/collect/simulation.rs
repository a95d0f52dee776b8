//! A thousand agents with late, lost, duplicated and split snapshots, and wrong clocks; and a
//! collector killed at any point, which loses nothing and repeats reports under the same id.

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;
use flowgauge_agent::collect::{Known, Outcome, Position};
use flowgauge_engine::report::{EpochReport, Network};
use flowgauge_kernel::Seed;

use crate::network::{
    LENGTH, LIMITS, Packet, SECOND, START, Sent, Watched, flows, listed, measure, network, sizes,
    snapshots, union,
};

const AGENTS: usize = 1000;
const EPOCHS: i64 = 8;

/// Packets per agent and epoch.
const PACKETS: i64 = 4;

/// The packets an agent sent in an epoch, by address.
type Truth = BTreeMap<String, Vec<u16>>;

/// A snapshot in transit, and its contents.
struct Flight {
    arrives_ns: i64,
    sent: Sent,
    sources: Vec<u16>,
}

/// The snapshots of an agent whose clock is `skew_ns` ahead, and which restarts at some point.
fn fly(agent: &str, skew_ns: i64, random: &mut Rng, flights: &mut Vec<Flight>) -> u64 {
    let config = flows();
    let mut packets: Vec<Packet> = Vec::new();
    for slot in 0..EPOCHS * PACKETS {
        let time_ns = START + slot * (LENGTH / PACKETS) + random.i64(0..LENGTH / PACKETS);
        packets.push((time_ns + skew_ns, random.u16(0..3000)));
    }
    let restart = if random.u32(0..20) == 0 { random.usize(1..packets.len()) } else { 0 };
    let mut lost = 0;
    for run in [&packets[..restart], &packets[restart..]] {
        if run.is_empty() {
            continue;
        }
        for saved in measure(&config, run) {
            let sent = Sent::new(agent, &saved);
            let (start_ns, end_ns) = saved.bounds_ns;
            let of_epoch = run.iter().filter(|(time_ns, _)| (start_ns..end_ns).contains(time_ns));
            let sources = of_epoch.map(|(_, source)| *source).collect();
            let delay_ns = match random.u32(0..100) {
                0 => random.i64(40 * SECOND..250 * SECOND),
                1 => random.i64(400 * SECOND..500 * SECOND),
                _ => random.i64(0..3 * SECOND),
            };
            let arrives_ns = end_ns - skew_ns + delay_ns;
            if random.u32(0..100) == 0 {
                lost += 1;
                continue;
            }
            let flight = Flight { arrives_ns, sent, sources };
            if random.u32(0..50) == 0 {
                let (arrives_ns, sent) =
                    (arrives_ns + random.i64(0..60 * SECOND), flight.sent.clone());
                flights.push(Flight { arrives_ns, sent, sources: flight.sources.clone() });
            }
            flights.push(flight);
        }
    }
    lost
}

/// Checks a report against the merged snapshots of its epoch.
fn check(report: &EpochReport, merged: &BTreeMap<i64, (u64, Truth)>, all: &BTreeSet<String>) {
    let (snapshots, of_epoch) = &merged[&report.start_ns.unwrap()];
    let network = network(report);
    assert_eq!(network.revision, *snapshots);
    assert_eq!(network.reported, of_epoch.len() as u64);
    assert_eq!(sizes(report), union(of_epoch.values().flatten().copied()));
    let reported: BTreeSet<_> = of_epoch.keys().cloned().collect();
    assert_eq!(network.missing, all.difference(&reported).cloned().collect::<Vec<_>>());
    assert!(network.left_out.is_empty());
}

#[test]
fn every_report_of_a_thousand_agents_is_the_union_of_its_snapshots() {
    println!("seed 82");
    let mut random = Rng::with_seed(82);
    let names: Vec<_> = (0..AGENTS).map(|agent| format!("edge-{agent:04}")).collect();
    let all: BTreeSet<_> = names.iter().cloned().collect();
    let (mut flights, mut lost) = (Vec::new(), 0);
    for name in &names {
        let skew_ns = match random.u32(0..100) {
            0 => random.i64(-25 * SECOND..25 * SECOND),
            _ => random.i64(-2 * SECOND..2 * SECOND),
        };
        lost += fly(name, skew_ns, &mut random, &mut flights);
    }
    flights.sort_by_key(|flight| flight.arrives_ns);

    let known = Known::Listed(names.iter().map(|name| name.as_str().into()).collect());
    let mut collector = Watched::new(LIMITS, known);
    let mut merged: BTreeMap<i64, (u64, Truth)> = BTreeMap::new();
    let mut late: BTreeMap<String, u64> = BTreeMap::new();
    let (mut now_ns, mut checked) = (START, 0);
    for flight in &flights {
        while now_ns + SECOND < flight.arrives_ns {
            now_ns += SECOND;
            collector.advance(now_ns);
        }
        for report in collector.reports.drain(..) {
            check(&report, &merged, &all);
            checked += 1;
        }
        let Flight { arrives_ns, sent, sources } = flight;
        let outcome = collector.feed(sent, *arrives_ns).outcome;
        match outcome {
            Outcome::Merged => {
                let (snapshots, of_epoch) = merged.entry(sent.start_ns).or_default();
                *snapshots += 1;
                of_epoch.entry(sent.agent.clone()).or_default().extend(sources);
            }
            Outcome::Late => *late.entry(sent.agent.clone()).or_default() += 1,
            outcome => assert_eq!(outcome, Outcome::Duplicate),
        }
        // The reports that this snapshot completes.
        for report in collector.reports.drain(..) {
            check(&report, &merged, &all);
            checked += 1;
        }
    }
    for seconds in 0..600 {
        collector.advance(now_ns + seconds * SECOND);
    }
    for report in collector.reports.drain(..) {
        check(&report, &merged, &all);
        checked += 1;
    }
    let counts = collector.collector.counts();
    let counted: BTreeMap<_, _> =
        counts.late().map(|(agent, late)| (agent.to_owned(), late)).collect();
    assert_eq!(counted, late);
    assert_eq!(counts.of(Outcome::LeftOut) + counts.of(Outcome::Conflict), 0);
    let outcomes = [Outcome::Merged, Outcome::Duplicate, Outcome::Late].map(|one| counts.of(one));
    println!("{checked} reports; merged, copies, late: {outcomes:?}; {lost} lost");
    assert!(outcomes.iter().all(|count| *count > 50) && lost > 50, "{outcomes:?}, {lost} lost");
    assert!(checked > EPOCHS as u64 * 2, "{checked} reports: none is corrected");
}

// A collector killed at any point loses nothing, and repeated reports have the same id.

/// A message in the log: its arrival time and its position.
struct Logged {
    time_ns: i64,
    partition: i32,
    offset: i64,
    sent: Sent,
}

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

/// Messages of 30 epochs in two partitions: some late, some repeated, some incompatible.
fn log() -> Vec<Logged> {
    let mut random = fastrand::Rng::with_seed(81);
    let mut log = Vec::new();
    for (agent, source) in NAMES.iter().zip(1..) {
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
    let mut all = Watched::new(LIMITS, listed(&NAMES));
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
        (Watched::new(LIMITS, listed(&NAMES)), Watched::new(LIMITS, listed(&NAMES)));
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
