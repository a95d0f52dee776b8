//! `changes` over several epochs.

use std::collections::{BTreeMap, BTreeSet};

use flowgauge_core::batch::{BATCH_PACKETS, Batch};
use flowgauge_core::catalog;
use flowgauge_core::key::{CanonicalKey, FlowKey, Key8, KeyKind};
use flowgauge_core::summary::{Estimate, Options};
use flowgauge_core::task::{
    ChangeItem, EpochContext, ForecastModel, HistoryShape, Lane, Lists, Report, Task, TaskOptions,
};
use flowgauge_core::terms::{Measure, Size, Threshold};
use proptest::prelude::*;

use super::support::{Case, Table, any_key, build, case, check, lane_bytes, options, run, table};

fn with_room(key_bytes: &[usize], flows: usize) -> TaskOptions {
    let mut options = options();
    options.history =
        key_bytes.iter().map(|&key_bytes| HistoryShape { key_bytes, flows, cells: 0 }).collect();
    options
}

/// An oracle: forecasts in a map without a size limit.
#[derive(Default)]
struct Oracle {
    epochs: usize,
    forecast: BTreeMap<CanonicalKey, f64>,
    before: BTreeMap<CanonicalKey, u64>,
}

impl Oracle {
    fn epoch(&mut self, case: &Case) -> Report {
        let now = case.weights();
        let threshold = case.threshold();
        let known: BTreeSet<_> = self.forecast.keys().chain(now.keys()).copied().collect();
        let mut items = Vec::new();
        for key in known {
            let forecast = self.forecast.get(&key).copied().unwrap_or(0.0);
            let size = now.get(&key).copied().unwrap_or(0);
            if (size as f64 - forecast).abs() > threshold && self.epochs > 0 {
                items.push(ChangeItem {
                    key,
                    before: Estimate::exact(self.before.get(&key).copied().unwrap_or(0)),
                    forecast: Estimate::between(forecast, forecast, forecast),
                    now: Estimate::exact(size),
                });
            }
            let next =
                if self.epochs == 0 { size as f64 } else { f64::midpoint(size as f64, forecast) };
            if size > 0 || next >= 0.5 {
                self.forecast.insert(key, next);
            } else {
                self.forecast.remove(&key);
            }
        }
        let gap = |item: &ChangeItem| (item.now.value - item.forecast.value).abs();
        items.sort_by(|a, b| gap(b).total_cmp(&gap(a)).then(a.key.cmp(&b.key)));
        items.truncate(case.top);
        let threshold = (self.epochs > 0).then_some(threshold);
        self.before = now;
        self.epochs += 1;
        Report::Changes { threshold, items, truncated: 0, untracked: 0 }
    }
}

/// Several epochs with one kind of key.
fn epochs() -> impl Strategy<Value = Vec<Case>> {
    case(any_key()).prop_flat_map(|first| {
        let tables = first.tables.iter().map(|(n, _)| table(first.key, *n)).collect::<Vec<_>>();
        prop::collection::vec(tables, 1..7).prop_map(move |epochs| {
            let later = epochs.into_iter().map(|tables| Case {
                tables: lane_bytes(first.key).into_iter().zip(tables).collect(),
                ..first.clone()
            });
            std::iter::once(first.clone()).chain(later).collect()
        })
    })
}

fn without_untracked(mut case: Case) -> Case {
    case.tables.iter_mut().for_each(|(_, table)| table.untracked = Size::default());
    case
}

#[test]
fn changes_are_those_of_an_average_in_a_map() {
    check(41, epochs(), |epochs| {
        let mut task = build("changes", &with_room(&lane_bytes(epochs[0].key), 1000));
        let mut oracle = Oracle::default();
        for case in epochs.into_iter().map(without_untracked) {
            assert_eq!(run(task.as_mut(), &case), oracle.epoch(&case));
        }
    });
}

#[test]
fn a_full_history_counts_lost_flows_and_bounds_reported_ones() {
    check(42, (epochs(), 0usize..30), |(epochs, room)| {
        let mut task = build("changes", &with_room(&lane_bytes(epochs[0].key), room));
        let reserved = task.history_bytes();
        // The exact averages without forgetting, if there were no untracked packets.
        let mut truth: BTreeMap<CanonicalKey, f64> = BTreeMap::new();
        let mut before: BTreeMap<CanonicalKey, u64> = BTreeMap::new();
        for (epoch, case) in epochs.into_iter().map(without_untracked).enumerate() {
            let case = Case { threshold: Threshold::Weight(1), top: 1000, ..case };
            let now = case.weights();
            let report = run(task.as_mut(), &case);
            let Report::Changes { items, untracked, .. } = report else { panic!("{report:?}") };
            if epoch == 0 {
                let over = |(_, table): &(usize, Table)| table.flows.len().saturating_sub(room);
                assert_eq!(untracked, case.tables.iter().map(over).sum::<usize>() as u64);
            }
            for item in items {
                let forecast = truth.get(&item.key).copied().unwrap_or(0.0);
                let size = now.get(&item.key).copied().unwrap_or(0);
                let last = before.get(&item.key).copied().unwrap_or(0) as f64;
                assert_eq!(item.now, Estimate::exact(size));
                assert!(item.before.low <= last && last <= item.before.high, "{item:?} {last}");
                let Estimate { low, high, .. } = item.forecast;
                assert!(low <= forecast && forecast < high + 2.0, "{item:?} {forecast}");
            }
            for key in now.keys().chain(before.keys()) {
                truth.entry(*key).or_insert(0.0);
            }
            for (key, forecast) in &mut truth {
                let size = now.get(key).copied().unwrap_or(0) as f64;
                *forecast = if epoch == 0 { size } else { f64::midpoint(size, *forecast) };
            }
            before = now;
        }
        assert_eq!(task.history_bytes(), reserved);
    });
}

