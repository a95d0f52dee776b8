//! Cells and answers of the sketches against plain models, and the task `changes` against forecasts
//! of every flow.

use std::collections::{BTreeSet, HashMap};

use flowgauge_core::catalog;
use flowgauge_core::catalog::stored::encode;
use flowgauge_core::key::{CanonicalKey, FlowKey, Key8, KeyKind};
use flowgauge_core::summary::{BuildErrorKind, Options, Summary};
use flowgauge_core::task::{
    ChangeItem, EpochContext, ForecastModel, HistoryShape, Lane, Lists, Report, Task, TaskOptions,
    find,
};
use flowgauge_core::terms::{Measure, Size, Threshold};
use flowgauge_kernel::{Digester, Isa, Seed};

use super::{
    ALL, LINEAR, build, bytes, cells, estimate, feed, key, options, sizes, sketch, stream,
};

const ROWS: usize = 4;
const BITS: u32 = 6;
const COLUMNS: usize = 1 << BITS;

/// The cells of a flow: slices of its digest, which has enough bits for 4 rows of 64 columns.
fn places(flow: u32, seed: u64) -> [usize; ROWS] {
    let digest =
        key(flow).digest(&Digester::new(Seed::number(seed), Isa::best()).for_keys(Key8::BYTES));
    std::array::from_fn(|row| row * COLUMNS + (digest >> (row as u32 * BITS)) as usize % COLUMNS)
}

#[test]
fn count_min_and_k_ary_hold_the_sums_of_the_slices_of_digests() {
    for seed in 0..4 {
        let packets = stream(3000, 300, 1.0, seed);
        for (by, weight) in [(Measure::Packets, (|_| 1) as fn(u32) -> u32), (Measure::Bytes, bytes)]
        {
            let mut model = vec![0.0; ROWS * COLUMNS];
            let mut total = 0.0;
            for flow in &packets {
                let weight = f64::from(weight(*flow));
                for place in places(*flow, seed) {
                    model[place] += weight;
                }
                total += weight;
            }
            let options = Options { by, ..options(ROWS, COLUMNS, seed) };
            let [count_min, k_ary] =
                ["count-min", "k-ary"].map(|name| sketch(name, &options, &packets));
            assert!(cells(&*count_min)[..ROWS * COLUMNS] == model);
            assert!(cells(&*k_ary)[..ROWS * COLUMNS] == model);
            for flow in 0..300 {
                let own = places(flow, seed).map(|place| model[place]);
                let least = own.into_iter().fold(f64::MAX, f64::min);
                assert!(estimate(&*count_min, by, flow).value.to_bits() == least.to_bits());
                let columns = COLUMNS as f64;
                let mut unbiased = own.map(|cell| (cell - total / columns) / (1.0 - 1.0 / columns));
                unbiased.sort_by(f64::total_cmp);
                let median = f64::midpoint(unbiased[1], unbiased[2]).max(0.0);
                let value = estimate(&*k_ary, by, flow).value;
                assert!((value - median).abs() < 1e-9 * total, "{value} {median}");
            }
        }
    }
}

#[test]
fn conservative_update_raises_no_counter_further_than_the_estimate() {
    let packets = stream(3000, 300, 1.0, 1);
    let mut model = vec![0u64; ROWS * COLUMNS];
    for flow in &packets {
        let places = places(*flow, 5);
        let raised = places.iter().map(|place| model[*place]).min().unwrap() + 1;
        for place in places {
            model[place] = model[place].max(raised);
        }
    }
    let options = options(ROWS, COLUMNS, 5);
    let conservative = sketch("conservative-count-min", &options, &packets);
    let count_min = sketch("count-min", &options, &packets);
    for flow in 0..300 {
        let least = places(flow, 5).map(|place| model[place]).into_iter().min().unwrap();
        let value = estimate(&*conservative, Measure::Packets, flow).value;
        assert!(value.to_bits() == (least as f64).to_bits());
        assert!(value <= estimate(&*count_min, Measure::Packets, flow).value);
    }
}

