//! FlowRadar against a model that lists every flow: its bounds hold, and tasks answer from the
//! flows that it decodes.

use std::collections::{BTreeMap, BTreeSet};

use flowgauge_core::batch::Batch;
use flowgauge_core::catalog;
use flowgauge_core::catalog::stored::encode;
use flowgauge_core::key::{CanonicalKey, FlowKey, Key8, KeyKind};
use flowgauge_core::summary::{Answers, BuildErrorKind, Estimate, Options, SizeEstimate, Summary};
use flowgauge_core::task::{
    AddressItem, EpochContext, HistoryShape, Lane, Lists, Report, Selection, Side, TASKS, Task,
    TaskOptions, find,
};
use flowgauge_core::terms::{Measure, Size, SpreadOf, Threshold};
use flowgauge_kernel::Seed;

use crate::flows::{feed, key};
use crate::zipf::Zipf;

const BOTH: [Measure; 2] = [Measure::Packets, Measure::Bytes];
const SEEDS: u64 = 32;
const CELLS: u64 = 1 << 14;

type Model<K = u32> = BTreeMap<K, Size>;
type Radar = Box<dyn Summary<Key8>>;

fn radar(seed: u64, parameters: &[(&str, u64)]) -> Radar {
    let options = Options::new(1 << 20, seed).for_keys(4).with(parameters.iter().copied());
    catalog::build("flow-radar", &options).unwrap()
}

/// The number of the flow with this key.
fn flow(key: &CanonicalKey) -> u32 {
    u32::from_be_bytes(key.as_bytes().try_into().unwrap())
}

/// A packet of each of `flows` flows, then `packets` packets of Zipf 1.1, with their bytes.
fn stream(flows: u32, packets: usize, seed: u64) -> Vec<(u32, u32)> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..flows)
        .chain(Zipf::new(flows as usize, 1.1, seed).take(packets))
        .map(|flow| (flow, random.u32(64..1500)))
        .collect()
}

fn model<F: Copy + Ord>(packets: &[(F, u32)]) -> Model<F> {
    let mut model = Model::new();
    for &(flow, bytes) in packets {
        *model.entry(flow).or_default() += Size { packets: 1, bytes: u64::from(bytes) };
    }
    model
}

fn found(answers: &dyn Answers) -> BTreeMap<u32, SizeEstimate> {
    let mut found = BTreeMap::new();
    answers.candidates().unwrap().for_each(&mut |key, size| {
        assert!(found.insert(flow(&key), size).is_none(), "a flow is named once");
    });
    found
}

fn covers(estimate: Estimate, truth: f64) -> bool {
    estimate.low <= truth && truth <= estimate.high
}

fn holds(size: SizeEstimate, truth: Size) -> bool {
    BOTH.iter().all(|&by| covers(size.by(by).unwrap(), truth.by(by) as f64))
}

fn is_exact(size: SizeEstimate) -> bool {
    BOTH.iter().all(|&by| size.by(by).is_some_and(|size| size.low == size.high))
}

/// Checks that all listed flows are in the model, that their bounds hold, and that no packet is
/// lost: flows are exact, and the others are untracked.
fn check(answers: &dyn Answers, model: &Model) -> BTreeMap<u32, SizeEstimate> {
    let found = found(answers);
    for (flow, &size) in &found {
        let truth = *model.get(flow).unwrap_or_else(|| panic!("{flow} was invented"));
        assert!(holds(size, truth), "{flow}: {size:?} of {truth:?}");
    }
    let mut counted = answers.untracked();
    answers.flows().unwrap().for_each(&mut |key, size| {
        let flow = flow(&CanonicalKey::new(key));
        assert!(size == model[&flow] && found.contains_key(&flow), "{flow}: {size:?}");
        counted += size;
    });
    assert_eq!(counted, model.values().copied().sum());
    found
}

