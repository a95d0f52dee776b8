//! Hierarchical heavy hitters against their definition and against exact flows.

use std::collections::BTreeMap;

use flowgauge_core::batch::Batch;
use flowgauge_core::catalog;
use flowgauge_core::key::{FlowKey, Key8, Key16, Key37, KeyKind, KeySpec};
use flowgauge_core::summary::{Options, Summary};
use flowgauge_core::task::{EpochContext, HierarchyItem, Lane, Lists, Report, TaskOptions, find};
use flowgauge_core::terms::{Hierarchy, Measure, Size, Threshold};
use flowgauge_kernel::Seed;

use crate::seeds;

/// A key's canonical bytes, and the bytes of its packet.
type Packet = (Vec<u8>, u32);

/// The canonical length of these keys if their type is `K`.
fn key_bytes<K: FlowKey>(key: KeySpec) -> usize {
    *key.lanes().iter().find(|bytes| K::holds(**bytes)).unwrap()
}

/// Packets whose keys have skewed bytes of few values, so that there are heavy prefixes of all
/// lengths; keys have only the bits that `spec` keeps.
fn packets<K: FlowKey>(count: usize, values: f64, spec: KeySpec, seed: u64) -> Vec<Packet> {
    let mut random = fastrand::Rng::with_seed(seed);
    let key_bytes = key_bytes::<K>(spec);
    let mask: K = spec.mask(key_bytes);
    let mut packet = || {
        let bytes: Vec<u8> = (0..key_bytes)
            .map(|_| (random.f64().powi(4) * values) as u8)
            .map(|byte| byte.wrapping_mul(37))
            .collect();
        let key = K::from_canonical(&bytes).unwrap().masked(mask);
        (key.canonical(key_bytes).to_vec(), random.u32(64..=1500))
    };
    (0..count).map(|_| packet()).collect()
}

fn feed<K: FlowKey>(summary: &mut dyn Summary<K>, packets: &[Packet]) {
    let mut batch = Batch::new();
    for chunk in packets.chunks(256) {
        batch.clear();
        for (key, bytes) in chunk {
            batch.push(K::from_canonical(key).unwrap(), *bytes, 0);
        }
        summary.ingest(&mut batch);
    }
}

fn options(hierarchy: Hierarchy, by: Measure, seed: u64, counters: u64) -> Options {
    let options = Options::new(64 << 20, seed);
    let options = if counters > 0 { options.with([("counters", counters)]) } else { options };
    Options { hierarchy, by, ..options }
}

fn summary<K: FlowKey>(name: &str, options: &Options, packets: &[Packet]) -> Box<dyn Summary<K>> {
    let options = options.clone().for_keys(packets[0].0.len());
    let mut summary = catalog::build::<K>(name, &options).unwrap();
    feed(&mut *summary, packets);
    summary
}

/// The report of the task on these lanes.
fn run(
    hierarchy: Hierarchy,
    by: Measure,
    threshold: Threshold,
    lanes: &[Lane<'_>],
    packets: &[Packet],
) -> Result<(f64, Vec<HierarchyItem>), String> {
    let mut options = TaskOptions::new(Seed::number(1));
    options.hierarchy = hierarchy;
    let mut task = find("hierarchical").unwrap().build(&options).unwrap();
    task.check(by, lanes).map_err(|error| error.to_string())?;
    let bytes = packets.iter().map(|(_, bytes)| u64::from(*bytes)).sum();
    let keyed = Size { packets: packets.len() as u64, bytes };
    let epoch = EpochContext { by, keyed, threshold, lists: Lists::unlimited(10), timeline: None };
    let mut scratch = vec![0; task.scratch_bytes(packets.len()).div_ceil(8)];
    match task.run(&epoch, lanes, &mut scratch).map_err(|error| error.to_string())? {
        Report::Hierarchical { threshold, items, .. } => Ok((threshold, items)),
        report => panic!("{report:?}"),
    }
}

fn lane<K: FlowKey>(key: KeySpec, summary: &dyn Summary<K>) -> Lane<'_> {
    Lane { key, key_bytes: key_bytes::<K>(key), answers: summary.answers() }
}

