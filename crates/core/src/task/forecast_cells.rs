//! Changes of flows that a linear sketch measures.
//!
//! The sketch's cells are forecast, and the error of the forecast is read for the flows that the
//! sketch names: the candidates of this epoch, those of the epoch before, and those that its cells
//! alone give back. A flow that was in neither epoch's candidates was not heavy in either, and is
//! not found where the cells name no flows.

use std::io;

use flowgauge_kernel::Zeroed;

use super::ChangeItem;
use super::changes::Found;
use super::forecast::{ForecastModel, SketchForecast};
use super::registry::HistoryShape;
use crate::key::CanonicalKey;
use crate::summary::{Answers, Cells, Estimate};

/// Flows of an epoch that are remembered for the next one, at most.
const MOST_KEYS: usize = 1 << 14;

/// Cells for which one flow is remembered, in smaller sketches.
const CELLS_PER_KEY: usize = 16;

/// The history of a lane whose summary is a linear sketch.
///
/// Memory in bytes: that of [`SketchForecast`], and 76 for each flow that is remembered.
pub(super) struct CellForecasts {
    forecast: SketchForecast,
    /// The candidates of this epoch and of the one before, in order.
    now: Keys,
    before: Keys,
}

/// Up to a fixed number of keys, in order once [`Self::sort`] was called.
struct Keys {
    keys: Zeroed<CanonicalKey>,
    len: usize,
}

impl Keys {
    fn new(most: usize) -> io::Result<Self> {
        Ok(Self { keys: Zeroed::new(most)?, len: 0 })
    }

    fn push(&mut self, key: CanonicalKey) -> bool {
        let room = self.len < self.keys.len();
        if room {
            self.keys[self.len] = key;
            self.len += 1;
        }
        room
    }

    fn as_slice(&self) -> &[CanonicalKey] {
        &self.keys[..self.len]
    }

    fn sort(&mut self) {
        self.keys[..self.len].sort_unstable();
    }

    fn has(&self, key: &CanonicalKey) -> bool {
        self.as_slice().binary_search(key).is_ok()
    }
}

impl CellForecasts {
    /// Reserves the history.
    pub(super) fn new(shape: HistoryShape, model: ForecastModel) -> io::Result<Self> {
        let keys = (shape.cells / CELLS_PER_KEY).min(MOST_KEYS);
        Ok(Self {
            forecast: SketchForecast::new(model, shape.cells)?,
            now: Keys::new(keys)?,
            before: Keys::new(keys)?,
        })
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let keys = self.now.keys.memory_bytes() + self.before.keys.memory_bytes();
        self.forecast.memory_bytes() + keys
    }

    /// Whether the history was reserved for these cells.
    pub(super) fn fits(&self, cells: &dyn Cells) -> bool {
        self.forecast.cells() == cells.len()
    }

    /// Takes epochs without a packet in.
    pub(super) fn pass(&mut self, epochs: u64) {
        if epochs > 0 {
            self.before.len = 0;
            self.forecast.pass(epochs);
        }
    }

    /// Takes an epoch in, whose cells and candidates `answers` has.
    pub(super) fn run(&mut self, cells: &dyn Cells, answers: &dyn Answers, found: &mut Found) {
        cells.read(self.forecast.now_mut());
        let [now, before, forecast, error] = self.forecast.compare(|sums| cells.seal(sums));
        let consider = |key: &CanonicalKey, found: &mut Found| {
            let bytes = key.as_bytes();
            let difference = cells.estimate(error, bytes).value.abs();
            if difference > found.threshold && found.largest.admits(difference, || *key) {
                let size = |of| not_negative(cells.estimate(of, bytes));
                let item = ChangeItem {
                    key: *key,
                    before: size(before),
                    forecast: size(forecast),
                    now: size(now),
                };
                found.largest.push(difference, item);
            }
        };

        self.now.len = 0;
        if let Some(candidates) = answers.candidates() {
            candidates.for_each(&mut |key, _| {
                if !self.now.push(key) {
                    found.untracked += 1;
                    if !self.before.has(&key) {
                        consider(&key, found);
                    }
                }
            });
        }
        self.now.sort();
        for key in self.now.as_slice() {
            consider(key, found);
        }
        for key in self.before.as_slice().iter().filter(|key| !self.now.has(key)) {
            consider(key, found);
        }
        let threshold = found.threshold;
        cells.recover(error, threshold, &mut |key| {
            if !self.now.has(&key) && !self.before.has(&key) {
                consider(&key, found);
            }
        });
        std::mem::swap(&mut self.now, &mut self.before);
        self.forecast.advance();
    }
}

/// A size from cells that may say less than nothing.
fn not_negative(estimate: Estimate) -> Estimate {
    let Estimate { value, low, high, confidence } = estimate;
    Estimate { value: value.max(0.0), low: low.max(0.0), high: high.max(0.0), confidence }
}
