//! Answers of an Elastic Sketch: sizes, heavy flows, their number, and the sizes of all flows:
//! those of the heavy part are known, those of the light part recovered.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use super::{Elastic, Light};
use crate::key::{CanonicalKey, FlowKey};
use crate::summary::decompound::{decompound, recovered};
use crate::summary::{Answers, Candidates, Estimate, SizeEstimate, SizeQuery};
use crate::terms::{Measure, Size};

/// Confidence of lower bounds: by Markov's inequality, a light counter's excess is below 20 times
/// its mean with this chance.
const CONFIDENCE: f64 = 0.95;

impl<K: FlowKey, C: Light> Elastic<K, C> {
    /// The estimate of a key. Its light counter is never below its packets there, unless full.
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
        SizeEstimate::of(C::MEASURE, estimate)
    }
}

impl<K: FlowKey, C: Light> Answers for Elastic<K, C> {
    fn saturated(&self) -> Size {
        Size::of(C::MEASURE, self.saturated)
    }

    fn size(&self) -> Option<&dyn SizeQuery> {
        Some(self)
    }

    fn candidates(&self) -> Option<&dyn Candidates> {
        Some(self)
    }

    /// The number of flows: those of the heavy part, and those of the light part by linear
    /// counting: w·ln (w / z) flows for z zeros among w counters. Marked flows may be in either
    /// part; each is subtracted once if its light counter is not zero. With no zero left, at least
    /// w·ln w flows are counted.
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
        // Twice the standard error of linear counting.
        let margin = 2.0 * (columns * (load.exp() - load - 1.0).max(0.0)).sqrt();
        let least = heavy + f64::max(columns - zeros - both, 0.0);
        // In a full light part, each flow weighs at least 1.
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
            // A flow may be listed for the weight of others in its light counter; only its votes
            // are certain.
            let listed = |size: Estimate| Estimate { low: size.low.min(votes as f64), ..size };
            let SizeEstimate { packets, bytes } = self.estimate_of(key);
            let size = SizeEstimate { packets: packets.map(listed), bytes: bytes.map(listed) };
            visit(key.to_canonical(&self.digester), size);
        }
    }

    /// Slots are evicted; no flow is refused.
    fn overflow(&self) -> u64 {
        0
    }
}

/// f log₂ f.
fn weight_log(size: u64) -> f64 {
    if size > 1 { size as f64 * (size as f64).log2() } else { 0.0 }
}

impl<K: FlowKey, C: Light> Elastic<K, C> {
    #[cold]
    pub(super) fn forget_flows(&mut self) {
        self.flows = OnceCell::new();
    }

    /// The votes of each flow of the heavy part, and the light counter of those that may have more
    /// there.
    #[inline(never)]
    fn heavy_sizes(&self) -> Vec<(u64, Option<usize>)> {
        let sizes = self.heavy().map(|(key, marked)| {
            let digest = key.digest(&self.digester);
            let (votes, _) = self.slot(key, digest).unwrap_or_default();
            (votes, marked.then(|| self.light_of(digest)))
        });
        sizes.collect()
    }

    /// Expected number of flows of each size among those only in the light part. The counter of a
    /// marked flow is taken to be its own, which is wrong if there are few counters.
    #[inline(never)]
    fn light_flows(&self) -> &[(u64, f64)] {
        self.flows.get_or_init(|| {
            let mut of_heavy = vec![0u64; self.light.len().div_ceil(64)];
            for at in self.heavy_sizes().into_iter().filter_map(|(_, light)| light) {
                of_heavy[at / 64] |= 1 << (at % 64);
            }
            let others = self.light.iter().enumerate();
            let others = others.filter(|(at, _)| of_heavy[at / 64] >> (at % 64) & 1 == 0);
            let values =
                others.map(|(_, counter)| u32::try_from((*counter).into()).unwrap_or(u32::MAX));
            let mut flows = decompound(values);
            // The counters of heavy flows hold as many light flows as the others do.
            let taken: u32 = of_heavy.iter().map(|word| word.count_ones()).sum();
            let all = self.light.len() as f64;
            let share = all / (all - f64::from(taken)).max(1.0);
            for (_, flows) in &mut flows {
                *flows *= share;
            }
            flows
        })
    }

    /// Number of flows of each size, by size.
    fn sizes(&self) -> Vec<(u64, Estimate)> {
        // Certain and expected number of flows of each size.
        let mut bins: BTreeMap<u64, (f64, f64)> = BTreeMap::new();
        let mut unsure = self.light_total as f64;
        for (votes, light) in self.heavy_sizes() {
            let of_light = light.map_or(0, |at| self.light[at].into());
            let bin = bins.entry(votes.saturating_add(of_light)).or_default();
            if light.is_some() {
                unsure += votes as f64;
            } else {
                bin.0 += 1.0;
            }
            bin.1 += 1.0;
        }
        for (size, flows) in self.light_flows() {
            bins.entry(*size).or_default().1 += flows;
        }
        let bin = |(size, (surely, flows)): (u64, (f64, f64))| {
            let most = surely + (unsure / size.max(1) as f64).floor();
            (size, recovered(flows, surely, most.max(flows)))
        };
        bins.into_iter().map(bin).collect()
    }

    /// Σ f log₂ f: smallest if each unit of the light part were a flow of its own, largest if each
    /// of its counters held one flow, or belonged to the heavy flow that may have packets there.
    fn sum_of_logs(&self) -> Estimate {
        let (mut value, mut least, mut most) = (0.0, 0.0, 0.0);
        let heavy = self.heavy_sizes();
        for &(votes, light) in &heavy {
            let light = light.map_or(0, |at| self.light[at].into());
            let both = weight_log(votes.saturating_add(light));
            value += both;
            least += weight_log(votes);
            most += both;
        }
        value +=
            self.light_flows().iter().map(|(size, flows)| flows * weight_log(*size)).sum::<f64>();
        most += self.light.iter().map(|counter| weight_log((*counter).into())).sum::<f64>();
        if self.saturated > 0 {
            // The excess of full counters may belong to any flow.
            let votes = heavy.iter().map(|(votes, _)| *votes).fold(0, u64::saturating_add);
            most = weight_log(votes.saturating_add(self.light_total));
        }
        recovered(value, least, most)
    }
}