/// A prefix of the source or the only address, and one of the destination.
type Prefix = Vec<(Vec<u8>, u8)>;

fn cut(address: &[u8], bits: u8) -> Vec<u8> {
    let keep = |at: usize| (usize::from(bits).saturating_sub(8 * at)).min(8) as u32;
    let mask = |at| u8::MAX.checked_shl(8 - keep(at)).unwrap_or(0);
    address.iter().enumerate().map(|(at, byte)| byte & mask(at)).collect()
}

fn prefix(item: &HierarchyItem) -> Prefix {
    let destination = item.destination.map(|(address, bits)| (address.as_bytes().to_vec(), bits));
    std::iter::once((item.source.as_bytes().to_vec(), item.source_bits))
        .chain(destination)
        .collect()
}

fn is_below(one: &Prefix, above: &Prefix) -> bool {
    one.iter().zip(above).all(|((address, bits), (other, shorter))| {
        bits >= shorter && cut(address, *shorter) == *other
    })
}

/// All prefixes of a key, by bytes.
fn above(key: &[u8], addresses: usize) -> Vec<Prefix> {
    let size = key.len() / addresses;
    let sides: Vec<Vec<(Vec<u8>, u8)>> = key
        .chunks(size)
        .map(|address| {
            (0..=8 * size as u8).step_by(8).map(|bits| (cut(address, bits), bits)).collect()
        })
        .collect();
    match sides.as_slice() {
        [one] => one.iter().map(|side| vec![side.clone()]).collect(),
        [one, two] => one
            .iter()
            .flat_map(|one| two.iter().map(move |two| vec![one.clone(), two.clone()]))
            .collect(),
        _ => unreachable!(),
    }
}

/// For every prefix by bytes, its weight and the weight that no longer reported prefix covers.
fn oracle(
    packets: &[Packet],
    by: Measure,
    addresses: usize,
    reported: &[Prefix],
) -> BTreeMap<Prefix, (u64, u64)> {
    let mut flows: BTreeMap<&[u8], u64> = BTreeMap::new();
    for (key, bytes) in packets {
        *flows.entry(key).or_default() += if by == Measure::Bytes { (*bytes).into() } else { 1 };
    }
    let mut weights: BTreeMap<Prefix, (u64, u64)> = BTreeMap::new();
    for (key, weight) in flows {
        let all = above(key, addresses);
        let covering: Vec<&Prefix> = reported.iter().filter(|one| all.contains(one)).collect();
        for prefix in all {
            let covered = covering.iter().any(|one| **one != prefix && is_below(one, &prefix));
            let sums = weights.entry(prefix).or_default();
            sums.0 += weight;
            sums.1 += if covered { 0 } else { weight };
        }
    }
    weights
}

/// The heavy prefixes by the definition.
fn truly_heavy(packets: &[Packet], by: Measure, addresses: usize, threshold: f64) -> Vec<Prefix> {
    let mut prefixes: Vec<Prefix> = oracle(packets, by, addresses, &[]).into_keys().collect();
    let length = |one: &Prefix| one.iter().map(|(_, bits)| u16::from(*bits)).sum::<u16>();
    prefixes.sort_by_key(|one| std::cmp::Reverse(length(one)));
    let mut heavy: Vec<Prefix> = Vec::new();
    for same in prefixes.chunk_by(|a, b| length(a) == length(b)) {
        let weights = oracle(packets, by, addresses, &heavy);
        heavy.extend(same.iter().filter(|one| weights[*one].1 as f64 > threshold).cloned());
    }
    heavy
}

const BOTH: [Measure; 2] = [Measure::Packets, Measure::Bytes];

