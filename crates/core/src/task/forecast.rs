//! Forecasts of a sketch, which are sketches themselves.
//!
//! Paper: Krishnamurthy, Sen, Zhang and Chen, "Sketch-based change detection: methods, evaluation,
//! and applications" (IMC 2003), §3.2. The models are linear in the epochs, so that applied to each
//! cell they give the cells of the sketch that the flows' forecasts would make; the difference to
//! the cells of now is the sketch of the flows' errors.

use std::io;

use flowgauge_kernel::Zeroed;

/// The weight of the last epoch in a forecast; the rest is that of the forecast before.
pub(super) const ALPHA: f64 = 0.5;

/// The weight of the last epoch in the trend of Holt-Winters.
const BETA: f64 = 0.25;

/// Epochs of a moving average.
const WINDOW: usize = 4;

/// Silent epochs after which nothing is left of a forecast.
const FORGOTTEN_AFTER: u64 = 64;

/// How sizes are forecast from the epochs before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForecastModel {
    /// ½ the last size + ½ the last forecast.
    #[default]
    Ewma,
    /// The mean of the last 4 epochs.
    MovingAverage,
    /// A level, ½ the last size + ½ the last forecast, and a trend, ¼ the last rise of the level +
    /// ¾ the last trend.
    HoltWinters,
}

impl ForecastModel {
    /// Every model with its name on the command line.
    pub const ALL: [(&'static str, Self); 3] = [
        ("ewma", Self::Ewma),
        ("moving-average", Self::MovingAverage),
        ("holt-winters", Self::HoltWinters),
    ];

    /// Epochs whose cells are kept.
    fn window(self) -> usize {
        if self == Self::MovingAverage { WINDOW } else { 1 }
    }
}

/// Where the vectors of cells stand.
const NOW: usize = 0;
const FORECAST: usize = 1;
const ERROR: usize = 2;
const TREND: usize = 3;
/// The first of the epochs kept.
const PAST: usize = 4;

/// The cells of now, of the epochs before, of the forecast and of its error.
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

    /// The cells of this epoch, to be read from the sketch.
    pub(super) fn now_mut(&mut self) -> &mut [f64] {
        self.vector_mut(NOW)
    }

    /// Where the epoch before is kept.
    fn before(&self) -> usize {
        let window = self.model.window();
        PAST + (self.epochs + window - 1) % window
    }

    /// Now, before, forecast and error, each through `seal`.
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

    /// Closes the epoch: its cells become those of before, and part of the forecast.
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
