//! Arrays of states: their bounds include what collisions lose or add.

use std::collections::HashMap;

use flowgauge_core::catalog::stored::{decode, encode};
use flowgauge_core::key::{FlowKey, Key4};
use flowgauge_core::summary::{Estimate, Forecast, Options, Summary};
use flowgauge_core::terms::{Measure, Threshold};

use super::distinct::quality;
use super::{build, feed, info, nearly_full, one_each, options, packets, stored_and_back, truth};

const ARRAYS: [&str; 2] = ["count-array", "replacing-array"];
const DISTINCT: (&str, &str) = ("state", "distinct");

/// 20,000 sources, more than 50 of them superspreaders. With 32 columns per source, hardly any
/// collides with a superspreader; with one column for two sources, the replacing array misses some,
/// but names no wrong one.
#[test]
fn arrays_find_the_superspreaders() {
    for seed in 0..2 {
        let wide = [DISTINCT, ("columns", "1048576")];
        let (precision, recall) = quality("count-array", &wide, seed);
        assert!(precision >= 0.97 && recall >= 1.0, "{precision} {recall}");
        let (precision, recall) = quality("replacing-array", &wide, seed);
        assert!(precision >= 0.99 && recall >= 0.97, "{precision} {recall}");
        let (precision, _) = quality("replacing-array", &[DISTINCT, ("columns", "8192")], seed);
        assert!(precision >= 0.99, "{precision}");
    }
}

fn forecasts(array: &dyn Summary<Key4>) -> HashMap<Vec<u8>, Forecast> {
    let mut found = HashMap::new();
    array.answers().forecasts().unwrap().for_each(&mut |key, forecast| {
        assert!(found.insert(key.as_bytes().to_vec(), forecast).is_none());
    });
    found
}

/// Checked against averages that drop no flow, over epochs some of which lack a flow's packets.
#[test]
fn forecasts_of_arrays_are_within_their_bounds() {
    let arrays = [("count-array", "1024"), ("count-array", "256")];
    let replacing = ["1024", "8", "0"].map(|candidates| ("replacing-array", candidates));
    for (name, candidates) in arrays.into_iter().chain(replacing) {
        for by in [Measure::Packets, Measure::Bytes] {
            let parameters = [("state", "ewma"), ("columns", "256"), ("candidates", candidates)];
            let threshold = Threshold::Share(0.01);
            let options = Options { by, threshold, ..options(1 << 20, 1, &parameters) };
            let mut array = build::<Key4>(name, &options);
            let mut model = HashMap::<Vec<u8>, (f64, u64)>::new();
            let (mut outside, mut listed) = (0, 0);
            for epoch in 0..8 {
                let packets = packets(4000, 200, epoch);
                let packets: Vec<_> =
                    packets.into_iter().filter(|p| epoch % 3 != 2 || p.flow > 20).collect();
                feed(&mut *array, &packets);
                let now = truth::<Key4>(&packets);
                let found = forecasts(&*array);
                let limit = 0.01
                    * packets
                        .iter()
                        .map(|p| match by {
                            Measure::Packets => 1.0,
                            Measure::Bytes => f64::from(p.bytes),
                        })
                        .sum::<f64>();
                for (key, &(forecast, before)) in &model {
                    let now = now.get(key).copied().unwrap_or_default().by(by) as f64;
                    // The additive array lists every key that changed.
                    let changed = (now - forecast).abs() > 1.5 * limit;
                    assert!(name != "count-array" || !changed || found.contains_key(key));
                    let Some(found) = found.get(key) else { continue };
                    listed += 1;
                    for (bounds, truth) in [
                        (found.before, before as f64),
                        (found.forecast.unwrap(), forecast),
                        (found.now, now),
                    ] {
                        assert!(truth <= bounds.high + 2.0, "{name}: {truth} {bounds:?}");
                        let below = bounds.low > truth + 2.0;
                        assert!(!below || bounds.confidence.is_some(), "{truth} {bounds:?}");
                        outside += u32::from(below);
                    }
                }
                let alpha = if epoch == 0 { 1.0 } else { 0.5 };
                for (forecast, before) in model.values_mut() {
                    (*forecast, *before) = (*forecast / 2.0, 0);
                }
                for (key, size) in now {
                    let (forecast, before) = model.entry(key).or_default();
                    *before = size.by(by);
                    *forecast += alpha * size.by(by) as f64;
                }
                array = stored_and_back(name, &options, &*array);
                array.next_epoch();
                array = stored_and_back(name, &options, &*array);
            }
            assert!(listed > 200, "{name}: {listed}");
            // At a confidence of 95 %; Markov's bound is generous.
            assert!(outside <= listed / 20, "{name}: {outside} of {listed}");
            array.clear();
            assert!(forecasts(&*array).is_empty());
        }
    }
}

/// Bounds of 95 %, if a few flows have nearly all packets: a small flow collides with one of them
/// more often than bounds by the mean of the other columns would allow.
#[test]
fn lower_bounds_of_shared_columns_hold_as_often_as_they_say() {
    for (columns, heavy) in [("8", 1), ("16", 1), ("32", 2), ("64", 4), ("256", 13)] {
        for state in ["counter", "distinct", "ewma"] {
            let (mut below, mut above, mut all) = (0, 0, 0);
            for seed in 0..8 {
                let parameters = [("columns", columns), ("state", state)];
                let mut array = build::<Key4>("count-array", &options(1 << 20, seed, &parameters));
                let flows = (0..1000 * heavy).map(|i| i % heavy).chain(1000..1400);
                let packets: Vec<_> = one_each(flows);
                feed(&mut *array, &packets);
                let sizes = array.answers().size().unwrap();
                for (key, truth) in truth::<Key4>(&packets) {
                    let estimate = sizes.estimate(&key).packets.unwrap();
                    let truth = truth.packets as f64;
                    assert!(estimate.confidence.unwrap() >= 0.95 - 1e-9);
                    below += u32::from(truth < estimate.low);
                    above += u32::from(truth > estimate.high);
                    all += 1;
                }
            }
            assert!(above == 0 && below * 20 <= all, "{columns} {state}: {below} of {all}");
        }
    }
}

