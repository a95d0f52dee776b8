//! The cells of UnivMon: a Count Sketch for the keys of each depth, all of which share columns and signs.

use std::ops::Range;
use std::sync::OnceLock;

use flowgauge_kernel::Zeroed;

use super::MOST_LEVELS;
use crate::batch::BATCH_PACKETS;
use crate::summary::codec::{DecodeError, Reader, Writer};
use crate::summary::remix::remix;
use crate::summary::sketch::rows::{
    Counts, Listed, MOST_ROWS, Noise, Rows, Signed, join_all, median, median_fails, median_over,
    signs, sum_over,
};
use crate::summary::{BuildError, Memory};

/// The word of a digest whose low zeros say how deep a key is.
const DEPTH_WORD: u64 = 0;

/// By Chebyshev's inequality a row is off by more than √8 standard deviations one time in 8.
const ROW_FAILS: f64 = 1.0 / 8.0;

/// The columns of a depth: the first of them in each row, and what cuts a column from its number in a row
/// of depth 0.
#[derive(Clone, Copy, Default)]
struct Part {
    start: u32,
    mask: u32,
}

/// Where the cells of a key are: each row has the columns of all depths, one after the other.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    /// Those of depth 0.
    pub(super) first: Rows,
    parts: [Part; MOST_LEVELS],
    pub(super) levels: usize,
    /// Cells of a row.
    width: usize,
}

impl Shape {
    /// `columns` gives the columns of each depth, no more than those of the `first`; `None` where there
    /// are more cells than their numbers tell apart.
    pub(super) fn new(
        first: Rows,
        levels: usize,
        columns: impl Fn(usize) -> usize,
    ) -> Option<Self> {
        let (mut parts, mut width) = ([Part::default(); MOST_LEVELS], 0);
        for (depth, part) in parts[..levels].iter_mut().enumerate() {
            let columns = columns(depth);
            *part = Part { start: u32::try_from(width).ok()?, mask: (columns - 1) as u32 };
            width += columns;
        }
        u32::try_from(first.rows() * width).ok()?;
        Some(Self { first, parts, levels, width })
    }

    pub(super) fn cells(&self) -> usize {
        self.first.rows() * self.width
    }

    /// The number of the deepest level that a key is in.
    #[inline(always)]
    pub(super) fn depth(&self, digest: u64) -> usize {
        self.depth_from(digest, 0)
    }

    /// That of a key which is in this `level`, or what it would be if the key were.
    #[inline(always)]
    pub(super) fn depth_from(&self, digest: u64, level: usize) -> usize {
        let deepest = 1 << (self.levels - 1);
        level + ((remix(digest, DEPTH_WORD) | deepest) >> level).trailing_zeros() as usize
    }

    /// The columns of a depth.
    pub(super) fn columns(&self, depth: usize) -> usize {
        self.parts[depth].mask as usize + 1
    }

    /// The cells of a depth in one row.
    fn part(&self, depth: usize, row: usize) -> Range<usize> {
        let start = row * self.width + self.parts[depth].start as usize;
        start..start + self.columns(depth)
    }

    /// The cell of a depth in `row` for the cell that `Rows` tells of depth 0.
    #[inline(always)]
    fn cell(&self, depth: usize, row: usize, of_first: usize) -> usize {
        let Part { start, mask } = self.parts[depth];
        row * self.width + start as usize + (of_first & mask as usize)
    }

    /// The cells of a key, as one of this depth.
    #[inline(always)]
    pub(super) fn places(&self, digest: u64, depth: usize) -> [usize; MOST_ROWS] {
        let of_first = self.first.places::<MOST_ROWS>(digest);
        std::array::from_fn(|row| self.cell(depth, row, of_first[row]))
    }

    /// The cell of a key in one row.
    #[inline(always)]
    pub(super) fn place(&self, digest: u64, row: usize) -> usize {
        self.cell(self.depth(digest), row, self.first.place(digest, row))
    }

    /// The cells of many keys in the first rows: `places[row][i]` is that of `digests[i]`, whose depth is
    /// `depths[i]`.
    #[inline(never)]
    pub(super) fn place_batch(
        &self,
        digests: &[u64],
        depths: &[u8; BATCH_PACKETS],
        places: &mut [[u32; BATCH_PACKETS]],
    ) {
        let mut parts = ([0; BATCH_PACKETS], [0; BATCH_PACKETS]);
        for (i, depth) in depths[..digests.len()].iter().enumerate() {
            let part = self.parts[usize::from(*depth)];
            (parts.0[i], parts.1[i]) = (part.start, part.mask);
        }
        self.first.place_batch(digests, places);
        for (row, places) in places.iter_mut().enumerate() {
            let of_row = (row * self.width) as u32;
            for (place, (start, mask)) in places.iter_mut().zip(parts.0.iter().zip(&parts.1)) {
                *place = (*place & mask) + start + of_row;
            }
        }
    }

    /// The estimate of a key, as one of this depth, from cells of any kind.
    pub(super) fn value(&self, digest: u64, depth: usize, cell: impl Fn(usize) -> f64) -> f64 {
        let (signs, places) = (signs(digest), self.places(digest, depth));
        let mut values = [0.0; MOST_ROWS];
        let values = &mut values[..self.first.rows()];
        for (row, (value, place)) in values.iter_mut().zip(places).enumerate() {
            let number = cell(place);
            *value = if signs >> row & 1 == 1 { -number } else { number };
        }
        median(values)
    }

