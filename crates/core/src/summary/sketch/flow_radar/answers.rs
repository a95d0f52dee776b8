//! Answers of a FlowRadar from its decoded flows.
//!
//! Which flows stay undecoded depends on their hashes alone, so the decoded ones are a fair sample.
//! Estimates of totals are made from them, with bounds from the number and weight of the others.
//! Exact flows are those whose size is certain; everything else is untracked, as with a full table.

use std::collections::BTreeMap;

use super::Radar;
use super::cells::Shape;
use crate::key::{CanonicalKey, FlowKey};
use crate::summary::{Answers, Candidates, Estimate, Flows, SizeEstimate, SizeQuery};
use crate::terms::{Measure, Size};

/// Confidence of the bound on flows missed by the filter.
const CONFIDENCE: f64 = 0.99;

/// A size with its bounds.
#[derive(Clone, Copy)]
struct Span {
    low: Size,
    value: Size,
    high: Size,
}

impl Span {
    /// The span from `low` to `high`, with `value` clamped into it.
    fn clamped(low: Size, value: Size, high: Size) -> Self {
        let (packets, bytes) = (high.packets.max(low.packets), high.bytes.max(low.bytes));
        let value = Size {
            packets: value.packets.clamp(low.packets, packets),
            bytes: value.bytes.clamp(low.bytes, bytes),
        };
        Self { low, value, high: Size { packets, bytes } }
    }
}

/// What is known about the flows that were not decoded.
struct Rest {
    /// Weight outside of the decoded flows: by their estimated sizes, and at most.
    value: Size,
    most: Size,
    /// Number of flows that the filter missed: expected, and at most.
    missed: f64,
    missed_at_most: f64,
}

fn minus(a: Size, b: Size) -> Size {
    Size { packets: a.packets.saturating_sub(b.packets), bytes: a.bytes.saturating_sub(b.bytes) }
}

/// f log₂ f, or 0 for f = 0.
fn weight_log(weight: f64) -> f64 {
    if weight > 0.0 { weight * weight.log2() } else { 0.0 }
}

impl<K: FlowKey> Radar<K> {
    /// The size of the flow that a cell gave.
    fn span(&self, cell: usize) -> Span {
        let decoded = self.decoded();
        let (key, size) = decoded.flow(cell);
        if decoded.is_clean(cell) {
            return Span { low: size, value: size, high: size + self.saturated };
        }
        // Its first packet was counted.
        let low = Size { packets: 1, bytes: 0 };
        let cells = self.shape.cells_of(key.digest(&self.digester));
        let most = least(cells.map(|cell| self.cells.size(cell)));
        Span::clamped(low, size, most + self.saturated)
    }

    /// The size of a flow that was not decoded.
    fn span_of_undecoded(&self, digest: u64) -> Span {
        let nothing = Size::default();
        if !self.filter.holds(Shape::filter_word(digest)) {
            return Span { low: nothing, value: nothing, high: self.untracked };
        }
        let decoded = self.decoded();
        let most = least(self.shape.cells_of(digest).map(|cell| {
            if decoded.is_clean(cell) {
                nothing
            } else if decoded.uncertain() == 0 {
                decoded.rest.size(cell)
            } else {
                self.cells.size(cell)
            }
        }));
        Span { low: nothing, value: most, high: most + self.untracked + self.saturated }
    }

    fn spans(&self) -> impl Iterator<Item = Span> {
        self.decoded().cells().map(|cell| self.span(cell))
    }

    fn rest(&self) -> Rest {
        let decoded = self.decoded();
        if decoded.is_exact() {
            let (value, most) = (self.untracked, self.untracked + self.saturated);
            let at_most = value.packets as f64;
            return Rest { value, most, missed: at_most, missed_at_most: at_most };
        }
        let (mut values, mut lows) = (Size::default(), Size::default());
        for span in self.spans() {
            values += span.value;
            lows += span.low;
        }
        let value = minus(self.total, values) + self.untracked;
        let most = minus(self.total, lows) + self.untracked + self.saturated;
        let missed = self.missed();
        // The mean and the variance of a sum of rare events are equal.
        let missed_at_most = (missed + 4.0 * missed.sqrt() + 4.0 + self.untracked.packets as f64)
            .min(most.packets as f64);
        Rest { value, most, missed: missed.min(missed_at_most), missed_at_most }
    }

    /// Expected number of flows that were false positives of the filter. The rate at the end is
    /// known; it grew with the flows as that of a filter without blocks does.
    fn missed(&self) -> f64 {
        const STEPS: u32 = 64;
        let entered = self.decoded().len() as f64 + self.decoded().undecoded as f64;
        let rate_at = |share: f64| {
            let hashes = self.shape.hashes as f64;
            let ones = 1.0 - (-hashes * entered * share / self.filter.bits() as f64).exp();
            ones.powf(hashes)
        };
        let scale = self.filter.false_positive_rate() / rate_at(1.0).max(f64::MIN_POSITIVE);
        let step = |i: u32| {
            let rate = (scale * rate_at((f64::from(i) + 0.5) / f64::from(STEPS))).min(0.999);
            rate / (1.0 - rate)
        };
        (0..STEPS).map(step).sum::<f64>() / f64::from(STEPS) * entered
    }

    /// The confidence; `None` (certain) if every flow is known.
    fn confidence(&self) -> Option<f64> {
        (!self.decoded().is_exact()).then_some(CONFIDENCE)
    }
}

