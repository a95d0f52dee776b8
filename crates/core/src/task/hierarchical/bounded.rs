//! Heavy prefixes of a summary that counts prefixes with bounds.
//!
//! Nodes are decided from the keys to the root. The discounted weight of a prefix is its own
//! weight, minus that of the reported prefixes next below it, plus the weight of the intersection
//! of any two of these that no third one covers. Then each packet counts once, since in two
//! dimensions only neighbours among the prefixes that contain a packet overlap in this way
//! (Mitzenmacher et al., ALENEX 2012, §3 and §4). The worst case of each term gives the bounds.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use super::Dimensions;
use super::tree::Address;
use crate::key::{CanonicalKey, prefix_mask};
use crate::summary::{Estimate, Prefixes};
use crate::task::{HierarchyItem, Unsupported};

/// An address, aligned to the highest bit, and the length of its prefix in bits.
type Side = (u128, u8);

/// Whether the first prefix is below the second one, or equal.
fn below((address, bits): Side, (above, shorter): Side) -> bool {
    bits >= shorter && address & prefix_mask(shorter) == above
}

/// The intersection of two prefixes: the longer one, if it is below the other.
fn common(a: Side, b: Side) -> Option<Side> {
    let (longer, shorter) = if a.1 >= b.1 { (a, b) } else { (b, a) };
    below(longer, shorter).then_some(longer)
}

/// The prefix of a node: of the source, or of the only address, and of the destination.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Prefix {
    source: Side,
    destination: Side,
}

impl Prefix {
    fn is_below(self, above: Self) -> bool {
        below(self.source, above.source) && below(self.destination, above.destination)
    }

    /// The prefix of the packets that both contain.
    fn common(self, other: Self) -> Option<Self> {
        Some(Self {
            source: common(self.source, other.source)?,
            destination: common(self.destination, other.destination)?,
        })
    }
}

/// The nodes of a summary, for a key that may keep only some bits of its addresses. Nodes that
/// differ only in bits that are never set count as one.
struct Nodes<'a> {
    source: &'a Address,
    destination: Option<&'a Address>,
    /// The prefix lengths of each node; `None` where another node stands for it.
    bits: Vec<Option<(u8, u8)>>,
}

impl<'a> Nodes<'a> {
    fn new(prefixes: &dyn Prefixes, dimensions: &'a Dimensions) -> Self {
        let (source, destination) = match dimensions {
            Dimensions::One(address) => (address, None),
            Dimensions::Two(source, destination) => (source, Some(destination)),
        };
        let nodes = prefixes.nodes();
        let last = |address: &Address| address.levels.last().copied().unwrap_or(0);
        let most = (last(source), destination.map_or(0, last));
        // The shortest of the lengths that include all kept bits stands for the others.
        let enough = |most: u8, side: fn(&(u8, u8)) -> u8| {
            nodes.iter().map(side).filter(|bits| *bits >= most).min().unwrap_or(most)
        };
        let enough = (enough(most.0, |node| node.0), enough(most.1, |node| node.1));
        let kept = |&(source, destination): &(u8, u8)| {
            let stays = source <= enough.0 && destination <= enough.1;
            stays.then(|| (source.min(most.0), destination.min(most.1)))
        };
        Self { source, destination, bits: nodes.iter().map(kept).collect() }
    }

    fn prefix(&self, key: &CanonicalKey, (source, destination): (u8, u8)) -> Prefix {
        let key = key.as_bytes();
        let other = self.destination.map_or(0, |address| address.of(key));
        Prefix { source: (self.source.of(key), source), destination: (other, destination) }
    }

    /// The weight of a prefix.
    fn weight(&self, prefixes: &dyn Prefixes, prefix: Prefix) -> Estimate {
        let bits = Some((prefix.source.1, prefix.destination.1));
        let Some(node) = self.bits.iter().position(|kept| *kept == bits) else {
            return Estimate::exact(0);
        };
        let mut key = [0; CanonicalKey::MAX_BYTES];
        let mut len = 0;
        for (address, side) in
            [(Some(self.source), prefix.source), (self.destination, prefix.destination)]
        {
            let Some(address) = address else { continue };
            let bytes = address.field.len();
            key[address.field.clone()].copy_from_slice(&side.0.to_be_bytes()[..bytes]);
            len = address.field.end;
        }
        prefixes.estimate(node, &key[..len])
    }

