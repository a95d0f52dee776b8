//! Bounded sets of keys: Space-Saving with linked buckets, and Misra-Gries.

use std::hint::{black_box, select_unpredictable as select};

use bytemuck::Zeroable;
use flowgauge_kernel::{Digester, Zeroed, equal_in_group};

use super::lines::Lines;
use super::{ByHand, ByRuns, digest, zeroed};

const COUNTERS: usize = 128;

/// A key, its possible undercount, and its count.
#[derive(Clone, Copy, Zeroable)]
#[repr(C)]
struct Held {
    key: u64,
    missed: u64,
    counted: u64,
}

/// Misra-Gries with the three counters of SketchVisor.
pub(super) struct MisraGries<const COUNTERS: usize, const LINES: usize> {
    digester: Digester,
    held: [Held; COUNTERS],
    lines: Lines<COUNTERS, LINES>,
    len: usize,
    taken: u64,
}

impl<const COUNTERS: usize, const LINES: usize> MisraGries<COUNTERS, LINES> {
    pub(super) fn new(digester: Digester) -> Self {
        let held = [Held::zeroed(); COUNTERS];
        Self { digester, held, lines: Lines::new(), len: 0, taken: 0 }
    }
}

impl<const COUNTERS: usize, const LINES: usize> ByRuns for MisraGries<COUNTERS, LINES> {
    #[inline(never)]
    fn add(&mut self, key: u64, digest_of_key: u64) {
        if let Some(at) = self.lines.find(digest_of_key, |at| self.held[at].key == key) {
            self.held[at].counted += 1;
            return;
        }
        let missed = self.taken;
        if self.len == COUNTERS {
            let (mut largest, mut second, mut least) = (1, 0, 1);
            for held in &self.held {
                let left = held.counted + held.missed - self.taken;
                second = second.max(left.min(largest));
                largest = largest.max(left);
                least = least.min(left);
            }
            let off = if second < 2 {
                least
            } else {
                let ratio = (largest - 1) as f64 / (second - 1) as f64;
                ((least as f64 * ratio.powf(-0.95_f64.log2())) as u64).max(least)
            };
            self.taken += off;
            self.len = 0;
            for at in 0..COUNTERS {
                let held = self.held[at];
                if held.counted + held.missed > self.taken {
                    self.held[self.len] = held;
                    self.lines.renumber(at, self.len);
                    self.len += 1;
                } else {
                    self.lines.remove(at, || digest(held.key, &self.digester));
                }
            }
            if off >= 1 {
                return;
            }
        }
        self.lines.insert(digest_of_key, self.len);
        self.held[self.len] = Held { key, missed, counted: 1 };
        self.len += 1;
    }

    #[inline(always)]
    fn run(&mut self, keys: &[u64], digests: &[u64]) -> usize {
        let mut done = keys.len();
        for (i, (&key, &digest)) in keys.iter().zip(digests).enumerate() {
            let look = self.lines.look(digest);
            let first = self.lines.first(&look);
            let has = (self.held[first].key == key) & look.is_there();
            if !black_box(has | ((self.len < COUNTERS) & look.is_all())) {
                done = i;
                break;
            }
            let at = select(has, first, self.len) % COUNTERS;
            self.lines.give(&look, at, has);
            let held = &mut self.held[at];
            held.key = key;
            held.missed = select(has, held.missed, self.taken);
            held.counted = select(has, held.counted, 0) + 1;
            self.len += usize::from(!has);
        }
        done
    }
}

impl<const COUNTERS: usize, const LINES: usize> ByHand for MisraGries<COUNTERS, LINES> {
    fn clear(&mut self) {
        self.lines.clear();
        (self.len, self.taken) = (0, 0);
    }

    #[inline(always)]
    fn update(&mut self, keys: &[u64], digests: &[u64]) {
        self.take(keys, digests);
    }
}

/// A key with its neighbours in the ring of its bucket.
#[derive(Clone, Copy, Zeroable)]
#[repr(C)]
struct Node {
    key: u64,
    error: u32,
    bucket: u32,
    before: u32,
    after: u32,
}

/// The keys with one count (through any one of them), and the next buckets.
#[derive(Clone, Copy, Zeroable)]
#[repr(C)]
struct Bucket {
    count: u32,
    first: u32,
    lesser: u32,
    larger: u32,
}

