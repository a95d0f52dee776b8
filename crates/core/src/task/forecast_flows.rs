//! Forecasts of single flows, in a table of their own.
//!
//! The forecast is an exponentially weighted moving average: after an epoch in which a flow had
//! the size x it becomes ½x + ½ × the forecast before. After the first epoch it is x, and a flow
//! without history has the forecast 0.
//!
//! The forecast of a flow that was silent in an epoch is 0 once it falls below half a packet (or
//! byte), and the flow is forgotten. Against an average that never forgets, no difference moves by
//! as much as 1, and a flow that was forgotten could not have been reported as vanished above any
//! threshold of 1 or more.
//!
//! The history is a table of fixed size. Flows that find no room are counted, and from the largest
//! of them, and from what the summary itself could not track, follow the upper bounds: of a
//! forecast, the average of these largest sizes on top; of the size before, the largest of that
//! epoch, where the flow was not listed in it. The size now of a flow that is not listed is what the
//! summary answers when asked for it, or else at most the largest of this epoch. What is forgotten for being small
//! counts as 0 in these bounds too, so they hold to within 2.

use std::io;

use flowgauge_kernel::Seed;

use super::ChangeItem;
use super::changes::Found;
use super::forecast::ALPHA;
use super::history::{History, Record};
use super::registry::HistoryShape;
use crate::key::CanonicalKey;
use crate::summary::{Estimate, Flows, SizeQuery};
use crate::terms::{Measure, Size};

/// A silent flow whose forecast is below this is forgotten.
const FORGET_BELOW: f64 = 0.5;

/// The history of one lane.
pub(super) struct FlowForecasts {
    history: History,
    /// The largest size that a flow not listed in the epoch before can have had in it.
    unknown_before: u64,
    /// What a forecast may lack because the flow was not listed in some epoch.
    unknown_forecast: f64,
}

/// The flows of an epoch that are not listed.
pub(super) struct Unlisted<'a> {
    /// What they weigh at most.
    pub(super) most: u64,
    /// Sizes of given flows, where the summary knows them.
    pub(super) sizes: Option<&'a dyn SizeQuery>,
}

impl Unlisted<'_> {
    /// None.
    pub(super) const NONE: Self = Self { most: 0, sizes: None };

    /// The size of one of them.
    fn size(&self, key: &[u8], by: Measure) -> Estimate {
        let sizes = self.sizes.filter(|_| self.most > 0);
        let asked = sizes.and_then(|sizes| sizes.estimate(key).by(by));
        asked.unwrap_or_else(|| at_least(0, self.most))
    }
}

/// What becomes of the record of a flow without a packet in the epoch.
fn silent(record: Record) -> Option<Record> {
    let forecast = (1.0 - ALPHA) * record.forecast;
    (forecast >= FORGET_BELOW).then_some(Record { forecast, before: 0 })
}

impl FlowForecasts {
    /// Reserves the table.
    pub(super) fn new(shape: HistoryShape, seed: &Seed) -> io::Result<Self> {
        let history = History::new(shape, seed)?;
        Ok(Self { history, unknown_before: 0, unknown_forecast: 0.0 })
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.history.memory_bytes()
    }

    /// Takes epochs without a packet in.
    pub(super) fn pass(&mut self, epochs: u64, started: bool) {
        for _ in 0..epochs {
            self.history.sweep(|_, record| silent(record));
            self.remember_unknown(0, started);
            if self.history.is_empty() && self.unknown_forecast == 0.0 {
                break;
            }
        }
    }

    /// Takes an epoch in.
    pub(super) fn run(
        &mut self,
        started: bool,
        flows: &dyn Flows,
        unlisted: &Unlisted<'_>,
        scratch: &mut [u64],
        found: &mut Found,
    ) {
        let by = found.by;
        let (unknown_before, unknown_forecast) = (self.unknown_before, self.unknown_forecast);
        let mut consider = |key: &[u8], record: Record, now: Estimate| {
            let difference = (now.value - record.forecast).abs();
            if difference > found.threshold
                && found.largest.admits(difference, || CanonicalKey::new(key))
            {
                let key = CanonicalKey::new(key);
                let Record { forecast, before } = record;
                let before_at_most = if before > 0 { before } else { unknown_before };
                let item = ChangeItem {
                    key,
                    before: at_least(before, before_at_most),
                    forecast: Estimate::between(forecast, forecast, forecast + unknown_forecast),
                    now,
                };
                found.largest.push(difference, item);
            }
        };

        let missing = &mut scratch[..flows.len().div_ceil(64)];
        missing.fill(0);
        let mut flow = 0;
        flows.for_each(&mut |key, size| {
            let now = size.by(by);
            if let Some(at) = self.history.find(key) {
                let record = self.history.get(at);
                consider(key, record, Estimate::exact(now));
                let forecast = ALPHA * now as f64 + (1.0 - ALPHA) * record.forecast;
                self.history.see(at, Record { forecast, before: now });
            } else {
                consider(key, Record { forecast: 0.0, before: 0 }, Estimate::exact(now));
                missing[flow / 64] |= 1 << (flow % 64);
            }
            flow += 1;
        });
        self.history.sweep(|key, record| {
            consider(key, record, unlisted.size(key, by));
            silent(record)
        });

        // Only now, since the sweep has made room.
        let mut unknown = unlisted.most;
        let first_alpha = if started { ALPHA } else { 1.0 };
        flow = 0;
        flows.for_each(&mut |key, size| {
            if missing[flow / 64] >> (flow % 64) & 1 == 1 {
                let now = size.by(by);
                let record = Record { forecast: first_alpha * now as f64, before: now };
                if !self.history.insert(key, record) {
                    found.untracked += 1;
                    unknown = unknown.max(now);
                }
            }
            flow += 1;
        });
        self.remember_unknown(unknown, started);
    }

    /// Updates the bounds with the largest size of the epoch that has no record.
    fn remember_unknown(&mut self, largest: u64, started: bool) {
        let alpha = if started { ALPHA } else { 1.0 };
        let forecast = alpha * largest as f64 + (1.0 - ALPHA) * self.unknown_forecast;
        self.unknown_forecast = if forecast >= FORGET_BELOW { forecast } else { 0.0 };
        self.unknown_before = largest;
    }
}

fn at_least(value: u64, at_most: u64) -> Estimate {
    Estimate::between(value as f64, value as f64, at_most as f64)
}

/// A lane that is not there.
pub(super) struct NoFlows;

impl Flows for NoFlows {
    fn most(&self) -> usize {
        0
    }

    fn len(&self) -> usize {
        0
    }

    fn get(&self, _: usize) -> (&[u8], Size) {
        (&[], Size::default())
    }

    fn for_each(&self, _: &mut dyn FnMut(&[u8], Size)) {}
}