/// With a counter for every prefix, the report equals that of a table of all flows.
fn equals_the_table<K: FlowKey>(kind: KeyKind, hierarchy: Hierarchy, prefixes: (u8, u8)) {
    let key = KeySpec::from(kind).with_prefixes(prefixes.0, prefixes.1);
    let packets = packets::<K>(3000, 6.0, key, 1);
    for by in BOTH {
        let table = summary::<K>(
            "linear-table",
            &options(hierarchy, by, 1, 0).with([("buckets", 8192)]),
            &packets,
        );
        let counts = summary::<K>("mst", &options(hierarchy, by, 1, 4000), &packets);
        for threshold in [0.001, 0.01, 0.05, 0.3] {
            let report = |summary: &dyn Summary<K>| {
                let threshold = Threshold::Share(threshold);
                run(hierarchy, by, threshold, &[lane(key, summary)], &packets).unwrap()
            };
            let (exact, counted) = (report(&*table), report(&*counts));
            assert!(!exact.1.is_empty());
            assert_eq!(counted, exact, "{key} by {}, {threshold}", by.name());
        }
    }
}

#[test]
fn with_room_for_all_prefixes_the_report_is_exact() {
    for prefixes in [(32, 128), (24, 64), (20, 61), (0, 0)] {
        equals_the_table::<Key8>(KeyKind::SOURCE, Hierarchy::Bytes, prefixes);
        equals_the_table::<Key8>(KeyKind::DESTINATION, Hierarchy::Bits, prefixes);
        equals_the_table::<Key16>(KeyKind::SOURCE, Hierarchy::Bytes, prefixes);
        equals_the_table::<Key8>(KeyKind::PAIR, Hierarchy::Pair, prefixes);
    }
}

#[test]
fn long_addresses_have_all_their_prefixes() {
    equals_the_table::<Key16>(KeyKind::DESTINATION, Hierarchy::Bits, (32, 128));
    let key = KeyKind::PAIR.into();
    let packets = packets::<Key37>(300, 3.0, key, 1);
    let (hierarchy, by) = (Hierarchy::Pair, Measure::Packets);
    let table = summary::<Key37>("linear-table", &options(hierarchy, by, 1, 0), &packets);
    let counts = summary::<Key37>("mst", &options(hierarchy, by, 1, 300), &packets);
    let report = |summary: &dyn Summary<Key37>| {
        run(hierarchy, by, Threshold::Share(0.1), &[lane(key, summary)], &packets).unwrap()
    };
    assert_eq!(report(&*counts), report(&*table));
}

/// The guarantees of MST: the weight of each reported prefix is within N/m and within its bounds,
/// its discounted weight is within its bounds, and no other prefix has an uncovered weight above
/// the threshold. For these streams, all heavy prefixes by the definition are reported.
fn keeps_its_promises<K: FlowKey>(
    sum: &dyn Summary<K>,
    by: Measure,
    hierarchy: Hierarchy,
    kind: KeyKind,
    packets: &[Packet],
    counters: u64,
) {
    let key = kind.into();
    let addresses = if hierarchy == Hierarchy::Pair { 2 } else { 1 };
    for threshold in [0.02, 0.1] {
        let threshold = Threshold::Share(threshold);
        let lanes = [lane(key, sum)];
        let (threshold, items) = run(hierarchy, by, threshold, &lanes, packets).unwrap();
        let reported: Vec<Prefix> = items.iter().map(prefix).collect();
        let weights = oracle(packets, by, addresses, &reported);
        let total = weights.values().map(|sums| sums.0).max().unwrap() as f64;
        for (item, prefix) in items.iter().zip(&reported) {
            let (all, left) = weights.get(prefix).copied().unwrap_or_default();
            for (truth, found) in [(all, item.total), (left, item.discounted)] {
                let truth = truth as f64;
                assert!(found.low <= truth && truth <= found.high, "{item:?}: {truth}");
                assert!(found.confidence.is_none());
            }
            assert!(item.total.high - item.total.low <= total / counters as f64, "{item:?}");
        }
        for (prefix, (_, left)) in &weights {
            assert!(*left as f64 <= threshold || reported.contains(prefix), "{prefix:?}: {left}");
        }
        for prefix in truly_heavy(packets, by, addresses, threshold) {
            assert!(reported.contains(&prefix), "{prefix:?}");
        }
    }
}

