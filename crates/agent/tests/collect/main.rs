//! Tests of the collector: snapshots of many agents in, network-wide reports out.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

mod network;
mod simulation;

use std::sync::Arc;

use flowgauge_agent::collect::{Known, Limits, Outcome, PublishedCounts};
use flowgauge_agent::prometheus::Metrics;
use flowgauge_core::summary::Parameters;
use flowgauge_engine::sink::{Item, Sink};
use flowgauge_engine::snapshot::Snapshot;
use flowgauge_engine::{Config, EpochLength};
use flowgauge_kernel::Seed;

use network::{
    LENGTH, LIMITS, SECOND, START, Sent, Watched, flows, listed, measure, network, seed, sizes,
    snapshots, union,
};

/// End of the first epoch.
const END: i64 = START + LENGTH;

#[test]
fn an_epoch_is_reported_as_soon_as_all_agents_have_sent_it() {
    let agents = ["a", "b", "c"];
    let mut all = Watched::of(&agents);
    let sent: Vec<_> = agents
        .iter()
        .zip([[1, 2], [2, 3], [3, 3]])
        .map(|(agent, sources)| snapshots(agent, &flows(), 1, &sources).remove(0))
        .collect();
    for sent in &sent {
        assert!(all.reports.is_empty());
        assert_eq!(all.feed(sent, END + SECOND).outcome, Outcome::Merged);
    }
    let report = all.reports.last().unwrap();
    assert_eq!((report.start_ns, report.end_ns), (Some(START), Some(END)));
    assert_eq!(report.epoch.cast_signed(), START / LENGTH);
    assert_eq!(sizes(report), union([1, 2, 2, 3, 3, 3].repeat(2)));
    let last = all.last();
    assert_eq!((last.agents, last.reported, last.revision), (3, 3, 3));
    assert!(last.missing.is_empty() && last.left_out.is_empty() && last.late.is_empty());
    assert!(report.notes.iter().any(|note| note == "3 of 3 agents reported, in 3 snapshots"));
    all.advance(END + 1000 * SECOND);
    assert_eq!(all.reports.len(), 1);
    // Bit for bit as 'flowgauge merge' adds them.
    let decode = |sent: &Sent| Snapshot::decode(&sent.bytes, 1 << 30, Some(&seed())).unwrap();
    let mut sum = decode(&sent[0]);
    sent[1..].iter().for_each(|sent| sum.merge(&decode(sent)).unwrap());
    assert_eq!(all.sums[0], sum.encode());
}

/// A hash with the agents' common seed selects the audited flows, so the audits of their sketches
/// add up to that of one sketch over all traffic.
#[test]
fn audits_add_up_over_the_network() {
    let columns = Parameters::new([("columns", 64), ("rows", 1)]);
    let config = Config {
        algorithm: "count-min".to_owned(),
        parameters: columns,
        audit: Some(2),
        memory_bytes: 1 << 20,
        ..flows()
    };
    let sources: Vec<u16> = (1..400).collect();
    let (mut all, mut whole) = (Watched::of(&["a", "b"]), Watched::of(&["c"]));
    for (agent, sources) in [("a", &sources[..250]), ("b", &sources[150..])] {
        all.feed(&snapshots(agent, &config, 1, sources)[0], END);
    }
    let both = [&sources[..250], &sources[150..]].concat();
    whole.feed(&snapshots("c", &config, 1, &both)[0], END);
    let audit = all.reports[0].audit.as_deref().unwrap();
    assert_eq!(whole.reports[0].audit.as_deref(), Some(audit));
    let observed = audit.observed;
    assert!((150..250).contains(&observed.flows), "{observed:?}");
    assert!(observed.bias() > 1.0 && observed.rmse() > observed.bias(), "{observed:?}");
}

