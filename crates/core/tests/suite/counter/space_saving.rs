//! Space-Saving and its linked buckets: guarantees, replacement order, merges, and accuracy.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use datasketches::frequencies::FrequentItemsSketch;
use flowgauge_core::catalog;
use flowgauge_core::catalog::stored::{decode, encode};
use flowgauge_core::key::Key8;
use flowgauge_core::summary::Summary;
use flowgauge_core::terms::Measure;

use crate::seconds;

use super::{Packet, estimate, feed, named, options, packets, summary, weights};

const FLOWS: u32 = 3000;

/// For each key, f ≤ estimate ≤ f + N/m and f is within the bounds; every key above N/m is named.
fn keeps_its_promises(summary: &dyn Summary<Key8>, by: Measure, packets: &[Packet], counters: u64) {
    let weights = weights(packets, by);
    let total: u64 = weights.values().sum();
    let most = total as f64 / counters as f64;
    let named = named(summary, by);
    assert!(named.len() as u64 <= counters);
    for flow in 0..=FLOWS {
        let truth = weights.get(&flow).copied().unwrap_or(0) as f64;
        let found = estimate(summary, by, flow);
        assert!(truth <= found.value && found.value <= truth + most, "{flow}: {truth}, {found:?}");
        assert!(found.low <= truth && truth <= found.high && found.confidence.is_none());
        assert!(found.high - found.low <= most, "{flow}: {found:?}");
        assert!(truth <= most || named.contains_key(&flow), "{flow} weighs {truth} over {most}");
        assert!(named.get(&flow).is_none_or(|named| *named == found));
    }
}

#[test]
fn estimates_are_within_the_bounds_and_heavy_keys_have_counters() {
    for (skew, seed) in [(0.0, 1), (0.8, 2), (1.1, 3), (1.5, 4)] {
        let packets = packets(30_000, FLOWS as usize, skew, seed);
        for counters in [1, 2, 3, 5, 16, 17, 100, 1000, 2999, 5000] {
            for (name, by) in [
                ("space-saving", Measure::Packets),
                ("space-saving", Measure::Bytes),
                ("stream-summary", Measure::Packets),
            ] {
                let options = options(by, seed, &[("counters", counters)]);
                keeps_its_promises(&*summary(name, &options, &packets), by, &packets, counters);
            }
        }
    }
}

/// The counts of either algorithm add up to the total weight, without merges and full counters.
#[test]
fn counts_add_up_to_all_packets() {
    let packets = packets(20_000, FLOWS as usize, 1.0, 5);
    for counters in [7, 64, 500] {
        for name in ["space-saving", "stream-summary"] {
            let options = options(Measure::Packets, 1, &[("counters", counters)]);
            let named = named(&*summary(name, &options, &packets), Measure::Packets);
            let sum: f64 = named.values().map(|estimate| estimate.value).sum();
            assert_eq!((named.len() as u64, sum), (counters, 20_000.0), "{name}");
        }
    }
}

/// With unit weights the multiset of counts is determined: each packet adds one to the count of its
/// key or to a minimum count. Only the choice among keys with the minimum count may differ.
#[test]
fn both_algorithms_have_the_same_counts() {
    for (skew, seed) in [(0.5, 6), (1.1, 7)] {
        // Here every key has a counter; below, so many lack one that all counts equal the minimum.
        let packets = packets(20_000, 50, skew, seed);
        let both = ["space-saving", "stream-summary"].map(|name| {
            let options = options(Measure::Packets, 1, &[("counters", 64)]);
            named(&*summary(name, &options, &packets), Measure::Packets)
        });
        assert_eq!(both[0], both[1]);
    }
    let rounds: Vec<Packet> = (0..10_000).map(|i| (i % 100, 64)).collect();
    let counts = ["space-saving", "stream-summary"].map(|name| {
        let options = options(Measure::Packets, 1, &[("counters", 40)]);
        let named = named(&*summary(name, &options, &rounds), Measure::Packets);
        let mut counts: Vec<u64> = named.values().map(|estimate| estimate.value as u64).collect();
        counts.sort_unstable();
        counts
    });
    assert_eq!(counts[0], vec![250; 40]);
    assert_eq!(counts[1], counts[0]);
}