/// At 0.74 flows per cell, all flows are decoded but those that the filter missed: 0.06 are
/// expected in an epoch of this size, so more than 12 in 32 epochs happen once in 10⁶ times.
#[test]
fn all_flows_are_decoded_at_a_load_of_074() {
    let flows = (CELLS as f64 * 0.74) as u32;
    let (mut missed, mut exact) = (0, 0);
    for seed in 0..SEEDS {
        let packets = stream(flows, 30_000, seed);
        let model = model(&packets);
        let mut radar = radar(seed, &[("cells", CELLS)]);
        feed(&mut *radar, key, &packets);
        let answers = radar.answers();
        let found = check(answers, &model);
        missed += model.len() - found.len();
        assert_eq!(answers.candidates().unwrap().overflow(), 0, "seed {seed}");
        let listed = answers.flows().unwrap();
        if answers.untracked() == Size::default() {
            exact += 1;
            assert_eq!(listed.len(), model.len());
            let (first, size) = listed.get(0);
            assert_eq!(size, model[&flow(&CanonicalKey::new(first))]);
        } else {
            assert!(found.values().filter(|size| is_exact(**size)).count() * 10 > found.len() * 9);
        }
    }
    println!("{missed} flows missed, {exact} epochs exact");
    assert!(missed <= 12 && exact >= SEEDS - 12, "{missed} missed, {exact} exact");
}

#[test]
fn an_overloaded_radar_invents_nothing_and_conserves_packets() {
    for seed in 0..SEEDS {
        let flows = CELLS as u32 / 2 * (2 + seed as u32 % 4);
        let packets = stream(flows, 20_000, seed);
        let model = model(&packets);
        let mut radar = radar(seed, &[("cells", CELLS), ("hashes", 3 + seed % 3)]);
        feed(&mut *radar, key, &packets);
        let answers = radar.answers();
        let found = check(answers, &model);
        let listed = answers.flows().unwrap().len();
        assert!(listed < model.len(), "{} of {flows} flows found", found.len());
        assert!(answers.untracked() != Size::default());

        let undecoded = answers.candidates().unwrap().overflow();
        let cardinality = answers.cardinality().unwrap();
        assert_eq!(cardinality.low, (found.len() as u64 + undecoded) as f64);
        let truth = model.len() as f64;
        assert!(cardinality.low <= truth && truth <= cardinality.high, "{cardinality:?}");
        assert!((cardinality.value / truth - 1.0).abs() < 0.01, "{cardinality:?} of {truth}");

        for by in BOTH {
            let weights = model.values().map(|size| size.by(by) as f64);
            let truth: f64 = weights.map(|weight| weight * weight.log2()).sum();
            let logs = answers.weight_logs(by).unwrap();
            assert!(logs.low <= truth && truth <= logs.high, "{logs:?} of {truth}");
        }
        for (size, bin) in answers.distribution().unwrap() {
            let truth = model.values().filter(|flow| flow.packets == size).count() as f64;
            assert!(bin.low <= truth && truth <= bin.high, "{size}: {bin:?} of {truth}");
        }
        let sizes = answers.size().unwrap();
        for (flow, truth) in model.iter().step_by(97) {
            let size = sizes.estimate(key(*flow).canonical(4));
            assert!(holds(size, *truth), "{flow}: {size:?} of {truth:?}");
        }
    }
}

/// With a filter of 4 bits per flow, one flow in eight is missed. The bounds of the others hold,
/// and most sizes are uncertain.
#[test]
fn flows_that_the_filter_missed_make_sizes_uncertain() {
    let (mut uncertain, mut missed) = (0, 0);
    for seed in 0..SEEDS {
        for (filter, flows) in [(1 << 10, 3000), (1 << 11, 2000), (1 << 12, 2000)] {
            let packets = stream(flows, 5000, seed);
            let model = model(&packets);
            let mut radar = radar(seed, &[("cells", 4096), ("filter", filter)]);
            feed(&mut *radar, key, &packets);
            let answers = radar.answers();
            let found = found(answers);
            for (flow, size) in &found {
                assert!(holds(*size, model[flow]), "{seed}: {flow}: {size:?} {:?}", model[flow]);
            }
            check(answers, &model);
            uncertain += found.values().filter(|size| !is_exact(**size)).count();
            missed += model.len() - found.len();
            let flows = answers.cardinality().unwrap();
            let truth = model.len() as f64;
            assert!(flows.low <= truth && truth <= flows.high, "{flows:?} of {truth}");
            for flow in (0..6000).step_by(7) {
                let size = answers.size().unwrap().estimate(key(flow).canonical(4));
                let truth = model.get(&flow).copied().unwrap_or_default();
                assert!(holds(size, truth), "{seed}: {flow}: {size:?} of {truth:?}");
            }
        }
    }
    println!("{missed} flows missed, {uncertain} uncertain");
    assert!(missed > 1000 && uncertain > missed);
}

