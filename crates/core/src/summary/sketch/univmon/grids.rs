//! The cells of UnivMon: a Count Sketch for the keys of each depth, with common columns and signs.

use std::ops::Range;
use std::sync::OnceLock;

use flowgauge_kernel::Zeroed;

use super::MOST_LEVELS;
use super::answers::Sums;
use crate::batch::BATCH_PACKETS;
use crate::summary::codec::{DecodeError, Reader, Writer};
use crate::summary::remix::remix;
use crate::summary::sketch::rows::{
    Counts, Listed, MOST_ROWS, MOST_WEIGHT, Noise, Peeled, Peeling, Rows, Signed, UPPER, join_all,
    load_cells, median, median_fails, median_over, save_cells, seldom_short, signs, sum_over,
};
use crate::summary::{BuildError, Estimate, Memory};

/// The word of a digest whose trailing zeros are the depth of a key.
const DEPTH_WORD: u64 = 0;

/// The chance of an error of more than √8 standard deviations in a row, by Chebyshev's inequality.
const ROW_FAILS: f64 = 1.0 / 8.0;

/// The columns of a depth: the first one in each row, and the mask that cuts a column from that of
/// depth 0.
#[derive(Clone, Copy, Default)]
struct Part {
    start: u32,
    mask: u32,
}

/// The layout of the cells: each row has the columns of all depths, one after the other.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    /// The shape of depth 0.
    pub(super) first: Rows,
    parts: [Part; MOST_LEVELS],
    pub(super) levels: usize,
    /// Number of cells in a row.
    width: usize,
}

impl Shape {
    /// `columns` gives the number of columns of each depth, at most those of `first`. `None` if the
    /// cells are too many for indices of 32 bits.
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

    /// The deepest level that a key is in.
    #[inline(always)]
    pub(super) fn depth(&self, digest: u64) -> usize {
        self.depth_from(digest, 0)
    }

    /// The depth of a key that is in `level`, or that it would have if it were.
    #[inline(always)]
    pub(super) fn depth_from(&self, digest: u64, level: usize) -> usize {
        let deepest = 1 << (self.levels - 1);
        level + ((remix(digest, DEPTH_WORD) | deepest) >> level).trailing_zeros() as usize
    }

    /// The number of columns of a depth.
    pub(super) fn columns(&self, depth: usize) -> usize {
        self.parts[depth].mask as usize + 1
    }

    /// The range of cells of a depth in one row.
    fn part(&self, depth: usize, row: usize) -> Range<usize> {
        let start = row * self.width + self.parts[depth].start as usize;
        start..start + self.columns(depth)
    }

    /// The cell of a depth in `row`, given the key's cell by the [`Rows`] of depth 0.
    #[inline(always)]
    fn cell(&self, depth: usize, row: usize, of_first: usize) -> usize {
        let Part { start, mask } = self.parts[depth];
        row * self.width + start as usize + (of_first & mask as usize)
    }

    /// The cells of a key at this depth.
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

    /// Writes the cells of many keys in the first rows: `places[row][i]` is the cell of
    /// `digests[i]`, whose depth is `depths[i]`.
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

    /// The estimate of a key at this depth, from any linear combination of cells.
    pub(super) fn value(&self, digest: u64, depth: usize, cell: impl Fn(usize) -> f64) -> f64 {
        self.value_at(depth, signs(digest), &self.first.places(digest), cell)
    }

    /// The same of a key's signs and its cells by the [`Rows`] of depth 0.
    fn value_at(
        &self,
        depth: usize,
        signs: u64,
        of_first: &[usize; MOST_ROWS],
        cell: impl Fn(usize) -> f64,
    ) -> f64 {
        let mut values = [0.0; MOST_ROWS];
        let values = &mut values[..self.first.rows()];
        for (row, (value, of_first)) in values.iter_mut().zip(of_first).enumerate() {
            let number = cell(self.cell(depth, row, *of_first));
            *value = if signs >> row & 1 == 1 { -number } else { number };
        }
        median(values)
    }

