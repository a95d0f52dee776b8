//! Answers of a reversible sketch: sizes, the keys recovered from its counters, and its cells.

use super::ReversibleRows;
use super::hashing::{FEW_FALSE, MOST_ROWS, MOST_VERIFY};
use super::search::{Heaviest, recover};
use crate::key::{CanonicalKey, FlowKey};
use crate::summary::sketch::k_ary::unbiased;
use crate::summary::sketch::rows::{Counts, Listed, Unsigned, median};
use crate::summary::{Answers, Candidates, Cells, Estimate, SizeEstimate, SizeQuery};
use crate::terms::{Measure, Size};

/// Largest number of rows of both kinds.
const MOST: usize = MOST_ROWS + MOST_VERIFY;

/// Cells of each row that the noise is estimated from. Columns are random, so the first cells are a
/// sample.
const SAMPLED: usize = 256;

/// The fraction of cells with a larger error than the noise.
const NOISY: f64 = 0.1;

/// The chance that fewer than half of `rows` rows err by more than the noise, so that their median
/// does not.
fn confidence(rows: usize) -> f64 {
    let mut term = (1.0 - NOISY).powf(rows as f64);
    let mut sum = 0.0;
    for noisy in 0..rows.div_ceil(2) {
        sum += term;
        term *= (rows - noisy) as f64 / (noisy + 1) as f64 * NOISY / (1.0 - NOISY);
    }
    sum
}

impl<K: FlowKey, C: Unsigned> ReversibleRows<K, C> {
    /// The estimate from any linear combination of cells, with `cell` reading a cell by its index.
    fn median_of(&self, key: &K, total: f64, cell: impl Fn(usize) -> f64) -> f64 {
        let mut values = [0.0; MOST];
        let rows = self.modular.all_rows();
        for (value, place) in values.iter_mut().zip(self.places(key)) {
            *value = unbiased(cell(place), total, self.modular.columns());
        }
        median(&mut values[..rows])
    }

    /// The median with Count-Min's bounds. A counter is never below the truth unless it was full.
    /// In all rows it exceeds the truth by e times the expected excess with a chance of e⁻ʳᵒʷˢ.
    fn bounds(&self, key: &K) -> Estimate {
        let least = self.least(key);
        let excess = std::f64::consts::E * self.total as f64 / self.modular.columns() as f64;
        let median =
            self.median_of(key, self.total as f64, |place| self.counters[place].get() as f64);
        let value = median.clamp(0.0, least as f64);
        Estimate {
            value,
            low: (least as f64 - excess).clamp(0.0, value),
            high: least.saturating_add(self.saturated) as f64,
            confidence: Some(1.0 - f64::exp(-(self.modular.all_rows() as f64))),
        }
    }

    /// Errors of the sizes of recovered keys. Of all possible keys, those with heavy cells are
    /// recovered, whether they had a packet or not. Some share all columns but the digest's with a
    /// heavy key.
    fn list(&self, keys: &[K]) -> Listed {
        let rows = self.modular.all_rows();
        let (mut estimates, cells) = (Counts::new(), Counts::of_cells(&self.counters));
        for key in keys {
            estimates.add(self.least(key));
        }
        let all = 256f64.powf(self.digester.key_bytes() as f64);
        let fails = |share: f64| self.modular.keys_within(share) / all;
        let chance = f64::exp(-(rows as f64)) / 2.0;
        Listed::new(&estimates, rows, &cells, all, chance, &fails)
    }

    /// The bounds of a recovered key.
    fn listed(&self, list: &Listed, key: &K) -> Estimate {
        let (asked, least) = (self.bounds(key), self.least(key) as f64);
        Estimate { low: asked.low.min((least - list.over(least)).max(0.0)), ..asked }
    }

    /// The smallest counter of a key.
    fn least(&self, key: &K) -> u64 {
        self.places(key).map(|place| self.counters[place].get()).min().unwrap_or(0)
    }

    /// Visits the keys whose cells all exceed `threshold`, with `cell` reading a cell by its index.
    /// Returns the number of heavy columns that the fullest row left out, plus one if the search
    /// was given up.
    fn recover_over(
        &self,
        threshold: f64,
        cell: impl Fn(usize) -> f64,
        visit: &mut dyn FnMut(K),
    ) -> u64 {
        let (columns, rows) = (self.modular.columns(), self.modular.rows);
        let heavy_columns = |row: usize, heaviest: &mut Heaviest| {
            for column in 0..columns {
                let value = cell(row * columns + column);
                if value > threshold {
                    heaviest.push(value, column);
                }
            }
        };
        recover(&self.modular, heavy_columns, &mut |key| {
            if self.places(&key).skip(rows).all(|place| cell(place) > threshold) {
                visit(key);
            }
        })
    }

    /// Visits the keys of this epoch that may be over the threshold. None is missing unless columns
    /// were left out or the search was given up, which the result counts.
    fn recover_heavy(&self, visit: &mut dyn FnMut(K)) -> u64 {
        let threshold = self.threshold.weight(self.total).max(0.0);
        self.recover_over(threshold, |place| self.counters[place].get() as f64, visit)
    }

