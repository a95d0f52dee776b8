//! The cells of a sketch without its listed keys.
//!
//! Most of the error of a listed key comes from the few heaviest keys, which are listed, too: the
//! sketch tells which of them share its cells, and about how much they put there. Without that, the
//! error of a key in a row is that of the unlisted keys, and what the estimates of listed ones lack.
//! A random cell without all listed keys has that error, too, so these cells bound it.
//!
//! Of two listed keys that share most rows, each takes away the other's weight and its own. That
//! makes estimates too low, which a lower bound may be; upper bounds do not use them.

use super::MOST_ROWS;
use super::bounds::Counts;

/// The estimate of a key from the weight of all keys and the contents of its cells.
type Alone<'a> = dyn Fn(&Mark, f64, &dyn Fn(usize) -> f64) -> f64 + 'a;

/// Weights from here on may not be whole as real numbers.
pub(crate) const MOST_WEIGHT: u64 = 1 << f64::MANTISSA_DIGITS;

/// A listed key, as the cells count it.
pub(crate) struct Mark {
    pub(crate) digest: u64,
    /// The weight that is taken from its cells: whole, so that sums do not depend on their order.
    pub(crate) weight: f64,
    /// Its cells, one per row.
    pub(crate) places: [usize; MOST_ROWS],
    /// Bit `row` is set if that row subtracts its weight.
    pub(crate) signs: u64,
}

impl Mark {
    /// The weight in the cell of a row.
    fn in_row(&self, row: usize) -> f64 {
        if self.signs >> row & 1 == 1 { -self.weight } else { self.weight }
    }
}

/// The cells without all listed keys, and the estimates of these keys without each other.
pub(crate) struct Peeled {
    pub(crate) cells: Counts,
    /// The weight of all keys but the listed ones.
    pub(crate) total: f64,
    /// In the order of the marks.
    pub(crate) values: Vec<f64>,
}

impl Peeled {
    /// Takes the marked keys from the cells of `rows` rows, whose contents `cell` gives, whose
    /// histogram is `cells`, and whose weight is `total`. `alone` is the estimate of a key, from
    /// the total and a function for the contents of its cells.
    ///
    /// Cost: a sort of `marks × rows` words. Memory: 16 bytes for each of them.
    #[inline(never)]
    pub(crate) fn new(
        cell: &dyn Fn(usize) -> f64,
        rows: usize,
        mut cells: Counts,
        total: f64,
        marks: &[Mark],
        alone: &Alone<'_>,
    ) -> Self {
        let slot =
            |at: usize, row: usize| (marks[at].places[row] as u64) << 32 | (at * rows + row) as u64;
        let mut slots: Vec<u64> =
            (0..marks.len()).flat_map(|at| (0..rows).map(move |row| slot(at, row))).collect();
        slots.sort_unstable();
        let at = |slot: u64| slot as u32 as usize;
        let weight = |slot| marks[at(slot) / rows].in_row(at(slot) % rows);
        // For each key and row, the weight of the other listed keys in its cell.
        let mut others = vec![0.0; slots.len()];
        for same in slots.chunk_by(|one, other| one >> 32 == other >> 32) {
            let sum: f64 = same.iter().map(|slot| weight(*slot)).sum();
            let content = cell((same[0] >> 32) as usize);
            cells.replace(content.abs() as u64, (content - sum).abs().ceil() as u64);
            for slot in same {
                others[at(*slot)] = sum - weight(*slot);
            }
        }
        let rest = total - marks.iter().map(|mark| mark.weight).sum::<f64>();
        let estimate = |(at, mark): (usize, &Mark)| {
            let others = &others[at * rows..][..rows];
            let of_key = |place| {
                let row = mark.places[..rows].iter().position(|own| *own == place);
                cell(place) - row.map_or(0.0, |row| others[row])
            };
            alone(mark, rest + mark.weight, &of_key)
        };
        let values = marks.iter().enumerate().map(estimate).collect();
        Self { cells, total: rest, values }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::float_cmp, reason = "all numbers are exact")]

    use super::*;

    /// Two rows of four cells: key 1 weighs 100, key 2 weighs 30, and an unlisted key weighs 5.
    fn peeled(weights: [f64; 2]) -> Peeled {
        let cells: [u64; 8] = [130, 0, 5, 0, 100, 35, 0, 0];
        let places = |first, second| {
            let mut places = [0; MOST_ROWS];
            places[..2].copy_from_slice(&[first, second]);
            places
        };
        let mark = |digest, weight, places| Mark { digest, weight, places, signs: 0 };
        let marks = [mark(1, weights[0], places(0, 4)), mark(2, weights[1], places(0, 5))];
        let (cell, counts) = (|place: usize| cells[place] as f64, Counts::of_cells(&cells));
        Peeled::new(&cell, 2, counts, 135.0, &marks, &|mark, total, cell| {
            assert_eq!(total, 135.0 - weights[2 - mark.digest as usize]);
            mark.places[..2].iter().map(|place| cell(*place)).fold(f64::INFINITY, f64::min)
        })
    }

    #[test]
    fn listed_keys_are_taken_from_each_others_cells() {
        let Peeled { cells, total, values } = peeled([100.0, 35.0]);
        // Key 2 is listed with 5 packets of the unlisted key, which key 1 then lacks.
        assert_eq!((total, values), (0.0, vec![95.0, 30.0]));
        // Of the cells, 130 becomes -5, and 100 and 35 become 0.
        assert_eq!(cells.zeros(), 0.75);
    }

    #[test]
    fn a_lower_weight_leaves_the_rest_to_the_cells() {
        let Peeled { cells, total, values } = peeled([100.0, 20.0]);
        // 130 becomes 10, and 35 becomes 15.
        assert_eq!((total, values), (15.0, vec![100.0, 30.0]));
        assert_eq!(cells.zeros(), 0.625);
    }
}