#[test]
fn missing_agents_are_waited_for_and_correct_the_report_until_they_are_too_late() {
    let mut all = Watched::of(&["a", "b", "c"]);
    let [mut a, mut b, mut c] =
        ["a", "b", "c"].map(|agent| snapshots(agent, &flows(), 2, &[1]).into_iter());
    all.feed(&a.next().unwrap(), END);
    all.advance(END + 30 * SECOND - 1);
    assert!(all.reports.is_empty());
    all.advance(END + 30 * SECOND);
    let last = all.last();
    assert_eq!((last.agents, last.reported, last.revision), (3, 1, 1));
    assert_eq!(last.missing, ["b", "c"]);
    // A late snapshot corrects the report after the delay, or at once if no other one is missing.
    let now_ns = END + 100 * SECOND;
    all.feed(&b.next().unwrap(), now_ns);
    all.advance(now_ns + 30 * SECOND - 1);
    assert_eq!(all.reports.len(), 1);
    all.advance(now_ns + 30 * SECOND);
    let last = all.last();
    assert_eq!((all.reports.len(), last.reported, last.revision), (2, 2, 2));
    assert_eq!(last.missing, ["c"]);
    assert_eq!(sizes(&all.reports[1]), union([1; 4]));
    // After that, the epoch is no longer kept.
    all.advance(END + 330 * SECOND);
    let late = c.next().unwrap();
    assert_eq!(all.feed(&late, END + 330 * SECOND).outcome, Outcome::Late);
    assert_eq!(all.collector.counts().late().collect::<Vec<_>>(), [("c", 1)]);
    for of_next in [a.next(), b.next(), c.next()] {
        all.feed(&of_next.unwrap(), END + 331 * SECOND);
    }
    assert_eq!(all.reports.len(), 3);
    assert_eq!(all.last().late, [("c".to_owned(), 1)]);
    assert_eq!((all.last().reported, all.last().revision), (3, 3));
    let ids: std::collections::BTreeSet<_> =
        all.reports.iter().map(|report| &network(report).id).collect();
    assert_eq!(ids.len(), 3);
}

#[test]
fn an_epoch_counts_once_however_often_it_comes() {
    let mut all = Watched::of(&["a", "b"]);
    let a = snapshots("a", &flows(), 1, &[1]).remove(0);
    all.feed(&a, END);
    for _ in 0..4 {
        assert_eq!(all.feed(&a, END).outcome, Outcome::Duplicate);
    }
    // Different bytes with the same id are rejected, and are a sign of an error.
    let other = Sent { id: a.id.clone(), ..snapshots("a", &flows(), 1, &[2]).remove(0) };
    assert_eq!(all.feed(&other, END).outcome, Outcome::Conflict);
    // The same epoch under another id is recognized by its coverage.
    let renamed = Sent { id: "another".to_owned(), ..a.clone() };
    let fed = all.feed(&renamed, END);
    assert_eq!((fed.outcome, fed.why.unwrap().0), (Outcome::LeftOut, "epoch"));
    all.feed(&snapshots("b", &flows(), 1, &[1]).remove(0), END);
    assert_eq!(sizes(&all.reports[0]), union([1; 4]));
    assert_eq!(all.left_out(), [("a", "epoch"), ("a", "id")]);
    assert_eq!(all.last().revision, 2);
    // A copy of a reported snapshot changes nothing.
    all.feed(&a, END + SECOND);
    all.advance(END + 100 * SECOND);
    assert_eq!(all.reports.len(), 1);
}

