//! The flow table behind a regulator: evictions, exact counts and merges, and FlowRegulator before
//! exact tables.

use std::collections::HashMap;

use flowgauge_core::batch::Batch;
use flowgauge_core::catalog;
use flowgauge_core::key::Key8;
use flowgauge_core::summary::Options;
use flowgauge_core::summary::instant::WorkingSet;
use flowgauge_core::terms::{Measure, Size};

use super::*;
use crate::long;

/// The forwarded packets of each flow, from estimates of `unit` per packet. The residual marks
/// represent less than one more, of the mean length.
fn counts(summary: &Summary, unit: f64) -> HashMap<usize, Size> {
    let mut counts = HashMap::new();
    summary.answers().candidates().unwrap().for_each(&mut |key, size| {
        let [packets, bytes] = [size.packets, size.bytes].map(|size| size.unwrap().value);
        let count = (packets / unit + 1e-9).floor();
        let [packets, bytes] = [count, (count * bytes / packets).round()].map(|size| size as u64);
        assert!(counts.insert(flow_of(&key), Size { packets, bytes }).is_none(), "listed twice");
    });
    counts
}

/// The table does not influence which packets the regulator forwards: what a small table evicted is
/// its difference to a large one, and the heaviest flows stay complete.
#[test]
fn evictions_are_counted() {
    let mut summaries = [
        build("rcc", 1, &[("entries", 1 << 16)]),
        build("rcc", 1, &[("entries", 1024), ("probes", 8)]),
    ];
    let truth = feed(&mut summaries, 400_000, 20_000, 1, |_, random| mixed(random));
    let [large, small] = &summaries;
    let (all, kept) = (counts(large, RCC_UNIT), counts(small, RCC_UNIT));
    assert_eq!(large.answers().candidates().unwrap().overflow(), 0);
    assert_eq!(large.answers().untracked(), Size::default());
    assert!(all.len() > 3000 && kept.len() <= 1024);
    assert!(small.answers().candidates().unwrap().overflow() >= (all.len() - kept.len()) as u64);

    let sum = |counts: &HashMap<usize, Size>| counts.values().copied().sum::<Size>();
    let decoded = |count: u64| (count as f64 * RCC_UNIT).round() as u64;
    let (all_of_it, rest) = (sum(&all), sum(&kept));
    assert_eq!(small.answers().untracked().packets, decoded(all_of_it.packets - rest.packets));
    assert_eq!(small.answers().untracked().bytes, decoded(all_of_it.bytes - rest.bytes));
    for flow in 0..50 {
        assert_eq!(all[&flow], kept[&flow], "flow {flow}");
        let bounds = |summary| estimate(summary, flow).packets.unwrap();
        assert_eq!(bounds(large), bounds(small), "its flow came before any eviction");
    }
    // Flows that came after the first eviction may have lost all evicted packets.
    let evicted = small.answers().untracked().packets as f64;
    for flow in (0..truth.len()).filter(|flow| !kept.contains_key(flow)) {
        assert!(estimate(small, flow).packets.unwrap().high >= evicted);
    }
}

/// Without a regulator, the table counts exactly the packets that it does not evict.
#[test]
fn alone_it_counts_exactly() {
    let table = |entries: u64| -> Summary {
        let options = Options::new(0, 1).for_keys(4).with([("entries", entries)]);
        Box::new(WorkingSet::<Key8>::from_options(&options, 0).unwrap())
    };
    let mut tables = [table(1 << 15), table(1024), table(1024)];
    let truth = feed(&mut tables[..2], 100_000, 5000, 1, |_, random| mixed(random));
    let more = feed(&mut tables[2..], 100_000, 5000, 2, |_, random| mixed(random));
    let check = |table: &Summary, truth: &[Size], exact: bool| {
        let mut sum = table.answers().untracked();
        table.answers().candidates().unwrap().for_each(&mut |_, size| {
            let [packets, bytes] =
                [size.packets, size.bytes].map(|size| size.unwrap().value as u64);
            sum += Size { packets, bytes };
        });
        assert_eq!(sum, truth.iter().copied().sum());
        for (flow, truth) in truth.iter().enumerate() {
            for by in [Measure::Packets, Measure::Bytes] {
                let size = estimate(table, flow).by(by).unwrap();
                let truth = truth.by(by) as f64;
                assert!(size.low <= truth && truth <= size.high && size.confidence.is_none());
                assert!(!exact || size.high <= size.low, "{flow}: {size:?}");
            }
        }
    };
    let [large, mut small, other] = tables;
    check(&large, &truth, true);
    check(&small, &truth, false);
    assert!(small.answers().untracked().packets > 1000);
    small.merge(&*other).unwrap();
    let both: Vec<Size> = truth.iter().zip(&more).map(|(one, other)| *one + *other).collect();
    check(&small, &both, false);
    assert_eq!(small.merge(&*large).unwrap_err().0, "parameters differ");
}

