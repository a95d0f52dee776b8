//! Sorting flows by fields of their keys, in scratch of eight bytes a flow.
//!
//! An entry is a flow's number in its low half and, in its high half, up to four bytes of the
//! flow's key: a column. Entries are sorted as plain numbers, by one column after the other, and
//! only runs that are equal in one column are looked up for the next. So the keys stay where they
//! are, most are read once or twice, and no input makes it slower than n log n for each column.

use std::ops::Range;

use crate::summary::Flows;

/// Up to four bytes of a canonical key, compared as one number.
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

/// The columns that make up these ranges of the key, in this order.
pub(super) fn columns(ranges: impl IntoIterator<Item = Range<usize>>) -> Vec<Column> {
    let split = |range: Range<usize>| {
        let end = range.end;
        range.step_by(4).map(move |start| Column { start, end: end.min(start + 4) })
    };
    ranges.into_iter().flat_map(split).collect()
}

/// The number of the flow.
#[inline]
pub(super) fn flow(entry: u64) -> usize {
    entry as u32 as usize
}

/// The number of the flow with this word before it.
#[inline]
pub(super) fn entry(word: u32, flow: usize) -> u64 {
    u64::from(word) << 32 | u64::from(flow as u32)
}

/// The runs of entries that are equal in their words.
pub(super) fn runs(entries: &mut [u64]) -> impl Iterator<Item = &mut [u64]> {
    entries.chunk_by_mut(|a, b| a >> 32 == b >> 32)
}

/// Fills the entries with the flows' numbers, from 0.
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

/// Sorts by all columns; flows that are equal in all of them are neighbours in any order.
pub(super) fn sort(entries: &mut [u64], flows: &dyn Flows, columns: &[Column]) {
    let Some((&column, rest)) = columns.split_first() else { return };
    sort_column(entries, flows, column);
    if !rest.is_empty() {
        for run in runs(entries).filter(|run| run.len() > 1) {
            sort(run, flows, rest);
        }
    }
}