    fn item(&self, prefix: Prefix, total: Estimate, discounted: Estimate) -> HierarchyItem {
        let canonical = |address: &Address, side: Side| {
            CanonicalKey::new(&side.0.to_be_bytes()[..address.field.len()])
        };
        HierarchyItem {
            source: canonical(self.source, prefix.source),
            source_bits: prefix.source.1,
            destination: self
                .destination
                .map(|address| (canonical(address, prefix.destination), prefix.destination.1)),
            total,
            discounted,
        }
    }
}

/// The reported prefixes with their weights, from the keys to the root.
struct Reported {
    /// In one dimension, by address. Without prefixes below others, which are no longer needed.
    one: BTreeMap<u128, (Prefix, Estimate)>,
    /// In two dimensions, in order of the report.
    two: Vec<(Prefix, Estimate)>,
    dimensions: u8,
}

impl Reported {
    /// The reported prefixes next below a prefix, with no other between.
    fn next_below(&self, prefix: Prefix, steps: &mut Steps) -> Vec<(Prefix, Estimate)> {
        if self.dimensions == 1 {
            let next = self.one.range(addresses(prefix.source)).map(|(_, reported)| *reported);
            return next.collect();
        }
        let mut next: Vec<(Prefix, Estimate)> = Vec::new();
        steps.take(self.two.len());
        // Prefixes higher up are reported later.
        for (one, weight) in self.two.iter().rev().filter(|(one, _)| one.is_below(prefix)) {
            if !steps.take(next.len()) {
                break;
            }
            if !next.iter().any(|(other, _)| one.is_below(*other)) {
                next.push((*one, *weight));
            }
        }
        next
    }

    fn push(&mut self, prefix: Prefix, weight: Estimate) {
        if self.dimensions == 1 {
            let covered: Vec<u128> =
                self.one.range(addresses(prefix.source)).map(|(address, _)| *address).collect();
            for address in covered {
                self.one.remove(&address);
            }
            self.one.insert(prefix.source.0, (prefix, weight));
        } else {
            self.two.push((prefix, weight));
        }
    }
}

/// All addresses below a prefix.
fn addresses((address, bits): Side) -> RangeInclusive<u128> {
    address..=address | !prefix_mask(bits)
}

/// Comparisons of two prefixes that a report may still take.
pub(super) struct Steps(u64);

impl Default for Steps {
    /// Some seconds.
    fn default() -> Self {
        Self(1 << 31)
    }
}

impl Steps {
    /// Whether there are so many left. They are taken.
    fn take(&mut self, steps: usize) -> bool {
        self.0 = self.0.saturating_sub(steps as u64);
        !self.are_spent()
    }

    fn are_spent(&self) -> bool {
        self.0 == 0
    }
}

/// Calls `report` with each prefix whose discounted weight may exceed `threshold`. No weight
/// exceeds `total`.
///
/// For a sample, a prefix is reported if its scaled weight may exceed the threshold, without the
/// sampling error, which only widens the bounds. With the sampling error, nearly all prefixes would
/// be reported until there are about 4 Z² V / θ² packets.
///
/// Time for each prefix whose total may exceed the threshold: in one dimension, the prefixes next
/// below it; in two, all reported prefixes, and the pairs of those next below it, in at most so many
/// `steps`.
///
/// # Errors
/// When the steps run out. Some heavy prefixes are then not reported.
pub(super) fn heavy(
    prefixes: &dyn Prefixes,
    dimensions: &Dimensions,
    (threshold, total): (f64, f64),
    mut steps: Steps,
    mut report: impl FnMut(HierarchyItem),
) -> Result<(), Unsupported> {
    let nodes = Nodes::new(prefixes, dimensions);
    let sampling = prefixes.sampling();
    let widened = |weight: Estimate, terms: f64| match sampling {
        None => weight,
        Some(sampling) => {
            let error = sampling.error(terms);
            let high = (weight.high + error).clamp(0.0, total);
            let low = (weight.low - error).clamp(0.0, high);
            let value = weight.value.clamp(low, high);
            Estimate { value, low, high, confidence: Some(sampling.confidence) }
        }
    };
    let mut reported = Reported {
        one: BTreeMap::new(),
        two: Vec::new(),
        dimensions: if nodes.destination.is_some() { 2 } else { 1 },
    };
    for (node, bits) in nodes.bits.iter().enumerate() {
        let Some(bits) = *bits else { continue };
        prefixes.for_each(node, &mut |key, weight| {
            if weight.high <= threshold || steps.are_spent() {
                return;
            }
            let prefix = nodes.prefix(&key, bits);
            let next = reported.next_below(prefix, &mut steps);
            let (discounted, terms) = discounted(prefixes, &nodes, &next, weight, &mut steps);
            if discounted.high > threshold {
                let (all, left) = (widened(weight, weight.high), widened(discounted, terms));
                report(nodes.item(prefix, all, left));
                reported.push(prefix, weight);
            }
        });
    }
    if steps.are_spent() {
        let reason = "too many prefixes may exceed the threshold to discount them in some seconds; \
                      raise --threshold";
        return Err(Unsupported(reason.to_owned()));
    }
    Ok(())
}

