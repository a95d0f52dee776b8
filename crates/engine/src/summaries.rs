//! What one worker measures an epoch with, and what the tasks see of several of these.

use std::sync::Arc;

use flowgauge_core::batch::Batch;
use flowgauge_core::key::{FlowKey, KeySpec};
use flowgauge_core::summary::shared::SharedIngest;
use flowgauge_core::summary::{Incompatible, Ingest, Setting};
use flowgauge_core::task;

use crate::error::EngineError;
use crate::joined::Joined;
use crate::lanes::Take;

/// A summary for each lane.
pub(crate) struct Summaries<A, B> {
    pub(crate) first: Summary<A>,
    pub(crate) second: Option<Summary<B>>,
}

/// A lane's summary.
pub(crate) enum Summary<K> {
    /// That of one worker.
    Own(Box<dyn Ingest<K>>),
    /// A handle of one that all workers fill.
    Shared(Arc<dyn SharedIngest<K>>),
}

impl<K: FlowKey> Summary<K> {
    #[inline(always)]
    fn ingest(&mut self, batch: &mut Batch<K>) {
        match self {
            Self::Own(own) => own.ingest(batch),
            Self::Shared(shared) => shared.ingest(batch),
        }
    }

    /// What can be read: of a shared one, what was collected last.
    pub(crate) fn ordinary(&self) -> &dyn Ingest<K> {
        match self {
            Self::Own(own) => &**own,
            Self::Shared(shared) => shared.ordinary(),
        }
    }

    fn collect(&mut self) -> Result<(), EngineError> {
        if let Self::Shared(shared) = self {
            let Some(shared) = Arc::get_mut(shared) else {
                return Err(EngineError::Workers(
                    "a worker still has a summary of an epoch that all have ended".to_owned(),
                ));
            };
            shared.collect();
        }
        Ok(())
    }

    fn settle(&mut self) {
        if let Self::Own(own) = self {
            own.settle();
        }
    }

    fn next_epoch(&mut self) {
        if let Self::Own(own) = self {
            own.next_epoch();
        }
    }

    fn next_part(&mut self) {
        if let Self::Own(own) = self {
            own.next_part();
        }
    }

    fn merge(&mut self, other: &Self) -> Result<(), Incompatible> {
        match self {
            Self::Own(own) => own.merge(other.ordinary()),
            Self::Shared(_) => Err(Incompatible("all workers fill them")),
        }
    }

    fn another(&self) -> Option<Self> {
        match self {
            Self::Own(_) => None,
            Self::Shared(shared) => Some(Self::Shared(Arc::clone(shared))),
        }
    }

    fn memory_bytes(&self) -> usize {
        match self {
            Self::Own(own) => own.memory_bytes(),
            Self::Shared(shared) => shared.memory_bytes(),
        }
    }
}

/// All summaries of a run, each of the same size.
pub(crate) struct Sets<A, B> {
    /// Those of each thread that may measure: one, or two where they are swapped. Where all threads share
    /// them, those of one.
    pub(crate) workers: Vec<Vec<Summaries<A, B>>>,
    /// Those in which the closer adds up what was handed over, where updates are asked for.
    pub(crate) sums: Vec<Summaries<A, B>>,
}

impl<A, B> Sets<A, B> {
    /// One that shows what all of them are like.
    pub(crate) fn first(&self) -> &Summaries<A, B> {
        &self.workers[0][0]
    }

    /// Each of them.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Summaries<A, B>> {
        self.workers.iter().flatten().chain(&self.sums)
    }
}

impl<A: FlowKey, B: FlowKey> Take<A, B> for Summaries<A, B> {
    #[inline(always)]
    fn first(&mut self, batch: &mut Batch<A>) {
        self.first.ingest(batch);
    }

    #[inline(always)]
    fn second(&mut self, batch: &mut Batch<B>) {
        if let Some(second) = &mut self.second {
            second.ingest(batch);
        }
    }
}

impl<A: FlowKey, B: FlowKey> Summaries<A, B> {
    /// Whether all workers fill these.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self.first, Summary::Shared(_))
    }

    /// Handles of the same shared summaries; `None` where these are one worker's own.
    pub(crate) fn another(&self) -> Option<Self> {
        let second = self.second.as_ref().map(Summary::another);
        Some(Self { first: self.first.another()?, second: second.flatten() })
    }

    /// Makes what several workers shared readable, and forgets it where they fill it.
    ///
    /// # Errors
    /// When there is another handle.
    pub(crate) fn collect(&mut self) -> Result<(), EngineError> {
        self.first.collect()?;
        self.second.as_mut().map_or(Ok(()), Summary::collect)
    }

    /// Passes on what is held back: answers are whole only then.
    pub(crate) fn settle(&mut self) {
        self.first.settle();
        if let Some(second) = &mut self.second {
            second.settle();
        }
    }

    /// Begins a new epoch. What is shared began it when it was collected.
    pub(crate) fn next_epoch(&mut self) {
        self.first.next_epoch();
        if let Some(second) = &mut self.second {
            second.next_epoch();
        }
    }

    /// Begins another part of the same epoch, which is only merged into others.
    pub(crate) fn next_part(&mut self) {
        self.first.next_part();
        if let Some(second) = &mut self.second {
            second.next_part();
        }
    }

    /// Adds what another worker measured with the same options.
    pub(crate) fn merge(&mut self, other: &Self) -> Result<(), Incompatible> {
        self.first.merge(&other.first)?;
        match (&mut self.second, &other.second) {
            (Some(second), Some(other)) => second.merge(other),
            _ => Ok(()),
        }
    }

    /// Bytes reserved by each lane's summary.
    pub(crate) fn memory_bytes(&self) -> Vec<usize> {
        let second = self.second.as_ref().map(Summary::memory_bytes);
        std::iter::once(self.first.memory_bytes()).chain(second).collect()
    }

    /// The parameters in force; those of the IPv6 lane end in `_ipv6`.
    pub(crate) fn parameters(&self) -> Vec<(String, Setting)> {
        let second = self.second.as_ref().map(|second| parameters(second.ordinary(), "_ipv6"));
        let first = parameters(self.first.ordinary(), "");
        first.into_iter().chain(second.into_iter().flatten()).collect()
    }

    /// The accelerators before the summaries, by name; "none" where there is none.
    pub(crate) fn accelerator(&self) -> String {
        let names: Vec<_> =
            self.first.ordinary().accelerators().iter().map(|(name, _)| *name).collect();
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

fn parameters<K: FlowKey>(summary: &dyn Ingest<K>, suffix: &str) -> Vec<(String, Setting)> {
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
}

impl<'a> View<'a> {
    /// The view of these sets, in which no flow is twice unless there is only one.
    pub(crate) fn new<A: FlowKey, B: FlowKey>(
        key: KeySpec,
        sets: impl Iterator<Item = &'a Summaries<A, B>> + Clone,
    ) -> Self {
        let first = sets.clone().map(|set| set.first.ordinary().answers()).collect();
        let second = sets.filter_map(|set| Some(set.second.as_ref()?.ordinary().answers()));
        let second: Vec<_> = second.collect();
        let mut lanes = vec![(A::BYTES, Joined::new(first))];
        if !second.is_empty() {
            lanes.push((B::BYTES, Joined::new(second)));
        }
        Self { key, lanes }
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
}
