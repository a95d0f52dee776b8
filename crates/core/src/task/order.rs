//! Sorting flows by fields of their keys, in scratch memory of eight bytes a flow.
//!
//! An entry has the number of a flow in its low half, and up to four bytes of the flow's key, a
//! column, in its high half. Entries are sorted as integers, column by column; only runs that are
//! equal in one column are sorted by the next. So keys are not moved, most are read once or twice,
//! and the time for a column is at most n log n for any input.
//!
//! A first pass over the flows often finds the few worth sorting: it sums or counts them in buckets
//! chosen by a hash.

use crate::summary::Flows;
use std::ops::Range;

/// A column: up to four bytes of a canonical key, compared as one number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    start: usize,
    end: usize,
}

impl Column {
    fn word(self, key: &[u8]) -> u32 {
        key[self.start..self.end].iter().fold(0, |word, &byte| word << 8 | u32::from(byte))
    }
}

/// The columns of these ranges of the key, in this order.
pub(super) fn columns(ranges: impl IntoIterator<Item = Range<usize>>) -> Vec<Column> {
    let split = |range: Range<usize>| {
        let end = range.end;
        range.step_by(4).map(move |start| Column { start, end: end.min(start + 4) })
    };
    ranges.into_iter().flat_map(split).collect()
}

/// The number of an entry's flow.
#[inline]
pub(super) fn flow(entry: u64) -> usize {
    entry as u32 as usize
}

/// The entry of a flow, with this word of its key.
#[inline]
pub(super) fn entry(word: u32, flow: usize) -> u64 {
    u64::from(word) << 32 | u64::from(flow as u32)
}

/// The runs of entries with equal words.
pub(super) fn runs(entries: &mut [u64]) -> impl Iterator<Item = &mut [u64]> {
    entries.chunk_by_mut(|a, b| a >> 32 == b >> 32)
}

/// Fills the entries with consecutive flow numbers from 0.
pub(super) fn number(entries: &mut [u64]) {
    for (flow, entry) in (0..).zip(entries) {
        *entry = flow;
    }
}

/// Sorts by one column.
pub(super) fn sort_column(entries: &mut [u64], flows: &dyn Flows, column: Column) {
    for slot in &mut *entries {
        let flow = flow(*slot);
        *slot = entry(column.word(flows.get(flow).0), flow);
    }
    entries.sort_unstable();
}

/// Sorts by all columns. Not stable.
pub(super) fn sort(entries: &mut [u64], flows: &dyn Flows, columns: &[Column]) {
    let Some((&column, rest)) = columns.split_first() else { return };
    sort_column(entries, flows, column);
    if !rest.is_empty() {
        for run in runs(entries).filter(|run| run.len() > 1) {
            sort(run, flows, rest);
        }
    }
}

/// Binary logarithm of the number of buckets: a 16th to an eighth of the flows, so that few keys
/// collide, and at most 2¹⁸, so that the sums fit into the second-level cache.
pub(super) fn bucket_bits(flows: usize) -> u32 {
    (flows / 8).checked_ilog2().unwrap_or(0).clamp(10, 18)
}

/// Bytes of scratch memory for a sum in each bucket, and an entry for each flow.
pub(super) fn bucketed_bytes(flows: usize) -> usize {
    ((1 << bucket_bits(flows)) + flows) * size_of::<u64>()
}

/// A fast hash of bytes. Collisions cost only a little time, so it needs no seed.
#[inline]
pub(super) fn bucket_hash(bytes: &[u8]) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    bytes
        .chunks(4)
        .fold(0, |hash: u64, chunk| {
            let word = chunk.iter().fold(0, |word, &byte| word << 8 | u64::from(byte));
            let hash = (hash ^ word).wrapping_mul(ODD);
            hash ^ hash >> 32
        })
        .wrapping_mul(ODD)
}