    /// L2² of the flows of these depths, by the median row.
    pub(super) fn squared_l2(&self, depths: Range<usize>, cell: impl Fn(usize) -> f64) -> f64 {
        median_over(self.first.rows(), |row| {
            depths.clone().map(|depth| sum_over(self.part(depth, row), |at| cell(at).powi(2))).sum()
        })
    }

    /// Largest error of the median for keys of a depth: √8 standard deviations of a row.
    pub(super) fn margin(&self, depth: usize, cell: impl Fn(usize) -> f64) -> f64 {
        let squares = self.squared_l2(depth..depth + 1, cell);
        (squares / ROW_FAILS / self.columns(depth) as f64).sqrt()
    }

    /// The confidence of that margin.
    pub(super) fn confidence(&self) -> f64 {
        1.0 - median_fails(self.first.rows(), ROW_FAILS)
    }
}

/// [`Noise`] with this margin, for rows that are not samples.
pub(super) fn noise(margin: f64) -> Noise {
    Noise { margin, deviations: (1.0 / ROW_FAILS).sqrt(), unit: 0.0 }
}

/// Errors of the listed keys of a depth.
pub(super) struct List {
    listed: Listed,
    /// The same without these keys.
    peeled: Option<(Listed, Peeled)>,
    /// Largest shortfall of an estimate.
    short: f64,
}

/// The cells of all depths.
pub(super) struct Grids<C> {
    pub(super) shape: Shape,
    pub(super) cells: Zeroed<C>,
    /// Excess of full cells, over all rows.
    pub(super) saturated: u64,
    /// A bound that no cell exceeds, of either sign.
    pub(super) reach: u64,
    found: Found,
}

/// What is computed on demand after the last packet.
#[derive(Default)]
struct Found {
    /// Largest error of an estimate at each depth.
    margins: OnceLock<[f64; MOST_LEVELS]>,
    sums: OnceLock<Sums>,
}

impl<C: Signed> Grids<C> {
    pub(super) fn new(shape: Shape, memory: &Memory) -> Result<Self, BuildError> {
        let cells = memory.zeroed(shape.cells())?;
        Ok(Self { shape, cells, saturated: 0, reach: 0, found: Found::default() })
    }

    /// Forgets what was computed before a change of the cells, heaps or samples.
    pub(super) fn forget(&mut self) {
        self.found = Found::default();
    }

    /// The sums that were computed after the last change, or those that `compute` returns.
    pub(super) fn sums(&self, compute: impl FnOnce() -> Sums) -> &Sums {
        self.found.sums.get_or_init(compute)
    }

    /// Announces packets of this weight, and returns whether cells may be full after them.
    pub(super) fn may_fill(&mut self, weight: u64) -> bool {
        self.forget();
        self.reach = self.reach.saturating_add(weight);
        self.reach > C::MOST
    }

    /// The estimate of a key, at least 0.
    pub(super) fn size(&self, digest: u64) -> f64 {
        self.read(digest, self.shape.depth(digest)).max(0.0)
    }

    /// The value of the cells of a depth for a key.
    pub(super) fn read(&self, digest: u64, depth: usize) -> f64 {
        self.shape.value(digest, depth, |place| self.cells[place].real())
    }

    /// The values of the cells of each depth for a key.
    pub(super) fn read_all(&self, digest: u64, reads: &mut [f64]) {
        let (signs, of_first) = (signs(digest), self.shape.first.places(digest));
        for (depth, read) in reads.iter_mut().enumerate() {
            let cell = |place: usize| self.cells[place].real();
            *read = self.shape.value_at(depth, signs, &of_first, cell);
        }
    }

    /// The error by collisions at a depth.
    pub(super) fn noise(&self, depth: usize) -> Noise {
        let margin = |depth| self.shape.margin(depth, |place| self.cells[place].real());
        let margins = self.found.margins.get_or_init(|| {
            std::array::from_fn(|depth| if depth < self.shape.levels { margin(depth) } else { 0.0 })
        });
        noise(margins[depth])
    }