#[test]
fn untracked_packets_widen_the_bounds() {
    check(43, epochs(), |epochs| {
        let mut task = build("changes", &with_room(&lane_bytes(epochs[0].key), 1000));
        let mut last: Option<Case> = None;
        for case in epochs {
            let report = run(task.as_mut(), &case);
            let Report::Changes { items, .. } = report else { panic!("{report:?}") };
            for item in items {
                let lane = |case: &Case| {
                    let mut tables = case.tables.iter();
                    let found = tables.find(|(n, _)| *n == item.key.as_bytes().len());
                    found.unwrap().1.untracked.by(case.by) as f64
                };
                let listed = |case: &Case| case.weights().get(&item.key).copied();
                let slack = |e: Estimate| e.high - e.value;
                assert_eq!(
                    slack(item.now),
                    if listed(&case).is_some() { 0.0 } else { lane(&case) }
                );
                let last = last.as_ref().unwrap();
                assert_eq!(
                    slack(item.before),
                    if listed(last).is_some() { 0.0 } else { lane(last) }
                );
                assert!(slack(item.forecast) >= lane(last) / 2.0);
            }
            last = Some(case);
        }
    });
}

/// The changes that a sketch of sources reports in each epoch, by source. Other sources have ten
/// packets in each epoch that is not empty. The threshold is 50 packets.
fn changes_of(
    algorithm: &str,
    forecast: ForecastModel,
    steady: &[(u8, &[u64])],
) -> Vec<Vec<ChangeItem>> {
    let options =
        Options { threshold: Threshold::Weight(50), ..Options::new(1 << 18, 1).for_keys(4) };
    let mut sketch = catalog::build::<Key8>(algorithm, &options).unwrap();
    let cells = sketch.answers().cells().unwrap().len();
    let mut options = with_room(&[], 0);
    options.history = vec![HistoryShape { key_bytes: 4, flows: 0, cells }];
    options.forecast = forecast;
    let mut task = build("changes", &options);
    let mut all = Vec::new();
    for epoch in 0..steady[0].1.len() {
        let sizes = steady.iter().map(|(host, sizes)| (*host, sizes[epoch]));
        let is_empty = sizes.clone().all(|(_, size)| size == 0);
        let others = (100..130).map(|host| (host, if is_empty { 0 } else { 10 }));
        let mut keyed = Size::default();
        for (host, size) in sizes.chain(others) {
            let mut batch = Batch::new();
            for _ in 0..size {
                batch.push(Key8::from_canonical(&[10, 0, 0, host]).unwrap(), 100, 0);
                keyed += Size { packets: 1, bytes: 100 };
                if batch.len() == BATCH_PACKETS {
                    sketch.ingest(&mut batch);
                    batch.clear();
                }
            }
            sketch.ingest(&mut batch);
        }
        if is_empty {
            task.pass(1);
            all.push(Vec::new());
            continue;
        }
        let lane = Lane { key: KeyKind::SOURCE.into(), key_bytes: 4, answers: sketch.answers() };
        let context = EpochContext {
            by: Measure::Packets,
            keyed,
            threshold: Threshold::Weight(50),
            lists: Lists::unlimited(20),
            timeline: None,
        };
        let report = task.run(&context, &[lane], &mut []).unwrap();
        let Report::Changes { items, .. } = report else { panic!("{report:?}") };
        all.push(items);
        sketch.next_epoch();
    }
    all
}