/// The cells of a stream are the sum of its flows' cells, which hold ±1 in each row. The estimate
/// is the median, for even and odd numbers of rows, within and beyond the bits of one digest.
#[test]
fn count_sketch_is_the_sum_of_its_flows_and_answers_the_median() {
    for (rows, columns) in [(1, 64), (2, 64), (3, 512), (4, 64), (5, 8192), (8, 256), (11, 256)] {
        let packets = stream(2000, 100, 1.0, 3);
        let options = options(rows, columns, 9);
        let whole = sketch("count-sketch", &options, &packets);
        let held = cells(&*whole);
        let count = rows * columns;
        let mut model = vec![0.0; count];
        for (flow, size) in sizes(&packets) {
            let own = cells(&*sketch("count-sketch", &options, &[flow]));
            for row in own[..count].chunks_exact(columns) {
                let mut set = row.iter().filter(|cell| **cell != 0.0);
                assert!(set.next().is_some_and(|cell| cell.abs().to_bits() == 1f64.to_bits()));
                assert!(set.next().is_none());
            }
            let mut signed: Vec<f64> = Vec::new();
            for (place, cell) in own[..count].iter().enumerate() {
                model[place] += cell * size as f64;
                if *cell != 0.0 {
                    signed.push(cell * held[place]);
                }
            }
            signed.sort_by(f64::total_cmp);
            let median = f64::midpoint(signed[(rows - 1) / 2], signed[rows / 2]).max(0.0);
            let value = estimate(&*whole, Measure::Packets, flow).value;
            assert!(value.to_bits() == median.to_bits(), "{rows} rows: {value} {median}");
        }
        assert!(held[..count] == model, "{rows} rows");
    }
}

#[test]
fn batches_of_any_size_and_sums_of_sketches_are_equal_bit_for_bit() {
    for (rows, columns) in [(4, 4096), (3, 1024), (10, 512), (6, 65536)] {
        let packets = stream(4000, 500, 1.1, 4);
        let options = options(rows, columns, 2);
        for name in ALL {
            let info = catalog::info(name).unwrap();
            let mut one = build(name, &options);
            feed(&mut *one, &packets, 1);
            let whole = sketch(name, &options, &packets);
            assert!(encode(info, &options, &*one) == encode(info, &options, &*whole), "{name}");
        }
        for name in LINEAR {
            let whole = cells(&*sketch(name, &options, &packets));
            let (first, second) = packets.split_at(1234);
            let mut sum = sketch(name, &options, first);
            sum.merge(&*sketch(name, &options, second)).unwrap();
            assert!(cells(&*sum) == whole, "{name}");
        }
    }
}

/// Filling a 64-bit counter is out of reach, but 2³² packets are reached by doubling.
#[test]
fn full_counters_stay_full_and_the_bounds_say_so() {
    let options = options(4, 64, 1);
    for name in ALL {
        let mut sum = sketch(name, &options, &[7; 256]);
        let mut packets = 256u64;
        while packets < 1 << 32 {
            let info = catalog::info(name).unwrap();
            let bytes = encode(info, &options, &*sum);
            let twin = flowgauge_core::catalog::stored::decode::<Key8>(&bytes, 1 << 20).unwrap();
            sum.merge(&*twin.summary).unwrap();
            packets *= 2;
        }
        feed(&mut *sum, &[7; 10], 256);
        packets += 10;
        let most = if name == "count-sketch" { i32::MAX as u64 } else { u64::from(u32::MAX) };
        let lost = sum.answers().saturated().packets;
        // A conservative sketch counts an excess once, the others in each row.
        assert!(lost >= packets - most, "{name} lost {lost}");
        let found = estimate(&*sum, Measure::Packets, 7);
        assert!(found.low <= packets as f64 && packets as f64 <= found.high, "{name} {found:?}");
        assert!((found.value - most as f64).abs() / (most as f64) < 1e-3, "{name} {found:?}");
    }
}

