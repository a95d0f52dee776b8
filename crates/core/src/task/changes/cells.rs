//! Changes of flows in a linear sketch.
//!
//! The cells of the sketch are forecast, and the error of the forecast is queried for the
//! candidates of this epoch, for those of earlier epochs while their forecast is more than half of
//! the threshold, and for flows that are recovered from the cells alone. A flow that was never a
//! candidate was never heavy, and is missed by sketches that cannot recover flows.
//!
//! A forecast of a sketch is itself a sketch.
//!
//! Paper: Krishnamurthy, Sen, Zhang and Chen, "Sketch-based change detection: methods, evaluation,
//! and applications" (IMC 2003), §3.2. The models are linear in the epochs. So applying them to
//! each cell gives the sketch of the flows' forecasts, and its difference from the current cells is
//! the sketch of the flows' forecast errors.

use std::io;

use flowgauge_kernel::Zeroed;

use super::{ALPHA, ForecastModel, Found};
use crate::key::CanonicalKey;
use crate::summary::{Answers, Cells, Estimate};
use crate::task::{ChangeItem, HistoryShape};

/// Maximum number of flows of an epoch that are kept for the next one.
const MOST_KEYS: usize = 1 << 14;

/// In smaller sketches, one flow is kept for this number of cells.
const CELLS_PER_KEY: usize = 16;

/// The history of a lane whose summary is a linear sketch.
///
/// Memory in bytes: that of [`SketchForecast`], and 76 for each flow that is kept.
pub(super) struct CellForecasts {
    forecast: SketchForecast,
    /// The candidates of this epoch; those of the previous one, and others with a large forecast.
    /// Both are sorted.
    now: Keys,
    before: Keys,
}

