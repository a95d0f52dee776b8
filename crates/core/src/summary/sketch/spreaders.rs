//! What a two-level sketch answers: the addresses that speak with many others, and sizes in packets.

use super::super::{Answers, Estimate, SizeEstimate, SizeQuery, Spread};
use super::reversible_search::{Heaviest, capacity, search};
use super::two_level::SpreadRows;
use crate::key::{CanonicalKey, FlowKey};
use crate::terms::Size;

/// Bounds are so many standard errors wide.
const DEVIATIONS: f64 = 3.0;

/// The chance that a normal variable is above them.
const BEYOND: f64 = 0.001_35;

impl<K: FlowKey> SpreadRows<K> {
    /// Elements that a bitmap says it has seen, by linear counting: of m bits with z zeros,
    /// m ln(m/z). A full bitmap has seen at least as many as one with a last zero.
    fn elements(&self, row: usize, bitmap: usize) -> f64 {
        let bits = self.bits as f64;
        bits * (bits / self.zeros(row, bitmap).max(1) as f64).ln()
    }

    /// Whether a bitmap says more than the options' spread, or cannot say.
    fn may_spread(&self, row: usize, bitmap: usize) -> bool {
        self.elements(row, bitmap) > self.spread as f64 || self.zeros(row, bitmap) == 0
    }

    /// The mean over the bitmaps of the first row: what others add to an address's elements.
    fn mean_elements(&self) -> f64 {
        let elements: f64 = (0..self.bitmaps).map(|bitmap| self.elements(0, bitmap)).sum();
        elements / self.bitmaps as f64
    }

    fn places(&self, key: &K) -> impl Iterator<Item = usize> {
        self.modular.places(key, &self.digester)
    }

    /// The row and the number of each bitmap of a key.
    fn bitmaps_of(&self, key: &K) -> impl Iterator<Item = (usize, usize)> {
        let columns = self.modular.columns();
        let shift = self.bitmap_shift();
        self.places(key).map(move |place| (place / columns, (place % columns) >> shift))
    }

    /// The smallest counter of a key.
    fn packets(&self, key: &K) -> u64 {
        self.places(key).map(|place| u64::from(self.counters[place])).min().unwrap_or(0)
    }

    /// Distinct elements of an address: the smallest of its bitmaps, and at most its packets. Others
    /// in its bitmaps add e times the mean in all rows with the chance e⁻ʳᵒʷˢ; besides, linear
    /// counting errs by √(m (eᵗ − t − 1)), t being elements a bit. A full bitmap says nothing about
    /// how many there are more, short of the packets.
    fn distinct(&self, key: &K, mean_elements: f64) -> Estimate {
        let packets = self.packets(key);
        let full = self.bitmaps_of(key).all(|(row, bitmap)| self.zeros(row, bitmap) == 0);
        let elements = self.bitmaps_of(key).map(|(row, bitmap)| self.elements(row, bitmap));
        let value = elements.fold(packets as f64, f64::min);
        let bits = self.bits as f64;
        let filled = value / bits;
        let error = DEVIATIONS * (bits * (filled.exp_m1() - filled).max(0.0)).sqrt();
        let most = packets.saturating_add(self.saturated) as f64;
        let others = std::f64::consts::E * mean_elements;
        let (below, high) = if full { (others, most) } else { (others + error, value + error) };
        let rows = self.modular.all_rows() as f64;
        Estimate {
            value,
            low: (value - below).max(0.0),
            high: high.clamp(value, most),
            confidence: Some(1.0 - f64::exp(-rows) - (rows + 1.0) * BEYOND),
        }
    }

    /// Visits the addresses that all rows say may spread; returns how many columns of the fullest row
    /// were left out, and one more for a search given up.
    fn recover(&self, visit: &mut dyn FnMut(K)) -> u64 {
        let (columns, rows) = (self.modular.columns(), self.modular.rows);
        let most = capacity(&self.modular);
        let mut left_out = 0;
        let mut heavy = Vec::with_capacity(rows);
        for row in 0..rows {
            let mut heaviest = Heaviest::new(most);
            for bitmap in 0..self.bitmaps {
                if !self.may_spread(row, bitmap) {
                    continue;
                }
                let elements = self.elements(row, bitmap);
                let first = bitmap << self.bitmap_shift();
                for column in first..first + (1 << self.bitmap_shift()) {
                    if u64::from(self.counters[row * columns + column]) > self.spread {
                        heaviest.push(elements, column);
                    }
                }
            }
            let (columns, more) = heaviest.into_columns();
            left_out = more.max(left_out);
            heavy.push(columns);
        }
        let given_up = search(&self.modular, &heavy, &mut |number| {
            if let Some(key) = K::from_canonical(&number.to_le_bytes()[..K::BYTES.min(8)])
                && self.packets(&key) > self.spread
                && self.bitmaps_of(&key).all(|(row, bitmap)| self.may_spread(row, bitmap))
            {
                visit(key);
            }
        });
        left_out + given_up
    }
}

impl<K: FlowKey> Answers for SpreadRows<K> {
    fn saturated(&self) -> Size {
        Size { packets: self.saturated, bytes: 0 }
    }
    fn size(&self) -> Option<&dyn SizeQuery> {
        Some(self)
    }
    fn spread(&self) -> Option<&dyn Spread> {
        Some(self)
    }
}

/// Packets by the first level, with Count-Min's bounds: it is not for bytes.
impl<K: FlowKey> SizeQuery for SpreadRows<K> {
    fn estimate(&self, key: &[u8]) -> SizeEstimate {
        let Some(key) = K::matching(key, &self.digester) else { return SizeEstimate::default() };
        let least = self.packets(&key);
        let excess = std::f64::consts::E * self.total as f64 / self.modular.columns() as f64;
        let value = least as f64;
        let packets = Estimate {
            value,
            low: (value - excess).max(0.0),
            high: least.saturating_add(self.saturated) as f64,
            confidence: Some(1.0 - f64::exp(-(self.modular.all_rows() as f64))),
        };
        SizeEstimate { packets: Some(packets), bytes: None }
    }
}

/// Recovered from counters and bitmaps each time that they are asked for.
impl<K: FlowKey> Spread for SpreadRows<K> {
    fn for_each(&self, visit: &mut dyn FnMut(CanonicalKey, Estimate)) {
        let mean_elements = self.mean_elements();
        self.recover(&mut |key| {
            visit(key.to_canonical(&self.digester), self.distinct(&key, mean_elements));
        });
    }

    /// Columns beyond those that can be told from chance.
    fn overflow(&self) -> u64 {
        self.recover(&mut |_| ())
    }
}
