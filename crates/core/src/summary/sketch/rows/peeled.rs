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

/// The cells without some of the listed keys.
pub(crate) struct Peeled {
    /// The digests of the keys that were taken away, in order.
    keys: Vec<u64>,
    /// The cells that held such keys, by place, and the weight of these there.
    taken: Vec<(u32, f64)>,
    pub(crate) cells: Counts,
    /// The weight of all other keys.
    pub(crate) total: f64,
}

/// The listed keys that are taken away.
pub(crate) struct Peeling {
    keys: Vec<u64>,
    /// A place, and the number of the weight there.
    places: Vec<u64>,
    weights: Vec<f64>,
    total: f64,
}

impl Peeling {
    /// Takes no key yet from cells of `total` weight.
    pub(crate) fn new(total: f64) -> Self {
        Self { keys: Vec::new(), places: Vec::new(), weights: Vec::new(), total }
    }

    /// Takes a key with this estimate from its cells, one per row. Bit `row` of `signs` is set if
    /// that row subtracts its weight.
    pub(crate) fn take(&mut self, digest: u64, estimate: f64, places: &[usize], signs: u64) {
        let weight = whole(estimate);
        self.keys.push(digest);
        self.total -= weight;
        for (row, place) in places.iter().enumerate() {
            self.places.push((*place as u64) << 32 | self.weights.len() as u64);
            self.weights.push(if signs >> row & 1 == 1 { -weight } else { weight });
        }
    }

    /// `cell` gives the contents of cells, and `cells` is their histogram.
    ///
    /// Cost: a sort of a word per row and key taken. Memory: 8 bytes for each key, and 32 for each
    /// of its rows.
    #[inline(never)]
    pub(crate) fn finish(mut self, mut cells: Counts, cell: &dyn Fn(usize) -> f64) -> Peeled {
        self.keys.sort_unstable();
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
        Peeled { keys: self.keys, taken, cells, total: self.total }
    }
}

impl Peeled {
    /// The weight that was taken from a cell.
    pub(crate) fn taken(&self, place: usize) -> f64 {
        let found = self.taken.binary_search_by_key(&(place as u32), |(place, _)| *place);
        found.map_or(0.0, |at| self.taken[at].1)
    }

    /// The weight that was taken for a key with this estimate. All its cells lack it.
    pub(crate) fn own(&self, digest: u64, estimate: f64) -> f64 {
        if self.keys.binary_search(&digest).is_ok() { whole(estimate) } else { 0.0 }
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
    /// of 5 in cells 2 and 5. Of the first two, which are listed with the estimates 100 and 35, the
    /// ones from `least` on are taken away.
    fn peeled(least: f64) -> Peeled {
        let cells: [u64; 8] = [130, 0, 5, 0, 100, 35, 0, 0];
        let mut peeling = Peeling::new(135.0);
        for (digest, estimate, places) in [(9, 100.0, [0, 4]), (3, 35.5, [0, 5])] {
            if estimate >= least {
                peeling.take(digest, estimate, &places, 0);
            }
        }
        peeling.finish(Counts::of_cells(&cells), &|place| cells[place] as f64)
    }

    #[test]
    fn keys_are_taken_from_their_cells() {
        let peeled = peeled(0.0);
        assert_eq!([0, 2, 4, 5].map(|place| peeled.taken(place)), [135.0, 0.0, 100.0, 35.0]);
        // Cell 0 becomes -5, and cells 4 and 5 become 0.
        assert_eq!((peeled.cells.zeros(), peeled.total), (0.75, 0.0));
        assert_eq!((peeled.own(9, 100.0), peeled.own(3, 35.5)), (100.0, 35.0));
    }

    #[test]
    fn other_keys_stay() {
        let peeled = peeled(36.0);
        assert_eq!([0, 4, 5].map(|place| peeled.taken(place)), [100.0, 100.0, 0.0]);
        // Cell 0 becomes 30.
        assert_eq!((peeled.cells.zeros(), peeled.total), (0.625, 35.0));
        assert_eq!((peeled.own(9, 100.0), peeled.own(3, 35.5)), (100.0, 0.0));
    }

    #[test]
    fn a_sign_is_taken_with_its_key() {
        let cells: [i64; 2] = [7, -7];
        let mut peeling = Peeling::new(0.0);
        peeling.take(1, 7.0, &[0, 1], 0b10);
        let peeled = peeling.finish(Counts::of_cells(&cells), &|place| cells[place] as f64);
        assert_eq!((peeled.taken(1), peeled.cells.zeros()), (-7.0, 1.0));
    }
}
