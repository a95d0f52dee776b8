//! What one worker measures an epoch with, and what the tasks see of several of these.

use flowgauge_core::batch::Batch;
use flowgauge_core::key::{FlowKey, KeySpec};
use flowgauge_core::summary::{Incompatible, Ingest, Setting};
use flowgauge_core::task;

use crate::joined::Joined;
use crate::lanes::Take;

/// A summary for each lane.
pub(crate) struct Summaries<A, B> {
    pub(crate) first: Box<dyn Ingest<A>>,
    pub(crate) second: Option<Box<dyn Ingest<B>>>,
}

/// All summaries of a run, each of the same size.
pub(crate) struct Sets<A, B> {
    /// Those of each thread that may measure: one, or two where they are swapped.
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
    /// Passes on what is held back: answers are whole only then.
    pub(crate) fn settle(&mut self) {
        self.first.settle();
        if let Some(second) = &mut self.second {
            second.settle();
        }
    }

    /// Begins a new epoch.
    pub(crate) fn next_epoch(&mut self) {
        self.first.next_epoch();
        if let Some(second) = &mut self.second {
            second.next_epoch();
        }
    }

    /// Adds what another worker measured with the same options.
    pub(crate) fn merge(&mut self, other: &Self) -> Result<(), Incompatible> {
        self.first.merge(&*other.first)?;
        match (&mut self.second, &other.second) {
            (Some(second), Some(other)) => second.merge(&**other),
            _ => Ok(()),
        }
    }

    /// Bytes reserved by each lane's summary.
    pub(crate) fn memory_bytes(&self) -> Vec<usize> {
        let second = self.second.as_ref().map(|second| second.memory_bytes());
        std::iter::once(self.first.memory_bytes()).chain(second).collect()
    }

    /// The parameters in force; those of the IPv6 lane end in `_ipv6`.
    pub(crate) fn parameters(&self) -> Vec<(String, Setting)> {
        let second = self.second.as_ref().map(|second| parameters(&**second, "_ipv6"));
        let first = parameters(&*self.first, "");
        first.into_iter().chain(second.into_iter().flatten()).collect()
    }

    /// The accelerators before the summaries, by name; "none" where there is none.
    pub(crate) fn accelerator(&self) -> String {
        let names: Vec<_> = self.first.accelerators().iter().map(|(name, _)| *name).collect();
        if names.is_empty() { "none".to_owned() } else { names.join("+") }
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
        let first = sets.clone().map(|set| set.first.answers()).collect();
        let second: Vec<_> = sets.filter_map(|set| Some(set.second.as_ref()?.answers())).collect();
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