/// Sends `packets` packets of a flow at the same time.
fn send(summary: &mut Summary, flow: u32, packets: usize, time_ns: i64) {
    let mut batch = Batch::<Key8>::new();
    for _ in 0..packets {
        batch.push(key(flow), 100, time_ns);
        summary.ingest(&mut batch);
        batch.clear();
    }
}

/// A full table of two flows, one of which was updated: a new flow evicts the other, unless the
/// updated one has expired.
#[test]
fn the_expired_go_first_and_then_those_without_a_second_chance() {
    for (silent_seconds, evicted) in [(0, 2), (9, 2), (11, 1)] {
        let parameters = [("entries", 2), ("probes", 2), ("timeout", 10)];
        let mut summary = build("rcc", 1, &parameters);
        let seconds = |seconds: i64| seconds * 1_000_000_000;
        send(&mut summary, 1, 200, 0);
        while !counts(&summary, RCC_UNIT).contains_key(&2) {
            send(&mut summary, 2, 1, seconds(silent_seconds));
        }
        while summary.answers().candidates().unwrap().overflow() == 0 {
            send(&mut summary, 3, 1, seconds(silent_seconds));
        }
        let kept = counts(&summary, RCC_UNIT);
        assert!(kept.contains_key(&3));
        assert!(!kept.contains_key(&evicted), "{silent_seconds} s: {kept:?}");
    }
}

/// After a merge of shards every flow has the sum of its counts.
#[test]
fn a_merge_unites_the_tables() {
    let mut shards: Vec<Summary> = (0..4).map(|_| build("insta-measure", 1, &[])).collect();
    let mut truth = Vec::new();
    for (number, shard) in shards.iter_mut().enumerate() {
        let one = std::slice::from_mut(shard);
        truth.push(feed(one, 100_000, 2000, number as u64, |_, _| 100));
    }
    let parts: Vec<_> = shards.iter().map(|shard| counts(shard, UNIT)).collect();
    let mut shards = shards.into_iter();
    let mut sum = shards.next().unwrap();
    for shard in shards {
        sum.merge(&*shard).unwrap();
    }
    let counts = counts(&sum, UNIT);
    let mut outside = 0;
    for flow in 0..2000 {
        let of_parts = parts.iter().filter_map(|part| part.get(&flow));
        let expected = of_parts.map(|size| size.packets).sum::<u64>();
        let count = counts.get(&flow).map_or(0, |size| size.packets);
        assert_eq!(count, expected, "flow {flow}");
        let truth = truth.iter().map(|part| part[flow].packets).sum::<u64>() as f64;
        let bounds = estimate(&sum, flow).packets.unwrap();
        outside += usize::from(truth < bounds.low || bounds.high < truth);
    }
    assert!(outside <= 100, "{outside} of 2000 flows");
    let error = sum.merge(&*build("rcc", 1, &[])).unwrap_err().to_string();
    assert!(error.contains("types differ"), "{error}");
    let error = sum.merge(&*build("insta-measure", 1, &[("probes", 3)])).unwrap_err().to_string();
    assert!(error.contains("parameters differ"), "{error}");
}

/// If all packets of a flow have the same length, its bytes are its packets times that length.
#[test]
fn bytes_follow_packets() {
    let mut summaries = [build("insta-measure", 1, &[])];
    feed(&mut summaries, 200_000, 2000, 1, |flow, _| 64 + flow % 1400);
    for flow in 0..100 {
        let size = estimate(&summaries[0], flow);
        let [packets, bytes] = [size.packets, size.bytes].map(|size| size.unwrap().value);
        assert!((bytes - packets * (64 + flow % 1400) as f64).abs() < 1e-6 * bytes);
    }
}

#[test]
fn parameters_out_of_range_are_refused() {
    for (name, value) in [
        ("sketch", 32),
        ("sketch", 1000),
        ("word", 16),
        ("levels", 2),
        ("probes", 0),
        ("timeout", 0),
    ] {
        let options = Options::new(1 << 20, 1).for_keys(4).with([(name, value)]);
        let error = catalog::build::<Key8>("insta-measure", &options).err().unwrap().to_string();
        assert!(error.starts_with(&format!("'{name}={value}' is not ")), "{error}");
    }
    let options = Options::new(1 << 20, 1).for_keys(4).with([("levels", 1)]);
    let error = catalog::build::<Key8>("rcc", &options).err().unwrap().to_string();
    assert!(error.contains("unknown parameter 'levels' of rcc"), "{error}");
    for by in [Measure::Packets, Measure::Bytes] {
        assert!(estimate(&build("rcc", 1, &[]), 0).by(by).is_some());
    }
}

