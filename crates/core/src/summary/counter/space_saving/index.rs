//! A hash index of counters in memory of fixed size, and loops over batches that use it without
//! branches.

use std::hint::select_unpredictable;

use flowgauge_kernel::{Zeroed, equal_in_line, prefetch};

use crate::summary::{BuildError, Memory};

/// Number of counters from which the lines of a whole batch are prefetched.
const LARGE: usize = 2048;

/// Places in a line. The first one counts the keys that overflowed the line.
const PLACES: usize = 16;

/// Tag of the first place of a line that keys have overflowed.
const OVER: u8 = u8::MAX;

/// Bit mask of all places of a line except the first.
const USABLE: u32 = 0xfffe;

/// Number of lines for a number of counters: one per seven counters. Small indexes that fit into
/// the L1 cache have up to one per two, since reading a line that was just written is slow. With
/// seven of fifteen places in use on average, one line in four hundred is full.
const fn lines(counters: usize) -> usize {
    let (most, few) = (counters.div_ceil(7), counters.div_ceil(2));
    let few = if few < 64 { few } else { 64 };
    if few > most { few } else { most }
}

/// Lines probed for a key, starting at its home line. If all of them are full, the key gets no
/// counter. Random keys fill that many lines less than once in 10¹² keys.
const PROBE_LINES: usize = 8;

/// A hash index from the digests of keys to counter numbers. The caller stores and compares the
/// keys.
///
/// The digest selects a home line and a tag, and all tags of a line are compared at once. If the
/// home line is full, the counter goes to the next line with room, and each full line on the way
/// counts how many counters overflowed it. A probe ends at the first line without overflow, so a
/// removed counter leaves no tombstone, and hits and misses take the same few steps. A key whose
/// [`PROBE_LINES`] lines are full gets no counter: its weight is added to the untracked weight,
/// which widens the bounds of all keys.
///
/// Memory in bytes: 8.9 per counter, or 15.4 from 14,330 counters, plus one line that stays empty;
/// up to 3 KiB more for fewer than 448 counters.
pub(crate) struct Index {
    tags: Zeroed<[u8; PLACES]>,
    /// The counter in each place; in the first place of a line, how many counters overflowed it.
    numbers: Column,
    /// Twice the place of each counter, plus one if the counter is not in its home line.
    places: Column,
    /// Weight of the packets whose keys found no room.
    untracked: u64,
}

impl Index {
    /// Whether twice a place can need more than 16 bits.
    const fn is_wide_of(counters: usize) -> bool {
        2 * PLACES * (lines(counters) + 1) > 1 << 16
    }

    /// Bytes of an index of `counters` counters.
    pub(crate) const fn memory_bytes(counters: usize) -> usize {
        let (wide, places) = (Self::is_wide_of(counters), PLACES * (lines(counters) + 1));
        places + Column::memory_bytes(places, wide) + Column::memory_bytes(counters, wide)
    }

    pub(crate) fn new(counters: usize, memory: &Memory) -> Result<Self, BuildError> {
        // One more line takes the stores of branch-free loops that must change nothing.
        let (wide, lines) = (Self::is_wide_of(counters), lines(counters) + 1);
        Ok(Self {
            tags: memory.zeroed(lines)?,
            numbers: Column::new(PLACES * lines, wide, memory)?,
            places: Column::new(counters, wide, memory)?,
            untracked: 0,
        })
    }

    /// The home line of a digest.
    #[inline(always)]
    fn line(&self, digest: u64) -> usize {
        line(digest, self.tags.len() - 1)
    }

    #[inline(always)]
    fn after(&self, line: usize) -> usize {
        if line + 2 < self.tags.len() { line + 1 } else { 0 }
    }

    /// Prefetches the home line of a digest.
    #[inline(always)]
    pub(crate) fn prefetch(&self, digest: u64) {
        let line = self.line(digest);
        prefetch(&self.tags, line);
        self.numbers.prefetch(PLACES * line);
    }

    /// Prefetches the home lines of a batch if the index is too large for the nearest cache.
    #[inline(always)]
    pub(crate) fn prefetch_all(&self, digests: &[u64]) {
        if self.places.len() >= LARGE {
            for &digest in digests {
                self.prefetch(digest);
            }
        }
    }

    /// The counter with this digest whose number satisfies `holds`.
    #[inline(always)]
    pub(crate) fn find(&self, digest: u64, holds: impl Fn(usize) -> bool) -> Option<usize> {
        let (mut line, tag) = (self.line(digest), tag(digest));
        for _ in 0..PROBE_LINES {
            let tags = &self.tags[line];
            let mut same = equal_in_line(tags, tag) & USABLE;
            while same != 0 {
                let counter = self.numbers.get(PLACES * line + same.trailing_zeros() as usize);
                if holds(counter) {
                    return Some(counter);
                }
                same &= same - 1;
            }
            if tags[0] == 0 {
                return None;
            }
            line = self.after(line);
        }
        None
    }