#[test]
fn shapes_come_from_sizes_from_targets_or_from_the_purpose() {
    let shape_within = |memory_bytes, name: &str, pairs: &[(&str, &str)]| {
        let options = Options::new(memory_bytes, 1).with(pairs.iter().copied());
        catalog::build::<Key8>(name, &options).map(|sketch| {
            let parameters = sketch.parameters();
            [0, 1].map(|at| parameters[at].1.to_string())
        })
    };
    let shape = |name: &str, pairs: &[(&str, &str)]| shape_within(1 << 22, name, pairs);
    let is = |name, pairs: &[(&str, &str)], rows: &str, columns: &str| {
        assert_eq!(shape(name, pairs).unwrap(), [rows, columns], "{name} {pairs:?}");
    };
    for (name, [rows, columns, few]) in [
        ("count-min", ["4", "32768", "2048"]),
        ("conservative-count-min", ["4", "32768", "2048"]),
        ("count-sketch", ["5", "65536", "2048"]),
        ("k-ary", ["5", "65536", "2048"]),
    ] {
        is(name, &[], rows, columns);
        // A larger memory limit changes nothing, and a small one leaves fewer columns.
        assert_eq!(shape_within(1 << 28, name, &[]).unwrap(), [rows, columns], "{name}");
        assert_eq!(shape_within(1 << 16, name, &[]).unwrap(), [rows, few], "{name}");
    }
    is("count-min", &[("rows", "5"), ("columns", "64")], "5", "64");
    // e / 0.001 = 2718.3 and ln 100 = 4.6; 8 / 0.05² = 3200.
    is("count-min", &[("epsilon", "0.001"), ("delta", "0.01")], "5", "4096");
    is("conservative-count-min", &[("epsilon", "0.001"), ("delta", "0.05")], "3", "4096");
    // If a row fails with chance 1/8, 3 of 5 fail in 1.6 % of the cases, and 4 of 7 in 0.6 %.
    is("count-sketch", &[("epsilon", "0.05"), ("delta", "0.01")], "7", "4096");
    is("k-ary", &[("epsilon", "0.05"), ("delta", "0.02")], "5", "4096");
    for name in ALL {
        for pairs in [[("columns", "64"), ("epsilon", "0.1")], [("rows", "4"), ("delta", "0.1")]] {
            let error = shape(name, &pairs).unwrap_err();
            assert!(matches!(error.kind(), BuildErrorKind::Contradiction { .. }), "{error}");
        }
        for (parameter, value) in
            [("rows", "0"), ("rows", "17"), ("columns", "100"), ("delta", "1e-30")]
        {
            let error = shape(name, &[(parameter, value)]).unwrap_err();
            assert!(
                matches!(error.kind(), BuildErrorKind::OutOfRange { .. }),
                "{name} {parameter}: {error}"
            );
        }
        let error = shape(name, &[("epsilon", "1e-12")]).unwrap_err().to_string();
        assert!(error.contains("epsilon") && error.contains("columns"), "{error}");
    }
}

// The task `changes` on sketches, against forecasts of every flow.

const EPOCHS: u64 = 7;
const BACKGROUND: usize = 60_000;
const THRESHOLD: Threshold = Threshold::Share(0.005);

/// Five flows of each kind, numbered from 100,000 on, with their sizes before and in the last
/// epoch.
const PLANTED: [(u32, u64, u64); 4] =
    [(100_000, 200, 1000), (100_010, 0, 800), (100_020, 1000, 200), (100_030, 800, 0)];

fn sketch_options(seed: u64) -> Options {
    Options { threshold: THRESHOLD, ..options(4, 4096, seed) }
}

fn task(sketch: &dyn Summary<Key8>, model: ForecastModel) -> Box<dyn Task> {
    let mut options = TaskOptions::new(Seed::number(1));
    options.forecast = model;
    let cells = sketch.answers().cells().unwrap().len();
    options.history = vec![HistoryShape { key_bytes: Key8::BYTES, flows: 0, cells }];
    find("changes").unwrap().build(&options).unwrap()
}

fn run(task: &mut dyn Task, sketch: &dyn Summary<Key8>, packets: u64) -> Report {
    let context = EpochContext {
        by: Measure::Packets,
        keyed: Size { packets, bytes: 0 },
        threshold: THRESHOLD,
        lists: Lists::unlimited(1000),
        timeline: None,
    };
    let lane =
        Lane { key: KeyKind::PAIR.into(), key_bytes: Key8::BYTES, answers: sketch.answers() };
    task.run(&context, &[lane], &mut []).unwrap()
}

/// The packets of an epoch: a random background, and the planted flows.
fn epoch(number: u64, seed: u64) -> Vec<u32> {
    let mut packets = stream(BACKGROUND, 5000, 1.0, seed * EPOCHS + number);
    for (first, before, last) in PLANTED {
        let size = if number + 1 < EPOCHS { before } else { last };
        for flow in first..first + 5 {
            packets.extend(std::iter::repeat_n(flow, size as usize));
        }
    }
    fastrand::Rng::with_seed(seed).shuffle(&mut packets);
    packets
}

