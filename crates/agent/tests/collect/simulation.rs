//! A thousand agents with late, lost, duplicated and split snapshots, and wrong clocks.

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;
use flowgauge_agent::collect::{Known, Outcome};
use flowgauge_engine::report::EpochReport;

use crate::network::{
    LENGTH, LIMITS, Packet, SECOND, START, Sent, Watched, flows, measure, network, sizes, union,
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
