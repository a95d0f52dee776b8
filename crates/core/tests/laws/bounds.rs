//! Bounds of estimates: they hold, none exceeds the total, and absent flows keep theirs. Listing
//! favours flows that collide, and the bounds of listed flows must still hold with their
//! confidence.

use std::collections::HashMap;

use flowgauge_core::batch::{BATCH_PACKETS, Batch};
use flowgauge_core::catalog::stored::{decode, encode};
use flowgauge_core::catalog::{self, ALGORITHMS};
use flowgauge_core::key::{FlowKey, Key8, Key16, Key37};
use flowgauge_core::summary::{Answers, Estimate, Info, Merge, Options, SizeEstimate, Summary};
use flowgauge_core::terms::{Measure, Threshold};

use super::stream::{Packet, feed_keys_of, key_of, packets};
use super::zipf::Zipf;
use super::{build, for_all, small};

/// Bounds without a confidence always hold, for flows that were seen and for one that was not.
fn sure_bounds_hold<K: FlowKey, const BYTES: usize>(info: &Info) -> bool {
    let packets = packets(8000, 1500, 11);
    let Some(mut summary) = build::<K>(info, &small().for_keys(BYTES)) else { return false };
    feed_keys_of(BYTES, &mut *summary, &packets, 256);
    let Some(sizes) = summary.answers().size() else { return true };
    for flow in 0..=1500 {
        let estimate = sizes.estimate(key_of::<K>(flow, BYTES).canonical(BYTES));
        let of_flow = || packets.iter().filter(|packet| packet.flow == flow);
        let truths = [of_flow().count() as u64, of_flow().map(|p| u64::from(p.bytes)).sum()];
        for (estimate, truth) in [estimate.packets, estimate.bytes].into_iter().zip(truths) {
            let Some(estimate) = estimate else { continue };
            assert!(estimate.low <= estimate.value && estimate.value <= estimate.high);
            if estimate.confidence.is_none() {
                let truth = truth as f64;
                assert!(
                    estimate.low <= truth && truth <= estimate.high,
                    "{}: flow {flow} has {truth}, and not {estimate:?}",
                    info.name
                );
            }
        }
    }
    true
}

#[test]
fn bounds_without_a_confidence_always_hold() {
    for_all!(sure_bounds_hold);
}

/// Numbers of packets and flows.
const STREAMS: [(usize, u32); 5] = [(1, 1), (7, 3), (40, 2), (300, 12), (4000, 700)];

/// Calls `visit` with every estimated size of flows and prefixes, and of a flow that was not seen.
fn all_sizes<K: FlowKey, const BYTES: usize>(
    answers: &dyn Answers,
    flows: u32,
    visit: &mut dyn FnMut(SizeEstimate),
) {
    if let Some(sizes) = answers.size() {
        for flow in (0..=flows).chain([u32::MAX]) {
            visit(sizes.estimate(key_of::<K>(flow, BYTES).canonical(BYTES)));
        }
    }
    if let Some(candidates) = answers.candidates() {
        candidates.for_each(&mut |_, size| visit(size));
    }
    if let Some(flows) = answers.flows() {
        flows.for_each(&mut |_, size| visit(SizeEstimate::exact(size)));
    }
    let Some(prefixes) = answers.prefixes() else { return };
    for node in 0..prefixes.nodes().len() {
        prefixes.for_each(node, &mut |_, weight| {
            visit(match prefixes.measure() {
                Measure::Packets => SizeEstimate { packets: Some(weight), bytes: None },
                Measure::Bytes => SizeEstimate { packets: None, bytes: Some(weight) },
            });
        });
    }
}

