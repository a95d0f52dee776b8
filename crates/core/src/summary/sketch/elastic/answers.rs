//! What an Elastic Sketch answers: sizes and names of flows, and their number.

use super::super::super::{Answers, Candidates, Estimate, SizeEstimate, SizeQuery};
use super::{Elastic, Light};
use crate::key::{CanonicalKey, FlowKey};
use crate::terms::{Measure, Size};

/// By Markov's inequality, a light counter's excess is below 20 times its mean with this chance.
const CONFIDENCE: f64 = 0.95;

impl<K: FlowKey, C: Light> Elastic<K, C> {
    /// The light counter of a key is never below its packets there, unless full.
    #[inline(never)]
    fn estimate_of(&self, key: K) -> SizeEstimate {
        let digest = key.digest(&self.digester);
        let (votes, marked) = self.slot(key, digest).unwrap_or((0, true));
        let light = if marked { self.light[self.light_of(digest)].into() } else { 0 };
        let value = votes.saturating_add(light) as f64;
        let full = light == C::LIGHT_MOST || votes >= C::MOST.get();
        let high = if full { value + self.saturated as f64 } else { value };
        let estimate = if light == 0 {
            Estimate { value, low: value, high, confidence: None }
        } else {
            let mean = self.light_total as f64 / self.light.len() as f64;
            let low = (value - mean / (1.0 - CONFIDENCE)).floor().max(votes as f64);
            Estimate { value, low, high, confidence: Some(CONFIDENCE) }
        };
        match C::MEASURE {
            Measure::Packets => SizeEstimate { packets: Some(estimate), bytes: None },
            Measure::Bytes => SizeEstimate { packets: None, bytes: Some(estimate) },
        }
    }
}

impl<K: FlowKey, C: Light> Answers for Elastic<K, C> {
    fn saturated(&self) -> Size {
        match C::MEASURE {
            Measure::Packets => Size { packets: self.saturated, bytes: 0 },
            Measure::Bytes => Size { packets: 0, bytes: self.saturated },
        }
    }

    fn size(&self) -> Option<&dyn SizeQuery> {
        Some(self)
    }

    fn candidates(&self) -> Option<&dyn Candidates> {
        Some(self)
    }

    /// The flows of the heavy part, and of the light part by linear counting: of w counters z are
    /// zero, so that w·ln (w / z) flows are there. Marked flows may be in either, and are taken out
    /// once where their light counter is not zero. With no zero left there are at least w·ln w.
    fn cardinality(&self) -> Option<Estimate> {
        let columns = self.light.len() as f64;
        let zeros = self.light.iter().filter(|counter| (**counter).into() == 0).count() as f64;
        let (mut heavy, mut both) = (0.0, 0.0);
        for (key, marked) in self.heavy() {
            let light = self.light[self.light_of(key.digest(&self.digester))].into();
            heavy += 1.0;
            both += f64::from(u8::from(marked && light > 0));
        }
        let light = columns * (columns / zeros.max(1.0)).ln();
        let load = light / columns;
        // Standard error of linear counting, twice.
        let margin = 2.0 * (columns * (load.exp() - load - 1.0).max(0.0)).sqrt();
        let least = heavy + f64::max(columns - zeros - both, 0.0);
        // Of a full light part is known only that each of its flows weighs something.
        let high = if zeros == 0.0 { self.light_total as f64 } else { light + margin };
        Some(Estimate {
            value: (heavy + light - both).max(least),
            low: (heavy + light - both - margin).max(heavy),
            high: (heavy + high).max(least),
            confidence: Some(CONFIDENCE),
        })
    }

    fn weight_logs(&self, by: Measure) -> Option<Estimate> {
        (by == C::MEASURE).then(|| self.sum_of_logs())
    }

    fn distribution(&self) -> Option<Vec<(u64, Estimate)>> {
        (C::MEASURE == Measure::Packets).then(|| self.sizes())
    }
}

impl<K: FlowKey, C: Light> SizeQuery for Elastic<K, C> {
    fn estimate(&self, key: &[u8]) -> SizeEstimate {
        K::matching(key, &self.digester)
            .map_or(SizeEstimate::exact(Size::default()), |key| self.estimate_of(key))
    }
}

impl<K: FlowKey, C: Light> Candidates for Elastic<K, C> {
    fn for_each(&self, visit: &mut dyn FnMut(CanonicalKey, SizeEstimate)) {
        for (key, _) in self.heavy() {
            let votes = self.slot(key, key.digest(&self.digester)).map_or(0, |(votes, _)| votes);
            // A flow may come first for what others have in its light counter: surely it has its votes.
            let listed = |size: Estimate| Estimate { low: size.low.min(votes as f64), ..size };
            let SizeEstimate { packets, bytes } = self.estimate_of(key);
            let size = SizeEstimate { packets: packets.map(listed), bytes: bytes.map(listed) };
            visit(key.to_canonical(&self.digester), size);
        }
    }

    /// Slots are taken over; none is refused.
    fn overflow(&self) -> u64 {
        0
    }
}
