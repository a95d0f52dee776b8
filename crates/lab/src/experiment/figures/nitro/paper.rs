//! Sketches as the paper profiles them: a hash and a counter per row, and a heap of heavy keys that
//! every packet looks up.

use std::collections::HashMap;
use std::hint::black_box;

use flowgauge_core::batch::Batch;
use flowgauge_core::key::FlowKey;

use crate::exact::number;
use crate::experiment::latency::Runner;
use crate::experiment::papers::{Heap, xxhash32};
use crate::keys::Keys;

/// Rows per sketch, and keys per heap.
const ROWS: usize = 5;
const TOP: usize = 128;

/// How much of its work a sketch does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Work {
    Hashes,
    Counters,
    /// With a size estimate for the heap.
    Heap,
}

/// How rows give an estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The minimum of the counters.
    CountMin,
    /// The median of the signed counters.
    CountSketch,
    /// The median of the counters minus the mean.
    Kary,
}

/// A single sketch, or UnivMon: several over successively halved key sets.
pub(super) struct Sketch<K: Keys> {
    kind: Kind,
    work: Work,
    columns: usize,
    levels: Vec<(Vec<[i32; ROWS]>, Heap<K, 0>)>,
    packets: usize,
}

impl<K: Keys> Sketch<K> {
    /// A sketch with this many levels of this many columns.
    pub(super) fn new(kind: Kind, levels: usize, columns: usize, work: Work) -> Self {
        let level = |_| (vec![[0; ROWS]; columns], Heap::with_counters(TOP));
        Self { kind, work, columns, levels: (0..levels).map(level).collect(), packets: 0 }
    }

    fn count(&mut self, key: K::Key) {
        let bytes = key.canonical(K::BYTES);
        self.packets += 1;
        let depth = match self.levels.len() {
            1 => 0,
            _ => xxhash32(bytes, u32::MAX).trailing_ones() as usize,
        };
        for (level, (counters, heap)) in self.levels.iter_mut().enumerate().take(1 + depth) {
            let mut hashes = [0; ROWS];
            for (row, hash) in hashes.iter_mut().enumerate() {
                *hash = xxhash32(bytes, (level * ROWS + row) as u32);
            }
            if self.work == Work::Hashes {
                black_box(hashes);
                continue;
            }
            let counters = counters.as_flattened_mut();
            let mut told = [0; ROWS];
            for (row, (hash, told)) in hashes.iter().zip(&mut told).enumerate() {
                let sign = match self.kind {
                    Kind::CountSketch if hash >> 31 == 0 => -1,
                    _ => 1,
                };
                let counter = &mut counters[row * self.columns + *hash as usize % self.columns];
                *counter += sign;
                *told = sign * *counter;
            }
            if self.work == Work::Counters {
                black_box(told);
                continue;
            }
            let estimate = match self.kind {
                Kind::CountMin => told.into_iter().fold(i32::MAX, i32::min),
                Kind::CountSketch => median(told),
                Kind::Kary => median(told) - ((self.packets / self.columns) as u32).cast_signed(),
            };
            heap.offer(key, hashes[0], estimate.max(0) as u32);
        }
    }
}

/// The median of five: the median of the last, and of the middle two of the others.
fn median(numbers: [i32; ROWS]) -> i32 {
    let [pairs @ .., last] = numbers;
    let least = [pairs[0].min(pairs[1]), pairs[2].min(pairs[3])];
    let most = [pairs[0].max(pairs[1]), pairs[2].max(pairs[3])];
    let between = [least[0].max(least[1]), most[0].min(most[1])];
    let (low, high) = (between[0].min(between[1]), between[0].max(between[1]));
    low.max(high.min(last))
}

impl<K: Keys> Runner<K> for Sketch<K> {
    fn begin(&mut self) {
        self.packets = 0;
        for (counters, heap) in &mut self.levels {
            counters.fill([0; ROWS]);
            heap.clear();
        }
    }

