//! Tasks on a FlowRadar that decodes only part of its flows, against a model of all: every task
//! answers, all bounds hold, and uncertain flows are untracked.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::collections::{BTreeMap, BTreeSet};

use flowgauge_core::batch::Batch;
use flowgauge_core::catalog;
use flowgauge_core::key::{CanonicalKey, FlowKey, Key8, KeyKind};
use flowgauge_core::summary::{Answers, Estimate, Options, SizeEstimate, Summary};
use flowgauge_core::task::{
    AddressItem, EpochContext, HistoryShape, Lane, Lists, Report, Selection, Side, TASKS, Task,
    TaskOptions, find,
};
use flowgauge_core::terms::{Measure, Size, SpreadOf, Threshold};
use flowgauge_kernel::Seed;

const CELLS: u64 = 1 << 10;
const EPOCHS: usize = 4;
/// Flows per cell: all are decoded at first, then most, some, and few.
const LOADS: [f64; 4] = [0.7, 0.85, 1.0, 1.6];
const SPREAD: u64 = 10;

type Key = [u8; 8];
type Model = BTreeMap<Key, Size>;

/// Packets of `flows` flows, mostly the same in every epoch: from 60 sources, the first of which
/// have many destinations, and of all sizes.
fn stream(flows: usize, epoch: usize, random: &mut fastrand::Rng) -> Vec<(Key, u32)> {
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

fn model(packets: &[(Key, u32)]) -> Model {
    let mut model = Model::new();
    for (key, bytes) in packets {
        *model.entry(*key).or_default() += Size { packets: 1, bytes: u64::from(*bytes) };
    }
    model
}

fn feed(radar: &mut dyn Summary<Key8>, packets: &[(Key, u32)]) {
    let mut batch = Batch::new();
    for chunk in packets.chunks(256) {
        batch.clear();
        for (key, bytes) in chunk {
            batch.push(Key8::from_canonical(key).unwrap(), *bytes, 0);
        }
        radar.ingest(&mut batch);
    }
}

fn bytes(key: &CanonicalKey) -> Key {
    key.as_bytes().try_into().unwrap()
}

fn holds(estimate: Estimate, truth: f64) -> bool {
    estimate.low <= truth && truth <= estimate.high
}

fn size_holds(estimate: SizeEstimate, truth: Size) -> bool {
    [Measure::Packets, Measure::Bytes]
        .iter()
        .all(|by| holds(estimate.by(*by).unwrap(), truth.by(*by) as f64))
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
    fn epoch(&mut self, answers: &dyn Answers, model: &Model) -> usize {
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
            let mut scratch = vec![u64::MAX; task.scratch_bytes(CELLS as usize).div_ceil(8)];
            task.check(self.by, &lane).unwrap_or_else(|error| panic!("{}: {error}", task.name()));
            let report = task.run(&context, &lane, &mut scratch).unwrap();
            listed += check(&report, task.name(), &context, answers, model, &self.past);
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
fn check_addresses(side: Side, items: &[AddressItem], model: &Model) -> usize {
    let address = if side == Side::Source { 0..4 } else { 4..8 };
    let mut sums: BTreeMap<&[u8], Size> = BTreeMap::new();
    for (key, size) in model {
        *sums.entry(&key[address.clone()]).or_default() += *size;
    }
    for item in items {
        let truth = sums[item.address.as_bytes()];
        assert!(size_holds(item.size, truth), "{side:?}: {item:?} of {truth:?}");
    }
    items.len()
}

/// Checks a report, and returns the number of its items.
fn check(
    report: &Report,
    task: &str,
    context: &EpochContext<'_>,
    answers: &dyn Answers,
    model: &Model,
    past: &BTreeMap<Key, Past>,
) -> usize {
    let (by, untracked) = (context.by, answers.untracked());
    let weight = |size: &Size| size.by(by) as f64;
    match report {
        Report::Sizes { selection, items, .. } => {
            let mut listed = BTreeSet::new();
            for item in items {
                let truth = model.get(&bytes(&item.key)).copied().unwrap_or_default();
                assert!(size_holds(item.size, truth), "{task}: {item:?} of {truth:?}");
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
                assert!(holds(item.distinct, truth as f64), "{task}: {item:?} of {truth}");
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
                assert!(holds(item.now, now), "{item:?} of {now}");
                let near = |estimate: Estimate, truth: f64| {
                    estimate.low - 2.0 <= truth && truth <= estimate.high + 2.0
                };
                assert!(near(item.before, past.before as f64), "{item:?} of {}", past.before);
                assert!(near(item.forecast, past.forecast), "{item:?} of {}", past.forecast);
            }
            items.len()
        }
        Report::Cardinality { flows } => {
            assert!(holds(*flows, model.len() as f64), "{flows:?} of {}", model.len());
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
                assert!(holds(*bin, truth as f64), "{size}: {bin:?} of {truth}");
            }
            bins.len()
        }
        Report::Quantiles { sizes, keys, .. } => {
            let mut sorted: Vec<f64> = model.values().map(weight).collect();
            sorted.sort_unstable_by(f64::total_cmp);
            for (q, size) in sizes {
                let truth = sorted[((q * sorted.len() as f64).ceil() as usize).max(1) - 1];
                assert!(holds(*size, truth), "{q}: {size:?} of {truth}");
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
                assert!(holds(item.total, total), "{item:?} of {total}");
                let longer = |other: &&flowgauge_core::task::HierarchyItem| {
                    other.source_bits > item.source_bits
                };
                let covered = |key: &Key| items.iter().filter(longer).any(|o| below(&key[..], o));
                let rest = under().filter(|(key, _)| !covered(key));
                let discounted: f64 = rest.map(|(_, size)| weight(size)).sum();
                assert!(holds(item.discounted, discounted), "{item:?} of {discounted}");
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
        let options = Options::new(1 << 20, seed).with([("cells", CELLS)]);
        let mut radar = catalog::build::<Key8>("flow-radar", &options).unwrap();
        let flows = (load * CELLS as f64) as usize;
        let epochs: Vec<_> = (0..EPOCHS).map(|epoch| stream(flows, epoch, &mut random)).collect();
        let asked = epochs[0].iter().step_by(37).map(|(key, _)| CanonicalKey::new(key));
        let mut run = Run::new(by, asked.collect::<BTreeSet<_>>().into_iter().collect());
        for packets in &epochs {
            radar.clear();
            feed(&mut *radar, packets);
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