/// No estimate and no lower bound exceeds the total, in one summary and in a merged one.
fn no_flow_exceeds_the_total<K: FlowKey, const BYTES: usize>(info: &Info) -> bool {
    let mut built = false;
    for (by, (count, flows), seed) in [Measure::Packets, Measure::Bytes]
        .into_iter()
        .flat_map(|by| STREAMS.map(|stream| (by, stream)))
        .flat_map(|(by, stream)| [1, 2, 3].map(|seed| (by, stream, seed)))
    {
        let options = Options { by, ..Options::new(64 << 10, seed).for_keys(BYTES) };
        let part = || build::<K>(info, &options);
        let (Some(mut summary), Some(mut other)) = (part(), part()) else { continue };
        built = true;
        let packets = packets(count, flows, seed);
        let (first, second) = packets.split_at(count / 2);
        feed_keys_of(BYTES, &mut *summary, first, 256);
        if info.laws.merge == Merge::Disjoint {
            feed_keys_of(BYTES, &mut *summary, second, 256);
        } else {
            feed_keys_of(BYTES, &mut *other, second, 256);
            summary.merge(&*other).unwrap();
        }
        let total = [count as u64, packets.iter().map(|packet| u64::from(packet.bytes)).sum()];
        all_sizes::<K, BYTES>(summary.answers(), flows, &mut |size| {
            for (estimate, total) in [size.packets, size.bytes].into_iter().zip(total) {
                let Some(Estimate { value, low, .. }) = estimate else { continue };
                let most = total as f64 * (1.0 + 1e-12);
                assert!(value <= most && low <= most, "{}: {estimate:?} of {total}", info.name);
            }
        });
    }
    built
}

#[test]
fn no_estimate_is_over_the_total() {
    for_all!(no_flow_exceeds_the_total);
}

/// More flows than any of these summaries has room for.
const FLOWS: u32 = 1500;

/// Seeds of each stream, and for how many of them a bound of 95 % for all absent flows at once may
/// fail: more than 9 of 40 fail once in 10,000 times.
const SEEDS: u64 = 40;
const MAY_FAIL: u32 = 9;

/// Numbers of parts that a stream is cut into, each with its own summary.
const PARTS: [usize; 2] = [3, 20];

/// Algorithms whose estimates may be too low; the bounds of all others on absent flows are certain.
const LIKELY: [&str; 2] = ["count-sketch", "univmon"];

/// Unfavourable orders for a set of keys: random, the largest flows last, first, and in rounds.
fn orders(seed: u64) -> [Vec<Packet>; 4] {
    let random = packets(6000, FLOWS, seed);
    let (mut sizes, mut rounds) = (HashMap::new(), Vec::new());
    for packet in &random {
        let size: &mut u32 = sizes.entry(packet.flow).or_default();
        rounds.push((*size, *packet));
        *size += 1;
    }
    let [mut last, mut first] = [random.clone(), random.clone()];
    last.sort_by_key(|packet| (sizes[&packet.flow], packet.flow));
    first.sort_by_key(|packet| (u32::MAX - sizes[&packet.flow], packet.flow));
    rounds.sort_by_key(|(round, packet)| (*round, packet.flow));
    [random, last, first, rounds.into_iter().map(|(_, packet)| packet).collect()]
}

/// Whether no absent flow exceeds the bound, and asserts that certain bounds of listed flows hold.
/// `None` without a bound.
fn holds<K: FlowKey, const BYTES: usize>(
    summary: &dyn Summary<K>,
    by: Measure,
    packets: &[Packet],
    name: &str,
) -> Option<bool> {
    let candidates = summary.answers().candidates()?;
    let unnamed = candidates.unnamed(by)?;
    let mut sizes = HashMap::new();
    for packet in packets {
        let weight = if by == Measure::Packets { 1 } else { u64::from(packet.bytes) };
        *sizes.entry(key_of::<K>(packet.flow, BYTES).canonical(BYTES).to_vec()).or_insert(0) +=
            weight;
    }
    candidates.for_each(&mut |key, size| {
        let truth = sizes.remove(key.as_bytes()).unwrap_or(0) as f64;
        let size = size.by(by).unwrap();
        assert!(size.low <= size.value && size.value <= size.high, "{name}: {size:?}");
        if size.confidence.is_none() {
            assert!(size.low <= truth && truth <= size.high, "{name}: {size:?}, not {truth}");
        }
    });
    Some(sizes.into_values().all(|size| size as f64 <= unnamed))
}

