//! The floors of the blocks of a sweep: lower bounds of their counts.
//!
//! Many floors form levels, as in a tree: each number of a level is a lower bound of a group of 64
//! numbers of the level below. The next block with the minimum floor is found by reading one or two
//! groups of each level. Floors only grow. A number of an upper level is raised once its group has
//! no number as small as the minimum.

use std::ops::Range;

use flowgauge_kernel::{Zeroed, equal_in_group};

use super::super::super::{BuildError, Memory};

/// Numbers in a group.
const GROUP: usize = 64;

/// The largest level without a level above it: the floors of 16,384 entries.
const TOP: usize = 256;

/// The position of a level in the array of all levels.
#[derive(Clone, Copy)]
struct Level {
    start: usize,
    len: usize,
}

impl Level {
    /// The lowest level: one number per block.
    const fn of(blocks: usize) -> Self {
        Self { start: 0, len: blocks }
    }

    /// The level above, if this one is too large to scan.
    const fn above(self) -> Option<Self> {
        if self.len <= TOP {
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

    /// The range from `from` to `to`, or to the end of the level.
    fn range(self, from: usize, to: usize) -> Range<usize> {
        self.start + from..self.start + to.min(self.len)
    }

    /// The group that number `group` of the level above covers.
    fn group(self, group: usize) -> Range<usize> {
        self.range(GROUP * group, GROUP * (group + 1))
    }
}

/// The floors of all blocks, and the levels above them.
pub(super) struct Floors(Zeroed<u32>);

impl Floors {
    pub(super) const fn memory_bytes(blocks: usize) -> usize {
        let top = Level::of(blocks).top();
        (top.start + top.len) * size_of::<u32>()
    }

    pub(super) fn new(blocks: usize, memory: &Memory) -> Result<Self, BuildError> {
        Ok(Self(memory.zeroed(Self::memory_bytes(blocks) / size_of::<u32>())?))
    }

    /// Sets the floors of all blocks.
    pub(super) fn begin(&mut self, blocks: usize, floor: impl Fn(usize) -> u32) {
        let mut level = Level::of(blocks);
        for block in 0..blocks {
            self.0[block] = floor(block);
        }
        while let Some(above) = level.above() {
            for group in 0..above.len {
                self.0[above.start + group] = min(&self.0[level.group(group)]);
            }
            level = above;
        }
    }

    #[inline(always)]
    pub(super) fn get(&self, block: usize) -> u32 {
        self.0[block]
    }

    /// Raises the floor of a block.
    #[inline(always)]
    pub(super) fn raise(&mut self, block: usize, floor: u32) {
        self.0[block] = floor;
    }

    /// A lower bound of all floors, nearly always their minimum.
    pub(super) fn min(&self, blocks: usize) -> u32 {
        let top = Level::of(blocks).top();
        min(&self.0[top.range(0, top.len)])
    }

    /// The first block from `from` on whose floor is `floor`, which must be a lower bound of all
    /// floors.
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
            self.0[above.start + group] = min(&self.0[level.group(group)]);
            from = GROUP * self.next_in(above, group + 1, number)?;
        }
    }
}

fn min(numbers: &[u32]) -> u32 {
    numbers.iter().copied().min().unwrap_or(u32::MAX)
}

/// The first position of `number`.
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

    /// With one to three levels, in sweeps that raise the floor they find and sometimes the next
    /// one: the minimum floor and the next block that has it are those that a linear search finds.
    #[test]
    fn floors_are_found_as_by_a_linear_search() {
        let mut random = fastrand::Rng::with_seed(1);
        for blocks in [1, 2, 63, TOP, TOP + 1, 1000, GROUP * TOP, GROUP * TOP + 1, 40_000] {
            let mut floors = Floors::new(blocks, &Memory::unlimited()).unwrap();
            let mut model: Vec<u32> = (0..blocks).map(|_| random.u32(3..6)).collect();
            floors.begin(blocks, |block| model[block]);
            let (mut from, mut number) = (0, 0);
            for _ in 0..500 {
                let next = loop {
                    if let Some(next) = floors.next(blocks, from, number) {
                        break next;
                    }
                    let min = *model.iter().min().unwrap();
                    (from, number) = (0, floors.min(blocks));
                    assert!(number <= min, "{blocks}");
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
