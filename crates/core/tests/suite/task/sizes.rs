//! Tasks on the sizes of flows: lists (`top`, `heavy-hitters`, `flow-size`), and their distribution
//! (`cardinality`, `entropy`, `size-distribution`, `quantiles`).

use std::collections::BTreeMap;

use flowgauge_core::batch::{BATCH_PACKETS, Batch};
use flowgauge_core::catalog;
use flowgauge_core::key::{CanonicalKey, FlowKey, Key8, KeyKind};
use flowgauge_core::summary::{
    Answers, Estimate, Options, QuantileOf, Quantiles, SizeEstimate, Summary,
};
use flowgauge_core::task::{EpochContext, Lane, Lists, Report, Selection, SizeItem};
use flowgauge_core::terms::{Measure, Size, Threshold};
use proptest::prelude::*;

use super::support::{Case, Rough, Table, any_key, build, case, check, options, run_once};

/// All flows, by weight and then by key.
fn sorted(case: &Case) -> Vec<SizeItem> {
    let total = case.context().keyed.by(case.by);
    let mut items: Vec<_> = case.flows().collect();
    items.sort_by(|(a, x), (b, y)| y.by(case.by).cmp(&x.by(case.by)).then(a.cmp(b)));
    let item = |(key, size): (CanonicalKey, Size)| SizeItem {
        key,
        size: SizeEstimate::exact(size),
        share: size.by(case.by) as f64 / total as f64,
        seen: None,
    };
    items.into_iter().map(item).collect()
}

/// Listed flows that no untracked flow can exceed.
fn certain(case: &Case, items: &[SizeItem]) -> u64 {
    let untracked = case.tables.iter().map(|(_, table)| table.untracked.by(case.by)).max();
    let least = untracked.unwrap_or(0) as f64;
    items.iter().filter(|item| item.size.by(case.by).unwrap().value >= least).count() as u64
}

#[test]
fn top_is_the_head_of_all_flows_sorted() {
    check(1, case(any_key()), |case| {
        let mut items = sorted(&case);
        items.truncate(case.top);
        let report = run_once("top", &options(), &case);
        let complete_to = certain(&case, &items);
        let selection = Selection::Largest;
        assert_eq!(report, Report::Sizes { selection, items, truncated: 0, complete_to });
    });
}

#[test]
fn heavy_hitters_are_all_flows_strictly_over_the_threshold() {
    check(2, case(any_key()), |case| {
        let threshold = case.threshold();
        let mut items = sorted(&case);
        items.retain(|item| item.size.by(case.by).unwrap().value > threshold);
        let report = run_once("heavy-hitters", &options(), &case);
        let complete_to = certain(&case, &items);
        let selection = Selection::Over(threshold);
        assert_eq!(report, Report::Sizes { selection, items, truncated: 0, complete_to });
    });
}

#[test]
fn flow_size_finds_present_flows_and_bounds_absent_ones() {
    let cases = (case(any_key()), prop::collection::vec(any::<prop::sample::Index>(), 1..6));
    check(3, cases, |(case, picks)| {
        let known: Vec<_> = case.flows().collect();
        let absent = CanonicalKey::new(&vec![77; case.tables[0].0]);
        let mut asked = vec![absent];
        if !known.is_empty() {
            asked.extend(picks.iter().map(|pick| known[pick.index(known.len())].0));
        }
        let report = run_once(
            "flow-size",
            &{
                let mut o = options();
                o.flows.clone_from(&asked);
                o
            },
            &case,
        );
        let Report::Sizes { selection: Selection::Asked, items, .. } = report else {
            panic!("{report:?}")
        };
        assert_eq!(items.iter().map(|item| item.key).collect::<Vec<_>>(), asked);
        for item in &items {
            if let Some((_, size)) = known.iter().find(|(key, _)| *key == item.key) {
                assert_eq!(item.size, SizeEstimate::exact(*size));
            } else {
                let untracked = case.tables[0].1.untracked;
                let (packets, bytes) = (item.size.packets.unwrap(), item.size.bytes.unwrap());
                assert_eq!((packets.value, packets.high), (0.0, untracked.packets as f64));
                assert_eq!((bytes.value, bytes.high), (0.0, untracked.bytes as f64));
            }
        }
    });
}