/// A filter that is far too small misses most flows. Where their errors cancel each other, a size may
/// seem certain, but no flow is larger than what its cells hold.
#[test]
fn no_size_exceeds_the_cells_of_its_flow() {
    for seed in 0..6000 {
        let packets = stream(200, 1000, seed);
        let mut radar = radar(seed, &[("cells", 300), ("filter", 512)]);
        feed(&mut *radar, key, &packets);
        for (flow, size) in found(radar.answers()) {
            let size = size.packets.unwrap();
            assert!(size.high <= packets.len() as f64, "{seed}: {flow}: {size:?}");
        }
    }
}

#[test]
fn radars_that_saw_the_same_flows_are_merged() {
    for seed in 0..8 {
        let packets = stream(6000, 20_000, seed);
        let model = model(&packets);
        // Any split of the packets: most flows are in both parts.
        let (mut sum, mut other) = (radar(1, &[("cells", CELLS)]), radar(1, &[("cells", CELLS)]));
        let (left, right) = packets.split_at(packets.len() / 2);
        feed(&mut *sum, key, left);
        feed(&mut *other, key, right);
        sum.merge(&*other).unwrap();
        let found = check(sum.answers(), &model);
        assert_eq!(found.len(), model.len());
        // Later packets are counted as if one FlowRadar had seen all.
        feed(&mut *sum, key, left);
        let twice: Vec<_> = packets.iter().chain(left).copied().collect();
        assert_eq!(check(sum.answers(), &self::model(&twice)).len(), model.len());
    }
}

#[test]
fn one_of_two_merged_radars_may_be_overloaded() {
    let packets = stream(20_000, 20_000, 1);
    let few: Vec<_> = packets.iter().copied().filter(|(flow, _)| flow % 7 == 0).collect();
    let all: Vec<_> = packets.iter().chain(&few).copied().collect();
    let model = model(&all);
    for first in [&packets, &few] {
        let second = if first.len() == few.len() { &packets } else { &few };
        let (mut sum, mut other) = (radar(1, &[("cells", CELLS)]), radar(1, &[("cells", CELLS)]));
        feed(&mut *sum, key, first);
        feed(&mut *other, key, second);
        sum.merge(&*other).unwrap();
        let found = check(sum.answers(), &model);
        let undecoded = sum.answers().candidates().unwrap().overflow();
        // Except for flows that the filter missed: 0.3 are expected, and more than 4 once in 5000
        // times.
        let missed = model.len() as u64 - undecoded - found.len() as u64;
        assert!(missed <= 4, "{missed} flows missed");
    }
    let (mut sum, other) = (radar(1, &[("cells", CELLS)]), radar(1, &[("cells", CELLS)]));
    feed(&mut *sum, key, &packets);
    let mut other = other;
    feed(&mut *other, key, &packets);
    let error = sum.merge(&*other).unwrap_err().to_string();
    assert!(error.contains("more flows than they can decode"), "{error}");
    // The refused merge changes nothing.
    check(sum.answers(), &self::model(&packets));
}

#[test]
fn cells_near_their_limit_change_no_more_and_say_so() {
    let mut radar = radar(1, &[("cells", 4096)]);
    let mut batch = Batch::new();
    // An epoch of 2⁴⁸ bytes is long even in frames of the largest size: weights as from an
    // aggregator.
    for flow in 0..10 {
        batch.push(key(flow), u32::MAX, 0);
    }
    let rounds = (1u64 << 48) / u64::from(u32::MAX) + 10;
    for _ in 0..rounds {
        radar.ingest(&mut batch);
    }
    let answers = radar.answers();
    let found = found(answers);
    let truth = Size { packets: rounds, bytes: rounds * u64::from(u32::MAX) };
    assert_eq!(found.len(), 10);
    assert!(found.values().all(|size| holds(*size, truth)));
    let counted: f64 = found.values().map(|size| size.packets.unwrap().value).sum();
    assert_eq!(counted + answers.saturated().packets as f64, 10.0 * rounds as f64);
    assert!(answers.saturated().packets > 0);
}