    /// Errors of the keys of this depth with these digests, listed among `keys` keys.
    #[inline(never)]
    pub(super) fn list(
        &self,
        depth: usize,
        digests: &mut dyn Iterator<Item = u64>,
        keys: f64,
    ) -> List {
        let (rows, chance) = (self.shape.first.rows(), 1.0 - self.shape.confidence());
        let (mut estimates, cells) = (Counts::new(), self.counts(depth));
        let mut peeling = Peeling::new(0.0);
        for digest in digests {
            let size = self.size(digest);
            estimates.add(size as u64);
            peeling.take(digest, size, &self.shape.places(digest, depth)[..rows], signs(digest));
        }
        // Half of the colliding cells have the sign of the key.
        let fails = |share: f64| median_fails(rows, share / 2.0);
        let short = cells.seldom(rows, UPPER * chance, &fails);
        // Full cells lack some of their keys.
        let is_whole = self.saturated == 0 && self.reach < MOST_WEIGHT;
        let peeled =
            is_whole.then(|| peeling.finish(cells.clone(), &|place| self.cells[place].real()));
        let chance = (1.0 - UPPER) * chance;
        // A lower bound is the better one of two.
        let chance = if is_whole { chance / 2.0 } else { chance };
        let listed = |cells: &Counts| Listed::new(&estimates, rows, cells, keys, chance, &fails);
        let peeled = peeled.map(|peeled| (listed(&peeled.cells), peeled));
        List { listed: listed(&cells), peeled, short }
    }

    /// The bounds of a key of this depth in the list; `asked` are those of a key that is not
    /// selected.
    #[inline(never)]
    pub(super) fn listed(
        &self,
        list: &List,
        depth: usize,
        digest: u64,
        asked: Estimate,
    ) -> Estimate {
        let (value, saturated) = (asked.value, self.saturated as f64);
        let mut low = (value - list.listed.over(value) - saturated).min(asked.low);
        if let Some((listed, peeled)) = &list.peeled {
            let cell = |place: usize| self.cells[place].real() - peeled.taken(place);
            let alone = self.shape.value(digest, depth, cell) + peeled.own(digest, value);
            low = low.max(alone - listed.over(value));
        }
        let high = asked.high.min(value + list.short + saturated);
        Estimate { low: low.clamp(0.0, value), high, ..asked }
    }

    /// Largest shortfall of an estimate below its key's size, over the keys of this depth and all
    /// times so far. At most `keys` of all keys have at least a given size; a key has at least this
    /// depth with a chance of 2 to the power of −depth. All depths together have the confidence of
    /// the bounds.
    #[inline(never)]
    pub(super) fn shortfall(&self, depth: usize, keys: &dyn Fn(f64) -> f64) -> f64 {
        let allowed = (1.0 - self.shape.confidence()) / self.shape.levels as f64;
        let here = 1.0 / (1u64 << depth) as f64;
        seldom_short(self.shape.first, &self.counts(depth), allowed, &|size| here * keys(size))
    }

    /// The cells of a depth in all rows.
    #[inline(never)]
    fn counts(&self, depth: usize) -> Counts {
        let mut counts = Counts::new();
        let rows = 0..self.shape.first.rows();
        rows.for_each(|row| counts.add_cells(&self.cells[self.shape.part(depth, row)]));
        counts
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
        self.forget();
    }

    pub(super) fn clear(&mut self) {
        if self.reach > 0 {
            self.cells.fill(C::zeroed());
        }
        (self.saturated, self.reach) = (0, 0);
        self.forget();
    }

    pub(super) fn save(&self, out: &mut Writer) {
        out.number(self.saturated);
        save_cells(&self.cells, out);
    }

    pub(super) fn load(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.saturated = from.number("saturated")?;
        let columns = self.cells.len();
        (self.reach, _) = load_cells(&mut self.cells, columns, from)?;
        Ok(())
    }
}