    /// Whether there is room for a counter with this digest.
    #[inline(always)]
    pub(crate) fn has_room(&self, digest: u64) -> bool {
        let mut line = self.line(digest);
        for _ in 0..PROBE_LINES {
            if equal_in_line(&self.tags[line], 0) & USABLE != 0 {
                return true;
            }
            line = self.after(line);
        }
        false
    }

    /// Adds the weight of a packet whose key found no room.
    #[cold]
    pub(crate) fn add_untracked(&mut self, weight: u64) {
        self.untracked = self.untracked.saturating_add(weight);
    }

    /// Weight of all packets whose keys found no room.
    pub(crate) fn untracked(&self) -> u64 {
        self.untracked
    }

    /// Adds a counter that is in no line. There must be room for it.
    #[inline(always)]
    pub(crate) fn insert(&mut self, digest: u64, counter: usize) {
        let (mut line, mut away) = (self.line(digest), 0);
        // Terminates because there is room.
        loop {
            let tags = &mut self.tags[line];
            let empty = equal_in_line(tags, 0) & USABLE;
            if empty != 0 {
                let place = empty.trailing_zeros() as usize % PLACES;
                tags[place] = tag(digest);
                self.numbers.set(PLACES * line + place, counter);
                self.places.set(counter, 2 * (PLACES * line + place) + away);
                return;
            }
            let over = if tags[0] == 0 { 0 } else { self.numbers.get(PLACES * line) };
            self.numbers.set(PLACES * line, over + 1);
            tags[0] = OVER;
            away = 1;
            line = self.after(line);
        }
    }

    /// Removes a counter whose key has the given digest.
    #[inline(always)]
    pub(crate) fn remove(&mut self, counter: usize, digest: impl FnOnce() -> u64) {
        let place = self.places.get(counter);
        self.tags.as_flattened_mut()[place / 2] = 0;
        if !place.is_multiple_of(2) {
            self.remove_overflow(digest(), place / 2 / PLACES);
        }
    }

    /// Lowers the overflow counts from the home line of a removed counter up to its own line.
    #[cold]
    fn remove_overflow(&mut self, digest: u64, last: usize) {
        let mut line = self.line(digest);
        while line != last {
            let over = self.numbers.get(PLACES * line) - 1;
            self.numbers.set(PLACES * line, over);
            if over == 0 {
                self.tags[line][0] = 0;
            }
            line = self.after(line);
        }
    }

    /// Whether a counter is in its home line.
    #[inline(always)]
    pub(crate) fn is_home(&self, counter: usize) -> bool {
        self.places.get(counter).is_multiple_of(2)
    }

    /// Changes the number of a counter to one that is not in use.
    #[inline(always)]
    pub(crate) fn renumber(&mut self, counter: usize, number: usize) {
        let place = self.places.get(counter);
        self.numbers.set(place / 2, number);
        self.places.set(number, place);
    }

    pub(crate) fn clear(&mut self) {
        self.tags.fill([0; PLACES]);
        self.untracked = 0;
    }

    /// The value of `WIDE` for [`Self::lines`].
    #[inline(always)]
    pub(crate) fn is_wide(&self) -> bool {
        self.numbers.is_wide()
    }

    /// A view of the lines for branch-free loops.
    #[inline(always)]
    pub(crate) fn lines<const WIDE: bool>(&mut self) -> Lines<'_, WIDE> {
        let tags = self.tags.as_flattened_mut();
        let numbers = self.numbers.view(tags.len());
        let places = self.places.view(self.places.len());
        Lines { dummy: tags.len() - PLACES, tags, numbers, places }
    }
}

/// The home line of a digest among `lines` lines.
#[inline(always)]
fn line(digest: u64, lines: usize) -> usize {
    ((u64::from(digest as u32) * lines as u64) >> 32) as usize
}

/// The tag of a digest, never 0, which marks an empty place.
#[inline(always)]
fn tag(digest: u64) -> u8 {
    let tag = (digest >> 32) as u8;
    tag + u8::from(tag == 0)
}

/// A view of an [`Index`] for loops that branch only in rare cases.
pub(crate) struct Lines<'a, const WIDE: bool> {
    tags: &'a mut [u8],
    numbers: ColumnMut<'a, WIDE>,
    places: ColumnMut<'a, WIDE>,
    /// A place in the line that stays empty: the target of stores that must change nothing.
    dummy: usize,
}

/// The result of probing the home line of a digest.
#[derive(Clone, Copy)]
pub(crate) struct Probe {
    /// First place of the line.
    start: usize,
    tag: u8,
    same: u32,
    empty: u32,
}