/// One in a hundred epochs may fail: more than 6 of 96 do once in 10,000 times.
#[test]
fn a_number_of_flows_says_how_many_cells() {
    let mut failed = 0;
    for seed in 0..SEEDS {
        for flows in [10, 100, 1000] {
            let mut radar = radar(seed, &[("flows", flows), ("hashes", 3 + seed % 3)]);
            feed(&mut *radar, key, &stream(flows as u32, 0, seed));
            failed += u32::from(radar.answers().flows().unwrap().len() < flows as usize);
        }
    }
    println!("{failed} of 96 failed");
    assert!(failed <= 6, "{failed}");
}

#[test]
fn wrong_parameters_are_refused() {
    let refused = |parameters: &[(&str, &str)]| {
        let options = Options::new(1 << 20, 1).for_keys(4).with(parameters.iter().copied());
        catalog::build::<Key8>("flow-radar", &options).err().unwrap()
    };
    assert!(matches!(
        refused(&[("cells", "64"), ("flows", "10")]).kind(),
        BuildErrorKind::Contradiction { name: "cells", other: "flows" }
    ));
    assert!(matches!(
        refused(&[("hashes", "6")]).kind(),
        BuildErrorKind::OutOfRange { name: "hashes", .. }
    ));
    assert!(matches!(
        refused(&[("filter", "1")]).kind(),
        BuildErrorKind::OutOfRange { name: "filter", .. }
    ));
}

/// Two cells per hash, with at most 65,535 flows each.
#[test]
fn cells_full_of_flows_take_no_new_ones_in_any_batches() {
    let parameters = [("cells", 8), ("filter", 1 << 20)];
    let packets: Vec<_> = (0..200_000).chain(0..1000).map(|flow| (flow, 100)).collect();
    let model = model(&packets);
    let stored = [1, 250, 256].map(|size| {
        let mut radar = radar(1, &parameters);
        let mut batch = Batch::new();
        for chunk in packets.chunks(size) {
            batch.clear();
            for (flow, bytes) in chunk {
                batch.push(key(*flow), *bytes, 0);
            }
            radar.ingest(&mut batch);
        }
        let answers = radar.answers();
        let undecoded = answers.candidates().unwrap().overflow();
        assert!((65_535..=2 * 65_535).contains(&undecoded), "{undecoded} flows");
        // The first flows are in the cells, and are counted there.
        for flow in (0..1000).step_by(7) {
            let size = answers.size().unwrap().estimate(key(flow).canonical(4));
            assert!(size.packets.unwrap().high >= 2.0 && holds(size, model[&flow]), "{size:?}");
        }
        let mut counted = answers.untracked();
        answers.flows().unwrap().for_each(&mut |_, size| counted += size);
        assert_eq!(counted, model.values().copied().sum());
        let options = Options::new(1 << 20, 1).for_keys(4).with(parameters);
        encode(catalog::info("flow-radar").unwrap(), &options, &*radar)
    });
    assert!(stored[0] == stored[1] && stored[1] == stored[2]);
}

// Tasks on a FlowRadar that decodes only part of its flows, against a model of all: every task
// answers, all bounds hold, and uncertain flows are untracked.

const TASK_CELLS: u64 = 1 << 10;
const EPOCHS: usize = 4;
/// Flows per cell: all are decoded at first, then most, some, and few.
const LOADS: [f64; 4] = [0.7, 0.85, 1.0, 1.6];
const SPREAD: u64 = 10;

type Key = [u8; 8];

