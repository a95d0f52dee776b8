//! What one worker measures an epoch with, and what the tasks see of several of these.

use flowgauge_core::accelerator::HeaderRate;
use flowgauge_core::any::{AnySummary, BatchMut};
use flowgauge_core::audit::{Audit, Observed};
use flowgauge_core::batcher::Take;
use flowgauge_core::key::{CanonicalKey, KeySpec};
use flowgauge_core::summary::{
    Answers, Candidates, Details, Estimate, Flows, Incompatible, Seen, Setting, SizeEstimate,
    SizeQuery, Spread,
};
use flowgauge_core::task;
use flowgauge_core::terms::{Measure, Size};

use crate::intake::Ended;

/// Empty epochs after which any forecast is forgotten: it halves in each of them, and is gone below ½.
const FORGOTTEN: u64 = 66;

/// A summary for each lane that is measured, and where that is asked for, an audit of each.
pub(crate) struct Summaries {
    pub(crate) lanes: Vec<AnySummary>,
    pub(crate) audits: Vec<Audit>,
}

/// The summaries of one worker in an epoch, or since an update of it.
pub(crate) struct Set {
    pub(crate) summaries: Summaries,
    /// Packets and bytes that they took.
    pub(crate) ingested: Size,
    /// The end of the epoch, in the set of the first worker.
    pub(crate) ended: Option<Ended>,
}

/// All summaries of a measurement, each set of the same size.
pub(crate) struct Sets {
    /// Those of each thread that measures: one, or two that are swapped. Concurrent summaries are in one
    /// set that all threads fill.
    pub(crate) workers: Vec<Vec<Summaries>>,
    /// Those into which the closer merges what was handed over, where updates are asked for.
    pub(crate) sums: Vec<Summaries>,
}

impl Sets {
    /// One that shows what all of them are like.
    pub(crate) fn first(&self) -> &Summaries {
        &self.workers[0][0]
    }

    /// Each of them.
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
    pub(crate) fn ingest(&mut self, lane: usize, mut batch: BatchMut<'_>) {
        self.ingested += batch.size();
        self.summaries.take(lane, batch);
    }
}

impl Take for Summaries {
    #[inline]
    fn take(&mut self, lane: usize, mut batch: BatchMut<'_>) {
        // A summary may change the batch.
        if let Some(audit) = self.audits.get_mut(lane) {
            audit.ingest(&mut batch);
        }
        if let Some(summary) = self.lanes.get_mut(lane) {
            summary.ingest(batch);
        }
    }
}

impl Summaries {
    /// How few packets they take, where the meter draws them before headers are read.
    pub(crate) fn header_rate(&self) -> Option<HeaderRate> {
        self.lanes.first()?.header_rate()
    }

    /// Takes note that so many packets of the epoch were not read, none of which was more than one in
    /// `one_in`.
    pub(crate) fn passed_over(&mut self, packets: u64, one_in: u64) {
        self.lanes.iter_mut().for_each(|summary| summary.passed_over(packets, one_in));
    }

    /// Whether all workers fill these.
    pub(crate) fn is_concurrent(&self) -> bool {
        self.lanes.iter().any(AnySummary::is_concurrent)
    }

    /// Handles of the same concurrent summaries; `None` where one worker owns these.
    pub(crate) fn another(&self) -> Option<Self> {
        let lanes = self.lanes.iter().map(AnySummary::another).collect::<Option<_>>()?;
        Some(Self { lanes, audits: Vec::new() })
    }

    /// Makes concurrent summaries readable, and begins the next epoch of what the workers fill.
    ///
    /// # Errors
    /// When there is another handle.
    pub(crate) fn collect(&mut self) -> Result<(), Incompatible> {
        self.lanes.iter_mut().try_for_each(AnySummary::collect)
    }

    /// Passes on what is held back: answers are whole only then.
    pub(crate) fn settle(&mut self) {
        self.lanes.iter_mut().for_each(AnySummary::settle);
        self.audits.iter_mut().for_each(Audit::settle);
    }

    /// Begins a new epoch. Concurrent summaries began it when they were collected.
    pub(crate) fn next_epoch(&mut self) {
        self.lanes.iter_mut().for_each(AnySummary::next_epoch);
        self.audits.iter_mut().for_each(Audit::clear);
    }

    /// Passes over empty epochs, which only forecasts feel.
    pub(crate) fn pass(&mut self, epochs: u64) {
        if self.is_lasting() {
            (0..epochs.min(FORGOTTEN)).for_each(|_| self.next_epoch());
        }
    }

    /// Forgets everything, forecasts included.
    pub(crate) fn clear(&mut self) {
        self.lanes.iter_mut().for_each(AnySummary::clear);
        self.audits.iter_mut().for_each(Audit::clear);
    }

    /// Begins another part of the same epoch, which is only merged into others.
    pub(crate) fn next_part(&mut self) {
        self.lanes.iter_mut().for_each(AnySummary::next_part);
        self.audits.iter_mut().for_each(Audit::next_part);
    }

    /// Adds what another worker measured with the same options.
    pub(crate) fn merge(&mut self, other: &Self) -> Result<(), Incompatible> {
        self.lanes.iter_mut().zip(&other.lanes).try_for_each(|(own, other)| own.merge(other))?;
        self.audits.iter_mut().zip(&other.audits).try_for_each(|(own, other)| own.merge(other))
    }

    /// Whether one of them reads the elements of packets.
    pub(crate) fn wants_elements(&self) -> bool {
        self.lanes.iter().any(AnySummary::wants_elements)
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

    /// The parameters in force; those of the IPv6 lane end in `_ipv6`.
    pub(crate) fn parameters(&self) -> Vec<(String, Setting)> {
        self.lanes
            .iter()
            .zip(["", "_ipv6"])
            .flat_map(|(own, suffix)| parameters(own, suffix))
            .collect()
    }

    /// The accelerators before the summaries, by name; "none" where there is none.
    pub(crate) fn accelerator(&self) -> String {
        let names: Vec<_> =
            self.lanes[0].accelerators().iter().map(|(accelerator, _)| *accelerator).collect();
        if names.is_empty() { "none".to_owned() } else { names.join("+") }
    }
}

/// Makes one for each of so many workers of the first, where that is `another` handle of the same.
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

/// What the tasks see of workers that measured side by side: their summaries joined, lane by lane.
pub(crate) struct View<'a> {
    key: KeySpec,
    lanes: Vec<(usize, Joined<'a>)>,
    /// The audits with the numbers of their lanes.
    audits: Vec<(usize, &'a Audit)>,
}

impl<'a> View<'a> {
    /// The view of these sets, in which no flow is twice unless there is only one.
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

    /// The view of lanes that answer for keys of so many canonical bytes, without audits.
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

    /// The slice that is audited, one flow in so many, and the errors of its sizes; `None` without an audit.
    pub(crate) fn observed(&self, by: Measure) -> Option<(u32, Observed)> {
        let (_, first) = self.audits.first()?;
        let mut observed = Observed::default();
        for (lane, audit) in &self.audits {
            observed += audit.compare(self.lanes[*lane].1.answers(), by);
        }
        Some((first.one_in(), observed))
    }
}

/// What workers answer together that got packets of different flows: what each of them lists, and the
/// sums of what each of them counts. Where there is one of them, it speaks for itself.
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

    /// What `ask` gets of each part; `None` where one of them does not tell.
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

/// The sum of estimates that do not depend on each other.
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
}

impl SizeQuery for Joined<'_> {
    /// What the part says that lists the flow; where none does, what each of them may have of it.
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

    /// Each part had all packets of its flows.
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