#[test]
fn no_heavy_prefix_is_missed_and_bounds_hold() {
    for by in BOTH {
        for seed in 0..2 {
            let one = packets::<Key8>(20_000, 9.0, KeyKind::SOURCE.into(), seed);
            for counters in [100, 400] {
                let options = options(Hierarchy::Bytes, by, seed, counters);
                let sum = summary::<Key8>("mst", &options, &one);
                keeps_its_promises(&*sum, by, Hierarchy::Bytes, KeyKind::SOURCE, &one, counters);
            }
        }
        let two = packets::<Key8>(5_000, 6.0, KeyKind::PAIR.into(), 9);
        let options = options(Hierarchy::Pair, by, 9, 500);
        let sum = summary::<Key8>("mst", &options, &two);
        keeps_its_promises(&*sum, by, Hierarchy::Pair, KeyKind::PAIR, &two, 500);
    }
}

#[test]
fn shards_merge_within_the_bounds() {
    let packets = packets::<Key8>(20_000, 9.0, KeyKind::SOURCE.into(), 5);
    for shards in [2, 7, 16] {
        let options = options(Hierarchy::Bytes, Measure::Packets, 1, 300);
        let parts = packets.chunks(packets.len().div_ceil(shards));
        let mut parts = parts.map(|part| summary::<Key8>("mst", &options, part));
        let mut sum = parts.next().unwrap();
        parts.for_each(|part| sum.merge(&*part).unwrap());
        let (by, kind) = (Measure::Packets, KeyKind::SOURCE);
        keeps_its_promises(&*sum, by, Hierarchy::Bytes, kind, &packets, 300);
    }
}

/// The threshold applies to the weight of both IP versions together.
#[test]
fn two_lanes_are_two_trees_with_one_threshold() {
    let (hierarchy, by, key) = (Hierarchy::Bytes, Measure::Packets, KeyKind::SOURCE.into());
    let (four, six) = (packets::<Key8>(2000, 6.0, key, 1), packets::<Key16>(1000, 3.0, key, 2));
    let all = [four.clone(), six.clone()].concat();
    let report = |name, counters| {
        let options = options(hierarchy, by, 1, counters);
        let four = summary::<Key8>(name, &options, &four);
        let six = summary::<Key16>(name, &options, &six);
        let lanes = [lane(key, &*four), lane(key, &*six)];
        run(hierarchy, by, Threshold::Share(0.05), &lanes, &all).unwrap()
    };
    let exact = report("linear-table", 0);
    let address_bytes = |item: &HierarchyItem| item.source.as_bytes().len();
    assert!([4, 16].iter().all(|bytes| exact.1.iter().any(|item| address_bytes(item) == *bytes)));
    assert_eq!(report("mst", 4000), exact);
}