/// Packets of `flows` flows of all sizes, mostly the same in every epoch. Of their 60 sources, the
/// first ones have many destinations.
fn changing_stream(flows: usize, epoch: usize, random: &mut fastrand::Rng) -> Vec<(Key, u32)> {
    let mut packets = Vec::new();
    for flow in 0..flows {
        let stays = !(flow + epoch).is_multiple_of(5);
        let number = if stays { flow } else { flow + 10_000 * (epoch + 1) };
        let source = (number as f64 / flows as f64).fract().powi(3) * 60.0;
        let mut key = [10, (number % 3) as u8, 0, source as u8, 192, 0, 0, 0];
        key[5..].copy_from_slice(&(number as u32).to_be_bytes()[1..]);
        let size = (1.0 / (random.f64() + 1e-3)) as usize;
        packets.extend((0..size).map(|_| (key, random.u32(64..1500))));
    }
    random.shuffle(&mut packets);
    packets
}

fn bytes(key: &CanonicalKey) -> Key {
    key.as_bytes().try_into().unwrap()
}

/// A forecast without the forgetting of small flows: off by less than 2.
#[derive(Clone, Copy, Default)]
struct Past {
    before: u64,
    forecast: f64,
}

/// The past epochs, and the tasks run in each.
struct Run {
    by: Measure,
    past: BTreeMap<Key, Past>,
    tasks: Vec<Box<dyn Task>>,
}

impl Run {
    fn new(by: Measure, asked: Vec<CanonicalKey>) -> Self {
        let options = TaskOptions {
            spread: SPREAD,
            spread_of: SpreadOf::Address,
            flows: asked,
            history: vec![HistoryShape { key_bytes: 8, flows: 1 << 14, cells: 0 }],
            ..TaskOptions::new(Seed::number(7))
        };
        // `findings` needs ports.
        let tasks = TASKS.iter().filter(|task| task.name != "findings");
        let tasks = tasks.map(|task| find(task.name).unwrap().build(&options).unwrap());
        Self { by, past: BTreeMap::new(), tasks: tasks.collect() }
    }

    /// Runs all tasks, and returns the number of listed items.
    fn epoch(&mut self, answers: &dyn Answers, model: &Model<Key>) -> usize {
        let keyed: Size = model.values().copied().sum();
        let context = EpochContext {
            by: self.by,
            keyed,
            threshold: Threshold::Share(0.002),
            lists: Lists::unlimited(usize::MAX),
            timeline: None,
        };
        let lane = [Lane { key: KeyKind::PAIR.into(), key_bytes: 8, answers }];
        let mut listed = 0;
        for task in &mut self.tasks {
            let mut scratch = vec![u64::MAX; task.scratch_bytes(TASK_CELLS as usize).div_ceil(8)];
            task.check(self.by, &lane).unwrap_or_else(|error| panic!("{}: {error}", task.name()));
            let report = task.run(&context, &lane, &mut scratch).unwrap();
            listed += check_tasks(&report, task.name(), &context, answers, model, &self.past);
        }
        let first = self.past.is_empty();
        let keys: BTreeSet<Key> = model.keys().chain(self.past.keys()).copied().collect();
        for key in keys {
            let now = model.get(&key).copied().unwrap_or_default().by(self.by);
            let past = self.past.entry(key).or_default();
            let forecast = if first { now as f64 } else { 0.5 * now as f64 + 0.5 * past.forecast };
            *past = Past { before: now, forecast };
        }
        listed
    }
}

/// Checks sums by address against the model, and returns their number.
fn check_addresses(side: Side, items: &[AddressItem], model: &Model<Key>) -> usize {
    let address = if side == Side::Source { 0..4 } else { 4..8 };
    let mut sums: BTreeMap<&[u8], Size> = BTreeMap::new();
    for (key, size) in model {
        *sums.entry(&key[address.clone()]).or_default() += *size;
    }
    for item in items {
        let truth = sums[item.address.as_bytes()];
        assert!(holds(item.size, truth), "{side:?}: {item:?} of {truth:?}");
    }
    items.len()
}

