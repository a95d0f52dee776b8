//! The states that tables keep for each key: distinct peers, and forecasts.

use std::collections::HashMap;

use flowgauge_core::catalog;
use flowgauge_core::key::{FlowKey, Key16};
use flowgauge_core::summary::{Estimate, Forecast, Options, Summary};
use flowgauge_core::terms::{Measure, Size};

use super::{
    Packet, TABLES, build, feed, key, listed, nearly_full, one_each, options, packets,
    stored_and_back, truth,
};
use crate::zipf::Zipf;

const DISTINCT: (&str, &str) = ("state", "distinct");

/// Packets of `flow` to each of `peers` peers, `times` times.
fn peers(flow: u32, peers: u32, times: u32, random: &mut fastrand::Rng) -> Vec<Packet> {
    let elements: Vec<u64> = (0..peers).map(|_| random.u64(..)).collect();
    let once = elements.iter().map(|&element| Packet { flow, bytes: 64, element });
    (0..times).flat_map(|_| once.clone()).collect()
}

/// The addresses that a summary lists.
fn spreaders<K: FlowKey>(summary: &dyn Summary<K>) -> HashMap<Vec<u8>, Estimate> {
    let mut found = HashMap::new();
    summary.answers().spread().unwrap().for_each(&mut |key, distinct| {
        assert!(found.insert(key.as_bytes().to_vec(), distinct).is_none());
    });
    found
}

/// The share of 4,096 addresses that are listed, if each has so many peers.
fn found(peers_of_each: u32) -> f64 {
    let mut listed = 0;
    for seed in 0..32 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut table = build::<Key16>("indirect-table", &options(1 << 20, seed, &[DISTINCT]));
        for flow in 0..128 {
            feed(&mut *table, &peers(flow, peers_of_each, 2, &mut random));
        }
        let found = spreaders(&*table);
        for distinct in found.values() {
            assert!(distinct.low <= distinct.value && distinct.value <= distinct.high);
            assert!(distinct.high <= 2.0 * f64::from(peers_of_each));
        }
        listed += found.len();
    }
    listed as f64 / 4096.0
}

/// An address is listed if more than 128 of its peers were new to its filter. The filter must miss
/// none of 129, or at most six of 135; on average it misses 1.2 and 1.4 (about Poisson), so the
/// probabilities are 0.31 and 0.9995. With 4,096 addresses the standard errors are 0.007 and
/// 0.0004; a run exceeds four of them once in 16,000.
#[test]
fn a_third_of_addresses_with_129_peers_and_nearly_all_with_135_are_found() {
    assert!(found(128) <= 0.0);
    let share = found(129);
    assert!((0.26..0.36).contains(&share), "{share}");
    let share = found(135);
    assert!(share > 0.997, "{share}");
    assert!(found(150) >= 1.0);
}

/// The share of 512 addresses that a summary with the option `spread` lists, if each has so many
/// peers.
fn found_above(name: &str, spread: u64, peers_of_each: u32) -> f64 {
    let mut listed = 0;
    for seed in 0..8 {
        let mut random = fastrand::Rng::with_seed(seed);
        let options = Options { spread, ..options(4 << 20, seed, &[DISTINCT]) };
        let mut summary = build::<Key16>(name, &options);
        for flow in 0..64 {
            feed(&mut *summary, &peers(flow, peers_of_each, 1, &mut random));
        }
        listed += spreaders(&*summary).len();
    }
    listed as f64 / 512.0
}

/// The standard error of the estimate by bits is 2.6 % for 600 peers and 4.4 % for 1150. The
/// numbers of peers differ from the spread by at least four standard errors.
#[test]
fn large_spreads_are_found_by_the_bits() {
    for name in ["indirect-table", "count-array", "replacing-array"] {
        for (spread, more, less) in [(500, 580, 430), (1000, 1250, 820), (2000, 3500, 1100)] {
            let (found, wrong) = (found_above(name, spread, more), found_above(name, spread, less));
            assert!(found >= 0.99, "{name}: {found} of {more} peers are over {spread}");
            assert!(wrong <= 0.01, "{name}: {wrong} of {less} peers are over {spread}");
        }
    }
}

