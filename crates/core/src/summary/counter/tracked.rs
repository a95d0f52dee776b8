//! A monitor as a summary: batches in, answers and merges out.

use std::marker::PhantomData;

use super::super::codec::{DecodeError, Reader, Writer};
use super::super::ingest::{Basis, twin};
use super::super::{
    Answers, Candidates, Counter, Estimate, Incompatible, Ingest, Setting, SizeEstimate, SizeQuery,
    Summary,
};
use super::monitor::{Monitor, excess, size};
use crate::batch::Batch;
use crate::key::{CanonicalKey, FlowKey};
use crate::terms::{Measure, Size};

/// The keys of one pipeline, in the monitor `M`.
pub(super) struct Tracked<K, C, M> {
    monitor: M,
    types: PhantomData<fn(K) -> C>,
}

impl<K, C, M> Tracked<K, C, M> {
    pub(super) fn new(monitor: M) -> Self {
        Self { monitor, types: PhantomData }
    }
}

impl<K: FlowKey, C: Counter, M: Monitor<K, C>> Ingest<K> for Tracked<K, C, M> {
    fn ingest(&mut self, batch: &mut Batch<K>) {
        batch.digest(self.monitor.digester());
        let (keys, digests, weights) = (batch.keys(), batch.digests(), C::column(batch));
        if batch.is_plain() {
            self.monitor.add_all(keys, digests, weights);
        } else {
            self.monitor.add_sums(keys, digests, weights);
        }
    }

    fn wants_bytes(&self) -> bool {
        C::MEASURE == Measure::Bytes
    }
}

impl<K: FlowKey, C: Counter, M: Monitor<K, C>> Summary<K> for Tracked<K, C, M> {
    fn answers(&self) -> &dyn Answers {
        self
    }

    fn merge(&mut self, other: &dyn Summary<K>) -> Result<(), Incompatible> {
        let other = twin(self, other, |summary| Basis::of(summary.monitor.digester()))?;
        self.monitor.merge(&other.monitor);
        Ok(())
    }

    fn save(&self, out: &mut Writer) {
        self.monitor.save(out);
    }

    fn load(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.monitor.load(from)
    }

    fn clear(&mut self) {
        self.monitor.clear();
    }

    fn parameters(&self) -> Vec<(&'static str, Setting)> {
        vec![("counters", Setting::Integer(self.monitor.most() as u64))]
    }

    fn memory_bytes(&self) -> usize {
        self.monitor.memory_bytes()
    }
}

impl<K: FlowKey, C: Counter, M: Monitor<K, C>> Answers for Tracked<K, C, M> {
    fn untracked(&self) -> Size {
        excess::<C>(self.monitor.index().refused())
    }
    fn saturated(&self) -> Size {
        excess::<C>(self.monitor.excess())
    }
    fn size(&self) -> Option<&dyn SizeQuery> {
        Some(self)
    }
    fn candidates(&self) -> Option<&dyn Candidates> {
        Some(self)
    }
}

impl<K: FlowKey, C: Counter, M: Monitor<K, C>> SizeQuery for Tracked<K, C, M> {
    fn estimate(&self, key: &[u8]) -> SizeEstimate {
        let weight = K::matching(key, self.monitor.digester()).map(|key| self.monitor.weight(key));
        size::<C>(weight.unwrap_or(Estimate::exact(0)))
    }
}

impl<K: FlowKey, C: Counter, M: Monitor<K, C>> Candidates for Tracked<K, C, M> {
    fn for_each(&self, visit: &mut dyn FnMut(CanonicalKey, SizeEstimate)) {
        for entry in self.monitor.entries() {
            let key = entry.key.to_canonical(self.monitor.digester());
            visit(key, size::<C>(self.monitor.bounds(&entry)));
        }
    }

    /// Keys without a counter weigh at most the least count, which is within the bounds.
    fn overflow(&self) -> u64 {
        0
    }

    fn unnamed(&self, by: Measure) -> Option<f64> {
        (by == C::MEASURE).then(|| self.monitor.highest(self.monitor.unheld().get()))
    }
}
