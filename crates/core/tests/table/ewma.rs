//! Forecasts, checked against a map of averages.

use std::collections::HashMap;

use flowgauge_core::key::Key16;
use flowgauge_core::summary::{Estimate, Forecast, Options, Summary};
use flowgauge_core::terms::{Measure, Size};

use super::{
    TABLES, build, feed, listed, nearly_full, one_each, options, packets, stored_and_back, truth,
};

const STATE: (&str, &str) = ("state", "ewma");

type Forecasts = HashMap<Vec<u8>, Forecast>;

fn forecasts(summary: &dyn Summary<Key16>) -> Forecasts {
    let mut found = HashMap::new();
    summary.answers().forecasts().unwrap().for_each(&mut |key, forecast| {
        assert!(found.insert(key.as_bytes().to_vec(), forecast).is_none());
    });
    found
}

/// The averages of all flows.
#[derive(Default)]
struct Model {
    started: bool,
    /// Forecast and previous size.
    flows: HashMap<Vec<u8>, (f64, u64)>,
}

impl Model {
    fn forecasts(&self, now: &HashMap<Vec<u8>, Size>, by: Measure) -> Forecasts {
        let exact = |value| Estimate { value, low: value, high: value, confidence: None };
        let keys = self.flows.keys().chain(now.keys());
        let forecasts = keys.map(|key| {
            let (forecast, before) = self.flows.get(key).copied().unwrap_or_default();
            let now = now.get(key).copied().unwrap_or_default().by(by);
            let forecast = Forecast {
                before: Estimate::exact(before),
                forecast: self.started.then(|| exact(forecast)),
                now: Estimate::exact(now),
            };
            (key.clone(), forecast)
        });
        forecasts.collect()
    }

    fn close(&mut self, now: &HashMap<Vec<u8>, Size>, by: Measure) {
        let alpha = if self.started { 0.5 } else { 1.0 };
        for (forecast, before) in self.flows.values_mut() {
            (*forecast, *before) = (*forecast / 2.0, 0);
        }
        for (key, size) in now {
            let (forecast, before) = self.flows.entry(key.clone()).or_default();
            *before = size.by(by);
            *forecast += alpha * size.by(by) as f64;
        }
        self.flows.retain(|_, (forecast, _)| *forecast >= 0.5);
        self.started = true;
    }
}

/// Epochs with changing flows, one of them without packets.
#[test]
fn forecasts_are_those_of_the_model() {
    for name in TABLES {
        for by in [Measure::Packets, Measure::Bytes] {
            let options = Options { by, ..options(1 << 20, 1, &[STATE]) };
            let mut table = build::<Key16>(name, &options);
            for round in 0..2 {
                let mut model = Model::default();
                for epoch in 0..12 {
                    let count = if epoch == 4 { 0 } else { 3000 };
                    let packets = packets(count, 300 + 20 * epoch, u64::from(round + epoch));
                    feed(&mut *table, &packets);
                    let now = truth::<Key16>(&packets);
                    assert!(listed(&*table) == now, "{name} epoch {epoch}");
                    assert!(
                        forecasts(&*table) == model.forecasts(&now, by),
                        "{name} epoch {epoch}"
                    );
                    table = stored_and_back(name, &options, &*table);
                    assert!(
                        forecasts(&*table) == model.forecasts(&now, by),
                        "{name} epoch {epoch}"
                    );
                    model.close(&now, by);
                    table.next_epoch();
                }
                table.clear();
                assert!(forecasts(&*table).is_empty());
            }
        }
    }
}

/// A flow of one packet is dropped after two epochs without packets, one of 1000 after eleven, and
/// their entries are free again.
#[test]
fn silent_flows_are_forgotten() {
    for name in TABLES {
        let mut table = build::<Key16>(name, &options(1 << 20, 1, &[STATE, ("buckets", "256")]));
        let most = table.answers().flows().unwrap().most() as u32;
        let flows = most * 2 / 3;
        for epoch in 0..40 {
            // New flows of one packet in each epoch; the table has room for those of two epochs.
            let new = one_each((epoch * flows / 4..(epoch + 1) * flows / 4).map(|flow| 1 + flow));
            feed(&mut *table, &new);
            if epoch == 0 {
                feed(&mut *table, &one_each([0; 1000].into_iter()));
            }
            assert_eq!(table.answers().untracked(), Size::default(), "{name} epoch {epoch}");
            let forecasts = forecasts(&*table);
            let large = forecasts.contains_key(&[0; 16][..]);
            // 1000, then half of that in each epoch: 0.98 in epoch 11.
            assert_eq!(large, epoch <= 11, "{name} epoch {epoch}");
            assert!(forecasts.len() <= 1 + 3 * flows as usize / 4);
            table.next_epoch();
        }
    }
}