#[test]
fn candidates_answer_with_their_own_bounds() {
    let key = |n: u8| CanonicalKey::new(&[10, 0, 0, n]);
    let flows = vec![(key(3), 50), (key(1), 50), (key(2), 70), (key(4), 9)];
    let rough = Rough { flows, unnamed: Some(60.0) };
    let lanes = [Lane { key: KeyKind::SOURCE.into(), key_bytes: 4, answers: &rough }];
    let keyed = Size { packets: 200, bytes: 0 };
    let case = Case {
        key: KeyKind::SOURCE.into(),
        tables: Vec::new(),
        by: Measure::Packets,
        threshold: Threshold::Share(0.25),
        top: 2,
    };
    let epoch = flowgauge_core::task::EpochContext { keyed, ..case.context() };
    let mut asking = options();
    asking.flows = vec![key(4), key(9)];
    let item = |n, packets: u64| SizeItem {
        key: key(n),
        size: Rough::size(packets),
        share: packets as f64 / 200.0,
        seen: None,
    };
    // Flow 1 or flow 3 may be the larger one.
    for (name, selection, items, complete_to) in [
        ("top", Selection::Largest, vec![item(2, 70), item(1, 50)], 1),
        ("heavy-hitters", Selection::Over(50.0), vec![item(2, 70)], 1),
        ("flow-size", Selection::Asked, vec![item(4, 9), item(9, 1)], 2),
    ] {
        let mut task = build(name, &asking);
        task.check(Measure::Packets, &lanes).unwrap();
        let report = task.run(&epoch, &lanes, &mut []).unwrap();
        assert_eq!(report, Report::Sizes { selection, items, truncated: 0, complete_to });
        let refusal = task.check(Measure::Bytes, &lanes).unwrap_err().to_string();
        assert!(refusal.contains("counts bytes"), "{refusal}");
        let by_bytes = flowgauge_core::task::EpochContext { by: Measure::Bytes, ..epoch };
        assert!(task.run(&by_bytes, &lanes, &mut []).is_err());
    }
}

/// The head of a list is certain as long as no later item and no unlisted flow can exceed it.
#[test]
fn a_list_is_certain_to_where_others_may_be_larger() {
    let key = |n: u8| CanonicalKey::new(&[10, 0, 0, n]);
    let complete_to = |packets: &[u64], unnamed, top| {
        let flows = (1..).zip(packets).map(|(n, packets)| (key(n), *packets)).collect();
        let rough = Rough { flows, unnamed };
        let lanes = [Lane { key: KeyKind::SOURCE.into(), key_bytes: 4, answers: &rough }];
        let case = Case {
            key: KeyKind::SOURCE.into(),
            tables: Vec::new(),
            by: Measure::Packets,
            threshold: Threshold::Share(0.25),
            top,
        };
        match build("top", &options()).run(&case.context(), &lanes, &mut []).unwrap() {
            Report::Sizes { complete_to, .. } => complete_to,
            report => panic!("{report:?}"),
        }
    };
    // Each is listed with at most one packet too many.
    let apart = [90, 70, 50, 30, 10];
    assert_eq!(complete_to(&apart, Some(0.0), 5), 5);
    assert_eq!(complete_to(&apart, Some(40.0), 5), 3);
    assert_eq!(complete_to(&apart, Some(40.0), 2), 2);
    assert_eq!(complete_to(&apart, Some(69.0), 5), 2);
    assert_eq!(complete_to(&apart, Some(69.5), 5), 1);
    assert_eq!(complete_to(&apart, Some(100.0), 5), 0);
    assert_eq!(complete_to(&apart, None, 5), 0);
    // The first three may be in another order, and so may the last listed flow and the next one.
    assert_eq!(complete_to(&[90, 90, 90, 30, 30], Some(9.0), 5), 5);
    assert_eq!(complete_to(&[90, 90, 90, 30, 30], Some(9.0), 4), 3);
    assert_eq!(complete_to(&[90, 90, 90, 30, 30], Some(9.0), 2), 0);
    assert_eq!(complete_to(&[], Some(0.0), 5), 0);
}