#[test]
fn unmergeable_snapshots_are_named_with_the_field_that_differs() {
    let mut all = Watched::of(&["a", "b", "cut", "garbage", "seed", "shape", "old", "whole"]);
    let own = |agent: &str, config: &Config| snapshots(agent, config, 1, &[9]).remove(0);
    // Incompatible snapshots come first: the group with the most agents wins.
    let other_seed = Config { seed: Seed::file(&[8; 64]), ..flows() };
    let more = Parameters::new([("buckets", 2048)]);
    let other_shape = Config { parameters: more, ..flows() };
    let mut old = own("old", &flows());
    old.bytes[4] = 9;
    let crc = crc32(&old.bytes[..old.bytes.len() - 4]);
    let end = old.bytes.len() - 4;
    old.bytes[end..].copy_from_slice(&crc.to_le_bytes());
    let mut cut = own("cut", &flows());
    cut.bytes.truncate(100);
    let garbage = Sent { bytes: vec![0xff; 1000], ..own("garbage", &flows()) };
    for (sent, field) in [
        (own("seed", &other_seed), "seed"),
        (old, "version"),
        (cut, "bytes"),
        (garbage, "bytes"),
        (own("stranger", &flows()), "agent"),
    ] {
        let fed = all.feed(&sent, END);
        assert_eq!((fed.outcome, fed.why.unwrap().0), (Outcome::LeftOut, field), "{}", sent.agent);
    }
    assert_eq!(all.feed(&own("shape", &other_shape), END).outcome, Outcome::Merged);
    let packets = Config { epoch: EpochLength::Packets(1), ..flows() };
    let by_packets = Sent::new("whole", &measure(&packets, &[(START, 1)])[0]);
    assert_eq!(all.feed(&by_packets, END).why.unwrap().0, "epoch");
    all.feed(&own("a", &flows()), END);
    assert!(all.reports.is_empty(), "b is missing");
    all.feed(&own("b", &flows()), END);
    let expected = [
        ("cut", "bytes"),
        ("garbage", "bytes"),
        ("old", "version"),
        ("seed", "seed"),
        ("shape", "parameters"),
        ("stranger", "agent"),
        ("whole", "epoch"),
    ];
    assert_eq!(all.left_out(), expected);
    let shape = &all.last().left_out[4].reason;
    assert!(shape.contains("2048") && shape.contains("but most agents have"), "{shape}");
    assert_eq!((all.last().agents, all.last().reported), (9, 2));
    assert_eq!(sizes(&all.reports[0]), union([9; 4]));
    assert_eq!(all.reports.len(), 1);
    let other = Config { name: "other".to_owned(), ..flows() };
    assert_eq!(all.feed(&own("a", &other), END).outcome, Outcome::NotCollected);
}

/// The checksum at the end of a snapshot.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| {
        let shift = |crc: u32| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| shift(crc))
    };
    !bytes.iter().fold(u32::MAX, step)
}

/// The first half of an epoch must not close it.
#[test]
fn an_agent_that_restarts_within_an_epoch_is_waited_for() {
    let mut all = Watched::of(&["a", "b"]);
    let first = measure(&flows(), &[(START, 1), (START + SECOND, 1)]);
    let second = measure(&flows(), &[(START + 5 * SECOND, 2), (END, 3)]);
    all.feed(&snapshots("b", &flows(), 1, &[4]).remove(0), END);
    all.feed(&Sent::new("a", &first[0]), START + SECOND);
    assert!(all.reports.is_empty());
    all.feed(&Sent::new("a", &second[0]), END);
    assert_eq!(sizes(&all.reports[0]), union([1, 1, 2, 4, 4]));
    assert_eq!((all.last().reported, all.last().revision), (2, 3));
}

#[test]
fn agents_are_learned_and_forgotten() {
    let mut all = Watched::new(LIMITS, Known::learned(100 * SECOND));
    let [a, b] = ["a", "b"].map(|agent| snapshots(agent, &flows(), 20, &[1]));
    let end_ns = |epoch: i64| START + (epoch + 1) * LENGTH;
    // Only the first agent is known so far.
    all.feed(&a[0], end_ns(0));
    all.feed(&b[0], end_ns(0));
    all.advance(end_ns(0));
    assert_eq!((all.last().reported, all.last().agents), (2, 2));
    // The other one is waited for, until it has been silent for too long.
    let mut agents = Vec::new();
    for (epoch, sent) in (1..).zip(&a[1..]) {
        all.feed(sent, end_ns(epoch));
        all.advance(end_ns(epoch));
        if all.reports.iter().any(|report| report.start_ns == Some(sent.start_ns)) {
            agents.push(epoch);
        }
    }
    assert_eq!(agents, (11..20).collect::<Vec<_>>(), "reported at once");
    let missing: Vec<_> =
        all.reports.iter().filter(|report| !network(report).missing.is_empty()).collect();
    assert_eq!(missing.len(), 7, "after the delay");
    // Another collector restores the learned agents.
    let mut other = Known::learned(100 * SECOND);
    other.remember(&all.collector.known().learned_agents());
    let mut other = Watched::new(LIMITS, other);
    other.feed(&b[19], end_ns(19));
    assert!(other.reports.is_empty(), "a is missing");
}

