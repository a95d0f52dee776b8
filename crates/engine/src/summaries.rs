//! The summaries of one worker, and the view that tasks have of several workers' summaries.

use flowgauge_core::accelerator::HeaderRate;
use flowgauge_core::any::{AnySummary, BatchMut};
use flowgauge_core::audit::{Audit, Observed};
use flowgauge_core::batcher::Take;
use flowgauge_core::key::{CanonicalKey, KeySpec};
use flowgauge_core::summary::{
    Answers, Candidates, Details, Estimate, Flows, Incompatible, Reads, Seen, Setting,
    SizeEstimate, SizeQuery, Spread,
};
use flowgauge_core::task;
use flowgauge_core::terms::{Measure, Size};

use crate::intake::Ended;

/// Empty epochs after which every forecast is forgotten: it halves in each of them, and is dropped
/// below ½.
const FORGOTTEN: u64 = 66;

/// A summary for each measured lane, and an audit of each if the configuration asks for it.
pub(crate) struct Summaries {
    pub(crate) lanes: Vec<AnySummary>,
    pub(crate) audits: Vec<Audit>,
}

/// The summaries of one worker for an epoch, or for the part of it since an update.
pub(crate) struct Set {
    pub(crate) summaries: Summaries,
    /// Packets and bytes ingested.
    pub(crate) ingested: Size,
    /// The end of the epoch, in the set of the first worker.
    pub(crate) ended: Option<Ended>,
}

/// All summaries of a measurement, in sets of the same size.
pub(crate) struct Sets {
    /// The sets of each measuring thread: one, or two that are swapped. Concurrent summaries are in
    /// one set that all threads fill.
    pub(crate) workers: Vec<Vec<Summaries>>,
    /// The sets into which the closer merges what was handed over, if updates are made.
    pub(crate) sums: Vec<Summaries>,
}

impl Sets {
    /// The first set; all others are like it.
    pub(crate) fn first(&self) -> &Summaries {
        &self.workers[0][0]
    }

    /// All sets.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Summaries> {
        self.workers.iter().flatten().chain(&self.sums)
    }
}

impl Set {
    pub(crate) fn new(summaries: Summaries) -> Self {
        Self { summaries, ingested: Size::default(), ended: None }
    }

    /// Ingests a batch of a lane.
    #[inline]
    pub(crate) fn ingest(&mut self, lane: usize, batch: BatchMut<'_>) {
        self.ingested += batch.size();
        self.summaries.take(lane, batch);
    }
}

impl Take for Summaries {
    #[inline]
    fn take(&mut self, lane: usize, mut batch: BatchMut<'_>) {
        // The audit goes first, since a summary may change the batch.
        if let Some(audit) = self.audits.get_mut(lane) {
            audit.ingest(&mut batch);
        }
        if let Some(summary) = self.lanes.get_mut(lane) {
            summary.ingest(batch);
        }
    }
}

impl Summaries {
    /// The sampling rate, if the meter samples before headers.
    pub(crate) fn header_rate(&self) -> Option<HeaderRate> {
        self.lanes.first()?.header_rate()
    }

    /// Notes that this many packets of the epoch were skipped. A packet that was read represents at
    /// most `one_in` packets.
    pub(crate) fn passed_over(&mut self, packets: u64, one_in: u64) {
        self.lanes.iter_mut().for_each(|summary| summary.passed_over(packets, one_in));
    }

    /// Whether all workers fill these summaries.
    pub(crate) fn is_concurrent(&self) -> bool {
        self.lanes.iter().any(AnySummary::is_concurrent)
    }

    /// More handles of the same concurrent summaries; `None` if one worker owns the summaries.
    pub(crate) fn another(&self) -> Option<Self> {
        let lanes = self.lanes.iter().map(AnySummary::another).collect::<Option<_>>()?;
        Some(Self { lanes, audits: Vec::new() })
    }

    /// Makes concurrent summaries readable, and begins the next epoch for the workers.
    ///
    /// # Errors
    /// When another handle exists.
    pub(crate) fn collect(&mut self) -> Result<(), Incompatible> {
        self.lanes.iter_mut().try_for_each(AnySummary::collect)
    }