/// Checks a report, and returns the number of its items.
fn check_tasks(
    report: &Report,
    task: &str,
    context: &EpochContext<'_>,
    answers: &dyn Answers,
    model: &Model<Key>,
    past: &BTreeMap<Key, Past>,
) -> usize {
    let (by, untracked) = (context.by, answers.untracked());
    let weight = |size: &Size| size.by(by) as f64;
    match report {
        Report::Sizes { selection, items, .. } => {
            let mut listed = BTreeSet::new();
            for item in items {
                let truth = model.get(&bytes(&item.key)).copied().unwrap_or_default();
                assert!(holds(item.size, truth), "{task}: {item:?} of {truth:?}");
                listed.insert(bytes(&item.key));
            }
            for (key, size) in model.iter().filter(|_| *selection != Selection::Asked) {
                let heavy = weight(size) > selection.threshold().unwrap_or(0.0);
                let may_lack = weight(size) <= untracked.by(by) as f64;
                assert!(listed.contains(key) || !heavy || may_lack, "{task}: {key:?} {size:?}");
            }
            items.len()
        }
        Report::Findings { .. } => unreachable!("the key pair has no findings"),
        Report::Addresses { side, items, .. } => check_addresses(*side, items, model),
        Report::Spread { side, threshold, items, .. } => {
            let address = if *side == Side::Source { 0..4 } else { 4..8 };
            let mut peers: BTreeMap<&[u8], u64> = BTreeMap::new();
            for key in model.keys() {
                *peers.entry(&key[address.clone()]).or_default() += 1;
            }
            for item in items {
                let truth = peers.remove(item.address.as_bytes()).unwrap();
                assert!(covers(item.distinct, truth as f64), "{task}: {item:?} of {truth}");
            }
            let most = peers.values().max().copied().unwrap_or(0);
            assert!(most.saturating_sub(untracked.packets) <= *threshold, "{task}: {most}");
            items.len()
        }
        Report::Changes { items, .. } => {
            for item in items {
                let key = bytes(&item.key);
                let past = past.get(&key).copied().unwrap_or_default();
                let now = model.get(&key).map_or(0.0, weight);
                assert!(covers(item.now, now), "{item:?} of {now}");
                let near = |estimate: Estimate, truth: f64| {
                    estimate.low - 2.0 <= truth && truth <= estimate.high + 2.0
                };
                assert!(near(item.before, past.before as f64), "{item:?} of {}", past.before);
                assert!(near(item.forecast, past.forecast), "{item:?} of {}", past.forecast);
            }
            items.len()
        }
        Report::Cardinality { flows } => {
            assert!(covers(*flows, model.len() as f64), "{flows:?} of {}", model.len());
            0
        }
        Report::Entropy { bits, .. } => {
            let total: f64 = model.values().map(weight).sum();
            let truth: f64 =
                model.values().map(weight).map(|f| f / total * (total / f).log2()).sum();
            assert!(bits.low - 1e-9 <= truth && truth <= bits.high + 1e-9, "{bits:?} of {truth}");
            0
        }
        Report::SizeDistribution { bins } => {
            for (size, bin) in bins {
                let truth = model.values().filter(|flow| flow.packets == *size).count();
                assert!(covers(*bin, truth as f64), "{size}: {bin:?} of {truth}");
            }
            bins.len()
        }
        Report::Quantiles { sizes, keys, .. } => {
            let mut sorted: Vec<f64> = model.values().map(weight).collect();
            sorted.sort_unstable_by(f64::total_cmp);
            for (q, size) in sizes {
                let truth = sorted[((q * sorted.len() as f64).ceil() as usize).max(1) - 1];
                assert!(covers(*size, truth), "{q}: {size:?} of {truth}");
            }
            keys.len()
        }
        Report::Hierarchical { items, .. } => {
            let below = |key: &[u8], item: &flowgauge_core::task::HierarchyItem| {
                let whole = usize::from(item.source_bits / 8);
                key[..whole] == item.source.as_bytes()[..whole]
            };
            for item in items {
                let under = || model.iter().filter(|(key, _)| below(&key[..], item));
                let total: f64 = under().map(|(_, size)| weight(size)).sum();
                assert!(covers(item.total, total), "{item:?} of {total}");
                let longer = |other: &&flowgauge_core::task::HierarchyItem| {
                    other.source_bits > item.source_bits
                };
                let covered = |key: &Key| items.iter().filter(longer).any(|o| below(&key[..], o));
                let rest = under().filter(|(key, _)| !covered(key));
                let discounted: f64 = rest.map(|(_, size)| weight(size)).sum();
                assert!(covers(item.discounted, discounted), "{item:?} of {discounted}");
            }
            items.len()
        }
    }
}