    /// What each cell of a key over the threshold exceeds.
    fn in_a_row(&self, cells: &[f64], threshold: f64) -> f64 {
        let noise = cells[self.counters.len() + 1];
        (threshold - noise).max(threshold / 2.0)
    }

    /// The noise of a row: the deviation from their row's mean that all but a tenth of the cells
    /// stay within.
    fn noise(&self, cells: &[f64], total: f64) -> f64 {
        let columns = self.modular.columns();
        let sampled = cells.chunks_exact(columns).flat_map(|row| &row[..columns.min(SAMPLED)]);
        let mut errors: Vec<f64> =
            sampled.map(|cell| unbiased(*cell, total, columns).abs()).collect();
        let at = (errors.len() as f64 * (1.0 - NOISY)) as usize;
        *errors.select_nth_unstable_by(at, f64::total_cmp).1
    }
}

impl<K: FlowKey, C: Unsigned> Answers for ReversibleRows<K, C> {
    fn saturated(&self) -> Size {
        Size::of(C::MEASURE, self.saturated)
    }
    fn size(&self) -> Option<&dyn SizeQuery> {
        Some(self)
    }
    fn candidates(&self) -> Option<&dyn Candidates> {
        Some(self)
    }
    fn cells(&self) -> Option<&dyn Cells> {
        Some(self)
    }
}

impl<K: FlowKey, C: Unsigned> SizeQuery for ReversibleRows<K, C> {
    fn estimate(&self, key: &[u8]) -> SizeEstimate {
        K::matching(key, &self.digester).map_or_else(SizeEstimate::default, |key| {
            SizeEstimate::of(C::MEASURE, self.bounds(&key))
        })
    }
}

/// Recovers the keys from the counters at each call.
impl<K: FlowKey, C: Unsigned> Candidates for ReversibleRows<K, C> {
    fn for_each(&self, visit: &mut dyn FnMut(CanonicalKey, SizeEstimate)) {
        let mut keys = Vec::new();
        self.recover_heavy(&mut |key| keys.push(key));
        let list = self.list(&keys);
        for key in keys {
            visit(
                key.to_canonical(&self.digester),
                SizeEstimate::of(C::MEASURE, self.listed(&list, &key)),
            );
        }
    }

    /// Heavy columns beyond the number that can be told from chance.
    fn overflow(&self) -> u64 {
        self.recover_heavy(&mut |_| ())
    }
}

/// The counters row by row, then the total, then the noise of a row.
impl<K: FlowKey, C: Unsigned> Cells for ReversibleRows<K, C> {
    fn measure(&self) -> Measure {
        C::MEASURE
    }

    fn len(&self) -> usize {
        self.counters.len() + 2
    }

    fn read(&self, cells: &mut [f64]) {
        for (cell, counter) in cells.iter_mut().zip(self.counters.iter()) {
            *cell = counter.get() as f64;
        }
        let tail = self.counters.len();
        cells[tail] = self.total as f64;
        cells[tail + 1] = 0.0;
    }

    fn seal(&self, cells: &mut [f64]) {
        let tail = self.counters.len();
        cells[tail + 1] = self.noise(&cells[..tail], cells[tail]);
    }

    /// The median over the rows, plus or minus the noise.
    fn estimate(&self, cells: &[f64], key: &[u8]) -> Estimate {
        let Some(key) = K::matching(key, &self.digester) else { return Estimate::exact(0) };
        let tail = self.counters.len();
        let (total, noise) = (cells[tail], cells[tail + 1]);
        let value = self.median_of(&key, total, |place| cells[place]);
        let (low, high) = (value - noise, value + noise);
        Estimate { value, low, high, confidence: Some(confidence(self.modular.all_rows())) }
    }

    fn may_be_false(&self, now: &[f64], cells: &[f64], threshold: f64) -> bool {
        let (tail, columns) = (self.counters.len(), self.modular.columns());
        let share = |over: &dyn Fn(usize) -> bool| {
            (0..tail).filter(|place| over(*place)).count() as f64 / tail as f64
        };
        let heavy = self.threshold.weight(now[tail] as u64);
        let in_a_row = self.in_a_row(cells, threshold);
        let error = |place: usize| unbiased(cells[place], cells[tail], columns);
        let shares = [
            share(&|place| now[place] > heavy),
            share(&|place| error(place) > in_a_row),
            share(&|place| -error(place) > in_a_row),
        ];
        shares.map(|share| self.modular.keys_within(share)).iter().sum::<f64>() > FEW_FALSE
    }

    /// Visits keys whose size has the same sign in all rows and whose median exceeds the threshold;
    /// a single row may be below it by the noise. For either sign, a row contributes only its
    /// heaviest columns.
    fn recover(&self, cells: &[f64], threshold: f64, visit: &mut dyn FnMut(CanonicalKey)) {
        let tail = self.counters.len();
        let (total, columns) = (cells[tail], self.modular.columns());
        let in_a_row = self.in_a_row(cells, threshold);
        for sign in [1.0, -1.0] {
            let cell = |place: usize| sign * unbiased(cells[place], total, columns);
            self.recover_over(in_a_row, cell, &mut |key: K| {
                if sign * self.median_of(&key, total, |place| cells[place]) > threshold {
                    visit(key.to_canonical(&self.digester));
                }
            });
        }
    }
}
