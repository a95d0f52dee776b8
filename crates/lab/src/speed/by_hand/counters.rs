//! Bounded sets of keys: Misra-Gries and Space-Saving, and their index of counters.

use std::hint::{black_box, select_unpredictable as select};

use bytemuck::Zeroable;
use flowgauge_kernel::{Digester, Zeroed, equal_in_group, equal_in_line};

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
            let groups = self.block().as_chunks::<8>().0.iter().rev();
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

/// The first slot of a line counts the keys that overflowed it.
const PLACES: usize = 16;
const USABLE: u32 = 0xfffe;
const AWAY: u32 = 1 << 31;

/// An index of counters: lines of fifteen tags that are compared at once. It has up to `COUNTERS`
/// counters in `LINES` lines, both powers of two.
///
/// It deliberately copies the index in core (`summary/counter/space_saving/index.rs`) with constant
/// sizes: the summaries are compared with the cost of their own idea without generality.
pub(super) struct Lines<const COUNTERS: usize, const LINES: usize> {
    tags: Zeroed<[u8; PLACES]>,
    numbers: Zeroed<[u32; PLACES]>,
    places: Zeroed<u32>,
}

/// The result of a lookup in a line: its start, the tag, and bit masks of matching and empty slots.
#[derive(Clone, Copy)]
pub(super) struct Look {
    line: usize,
    tag: u8,
    same: u32,
    empty: u32,
}

impl Look {
    #[inline(always)]
    pub(super) fn is_there(&self) -> bool {
        self.same != 0
    }

    #[inline(always)]
    #[expect(clippy::needless_bitwise_bool, reason = "a branch is what this is to avoid")]
    pub(super) fn is_all(&self) -> bool {
        (self.same & self.same.wrapping_sub(1) == 0) & (self.empty & 1 != 0) & (self.empty > 1)
    }
}

#[inline(always)]
fn tag(digest: u64) -> u8 {
    ((digest >> 32) as u8).max(1)
}

impl<const COUNTERS: usize, const LINES: usize> Lines<COUNTERS, LINES> {
    pub(super) fn new() -> Self {
        Self { tags: zeroed(2 * LINES), numbers: zeroed(LINES), places: zeroed(COUNTERS) }
    }

    pub(super) fn clear(&mut self) {
        self.tags.fill([0; PLACES]);
    }

    #[inline(always)]
    pub(super) fn look(&self, digest: u64) -> Look {
        let (line, tag) = (digest as usize % LINES, tag(digest));
        let tags = &self.tags[..2 * LINES][line];
        Look { line, tag, same: equal_in_line(tags, tag) & USABLE, empty: equal_in_line(tags, 0) }
    }

    #[inline(always)]
    pub(super) fn first(&self, look: &Look) -> usize {
        let place = look.same.trailing_zeros() as usize % PLACES;
        self.numbers[..LINES][look.line][place] as usize % COUNTERS
    }

    #[inline(always)]
    pub(super) fn can_take(&self, counter: usize) -> bool {
        self.places[..COUNTERS][counter % COUNTERS] & AWAY == 0
    }

    /// Clears a counter's old tag, unless the key `has` the counter already. Writes without effect
    /// go to the unused lines at the end.
    #[inline(always)]
    pub(super) fn take(&mut self, counter: usize, has: bool) {
        let tags = &mut self.tags.as_flattened_mut()[..2 * LINES * PLACES];
        let before = self.places[..COUNTERS][counter % COUNTERS] as usize;
        tags[select(has, LINES * PLACES, before) % (2 * LINES * PLACES)] = 0;
    }

    #[inline(always)]
    pub(super) fn give(&mut self, look: &Look, counter: usize, has: bool) {
        let tags = &mut self.tags.as_flattened_mut()[..2 * LINES * PLACES];
        let place = select(has, look.same, look.empty & USABLE).trailing_zeros() as usize % PLACES;
        let at = look.line * PLACES + place;
        tags[select(has, LINES * PLACES, at) % (2 * LINES * PLACES)] = look.tag;
        self.numbers[..LINES][look.line][place] = counter as u32;
        self.places[..COUNTERS][counter % COUNTERS] = at as u32;
    }

    #[inline(always)]
    pub(super) fn find(&self, digest: u64, is: impl Fn(usize) -> bool) -> Option<usize> {
        let (mut line, tag) = (digest as usize % LINES, tag(digest));
        loop {
            let tags = &self.tags[..2 * LINES][line];
            let mut same = equal_in_line(tags, tag) & USABLE;
            while same != 0 {
                let place = same.trailing_zeros() as usize % PLACES;
                let counter = self.numbers[..LINES][line][place] as usize % COUNTERS;
                if is(counter) {
                    return Some(counter);
                }
                same &= same - 1;
            }
            if tags[0] == 0 {
                return None;
            }
            line = (line + 1) % LINES;
        }
    }

    #[inline(always)]
    pub(super) fn insert(&mut self, digest: u64, counter: usize) {
        let (mut line, mut away) = (digest as usize % LINES, 0);
        loop {
            let empty = equal_in_line(&self.tags[line], 0) & USABLE;
            if empty != 0 {
                let place = empty.trailing_zeros() as usize % PLACES;
                self.tags[line][place] = tag(digest);
                self.numbers[line][place] = counter as u32;
                self.places[counter] = (line * PLACES + place) as u32 | away;
                return;
            }
            let over = if self.tags[line][0] == 0 { 0 } else { self.numbers[line][0] };
            (self.tags[line][0], self.numbers[line][0], away) = (1, over + 1, AWAY);
            line = (line + 1) % LINES;
        }
    }

    #[inline(always)]
    pub(super) fn remove(&mut self, counter: usize, digest: impl FnOnce() -> u64) {
        let place = self.places[counter];
        let at = (place & !AWAY) as usize;
        self.tags[at / PLACES][at % PLACES] = 0;
        if place & AWAY == 0 {
            return;
        }
        let mut line = digest() as usize % LINES;
        while line != at / PLACES {
            self.numbers[line][0] -= 1;
            self.tags[line][0] = u8::from(self.numbers[line][0] != 0);
            line = (line + 1) % LINES;
        }
    }

    #[inline(always)]
    pub(super) fn renumber(&mut self, counter: usize, number: usize) {
        let place = self.places[counter];
        let at = (place & !AWAY) as usize;
        self.numbers[at / PLACES][at % PLACES] = number as u32;
        self.places[number] = place;
    }
}