/// The number of seeds whose stream fails: as a whole, stored and decoded, or merged from parts.
fn failures<K: FlowKey, const BYTES: usize>(info: &Info, by: Measure) -> Option<u32> {
    let mut failures = 0;
    let likely = LIKELY.contains(&info.name) && by == Measure::Packets;
    let seeds = if likely { SEEDS } else { 2 };
    for seed in 1..=seeds {
        // Few enough flows exceed it that the candidates have room for all of them.
        let threshold = Threshold::Share(0.01);
        let options = Options { by, threshold, ..Options::new(32 << 10, seed).for_keys(BYTES) };
        let mut held = true;
        for packets in orders(seed) {
            let mut whole = build::<K>(info, &options)?;
            feed_keys_of(BYTES, &mut *whole, &packets, 256);
            held &= holds::<K, BYTES>(&*whole, by, &packets, info.name)?;
            let stored = encode(info, &options, &*whole);
            let reread = decode::<K>(&stored, 1 << 20).unwrap().summary;
            let told = |summary: &dyn Summary<K>| summary.answers().candidates()?.unnamed(by);
            assert_eq!(told(&*reread), told(&*whole), "{}", info.name);
            for parts in PARTS {
                let mut sum = build::<K>(info, &options)?;
                for part in packets.chunks(packets.len().div_ceil(parts)) {
                    let mut summary = build::<K>(info, &options)?;
                    feed_keys_of(BYTES, &mut *summary, part, 64);
                    sum.merge(&*summary).unwrap();
                }
                // Merged tables that were full may give no bound.
                held &= holds::<K, BYTES>(&*sum, by, &packets, info.name).unwrap_or(true);
            }
        }
        failures += u32::from(!held);
    }
    Some(failures)
}

#[test]
fn no_absent_flow_exceeds_its_bound() {
    let mut telling = Vec::new();
    for info in ALGORITHMS {
        for by in [Measure::Packets, Measure::Bytes] {
            let failures = failures::<Key8, 8>(info, by);
            let Some(failures) = failures else { continue };
            println!("{} by {by:?}: {failures} failures, seeds from 1", info.name);
            telling.push(info.name);
            let allowed = if LIKELY.contains(&info.name) { MAY_FAIL } else { 0 };
            assert!(failures <= allowed, "{}: {failures}", info.name);
        }
    }
    for name in ["linear-table", "count-min", "count-sketch", "k-ary", "univmon", "space-saving"] {
        assert!(telling.contains(&name), "{name} tells nothing");
    }
}

// Bounds of listed flows. Listing favours flows that collide, and their bounds must still hold
// with their confidence.

const PACKETS: usize = 20_000;
const LISTED_FLOWS: usize = 20_000;

/// Memory in bytes: from sizes in which most flows collide to sizes in which few do.
const SIZES: [usize; 3] = [16 << 10, 64 << 10, 256 << 10];

/// Zipf skews of the traffic.
const SKEWS: [f64; 3] = [0.6, 1.0, 1.3];

/// Runs per algorithm, size and skew: 32, or 4,096 if `FLOWGAUGE_LONG` is set.
fn runs() -> u64 {
    if std::env::var_os("FLOWGAUGE_LONG").is_some() { 4096 } else { 32 }
}

/// A stream of packets, and the number of packets of each flow.
struct Drawn {
    keys: Vec<Key8>,
    packets: Vec<u64>,
}

impl Drawn {
    fn draw(skew: f64, seed: u64) -> Self {
        let flows: Vec<u32> = Zipf::new(LISTED_FLOWS, skew, seed).take(PACKETS).collect();
        let mut packets = vec![0; LISTED_FLOWS];
        for flow in &flows {
            packets[*flow as usize] += 1;
        }
        let key = |flow: u32| Key8::from_canonical(&flow.to_be_bytes()).unwrap();
        Self { keys: flows.into_iter().map(key).collect(), packets }
    }
}

