//! `cardinality`, `entropy`, `size-distribution` and `quantiles`.

use std::collections::BTreeMap;

use flowgauge_core::batch::Batch;
use flowgauge_core::catalog;
use flowgauge_core::key::{CanonicalKey, FlowKey, Key4, KeyKind};
use flowgauge_core::summary::{Answers, Estimate, Options, QuantileOf, Quantiles, Summary};
use flowgauge_core::task::{EpochContext, Lane, Lists, Report};
use flowgauge_core::terms::{Measure, Size, Threshold};

use crate::support::{Case, Table, any_key, build, case, check, options, run_once};

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

/// Neighbouring floats are more than 1 apart from 2⁵³ on.
#[test]
fn gaps_may_be_as_long_as_time() {
    let options = Options::new(1 << 20, 1).with([("of", "gap")]);
    let mut kll: Box<dyn Summary<Key4>> = catalog::build("kll", &options).unwrap();
    let mut batch = Batch::new();
    for time_ns in [0, 5, i64::MAX] {
        batch.push(Key4::from_canonical(&[10, 0, 0, 1]).unwrap(), 64, time_ns);
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
