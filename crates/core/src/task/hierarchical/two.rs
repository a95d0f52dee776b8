//! Two dimensions: source prefixes × destination prefixes.
//!
//! A node is a source prefix with a destination prefix; both prefixes of its descendants are at
//! least as long. The source tree is walked from the leaves to the root and, for each source
//! prefix, so is the destination tree of its flows: a row of nodes, which is a walk in one
//! dimension. So all descendants of a node are decided before it.
//!
//! One number for each flow records what earlier rows have covered: the deepest destination level
//! of a reported node that contains the flow. In later rows, the flow counts only at deeper levels.
//!
//! Only source prefixes over the threshold need a row. A prefix whose flows are all below one
//! longer prefix needs none either: its row would leave no more weight uncovered.

use std::iter::once;
use std::ops::Range;

use super::tree::{Address, Closed, Path};
use crate::summary::Flows;
use crate::task::order;
use crate::terms::Measure;

/// A node whose discounted weight exceeds the threshold.
pub(super) struct HeavyPair {
    pub(super) source: u128,
    pub(super) source_level: usize,
    pub(super) destination: u128,
    pub(super) destination_level: usize,
    pub(super) total: u64,
    pub(super) discounted: u64,
}

/// The context of all rows.
pub(super) struct Pairs<'a> {
    pub(super) flows: &'a dyn Flows,
    pub(super) by: Measure,
    pub(super) source: &'a Address,
    pub(super) destination: &'a Address,
    pub(super) threshold: f64,
}

/// Bytes of scratch memory for `flows` flows: an entry each, and four bytes, which first hold the
/// rank of the destination and then the covered level.
pub(super) fn scratch_bytes(flows: usize) -> usize {
    (flows + flows.div_ceil(2)) * size_of::<u64>()
}

impl Pairs<'_> {
    /// Calls `report` with each heavy node.
    ///
    /// Time: two sorts by address, and one more sort of the flows below heavy prefixes for each
    /// source level at which they branch.
    pub(super) fn walk(&self, scratch: &mut [u64], mut report: impl FnMut(HeavyPair)) {
        let count = self.flows.len();
        let (entries, rest) = scratch.split_at_mut(count);
        self.rank_by_destination(entries, &mut bytemuck::cast_slice_mut(rest)[..count]);
        order::number(entries);
        order::sort(entries, self.flows, &order::columns(once(self.source.field.clone())));
        let ranks: &[u32] = &bytemuck::cast_slice(rest)[..count];
        for slot in &mut *entries {
            let flow = order::flow(*slot);
            *slot = order::entry(ranks[flow], flow);
        }

        // The ranks are now in the entries, so their memory can be reused.
        let covered = &mut bytemuck::cast_slice_mut(rest)[..count];
        covered.fill(0);
        let mut rows = Rows {
            pairs: self,
            path: Path::new(&self.destination.levels),
            covered,
            pending: vec![0; self.destination.levels.len()],
            last: 0..0,
            report: &mut report,
        };
        let mut path = Path::new(&self.source.levels);
        for place in 0..count {
            let (key, size) = self.flows.get(order::flow(entries[place]));
            path.push(self.source.of(key), size.by(self.by), place, |closed| {
                rows.close(&closed, entries);
                false
            });
        }
        path.finish(count, |closed| {
            rows.close(&closed, entries);
            false
        });
    }

    /// Computes the rank of each flow's destination among all destinations.
    fn rank_by_destination(&self, entries: &mut [u64], ranks: &mut [u32]) {
        let field = self.destination.field.clone();
        order::number(entries);
        order::sort(entries, self.flows, &order::columns(once(field.clone())));
        let mut rank = 0;
        let mut last: Option<&[u8]> = None;
        for &entry in &*entries {
            let flow = order::flow(entry);
            let destination = &self.flows.get(flow).0[field.clone()];
            rank += u32::from(last.is_some_and(|last| last != destination));
            ranks[flow] = rank;
            last = Some(destination);
        }
    }
}

/// The rows of all source prefixes, one after the other.
struct Rows<'a, R> {
    pairs: &'a Pairs<'a>,
    path: Path<'a>,
    /// For each flow, the deepest covered destination level, counted from 1; 0 for none.
    covered: &'a mut [u8],
    /// For each open destination prefix, the uncovered weight that earlier rows cover from here
    /// upwards.
    pending: Vec<u64>,
    /// The range of the last row's flows.
    last: Range<usize>,
    report: &'a mut R,
}

impl<R: FnMut(HeavyPair)> Rows<'_, R> {
    /// Walks the row of a source prefix, if it is heavy and differs from the last one.
    fn close(&mut self, source: &Closed<'_>, entries: &mut [u64]) {
        let places = source.node.start..source.end;
        if source.node.total as f64 <= self.pairs.threshold || places == self.last {
            return;
        }
        let entries = &mut entries[places.clone()];
        self.last = places;
        // By the rank of the destination, since the prefix may join several sources.
        entries.sort_unstable();
        let mut row = Row {
            pairs: self.pairs,
            source: source.address,
            level: source.level,
            entries,
            covered: self.covered,
            pending: &mut self.pending,
            report: self.report,
        };
        row.walk(&mut self.path);
    }
}

/// The flows below one source prefix, by destination.
struct Row<'a, R> {
    pairs: &'a Pairs<'a>,
    source: u128,
    level: usize,
    entries: &'a [u64],
    covered: &'a mut [u8],
    pending: &'a mut [u64],
    report: &'a mut R,
}

impl<R: FnMut(HeavyPair)> Row<'_, R> {
    fn walk(&mut self, path: &mut Path<'_>) {
        let Pairs { flows, by, destination, .. } = *self.pairs;
        for (place, &entry) in self.entries.iter().enumerate() {
            let flow = order::flow(entry);
            let (key, size) = flows.get(flow);
            let weight = size.by(by);
            path.push(destination.of(key), weight, place, |closed| self.close(closed));
            if let Some(level) = self.covered[flow].checked_sub(1) {
                self.pending[usize::from(level)] += weight;
            }
        }
        path.finish(self.entries.len(), |closed| self.close(closed));
    }

    fn close(&mut self, Closed { level, address, node, end }: Closed<'_>) -> bool {
        node.uncovered -= std::mem::take(&mut self.pending[level]);
        if node.uncovered as f64 <= self.pairs.threshold {
            return false;
        }
        let below = &self.entries[node.start..end];
        (self.report)(HeavyPair {
            source: self.source,
            source_level: self.level,
            destination: address,
            destination_level: level,
            total: node.total,
            discounted: node.uncovered,
        });
        for &entry in below {
            let flow = order::flow(entry);
            let covered = usize::from(self.covered[flow]);
            if covered <= level {
                if covered > 0 {
                    let weight = self.pairs.flows.get(flow).1.by(self.pairs.by);
                    self.pending[covered - 1] -= weight;
                }
                self.covered[flow] = level as u8 + 1;
            }
        }
        true
    }
}
