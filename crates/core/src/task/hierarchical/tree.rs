//! Prefix trees over one address, and the walk for one dimension.

use std::iter::once;
use std::ops::Range;

use crate::key::{CanonicalKey, prefix_mask};
use crate::summary::Flows;
use crate::task::order;
use crate::terms::Measure;

/// One address of a lane's keys, and the prefix lengths of its hierarchy.
pub(super) struct Address {
    /// Byte range of the address in the key.
    pub(super) field: Range<usize>,
    /// Prefix lengths, from 0 to the bits that the key keeps.
    pub(super) levels: Vec<u8>,
}

impl Address {
    /// Levels of `step` bits each; the last level has the bits that the key keeps.
    pub(super) fn new(field: Range<usize>, step: u8, bits: u8) -> Self {
        let levels = (0..bits).step_by(usize::from(step)).chain([bits]).collect();
        Self { field, levels }
    }

    /// The address of a key, aligned to the highest bit.
    pub(super) fn of(&self, key: &[u8]) -> u128 {
        let mut bytes = [0; 16];
        let field = &key[self.field.clone()];
        bytes[..field.len()].copy_from_slice(field);
        u128::from_be_bytes(bytes)
    }

    /// The prefix at this level: the address with zero host bits, and the length.
    pub(super) fn prefix(&self, address: u128, level: usize) -> (CanonicalKey, u8) {
        let bits = self.levels[level];
        let bytes = (address & prefix_mask(bits)).to_be_bytes();
        (CanonicalKey::new(&bytes[..self.field.len()]), bits)
    }
}

/// An open prefix, below which flows are still arriving.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Node {
    /// Weight of all flows below it.
    pub(super) total: u64,
    /// Weight of the flows that no reported descendant covers.
    pub(super) uncovered: u64,
    /// Number of the first flow below it, in order of arrival.
    pub(super) start: usize,
}

/// A prefix whose last flow has arrived.
pub(super) struct Closed<'a> {
    /// Its level, counted from the root.
    pub(super) level: usize,
    /// An address below it, aligned to the highest bit.
    pub(super) address: u128,
    /// Its weights.
    pub(super) node: &'a mut Node,
    /// Number of the flow after its last one.
    pub(super) end: usize,
}

/// A walk through a prefix tree over sorted addresses, from left to right and from the leaves to
/// the root, with one open prefix for each level.
///
/// Time for each address: the levels that it does not share with the previous one.
pub(super) struct Path<'a> {
    levels: &'a [u8],
    open: Vec<Node>,
    address: Option<u128>,
}

impl<'a> Path<'a> {
    /// The walk through a tree whose levels have these prefix lengths, starting with 0 for the
    /// root.
    pub(super) fn new(levels: &'a [u8]) -> Self {
        Self { levels, open: vec![Node::default(); levels.len()], address: None }
    }

    /// The number of levels whose prefix both addresses share.
    pub(super) fn shared(levels: &[u8], a: u128, b: u128) -> usize {
        let bits = (a ^ b).leading_zeros();
        levels.partition_point(|&level| u32::from(level) <= bits)
    }

    /// Takes flow number `flow`, whose address is not lower than the last one. Calls `close` for
    /// each prefix that ends before it; `close` returns whether the prefix covers its flows from
    /// now on.
    pub(super) fn push(
        &mut self,
        address: u128,
        weight: u64,
        flow: usize,
        close: impl FnMut(Closed<'_>) -> bool,
    ) {
        let shared = self.address.map_or(0, |last| Self::shared(self.levels, last, address));
        if shared < self.levels.len() {
            self.close_from(shared, flow, close);
            self.open[shared..].fill(Node { start: flow, ..Node::default() });
            self.address = Some(address);
        }
        if let Some(leaf) = self.open.last_mut() {
            leaf.total += weight;
            leaf.uncovered += weight;
        }
    }

    /// Closes all prefixes, after `flows` flows.
    pub(super) fn finish(&mut self, flows: usize, close: impl FnMut(Closed<'_>) -> bool) {
        self.close_from(0, flows, close);
        self.address = None;
    }

    fn close_from(&mut self, shared: usize, end: usize, mut close: impl FnMut(Closed<'_>) -> bool) {
        let Some(address) = self.address else { return };
        for level in (shared..self.levels.len()).rev() {
            let (above, below) = self.open.split_at_mut(level);
            let node = &mut below[0];
            let covers = close(Closed { level, address, node, end });
            if let Some(parent) = above.last_mut() {
                parent.total += node.total;
                parent.uncovered += if covers { 0 } else { node.uncovered };
            }
        }
    }
}

/// Calls `report` with each prefix whose discounted weight exceeds `threshold`: its address, level,
/// total and discounted weight.
///
/// Sorts the flows by address, in scratch memory of 8 bytes a flow. Then one walk through the tree
/// knows the uncovered weight of each prefix when it closes.
pub(super) fn walk(
    flows: &dyn Flows,
    by: Measure,
    address: &Address,
    threshold: f64,
    scratch: &mut [u64],
    mut report: impl FnMut(u128, usize, u64, u64),
) {
    let entries = &mut scratch[..flows.len()];
    order::number(entries);
    order::sort(entries, flows, &order::columns(once(address.field.clone())));

    let mut close = |closed: Closed<'_>| {
        let heavy = closed.node.uncovered as f64 > threshold;
        if heavy {
            report(closed.address, closed.level, closed.node.total, closed.node.uncovered);
        }
        heavy
    };
    let mut path = Path::new(&address.levels);
    for (place, &entry) in entries.iter().enumerate() {
        let (key, size) = flows.get(order::flow(entry));
        path.push(address.of(key), size.by(by), place, &mut close);
    }
    path.finish(flows.len(), &mut close);
}