/// No node or bucket. It lies behind all of them, where writes are harmless.
const NONE: u32 = COUNTERS as u32;

/// Space-Saving with linked buckets.
pub(super) struct StreamSummary {
    digester: Digester,
    nodes: Zeroed<Node>,
    buckets: Zeroed<Bucket>,
    lines: Lines<COUNTERS, 64>,
    taken: usize,
    least: u32,
    free: u32,
    used: u32,
}

impl StreamSummary {
    pub(super) fn new(digester: Digester) -> Self {
        let mut new = Self {
            digester,
            nodes: zeroed(2 * COUNTERS),
            buckets: zeroed(2 * COUNTERS),
            lines: Lines::new(),
            taken: 0,
            least: NONE,
            free: NONE,
            used: 0,
        };
        new.clear();
        new
    }

    #[inline(always)]
    fn node(&mut self, at: u32) -> &mut Node {
        &mut self.nodes[..2 * COUNTERS][at as usize % (2 * COUNTERS)]
    }

    #[inline(always)]
    fn bucket(&mut self, at: u32) -> &mut Bucket {
        &mut self.buckets[..2 * COUNTERS][at as usize % (2 * COUNTERS)]
    }

    #[inline(always)]
    fn link(&mut self, lesser: u32, larger: u32) {
        self.bucket(lesser).larger = larger;
        self.bucket(larger).lesser = lesser;
        if lesser == NONE {
            self.least = larger;
        }
    }

    /// Puts a node into the bucket with this count: `larger`, or a new one between both.
    #[inline(always)]
    fn attach(&mut self, at: u32, count: u32, lesser: u32, larger: u32) {
        if larger != NONE && self.bucket(larger).count == count {
            let first = std::mem::replace(&mut self.bucket(larger).first, at);
            self.node(first).before = at;
            let node = self.node(at);
            (node.bucket, node.before, node.after) = (larger, NONE, first);
            return;
        }
        let bucket = self.free;
        let bucket = if bucket == NONE {
            self.used += 1;
            self.used - 1
        } else {
            self.free = self.bucket(bucket).larger;
            bucket
        };
        *self.bucket(bucket) = Bucket { count, first: at, lesser, larger };
        self.link(lesser, bucket);
        self.link(bucket, larger);
        let node = self.node(at);
        (node.bucket, node.before, node.after) = (bucket, NONE, NONE);
    }

    #[inline(always)]
    fn grow(&mut self, at: u32) {
        let Node { bucket, before, after, .. } = *self.node(at);
        let Bucket { count, lesser, larger, .. } = *self.bucket(bucket);
        let count = count.saturating_add(1);
        if before == NONE && after == NONE {
            if larger == NONE || count < self.bucket(larger).count {
                self.bucket(bucket).count = count;
                return;
            }
            self.link(lesser, larger);
            self.bucket(bucket).larger = self.free;
            self.free = bucket;
            return self.attach(at, count, lesser, larger);
        }
        if before == NONE {
            self.bucket(bucket).first = after;
        }
        self.node(before).after = after;
        self.node(after).before = before;
        self.attach(at, count, bucket, larger);
    }
}

impl ByHand for StreamSummary {
    fn clear(&mut self) {
        self.lines.clear();
        (self.taken, self.least, self.free, self.used) = (0, NONE, NONE, 0);
    }

    #[inline(always)]
    fn update(&mut self, keys: &[u64], digests: &[u64]) {
        for (&key, &digest_of_key) in keys.iter().zip(digests) {
            let nodes = &self.nodes[..2 * COUNTERS];
            if let Some(at) = self.lines.find(digest_of_key, |at| nodes[at].key == key) {
                self.grow(at as u32);
            } else if self.taken < COUNTERS {
                let (at, least) = (self.taken, self.least);
                self.lines.insert(digest_of_key, at);
                self.taken += 1;
                *self.node(at as u32) = Node { key, ..Node::zeroed() };
                self.attach(at as u32, 1, NONE, least);
            } else {
                let least = *self.bucket(self.least);
                let at = least.first;
                let before = self.node(at).key;
                self.lines.remove(at as usize, || digest(before, &self.digester));
                self.lines.insert(digest_of_key, at as usize);
                (self.node(at).key, self.node(at).error) = (key, least.count);
                self.grow(at);
            }
        }
    }
}

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