#[test]
fn a_full_counter_of_packets_raises_the_upper_bound() {
    let full = Size { packets: u64::from(u32::MAX), bytes: 1 << 40 };
    let small = Size { packets: 3, bytes: 200 };
    let table = Table {
        flows: vec![(vec![0, 0, 0, 6], full), (vec![0, 0, 0, 17], small)],
        saturated: Size { packets: 5, bytes: 0 },
        untracked: Size::default(),
    };
    let case = Case {
        key: KeyKind::PROTOCOL.into(),
        tables: vec![(4, table)],
        by: Measure::Bytes,
        threshold: Threshold::Weight(0),
        top: 5,
    };
    let Report::Sizes { items, .. } = run_once("top", &options(), &case) else { panic!() };
    let packets = items[0].size.packets.unwrap();
    assert_eq!(packets.high - packets.value, 5.0);
    assert_eq!(items[1].size, SizeEstimate::exact(small));
}

// `cardinality`, `entropy`, `size-distribution` and `quantiles`.

#[test]
fn cardinality_adds_up_and_untracked_packets_may_be_flows() {
    check(21, case(any_key()), |case| {
        let flows = case.weights().len() as f64;
        let high = flows + case.untracked().packets as f64;
        let report = run_once("cardinality", &options(), &case);
        assert_eq!(report, Report::Cardinality { flows: Estimate::between(flows, flows, high) });
    });
}

fn entropy(weights: &[f64]) -> f64 {
    let total: f64 = weights.iter().sum();
    weights.iter().map(|w| -(w / total) * (w / total).log2()).sum()
}

#[test]
fn entropy_is_that_of_the_definition_between_its_extremes() {
    check(22, case(any_key()), |case| {
        let listed: Vec<f64> = case.weights().values().map(|&w| w as f64).collect();
        let (mut one_flow, mut own_flows) = (listed.clone(), listed.clone());
        for untracked in case.tables.iter().map(|(_, table)| table.untracked) {
            let (weight, packets) = (untracked.by(case.by) as f64, untracked.packets);
            if packets > 0 {
                one_flow.push(weight);
                own_flows.extend((0..packets).map(|_| weight / packets as f64));
            }
        }
        let (low, high) = (entropy(&one_flow), entropy(&own_flows));
        let report = run_once("entropy", &options(), &case);
        let Report::Entropy { bits, normalized } = report else { panic!("{report:?}") };
        assert!((bits.low - low).abs() < 1e-9, "{bits:?} but {low}");
        assert!((bits.high - high).abs() < 1e-9, "{bits:?} but {high}");
        assert!(bits.low <= bits.value && bits.value <= bits.high);
        let most = (listed.len() as f64).log2();
        let expected = if listed.len() < 2 { 0.0 } else { (bits.value / most).min(1.0) };
        assert!((normalized - expected).abs() < 1e-12);
    });
}

fn one_lane(sizes: impl IntoIterator<Item = u64>) -> Case {
    let flow = |(i, packets): (u32, u64)| {
        (i.to_be_bytes().to_vec(), Size { packets, bytes: 40 * packets })
    };
    let table = Table { flows: (0..).zip(sizes).map(flow).collect(), ..Table::default() };
    let (by, threshold) = (Measure::Packets, Threshold::Weight(0));
    Case { key: KeyKind::SOURCE.into(), tables: vec![(4, table)], by, threshold, top: 5 }
}

