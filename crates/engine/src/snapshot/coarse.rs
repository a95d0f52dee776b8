//! Answers for a coarser key than the measured one: sums over the keys of a summary.

use std::collections::BTreeMap;

use flowgauge_core::any::AnySummary;
use flowgauge_core::key::{CanonicalKey, Coarser, KeySpec};
use flowgauge_core::summary::{Answers, Candidates, Estimate, Flows, SizeEstimate, SizeQuery};
use flowgauge_core::terms::{Measure, Size};

use crate::error::EngineError;
use crate::sink::units;
use crate::summaries::{Summaries, View};

const MEASURES: [Measure; 2] = [Measure::Packets, Measure::Bytes];

/// The lanes of a coarser key, as sums over the measured keys.
pub(super) struct Coarse {
    /// A lane for each width of the coarser keys.
    lanes: Vec<(usize, Lane)>,
    /// Notes for the reader of the report.
    pub(super) notes: Vec<String>,
}

impl Coarse {
    /// Sums the keys of `from` by the keys of `to`. The summaries measured `measured` in all, by
    /// `by`.
    ///
    /// # Errors
    /// When `to` cannot be derived from `from`, or the summaries do not hold whole keys whose sizes
    /// surely add up.
    pub(super) fn new(
        (from, to): (KeySpec, KeySpec),
        summaries: &Summaries,
        (measured, by): (Size, Measure),
    ) -> Result<Self, EngineError> {
        let map = Coarser::new(from, to)?;
        let refused = |reason: &str| EngineError::Coarser { from, to, reason: reason.to_owned() };
        if from.kind().is_either() && from != to {
            return Err(refused("a packet between two hosts of one prefix would count twice"));
        }
        let all: Vec<_> = summaries.lanes.iter().map(AnySummary::answers).collect();
        let mut lanes: Vec<(usize, Sums)> = Vec::new();
        let tables = all.iter().all(|answers| answers.flows().is_some());
        for (at, answers) in all.iter().enumerate() {
            let mut sums = Sums::default();
            match (answers.flows().filter(|_| tables), answers.candidates()) {
                (Some(flows), _) => flows.for_each(&mut |key, size| sums.add(map.key(key), size)),
                (None, Some(candidates)) => {
                    candidates.for_each(&mut |key, size| sums.bound(map.key(key.as_bytes()), size));
                }
                (None, None) => return Err(refused("the summary does not hold whole keys")),
            }
            if sums.unsure {
                return Err(refused(
                    "the bounds of its sizes hold for each key with a probability, but not for \
                     sums of keys",
                ));
            }
            (sums.untracked, sums.saturated) = (answers.untracked(), answers.saturated());
            // Keys without an address are the same in IPv4 and IPv6.
            let width = to.lanes()[at.min(to.lanes().len() - 1)];
            match lanes.iter_mut().find(|(bytes, _)| *bytes == width) {
                Some((_, own)) => own.join(sums),
                None => lanes.push((width, sums)),
            }
        }
        let mut notes = vec![format!("answers by {to} are sums of flows by {from}")];
        // Traffic that surely belongs to no candidate may belong to any key.
        let known: Size = lanes.iter().map(|(_, sums)| sums.low()).sum();
        let rest = Size {
            packets: measured.packets.saturating_sub(known.packets),
            bytes: measured.bytes.saturating_sub(known.bytes),
        };
        if !tables && rest.by(by) > 0 {
            let rest = match by {
                Measure::Packets => units::plural(rest.packets, "packet"),
                Measure::Bytes => units::bytes(rest.bytes as f64),
            };
            notes.push(format!(
                "keys without a candidate may be missing: the keys of {rest} are unknown"
            ));
        }
        let lane = |(bytes, sums): (usize, Sums)| (bytes, Lane::new(sums, tables, rest));
        Ok(Self { lanes: lanes.into_iter().map(lane).collect(), notes })
    }

    /// The tasks' view.
    pub(super) fn view(&self, key: KeySpec) -> View<'_> {
        View::of(key, self.lanes.iter().map(|(bytes, lane)| (*bytes, lane as &dyn Answers)))
    }
}

/// Sums by key, in order of keys.
#[derive(Default)]
struct Sums {
    keys: BTreeMap<CanonicalKey, Sum>,
    untracked: Size,
    saturated: Size,
    /// Whether some bound holds only with a probability.
    unsure: bool,
}

