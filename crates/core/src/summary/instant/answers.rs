//! The answers behind a regulator: sizes and candidates, with bounds.
//!
//! A flow that is alone in its words is forwarded after waits of `UNIT` packets on average, with
//! the variance of sums of coupon collector waits, and its residual marks show the part of a wait
//! since then. If all marks of its words are those of other flows, each of its packets is forwarded
//! with probability 1 / `UNIT`, independently of the others: its count has a Poisson distribution,
//! and the marks say nothing about it. Between these two cases, variance and residual are
//! interpolated by the fraction of foreign marks.

use super::regulated::{Regulated, RegulatedTable};
use super::regulator::{Regulator, Word};
use crate::key::{CanonicalKey, FlowKey};
use crate::summary::estimate::least_mean;
use crate::summary::{Answers, Candidates, Estimate, SizeEstimate, SizeQuery};
use crate::terms::Size;

impl<W: Word, const LAYERS: usize, T: RegulatedTable> Regulated<W, LAYERS, T> {
    /// The packets and bytes represented by `size` forwarded ones.
    fn represented(&self, size: Size) -> Size {
        let unit = Regulator::<W, LAYERS>::UNIT;
        let all = |size: u64, total: u64| ((unit * size as f64).round() as u64).min(total);
        Size {
            packets: all(size.packets, self.total.packets),
            bytes: all(size.bytes, self.total.bytes),
        }
    }

    /// The state of a flow, and its forwarded packets and bytes.
    #[inline(never)]
    fn flow(&self, key: T::Key, counted: &SizeEstimate) -> (Flow, (f64, f64)) {
        let [packets, bytes] = [counted.packets, counted.bytes]
            .map(|counted| counted.unwrap_or(Estimate::between(0.0, 0.0, f64::INFINITY)));
        let flow = Flow {
            unit: Regulator::<W, LAYERS>::UNIT,
            variance: Regulator::<W, LAYERS>::VARIANCE,
            total: self.total,
            residual: self.regulator.counted_residual(key.digest(&self.digester)),
            marks: self.total.packets as f64 * self.regulator.vector_fraction(),
            regulators: self.regulators as f64,
            longest: self.longest as f64,
            lost: (packets.high - packets.value, bytes.high - bytes.value),
        };
        (flow, (packets.value, bytes.value))
    }
}

/// Sizes and candidates only: small flows are never forwarded, so their number is unknown.
impl<W: Word, const LAYERS: usize, T: RegulatedTable> Answers for Regulated<W, LAYERS, T> {
    fn untracked(&self) -> Size {
        self.represented(self.table_answers().untracked())
    }
    fn saturated(&self) -> Size {
        self.represented(self.table_answers().saturated())
    }
    fn size(&self) -> Option<&dyn SizeQuery> {
        Some(self)
    }
    fn candidates(&self) -> Option<&dyn Candidates> {
        Some(self)
    }
}

impl<W: Word, const LAYERS: usize, T: RegulatedTable> SizeQuery for Regulated<W, LAYERS, T> {
    fn estimate(&self, key: &[u8]) -> SizeEstimate {
        let key_of_flow = T::Key::matching(key, &self.digester);
        let (Some(flow), Some(sizes)) = (key_of_flow, self.table_answers().size()) else {
            return SizeEstimate::exact(Size::default());
        };
        let (flow, forwarded) = self.flow(flow, &sizes.estimate(key));
        flow.size(forwarded)
    }
}

impl<W: Word, const LAYERS: usize, T: RegulatedTable> Candidates for Regulated<W, LAYERS, T> {
    fn for_each(&self, visit: &mut dyn FnMut(CanonicalKey, SizeEstimate)) {
        let Some(candidates) = self.table_answers().candidates() else { return };
        candidates.for_each(&mut |key, counted| {
            if let Some(flow) = T::Key::matching(key.as_bytes(), &self.digester) {
                let (flow, forwarded) = self.flow(flow, &counted);
                visit(key, flow.listed(forwarded));
            }
        });
    }

    fn overflow(&self) -> u64 {
        self.table_answers().candidates().map_or(0, Candidates::overflow)
    }
}

/// Standard deviations to either side of the bounds.
const DEVIATIONS: f64 = 2.0;

/// Probability that both bounds hold.
const CONFIDENCE: f64 = 0.95;

/// Assumed relative variance of bytes beyond that of packets, per forwarded packet. With mixed
/// packet sizes on the wire, the standard deviation is 1.22 at n = `UNIT`.
const SIZE_VARIANCE: f64 = 1.22 * 1.22;

