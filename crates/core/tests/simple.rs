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

/// The sources of an epoch's packets.
fn epoch(ranks: impl Iterator<Item = u32>, source: impl Fn(u32) -> u32) -> Vec<Key4> {
    let key = |rank| Key4::from_canonical(&source(rank).to_ne_bytes()).unwrap();
    ranks.take(PACKETS).map(key).collect()
}

/// How many packets each source has.
fn sizes(packets: &[Key4]) -> HashMap<u32, u32> {
    let mut sizes = HashMap::new();
    for packet in packets {
        *sizes.entry(u32::from_ne_bytes(packet.canonical().try_into().unwrap())).or_insert(0) += 1;
    }
    sizes
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

/// Tables with room for all sources are exact, and so the array of 2^21 slots is nearly.
#[test]
fn heavy_hitters() {
    let tables = [
        ("linear-table", "524288"),
        ("indirect-table", "524288"),
        ("cuckoo-1", "1048576"),
        ("cuckoo-4", "131072"),
    ];
    let arrays: [(&str, &[(&str, &str)]); 3] = [
        ("replacing-array", &[]),
        ("replacing-array", &[("candidates", "0")]),
        ("count-array", &[]),
    ];
    let mut curves = BTreeMap::<(u32, usize), Quality>::new();
    let mut sources = 0;
    for seed in 1..=SEEDS {
        let packets = epoch(Zipf::new(RANKS, 1.1, seed), |rank| source(rank, seed));
        let sizes = sizes(&packets);
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
            for (number, (name, parameters)) in arrays.iter().enumerate() {
                let parameters = [&[("columns", &*columns)], *parameters].concat();
                let found = found(name, &parameters);
                curves.entry((bits, number)).or_default().add(&found, &truth);
            }
        }
    }
    println!("array\tcolumns\theavy\tprecision\trecall");
    for ((bits, number), quality) in &curves {
        let (precision, recall) = (quality.precision(), quality.recall());
        println!(
            "{:?}\t{}\t{}\t{precision:.4}\t{recall:.4}",
            arrays[*number],
            1 << bits,
            quality.there
        );
    }
    let per_column = sources as f64 / SEEDS as f64 / f64::from(1 << 21);
    assert!((0.095..0.115).contains(&per_column), "{per_column} sources for each column");
    let replacing = &curves[&(21, 0)];
    assert!(replacing.precision() >= 1.0 && replacing.recall() >= 0.96);
    assert!(curves[&(21, 2)].recall() >= 1.0);
}

/// The sources that a summary says to have changed.
fn changed(summary: &dyn Ingest<Key4>) -> HashSet<u32> {
    let mut found = HashSet::new();
    summary.answers().forecasts().unwrap().for_each(&mut |key, forecast| {
        let expected = forecast.forecast.unwrap().value;
        if (forecast.now.value - expected).abs() > f64::from(HEAVY) {
            found.insert(u32::from_ne_bytes(key.as_bytes().try_into().unwrap()));
        }
    });
    found
}

#[test]
fn changes() {
    let arrays: [(&str, &[(&str, &str)]); 3] = [
        ("replacing-array", &[]),
        ("replacing-array", &[("candidates", "0")]),
        ("count-array", &[]),
    ];
    let mut qualities: [Quality; 3] = Default::default();
    for seed in 1..=SEEDS {
        let mut ranks = Zipf::new(RANKS, 1.1, seed);
        let mut table = build("linear-table", &[("buckets", "1048576"), ("state", "ewma")], seed);
        let mut summaries: Vec<_> = arrays
            .iter()
            .map(|(name, parameters)| {
                build(
                    name,
                    &[&[("columns", "2097152"), ("state", "ewma")], *parameters].concat(),
                    seed,
                )
            })
            .collect();
        for number in 0..3 {
            // Half of the ranks have another source in each epoch.
            let moves = |rank: u32| rank.wrapping_mul(0x85eb_ca6b) >> 31;
            let packets = epoch(&mut ranks, |rank| source(rank, seed) ^ (moves(rank) * number));
            feed(&mut *table, &packets);
            let truth = if number > 0 { changed(&*table) } else { HashSet::new() };
            table.next_epoch();
            for (summary, quality) in summaries.iter_mut().zip(&mut qualities) {
                feed(&mut **summary, &packets);
                if number > 0 {
                    quality.add(&changed(&**summary), &truth);
                }
                summary.next_epoch();
            }
        }
    }
    for (array, quality) in arrays.iter().zip(&qualities) {
        println!(
            "{array:?}\t{}\t{:.4}\t{:.4}",
            quality.there,
            quality.precision(),
            quality.recall()
        );
    }
}