// FlowRegulator before exact tables: it forwards the packets that InstaMeasure counts.

const TABLES: [&str; 4] = ["linear-table", "indirect-table", "cuckoo-1", "cuckoo-4"];

/// Errors of flows in these size classes are within their limits, and at most one packet in ninety
/// is forwarded.
fn is_accurate(summary: &Summary, truth: &[Size], limits: &[((u64, u64), f64)]) {
    let regulation = regulation(summary, truth, UNIT);
    println!("regulation {:.3} %", 100.0 * regulation);
    assert!(regulation <= 0.011, "{regulation}");
    for by in [Measure::Packets, Measure::Bytes] {
        for &(class, limit) in limits {
            let errors = errors(summary, truth, by, class, UNIT);
            println!("{by:?} {class:?}: {} flows, mean error {:.4}", errors.flows, errors.mean);
            assert!(errors.flows > 0 && errors.mean <= limit, "{by:?} {class:?}: {}", errors.mean);
        }
    }
}

/// At one 25th of the size of the paper's evaluation, see [`super::accuracy`].
#[test]
fn a_table_behind_it_answers_like_the_working_set() {
    for regulator in [
        &[("sketch", 8 << 10)][..],
        &[("sketch", 4 << 10), ("levels", 1)],
        &[("sketch", 8 << 10), ("word", 64)],
    ] {
        let mut summaries = vec![build("insta-measure", 1, regulator)];
        summaries.extend(TABLES.map(|table| regulated(table, 16 << 20, &[], regulator)));
        let truth = feed(&mut summaries, 4_000_000, 40_000, 1, |flow, _| {
            64 + flow.wrapping_mul(811) % 1437
        });
        for (summary, table) in summaries[1..].iter().zip(TABLES) {
            for flow in 0..truth.len() {
                assert_eq!(
                    estimate(summary, flow),
                    estimate(&summaries[0], flow),
                    "{table} {flow}"
                );
            }
        }
        is_accurate(
            &summaries[1],
            &truth,
            &[((100_000, 1_000_000), 0.010), ((10_000, 100_000), 0.035)],
        );
    }
}

/// 100 million packets of a million flows.
#[test]
fn errors_at_the_papers_size() {
    if !long() {
        return;
    }
    let mut summaries = TABLES.map(|table| regulated(table, 64 << 20, &[], &[]));
    let truth = feed(&mut summaries, 100_000_000, 1_000_000, 1, |flow, _| 64 + flow % 1437);
    let limits =
        [((1_000_000, u64::MAX), 0.003), ((100_000, 1_000_000), 0.010), ((10_000, 100_000), 0.035)];
    for summary in &summaries {
        is_accurate(summary, &truth, &limits);
    }
}

/// Packets that find no room in a full table are untracked, and in the bounds of flows without an
/// entry.
#[test]
fn packets_without_room_are_untracked() {
    let sum = |summary: &Summary| {
        let mut sum = (0.0, 0);
        summary.answers().candidates().unwrap().for_each(&mut |_, size| {
            sum.0 += (size.packets.unwrap().value / UNIT + 1e-9).floor();
            sum.1 += 1;
        });
        sum
    };
    for table in TABLES {
        let parameters = [("buckets", 64)];
        let regulator = [("sketch", 8 << 10)];
        let mut summaries = [
            regulated(table, 16 << 20, &[], &regulator),
            regulated(table, 1 << 20, &parameters, &regulator),
        ];
        let truth = feed(&mut summaries, 400_000, 20_000, 1, |_, random| mixed(random));
        let [large, small] = &summaries;
        let ((all, flows), (kept, few)) = (sum(large), sum(small));
        assert_eq!(large.answers().untracked(), Size::default());
        assert!(flows > 300 && few < 256, "{table}: {flows}, {few}");
        let untracked = small.answers().untracked();
        let lacking = ((all - kept) * UNIT).round();
        assert!(
            (untracked.packets as f64 - lacking).abs() < 1.0,
            "{table}: {untracked:?} {lacking}"
        );

        let mut listed = vec![false; truth.len()];
        small.answers().candidates().unwrap().for_each(&mut |key, _| listed[flow_of(&key)] = true);
        for flow in (0..truth.len()).filter(|flow| !listed[*flow]) {
            let high = estimate(small, flow).packets.unwrap().high;
            assert!(high >= untracked.packets as f64, "{table} {flow}: {high}");
        }
        for by in [Measure::Packets, Measure::Bytes] {
            let errors = errors(small, &truth, by, (0, u64::MAX), UNIT);
            assert!(errors.covered > 0.95, "{table} {by:?}: {}", errors.covered);
        }
    }
}