#[test]
fn every_task_answers_from_the_flows_that_are_certain() {
    let mut partial = 0;
    for (seed, load) in (0..12).zip(LOADS.iter().cycle()) {
        let by = if seed % 2 == 0 { Measure::Packets } else { Measure::Bytes };
        let mut random = fastrand::Rng::with_seed(seed);
        let options = Options::new(1 << 20, seed).with([("cells", TASK_CELLS)]);
        let mut radar = catalog::build::<Key8>("flow-radar", &options).unwrap();
        let flows = (load * TASK_CELLS as f64) as usize;
        let epochs: Vec<_> =
            (0..EPOCHS).map(|epoch| changing_stream(flows, epoch, &mut random)).collect();
        let asked = epochs[0].iter().step_by(37).map(|(key, _)| CanonicalKey::new(key));
        let mut run = Run::new(by, asked.collect::<BTreeSet<_>>().into_iter().collect());
        for packets in &epochs {
            radar.clear();
            feed(&mut *radar, |key| Key8::from_canonical(&key).unwrap(), packets);
            let (answers, model) = (radar.answers(), model(packets));
            // Listed flows are exact, and everything else is untracked.
            let (listed, mut sum) = (answers.flows().unwrap(), answers.untracked());
            listed.for_each(&mut |key, size| {
                assert_eq!(size, model[&<Key>::try_from(key).unwrap()], "seed {seed}");
                sum += size;
            });
            assert_eq!(sum, model.values().copied().sum());
            assert_eq!(listed.len() == model.len(), answers.untracked() == Size::default());
            partial += usize::from((1..model.len()).contains(&listed.len()));
            let items = run.epoch(answers, &model);
            assert!(items > 0, "seed {seed}");
        }
    }
    assert!(partial > 12, "{partial} epochs were decoded in part");
}

/// One lane decodes next to nothing, the other one everything.
#[test]
fn sizes_that_a_lane_did_not_decode_may_be_of_its_other_flows() {
    let mut random = fastrand::Rng::with_seed(77);
    let options = Options::new(1 << 20, 77).with([("cells", TASK_CELLS)]);
    let flows = TASK_CELLS as usize;
    let streams = [4 * flows, flows / 2].map(|flows| changing_stream(flows, 0, &mut random));
    let radars = streams.each_ref().map(|packets| {
        let mut radar = catalog::build::<Key8>("flow-radar", &options).unwrap();
        feed(&mut *radar, |key| Key8::from_canonical(&key).unwrap(), packets);
        radar
    });
    let key = KeyKind::PAIR.into();
    let lanes = radars.each_ref().map(|radar| Lane { key, key_bytes: 8, answers: radar.answers() });
    let [untracked, decoded] = lanes.map(|lane| lane.answers.untracked().packets);
    assert!(untracked > 0 && decoded == 0);
    let mut truth = BTreeMap::<u64, usize>::new();
    for size in streams.iter().flat_map(|packets| model(packets).into_values()) {
        *truth.entry(size.packets).or_default() += 1;
    }
    let context = EpochContext {
        by: Measure::Packets,
        keyed: Size::default(),
        threshold: Threshold::Share(1.0),
        lists: Lists::unlimited(usize::MAX),
        timeline: None,
    };
    let mut task =
        find("size-distribution").unwrap().build(&TaskOptions::new(Seed::number(7))).unwrap();
    let report = task.run(&context, &lanes, &mut []).unwrap();
    let Report::SizeDistribution { bins } = report else { panic!("{report:?}") };
    assert!(bins.len() > 8);
    for (size, flows) in bins {
        let truth = truth.get(&size).copied().unwrap_or(0);
        assert!(covers(flows, truth as f64), "{size}: {flows:?} of {truth}");
    }
}