    /// Flushes what accelerators hold back. Answers are complete only after this.
    pub(crate) fn settle(&mut self) {
        self.lanes.iter_mut().for_each(AnySummary::settle);
        self.audits.iter_mut().for_each(Audit::settle);
    }

    /// Begins a new epoch. Concurrent summaries began it when they were collected. No forecast follows
    /// from an epoch that was not observed as a whole.
    pub(crate) fn next_epoch(&mut self, is_whole: bool) {
        if !is_whole && self.is_lasting() {
            return self.clear();
        }
        self.lanes.iter_mut().for_each(AnySummary::next_epoch);
        self.audits.iter_mut().for_each(Audit::clear);
    }

    /// Passes over empty epochs, which affect only forecasts.
    pub(crate) fn pass(&mut self, epochs: u64) {
        if self.is_lasting() {
            (0..epochs.min(FORGOTTEN)).for_each(|_| self.next_epoch(true));
        }
    }

    /// Forgets everything, forecasts included.
    pub(crate) fn clear(&mut self) {
        self.lanes.iter_mut().for_each(AnySummary::clear);
        self.audits.iter_mut().for_each(Audit::clear);
    }

    /// Begins another part of the same epoch, which will be merged into a sum.
    pub(crate) fn next_part(&mut self) {
        self.lanes.iter_mut().for_each(AnySummary::next_part);
        self.audits.iter_mut().for_each(Audit::next_part);
    }

    /// Merges what another worker measured with the same options.
    pub(crate) fn merge(&mut self, other: &Self) -> Result<(), Incompatible> {
        self.lanes.iter_mut().zip(&other.lanes).try_for_each(|(own, other)| own.merge(other))?;
        self.audits.iter_mut().zip(&other.audits).try_for_each(|(own, other)| own.merge(other))
    }

    /// The columns of batches that they read. Audits are exact tables.
    pub(crate) fn reads(&self) -> Reads {
        let audits = if self.audits.is_empty() { Reads::NOTHING } else { Reads::BYTES };
        self.lanes.iter().map(AnySummary::reads).fold(audits, Reads::or)
    }

    /// Whether they keep forecasts from epoch to epoch.
    pub(crate) fn is_lasting(&self) -> bool {
        self.lanes.iter().any(|summary| summary.answers().forecasts().is_some())
    }

    /// Bytes reserved by the audits.
    pub(crate) fn audit_bytes(&self) -> usize {
        self.audits.iter().map(Audit::memory_bytes).sum()
    }

    /// Bytes reserved by the summaries and the audits.
    pub(crate) fn all_bytes(&self) -> usize {
        self.memory_bytes().sum::<usize>() + self.audit_bytes()
    }

    /// Bytes reserved by each lane's summary.
    pub(crate) fn memory_bytes(&self) -> impl Iterator<Item = usize> {
        self.lanes.iter().map(AnySummary::memory_bytes)
    }

    /// The parameters in force. Those of the IPv6 lane end in `_ipv6`.
    pub(crate) fn parameters(&self) -> Vec<(String, Setting)> {
        self.lanes
            .iter()
            .zip(["", "_ipv6"])
            .flat_map(|(own, suffix)| parameters(own, suffix))
            .collect()
    }

    /// The names of the accelerators in front of the summaries, "none" if there are none.
    pub(crate) fn accelerator(&self) -> String {
        let names: Vec<_> =
            self.lanes[0].accelerators().iter().map(|(accelerator, _)| *accelerator).collect();
        if names.is_empty() { "none".to_owned() } else { names.join("+") }
    }
}

/// Extends `all` to one value for each worker with `another` handle of the first, if it has
/// handles.
pub(crate) fn hand_out<T>(all: &mut Vec<T>, workers: usize, another: impl Fn(&T) -> Option<T>) {
    while all.len() < workers
        && let Some(other) = all.first().and_then(&another)
    {
        all.push(other);
    }
}

fn parameters(summary: &AnySummary, suffix: &str) -> Vec<(String, Setting)> {
    let parameters = summary.parameters().into_iter();
    let own = parameters.map(|(name, value)| (format!("{name}{suffix}"), value));
    let accelerators = summary.accelerators().into_iter();
    own.chain(accelerators.flat_map(|(accelerator, parameters)| {
        let parameters = parameters.into_iter();
        parameters.map(move |(name, value)| (format!("{accelerator}.{name}{suffix}"), value))
    }))
    .collect()
}

