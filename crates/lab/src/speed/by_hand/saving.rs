//! Space-Saving: sweeps over the entries with the minimum count, with no branch for a common
//! packet.

use std::hint::{black_box, select_unpredictable as select};

use flowgauge_kernel::{Digester, Zeroed, equal_in_group};

use super::lines::Lines;
use super::{ByHand, ByRuns, digest, zeroed};

/// Entries per block, one bit each.
const BLOCK: usize = 64;

/// `most` counters in space for `COUNTERS`, a power of two.
pub(super) struct SpaceSaving<const COUNTERS: usize, const LINES: usize> {
    digester: Digester,
    most: usize,
    keys: Zeroed<u64>,
    counts: Zeroed<u32>,
    errors: Zeroed<u32>,
    lines: Lines<COUNTERS, LINES>,
    taken: usize,
    floors: Zeroed<u32>,
    least: u32,
    start: usize,
    pending: u64,
}

impl<const COUNTERS: usize, const LINES: usize> SpaceSaving<COUNTERS, LINES> {
    pub(super) fn all(digester: Digester) -> Self {
        Self::new(digester, COUNTERS)
    }

    pub(super) fn new(digester: Digester, most: usize) -> Self {
        let (counts, errors) = (zeroed(COUNTERS), zeroed(COUNTERS));
        let mut new = Self {
            digester,
            most,
            keys: zeroed(COUNTERS),
            counts,
            errors,
            lines: Lines::new(),
            taken: 0,
            floors: zeroed(COUNTERS.div_ceil(BLOCK)),
            least: 0,
            start: 0,
            pending: 0,
        };
        new.clear();
        new
    }

    fn block(&self) -> &[u32] {
        &self.counts[self.start..COUNTERS.min(self.start + BLOCK)]
    }

    fn sweep(&mut self) -> usize {
        loop {
            while self.pending != 0 {
                let at = self.start + self.pending.trailing_zeros() as usize;
                if self.counts[at] == self.least {
                    return at;
                }
                self.pending &= self.pending - 1;
            }
            self.floors[self.start / BLOCK] = self.block().iter().copied().fold(u32::MAX, u32::min);
            let mut block = self.start / BLOCK;
            while block < self.floors.len() && self.floors[block] != self.least {
                block += 1;
            }
            if block == self.floors.len() {
                self.least = self.floors.iter().copied().fold(u32::MAX, u32::min);
                block = self.floors.iter().position(|&floor| floor == self.least).unwrap_or(0);
            }
            self.start = block * BLOCK;
            let groups = self.block().as_chunks().0.iter().rev();
            self.pending = groups.fold(0, |bits, group| {
                bits << 8 | u64::from(equal_in_group(group, u32::MAX, self.least))
            });
        }
    }
}

impl<const COUNTERS: usize, const LINES: usize> ByRuns for SpaceSaving<COUNTERS, LINES> {
    #[inline(never)]
    fn add(&mut self, key: u64, digest_of_key: u64) {
        if let Some(at) = self.lines.find(digest_of_key, |at| self.keys[at] == key) {
            self.counts[at] = self.counts[at].saturating_add(1);
            return;
        }
        let at = if self.taken < self.most {
            self.taken += 1;
            self.counts[self.taken - 1] = 0;
            self.taken - 1
        } else {
            let at = self.sweep();
            let before = self.keys[at];
            self.lines.remove(at, || digest(before, &self.digester));
            self.pending &= self.pending - 1;
            at
        };
        self.lines.insert(digest_of_key, at);
        self.keys[at] = key;
        self.errors[at] = self.counts[at];
        self.counts[at] = self.counts[at].saturating_add(1);
    }

    #[inline(always)]
    #[expect(clippy::needless_bitwise_bool, reason = "a branch is what this is to avoid")]
    fn run(&mut self, keys: &[u64], digests: &[u64]) -> usize {
        if self.taken < self.most {
            return 0;
        }
        let (held, counts) = (&mut self.keys[..COUNTERS], &mut self.counts[..COUNTERS]);
        let (errors, lines) = (&mut self.errors[..COUNTERS], &mut self.lines);
        let (start, least, mut pending) = (self.start, self.least, self.pending);
        let mut done = keys.len();
        for (i, (&key, &digest)) in keys.iter().zip(digests).enumerate() {
            let look = lines.look(digest);
            let first = lines.first(&look);
            let next = (start + pending.trailing_zeros() as usize) % COUNTERS;
            let has = (held[first] == key) & look.is_there();
            let free = (counts[next] == least) & (pending != 0);
            if !black_box(has | (free & look.is_all() & lines.can_take(next))) {
                done = i;
                break;
            }
            let at = select(has, first, next);
            lines.take(at, has);
            lines.give(&look, at, has);
            held[at] = key;
            errors[at] = select(has, errors[at], counts[at]);
            counts[at] = counts[at].saturating_add(1);
            pending = select(has, pending, pending & pending.wrapping_sub(1));
        }
        self.pending = pending;
        done
    }
}

impl<const COUNTERS: usize, const LINES: usize> ByHand for SpaceSaving<COUNTERS, LINES> {
    fn clear(&mut self) {
        self.lines.clear();
        // Counters beyond `most` are never the minimum.
        self.counts.fill(u32::MAX);
        self.floors.fill(0);
        (self.taken, self.least, self.start, self.pending) = (0, 0, 0, 0);
    }

    #[inline(always)]
    fn update(&mut self, keys: &[u64], digests: &[u64]) {
        self.take(keys, digests);
    }
}