/// A sketch that cannot recover keys reports a flow that has vanished as long as it is expected, and
/// across an empty epoch.
#[test]
fn a_flow_that_has_vanished_is_reported_while_it_is_expected() {
    let vanishes =
        [(1, &[300, 300, 300, 0, 0, 0, 0, 0, 0][..]), (2, &[60, 60, 60, 0, 60, 60, 60, 60, 60])];
    for name in ["k-ary", "count-sketch", "count-min", "reversible-sketch"] {
        for (forecast, expected) in [
            (ForecastModel::Ewma, &[150.0, 75.0][..]),
            (ForecastModel::MovingAverage, &[225.0, 150.0, 75.0]),
        ] {
            let all = changes_of(name, forecast, &vanishes);
            let forecasts = all[3..].iter().filter_map(|items| {
                let own = |item: &&ChangeItem| item.key.as_bytes() == [10, 0, 0, 1];
                items.iter().find(own).map(|item| (item.forecast.value, item.now.value))
            });
            let forecasts: Vec<_> = forecasts.collect();
            assert_eq!(forecasts.len(), expected.len(), "{name} {forecast:?} {forecasts:?}");
            for ((forecast, now), expected) in forecasts.into_iter().zip(expected) {
                assert!(
                    (forecast - expected).abs() < 10.0 && now < 10.0,
                    "{name} {forecast} {now}"
                );
            }
        }
    }
}

/// A model may expect less than nothing after a fall. A flow without packets is no change then, and
/// lists are in the order of what they show.
#[test]
fn differences_are_those_of_the_sizes_shown() {
    let falls = [
        (1, &[300, 300, 300, 300, 0, 0, 0, 0, 0, 0, 0, 300][..]),
        (2, &[10, 400, 20, 300, 30, 200, 70, 150, 90, 500, 10, 10]),
        (3, &[500, 10, 200, 30, 300, 20, 400, 10, 100, 10, 600, 10]),
    ];
    for name in ["k-ary", "count-sketch", "count-min", "reversible-sketch"] {
        for (_, forecast) in ForecastModel::ALL {
            let all = changes_of(name, forecast, &falls);
            assert!(all.iter().flatten().count() > 10, "{name} {forecast:?}");
            for items in all {
                let shown = |item: &ChangeItem| (item.now.value - item.forecast.value).abs();
                assert!(items.iter().all(|item| shown(item) > 50.0), "{name} {items:?}");
                assert!(items.is_sorted_by(|one, next| shown(one) >= shown(next)), "{items:?}");
            }
        }
    }
}

#[test]
fn epochs_without_a_packet_may_be_passed_at_once() {
    check(44, (epochs(), 0u64..70), |(epochs, gap)| {
        let mut tasks: [Box<dyn Task>; 2] =
            [(); 2].map(|()| build("changes", &with_room(&lane_bytes(epochs[0].key), 15)));
        for case in epochs {
            let [one, two] = &mut tasks;
            assert_eq!(run(one.as_mut(), &case), run(two.as_mut(), &case));
            one.pass(gap);
            let empty = Case {
                tables: case.tables.iter().map(|(n, _)| (*n, Table::default())).collect(),
                ..case
            };
            for _ in 0..gap {
                run(two.as_mut(), &empty);
            }
        }
    });
}

#[test]
fn a_flow_that_vanishes_is_found_and_then_forgotten() {
    let epoch = |packets: &[(u8, u64)]| {
        let flow = |&(n, packets): &(u8, u64)| (vec![10, 0, 0, n], Size { packets, bytes: 0 });
        let table = Table { flows: packets.iter().map(flow).collect(), ..Table::default() };
        Case {
            key: KeyKind::SOURCE.into(),
            tables: vec![(4, table)],
            by: Measure::Packets,
            threshold: Threshold::Weight(100),
            top: 10,
        }
    };
    let mut task = build("changes", &with_room(&[4], 2));
    let mut report = |packets: &[(u8, u64)]| match run(task.as_mut(), &epoch(packets)) {
        Report::Changes { threshold, items, untracked, .. } => {
            let brief = |i: &ChangeItem| {
                (i.key.as_bytes()[3], i.before.value, i.forecast.value, i.now.value)
            };
            (threshold, items.iter().map(brief).collect::<Vec<_>>(), untracked)
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(report(&[(1, 1000), (2, 50)]), (None, vec![], 0));
    assert_eq!(report(&[(2, 50)]), (Some(100.0), vec![(1, 1000.0, 1000.0, 0.0)], 0));
    // It is still in the history, so a third flow finds no room.
    let back = vec![(1, 0.0, 500.0, 0.0), (3, 0.0, 0.0, 300.0)];
    assert_eq!(report(&[(2, 50), (3, 300)]), (Some(100.0), back, 1));
    // 125, 62.5, … 0.49: then there is room again.
    for _ in 0..8 {
        let (_, _, untracked) = report(&[(2, 50), (3, 300)]);
        assert_eq!(untracked, 1);
    }
    let (_, items, untracked) = report(&[(2, 50), (3, 300)]);
    assert_eq!((items, untracked), (vec![(3, 0.0, 0.0, 300.0)], 0));
    assert_eq!(report(&[(2, 50), (3, 300)]).1, vec![(3, 300.0, 150.0, 300.0)]);
    assert_eq!(report(&[(2, 50), (3, 300)]).1, vec![]);
}