#[test]
fn entropy_of_known_epochs() {
    let bits_of = |case: Case| match run_once("entropy", &options(), &case) {
        Report::Entropy { bits, normalized } => (bits, normalized),
        other => panic!("{other:?}"),
    };
    let exactly = |bits| Estimate::between(bits, bits, bits);
    assert_eq!(bits_of(one_lane([])), (exactly(0.0), 0.0));
    assert_eq!(bits_of(one_lane([977])), (exactly(0.0), 0.0));
    assert_eq!(bits_of(one_lane([3; 1024])), (exactly(10.0), 1.0));
    assert_eq!(bits_of(one_lane([1 << 33, 1 << 33])), (exactly(1.0), 1.0));
    // A flow of one packet and one of 10⁹ packets: H = log₂ N − (10⁹ log₂ 10⁹)/N ≈ (log₂ N + log₂
    // e)/N.
    let total = 1_000_000_001f64;
    let expected = (total.log2() + std::f64::consts::LOG2_E) / total;
    let (bits, _) = bits_of(one_lane([1_000_000_000, 1]));
    assert!((bits.value - expected).abs() < 2e-14, "{bits:?} but {expected}");
}

#[test]
fn size_distribution_has_a_bin_for_each_size() {
    check(23, case(any_key()), |case| {
        let mut bins: BTreeMap<u64, u64> = BTreeMap::new();
        for (_, size) in case.flows() {
            *bins.entry(size.packets).or_default() += 1;
        }
        let untracked = case.untracked().packets;
        let bins = bins.into_iter().map(|(size, flows)| {
            let high = (flows + untracked / size) as f64;
            (size, Estimate::between(flows as f64, flows as f64, high))
        });
        let report = run_once("size-distribution", &options(), &case);
        assert_eq!(report, Report::SizeDistribution { bins: bins.collect() });
    });
}

/// The smallest size that at least the share `q` of all flows does not exceed.
fn nearest_rank(sizes: &[u64], q: f64) -> u64 {
    let mut sorted = sizes.to_vec();
    sorted.sort_unstable();
    let enough = |size: u64| {
        let below = sorted.iter().filter(|&&s| s <= size).count() as f64;
        below >= q * sorted.len() as f64 - 1e-6
    };
    sorted.iter().copied().find(|&size| enough(size)).unwrap()
}

/// The keys at which one eighth, two eighths, … of the weight are reached.
fn cuts(weights: &BTreeMap<CanonicalKey, u64>) -> Vec<(f64, CanonicalKey)> {
    let total: u64 = weights.values().sum();
    let cut = |part: u64| {
        let mut sum = 0;
        for (key, weight) in weights {
            sum += weight;
            if sum * 8 >= total * part {
                return Some((part as f64 / 8.0, *key));
            }
        }
        None
    };
    (1..8).filter_map(cut).collect()
}

#[test]
fn quantiles_are_of_nearest_rank_and_keys_cut_equal_parts() {
    check(24, case(any_key()), |case| {
        let weights = case.weights();
        let listed: Vec<u64> = weights.values().copied().collect();
        let report = run_once("quantiles", &options(), &case);
        let Report::Quantiles { sizes, keys, .. } = report else { panic!("{report:?}") };
        assert_eq!(keys, cuts(&weights));
        assert_eq!(sizes.len(), if listed.is_empty() { 0 } else { 10 });
        let untracked = case.untracked();
        for (q, size) in sizes {
            assert_eq!(size.value as u64, nearest_rank(&listed, q), "q = {q}");
            if untracked.packets == 0 {
                assert_eq!((size.low, size.high), (size.value, size.value));
            } else if untracked.packets < 100 {
                // The quantile is within its bounds for any untracked flows.
                for flows in 1..=untracked.packets {
                    for each in [1, untracked.by(case.by) / flows, untracked.by(case.by)] {
                        let mut all = listed.clone();
                        all.extend((0..flows).map(|_| each));
                        let quantile = nearest_rank(&all, q) as f64;
                        assert!(size.low <= quantile && quantile <= size.high, "{q} {size:?}");
                    }
                }
            }
        }
    });
}