/// The error of a sum of weights is at most Z √(V w t), with t the weight of its terms, with
/// probability 0.99 for each prefix. Of 96 bounds one fails on average, and more than five (five
/// standard errors) fail once in 2,000 runs. The uncovered weight of unreported prefixes exceeds
/// the threshold by no more than this error, which after Z² V w / ε² packets is at most 2 ε N, as
/// in the paper.
#[test]
fn rhhh_converges() {
    const Z: f64 = 2.576;
    let (hierarchy, kind) = (Hierarchy::Bytes, KeyKind::SOURCE);
    let count = 60_000;
    let packets = packets::<Key8>(count, 6.0, kind.into(), 3);
    for by in BOTH {
        let all = oracle(&packets, by, 1, &[]);
        let total = all.values().map(|sums| sums.0).max().unwrap() as f64;
        let largest = if by == Measure::Bytes { 1500.0 } else { 1.0 };
        for v in [5, 20] {
            let unit = Z * Z * f64::from(v) * largest;
            let counters = 2000;
            let (mut found, mut outside, mut missed) = (0, [0, 0], 0);
            for seed in 0..seeds() {
                let parameters = [("counters", counters), ("v", v)];
                let options = options(hierarchy, by, seed, 0).with(parameters);
                let sum = summary::<Key8>("rhhh", &options, &packets);
                let lanes = [lane(kind.into(), &*sum)];
                let threshold = Threshold::Share(0.2);
                let (threshold, items) = run(hierarchy, by, threshold, &lanes, &packets).unwrap();
                let reported: Vec<Prefix> = items.iter().map(prefix).collect();
                let weights = oracle(&packets, by, 1, &reported);
                for (item, prefix) in items.iter().zip(&reported) {
                    let (all, left) = weights.get(prefix).copied().unwrap_or_default();
                    found += 1;
                    let estimates = [(all, item.total), (left, item.discounted)];
                    for ((truth, estimate), outside) in estimates.into_iter().zip(&mut outside) {
                        let truth = truth as f64;
                        *outside += u32::from(truth < estimate.low || estimate.high < truth);
                        assert_eq!(estimate.confidence, Some(0.99));
                        assert!(estimate.high <= total, "{item:?}");
                    }
                    // The sampling error to either side, and the error of the counters.
                    let value = item.total.value;
                    let most = 2.0 * ((unit * value).sqrt() + unit) + total / f64::from(counters);
                    let width = item.total.high - item.total.low;
                    assert!(width <= most * 1.01, "{width} over {most}");
                }
                let heavy = |(prefix, (all, left)): (&Prefix, &(u64, u64))| {
                    let over = *left as f64 - threshold;
                    // The error of the prefix and of all longer ones.
                    over > (unit * 2.0 * *all as f64).sqrt() && !reported.contains(prefix)
                };
                missed += u32::from(weights.iter().any(heavy));
            }
            println!("v {v} by {}: {outside:?} of {found} outside", by.name());
            let mean = 0.01 * f64::from(found);
            let most = mean + 5.0 * mean.sqrt();
            assert!(found >= 96 && outside.into_iter().all(|n| f64::from(n) <= most), "{most}");
            assert_eq!(missed, 0);
        }
    }
}

/// One number of sides serves both IP versions; IPv6 has more nodes, and each has a side.
#[test]
fn a_die_has_a_side_for_each_node() {
    fn sides<K: FlowKey>(key_bytes: usize, hierarchy: Hierarchy, v: u64) -> Result<String, String> {
        let options = options(hierarchy, Measure::Packets, 1, 0).for_keys(key_bytes);
        let options = options.with([("counters", 4), ("v", v)]);
        let summary = catalog::build::<K>("rhhh", &options).map_err(|error| error.to_string())?;
        Ok(summary.parameters()[1].1.to_string())
    }
    let is = |sides: u64| Ok(sides.to_string());
    assert_eq!(sides::<Key8>(4, Hierarchy::Bytes, 10), is(10));
    assert_eq!(sides::<Key16>(16, Hierarchy::Bytes, 10), is(17));
    assert_eq!(sides::<Key16>(16, Hierarchy::Bytes, 170), is(170));
    assert_eq!(sides::<Key16>(16, Hierarchy::Bits, 33), is(129));
    assert_eq!(sides::<Key8>(8, Hierarchy::Pair, 25), is(25));
    assert_eq!(sides::<Key37>(32, Hierarchy::Pair, 25), is(289));
    for (result, fewest) in [
        (sides::<Key8>(4, Hierarchy::Bytes, 4), 5),
        (sides::<Key16>(16, Hierarchy::Bytes, 4), 5),
        (sides::<Key8>(4, Hierarchy::Bits, 32), 33),
        (sides::<Key8>(8, Hierarchy::Pair, 24), 25),
    ] {
        let error = result.unwrap_err();
        assert!(error.contains(&format!("is not a whole number from {fewest} to")), "{error}");
    }
}

