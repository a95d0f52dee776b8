//! The answers of Space-Saving: sizes and candidates.

use super::super::{exact_size, size};
use super::{Monitor, Tracked};
use crate::key::{CanonicalKey, FlowKey};
use crate::summary::{Answers, Candidates, Counter, Estimate, SizeEstimate, SizeQuery};
use crate::terms::{Measure, Size};

impl<K: FlowKey, C: Counter, M: Monitor<K, C>> Answers for Tracked<K, C, M> {
    fn untracked(&self) -> Size {
        exact_size::<C>(self.monitor.index().untracked())
    }
    fn saturated(&self) -> Size {
        exact_size::<C>(self.monitor.saturated())
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
        let weight =
            K::matching(key, self.monitor.digester()).map(|key| self.monitor.estimate(key));
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

    /// None: the bounds of keys without a counter include the minimum count.
    fn overflow(&self) -> u64 {
        0
    }

    fn unnamed(&self, by: Measure) -> Option<f64> {
        (by == C::MEASURE).then(|| self.monitor.upper_bound(self.monitor.min_count().get()))
    }
}