/// The weight of a prefix that none of the `next` prefixes below it covers, and the total weight of
/// the terms of this sum.
fn discounted(
    prefixes: &dyn Prefixes,
    nodes: &Nodes<'_>,
    next: &[(Prefix, Estimate)],
    mut weight: Estimate,
    steps: &mut Steps,
) -> (Estimate, f64) {
    let (most, mut terms) = (weight.high, weight.high);
    for (index, (one, less)) in next.iter().enumerate() {
        weight.value -= less.value;
        weight.low -= less.high;
        weight.high -= less.low;
        terms += less.high;
        // In one dimension they do not intersect.
        let before = if nodes.destination.is_some() { &next[..index] } else { &[] };
        steps.take(before.len());
        for (other, _) in before {
            let Some(both) = one.common(*other) else { continue };
            if !steps.take(next.len()) {
                return (weight, terms);
            }
            let third = |(third, _): &&(Prefix, Estimate)| third != one && third != other;
            if next.iter().filter(third).any(|(third, _)| both.is_below(*third)) {
                continue;
            }
            let more = nodes.weight(prefixes, both);
            weight.value += more.value;
            weight.low += more.low;
            weight.high += more.high;
            terms += more.high;
        }
    }
    weight.high = weight.high.min(most);
    weight.low = weight.low.clamp(0.0, weight.high.max(0.0));
    weight.value = weight.value.clamp(weight.low, weight.high.max(weight.low));
    (weight, terms)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;
    use crate::batch::Batch;
    use crate::catalog;
    use crate::key::{FlowKey, Key8, KeyKind};
    use crate::summary::Options;
    use crate::task::Lane;
    use crate::task::hierarchical::Hierarchical;
    use crate::terms::Hierarchy;

    /// A threshold below the error of the counters lets all prefixes pass, whose pairs would take
    /// minutes.
    #[test]
    fn a_report_that_would_take_too_long_is_refused() {
        let hierarchy = Hierarchy::Pair;
        let options = Options { hierarchy, ..Options::new(1 << 22, 1).for_keys(8) };
        let mut counter = catalog::build::<Key8>("mst", &options).unwrap();
        let mut batch = Batch::new();
        for flow in 0..200u8 {
            let other = flow.wrapping_mul(7);
            let key = [flow, other, 1, 2, other, flow, 3, 4];
            batch.push(Key8::from_canonical(&key).unwrap(), 64, 0);
        }
        counter.ingest(&mut batch);
        let answers = counter.answers();
        let lane = Lane { key: KeyKind::PAIR.into(), key_bytes: 8, answers };
        let dimensions = Hierarchical { hierarchy }.dimensions(&lane).unwrap();
        let prefixes = answers.prefixes().unwrap();
        let heavy = |steps| {
            let mut reported = 0;
            heavy(prefixes, &dimensions, (0.5, 200.0), steps, |_| reported += 1).map(|()| reported)
        };
        assert!(heavy(Steps::default()).is_ok_and(|reported| reported >= 200));
        assert!(heavy(Steps(10_000)).is_err());
    }
}