/// At the lowest threshold that the sample supports, most reported prefixes are heavy, and most
/// heavy prefixes are reported.
#[test]
fn rhhh_reports_heavy_prefixes() {
    let (hierarchy, kind, by) = (Hierarchy::Bytes, KeyKind::SOURCE, Measure::Packets);
    let packets = packets::<Key8>(200_000, 256.0, kind.into(), 3);
    let truth = truly_heavy(&packets, by, 1, 199.0);
    let (mut right, mut reported, mut wanted) = (0, 0, 0);
    for seed in 0..8 {
        let sum =
            summary::<Key8>("rhhh", &options(hierarchy, by, seed, 0).with([("v", 5)]), &packets);
        let least = sum.answers().prefixes().unwrap().sampling().unwrap().least();
        assert!((198.5..199.5).contains(&least), "{least}");
        let (threshold, lanes) = (Threshold::Weight(199), [lane(kind.into(), &*sum)]);
        let (_, items) = run(hierarchy, by, threshold, &lanes, &packets).unwrap();
        right += items.iter().filter(|item| truth.contains(&prefix(item))).count();
        reported += items.len();
        wanted += truth.len();
    }
    println!("{right} of {reported} right, of {wanted} wanted");
    assert!(10 * right > 8 * reported && 10 * right > 8 * wanted);
}

/// Every prefix is reported, and each is processed once, not once per other prefix.
#[test]
fn many_reported_prefixes_take_linear_time() {
    let (hierarchy, kind, by) = (Hierarchy::Bytes, KeyKind::SOURCE, Measure::Packets);
    let flows = (0..150_000_u32).flat_map(|flow| {
        let address = flow.wrapping_mul(0x9e37_79b1).to_be_bytes().to_vec();
        [(address.clone(), 64), (address, 64)]
    });
    let packets: Vec<Packet> = flows.collect();
    let report = |name, counters| {
        let sum = summary::<Key8>(name, &options(hierarchy, by, 1, counters), &packets);
        run(hierarchy, by, Threshold::Weight(1), &[lane(kind.into(), &*sum)], &packets).unwrap().1
    };
    let exact = report("linear-table", 0);
    assert_eq!(exact.len(), 150_000);
    assert_eq!(report("mst", 150_000), exact);
}

#[test]
fn unsuitable_keys_and_questions_are_refused() {
    let refused = |result: Result<(), String>| result.unwrap_err();
    let build = |hierarchy, name: &str| {
        let options = options(hierarchy, Measure::Packets, 1, 10);
        let five = catalog::build::<Key16>(name, &options.clone().for_keys(13)).map(drop);
        let pair = catalog::build::<Key8>(name, &options).map(drop);
        [five, pair].map(|result| result.map_err(|error| error.to_string()))
    };
    for name in ["mst", "rhhh"] {
        let [five, pair] = build(Hierarchy::Bytes, name);
        assert!(refused(five).contains("use --key source or destination"));
        assert!(refused(pair).contains("use --hierarchy pair"));
        let [five, pair] = build(Hierarchy::Pair, name);
        assert!(refused(five).contains("needs --key pair") && pair.is_ok());
    }
    let options = options(Hierarchy::Bytes, Measure::Packets, 1, 10).for_keys(4);
    let counts = catalog::build::<Key8>("mst", &options).unwrap();
    let lanes = [lane(KeyKind::SOURCE.into(), &*counts)];
    let ask = |hierarchy, by| run(hierarchy, by, Threshold::Share(0.1), &lanes, &[]).map(drop);
    assert!(refused(ask(Hierarchy::Bits, Measure::Packets)).contains("another hierarchy"));
    assert!(refused(ask(Hierarchy::Bytes, Measure::Bytes)).contains("counts bytes"));
    assert_eq!(ask(Hierarchy::Bytes, Measure::Packets), Ok(()));
    let few = Options { hierarchy: Hierarchy::Bits, ..Options::new(1000, 1) };
    let error = catalog::build::<Key16>("mst", &few).err().unwrap().to_string();
    assert!(error.contains("too small:"), "{error}");
}