/// The state of a flow besides its forwarded packets.
struct Flow {
    /// Packets represented by each forwarded packet.
    unit: f64,
    /// Relative variance of a wait without other flows.
    variance: f64,
    /// Size of all flows.
    total: Size,
    /// Packets that the marks on the flow's vectors represent if all are its own.
    residual: f64,
    /// Mean number of marks of all packets that fall on the flow's vector.
    marks: f64,
    /// Number of regulators that the flow's packets passed: more than one after a merge.
    regulators: f64,
    /// Bytes of the longest packet.
    longest: f64,
    /// Forwarded packets and their bytes that evictions and full counters may have lost.
    lost: (f64, f64),
}

/// The number of waits whose mean is `deviation` standard deviations above `count`, or below it if
/// negative.
fn waits(count: f64, variance: f64, deviation: f64) -> f64 {
    let half = deviation * variance.sqrt() / 2.0;
    let root = half + (half * half + count.max(0.0)).sqrt();
    root.max(0.0).powi(2)
}

impl Flow {
    /// Fraction of the marks on the flow's vector that are those of other flows, if `count` packets
    /// of the flow were forwarded.
    fn foreign(&self, count: f64) -> f64 {
        self.marks / (self.marks + self.unit * count.max(1.0))
    }

    /// Relative variance of a wait with this fraction of foreign marks.
    fn variance(&self, foreign: f64) -> f64 {
        self.variance + (1.0 - self.variance) * foreign
    }

    /// Likely number of the flow's packets in the residual marks, if `count` were forwarded: at
    /// most one wait, and none for a flow that was never forwarded, since nothing is known of it.
    fn likely_residual(&self, count: f64) -> f64 {
        if count > 0.0 { (1.0 - self.foreign(count)) * self.residual.min(self.unit) } else { 0.0 }
    }

    /// The size of a given flow, of which `count` packets with `bytes` bytes in total were
    /// forwarded.
    fn size(&self, (count, bytes): (f64, f64)) -> SizeEstimate {
        SizeEstimate { packets: Some(self.packets(count)), bytes: Some(self.bytes(count, bytes)) }
    }

    /// The size of a listed flow. Listing selects flows by their forwarded packets, so the lower
    /// bounds are those of the flow with the luckiest draws.
    fn listed(&self, (count, bytes): (f64, f64)) -> SizeEstimate {
        let variance = self.variance(self.foreign(count));
        let least = |variance: f64| {
            self.unit * least_mean(count, variance, self.total.packets as f64, CONFIDENCE)
        };
        let mean = if count > 0.0 { bytes / count } else { 0.0 };
        let of_bytes = mean * least(variance - self.variance + SIZE_VARIANCE);
        let lower = |estimate: Estimate, sure: f64, seen: f64| {
            Some(Estimate { low: sure.max(seen).min(estimate.low), ..estimate })
        };
        SizeEstimate {
            packets: lower(self.packets(count), least(variance), count),
            bytes: lower(self.bytes(count, bytes), of_bytes, bytes),
        }
    }

    /// The packets of a flow of which `count` were forwarded; always at least `count`.
    fn packets(&self, count: f64) -> Estimate {
        let foreign = self.foreign(count);
        let (own, variance) = (1.0 - foreign, self.variance(foreign));
        let low = waits(count - self.regulators * foreign, variance, -DEVIATIONS);
        let high = waits(count + self.regulators * own + self.lost.0, variance, DEVIATIONS);
        let value = self.unit * count + self.likely_residual(count);
        Estimate {
            value,
            low: (self.unit * low).max(count).min(value),
            high: self.unit * high,
            confidence: Some(CONFIDENCE),
        }
        .within(self.total.packets)
    }

    /// The bytes of such a flow, if the forwarded packets have `bytes` bytes in total.
    fn bytes(&self, count: f64, bytes: f64) -> Estimate {
        let foreign = self.foreign(count);
        let variance = self.variance(foreign) - self.variance + SIZE_VARIANCE;
        let mean = if count > 0.0 { bytes / count } else { 0.0 };
        let low = mean * waits(count - self.regulators * foreign, variance, -DEVIATIONS);
        // The packets not represented may be of the longest size.
        let remainder = self.longest * self.regulators + self.lost.1;
        let high = mean * waits(count, variance, DEVIATIONS) + remainder;
        let most = self.packets(count).high * self.longest;
        let value = self.unit * bytes + mean * self.likely_residual(count);
        Estimate {
            value,
            low: (self.unit * low).max(bytes).min(value),
            high: (self.unit * high).min(most).max(value),
            confidence: Some(CONFIDENCE),
        }
        .within(self.total.bytes)
    }
}