/// What the tasks read: the summaries of all workers, joined lane by lane.
pub(crate) struct View<'a> {
    key: KeySpec,
    lanes: Vec<(usize, Joined<'a>)>,
    /// The audits with the numbers of their lanes.
    audits: Vec<(usize, &'a Audit)>,
}

impl<'a> View<'a> {
    /// The view of these sets. No flow is in two of them.
    pub(crate) fn new(key: KeySpec, sets: impl Iterator<Item = &'a Summaries>) -> Self {
        let sets: Vec<_> = sets.collect();
        let lane = |(lane, key_bytes): (usize, &usize)| {
            let answers = sets.iter().filter_map(|set| Some(set.lanes.get(lane)?.answers()));
            let answers: Vec<_> = answers.collect();
            (!answers.is_empty()).then(|| (*key_bytes, Joined::new(answers)))
        };
        let audits = sets.iter().flat_map(|set| set.audits.iter().enumerate()).collect();
        Self { key, lanes: key.lanes().iter().enumerate().filter_map(lane).collect(), audits }
    }

    /// The view of these lanes, each with the canonical bytes of its keys, without audits.
    pub(crate) fn of(key: KeySpec, lanes: impl Iterator<Item = (usize, &'a dyn Answers)>) -> Self {
        let lanes = lanes.map(|(bytes, lane)| (bytes, Joined::new(vec![lane]))).collect();
        Self { key, lanes, audits: Vec::new() }
    }

    /// A lane for each key type.
    pub(crate) fn lanes(&self) -> Vec<task::Lane<'_>> {
        self.lanes
            .iter()
            .map(|(key_bytes, joined)| task::Lane {
                key: self.key,
                key_bytes: *key_bytes,
                answers: joined.answers(),
            })
            .collect()
    }

    /// The audited slice, one flow in this many, and the errors of its sizes; `None` without an
    /// audit.
    pub(crate) fn observed(&self, by: Measure) -> Option<(u32, Observed)> {
        let (_, first) = self.audits.first()?;
        let mut observed = Observed::default();
        for (lane, audit) in &self.audits {
            observed += audit.compare(self.lanes[*lane].1.answers(), by);
        }
        Some((first.one_in(), observed))
    }
}

/// The joined answers of workers whose flows are disjoint: the union of their lists and the sums of
/// their counts. A single worker's answers are used directly.
pub(crate) struct Joined<'a> {
    parts: Vec<&'a dyn Answers>,
    flows: Vec<&'a dyn Flows>,
}

impl<'a> Joined<'a> {
    pub(crate) fn new(parts: Vec<&'a dyn Answers>) -> Self {
        let flows = match parts.len() {
            1 => Vec::new(),
            _ => parts.iter().filter_map(|part| part.flows()).collect(),
        };
        Self { parts, flows }
    }

    /// The read side.
    pub(crate) fn answers(&self) -> &dyn Answers {
        match &self.parts[..] {
            [only] => *only,
            _ => self,
        }
    }

    /// The results of `ask` for all parts; `None` if one of them has none.
    fn all<T>(&self, ask: impl Fn(&'a dyn Answers) -> Option<T>) -> Option<Vec<T>> {
        self.parts.iter().map(|part| ask(*part)).collect()
    }
}

impl Answers for Joined<'_> {
    fn untracked(&self) -> Size {
        self.parts.iter().map(|part| part.untracked()).sum()
    }
    fn saturated(&self) -> Size {
        self.parts.iter().map(|part| part.saturated()).sum()
    }
    fn flows(&self) -> Option<&dyn Flows> {
        (self.flows.len() == self.parts.len()).then_some(self)
    }
    fn size(&self) -> Option<&dyn SizeQuery> {
        self.all(|part| part.size()).map(|_| self as &dyn SizeQuery)
    }
    fn candidates(&self) -> Option<&dyn Candidates> {
        self.all(|part| part.candidates()).map(|_| self as &dyn Candidates)
    }
    fn cardinality(&self) -> Option<Estimate> {
        self.all(<dyn Answers>::cardinality).map(|parts| sum(parts.into_iter()))
    }
    fn weight_logs(&self, by: Measure) -> Option<Estimate> {
        self.all(|part| part.weight_logs(by)).map(|parts| sum(parts.into_iter()))
    }
    fn details(&self) -> Option<&dyn Details> {
        self.all(|part| part.details()).map(|_| self as &dyn Details)
    }
    fn spread(&self) -> Option<&dyn Spread> {
        self.all(|part| part.spread()).map(|_| self as &dyn Spread)
    }
}

