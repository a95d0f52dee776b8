//! A forecast: an exponentially weighted moving average of a key's size (Simple, §4.2).
//!
//! After an epoch in which a key had the size x its forecast becomes ½x + ½ × the forecast before;
//! after the first epoch it is x. A silent key whose forecast falls below half a packet (or byte)
//! is forgotten: its forecast is then 0, as that of a key never seen. Against an average that never
//! forgets, no difference moves by as much as 1.

use bytemuck::Zeroable;

use super::super::codec::{DecodeError, Reader, Writer};
use super::super::{Estimate, Forecast};
use super::{Count, State};
use crate::terms::{Measure, Size};

/// The weight of the last epoch in a forecast; the rest is that of the forecast before.
const ALPHA: f64 = 0.5;

/// A silent key whose forecast is below this is forgotten.
const FORGET_BELOW: f64 = 0.5;

/// What is known of the epochs before, besides what each key remembers.
///
/// A key that found no room in some epoch has less behind it than it should: it follows how much
/// that can be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Past {
    /// What is forecast.
    by: Measure,
    /// Whether there was an epoch before.
    started: bool,
    /// What an untracked key can have had at most in the epoch before.
    before: u64,
    /// Whether keys that had room in it may have had as much more.
    partial: bool,
    /// What a forecast may lack.
    forecast: f64,
}

impl Past {
    pub(crate) fn new(by: Measure) -> Self {
        Self { by, started: false, before: 0, partial: false, forecast: 0.0 }
    }

    /// The same before the first epoch.
    pub(crate) fn forgotten(&self) -> Self {
        Self::new(self.by)
    }

    /// What is forecast.
    pub(crate) fn by(&self) -> Measure {
        self.by
    }

    fn alpha(&self) -> f64 {
        if self.started { ALPHA } else { 1.0 }
    }

    /// What the epochs make of a forecast; `None` where it is forgotten.
    fn next(&self, forecast: f64, now: u64) -> Option<f64> {
        let next = self.alpha() * now as f64 + (1.0 - ALPHA) * forecast;
        (now > 0 || next >= FORGET_BELOW).then_some(next)
    }

    /// Closes an epoch, after every key did: `missed` is what is in no key's state. Unless it is
    /// `partial`, all of that is of keys without room.
    pub(crate) fn next_epoch(&mut self, missed: Size, partial: bool) {
        let missed = missed.by(self.by);
        self.forecast = self.next(self.forecast, missed).unwrap_or(0.0);
        self.before = missed;
        self.partial = partial && missed > 0;
        self.started = true;
    }

    /// Takes note of a key whose state makes way for another key's, with all its past; another part
    /// of that past may be kept elsewhere.
    pub(crate) fn lose(&mut self, state: &Ewma) {
        self.before = self.before.saturating_add(state.before);
        self.partial |= state.before > 0;
        self.forecast += state.forecast;
    }

    /// The forecast of a key of which at most `missed` is not in its state.
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
        // What one had no room for may be of keys that the other had room for.
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

/// A counter, the size in the epoch before, and the forecast for this one. 28 bytes.
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

    /// Averages are linear: that of a sum is the sum of theirs.
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
    /// The forecast for the epoch that is open.
    pub(crate) fn forecast(&self) -> f64 {
        self.forecast
    }

    /// What is left without another one, which is a part of it.
    pub(crate) fn minus(&self, other: &Self) -> Self {
        Self {
            count: self.count.minus(&other.count),
            before: { self.before }.saturating_sub(other.before),
            forecast: (self.forecast - other.forecast).max(0.0),
        }
    }

    /// The stored form of any state, also of none.
    pub(crate) fn load_any(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let count = Count::load_any(from)?;
        Ok(Self { count, before: from.number("size before")?, forecast: load_forecast(from)? })
    }
}
