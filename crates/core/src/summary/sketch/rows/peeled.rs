//! The cells of a sketch without its heaviest listed keys.
//!
//! Most of the error of a listed key comes from the few heaviest keys, which are listed, too: the
//! sketch tells which of them share its cells, and about how much they put there. Without that, the
//! error of a key in a row is that of the other keys, and what the estimates of the heaviest lack.
//! A random cell without these has that error, too, so these cells bound it.
//!
//! Of two such keys that share most rows, each takes away the other's weight and its own. That makes
//! estimates too low, which a lower bound may be; upper bounds do not use them.

use super::bounds::Counts;

/// Weights from here on may not be whole as real numbers.
pub(crate) const MOST_WEIGHT: u64 = 1 << f64::MANTISSA_DIGITS;

/// The cells without the listed keys estimated at `least` or more.
pub(crate) struct Peeled {
    least: f64,
    /// The cells that hold such keys, by place, and the weight of these there.
    taken: Vec<(u32, f64)>,
    pub(crate) cells: Counts,
    /// The weight of all other keys.
    pub(crate) total: f64,
}

/// The listed keys that are taken away.
pub(crate) struct Peeling {
    least: f64,
    /// A place, and the number of the weight there.
    places: Vec<u64>,
    weights: Vec<f64>,
    total: f64,
}

impl Peeling {
    /// Takes no key yet from cells of `total` weight.
    pub(crate) fn new(least: f64, total: f64) -> Self {
        Self { least, places: Vec::new(), weights: Vec::new(), total }
    }

    /// Takes a key with this estimate from its cells, one per row, unless it is estimated at less
    /// than `least`. Bit `row` of `signs` is set if that row subtracts its weight.
    pub(crate) fn take(&mut self, estimate: f64, places: &[usize], signs: u64) {
        if estimate < self.least {
            return;
        }
        let weight = whole(estimate);
        self.total -= weight;
        for (row, place) in places.iter().enumerate() {
            self.places.push((*place as u64) << 32 | self.weights.len() as u64);
            self.weights.push(if signs >> row & 1 == 1 { -weight } else { weight });
        }
    }

    /// `cell` gives the contents of cells, and `cells` is their histogram.
    ///
    /// Cost: a sort of a word per row and key taken. Memory: 32 bytes for each.
    #[inline(never)]
    pub(crate) fn finish(mut self, mut cells: Counts, cell: &dyn Fn(usize) -> f64) -> Peeled {
        self.places.sort_unstable();
        let same = self.places.chunk_by(|one, other| one >> 32 == other >> 32);
        let taken = same.map(|same| {
            let place = (same[0] >> 32) as u32;
            let weight: f64 = same.iter().map(|place| self.weights[*place as u32 as usize]).sum();
            let content = cell(place as usize);
            cells.replace(content.abs() as u64, (content - weight).abs().ceil() as u64);
            (place, weight)
        });
        let taken = taken.collect();
        Peeled { least: self.least, taken, cells, total: self.total }
    }
}

impl Peeled {
    /// The weight that was taken from a cell.
    pub(crate) fn taken(&self, place: usize) -> f64 {
        let found = self.taken.binary_search_by_key(&(place as u32), |(place, _)| *place);
        found.map_or(0.0, |at| self.taken[at].1)
    }

    /// The weight that was taken for a key with this estimate. All its cells lack it.
    pub(crate) fn own(&self, estimate: f64) -> f64 {
        if estimate < self.least { 0.0 } else { whole(estimate) }
    }
}

/// An estimate as a whole number, so that sums do not depend on their order.
fn whole(estimate: f64) -> f64 {
    estimate.trunc()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::float_cmp, reason = "all numbers are exact")]

    use super::*;

    /// Two rows of four cells: a key of 100 in cells 0 and 4, one of 30 in cells 0 and 5, and one
    /// of 5 in cells 2 and 5. The first two are listed with the estimates 100 and 35.
    fn peeled(least: f64) -> Peeled {
        let cells: [u64; 8] = [130, 0, 5, 0, 100, 35, 0, 0];
        let mut peeling = Peeling::new(least, 135.0);
        peeling.take(100.0, &[0, 4], 0);
        peeling.take(35.0, &[0, 5], 0);
        peeling.finish(Counts::of_cells(&cells), &|place| cells[place] as f64)
    }

    #[test]
    fn listed_keys_are_taken_from_the_cells() {
        let peeled = peeled(0.0);
        assert_eq!([0, 2, 4, 5].map(|place| peeled.taken(place)), [135.0, 0.0, 100.0, 35.0]);
        // Cell 0 becomes -5, and cells 4 and 5 become 0.
        assert_eq!((peeled.cells.zeros(), peeled.total), (0.75, 0.0));
        assert_eq!((peeled.own(100.0), peeled.own(35.5)), (100.0, 35.0));
    }

    #[test]
    fn light_keys_stay() {
        let peeled = peeled(36.0);
        assert_eq!([0, 4, 5].map(|place| peeled.taken(place)), [100.0, 100.0, 0.0]);
        // Cell 0 becomes 30.
        assert_eq!((peeled.cells.zeros(), peeled.total), (0.625, 35.0));
        assert_eq!((peeled.own(100.0), peeled.own(35.0)), (100.0, 0.0));
    }

    #[test]
    fn a_sign_is_taken_with_its_key() {
        let cells: [i64; 2] = [7, -7];
        let mut peeling = Peeling::new(0.0, 0.0);
        peeling.take(7.0, &[0, 1], 0b10);
        let peeled = peeling.finish(Counts::of_cells(&cells), &|place| cells[place] as f64);
        assert_eq!((peeled.taken(1), peeled.cells.zeros()), (-7.0, 1.0));
    }
}
