//! The sizes of all flows: those of the heavy part are known, those of the light part recovered.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use super::super::super::Estimate;
use super::super::super::decompound::{decompound, recovered};
use super::{Elastic, Light};
use crate::key::FlowKey;

/// f log₂ f.
fn weight_log(size: u64) -> f64 {
    if size > 1 { size as f64 * (size as f64).log2() } else { 0.0 }
}

impl<K: FlowKey, C: Light> Elastic<K, C> {
    #[cold]
    pub(super) fn forget_flows(&mut self) {
        self.flows = OnceCell::new();
    }

    /// Flows of the heavy part: their votes, and the light counter of those that may have more there.
    fn heavy_sizes(&self) -> impl Iterator<Item = (u64, Option<usize>)> {
        self.heavy().map(|(key, marked)| {
            let digest = key.digest(&self.digester);
            let (votes, _) = self.slot(key, digest).unwrap_or_default();
            (votes, marked.then(|| self.light_of(digest)))
        })
    }

    /// Expected flows of each size of those that the light part has alone. The counter of a marked
    /// flow is taken for its own: of few counters it is not.
    fn light_flows(&self) -> &[(u64, f64)] {
        self.flows.get_or_init(|| {
            let mut of_heavy = vec![0u64; self.light.len().div_ceil(64)];
            for at in self.heavy_sizes().filter_map(|(_, light)| light) {
                of_heavy[at / 64] |= 1 << (at % 64);
            }
            let others = self.light.iter().enumerate();
            let others = others.filter(|(at, _)| of_heavy[at / 64] >> (at % 64) & 1 == 0);
            let values =
                others.map(|(_, counter)| u32::try_from((*counter).into()).unwrap_or(u32::MAX));
            let mut flows = decompound(values);
            // As many flows as met in the others met with one of the heavy part.
            let taken: u32 = of_heavy.iter().map(|word| word.count_ones()).sum();
            let all = self.light.len() as f64;
            let share = all / (all - f64::from(taken)).max(1.0);
            for (_, flows) in &mut flows {
                *flows *= share;
            }
            flows
        })
    }

    /// Flows of each size, by size.
    pub(super) fn sizes(&self) -> Vec<(u64, Estimate)> {
        // How many there surely are of a size, and how many are expected.
        let mut bins: BTreeMap<u64, (f64, f64)> = BTreeMap::new();
        let mut unsure = self.light_total as f64;
        for (votes, light) in self.heavy_sizes() {
            let bin = bins.entry(votes + light.map_or(0, |at| self.light[at].into())).or_default();
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

    /// Σ f log₂ f: least if each unit of the light part were a flow of its own, most if each of its
    /// counters held one flow, that of a heavy flow which it may belong to.
    pub(super) fn sum_of_logs(&self) -> Estimate {
        let (mut value, mut least, mut most) = (0.0, 0.0, 0.0);
        for (votes, light) in self.heavy_sizes() {
            let light = light.map_or(0, |at| self.light[at].into());
            value += weight_log(votes + light);
            least += weight_log(votes);
            most += weight_log(votes + light);
        }
        value +=
            self.light_flows().iter().map(|(size, flows)| flows * weight_log(*size)).sum::<f64>();
        most += self.light.iter().map(|counter| weight_log((*counter).into())).sum::<f64>();
        if self.saturated > 0 {
            // What full counters could not take may have been of any flow.
            let votes = self.heavy_sizes().map(|(votes, _)| votes).fold(0, u64::saturating_add);
            most = weight_log(votes.saturating_add(self.light_total));
        }
        recovered(value, least, most)
    }
}