#[test]
fn a_spread_beyond_the_filter_is_refused() {
    for name in ["linear-table", "count-array", "replacing-array"] {
        let build = |spread| {
            let options = Options { spread, ..options(1 << 20, 1, &[DISTINCT]) };
            catalog::build::<Key16>(name, &options).err().map(|error| error.to_string())
        };
        assert!(build(2364).is_none());
        assert!(build(2365).unwrap().contains("cannot count more than 2364 peers"));
    }
}

/// The 95 % intervals of 1,024 addresses hold for at least 93 % of them (three standard errors).
#[test]
fn bounds_hold_as_often_as_they_say() {
    for count in [200, 500, 1000] {
        let (mut holds, mut sum) = (0, 0.0);
        for seed in 0..32 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut table = build::<Key16>("indirect-table", &options(1 << 20, seed, &[DISTINCT]));
            for flow in 0..32 {
                feed(&mut *table, &peers(flow, count, 2, &mut random));
            }
            let found = spreaders(&*table);
            assert_eq!(found.len(), 32);
            for distinct in found.values() {
                assert_eq!(distinct.confidence, Some(0.95));
                let truth = f64::from(count);
                holds += u32::from(distinct.low <= truth && truth <= distinct.high);
                sum += distinct.value;
            }
        }
        assert!(holds >= 1024 * 93 / 100, "{count} peers: {holds}");
        let mean = sum / 1024.0 / f64::from(count);
        assert!((0.99..1.01).contains(&mean), "{count} peers: {mean}");
    }
}

/// A full filter gives a lower bound, and stays finite.
#[test]
fn a_full_filter_says_at_least() {
    let mut random = fastrand::Rng::with_seed(1);
    let options = options(1 << 20, 1, &[DISTINCT]);
    let mut table = build::<Key16>("cuckoo-4", &options);
    feed(&mut *table, &peers(0, 10_000, 1, &mut random));
    let distinct = spreaders(&*stored_and_back("cuckoo-4", &options, &*table));
    let bounds = distinct[key::<Key16>(0).canonical(Key16::BYTES)];
    assert_eq!((bounds.low, bounds.high, bounds.confidence), (342.0, 10_000.0, None));
    assert!((2365.0..2366.0).contains(&bounds.value), "{bounds:?}");
}

/// The filter of a displaced address is set aside or lost, and untracked packets never reach a
/// filter: each of their packets may bring another peer.
#[test]
fn bounds_hold_for_peers_that_a_filter_did_not_see() {
    let mut random = fastrand::Rng::with_seed(3);
    let others = packets(64, 64, 3);
    let (before, after) = (peers(1000, 300, 1, &mut random), peers(1000, 200, 1, &mut random));
    let [kept, displaced] = ["64", "0"].map(|candidates| {
        let parameters = [("columns", "2"), ("candidates", candidates), DISTINCT];
        let mut array = build::<Key16>("replacing-array", &options(1 << 20, 3, &parameters));
        for packets in [&before, &others, &after] {
            feed(&mut *array, packets);
        }
        spreaders(&*array)[key::<Key16>(1000).canonical(Key16::BYTES)]
    });
    assert!((450.0..550.0).contains(&kept.value) && kept.low <= 500.0, "{kept:?}");
    // The table has no room for the address in one shard, and has in the other.
    let options = options(1 << 20, 3, &[("buckets", "8"), DISTINCT]);
    let mut shards = [[&others, &before], [&after, &after]].map(|parts| {
        let mut shard = build::<Key16>("linear-table", &options);
        for packets in parts {
            feed(&mut *shard, packets);
        }
        shard
    });
    let [full, roomy] = &mut shards;
    assert!(spreaders(&**full).is_empty());
    roomy.merge(&**full).unwrap();
    let merged = spreaders(&**roomy)[key::<Key16>(1000).canonical(Key16::BYTES)];
    for distinct in [displaced, merged] {
        assert!((180.0..220.0).contains(&distinct.value), "{distinct:?}");
        assert!(distinct.low <= 500.0 && 500.0 <= distinct.high, "{distinct:?}");
    }
}