/// The lower bound and the estimate of a key's traffic, in packets and in bytes if the summary has
/// both.
#[derive(Clone, Copy, Default)]
struct Sum {
    low: Size,
    value: [Option<f64>; 2],
}

impl Sums {
    fn add(&mut self, key: CanonicalKey, size: Size) {
        self.keys.entry(key).or_default().low += size;
    }

    fn bound(&mut self, key: CanonicalKey, size: SizeEstimate) {
        let sum = self.keys.entry(key).or_default();
        let mut low = [0; 2];
        for ((by, low), value) in MEASURES.into_iter().zip(&mut low).zip(&mut sum.value) {
            if let Some(estimate) = size.by(by) {
                self.unsure |= estimate.confidence.is_some();
                *low = estimate.low.max(0.0) as u64;
                *value = Some(value.unwrap_or_default() + estimate.value);
            }
        }
        sum.low += Size { packets: low[0], bytes: low[1] };
    }

    fn join(&mut self, other: Self) {
        for (key, sum) in other.keys {
            let own = self.keys.entry(key).or_default();
            own.low += sum.low;
            for (own, value) in own.value.iter_mut().zip(sum.value) {
                *own = own.zip(value).map(|(own, value)| own + value).or(*own).or(value);
            }
        }
        self.untracked += other.untracked;
        self.saturated += other.saturated;
    }

    /// The sum of the lower bounds.
    fn low(&self) -> Size {
        self.keys.values().map(|sum| sum.low).sum()
    }
}

/// A lane: the keys of one width.
struct Lane {
    keys: Vec<(CanonicalKey, Sum)>,
    untracked: Size,
    saturated: Size,
    /// Whether the keys have all packets except the untracked ones.
    table: bool,
    /// Traffic that may belong to any key in addition to its sum.
    missed: Size,
}

impl Lane {
    fn new(sums: Sums, table: bool, rest: Size) -> Self {
        let Sums { keys, untracked, saturated, .. } = sums;
        let missed = if table { untracked + saturated } else { rest };
        Self { keys: keys.into_iter().collect(), untracked, saturated, table, missed }
    }

    fn estimate_of(&self, sum: &Sum) -> SizeEstimate {
        let high = sum.low + self.missed;
        if self.table {
            return SizeEstimate::between(sum.low, sum.low, high);
        }
        let bounded = |at: usize, by: Measure| {
            let (low, high) = (sum.low.by(by) as f64, high.by(by) as f64);
            sum.value[at].map(|value| Estimate::between(low, value.clamp(low, high), high))
        };
        SizeEstimate { packets: bounded(0, Measure::Packets), bytes: bounded(1, Measure::Bytes) }
    }
}

impl Answers for Lane {
    fn untracked(&self) -> Size {
        self.untracked
    }
    fn saturated(&self) -> Size {
        self.saturated
    }
    fn flows(&self) -> Option<&dyn Flows> {
        self.table.then_some(self)
    }
    fn size(&self) -> Option<&dyn SizeQuery> {
        self.table.then_some(self)
    }
    fn candidates(&self) -> Option<&dyn Candidates> {
        Some(self)
    }
}

impl Flows for Lane {
    fn len(&self) -> usize {
        self.keys.len()
    }

    fn most(&self) -> usize {
        self.keys.len()
    }

    fn get(&self, index: usize) -> (&[u8], Size) {
        let (key, sum) = &self.keys[index];
        (key.as_bytes(), sum.low)
    }

    fn for_each(&self, visit: &mut dyn FnMut(&[u8], Size)) {
        self.keys.iter().for_each(|(key, sum)| visit(key.as_bytes(), sum.low));
    }

    fn may_lack(&self) -> Size {
        self.untracked
    }
}

impl SizeQuery for Lane {
    fn estimate(&self, key: &[u8]) -> SizeEstimate {
        let found = self.keys.binary_search_by(|(own, _)| own.cmp(&CanonicalKey::new(key)));
        let none = Sum::default();
        self.estimate_of(found.map_or(&none, |at| &self.keys[at].1))
    }
}

impl Candidates for Lane {
    fn for_each(&self, visit: &mut dyn FnMut(CanonicalKey, SizeEstimate)) {
        self.keys.iter().for_each(|(key, sum)| visit(*key, self.estimate_of(sum)));
    }

    fn overflow(&self) -> u64 {
        0
    }

    fn unnamed(&self, by: Measure) -> Option<f64> {
        Some(self.missed.by(by) as f64)
    }
}