/// The minimum in each measure.
fn least(sizes: impl Iterator<Item = Size>) -> Size {
    let most = Size { packets: u64::MAX, bytes: u64::MAX };
    sizes.fold(most, |least, size| Size {
        packets: least.packets.min(size.packets),
        bytes: least.bytes.min(size.bytes),
    })
}

impl<K: FlowKey> Answers for Radar<K> {
    /// Everything outside of flows of certain size.
    fn untracked(&self) -> Size {
        minus(self.total, self.decoded().certain_size()) + self.untracked
    }

    fn saturated(&self) -> Size {
        self.saturated
    }

    /// Flows of certain size: all of them in most epochs, a fair sample if there are too many.
    /// Others are candidates, or untracked.
    fn flows(&self) -> Option<&dyn Flows> {
        Some(self)
    }

    fn size(&self) -> Option<&dyn SizeQuery> {
        Some(self)
    }

    fn candidates(&self) -> Option<&dyn Candidates> {
        Some(self)
    }

    fn cardinality(&self) -> Option<Estimate> {
        let (decoded, rest) = (self.decoded(), self.rest());
        let entered = decoded.len() as f64 + decoded.undecoded as f64;
        Some(Estimate {
            // Refused packets may all belong to one flow.
            value: if decoded.is_exact() { entered } else { entered + rest.missed },
            low: entered,
            high: entered + rest.missed_at_most,
            confidence: self.confidence(),
        })
    }

    fn weight_logs(&self, by: Measure) -> Option<Estimate> {
        let (mut low, mut value, mut high, mut weight) = (0.0, 0.0, 0.0, 0.0);
        for span in self.spans() {
            let [least, likely, most] =
                [span.low, span.value, span.high].map(|size| size.by(by) as f64);
            low += weight_log(least);
            value += weight_log(likely);
            high += weight_log(most);
            weight += likely;
        }
        let rest = self.rest();
        let others = rest.value.by(by) as f64;
        if others > 0.0 {
            // Smallest if all have the same size, largest if one has everything.
            let flows = self.decoded().undecoded as f64 + rest.missed_at_most.max(1.0);
            let least = others * (others / flows).max(1.0).log2();
            let most = weight_log(rest.most.by(by) as f64);
            let alike = if weight > 0.0 { others * value / weight } else { least.midpoint(most) };
            value += alike.clamp(least, most.max(least));
            low += least;
            high += most;
        }
        let saturated = self.saturated.by(by) as f64;
        if saturated > 0.0 {
            let total = self.total.by(by) as f64 + saturated;
            high += saturated * (total.log2() + std::f64::consts::LOG2_E);
        }
        Some(Estimate { value, low, high, confidence: self.confidence() })
    }

    fn distribution(&self) -> Option<Vec<(u64, Estimate)>> {
        let decoded = self.decoded();
        let most = self.rest().most.packets;
        let all = decoded.len() as f64 + decoded.undecoded as f64;
        let scale = all / (decoded.len() as f64).max(1.0);
        // Number of flows of each size: certain, and all.
        let mut bins: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        for cell in decoded.cells() {
            let bin = bins.entry(self.span(cell).value.packets).or_default();
            bin.0 += u64::from(decoded.is_clean(cell));
            bin.1 += 1;
        }
        let estimate = |(size, (certain, flows)): (u64, (u64, u64))| {
            let others = most.checked_div(size).unwrap_or(0) + decoded.uncertain() as u64;
            let (low, high) = (certain as f64, (certain + others).max(flows) as f64);
            (size, Estimate::between(low, (flows as f64 * scale).min(high), high))
        };
        Some(bins.into_iter().map(estimate).collect())
    }
}

impl<K: FlowKey> Flows for Radar<K> {
    fn len(&self) -> usize {
        self.decoded().certain()
    }

    fn most(&self) -> usize {
        self.shape.cells()
    }

    fn get(&self, index: usize) -> (&[u8], Size) {
        self.decoded().certain_flow(index, self.digester.key_bytes())
    }

    fn for_each(&self, visit: &mut dyn FnMut(&[u8], Size)) {
        for index in 0..self.len() {
            let (key, size) = self.decoded().certain_flow(index, self.digester.key_bytes());
            visit(key, size);
        }
    }
}

impl<K: FlowKey> Candidates for Radar<K> {
    fn for_each(&self, visit: &mut dyn FnMut(CanonicalKey, SizeEstimate)) {
        for cell in self.decoded().cells() {
            let (Span { low, value, high }, (key, _)) =
                (self.span(cell), self.decoded().flow(cell));
            let key = key.to_canonical(&self.digester);
            visit(key, SizeEstimate::between(low, value, high));
        }
    }

    /// Number of flows that were not decoded.
    fn overflow(&self) -> u64 {
        self.decoded().undecoded
    }
}

impl<K: FlowKey> SizeQuery for Radar<K> {
    fn estimate(&self, key: &[u8]) -> SizeEstimate {
        let Some(key) = K::matching(key, &self.digester) else {
            return SizeEstimate::exact(Size::default());
        };
        let digest = key.digest(&self.digester);
        let named = self.shape.cells_of(digest).find(|cell| self.decoded().names(*cell, &key));
        let Span { low, value, high } = match named {
            Some(cell) => self.span(cell),
            None => self.span_of_undecoded(digest),
        };
        SizeEstimate::between(low, value, high)
    }
}