#[test]
fn keys_without_a_counter_replace_the_minimum() {
    let packets: Vec<Packet> = [1, 1, 1, 2, 2, 3, 4].map(|flow| (flow, 100)).to_vec();
    for name in ["space-saving", "stream-summary"] {
        let options = options(Measure::Packets, 1, &[("counters", 3)]);
        let named = named(&*summary(name, &options, &packets), Measure::Packets);
        let bounds: BTreeMap<u32, (f64, f64)> =
            named.iter().map(|(flow, found)| (*flow, (found.low, found.high))).collect();
        assert_eq!(bounds, BTreeMap::from([(1, (3.0, 3.0)), (2, (2.0, 2.0)), (4, (1.0, 2.0))]));
    }
}

/// The bounds of each key by the definition, if the first of several minimum counts is replaced.
fn defined(packets: &[Packet], by: Measure, counters: usize) -> BTreeMap<u32, (f64, f64)> {
    let mut entries: Vec<(u32, u64, u64)> = Vec::new();
    let mut entry_of = HashMap::<u32, usize>::new();
    let mut in_order = BTreeSet::<(u64, usize)>::new();
    for &(flow, bytes) in packets {
        let weight = if by == Measure::Packets { 1 } else { u64::from(bytes) };
        let mut entry = entry_of.get(&flow).copied();
        if entry.is_none() && entries.len() < counters {
            entries.push((flow, 0, 0));
            entry = Some(entries.len() - 1);
        }
        let entry = entry.unwrap_or_else(|| {
            let (count, least) = *in_order.first().unwrap();
            entry_of.remove(&entries[least].0);
            entries[least] = (flow, count, count);
            least
        });
        entry_of.insert(flow, entry);
        let count = &mut entries[entry].1;
        in_order.remove(&(*count, entry));
        *count += weight;
        in_order.insert((*count, entry));
    }
    let bounds = |(flow, count, error)| (flow, ((count - error) as f64, count as f64));
    entries.into_iter().map(bounds).collect()
}

/// Sweep and tournament find the same entry as a linear search, also after encoding and decoding
/// half-way.
fn replaces_the_first_minimum(by: Measure, counters: u64, packets: &[Packet], seed: u64) {
    let options = options(by, seed, &[("counters", counters)]);
    let (first, second) = packets.split_at(packets.len() / 2);
    let half = summary("space-saving", &options, first);
    let info = catalog::info("space-saving").unwrap();
    let stored = encode(info, &options, &*half);
    let mut summary = decode::<Key8>(&stored, 1 << 24).unwrap().summary;
    feed(&mut *summary, second);
    let found = named(&*summary, by).into_iter();
    let found = found.map(|(flow, found)| (flow, (found.low, found.high)));
    let expected = defined(packets, by, counters as usize);
    assert!(found.eq(expected), "{counters} counters by {}, seed {seed}", by.name());
}

/// At the ends of blocks of entries, with keys that repeat at once, soon or never.
#[test]
fn the_first_of_the_minimum_counts_is_replaced() {
    for (skew, seed) in [(0.0, 12), (0.7, 13), (1.1, 14)] {
        let mut packets = packets(12_000, FLOWS as usize, skew, seed);
        // Trains of packets, as traffic has them.
        packets.iter_mut().enumerate().for_each(|(i, packet)| packet.0 += (i / 700) as u32 % 5);
        for by in [Measure::Packets, Measure::Bytes] {
            for counters in [1, 2, 7, 63, 64, 65, 128, 200, 600] {
                replaces_the_first_minimum(by, counters, &packets, seed);
            }
        }
    }
}

/// Enough counters for floors of two and three levels.
#[test]
fn the_first_of_many_minimum_counts_is_replaced() {
    for (counters, flows, skew, seed) in [(16_385, 40_000, 0.5, 15), (40_000, 200_000, 0.2, 16)] {
        let packets = packets(3 * counters, flows, skew, seed);
        replaces_the_first_minimum(Measure::Packets, counters as u64, &packets, seed);
    }
}

#[test]
fn shards_merge_within_the_bounds() {
    let packets = packets(40_000, FLOWS as usize, 1.0, 8);
    for (name, by) in [
        ("space-saving", Measure::Packets),
        ("space-saving", Measure::Bytes),
        ("stream-summary", Measure::Packets),
    ] {
        for shards in [1, 2, 3, 8, 16] {
            for counters in [20, 300] {
                let options = options(by, 1, &[("counters", counters)]);
                let parts = packets.chunks(packets.len().div_ceil(shards));
                let mut parts = parts.map(|part| summary(name, &options, part));
                let mut sum = parts.next().unwrap();
                parts.for_each(|part| sum.merge(&*part).unwrap());
                keeps_its_promises(&*sum, by, &packets, counters);
                // Counting continues within the bounds.
                feed(&mut *sum, &packets[..5000]);
                let twice = [&packets[..], &packets[..5000]].concat();
                keeps_its_promises(&*sum, by, &twice, counters);
            }
        }
    }
}

