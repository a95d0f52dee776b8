//! Heavy prefixes from counts with bounds.
//!
//! Nodes are judged from the keys to the root. The discounted weight of a prefix is its own, less that
//! of the reported prefixes next below it, plus what two of these have in common, where no third covers
//! that: in two dimensions, of all prefixes that contain a packet only neighbours overlap in such a
//! way, so that each packet counts once (Mitzenmacher et al., ALENEX 2012, §3 and §4). Each term at its
//! worst gives the bounds.

use super::Dimensions;
use super::prefix::Address;
use crate::key::{CanonicalKey, prefix_mask};
use crate::summary::{Estimate, Prefixes};
use crate::task::HierarchyItem;

/// An address of a prefix, its first bit the highest, and its length in bits.
type Side = (u128, u8);

/// Whether the first is a longer prefix of the second, or the same.
fn below((address, bits): Side, (above, shorter): Side) -> bool {
    bits >= shorter && address & prefix_mask(shorter) == above
}

/// The longer of two prefixes, where it is below the other.
fn common(a: Side, b: Side) -> Option<Side> {
    let (longer, shorter) = if a.1 >= b.1 { (a, b) } else { (b, a) };
    below(longer, shorter).then_some(longer)
}

/// A node's prefix: of the source, or of the only address, and of the destination.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Prefix {
    source: Side,
    destination: Side,
}

impl Prefix {
    fn is_below(self, above: Self) -> bool {
        below(self.source, above.source) && below(self.destination, above.destination)
    }

    /// The prefix of all packets that both contain.
    fn common(self, other: Self) -> Option<Self> {
        Some(Self {
            source: common(self.source, other.source)?,
            destination: common(self.destination, other.destination)?,
        })
    }
}

/// What the nodes of a summary are to a key that keeps only some bits of its addresses: the bits that
/// are never set make no prefixes of their own.
struct Nodes<'a> {
    source: &'a Address,
    destination: Option<&'a Address>,
    /// The lengths of each node's prefixes; `None` where another node has the same ones.
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
        // Of the lengths that keep all bits, the shortest stands for all of them.
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

    /// The weight of a prefix of any node.
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

/// Calls `report` with each prefix whose discounted weight may exceed `threshold`.
///
/// Time: for each prefix that may exceed it as a whole, the reported ones, and the pairs of those next
/// below it.
pub(super) fn heavy(
    prefixes: &dyn Prefixes,
    dimensions: &Dimensions,
    threshold: f64,
    mut report: impl FnMut(HierarchyItem),
) {
    let nodes = Nodes::new(prefixes, dimensions);
    let sampling = prefixes.sampling();
    let missed = sampling.map_or(0.0, |(error, _)| error);
    let mut reported: Vec<(Prefix, Estimate)> = Vec::new();
    for (node, bits) in nodes.bits.iter().enumerate() {
        let Some(bits) = *bits else { continue };
        let before = reported.len();
        prefixes.for_each(node, &mut |key, weight| {
            if weight.high + 2.0 * missed <= threshold {
                return;
            }
            let prefix = nodes.prefix(&key, bits);
            let discounted = discounted(prefixes, &nodes, &reported[..before], prefix, weight);
            // The samples that are added may err one way, and those that are taken off the other.
            let discounted = widened(discounted, 2.0 * missed, sampling);
            if discounted.high > threshold {
                report(nodes.item(prefix, widened(weight, missed, sampling), discounted));
                reported.push((prefix, weight));
            }
        });
    }
}

fn widened(weight: Estimate, error: f64, sampling: Option<(f64, f64)>) -> Estimate {
    let low = (weight.low - error).max(0.0);
    let high = (weight.high + error).max(low);
    let confidence = sampling.map(|(_, confidence)| confidence);
    Estimate { value: weight.value.clamp(low, high), low, high, confidence }
}

/// The weight of a prefix that no reported one below it covers.
fn discounted(
    prefixes: &dyn Prefixes,
    nodes: &Nodes<'_>,
    reported: &[(Prefix, Estimate)],
    prefix: Prefix,
    mut weight: Estimate,
) -> Estimate {
    let total = weight;
    let inside: Vec<&(Prefix, Estimate)> =
        reported.iter().filter(|(other, _)| other.is_below(prefix)).collect();
    let covered =
        |one: Prefix| inside.iter().any(|(other, _)| *other != one && one.is_below(*other));
    let next: Vec<&(Prefix, Estimate)> =
        inside.iter().copied().filter(|(one, _)| !covered(*one)).collect();
    for (index, (one, less)) in next.iter().enumerate() {
        weight.value -= less.value;
        weight.low -= less.high;
        weight.high -= less.low;
        for (other, _) in &next[..index] {
            let Some(both) = one.common(*other) else { continue };
            let third = |(third, _): &&&(Prefix, Estimate)| third != one && third != other;
            if next.iter().filter(third).any(|(third, _)| both.is_below(*third)) {
                continue;
            }
            let more = nodes.weight(prefixes, both);
            weight.value += more.value;
            weight.low += more.low;
            weight.high += more.high;
        }
    }
    weight.high = weight.high.min(total.high);
    weight
}