/// Tables of different flows merge, after some epochs, to the forecasts of one table.
#[test]
fn shards_merge_to_the_whole_forecast() {
    for name in TABLES {
        let options = options(1 << 20, 1, &[STATE]);
        let mut whole = build::<Key16>(name, &options);
        let mut shards = [build::<Key16>(name, &options), build::<Key16>(name, &options)];
        for epoch in 0..3 {
            if epoch > 0 {
                whole.next_epoch();
                for shard in &mut shards {
                    shard.next_epoch();
                }
            }
            let packets = packets(2000, 300, epoch);
            feed(&mut *whole, &packets);
            for (number, shard) in (0..).zip(&mut shards) {
                let own = |packet: &super::Packet| packet.flow % 2 == number;
                let part: Vec<_> = packets.iter().copied().filter(own).collect();
                feed(&mut **shard, &part);
            }
        }
        let [merged, other] = &mut shards;
        merged.merge(&**other).unwrap();
        assert!(forecasts(&**merged) == forecasts(&*whole), "{name}");
        assert!(listed(&**merged) == listed(&*whole), "{name}");
    }
}

/// In a full table, the bounds of every listed flow include what it may have had while untracked.
#[test]
fn bounds_include_untracked_packets() {
    for name in TABLES {
        let buckets = if name == "cuckoo-4" { "16" } else { "64" };
        let parameters = [STATE, ("buckets", buckets)];
        let mut table = build::<Key16>(name, &options(1 << 20, 7, &parameters));
        let mut model = Model::default();
        let mut seen_wide = false;
        for epoch in 0..10 {
            let packets = packets(400, 200, epoch);
            feed(&mut *table, &packets);
            let now = truth::<Key16>(&packets);
            let expected = model.forecasts(&now, Measure::Packets);
            bounds_hold(name, &*table, &expected);
            for found in forecasts(&*table).into_values() {
                seen_wide |= found.forecast.is_some_and(|forecast| forecast.high > forecast.value);
            }
            model.close(&now, Measure::Packets);
            table.next_epoch();
        }
        assert!(seen_wide, "{name} was never full");
    }
}

/// Asserts that the bounds of all listed flows hold, to within 2 for dropped averages.
fn bounds_hold(name: &str, table: &dyn Summary<Key16>, expected: &Forecasts) {
    table.answers().forecasts().unwrap().for_each(&mut |key, found| {
        let truth = expected.get(key.as_bytes());
        let truth = truth.map_or([0.0; 3], |f| {
            [f.before.value, f.forecast.map_or(0.0, |forecast| forecast.value), f.now.value]
        });
        let forecast = found.forecast.unwrap_or(Estimate::exact(0));
        for (bounds, truth) in [found.before, forecast, found.now].into_iter().zip(truth) {
            let within = bounds.low <= truth + 2.0 && truth <= bounds.high + 2.0;
            assert!(within, "{name}: {found:?} {truth:?}");
        }
    });
}

/// Two full tables with packets of all flows: the merged bounds include the untracked packets of
/// both, in this epoch, in earlier ones, and in the next.
#[test]
fn bounds_hold_of_merged_tables_that_were_full() {
    for name in TABLES {
        let buckets = if name == "cuckoo-4" { "16" } else { "64" };
        let parameters = [STATE, ("buckets", buckets)];
        for epochs in [1, 2, 4] {
            let options = options(1 << 20, 7, &parameters);
            let mut shards = [build::<Key16>(name, &options), build::<Key16>(name, &options)];
            let mut model = Model::default();
            let mut now = HashMap::new();
            for epoch in 0..epochs {
                if epoch > 0 {
                    model.close(&now, Measure::Packets);
                    for shard in &mut shards {
                        shard.next_epoch();
                    }
                }
                let packets = packets(400, 200, epoch);
                now = truth::<Key16>(&packets);
                let (first, second) = packets.split_at(200);
                feed(&mut *shards[0], first);
                feed(&mut *shards[1], second);
            }
            let [sum, other] = &mut shards;
            sum.merge(&**other).unwrap();
            bounds_hold(name, &**sum, &model.forecasts(&now, Measure::Packets));
            model.close(&now, Measure::Packets);
            sum.next_epoch();
            bounds_hold(name, &**sum, &model.forecasts(&HashMap::new(), Measure::Packets));
        }
    }
}

/// The excess of a full counter is in the bounds of the next epoch, too.
#[test]
fn a_full_counter_leaves_wide_bounds_behind() {
    for name in TABLES.into_iter().chain(["replacing-array", "count-array"]) {
        let parameters =
            [STATE, if name.ends_with("array") { ("columns", "64") } else { ("buckets", "64") }];
        let options = options(1 << 20, 1, &parameters);
        let mut summary = build::<Key16>(name, &options);
        feed(&mut *summary, &one_each([7; 3].into_iter()));
        let mut summary = nearly_full(name, &options, &*summary, (3, &u64::to_le_bytes(3 * 64)));
        feed(&mut *summary, &one_each([7; 5].into_iter()));
        assert_eq!(summary.answers().saturated().packets, 4, "{name}");
        summary.next_epoch();
        summary.answers().forecasts().unwrap().for_each(&mut |_, found| {
            let truth = f64::from(u32::MAX) + 4.0;
            assert!(truth <= found.before.high, "{name}: {found:?}");
            assert!(truth <= found.forecast.unwrap().high, "{name}: {found:?}");
        });
    }
}