    /// L2² of the flows of these depths, by the squares of the median row.
    pub(super) fn squared_l2(&self, depths: Range<usize>, cell: impl Fn(usize) -> f64) -> f64 {
        median_over(self.first.rows(), |row| {
            depths.clone().map(|depth| sum_over(self.part(depth, row), |at| cell(at).powi(2))).sum()
        })
    }

    /// How far the median of the rows is off at most for keys of a depth: √8 standard deviations of a row.
    pub(super) fn margin(&self, depth: usize, cell: impl Fn(usize) -> f64) -> f64 {
        let squares = self.squared_l2(depth..depth + 1, cell);
        (squares / ROW_FAILS / self.columns(depth) as f64).sqrt()
    }

    /// The chance that an estimate is within its margin.
    pub(super) fn confidence(&self) -> f64 {
        1.0 - median_fails(self.first.rows(), ROW_FAILS)
    }
}

/// [`Noise`] with this margin, of rows that are no samples.
pub(super) fn noise(margin: f64) -> Noise {
    Noise { margin, deviations: (1.0 / ROW_FAILS).sqrt(), unit: 0.0 }
}

/// The cells with what was counted into them.
pub(super) struct Grids<C> {
    pub(super) shape: Shape,
    pub(super) cells: Zeroed<C>,
    /// What full cells could not take, over all rows.
    pub(super) saturated: u64,
    /// What the cells do not exceed, of either sign.
    pub(super) reach: u64,
    /// How far an estimate is off at most for keys of each depth, since the last packet, once it was asked
    /// for.
    margins: OnceLock<[f64; MOST_LEVELS]>,
}

impl<C: Signed> Grids<C> {
    pub(super) fn new(shape: Shape, memory: &Memory) -> Result<Self, BuildError> {
        let cells = memory.zeroed(shape.cells())?;
        Ok(Self { shape, cells, saturated: 0, reach: 0, margins: OnceLock::new() })
    }

    /// Takes note of packets of this weight, which are counted next: whether cells may be full then.
    pub(super) fn fills(&mut self, weight: u64) -> bool {
        self.margins = OnceLock::new();
        self.reach = self.reach.saturating_add(weight);
        self.reach > C::MOST
    }

    /// The estimate of a key: no less than 0.
    pub(super) fn size(&self, digest: u64) -> f64 {
        self.read(digest, self.shape.depth(digest)).max(0.0)
    }

    /// What the cells of a depth say of a key.
    pub(super) fn read(&self, digest: u64, depth: usize) -> f64 {
        self.shape.value(digest, depth, |place| self.cells[place].real())
    }

    /// How estimates of a depth err for what collides.
    pub(super) fn noise(&self, depth: usize) -> Noise {
        let margin = |depth| self.shape.margin(depth, |place| self.cells[place].real());
        let margins = self.margins.get_or_init(|| {
            std::array::from_fn(|depth| if depth < self.shape.levels { margin(depth) } else { 0.0 })
        });
        noise(margins[depth])
    }

    /// How estimates err of the keys of this depth with these digests, which are listed among so many.
    pub(super) fn list(
        &self,
        depth: usize,
        digests: impl Iterator<Item = u64>,
        keys: f64,
    ) -> Listed {
        let (rows, chance) = (self.shape.first.rows(), 1.0 - self.shape.confidence());
        let (mut estimates, mut cells) = (Counts::new(), Counts::new());
        digests.for_each(|digest| estimates.add(self.size(digest) as u64));
        (0..rows).for_each(|row| cells.add_cells(&self.cells[self.shape.part(depth, row)]));
        // Half of what collides has the sign of the key; half of the chance is for the upper bounds.
        Listed::new(&estimates, rows, &cells, keys, chance / 2.0, &|share| {
            median_fails(rows, share / 2.0)
        })
    }

    /// L2² of the flows of these depths.
    pub(super) fn squared_l2(&self, depths: Range<usize>) -> f64 {
        self.shape.squared_l2(depths, |place| self.cells[place].real())
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.reach = self.reach.saturating_add(other.reach);
        if other.reach > 0 {
            let lost = join_all(&mut self.cells, &other.cells, self.reach);
            self.saturated = self.saturated.saturating_add(lost);
        }
        self.saturated = self.saturated.saturating_add(other.saturated);
        self.margins = OnceLock::new();
    }

    pub(super) fn clear(&mut self) {
        if self.reach > 0 {
            self.cells.fill(C::zeroed());
        }
        (self.saturated, self.reach) = (0, 0);
        self.margins = OnceLock::new();
    }

    pub(super) fn save(&self, out: &mut Writer) {
        out.number(self.saturated);
        out.numbers(&self.cells);
    }

    pub(super) fn load(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.saturated = from.number("saturated")?;
        from.numbers("cells", &mut self.cells)?;
        self.reach = self.cells.iter().map(|cell| cell.size()).max().unwrap_or(0);
        Ok(())
    }
}