/// The excess of a full counter is not in the bounds of other columns.
#[test]
fn only_full_counters_have_wide_upper_bounds() {
    for state in ["counter", "ewma"] {
        let options = options(1 << 20, 1, &[("columns", "4096"), ("state", state)]);
        let mut array = build::<Key4>("count-array", &options);
        feed(&mut *array, &one_each([7; 3].into_iter().chain([8])));
        let mut array = nearly_full("count-array", &options, &*array, (3, &[]));
        feed(&mut *array, &one_each([7; 5].into_iter()));
        assert_eq!(array.answers().saturated().packets, 4);
        let of = |flow| {
            let key = super::key::<Key4>(flow);
            array.answers().size().unwrap().estimate(key.canonical(Key4::BYTES)).packets.unwrap()
        };
        assert_eq!((of(7).high, of(8).high), (f64::from(u32::MAX) + 4.0, 1.0), "{state}");
    }
}

/// Arrays of parts of the packets merge to the array of all, if nothing is displaced, and stay
/// within their memory.
#[test]
fn shards_of_arrays_merge() {
    for name in ARRAYS {
        for state in ["distinct", "ewma"] {
            let options = options(8 << 20, 3, &[("state", state)]);
            let packets = packets(6000, 100, 3);
            let mut whole = build::<Key4>(name, &options);
            assert!(whole.memory_bytes() <= options.memory_bytes);
            feed(&mut *whole, &packets);
            let mut merged = build::<Key4>(name, &options);
            for shard in packets.chunks(1500) {
                let mut part = build::<Key4>(name, &options);
                feed(&mut *part, shard);
                merged.merge(&*part).unwrap();
            }
            for (key, size) in truth::<Key4>(&packets) {
                let of = |array: &dyn Summary<Key4>| -> Estimate {
                    array.answers().size().unwrap().estimate(&key).packets.unwrap()
                };
                assert_eq!(of(&*whole), of(&*merged), "{name} {state}");
                assert_eq!(of(&*whole).value as u64, size.packets, "{name} {state}");
            }
            let other = build::<Key4>(name, &super::options(8 << 20, 4, &[("state", state)]));
            assert!(merged.merge(&*other).unwrap_err().to_string().contains("seeds differ"));
        }
    }
}

/// The heavy keys and their own parts do not depend on the size of batches, whether the set is full
/// or has room.
#[test]
fn the_size_of_batches_does_not_matter_to_arrays() {
    for by in [Measure::Packets, Measure::Bytes] {
        for state in ["counter", "distinct", "ewma"] {
            for candidates in ["0", "16", "128", "2048"] {
                let parameters =
                    [("columns", "1024"), ("candidates", candidates), ("state", state)];
                let options = Options {
                    by,
                    spread: 6,
                    threshold: Threshold::Share(0.002),
                    ..options(1 << 20, 3, &parameters)
                };
                let packets = packets(12_000, 900, 3);
                let stored = |batch| {
                    let mut array = build::<Key4>("count-array", &options);
                    packets.chunks(batch).for_each(|packets| feed(&mut *array, packets));
                    array.next_part();
                    packets.chunks(batch).for_each(|packets| feed(&mut *array, packets));
                    encode(info("count-array"), &options, &*array)
                };
                let whole = stored(256);
                for batch in [1, 7, 64] {
                    assert!(stored(batch) == whole, "{state} {candidates} {batch}");
                }
            }
        }
    }
}

/// Damaged states with a right checksum are refused, or can be used.
#[test]
fn damaged_states_do_no_harm() {
    let cases = ARRAYS.into_iter().chain(super::TABLES);
    for (name, state) in cases.flat_map(|name| [(name, "distinct"), (name, "ewma")]) {
        let options = options(16 << 10, 3, &[("state", state)]);
        let mut summary = build::<Key4>(name, &options);
        feed(&mut *summary, &packets(600, 60, 3));
        summary.next_epoch();
        feed(&mut *summary, &packets(600, 60, 4));
        let bytes = encode(info(name), &options, &*summary);
        for at in (0..bytes.len() - 4).filter(|at| *at < 300 || at % 13 == 0) {
            for bit in [0, 3, 7] {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << bit;
                let end = damaged.len() - 4;
                let checksum = crc32fast::hash(&damaged[..end]);
                damaged[end..].copy_from_slice(&checksum.to_le_bytes());
                let Ok(decoded) = decode::<Key4>(&damaged, 4 << 20) else { continue };
                let mut copy = decoded.summary;
                let twin = decode::<Key4>(&damaged, 4 << 20).unwrap().summary;
                copy.merge(&*twin).unwrap();
                copy.next_epoch();
                feed(&mut *copy, &packets(100, 60, 5));
                let answers = copy.answers();
                if let Some(spread) = answers.spread() {
                    spread.for_each(&mut |_, distinct| assert!(distinct.high.is_finite()));
                }
                if let Some(forecasts) = answers.forecasts() {
                    forecasts.for_each(&mut |_, forecast| assert!(forecast.now.low.is_finite()));
                }
            }
        }
    }
}