    fn take(&mut self, batch: &mut Batch<K::Key>) {
        batch.keys().iter().for_each(|key| self.count(*key));
    }
}

/// A hash table that is looked up packet by packet, without prefetching.
#[derive(Default)]
pub(super) struct Plain(HashMap<u128, u64>);

impl<K: Keys> Runner<K> for Plain {
    /// Flows stay: the figure measures a table that already knows them.
    fn begin(&mut self) {}

    fn take(&mut self, batch: &mut Batch<K::Key>) {
        for key in batch.keys() {
            *self.0.entry(number(key.canonical(K::BYTES))).or_default() += 1;
        }
    }
}

/// A sampler that tosses a coin per packet, and on average passes on one in `one_in`.
pub(super) struct Coin<R, K: Keys> {
    random: fastrand::Rng,
    one_in: u64,
    sample: Batch<K::Key>,
    behind: R,
}

impl<R, K: Keys> Coin<R, K> {
    pub(super) fn new(one_in: u64, seed: u64, behind: R) -> Self {
        Self { random: fastrand::Rng::with_seed(seed), one_in, sample: Batch::new(), behind }
    }
}

impl<R: Runner<K>, K: Keys> Runner<K> for Coin<R, K> {
    fn begin(&mut self) {
        self.behind.begin();
    }

    fn take(&mut self, batch: &mut Batch<K::Key>) {
        let least = u64::MAX / self.one_in;
        self.sample.clear();
        for (key, bytes) in batch.keys().iter().zip(batch.bytes()) {
            if self.random.u64(..) < least {
                self.sample.push(*key, *bytes as u32, 0);
            }
        }
        if !self.sample.is_empty() {
            self.behind.take(&mut self.sample);
        }
    }

    fn end(&mut self) {
        self.behind.end();
    }
}

#[cfg(test)]
mod tests {
    use flowgauge_core::key::Key8;

    use super::*;
    use crate::keys::Pairs;

    fn fill(batch: &mut Batch<Key8>, packets: usize) {
        batch.clear();
        for number in 0..packets as u64 {
            let flow = if number % 2 == 0 { 7 } else { number };
            if let Some(key) = Key8::from_canonical(&flow.to_be_bytes()) {
                batch.push(key, 64, 0);
            }
        }
    }

    struct Count(usize);

    impl Runner<Pairs> for Count {
        fn begin(&mut self) {}

        fn take(&mut self, batch: &mut Batch<Key8>) {
            self.0 += batch.len();
        }
    }

    #[test]
    fn a_coin_hands_on_its_share() {
        let (mut batch, mut coin) = (Batch::new(), Coin::new(10, 1, Count(0)));
        for _ in 0..1000 {
            fill(&mut batch, 200);
            coin.take(&mut batch);
        }
        assert!((19_000..21_000).contains(&coin.behind.0), "{}", coin.behind.0);
    }

    #[test]
    fn the_middle_one_is_found() {
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..1000 {
            let numbers = [0; ROWS].map(|_| random.i32(-5..5));
            let mut sorted = numbers;
            sorted.sort_unstable();
            assert_eq!(median(numbers), sorted[2], "{numbers:?}");
        }
    }

    #[test]
    fn work_adds_up() {
        for kind in [Kind::CountMin, Kind::CountSketch, Kind::Kary] {
            for work in [Work::Hashes, Work::Counters, Work::Heap] {
                let mut sketch = Sketch::<Pairs>::new(kind, 3, 1000, work);
                let mut batch = Batch::new();
                fill(&mut batch, 200);
                sketch.take(&mut batch);
                let (counters, heap) = &sketch.levels[0];
                let counted = counters.iter().flatten().any(|counter| *counter != 0);
                assert_eq!(counted, work > Work::Hashes);
                assert_eq!(heap.largest() >= 90, work == Work::Heap, "{kind:?} {}", heap.largest());
            }
        }
    }
}
