//! An index of counters: lines of fifteen tags that are compared at once.
//!
//! It deliberately copies the index in core (`summary/counter/space_saving/index.rs`) with constant sizes: the
//! summaries are compared with the cost of their own idea without generality.

use std::hint::select_unpredictable as select;

use flowgauge_kernel::{Zeroed, equal_in_line};

use super::zeroed;

/// The first slot of a line counts the keys that overflowed it.
const PLACES: usize = 16;
const USABLE: u32 = 0xfffe;
const AWAY: u32 = 1 << 31;

/// Up to `COUNTERS` counters in `LINES` lines, both powers of two.
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
