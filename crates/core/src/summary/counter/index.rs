//! A hash index of counters, in memory of fixed size.

use std::hint::select_unpredictable;

use flowgauge_kernel::{Zeroed, equal_in_line, prefetch};

use super::super::{BuildError, Memory};
use super::halves::{Halves, HalvesMut};

/// Counters from which on the lines of a whole batch should be asked for at once.
const LARGE: usize = 2048;

/// Places of a line. The first one stands for the keys that found the line full.
const PLACES: usize = 16;

/// The tag of the first place where there are such keys.
const OVER: u8 = u8::MAX;

/// All places of a line but the first, as bits.
const USABLE: u32 = 0xfffe;

/// Lines for so many counters: one for seven, or for two where all of it is in a first-level cache
/// anyway: a line is read at once only if it was not written just before. With seven of its fifteen
/// places taken on average, one line in four hundred is full.
const fn lines(counters: usize) -> usize {
    let (most, few) = (counters.div_ceil(7), counters.div_ceil(2));
    let few = if few < 64 { few } else { 64 };
    if few > most { few } else { most }
}

/// Lines that a counter may be in, from that of its digest on: where all of them are full, its key is
/// refused. So many are full by chance less than once in 10¹² keys.
const WAY: usize = 8;

/// Finds a counter's number by the digest of its key. The caller has the keys, and compares them.
///
/// The digest names a line and a tag; the tags of a line are compared at once. Where the line is
/// full, the counter is in the next one that is not, and every full line on the way knows how many
/// went over it: a search ends at a line that nobody went over. So a counter that is removed leaves
/// nothing behind, and a search is the same few steps whether it finds something or not, without a
/// loop of unforeseeable length. A key whose [`WAY`] lines are full has no counter: what it
/// weighs is added to what was refused, and is in the bounds of all keys.
///
/// Memory in bytes: 8.9 a counter, or 15.4 from 14,330 counters on, and as much for a line that
/// nothing is in; up to 3 KiB more for fewer than 448 counters.
pub(in crate::summary) struct Index {
    tags: Zeroed<[u8; PLACES]>,
    /// The counter in each place; in the first one of a line, how many went over it.
    numbers: Halves,
    /// The place of each counter, times two; and one where that is not in the line of its digest.
    places: Halves,
    /// The weight of the packets whose keys found no room.
    refused: u64,
}

impl Index {
    /// Whether places, times two, need more than 16 bits.
    const fn is_wide_of(counters: usize) -> bool {
        2 * PLACES * (lines(counters) + 1) > 1 << 16
    }

    /// Bytes reserved for so many counters.
    pub(super) const fn memory_bytes(counters: usize) -> usize {
        let (wide, places) = (Self::is_wide_of(counters), PLACES * (lines(counters) + 1));
        places + Halves::memory_bytes(places, wide) + Halves::memory_bytes(counters, wide)
    }

    pub(super) fn new(counters: usize, memory: &Memory) -> Result<Self, BuildError> {
        // One line more, for what goes nowhere.
        let (wide, lines) = (Self::is_wide_of(counters), lines(counters) + 1);
        Ok(Self {
            tags: memory.zeroed(lines)?,
            numbers: Halves::new(PLACES * lines, wide, memory)?,
            places: Halves::new(counters, wide, memory)?,
            refused: 0,
        })
    }

    /// The line of a digest.
    #[inline(always)]
    fn line(&self, digest: u64) -> usize {
        line(digest, self.tags.len() - 1)
    }

    /// The line after this one.
    #[inline(always)]
    fn after(&self, line: usize) -> usize {
        if line + 2 < self.tags.len() { line + 1 } else { 0 }
    }

    /// Asks for the memory where the search for this digest begins.
    #[inline(always)]
    pub(super) fn prefetch(&self, digest: u64) {
        let line = self.line(digest);
        prefetch(&self.tags, line);
        self.numbers.prefetch(PLACES * line);
    }