/// The quantiles of sizes from a summary of quantiles.
fn sizes_of(answers: &dyn Answers) -> Vec<(f64, Estimate)> {
    let lanes = [Lane { key: KeyKind::SOURCE.into(), key_bytes: 4, answers }];
    let (by, keyed) = (Measure::Packets, Size { packets: 2, bytes: 128 });
    let context = EpochContext {
        by,
        keyed,
        threshold: Threshold::Weight(0),
        lists: Lists::unlimited(5),
        timeline: None,
    };
    match build("quantiles", &options()).run(&context, &lanes, &mut []).unwrap() {
        Report::Quantiles { sizes, .. } => sizes,
        other => panic!("{other:?}"),
    }
}

/// The quantile at this share.
fn quantile(sizes: &[(f64, Estimate)], q: f64) -> f64 {
    sizes.iter().find(|(share, _)| *share == q).unwrap().1.value
}

/// The largest number is known, though the sketch may not retain it for ranks.
#[test]
fn the_last_quantiles_reach_the_largest_number() {
    println!("seed 27");
    let mut random = fastrand::Rng::with_seed(27);
    for k in ["20", "200"] {
        let parameters = [("of", "size"), ("k", k)];
        let options = Options::new(1 << 20, 1).for_keys(4).with(parameters);
        let mut sketch = catalog::build::<Key8>("kll", &options).unwrap();
        let (mut batch, mut largest) = (Batch::new(), 0);
        let key = Key8::from_canonical(&[10, 0, 0, 1]).unwrap();
        for _ in 0..400 {
            batch.clear();
            for _ in 0..BATCH_PACKETS {
                let bytes = random.u32(64..1 << 20);
                largest = largest.max(bytes);
                batch.push(key, bytes, 0);
            }
            sketch.ingest(&mut batch);
        }
        let sizes = sizes_of(sketch.answers());
        let last = sizes.last().unwrap();
        assert_eq!((last.0, last.1.value, last.1.high), (1.0, largest.into(), largest.into()));
        let high = sizes.iter().find(|(share, _)| *share == 0.999).unwrap().1.high;
        assert_eq!(high, f64::from(largest), "k = {k}: the error of a rank is more than 1/1000");
    }
}

/// Neighbouring floats are more than 1 apart from 2⁵³ on.
#[test]
fn gaps_may_be_as_long_as_time() {
    let options = Options::new(1 << 20, 1).for_keys(4).with([("of", "gap")]);
    let mut kll: Box<dyn Summary<Key8>> = catalog::build("kll", &options).unwrap();
    let mut batch = Batch::new();
    for time_ns in [0, 5, i64::MAX] {
        batch.push(Key8::from_canonical(&[10, 0, 0, 1]).unwrap(), 64, time_ns);
    }
    kll.ingest(&mut batch);
    let sizes = sizes_of(kll.answers());
    assert_eq!(quantile(&sizes, 0.25), 5.0);
    assert_eq!(quantile(&sizes, 1.0), (i64::MAX - 5) as f64);
}

/// Values that no packets could have, but stored bytes can.
struct Endless;

impl Answers for Endless {
    fn quantiles(&self) -> Option<&dyn Quantiles> {
        Some(self)
    }
}

impl Quantiles for Endless {
    fn of(&self) -> QuantileOf {
        QuantileOf::GapNs
    }
    fn count(&self) -> u64 {
        2
    }
    fn error(&self) -> f64 {
        0.0
    }
    fn confidence(&self) -> Option<f64> {
        None
    }
    fn largest(&self) -> f64 {
        f64::INFINITY
    }
    fn rank(&self, size: f64) -> f64 {
        f64::midpoint(f64::from(u8::from(size >= 7.0)), f64::from(u8::from(size.is_infinite())))
    }
    fn key(&self, _: f64) -> Option<CanonicalKey> {
        None
    }
}

#[test]
fn an_endless_number_ends_the_search() {
    let sizes = sizes_of(&Endless);
    assert_eq!((quantile(&sizes, 0.5), quantile(&sizes, 1.0)), (7.0, u64::MAX as f64));
}
