//! The floors of the blocks of a sweep, and where the least of them is.
//!
//! Where there are many, levels stand above: a number there is for a group of the numbers below, none of
//! which is less. So the next block of the least floor is found by a look at a group or two of each
//! level, however many blocks there are. Numbers only grow, and one above is raised when no number of its
//! group is the least any more.

use std::ops::Range;

use flowgauge_kernel::{Zeroed, equal_in_group};

use super::super::super::{BuildError, Memory};

/// Numbers of a group.
const GROUP: usize = 64;

/// So many numbers need no level above: those of 16,384 entries.
const FEW: usize = 256;

/// The numbers of a level.
#[derive(Clone, Copy)]
struct Level {
    start: usize,
    len: usize,
}

impl Level {
    /// That of the blocks.
    const fn of(blocks: usize) -> Self {
        Self { start: 0, len: blocks }
    }

    /// The one above, where this one needs it.
    const fn above(self) -> Option<Self> {
        if self.len <= FEW {
            return None;
        }
        Some(Self { start: self.start + self.len, len: self.len.div_ceil(GROUP) })
    }

    #[inline(always)]
    const fn top(self) -> Self {
        let mut top = self;
        while let Some(above) = top.above() {
            top = above;
        }
        top
    }

    /// The numbers from `from` up to `to`, or up to the last.
    fn range(self, from: usize, to: usize) -> Range<usize> {
        self.start + from..self.start + to.min(self.len)
    }

    /// Those that the number `group` of the level above is for.
    fn group(self, group: usize) -> Range<usize> {
        self.range(GROUP * group, GROUP * (group + 1))
    }
}

/// A number for each block, and the levels above.
pub(super) struct Floors(Zeroed<u32>);

impl Floors {
    /// Bytes reserved for so many blocks.
    pub(super) const fn memory_bytes(blocks: usize) -> usize {
        let top = Level::of(blocks).top();
        (top.start + top.len) * size_of::<u32>()
    }

    pub(super) fn new(blocks: usize, memory: &Memory) -> Result<Self, BuildError> {
        Ok(Self(memory.zeroed(Self::memory_bytes(blocks) / size_of::<u32>())?))
    }

    /// Sets the floors of so many `blocks`.
    pub(super) fn begin(&mut self, blocks: usize, floor: impl Fn(usize) -> u32) {
        let mut level = Level::of(blocks);
        for block in 0..blocks {
            self.0[block] = floor(block);
        }
        while let Some(above) = level.above() {
            for group in 0..above.len {
                self.0[above.start + group] = least(&self.0[level.group(group)]);
            }
            level = above;
        }
    }

    /// The floor of a block.
    #[inline(always)]
    pub(super) fn get(&self, block: usize) -> u32 {
        self.0[block]
    }

    /// Raises it.
    #[inline(always)]
    pub(super) fn raise(&mut self, block: usize, floor: u32) {
        self.0[block] = floor;
    }

    /// A number that no floor of so many `blocks` is below; mostly the least of them.
    pub(super) fn least(&self, blocks: usize) -> u32 {
        let top = Level::of(blocks).top();
        least(&self.0[top.range(0, top.len)])
    }

    /// The first of so many `blocks` from the one numbered `from` on whose floor is `floor`, where none is
    /// less.
    #[inline(always)]
    pub(super) fn next(&mut self, blocks: usize, from: usize, floor: u32) -> Option<usize> {
        self.next_in(Level::of(blocks), from, floor)
    }

    #[inline(always)]
    fn next_in(&mut self, level: Level, from: usize, number: u32) -> Option<usize> {
        match level.above() {
            None => first(&self.0[level.range(from, level.len)], number).map(|at| from + at),
            Some(above) => self.next_of_groups(level, above, from, number),
        }
    }

    #[inline(never)]
    fn next_of_groups(
        &mut self,
        level: Level,
        above: Level,
        mut from: usize,
        number: u32,
    ) -> Option<usize> {
        loop {
            let group = from / GROUP;
            let rest = level.range(from, GROUP * (group + 1));
            if let Some(at) = first(&self.0[rest], number) {
                return Some(from + at);
            }
            self.0[above.start + group] = least(&self.0[level.group(group)]);
            from = GROUP * self.next_in(above, group + 1, number)?;
        }
    }
}

fn least(numbers: &[u32]) -> u32 {
    numbers.iter().copied().min().unwrap_or(u32::MAX)
}

/// Where `number` is first.
#[inline(always)]
fn first(numbers: &[u32], number: u32) -> Option<usize> {
    let (eights, rest) = numbers.as_chunks::<8>();
    let same = |eight| equal_in_group(eight, u32::MAX, number);
    let found = eights.iter().map(same).enumerate().find(|(_, same)| *same != 0);
    found.map(|(eight, same)| 8 * eight + same.trailing_zeros() as usize).or_else(|| {
        let at = rest.iter().position(|other| *other == number)?;
        Some(8 * eights.len() + at)
    })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
mod tests {
    use super::*;

    /// The least floor and the next block that has it, as a search through all finds them, for one level
    /// to three of them; in sweeps that raise what they find and at times the block behind it.
    #[test]
    fn floors_are_found_as_by_a_search_through_all() {
        let mut random = fastrand::Rng::with_seed(1);
        for blocks in [1, 2, 63, FEW, FEW + 1, 1000, GROUP * FEW, GROUP * FEW + 1, 40_000] {
            let mut floors = Floors::new(blocks, &Memory::unlimited()).unwrap();
            let mut model: Vec<u32> = (0..blocks).map(|_| random.u32(3..6)).collect();
            floors.begin(blocks, |block| model[block]);
            let (mut from, mut number) = (0, 0);
            for _ in 0..500 {
                let next = loop {
                    if let Some(next) = floors.next(blocks, from, number) {
                        break next;
                    }
                    let least = *model.iter().min().unwrap();
                    (from, number) = (0, floors.least(blocks));
                    assert!(number <= least, "{blocks}");
                };
                assert_eq!(number, *model.iter().min().unwrap());
                let behind = model[from..].iter().position(|floor| *floor == number).unwrap();
                assert_eq!(next, from + behind, "{blocks}");
                let end = blocks.min(next + random.usize(1..3));
                for (block, floor) in (next..).zip(&mut model[next..end]) {
                    *floor = (*floor).max(number + random.u32(1..3));
                    floors.raise(block, *floor);
                }
                from = next;
            }
        }
    }
}
