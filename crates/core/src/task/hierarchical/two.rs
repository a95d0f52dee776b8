//! Two dimensions: source prefixes × destination prefixes.
//!
//! A node is a source prefix of level i with a destination prefix of level j. Its descendants have
//! both levels at least as deep, so they are all judged before it when i falls from the deepest
//! level to the root, and for each i, j does the same. For one i and one source prefix, the nodes
//! of all j are a prefix tree over the destinations: the walk of one dimension.
//!
//! What the rows before have covered takes one number for each flow: the deepest destination level
//! of a reported node that contains it. A flow with the number j weighs in this row only at the
//! levels below j, that is, deeper ones.

use std::iter::once;

use super::path::{Closed, Path};
use super::prefix::Address;
use crate::summary::{Flows, Measure};
use crate::task::order;

/// A node whose discounted weight exceeds the threshold.
pub(super) struct HeavyPair {
    pub(super) source: u128,
    pub(super) source_level: usize,
    pub(super) destination: u128,
    pub(super) destination_level: usize,
    pub(super) total: u64,
    pub(super) discounted: u64,
}

/// What all rows share.
pub(super) struct Pairs<'a> {
    pub(super) flows: &'a dyn Flows,
    pub(super) by: Measure,
    pub(super) source: &'a Address,
    pub(super) destination: &'a Address,
    pub(super) threshold: f64,
}

/// Bytes of scratch that `flows` flows need: an entry each, and two bytes or, while the rows are
/// prepared, the rank of the destination.
pub(super) fn scratch_bytes(flows: usize) -> usize {
    (flows + flows.div_ceil(2)) * size_of::<u64>()
}

impl Pairs<'_> {
    /// Calls `report` with each heavy node.
    ///
    /// Time: two sorts by address and, for each source level, one by destination of the flows
    /// below heavy source prefixes.
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

        // The ranks have moved into the entries, and their room is free.
        let (shared, covered) = bytemuck::cast_slice_mut::<u64, u8>(rest).split_at_mut(count);
        let covered = &mut covered[..count];
        covered.fill(0);
        self.share_levels(entries, shared);

        let mut path = Path::new(&self.destination.levels);
        let mut pending = vec![0; self.destination.levels.len()];
        for level in (0..self.source.levels.len()).rev() {
            let mut start = 0;
            while start < count {
                let rest = &shared[start + 1..];
                let len = 1 + rest.iter().take_while(|&&s| usize::from(s) > level).count();
                let entries = &mut entries[start..start + len];
                start += len;
                if self.weigh(entries) as f64 > self.threshold {
                    entries.sort_unstable();
                    let mut row = Row {
                        pairs: self,
                        level,
                        entries,
                        covered,
                        pending: &mut pending,
                        report: &mut report,
                    };
                    row.walk(&mut path);
                }
            }
        }
    }

    /// Gives each flow the rank of its destination among all.
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

    /// Tells of each place in the order by source how many levels it shares with the place before.
    fn share_levels(&self, entries: &[u64], shared: &mut [u8]) {
        let mut last = None;
        for (&entry, shared) in entries.iter().zip(shared) {
            let source = self.source.of(self.flows.get(order::flow(entry)).0);
            *shared = last.map_or(0, |last| Path::shared(&self.source.levels, last, source)) as u8;
            last = Some(source);
        }
    }

    fn weigh(&self, entries: &[u64]) -> u64 {
        entries.iter().map(|&entry| self.flows.get(order::flow(entry)).1.by(self.by)).sum()
    }
}

/// The flows below one source prefix, by destination.
struct Row<'a, R> {
    pairs: &'a Pairs<'a>,
    level: usize,
    entries: &'a [u64],
    /// Of each flow of the lane: the deepest covered destination level, counted from 1; 0 is none.
    covered: &'a mut [u8],
    /// Of each open destination prefix: uncovered weight that earlier rows cover from here on up.
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
        let source = self.pairs.source.of(self.pairs.flows.get(order::flow(below[0])).0);
        (self.report)(HeavyPair {
            source,
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
