//! The answers of a summary of a sample, scaled to all packets.

use super::Sampled;
use crate::key::{CanonicalKey, FlowKey};
use crate::summary::{Answers, Candidates, Estimate, Prefixes, Sampling, SizeEstimate, SizeQuery};
use crate::terms::{Hierarchy, Measure, Size};

impl<K: FlowKey> Sampled<K> {
    /// The weight of the sampled packets themselves, at least, where their scaled weight is
    /// `sampled`: no packet was scaled by more than the interval.
    fn seen_of(&self, sampled: f64) -> f64 {
        // The intervals of merged samples are not known.
        if self.merged == 0 { sampled / self.one_in as f64 } else { 0.0 }
    }

    /// Widens the bounds of a scaled weight by the sampling error.
    fn widened(&self, sampled: Estimate) -> Estimate {
        let Some(sampling) = self.sampling() else { return sampled.within(self.total) };
        let whole = sampling.widen(sampled);
        Estimate { low: whole.low.max(self.seen_of(sampled.low)), ..whole }.within(self.total)
    }

    /// The size in the measure of the sample.
    fn whole(&self, sampled: &SizeEstimate) -> SizeEstimate {
        let estimate = sampled.by(self.by).map(|sampled| self.widened(sampled));
        match self.by {
            Measure::Packets => SizeEstimate { packets: estimate, bytes: None },
            Measure::Bytes => SizeEstimate { packets: None, bytes: estimate },
        }
    }

    /// The size of a listed flow. The sample favors the flows that it lists, so the lower bound
    /// must hold for all flows at once; there are at most as many flows as units.
    fn listed(&self, sampled: &SizeEstimate) -> SizeEstimate {
        let whole = self.whole(sampled);
        let Some(sampling) = self.sampling_of(self.total.max(self.seen)) else { return whole };
        let lower = |whole: Option<Estimate>, sampled: Option<Estimate>| {
            let sampled = sampled.map_or(0.0, |sampled| sampled.low);
            let low = (sampled - sampling.error(sampled)).max(self.seen_of(sampled));
            whole.map(|whole| Estimate { low: whole.low.min(low), ..whole })
        };
        SizeEstimate {
            packets: lower(whole.packets, sampled.packets),
            bytes: lower(whole.bytes, sampled.bytes),
        }
    }

    fn measured(&self, sampled: Size) -> Size {
        let weight = sampled.by(self.by).min(self.total);
        match self.by {
            Measure::Packets => Size { packets: weight, bytes: 0 },
            Measure::Bytes => Size { packets: 0, bytes: weight },
        }
    }
}

/// Sizes, candidates and prefixes. A sample cannot answer the number of flows, or of flows of a
/// size.
impl<K: FlowKey> Answers for Sampled<K> {
    fn untracked(&self) -> Size {
        self.measured(self.inner.answers().untracked())
    }
    fn saturated(&self) -> Size {
        self.measured(self.inner.answers().saturated())
    }
    fn size(&self) -> Option<&dyn SizeQuery> {
        self.inner.answers().size().map(|_| self as &dyn SizeQuery)
    }
    fn candidates(&self) -> Option<&dyn Candidates> {
        self.inner.answers().candidates().map(|_| self as &dyn Candidates)
    }
    fn prefixes(&self) -> Option<&dyn Prefixes> {
        // `Sampling` cannot describe the error of a sample of a sample.
        let whole = |prefixes: &&dyn Prefixes| prefixes.sampling().is_none();
        self.inner.answers().prefixes().filter(whole).map(|_| self as &dyn Prefixes)
    }
}

impl<K: FlowKey> SizeQuery for Sampled<K> {
    fn estimate(&self, key: &[u8]) -> SizeEstimate {
        let sampled = self.inner.answers().size().map(|sizes| sizes.estimate(key));
        self.whole(&sampled.unwrap_or_default())
    }
}

impl<K: FlowKey> Candidates for Sampled<K> {
    fn for_each(&self, visit: &mut dyn FnMut(CanonicalKey, SizeEstimate)) {
        if let Some(candidates) = self.inner.answers().candidates() {
            candidates.for_each(&mut |key, sampled| visit(key, self.listed(&sampled)));
        }
    }

    fn overflow(&self) -> u64 {
        self.inner.answers().candidates().map_or(0, Candidates::overflow)
    }

    fn unnamed(&self, by: Measure) -> Option<f64> {
        let sampled = self.inner.answers().candidates()?.unnamed(by).filter(|_| by == self.by)?;
        Some(self.widened(Estimate::between(0.0, sampled, sampled)).high)
    }
}

/// The prefixes of the sample, with their sampling error.
impl<K: FlowKey> Prefixes for Sampled<K> {
    fn measure(&self) -> Measure {
        self.by
    }

    fn hierarchy(&self) -> Hierarchy {
        let prefixes = self.inner.answers().prefixes();
        prefixes.map_or(Hierarchy::Bytes, Prefixes::hierarchy)
    }

    fn nodes(&self) -> Vec<(u8, u8)> {
        self.inner.answers().prefixes().map(Prefixes::nodes).unwrap_or_default()
    }

    fn for_each(&self, node: usize, visit: &mut dyn FnMut(CanonicalKey, Estimate)) {
        if let Some(prefixes) = self.inner.answers().prefixes() {
            prefixes.for_each(node, &mut |key, sampled| visit(key, sampled.within(self.total)));
        }
    }

    fn estimate(&self, node: usize, prefix: &[u8]) -> Estimate {
        let prefixes = self.inner.answers().prefixes();
        let sampled = prefixes.map(|prefixes| prefixes.estimate(node, prefix));
        sampled.unwrap_or(Estimate::exact(0)).within(self.total)
    }

    fn sampling(&self) -> Option<Sampling> {
        Sampled::sampling(self)
    }
}