impl Probe {
    /// Whether the line may hold the digest: at least one tag matches.
    #[inline(always)]
    pub(crate) fn is_match(&self) -> bool {
        self.same != 0
    }

    /// Whether no other counter than that of [`Lines::first`] can match, and the line has room.
    #[inline(always)]
    #[expect(clippy::needless_bitwise_bool, reason = "avoids a branch")]
    pub(crate) fn is_decided(&self) -> bool {
        (self.same & self.same.wrapping_sub(1) == 0) & (self.empty & 1 != 0) & (self.empty > 1)
    }

    /// The place of the lowest bit set.
    #[inline(always)]
    fn place(&self, bits: u32) -> usize {
        self.start + bits.trailing_zeros() as usize % PLACES
    }
}

impl<const WIDE: bool> Lines<'_, WIDE> {
    /// Probes the home line of a digest.
    #[inline(always)]
    pub(crate) fn probe(&self, digest: u64) -> Probe {
        let (start, tag) = (line(digest, self.dummy / PLACES) * PLACES, tag(digest));
        let tags = self.tags[start..].first_chunk().unwrap_or(&[0; PLACES]);
        let (same, empty) = (equal_in_line(tags, tag) & USABLE, equal_in_line(tags, 0));
        Probe { start, tag, same, empty }
    }

    /// The first counter whose tag matches, or 0.
    #[inline(always)]
    pub(crate) fn first(&self, probe: &Probe) -> usize {
        select_unpredictable(probe.is_match(), self.numbers.get(probe.place(probe.same)), 0)
    }

    /// Whether [`Self::release`] can remove a counter: it is in its home line.
    #[inline(always)]
    pub(crate) fn can_release(&self, counter: usize) -> bool {
        self.places.get(counter).is_multiple_of(2)
    }

    /// Removes a counter from its place, or changes nothing if `keep`.
    #[inline(always)]
    pub(crate) fn release(&mut self, counter: usize, keep: bool) {
        self.tags[select_unpredictable(keep, self.dummy, self.places.get(counter) / 2)] = 0;
    }

    /// Puts a free counter into the probed line, or changes nothing if it `is_there` already.
    #[inline(always)]
    pub(crate) fn assign(&mut self, probe: &Probe, counter: usize, is_there: bool) {
        let place = probe.place(select_unpredictable(is_there, probe.same, probe.empty & USABLE));
        // Not stored if unchanged: a load that soon follows the store would be delayed.
        self.tags[select_unpredictable(is_there, self.dummy, place)] = probe.tag;
        self.numbers.set(place, counter);
        self.places.set(counter, 2 * place);
    }
}

/// A column of numbers of 16 bits, or of 32 if it is wide. Memory in bytes: 2 or 4 per number.
pub(crate) struct Column {
    low: Zeroed<u16>,
    /// Upper halves; empty unless the column is wide.
    high: Zeroed<u16>,
}

impl Column {
    pub(crate) const fn memory_bytes(len: usize, wide: bool) -> usize {
        len * if wide { 4 } else { 2 }
    }

    pub(crate) fn new(len: usize, wide: bool, memory: &Memory) -> Result<Self, BuildError> {
        Ok(Self { low: memory.zeroed(len)?, high: memory.zeroed(if wide { len } else { 0 })? })
    }

    pub(crate) fn len(&self) -> usize {
        self.low.len()
    }

    #[inline(always)]
    pub(crate) fn is_wide(&self) -> bool {
        !self.high.is_empty()
    }

    #[inline(always)]
    pub(crate) fn prefetch(&self, at: usize) {
        prefetch(&self.low, at);
        prefetch(&self.high, at);
    }

    #[inline(always)]
    pub(crate) fn get(&self, at: usize) -> usize {
        let high = self.high.get(at).map_or(0, |&high| usize::from(high) << 16);
        usize::from(self.low[at]) | high
    }

    #[inline(always)]
    pub(crate) fn set(&mut self, at: usize, number: usize) {
        self.low[at] = number as u16;
        if let Some(high) = self.high.get_mut(at) {
            *high = (number >> 16) as u16;
        }
    }

    /// A view of the first `len` numbers; `WIDE` must be [`Self::is_wide`].
    #[inline(always)]
    pub(crate) fn view<const WIDE: bool>(&mut self, len: usize) -> ColumnMut<'_, WIDE> {
        let high = if WIDE { &mut self.high[..len] } else { &mut [] };
        ColumnMut { low: &mut self.low[..len], high }
    }
}

/// A view of a column whose width is known at compile time.
pub(crate) struct ColumnMut<'a, const WIDE: bool> {
    low: &'a mut [u16],
    high: &'a mut [u16],
}

