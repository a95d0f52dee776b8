//! Every task at the close of an epoch of 1,000,000 five-tuple flows.
#![expect(clippy::unwrap_used, reason = "a bench may panic")]

use std::hint::black_box;
use std::time::Duration;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use flowgauge_core::key::{CanonicalKey, KeyKind, KeySpec};
use flowgauge_core::summary::{Answers, Flows};
use flowgauge_core::task::{EpochContext, HistoryShape, Lane, Lists, TaskOptions, find};
use flowgauge_core::terms::{Hierarchy, Measure, Size, Threshold};
use flowgauge_kernel::Seed;

const FLOWS: usize = 1_000_000;

/// Flows in records of whole words, as a table keeps them.
struct Records {
    key_bytes: usize,
    stride: usize,
    words: Vec<u64>,
}

impl Records {
    /// Heavy-tailed sizes; sources and destinations out of nested, unevenly used prefixes.
    fn new(key_bytes: usize, seed: u64) -> Self {
        let stride = 2 + key_bytes.div_ceil(8);
        let mut random = Random(seed);
        let mut words = Vec::with_capacity(FLOWS * stride);
        let size = if key_bytes == 13 { 4 } else { 16 };
        for _ in 0..FLOWS {
            let packets = (1.0 / random.unit().powf(0.9)) as u64;
            let mut key = [0u8; CanonicalKey::MAX_BYTES];
            for address in key.chunks_mut(size).take(2) {
                let host = (250_000.0 * random.unit().powi(2)) as u32;
                let spread = host.wrapping_mul(0x9e37_79b1).to_be_bytes();
                address[..4].copy_from_slice(&[spread[0] % 16, spread[1], spread[2], spread[3]]);
                address[size - 1] ^= spread[2];
            }
            key[2 * size..2 * size + 4].copy_from_slice(&(random.next() as u32).to_be_bytes());
            key[2 * size + 4] = 6;
            words.extend([packets, packets * (40 + random.next() % 1400)]);
            let mut padded = [0; 40];
            padded[..key_bytes].copy_from_slice(&key[..key_bytes]);
            words.extend_from_slice(&bytemuck::cast_slice(&padded)[..stride - 2]);
        }
        Self { key_bytes, stride, words }
    }
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        flowgauge_kernel::scalar::fold(self.0, self.0 ^ 0xbf58_476d_1ce4_e5b9)
    }

    fn unit(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }
}

impl Answers for Records {
    fn flows(&self) -> Option<&dyn Flows> {
        Some(self)
    }
}

impl Flows for Records {
    fn most(&self) -> usize {
        self.words.len() / self.stride
    }

    fn len(&self) -> usize {
        self.words.len() / self.stride
    }

    fn get(&self, index: usize) -> (&[u8], Size) {
        let record = &self.words[index * self.stride..(index + 1) * self.stride];
        let key = &bytemuck::cast_slice(&record[2..])[..self.key_bytes];
        (key, Size { packets: record[0], bytes: record[1] })
    }

    fn for_each(&self, visit: &mut dyn FnMut(&[u8], Size)) {
        for record in self.words.chunks_exact(self.stride) {
            let key = &bytemuck::cast_slice(&record[2..])[..self.key_bytes];
            visit(key, Size { packets: record[0], bytes: record[1] });
        }
    }
}

fn tasks(criterion: &mut Criterion) {
    for (lane, key_bytes) in [("ipv4", 13), ("ipv6", 37)] {
        let records = [Records::new(key_bytes, 1), Records::new(key_bytes, 2)];
        let mut group = criterion.benchmark_group(lane);
        group.sample_size(10).warm_up_time(Duration::from_millis(100));
        group.measurement_time(Duration::from_secs(1));
        let mut options = TaskOptions::new(Seed::number(1));
        options.history = vec![HistoryShape { key_bytes, flows: 2 * FLOWS, cells: 0 }];
        for (name, hierarchy, top) in [
            ("top", Hierarchy::Bytes, 20),
            ("top", Hierarchy::Bytes, FLOWS),
            ("heavy-hitters", Hierarchy::Bytes, 20),
            ("superspreaders", Hierarchy::Bytes, 20),
            ("victims", Hierarchy::Bytes, 20),
            ("changes", Hierarchy::Bytes, 20),
            ("cardinality", Hierarchy::Bytes, 20),
            ("entropy", Hierarchy::Bytes, 20),
            ("size-distribution", Hierarchy::Bytes, 20),
            ("quantiles", Hierarchy::Bytes, 20),
            ("hierarchical", Hierarchy::Bytes, 20),
            ("hierarchical", Hierarchy::Bits, 20),
            ("hierarchical", Hierarchy::Pair, 20),
        ] {
            options.hierarchy = hierarchy;
            let id = match name {
                "top" => format!("{name}-{top}"),
                "hierarchical" => format!("{name}-{hierarchy:?}").to_lowercase(),
                _ => name.to_owned(),
            };
            group.bench_function(&id, |bench| {
                let mut task = find(name).unwrap().build(&options).unwrap();
                let mut scratch = vec![0; task.scratch_bytes(FLOWS).div_ceil(8)];
                let mut epoch = 0;
                // The epochs differ, so that `changes` has flows that appear and flows that vanish.
                let next = || {
                    epoch += 1;
                    &records[epoch % 2]
                };
                let keyed = records[0].words.chunks(records[0].stride).map(|record| record[0]);
                let keyed = Size { packets: keyed.sum(), bytes: 0 };
                let (by, threshold) = (Measure::Packets, Threshold::Share(0.001));
                let context = EpochContext {
                    by,
                    keyed,
                    threshold,
                    lists: Lists::unlimited(top),
                    timeline: None,
                };
                bench.iter_batched(
                    next,
                    |records| {
                        let key = KeySpec::from(KeyKind::FIVE_TUPLE);
                        let lanes = [Lane { key, key_bytes, answers: records }];
                        black_box(task.run(&context, &lanes, &mut scratch).unwrap())
                    },
                    BatchSize::PerIteration,
                );
            });
        }
        group.finish();
    }
}

criterion_group!(benches, tasks);
criterion_main!(benches);