#[test]
fn sizes_that_differ_do_not_merge() {
    let build = |counters| {
        let options = options(Measure::Packets, 1, &[("counters", counters)]);
        catalog::build::<Key8>("space-saving", &options).unwrap()
    };
    let error = build(10).merge(&*build(11)).unwrap_err().to_string();
    assert!(error.contains("parameters differ"), "{error}");
}

/// Space-Saving in as many bytes as the frequent items sketch of DataSketches: it guarantees a
/// smaller error (N/m instead of 3.5 N per slot), its widest interval is no wider, and its total
/// error of the 50 heaviest keys is no larger. Single streams are not compared, since both are
/// nearly exact there.
#[test]
fn space_saving_is_no_worse_than_frequent_items_in_as_much_memory() {
    let (mut our_error, mut peer_error) = (0.0, 0.0);
    for (skew, seed) in [(0.8, 9), (1.0, 10), (1.2, 11)] {
        let packets = packets(200_000, 50_000, skew, seed);
        let weights = weights(&packets, Measure::Packets);
        let mut peer = FrequentItemsSketch::<u64>::new(1024).unwrap();
        for (flow, _) in &packets {
            peer.update(u64::from(*flow));
        }
        let mut options = options(Measure::Packets, 1, &[]);
        options.memory_bytes = peer.estimated_size();
        let ours = summary("space-saving", &options, &packets);
        assert!(ours.memory_bytes() <= peer.estimated_size());
        for flow in 0..50 {
            let truth = weights[&flow] as f64;
            our_error += (estimate(&*ours, Measure::Packets, flow).value - truth).abs();
            peer_error += (peer.estimate(&u64::from(flow)) as f64 - truth).abs();
        }
        let width = |flow| estimate(&*ours, Measure::Packets, flow);
        let width = |flow| width(flow).high - width(flow).low;
        let our_widest = weights.keys().map(|flow| width(*flow)).fold(0.0, f64::max);
        println!(
            "skew {skew}: {our_error} against {peer_error}, {our_widest} wide at most against {}",
            peer.maximum_error()
        );
        let counters: f64 = ours.parameters()[0].1.to_string().parse().unwrap();
        assert!(our_widest <= 200_000.0 / counters && 1.0 / counters < peer.epsilon());
        assert!(our_widest <= peer.maximum_error() as f64);
    }
    assert!(our_error <= peer_error, "{our_error} against {peer_error}");
}

/// A merge visits each entry of both sides and computes the minimum count once, as do queries for
/// many absent keys. Computing it for each key would take more than 2³⁴ steps.
#[test]
fn many_counters_merge_and_answer_fast() {
    const COUNTERS: u64 = 1 << 17;
    for (name, by) in [
        ("space-saving", Measure::Packets),
        ("space-saving", Measure::Bytes),
        ("stream-summary", Measure::Packets),
    ] {
        let options = options(by, 1, &[("counters", COUNTERS)]);
        let part = |first: u32| {
            let keys = first..first + COUNTERS as u32 + 10;
            summary(name, &options, &keys.map(|flow| (flow, 64)).collect::<Vec<_>>())
        };
        let (mut sum, other) = (part(0), part(1 << 30));
        let begin = seconds();
        sum.merge(&*other).unwrap();
        let merged = seconds() - begin;
        let begin = seconds();
        let absent = estimate(&*sum, by, u32::MAX);
        for flow in 1 << 20..(1 << 20) + COUNTERS as u32 {
            assert_eq!(estimate(&*sum, by, flow), absent);
        }
        let answered = seconds() - begin;
        println!("{name} by {}: merged in {merged:.3} s, answered in {answered:.3} s", by.name());
        assert!(merged < 1.0 && answered < 1.0, "{merged} s, {answered} s");
        // New packets invalidate the cached minimum.
        feed(&mut *sum, &[(5, 1000), (6, 1000), (7, 1000)]);
        let unit = if by == Measure::Bytes { 64.0 } else { 1.0 };
        assert!(estimate(&*sum, by, u32::MAX).value <= absent.value + unit);
        sum.clear();
        assert!(estimate(&*sum, by, u32::MAX).high.total_cmp(&0.0).is_eq());
    }
}