impl<const WIDE: bool> ColumnMut<'_, WIDE> {
    #[inline(always)]
    pub(crate) fn get(&self, at: usize) -> usize {
        let high = if WIDE { usize::from(self.high[at]) << 16 } else { 0 };
        usize::from(self.low[at]) | high
    }

    #[inline(always)]
    pub(crate) fn set(&mut self, at: usize, number: usize) {
        self.low[at] = number as u16;
        if WIDE {
            self.high[at] = (number >> 16) as u16;
        }
    }
}

/// Counters behind an [`Index`] that count common packets without branches.
pub(crate) trait BranchFree<K: Copy, C: Copy> {
    fn index(&self) -> &Index;

    /// Adds the weights of the rows without branches, up to the first row that needs one; returns
    /// the number of rows added. `WIDE` is [`Index::is_wide`].
    fn add_common<const WIDE: bool>(&mut self, keys: &[K], digests: &[u64], weights: &[C])
    -> usize;

    /// Adds the weight of any row.
    fn add_one(&mut self, key: K, digest: u64, weight: C);

    /// Adds the weights of all rows in order.
    #[inline(always)]
    fn add_rows(&mut self, keys: &[K], digests: &[u64], weights: &[C]) {
        self.index().prefetch_all(digests);
        let mut at = 0;
        loop {
            let rest = (&keys[at..], &digests[at..], &weights[at..]);
            at += if self.index().is_wide() {
                self.add_common::<true>(rest.0, rest.1, rest.2)
            } else {
                self.add_common::<false>(rest.0, rest.1, rest.2)
            };
            if at == keys.len() {
                break;
            }
            self.add_one(keys[at], digests[at], weights[at]);
            at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(counters: usize) -> Index {
        Index::new(counters, &Memory::unlimited()).expect("it is small")
    }

    /// Digests of one line that is nearly always full and of two others, with few tags; counters
    /// numbered from `base`; both ways of adding and removing them.
    fn agrees_with_a_list<const WIDE: bool>(mut index: Index, base: usize) {
        assert_eq!(index.is_wide(), WIDE);
        let mut random = fastrand::Rng::with_seed(1);
        let mut list: Vec<Option<u64>> = vec![None; 32];
        let digest = |random: &mut fastrand::Rng| {
            let (line, tag) = (random.u64(0..20).saturating_sub(17), random.u64(0..3));
            random.u64(..) << 40 | tag << 32 | line << 29
        };
        for round in 0..20_000 {
            let at = random.usize(0..32);
            let (counter, new) = (base + at, digest(&mut random));
            if let Some(old) = list[at].take() {
                let mut lines = index.lines::<WIDE>();
                let probe = lines.probe(new);
                if round % 2 == 0 && lines.can_release(counter) && probe.is_decided() {
                    lines.release(counter, false);
                    lines.assign(&probe, counter, false);
                    list[at] = Some(new);
                } else {
                    index.remove(counter, || old);
                }
            } else {
                index.insert(new, counter);
                list[at] = Some(new);
                let other = random.usize(0..32);
                if list[other].is_none() {
                    index.renumber(counter, base + other);
                    list.swap(at, other);
                }
            }
            for (at, digest) in list.iter().enumerate() {
                let found = |digest: u64| index.find(digest, |found| found == base + at);
                match digest {
                    Some(digest) => assert_eq!(found(*digest), Some(base + at)),
                    None => assert!((0..3).all(|line| found(line << 29 | 1 << 32).is_none())),
                }
            }
        }
        for (at, digest) in list.iter().enumerate() {
            if let Some(digest) = digest {
                index.remove(base + at, || *digest);
            }
        }
        assert!(index.tags.iter().flatten().all(|tag| *tag == 0), "a tag was left behind");
    }

    #[test]
    fn an_index_agrees_with_a_list() {
        agrees_with_a_list::<false>(index(32), 0);
        agrees_with_a_list::<false>(index(14_329), 14_329 - 32);
        agrees_with_a_list::<true>(index(14_330), 14_330 - 32);
        agrees_with_a_list::<true>(index(70_000), 70_000 - 32);
    }

    #[test]
    fn a_counter_already_in_its_place_stays_there() {
        let mut index = index(8);
        for counter in 0..8 {
            index.insert(counter << 33, counter as usize);
        }
        for counter in 0..8 {
            let mut lines = index.lines::<false>();
            let probe = lines.probe(counter << 33);
            assert_eq!(lines.first(&probe), counter as usize);
            lines.release(counter as usize, true);
            lines.assign(&probe, counter as usize, true);
        }
        for counter in 0..8 {
            assert_eq!(index.find(counter << 33, |_| true), Some(counter as usize));
        }
    }
}