/// The forecast of a flow from its sizes, by the models' definitions.
fn forecast(model: ForecastModel, sizes: &[f64]) -> f64 {
    let (mut forecast, mut trend) = (sizes[0], 0.0);
    for now in &sizes[1..] {
        let level = 0.5 * now + 0.5 * forecast;
        match model {
            ForecastModel::Ewma => forecast = level,
            ForecastModel::MovingAverage => (),
            ForecastModel::HoltWinters => {
                let before = forecast - trend;
                trend = 0.25 * (level - before) + 0.75 * trend;
                forecast = level + trend;
            }
        }
    }
    if model == ForecastModel::MovingAverage {
        let last = &sizes[sizes.len().saturating_sub(4)..];
        return last.iter().sum::<f64>() / last.len() as f64;
    }
    forecast
}

/// Planted and random changes, with each model and each sketch over 4 seeds: at least 95 % of the
/// flows over the threshold are found, and at least 95 % of the reported flows are over it. A row's
/// error is about a fifth of the threshold. Bounds miss fewer than 5 %.
#[test]
fn planted_changes_are_found_by_every_sketch_with_every_model() {
    for name in LINEAR {
        for (model_name, model) in ForecastModel::ALL {
            let (mut there, mut reported, mut right) = (0, 0, 0);
            let (mut bounds, mut missed) = (0, 0);
            for seed in 0..4 {
                let mut sketch = build(name, &sketch_options(seed));
                let mut task = task(&*sketch, model);
                let mut history: HashMap<CanonicalKey, Vec<f64>> = HashMap::new();
                for number in 0..EPOCHS {
                    let packets = epoch(number, seed);
                    let total = packets.len() as u64;
                    for flow in &packets {
                        let key = CanonicalKey::new(key(*flow).canonical(Key8::BYTES));
                        let sizes = history.entry(key).or_insert_with(|| vec![0.0; 7]);
                        sizes[number as usize] += 1.0;
                    }
                    sketch.next_epoch();
                    feed(&mut *sketch, &packets, 256);
                    let report = run(task.as_mut(), &*sketch, total);
                    let Report::Changes { threshold, items, untracked, .. } = report else {
                        panic!("{report:?}")
                    };
                    assert_eq!(untracked, 0);
                    assert_eq!(threshold.is_some(), number > 0);
                    if number + 1 < EPOCHS {
                        continue;
                    }
                    let threshold = threshold.unwrap();
                    let over: BTreeSet<_> = history
                        .iter()
                        .filter(|(_, sizes)| {
                            (sizes[6] - forecast(model, &sizes[..6])).abs() > threshold
                        })
                        .map(|(key, _)| *key)
                        .collect();
                    assert!(over.len() >= 20);
                    there += over.len();
                    reported += items.len();
                    right += items.iter().filter(|item| over.contains(&item.key)).count();
                    for ChangeItem { key, before, forecast: expected, now } in &items {
                        let sizes = &history[key];
                        let truths = [sizes[5], forecast(model, &sizes[..6]), sizes[6]];
                        for (estimate, truth) in [before, expected, now].into_iter().zip(truths) {
                            assert!(estimate.low <= estimate.value);
                            assert!(estimate.value <= estimate.high);
                            bounds += 1;
                            missed += usize::from(truth < estimate.low || estimate.high < truth);
                        }
                    }
                }
            }
            println!(
                "{name}, {model_name}: {right} of {there} changes found, {reported} reported, \
                 {missed} of {bounds} bounds missed"
            );
            assert!(right * 100 >= there * 95, "{name}, {model_name}: recall");
            assert!(right * 100 >= reported * 95, "{name}, {model_name}: precision");
            assert!(missed * 20 <= bounds, "{name}, {model_name}: bounds");
        }
    }
}

#[test]
fn silent_epochs_are_epochs_of_an_empty_sketch() {
    for (_, model) in ForecastModel::ALL {
        let sketch = || build("k-ary", &sketch_options(1));
        let (mut full, empty) = (sketch(), sketch());
        feed(&mut *full, &epoch(0, 1), 256);
        for silent in [0, 1, 3, 9] {
            let (mut passed, mut ran) = (task(&*empty, model), task(&*empty, model));
            for task in [&mut passed, &mut ran] {
                run(task.as_mut(), &*full, 1000);
                run(task.as_mut(), &*full, 1000);
            }
            passed.pass(silent);
            for _ in 0..silent {
                run(ran.as_mut(), &*empty, 0);
            }
            let reports = [passed, ran].map(|mut task| run(task.as_mut(), &*full, 1000));
            assert!(reports[0] == reports[1], "{model:?}, {silent} epochs");
        }
    }
}