/// A list of keys of fixed capacity, sorted after a call of [`Self::sort`].
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

    /// Records epochs without a packet.
    pub(super) fn pass(&mut self, epochs: u64) {
        if epochs > 0 {
            self.forecast.pass(epochs);
        }
    }

    /// Records an epoch, with the cells and candidates of `answers`.
    pub(super) fn run(&mut self, cells: &dyn Cells, answers: &dyn Answers, found: &mut Found) {
        cells.read(self.forecast.now_mut());
        let may_be_negative = self.forecast.model == ForecastModel::HoltWinters;
        let [now, before, forecast, error] = self.forecast.compare(|sums| cells.seal(sums));
        let may_be_false = cells.may_be_false(now, error, found.threshold);
        let consider = |key: &CanonicalKey, found: &mut Found| {
            let bytes = key.as_bytes();
            let error = cells.estimate(error, bytes).value;
            if error.abs() <= found.threshold {
                return;
            }
            let size = |of| {
                let size = not_negative(cells.estimate(of, bytes));
                Estimate { low: if may_be_false { 0.0 } else { size.low }, ..size }
            };
            let (now, forecast) = (size(now), size(forecast));
            let difference = (now.value - forecast.value).abs();
            // A forecast below 0 counts as 0.
            if may_be_negative && forecast.value <= 0.0 && difference <= found.threshold {
                return;
            }
            if found.largest.admits(difference, || *key) {
                let item = ChangeItem { key: *key, before: size(before), forecast, now };
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
        self.forecast.advance();
        let forecast = self.forecast.next(|sums| cells.seal(sums));
        let candidates = self.now.len;
        for key in self.before.as_slice() {
            let is_expected = cells.estimate(forecast, key.as_bytes()).value > threshold / 2.0;
            let is_other = self.now.keys[..candidates].binary_search(key).is_err();
            if is_expected && is_other && !self.now.push(*key) {
                found.untracked += 1;
            }
        }
        self.now.sort();
        std::mem::swap(&mut self.now, &mut self.before);
    }
}

/// Clamps a size from cells, which may be negative, to 0.
fn not_negative(estimate: Estimate) -> Estimate {
    let Estimate { value, low, high, confidence } = estimate;
    Estimate { value: value.max(0.0), low: low.max(0.0), high: high.max(0.0), confidence }
}

/// The weight of the last epoch in the trend of Holt-Winters.
const BETA: f64 = 0.25;

/// Epochs of a moving average.
const WINDOW: usize = 4;

/// Number of empty epochs after which a forecast is 0.
const FORGOTTEN_AFTER: u64 = 64;

impl ForecastModel {
    /// Number of epochs whose cells are kept.
    fn window(self) -> usize {
        if self == Self::MovingAverage { WINDOW } else { 1 }
    }
}

/// Indices of the vectors of cells.
const NOW: usize = 0;
const FORECAST: usize = 1;
const ERROR: usize = 2;
const TREND: usize = 3;
/// Index of the first of the kept epochs.
const PAST: usize = 4;

/// The cells of the current epoch, of earlier epochs, of the forecast and of its error.
///
/// Memory in bytes: 40 for each cell, 64 for a moving average.
pub(super) struct SketchForecast {
    model: ForecastModel,
    epochs: usize,
    cells: usize,
    vectors: Zeroed<f64>,
}

impl SketchForecast {
    /// Reserves the vectors of `cells` cells.
    pub(super) fn new(model: ForecastModel, cells: usize) -> io::Result<Self> {
        let vectors = (PAST + model.window()).checked_mul(cells);
        let vectors = Zeroed::new(vectors.ok_or(io::ErrorKind::OutOfMemory)?)?;
        Ok(Self { model, epochs: 0, cells, vectors })
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.vectors.memory_bytes()
    }

    pub(super) fn cells(&self) -> usize {
        self.cells
    }

    fn vector(&self, number: usize) -> &[f64] {
        &self.vectors[number * self.cells..][..self.cells]
    }

    fn vector_mut(&mut self, number: usize) -> &mut [f64] {
        &mut self.vectors[number * self.cells..][..self.cells]
    }

    /// The cells of the current epoch, which the caller reads from the sketch.
    pub(super) fn now_mut(&mut self) -> &mut [f64] {
        self.vector_mut(NOW)
    }

    /// The index of the previous epoch's vector.
    fn before(&self) -> usize {
        let window = self.model.window();
        PAST + (self.epochs + window - 1) % window
    }

    /// The vectors now, before, forecast and error, after a call of `seal` for each.
    pub(super) fn compare(&mut self, mut seal: impl FnMut(&mut [f64])) -> [&[f64]; 4] {
        for cell in 0..self.cells {
            self.vectors[ERROR * self.cells + cell] =
                self.vectors[NOW * self.cells + cell] - self.vectors[FORECAST * self.cells + cell];
        }
        let numbers = [NOW, self.before(), FORECAST, ERROR];
        for number in numbers {
            seal(self.vector_mut(number));
        }
        numbers.map(|number| self.vector(number))
    }

    /// The forecast of the open epoch, after a call of `seal`.
    fn next(&mut self, seal: impl FnOnce(&mut [f64])) -> &[f64] {
        seal(self.vector_mut(FORECAST));
        self.vector(FORECAST)
    }

    /// Closes the epoch: its cells become those of the previous epoch, and enter the forecast.
    pub(super) fn advance(&mut self) {
        let (cells, window) = (self.cells, self.model.window());
        let kept = (self.epochs + 1).min(window);
        let slot = PAST + self.epochs % window;
        let first = self.epochs == 0;
        let vectors = &mut self.vectors[..];
        for cell in 0..cells {
            let at = |vector: usize| vector * cells + cell;
            let now = vectors[at(NOW)];
            vectors[at(slot)] = now;
            let forecast = vectors[at(FORECAST)];
            let level = if first { now } else { ALPHA * now + (1.0 - ALPHA) * forecast };
            vectors[at(FORECAST)] = match self.model {
                ForecastModel::Ewma => level,
                ForecastModel::MovingAverage => {
                    (0..kept).map(|epoch| vectors[at(PAST + epoch)]).sum::<f64>() / kept as f64
                }
                ForecastModel::HoltWinters => {
                    let trend = vectors[at(TREND)];
                    let rise = if first { 0.0 } else { level - (forecast - trend) };
                    let trend = BETA * rise + (1.0 - BETA) * trend;
                    vectors[at(TREND)] = trend;
                    level + trend
                }
            };
        }
        self.epochs += 1;
    }

    /// Closes epochs without a packet.
    pub(super) fn pass(&mut self, epochs: u64) {
        self.now_mut().fill(0.0);
        for _ in 0..epochs.min(FORGOTTEN_AFTER) {
            self.advance();
        }
        if epochs > FORGOTTEN_AFTER {
            self.vectors.fill(0.0);
        }
    }
}