    /// Asks for the lines of a batch, where they may be far away.
    #[inline(always)]
    pub(super) fn prefetch_all(&self, digests: &[u64]) {
        if self.places.len() >= LARGE {
            for &digest in digests {
                self.prefetch(digest);
            }
        }
    }

    /// The number of the counter of this digest that `holds` the key.
    #[inline(always)]
    pub(super) fn find(&self, digest: u64, holds: impl Fn(usize) -> bool) -> Option<usize> {
        let (mut line, tag) = (self.line(digest), tag(digest));
        for _ in 0..WAY {
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

    /// Whether a counter of this digest finds room.
    #[inline(always)]
    pub(super) fn has_room(&self, digest: u64) -> bool {
        let mut line = self.line(digest);
        for _ in 0..WAY {
            if equal_in_line(&self.tags[line], 0) & USABLE != 0 {
                return true;
            }
            line = self.after(line);
        }
        false
    }

    /// Takes note of a packet whose key found no room.
    #[cold]
    pub(super) fn refuse(&mut self, weight: u64) {
        self.refused = self.refused.saturating_add(weight);
    }

    /// The weight of all packets whose keys found no room.
    pub(in crate::summary) fn refused(&self) -> u64 {
        self.refused
    }

    /// Adds a counter that is in no line, and for which there is room.
    #[inline(always)]
    pub(super) fn insert(&mut self, digest: u64, counter: usize) {
        let (mut line, mut away) = (self.line(digest), 0);
        // Ends, since there is room.
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

    /// Removes a counter; `digest` is that of its key.
    #[inline(always)]
    pub(super) fn remove(&mut self, counter: usize, digest: impl FnOnce() -> u64) {
        let place = self.places.get(counter);
        self.tags.as_flattened_mut()[place / 2] = 0;
        if !place.is_multiple_of(2) {
            self.went_over(digest(), place / 2 / PLACES);
        }
    }

    /// Forgets a counter that went from the line of its digest to another one.
    #[cold]
    fn went_over(&mut self, digest: u64, last: usize) {
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

    /// Whether a counter is in the line of its digest.
    #[inline(always)]
    pub(super) fn is_home(&self, counter: usize) -> bool {
        self.places.get(counter).is_multiple_of(2)
    }

    /// Gives another number, which no counter has, to a counter.
    #[inline(always)]
    pub(super) fn renumber(&mut self, counter: usize, number: usize) {
        let place = self.places.get(counter);
        self.numbers.set(place / 2, number);
        self.places.set(number, place);
    }

    pub(super) fn clear(&mut self) {
        self.tags.fill([0; PLACES]);
        self.refused = 0;
    }

    /// Whether [`Self::lines`] are wide ones.
    #[inline(always)]
    pub(super) fn is_wide(&self) -> bool {
        self.numbers.is_wide()
    }

    /// The lines, for a loop without branches.
    #[inline(always)]
    pub(super) fn lines<const WIDE: bool>(&mut self) -> Lines<'_, WIDE> {
        let tags = self.tags.as_flattened_mut();
        let numbers = self.numbers.columns(tags.len());
        let places = self.places.columns(self.places.len());
        Lines { nowhere: tags.len() - PLACES, tags, numbers, places }
    }
}

#[inline(always)]
fn line(digest: u64, lines: usize) -> usize {
    ((u64::from(digest as u32) * lines as u64) >> 32) as usize
}

/// Not 0, which is an empty place.
#[inline(always)]
fn tag(digest: u64) -> u8 {
    let tag = (digest >> 32) as u8;
    tag + u8::from(tag == 0)
}

/// The lines of an index, for steps without a branch in all cases but rare ones.
pub(super) struct Lines<'a, const WIDE: bool> {
    tags: &'a mut [u8],
    numbers: HalvesMut<'a, WIDE>,
    places: HalvesMut<'a, WIDE>,
    /// A place that nothing is in.
    nowhere: usize,
}

/// What the line of a digest says of it.
#[derive(Clone, Copy)]
pub(super) struct Look {
    /// The first place of the line.
    start: usize,
    tag: u8,
    same: u32,
    empty: u32,
}

impl Look {
    /// Whether the line may hold the digest.
    #[inline(always)]
    pub(super) fn is_there(&self) -> bool {
        self.same != 0
    }

    /// Whether the digest can be nowhere but where [`Lines::first`] says, and can be given a counter.
    #[inline(always)]
    #[expect(clippy::needless_bitwise_bool, reason = "a branch is what this is to avoid")]
    pub(super) fn is_all(&self) -> bool {
        (self.same & self.same.wrapping_sub(1) == 0) & (self.empty & 1 != 0) & (self.empty > 1)
    }

    /// The place of the first of these bits.
    #[inline(always)]
    fn place(&self, bits: u32) -> usize {
        self.start + bits.trailing_zeros() as usize % PLACES
    }
}

impl<const WIDE: bool> Lines<'_, WIDE> {
    /// Reads the line of a digest.
    #[inline(always)]
    pub(super) fn look(&self, digest: u64) -> Look {
        let (start, tag) = (line(digest, self.nowhere / PLACES) * PLACES, tag(digest));
        let tags = self.tags[start..].first_chunk().unwrap_or(&[0; PLACES]);
        let (same, empty) = (equal_in_line(tags, tag) & USABLE, equal_in_line(tags, 0));
        Look { start, tag, same, empty }
    }

    /// The first counter that the digest may be of, or 0.
    #[inline(always)]
    pub(super) fn first(&self, look: &Look) -> usize {
        select_unpredictable(look.is_there(), self.numbers.get(look.place(look.same)), 0)
    }

    /// Whether a counter of another digest can be taken away from that by [`Self::take`].
    #[inline(always)]
    pub(super) fn can_take(&self, counter: usize) -> bool {
        self.places.get(counter).is_multiple_of(2)
    }

    /// Takes a counter away from its digest, unless it `has` to keep it.
    #[inline(always)]
    pub(super) fn take(&mut self, counter: usize, has: bool) {
        self.tags[select_unpredictable(has, self.nowhere, self.places.get(counter) / 2)] = 0;
    }

    /// Gives a counter that no digest has to this one, or changes nothing where it `has` it.
    #[inline(always)]
    pub(super) fn give(&mut self, look: &Look, counter: usize, has: bool) {
        let place = look.place(select_unpredictable(has, look.same, look.empty & USABLE));
        // A store to a line that is read soon delays that: none where it would change nothing.
        self.tags[select_unpredictable(has, self.nowhere, place)] = look.tag;
        self.numbers.set(place, counter);
        self.places.set(counter, 2 * place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(counters: usize) -> Index {
        Index::new(counters, &Memory::unlimited()).expect("it is small")
    }

    /// Digests of one line that is full most of the time and of two others, with few tags; counters
    /// that are numbered from `base`, and both ways of giving and taking them.
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
                let look = lines.look(new);
                if round % 2 == 0 && lines.can_take(counter) && look.is_all() {
                    lines.take(counter, false);
                    lines.give(&look, counter, false);
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
        assert!(index.tags.iter().flatten().all(|tag| *tag == 0), "something was left behind");
    }

    #[test]
    fn an_index_agrees_with_a_list() {
        agrees_with_a_list::<false>(index(32), 0);
        agrees_with_a_list::<false>(index(14_329), 14_329 - 32);
        agrees_with_a_list::<true>(index(14_330), 14_330 - 32);
        agrees_with_a_list::<true>(index(70_000), 70_000 - 32);
    }

    #[test]
    fn a_counter_that_has_its_digest_stays_where_it_is() {
        let mut index = index(8);
        for counter in 0..8 {
            index.insert(counter << 33, counter as usize);
        }
        for counter in 0..8 {
            let mut lines = index.lines::<false>();
            let look = lines.look(counter << 33);
            assert_eq!(lines.first(&look), counter as usize);
            lines.take(counter as usize, true);
            lines.give(&look, counter as usize, true);
        }
        for counter in 0..8 {
            assert_eq!(index.find(counter << 33, |_| true), Some(counter as usize));
        }
    }
}
