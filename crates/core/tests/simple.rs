//! Simple's measurements at their size: epochs of 2M packets over a million sources with Zipf's
//! frequencies, skew 1.1, which are some 220k sources an epoch; heavy is what has more than 0.1 %.
//!
//! What arrays of other sizes reach is printed: `cargo test --test simple -- --nocapture`.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

#[path = "support/zipf.rs"]
mod zipf;

use std::collections::{BTreeMap, HashMap, HashSet};

use flowgauge_core::batch::{BATCH_PACKETS, Batch};
use flowgauge_core::catalog;
use flowgauge_core::key::{FlowKey, Key4};
use flowgauge_core::summary::{Ingest, Measure, Options};
use zipf::Zipf;

const RANKS: usize = 1_000_000;
const PACKETS: usize = 2_000_000;
const SEEDS: u64 = 8;

/// Packets that a heavy source has more of.
const HEAVY: u32 = PACKETS as u32 / 1000;

/// An address for each rank, another for each seed.
fn source(rank: u32, seed: u64) -> u32 {
    rank.wrapping_add(seed as u32).wrapping_mul(0x9e37_79b1)
}

/// The sources of an epoch's packets, and how many packets each has.
fn epoch(ranks: impl Iterator<Item = u32>, seed: u64) -> (Vec<Key4>, HashMap<u32, u32>) {
    let (mut packets, mut sizes) = (Vec::with_capacity(PACKETS), HashMap::new());
    for rank in ranks.take(PACKETS) {
        let source = source(rank, seed);
        packets.push(Key4::from_canonical(&source.to_ne_bytes()).unwrap());
        *sizes.entry(source).or_insert(0) += 1;
    }
    (packets, sizes)
}

fn build(name: &str, parameters: &[(&str, &str)], seed: u64) -> Box<dyn Ingest<Key4>> {
    let options = Options::new(128 << 20, seed).with(parameters.iter().copied());
    catalog::build(name, &options).unwrap()
}

fn feed(summary: &mut dyn Ingest<Key4>, packets: &[Key4]) {
    let mut batch = Batch::new();
    for packets in packets.chunks(BATCH_PACKETS) {
        batch.fill(packets, 64);
        summary.ingest(&mut batch);
    }
}

/// Sources that are said to have more than the threshold.
fn heavy(summary: &dyn Ingest<Key4>) -> HashSet<u32> {
    let (answers, mut found) = (summary.answers(), HashSet::new());
    let mut take = |key: &[u8], value: f64| {
        if value > f64::from(HEAVY) {
            found.insert(u32::from_ne_bytes(key.try_into().unwrap()));
        }
    };
    match (answers.flows(), answers.candidates()) {
        (Some(flows), _) => flows.for_each(&mut |key, size| {
            take(key, size.by(Measure::Packets) as f64);
        }),
        (None, Some(candidates)) => candidates.for_each(&mut |key, size| {
            take(key.as_bytes(), size.by(Measure::Packets).unwrap().value);
        }),
        (None, None) => unreachable!("it names its heavy sources"),
    }
    found
}

/// Precision and recall of what is found over several epochs.
#[derive(Default)]
struct Quality {
    right: usize,
    found: usize,
    there: usize,
}

impl Quality {
    fn add(&mut self, found: &HashSet<u32>, truth: &HashSet<u32>) {
        self.right += found.intersection(truth).count();
        self.found += found.len();
        self.there += truth.len();
    }

    fn precision(&self) -> f64 {
        self.right as f64 / self.found as f64
    }

    fn recall(&self) -> f64 {
        self.right as f64 / self.there as f64
    }
}

/// Tables with room for all sources are exact. The replacing array names nobody wrongly; a source of
/// r times the threshold is found when no other in its column sends in the last 1/r of the epoch.
/// The additive one overlooks nobody; with a heavy source it names those that share its column, of
/// which there are as many as sources for each column.
#[test]
fn heavy_hitters() {
    let tables = [
        ("linear-table", "524288"),
        ("indirect-table", "524288"),
        ("cuckoo-1", "1048576"),
        ("cuckoo-4", "131072"),
    ];
    let arrays = ["replacing-array", "count-array"];
    let mut curves = BTreeMap::<(u32, &str), Quality>::new();
    let mut sources = 0;
    for seed in 1..=SEEDS {
        let (packets, sizes) = epoch(Zipf::new(RANKS, 1.1, seed), seed);
        sources += sizes.len();
        let truth = sizes.iter().filter(|(_, size)| **size > HEAVY).map(|(source, _)| *source);
        let truth: HashSet<u32> = truth.collect();
        let found = |name, parameters: &[(&str, &str)]| {
            let mut summary = build(name, parameters, seed);
            feed(&mut *summary, &packets);
            heavy(&*summary)
        };
        if seed == 1 {
            for (name, buckets) in tables {
                assert_eq!(found(name, &[("buckets", buckets)]), truth, "{name}");
            }
        }
        for bits in if seed == 1 { 14..=23 } else { 21..=21 } {
            let columns = (1 << bits).to_string();
            for name in arrays {
                let found = found(name, &[("columns", &columns)]);
                curves.entry((bits, name)).or_default().add(&found, &truth);
            }
        }
    }
    println!("array\tcolumns\theavy\tprecision\trecall");
    for ((bits, name), quality) in &curves {
        let (precision, recall) = (quality.precision(), quality.recall());
        println!("{name}\t{}\t{}\t{precision:.4}\t{recall:.4}", 1 << bits, quality.there);
        assert!(if *name == "count-array" { recall } else { precision } >= 1.0);
    }
    let per_column = sources as f64 / SEEDS as f64 / f64::from(1 << 21);
    assert!((0.095..0.115).contains(&per_column), "{per_column} sources for each column");
    // Some 640 heavy sources, about Poisson: four standard errors are left once in 15,000 choices
    // of seeds.
    let replacing = &curves[&(21, "replacing-array")];
    let expected = replacing.there as f64 * (1.0 - found_by_replacing(f64::from(1 << 21)));
    let missed = (replacing.there - replacing.right) as f64;
    println!("replacing-array of 2^21: {missed} overlooked, {expected:.1} expected");
    assert!((missed - expected).abs() <= 4.0 * expected.sqrt());
    let additive = &curves[&(21, "count-array")];
    let expected = additive.there as f64 * per_column;
    let wrong = (additive.found - additive.right) as f64;
    println!("count-array of 2^21: {wrong} named wrongly, at most {expected:.1} expected");
    assert!(wrong <= expected + 4.0 * expected.sqrt());
}

/// The chance that a heavy source is found in an array of so many columns: the mean over the heavy
/// ranks of exp(−D(1/r)/columns), D being the sources that send in such a part of an epoch.
fn found_by_replacing(columns: f64) -> f64 {
    let weights = || (1..=RANKS).map(|rank| (rank as f64).powf(-1.1));
    let sum: f64 = weights().sum();
    let means = || weights().map(move |weight| weight / sum * PACKETS as f64);
    let heavy = means().take_while(|mean| *mean > f64::from(HEAVY));
    let found = heavy.map(|mean| {
        let part = f64::from(HEAVY) / mean;
        let sources: f64 = means().map(|mean| 1.0 - (-mean * part).exp()).sum();
        (-sources / columns).exp()
    });
    let found: Vec<f64> = found.collect();
    found.iter().sum::<f64>() / found.len() as f64
}
