//! `changes`: flows that left the forecast of their size (Simple, section 5).
//!
//! The forecast is an exponentially weighted moving average: after an epoch in which a flow had
//! the size x it becomes ½x + ½ × the forecast before. After the first epoch it is x, and a flow
//! without history has the forecast 0. A flow is reported when its size and its forecast differ by
//! more than the threshold, whether it grew, appeared, shrank or vanished.
//!
//! The forecast of a flow that was silent in an epoch is 0 once it falls below half a packet (or
//! byte), and the flow is forgotten. Against an average that never forgets, no difference moves by
//! as much as 1, and a flow that was forgotten could not have been reported as vanished above any
//! threshold of 1 or more.
//!
//! The history is a table of fixed size. Flows that find no room are counted, and from the largest
//! of them, and from what the summary itself could not track, follow the upper bounds: of a
//! forecast, the average of these largest sizes on top; of the size before and of the size now, the
//! largest of that epoch, where the flow was not listed in it. What is forgotten for being small
//! counts as 0 in these bounds too, so they hold to within 2.

use super::history::{History, Record};
use super::lane::{check_exact, exact};
use super::largest::Largest;
use super::registry::{ANY_KEY, TaskEntry};
use super::{ChangeItem, EpochContext, Lane, Report, Task, Unsupported};
use crate::key::CanonicalKey;
use crate::summary::{Estimate, Flows, Measure, Size};

pub(super) const ENTRY: TaskEntry = TaskEntry {
    name: "changes",
    question: "flows whose size left its forecast",
    keys: ANY_KEY,
    by_default: false,
    build: |options| {
        let history = options.history.iter().map(|&shape| {
            let history = History::new(shape, &options.seed)?;
            Ok(Forecasts { history, unknown_before: 0, unknown_forecast: 0.0 })
        });
        let lanes = history.collect::<std::io::Result<_>>()?;
        Ok(Box::new(Changes { started: false, lanes }))
    },
};

/// The weight of the last epoch in a forecast; the rest is that of the forecast before.
const ALPHA: f64 = 0.5;

/// A silent flow whose forecast is below this is forgotten.
const FORGET_BELOW: f64 = 0.5;

struct Changes {
    /// Whether there was an epoch before.
    started: bool,
    lanes: Vec<Forecasts>,
}

/// The history of one lane.
struct Forecasts {
    history: History,
    /// The largest size that a flow not listed in the epoch before can have had in it.
    unknown_before: u64,
    /// What a forecast may lack because the flow was not listed in some epoch.
    unknown_forecast: f64,
}

/// What an epoch gathers.
struct Found {
    threshold: f64,
    by: Measure,
    largest: Largest<ChangeItem>,
    untracked: u64,
}

impl Task for Changes {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    /// A bit for each flow.
    fn scratch_bytes(&self, flows: usize) -> usize {
        flows.div_ceil(64) * size_of::<u64>()
    }

    fn history_bytes(&self) -> usize {
        self.lanes.iter().map(|lane| lane.history.memory_bytes()).sum()
    }

    fn check(&self, _: Measure, lanes: &[Lane<'_>]) -> Result<(), Unsupported> {
        for lane in lanes {
            if !self.lanes.iter().any(|l| l.history.key_bytes() == lane.key_bytes) {
                return Err(Unsupported(format!(
                    "changes needs a history for keys of {} bytes, and none was reserved",
                    lane.key_bytes
                )));
            }
        }
        check_exact(ENTRY.name, lanes)
    }

    fn pass(&mut self, epochs: u64) {
        self.started |= epochs > 0;
        for lane in &mut self.lanes {
            for _ in 0..epochs {
                lane.history.sweep(|_, record| silent(record));
                lane.remember_unknown(0, self.started);
                if lane.history.is_empty() && lane.unknown_forecast == 0.0 {
                    break;
                }
            }
        }
    }

    fn run(
        &mut self,
        epoch: &EpochContext,
        lanes: &[Lane<'_>],
        scratch: &mut [u64],
    ) -> Result<Report, Unsupported> {
        self.check(epoch.by, lanes)?;
        let mut found = Found {
            threshold: epoch.threshold_weight(),
            by: epoch.by,
            largest: Largest::new(if self.started { epoch.top } else { 0 }),
            untracked: 0,
        };
        for forecasts in &mut self.lanes {
            let key_bytes = forecasts.history.key_bytes();
            match lanes.iter().find(|lane| lane.key_bytes == key_bytes) {
                Some(lane) => {
                    let flows = exact(ENTRY.name, lane)?;
                    let unlisted = lane.answers.untracked().by(epoch.by);
                    forecasts.run(self.started, flows, unlisted, scratch, &mut found);
                }
                None => forecasts.run(self.started, &NoFlows, 0, scratch, &mut found),
            }
        }
        let threshold = self.started.then_some(found.threshold);
        self.started = true;
        let items = found.largest.into_sorted();
        Ok(Report::Changes { threshold, items, untracked: found.untracked })
    }
}

/// What becomes of the record of a flow without a packet in the epoch.
fn silent(record: Record) -> Option<Record> {
    let forecast = (1.0 - ALPHA) * record.forecast;
    (forecast >= FORGET_BELOW).then_some(Record { forecast, before: 0 })
}

impl Forecasts {
    /// Takes an epoch in, of which flows that are not listed weigh at most `unlisted`.
    fn run(
        &mut self,
        started: bool,
        flows: &dyn Flows,
        unlisted: u64,
        scratch: &mut [u64],
        found: &mut Found,
    ) {
        let by = found.by;
        let (unknown_before, unknown_forecast) = (self.unknown_before, self.unknown_forecast);
        let mut consider = |key: &[u8], record: Record, now: u64, now_at_most: u64| {
            let difference = (now as f64 - record.forecast).abs();
            if difference > found.threshold && found.largest.admits(difference, key) {
                let key = CanonicalKey::new(key);
                let Record { forecast, before } = record;
                let before_at_most = if before > 0 { before } else { unknown_before };
                let item = ChangeItem {
                    key,
                    before: at_least(before, before_at_most),
                    forecast: Estimate::between(forecast, forecast, forecast + unknown_forecast),
                    now: at_least(now, now_at_most),
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
                consider(key, record, now, now);
                let forecast = ALPHA * now as f64 + (1.0 - ALPHA) * record.forecast;
                self.history.see(at, Record { forecast, before: now });
            } else {
                consider(key, Record { forecast: 0.0, before: 0 }, now, now);
                missing[flow / 64] |= 1 << (flow % 64);
            }
            flow += 1;
        });
        self.history.sweep(|key, record| {
            consider(key, record, 0, unlisted);
            silent(record)
        });

        // Only now, since the sweep has made room.
        let mut unknown = unlisted;
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
struct NoFlows;

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
