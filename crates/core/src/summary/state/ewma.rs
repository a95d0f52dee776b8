//! A forecast: an exponentially weighted moving average of a key's size (Simple, §4.2).
//!
//! After an epoch in which a key had size x, its forecast becomes ½x plus half the previous
//! forecast; after the first epoch it is x. A key without packets whose forecast falls below half a
//! packet (or byte) is dropped: its forecast is then 0, like that of a key never seen. Compared
//! with an average that drops no key, no forecast differs by as much as 1.

use bytemuck::Zeroable;

use super::{Count, State};
use crate::summary::codec::{DecodeError, Reader, Writer};
use crate::summary::{Estimate, Forecast};
use crate::terms::{Measure, Size};

/// The weight of the last epoch in a forecast; the previous forecast has the rest.
const ALPHA: f64 = 0.5;

/// A key without packets whose forecast is below this is dropped.
const FORGET_BELOW: f64 = 0.5;

/// What a summary knows of past epochs, besides the state of each key.
///
/// A key that found no room in some epoch has too small a forecast. This tracks by how much at
/// most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Past {
    /// The measure of the forecast.
    by: Measure,
    /// Whether there was a previous epoch.
    started: bool,
    /// The largest size that an untracked key can have had in the previous epoch.
    before: u64,
    /// Whether keys that did have room may lack as much.
    partial: bool,
    /// The most that any forecast may lack.
    forecast: f64,
}

impl Past {
    pub(crate) fn new(by: Measure) -> Self {
        Self { by, started: false, before: 0, partial: false, forecast: 0.0 }
    }

    /// The past before the first epoch, of the same measure.
    pub(crate) fn forgotten(&self) -> Self {
        Self::new(self.by)
    }

    /// The measure of the forecast.
    pub(crate) fn by(&self) -> Measure {
        self.by
    }

    fn alpha(&self) -> f64 {
        if self.started { ALPHA } else { 1.0 }
    }

    /// The forecast after an epoch with size `now`; `None` if the key is dropped.
    fn next(&self, forecast: f64, now: u64) -> Option<f64> {
        let next = self.alpha() * now as f64 + (1.0 - ALPHA) * forecast;
        (now > 0 || next >= FORGET_BELOW).then_some(next)
    }

    /// Closes an epoch, after all keys did. `missed` is in no key's state; unless `partial`, all of
    /// it belongs to keys that found no room.
    pub(crate) fn next_epoch(&mut self, missed: Size, partial: bool) {
        let missed = missed.by(self.by);
        self.forecast = self.next(self.forecast, missed).unwrap_or(0.0);
        self.before = missed;
        self.partial = partial && missed > 0;
        self.started = true;
    }

    /// Records that a key loses its state, and thus its past, to another key. Another part of its
    /// past may be kept elsewhere.
    pub(crate) fn lose(&mut self, state: &Ewma) {
        self.before = self.before.saturating_add(state.before);
        self.partial |= state.before > 0;
        self.forecast += state.forecast;
    }

    /// The forecast of a key whose state lacks at most `missed`.
    pub(crate) fn of(&self, state: &Ewma, missed: Size) -> Forecast {
        let missed_before = if state.before == 0 || self.partial { self.before } else { 0 };
        let at_least = |value: f64, more: f64| Estimate::between(value, value, value + more);
        let now = state.size().by(self.by) as f64;
        Forecast {
            before: at_least(state.before as f64, missed_before as f64),
            forecast: self.started.then(|| at_least(state.forecast, self.forecast)),
            now: at_least(now, missed.by(self.by) as f64),
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.started |= other.started;
        self.before = self.before.saturating_add(other.before);
        // A key without room in one summary may have had room in the other.
        self.partial = self.before > 0;
        self.forecast += other.forecast;
    }

    pub(crate) fn save(&self, out: &mut Writer) {
        out.number(u8::from(self.started));
        out.number(self.before);
        out.number(u8::from(self.partial));
        out.number(self.forecast);
    }

    pub(crate) fn load(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.started = from.flag("epochs before")?;
        self.before = from.number("untracked before")?;
        self.partial = from.flag("whether the history is partial")?;
        self.forecast = load_forecast(from)?;
        Ok(())
    }
}

fn load_forecast(from: &mut Reader<'_>) -> Result<f64, DecodeError> {
    let forecast = from.number::<f64>("forecast")?;
    if forecast >= 0.0 && forecast <= u64::MAX as f64 {
        return Ok(forecast);
    }
    Err(from.invalid("forecast", size_of::<f64>(), "it is not a size"))
}

/// A counter, the size in the previous epoch, and the forecast for this one. 28 bytes.
#[derive(Clone, Copy, Zeroable)]
#[repr(C, packed(4))]
pub(crate) struct Ewma {
    count: Count,
    before: u64,
    forecast: f64,
}

impl State for Ewma {
    const NAME: &'static str = "ewma";
    const LASTING: bool = true;
    const STORED_BYTES: usize = Count::STORED_BYTES + size_of::<u64>() + size_of::<f64>();

    #[inline(always)]
    fn add(&mut self, packets: u32, bytes: u64, element: u64) -> Size {
        self.count.add(packets, bytes, element)
    }

    /// Averages are linear: the forecast of a sum is the sum of the forecasts.
    fn merge(&mut self, other: &Self) -> Size {
        self.before = { self.before }.saturating_add(other.before);
        self.forecast += other.forecast;
        self.count.merge(&other.count)
    }

    #[inline(always)]
    fn size(&self) -> Size {
        self.count.size()
    }

    fn save(&self, out: &mut Writer) {
        self.count.save(out);
        out.number(self.before);
        out.number(self.forecast);
    }

    fn load(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let state = Self::load_any(from)?;
        if state.is_silent() && state.forecast < FORGET_BELOW {
            return Err(from.invalid("forecast", size_of::<f64>(), "it should have been dropped"));
        }
        Ok(state)
    }

    fn is_nothing(&self) -> bool {
        self.is_silent() && self.forecast == 0.0
    }

    #[inline(always)]
    fn outweighs(&self, limit: f64, by: Measure) -> bool {
        (self.size().by(by) as f64).max(self.forecast) > limit
    }

    fn next_epoch(&mut self, past: &Past) -> bool {
        let now = self.size().by(past.by);
        let next = past.next(self.forecast, now);
        *self = Self { count: Count::zeroed(), before: now, forecast: next.unwrap_or(0.0) };
        next.is_some()
    }

    fn ewma(&self) -> Option<&Ewma> {
        Some(self)
    }
}

impl Ewma {
    /// The forecast for the current epoch.
    pub(crate) fn forecast(&self) -> f64 {
        self.forecast
    }

    /// The state without `other`, which is a part of it.
    pub(crate) fn minus(&self, other: &Self) -> Self {
        Self {
            count: self.count.minus(&other.count),
            before: { self.before }.saturating_sub(other.before),
            forecast: (self.forecast - other.forecast).max(0.0),
        }
    }

    /// Reads a stored state, which may be empty.
    pub(crate) fn load_any(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let count = Count::load_any(from)?;
        Ok(Self { count, before: from.number("size before")?, forecast: load_forecast(from)? })
    }
}