#[test]
fn memory_is_limited_and_refused_snapshots_are_counted() {
    let of_one =
        Snapshot::decode(&snapshots("a", &flows(), 1, &[1])[0].bytes, 1 << 30, Some(&seed()));
    let memory_bytes = 3 * (of_one.unwrap().memory_bytes() + 4096);
    let mut all = Watched::new(Limits { memory_bytes, ..LIMITS }, listed(&["a", "b"]));
    let [a, b] = ["a", "b"].map(|agent| snapshots(agent, &flows(), 10, &[1]));
    for sent in &a[..3] {
        assert_eq!(all.feed(sent, END).outcome, Outcome::Merged);
    }
    // Open epochs are not dropped for another one.
    let fed = all.feed(&a[3], END);
    assert_eq!((fed.outcome, fed.why.unwrap().0), (Outcome::LeftOut, "memory"));
    assert_eq!(all.collector.counts().of(Outcome::LeftOut), 1);
    // The oldest reported one is dropped. Its later snapshots are too late.
    all.feed(&b[0], END);
    all.feed(&b[1], END);
    assert_eq!(all.reports.len(), 2);
    assert_eq!(all.feed(&a[4], END).outcome, Outcome::Merged);
    let again = snapshots("b", &flows(), 1, &[1]).remove(0);
    assert_eq!(all.feed(&again, END).outcome, Outcome::Late);
    // An agent whose clock is far ahead opens no epochs.
    let ahead = START - 1000 * SECOND;
    assert_eq!(all.feed(&a[9], ahead).why.unwrap().0, "time");
}

/// A corrected epoch counts once, and gauges stay those of the latest epoch.
#[test]
fn metrics_count_each_epoch_once() {
    let mut all = Watched::of(&["a", "b"]);
    let [a, b] = ["a", "b"].map(|agent| snapshots(agent, &flows(), 2, &[1, 2]));
    all.feed(&a[0], END);
    all.advance(END + 30 * SECOND);
    all.feed(&a[1], END + LENGTH);
    all.feed(&b[1], END + LENGTH);
    all.feed(&b[0], END + 100 * SECOND);
    assert_eq!(all.reports.len(), 3);
    let counts = PublishedCounts::default();
    counts.set(all.collector.counts());
    let mut metrics = Metrics::of_network(100, counts);
    let value = |metrics: &Metrics, series: &str| {
        let text = metrics.encode();
        let line = text.lines().find_map(|line| line.strip_prefix(series));
        line.unwrap_or_else(|| panic!("{series}: {text}")).trim().to_owned()
    };
    let mut seen = Vec::new();
    for report in &all.reports {
        metrics.deliver(&Item::Epoch(Arc::new(report.clone()))).unwrap();
        let of = |name: &str| value(&metrics, &format!("{name}{{measurement=\"flows\"}}"));
        let missing = "flowgauge_agents{measurement=\"flows\",state=\"missing\"}";
        seen.push([
            of("flowgauge_packets_total"),
            of("flowgauge_epochs_total"),
            of("flowgauge_epoch_snapshots"),
            value(&metrics, missing),
        ]);
    }
    assert_eq!(seen[0], ["4", "1", "1.0", "1.0"]);
    assert_eq!(seen[1], ["12", "2", "2.0", "0.0"]);
    assert_eq!(seen[2], ["16", "2", "2.0", "0.0"]);
    let merged = "flowgauge_collected_snapshots_total{outcome=\"merged\"}";
    assert_eq!(value(&metrics, merged), "4");
}

/// Also one that is older than the newest thousand.
#[test]
fn an_epoch_that_is_corrected_counts_once_in_prometheus() {
    let mut all = Watched::of(&["a"]);
    all.feed(&snapshots("a", &flows(), 1, &[1, 2])[0], START + LENGTH);
    let report = all.reports.remove(0);
    let mut metrics = Metrics::of_network(10, PublishedCounts::default());
    let mut count = |epoch: i64| {
        let mut report = report.clone();
        report.start_ns = Some(START + epoch * SECOND);
        metrics.deliver(&Item::Epoch(Arc::new(report))).unwrap();
        let text = metrics.encode();
        ["epochs", "packets"].map(|name| {
            let name = format!("flowgauge_{name}_total{{measurement=\"flows\"}} ");
            text.lines().find_map(|line| line.strip_prefix(&name)).unwrap().to_owned()
        })
    };
    let counts: Vec<_> = (0..1200).map(&mut count).collect();
    for epoch in [0, 199, 200, 1199] {
        assert_eq!(count(epoch), counts[1199], "{epoch}");
    }
}