/// The sum of independent estimates.
fn sum(parts: impl Iterator<Item = Estimate>) -> Estimate {
    parts.fold(Estimate::exact(0), |sum, part| Estimate {
        value: sum.value + part.value,
        low: sum.low + part.low,
        high: sum.high + part.high,
        confidence: match (sum.confidence, part.confidence) {
            (Some(one), Some(other)) => Some(one * other),
            (one, other) => one.or(other),
        },
    })
}

impl Flows for Joined<'_> {
    fn len(&self) -> usize {
        self.flows.iter().map(|part| part.len()).sum()
    }

    fn most(&self) -> usize {
        self.flows.iter().map(|part| part.most()).sum()
    }

    fn get(&self, index: usize) -> (&[u8], Size) {
        let (mut index, last) = (index, self.flows.len() - 1);
        for part in &self.flows[..last] {
            match part.len() {
                len if index < len => return part.get(index),
                len => index -= len,
            }
        }
        self.flows[last].get(index)
    }

    fn for_each(&self, visit: &mut dyn FnMut(&[u8], Size)) {
        self.flows.iter().for_each(|part| part.for_each(visit));
    }

    fn may_lack(&self) -> Size {
        self.flows.iter().map(|part| part.may_lack()).sum()
    }
}

impl SizeQuery for Joined<'_> {
    /// The estimate of the part that lists the flow. If none does, the sum of the estimates of all
    /// parts.
    fn estimate(&self, key: &[u8]) -> SizeEstimate {
        let estimate = |part: &&dyn Answers| Some(part.size()?.estimate(key));
        let parts: Vec<_> = self.parts.iter().filter_map(estimate).collect();
        let listed = |size: &SizeEstimate| {
            let low = |estimate: Option<Estimate>| estimate.is_some_and(|size| size.low > 0.0);
            low(size.packets) || low(size.bytes)
        };
        if let Some(size) = parts.iter().find(|size| listed(size)) {
            return *size;
        }
        let all = |of: fn(&SizeEstimate) -> Option<Estimate>| {
            parts.iter().map(of).collect::<Option<Vec<_>>>().map(|parts| sum(parts.into_iter()))
        };
        SizeEstimate { packets: all(|size| size.packets), bytes: all(|size| size.bytes) }
    }
}

impl Candidates for Joined<'_> {
    fn for_each(&self, visit: &mut dyn FnMut(CanonicalKey, SizeEstimate)) {
        let candidates = self.parts.iter().filter_map(|part| part.candidates());
        candidates.for_each(|part| part.for_each(visit));
    }

    fn overflow(&self) -> u64 {
        self.parts.iter().filter_map(|part| part.candidates()).map(Candidates::overflow).sum()
    }

    /// The maximum over the parts, since each part had all packets of its flows.
    fn unnamed(&self, by: Measure) -> Option<f64> {
        let parts = self.all(|part| part.candidates()?.unnamed(by))?;
        Some(parts.into_iter().fold(0.0, f64::max))
    }
}

impl Details for Joined<'_> {
    fn seen(&self, key: &[u8]) -> Option<Seen> {
        self.parts.iter().find_map(|part| part.details()?.seen(key))
    }
}

impl Spread for Joined<'_> {
    fn for_each(&self, visit: &mut dyn FnMut(CanonicalKey, Estimate)) {
        self.parts.iter().filter_map(|part| part.spread()).for_each(|part| part.for_each(visit));
    }

    fn overflow(&self) -> u64 {
        self.parts.iter().filter_map(|part| part.spread()).map(Spread::overflow).sum()
    }
}
