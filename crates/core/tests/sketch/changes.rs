//! The task `changes` on sketches, against forecasts of every flow.

use std::collections::{BTreeSet, HashMap};

use flowgauge_core::key::{CanonicalKey, FlowKey, Key8, KeyKind};
use flowgauge_core::summary::{Options, Summary};
use flowgauge_core::task::{
    ChangeItem, EpochContext, ForecastModel, HistoryShape, Lane, Lists, Report, Task, TaskOptions,
    find,
};
use flowgauge_core::terms::{Measure, Size, Threshold};
use flowgauge_kernel::Seed;

use crate::{LINEAR, build, feed, key, options, stream};

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