/// Filters with some peers in common, and some of their own.
#[test]
fn merged_filters_estimate_the_union() {
    let options = options(1 << 20, 2, &[DISTINCT]);
    let mut random = fastrand::Rng::with_seed(2);
    let common = peers(1, 400, 1, &mut random);
    let own = [peers(1, 100, 1, &mut random), peers(1, 100, 1, &mut random)];
    let mut shards = own.map(|own| {
        let mut shard = build::<Key16>("indirect-table", &options);
        feed(&mut *shard, &common);
        feed(&mut *shard, &own);
        shard
    });
    let [whole, other] = &mut shards;
    whole.merge(&**other).unwrap();
    let distinct = spreaders(&**whole)[key::<Key16>(1).canonical(Key16::BYTES)];
    assert!(distinct.low <= 600.0 && 600.0 <= distinct.high, "{distinct:?}");
    stored_and_back("indirect-table", &options, &**whole);
}

/// Packets of sources by Zipf's law, and the true number of peers of each source.
fn epoch(seed: u64) -> (Vec<Packet>, HashMap<Vec<u8>, u32>) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut sources = Zipf::new(20_000, 1.1, seed);
    let mut packets = Vec::new();
    let mut peers = HashMap::<u32, Vec<u64>>::new();
    for _ in 0..200_000 {
        let flow = sources.next().unwrap();
        let known = peers.entry(flow).or_default();
        // Half of the packets go to a known peer.
        let again = if known.is_empty() { 0 } else { random.usize(..2 * known.len()) };
        let element = match known.get(again) {
            Some(&element) if !known.is_empty() => element,
            _ => {
                known.push(random.u64(..));
                *known.last().unwrap()
            }
        };
        packets.push(Packet { flow, bytes: 64, element });
    }
    let truth = peers.into_iter().map(|(flow, known)| {
        (key::<Key16>(flow).canonical(Key16::BYTES).to_vec(), known.len() as u32)
    });
    (packets, truth.collect())
}

/// Precision, and recall among addresses with 135 peers or more.
pub(super) fn quality(name: &str, parameters: &[(&str, &str)], seed: u64) -> (f64, f64) {
    let (packets, truth) = epoch(seed);
    let mut summary = build::<Key16>(name, &options(16 << 20, seed, parameters));
    feed(&mut *summary, &packets);
    let found = spreaders(&*summary);
    let right = found.keys().filter(|key| truth[*key] > 128).count();
    let wide: Vec<_> = truth.iter().filter(|(_, peers)| **peers >= 135).collect();
    assert!(wide.len() > 50, "{}", wide.len());
    let recalled = wide.iter().filter(|(key, _)| found.contains_key(*key)).count();
    (right as f64 / found.len() as f64, recalled as f64 / wide.len() as f64)
}

#[test]
fn tables_find_the_superspreaders() {
    for name in TABLES {
        for seed in 0..2 {
            let (precision, recall) = quality(name, &[DISTINCT], seed);
            assert!(precision >= 0.99 && recall >= 1.0, "{name}: {precision} {recall}");
        }
    }
}

// Forecasts, checked against a map of averages.

const EWMA: (&str, &str) = ("state", "ewma");

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
            let options = Options { by, ..options(1 << 20, 1, &[EWMA]) };
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
        let mut table = build::<Key16>(name, &options(1 << 20, 1, &[EWMA, ("buckets", "256")]));
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
        let options = options(1 << 20, 1, &[EWMA]);
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
        let parameters = [EWMA, ("buckets", buckets)];
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
        let parameters = [EWMA, ("buckets", buckets)];
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
            [EWMA, if name.ends_with("array") { ("columns", "64") } else { ("buckets", "64") }];
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