/// Numbers of bounds checked and failed.
#[derive(Default)]
struct Held {
    broken: u64,
    asked: u64,
    /// Mean number of failures by the confidence of each bound.
    allowed: f64,
}

impl Held {
    fn take(&mut self, estimate: &Estimate, truth: f64) {
        self.asked += 1;
        self.broken += u64::from(truth < estimate.low || estimate.high < truth);
        self.allowed += 1.0 - estimate.confidence.unwrap_or(1.0);
    }
}

/// The bounds of the first 10 and 100 listed flows, and of all, hold with their confidence.
#[test]
fn bounds_of_listed_flows_hold_with_their_confidence() {
    let streams = SKEWS.map(|skew| (skew, Drawn::draw(skew, 1)));
    let (mut wrong, mut listing) = (Vec::new(), 0);
    for name in catalog::ALGORITHMS.iter().map(|info| info.name) {
        let lists = catalog::build::<Key8>(name, &Options::new(SIZES[0], 1).for_keys(4))
            .unwrap()
            .answers()
            .candidates()
            .is_some();
        listing += usize::from(lists);
        for memory in SIZES.into_iter().filter(|_| lists) {
            for (skew, stream) in &streams {
                for (first, held) in FIRST.into_iter().zip(listed(name, memory, stream)) {
                    let Held { broken, asked, allowed } = held;
                    let what = format!("{name} in {memory}, skew {skew}, first {first}");
                    if broken > 0 {
                        println!("{what}: {broken} of {asked} broken, {allowed:.1} allowed");
                    }
                    // Four standard deviations are left to chance.
                    if broken as f64 > allowed + 4.0 * allowed.sqrt() {
                        wrong.push(what);
                    }
                }
            }
        }
    }
    // The number of algorithms that list flows.
    assert_eq!(listing, 23);
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// All flows have one size. Those that share all their cells with others have the largest estimates.
/// A bound fails with a chance of 1.8 %; more than 1 of 25 do once in 10,000 runs.
#[test]
fn bounds_of_flows_of_one_size_hold_with_their_confidence() {
    let (mut listed, mut broken) = (0, 0);
    for seed in 0..20 {
        let options =
            Options { threshold: Threshold::Share(1.0 / 3200.0), ..Options::new(1, seed) };
        let options = options.for_keys(4).with([("columns", 2048), ("candidates", 2048)]);
        let mut summary = catalog::build::<Key8>("count-min", &options).unwrap();
        let mut batch = Batch::new();
        for flow in (0..20).flat_map(|_| 0..1000_u32) {
            batch.push(Key8::from_canonical(&flow.to_be_bytes()).unwrap(), 60, 0);
            if batch.len() == BATCH_PACKETS {
                summary.ingest(&mut batch);
                batch.clear();
            }
        }
        summary.ingest(&mut batch);
        let mut sizes = Vec::new();
        summary.answers().candidates().unwrap().for_each(&mut |_, size| {
            sizes.push(size.by(Measure::Packets).unwrap());
        });
        sizes.sort_by(|one, other| other.value.total_cmp(&one.value));
        for size in &sizes[..100] {
            listed += 1;
            broken += usize::from(20.0 < size.low || size.high < 20.0);
        }
    }
    assert!(listed == 2000 && broken * 25 < listed, "{broken} of {listed}");
}

/// Numbers of listed flows to check.
const FIRST: [usize; 3] = [10, 100, 1_000_000];

/// Checks the bounds of the first listed flows of summaries of `memory` bytes, over all runs.
fn listed(name: &str, memory: usize, Drawn { keys, packets }: &Drawn) -> [Held; 3] {
    let mut held: [Held; 3] = Default::default();
    let mut batch = Batch::new();
    for run in 0..runs() {
        // A threshold low enough to list the 100 largest.
        let threshold = Threshold::Share(1.0 / 1600.0);
        let options = Options { threshold, ..Options::new(memory, run).for_keys(4) };
        let mut summary = catalog::build::<Key8>(name, &options).unwrap();
        for keys in keys.chunks(BATCH_PACKETS) {
            batch.clear();
            for key in keys {
                batch.push(*key, 100, 0);
            }
            summary.ingest(&mut batch);
        }
        summary.settle();
        let mut listed = Vec::new();
        summary.answers().candidates().unwrap().for_each(&mut |key, size| {
            let flow = u32::from_be_bytes(key.as_bytes().try_into().unwrap());
            let truth = packets.get(flow as usize).copied().unwrap_or(0);
            if let Some(estimate) = size.by(Measure::Packets) {
                listed.push((estimate, truth as f64));
            }
        });
        listed.sort_by(|(one, _), (other, _)| other.value.total_cmp(&one.value));
        for (first, held) in FIRST.into_iter().zip(&mut held) {
            for (estimate, truth) in listed.iter().take(first) {
                held.take(estimate, *truth);
            }
        }
    }
    held
}

/// Skew, flows and packets of the streams that are merged from parts.
const MERGED: [(f64, usize, usize); 4] =
    [(1.0, 1200, 36_000), (1.0, 20_000, 36_000), (0.8, 20_000, 200_000), (1.2, 20_000, 200_000)];

/// Streams of each kind: 8, or 60 if `FLOWGAUGE_LONG` is set.
fn merged_streams() -> u64 {
    if std::env::var_os("FLOWGAUGE_LONG").is_some() { 60 } else { 8 }
}

/// The 20 largest flows, with their bounds, of a summary that is merged in this order from the parts
/// of a stream.
fn merged_from(
    name: &str,
    options: &Options,
    flows: &[u32],
    order: &[u32],
) -> Vec<(Vec<u8>, Estimate)> {
    let part = |part: u32| {
        let mut summary = catalog::build::<Key8>(name, options).unwrap();
        let mut batch = Batch::new();
        let of_part = |flow: &u32| flow % order.len() as u32 == part;
        let own: Vec<u32> = flows.iter().copied().filter(of_part).collect();
        for flows in own.chunks(BATCH_PACKETS) {
            batch.clear();
            for flow in flows {
                batch.push(Key8::from_canonical(&flow.to_be_bytes()).unwrap(), 100, 0);
            }
            summary.ingest(&mut batch);
        }
        summary
    };
    let mut sum = part(order[0]);
    for other in &order[1..] {
        sum.merge(&*part(*other)).unwrap();
    }
    let mut listed = Vec::new();
    sum.answers().candidates().unwrap().for_each(&mut |key, size| {
        listed.push((key.as_bytes().to_vec(), size.by(Measure::Packets).unwrap()));
    });
    listed.sort_by(|(key, one), (other, two)| {
        two.value.total_cmp(&one.value).then_with(|| key.cmp(other))
    });
    listed.truncate(20);
    listed
}

/// The order in which sketches are merged, and their number, change no bound of a large flow. The
/// seeds are fixed.
#[test]
fn bounds_of_listed_flows_do_not_depend_on_the_parts_of_a_sum() {
    let mut different = Vec::new();
    for name in ["count-min", "count-sketch", "k-ary"] {
        for (memory, (skew, flows, packets)) in
            [128 << 10, 512 << 10].into_iter().flat_map(|memory| MERGED.map(|kind| (memory, kind)))
        {
            for seed in 0..merged_streams() {
                let stream: Vec<u32> = Zipf::new(flows, skew, seed).take(packets).collect();
                let options = Options {
                    threshold: Threshold::Share(0.001),
                    ..Options::new(memory, seed).for_keys(4)
                };
                let merged = |order: &[u32]| merged_from(name, &options, &stream, order);
                let one = merged(&[0]);
                for order in [&[0, 1][..], &[0, 1, 2], &[2, 0, 1], &[1, 2, 0]] {
                    if merged(order) != one {
                        different.push((name, memory, (skew, flows, packets), seed, order));
                    }
                }
            }
        }
    }
    assert!(different.is_empty(), "{different:#?}");
}
