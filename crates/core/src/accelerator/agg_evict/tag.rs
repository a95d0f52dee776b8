//! By which tag a flow is found, and in which row.

use bytemuck::Zeroable;
use flowgauge_kernel::{Tags, equal_in_group};

use super::flow::Flow;
use super::pairs::PAIRS;
use crate::key::FlowKey;

/// Chooses row and tag of a flow. Flows of one tag are told apart by all that they are.
pub(super) trait Tag: Send + 'static {
    /// The word for it on the command line.
    const NAME: &'static str;
    /// The tags of a row.
    type Row: TagRow;

    /// So many rows, or the next lower number of rows that it can choose among.
    fn rows(most: usize) -> usize;
    /// What row and tag are cut from, of a flow with this digest.
    fn word<K: FlowKey, F: Flow<K>>(digest: u64, flow: F) -> u64;
    /// The row, of so many.
    fn row(word: u64, rows: usize) -> usize;
    /// The tag.
    fn tag(word: u64) -> <Self::Row as TagRow>::Tag;
}

/// The tags of a row.
pub(super) trait TagRow: Copy + Zeroable + Send + 'static {
    type Tag: Copy;

    /// The first pair that has this tag.
    fn find(&self, tag: Self::Tag) -> Option<usize>;
    fn set(&mut self, pair: usize, tag: Self::Tag);
}

/// 16 bits of the digest, and other bits of it for the row: nobody who does not know the seed can crowd
/// flows into one row.
pub(super) struct OfDigest;

impl Tag for OfDigest {
    const NAME: &'static str = "digest";
    type Row = Tags;

    fn rows(most: usize) -> usize {
        1 << most.ilog2()
    }

    #[inline(always)]
    fn word<K: FlowKey, F: Flow<K>>(digest: u64, _: F) -> u64 {
        digest
    }

    #[inline(always)]
    fn row(word: u64, rows: usize) -> usize {
        // The bits of fingerprints and tags; those of columns are the tag here.
        (word >> 32) as usize & (rows - 1)
    }

    #[inline(always)]
    fn tag(word: u64) -> u16 {
        word as u16
    }
}

impl TagRow for Tags {
    type Tag = u16;

    #[inline(always)]
    fn find(&self, tag: u16) -> Option<usize> {
        Tags::find(self, tag)
    }

    #[inline(always)]
    fn set(&mut self, pair: usize, tag: u16) {
        self.0[pair] = tag;
    }
}

/// The paper's: 32 bits, the exclusive or of a flow's words, and the remainder of that for the row.
/// Keys that are regular or crafted share rows and tags, so that their packets reach the summary one by
/// one; what it counts is the same.
pub(super) struct OfWords;

impl Tag for OfWords {
    const NAME: &'static str = "xor";
    type Row = WideTags;

    fn rows(most: usize) -> usize {
        most
    }

    #[inline(always)]
    fn word<K: FlowKey, F: Flow<K>>(_: u64, flow: F) -> u64 {
        let (key, element) = (flow.key(), flow.element());
        let (words, rest) = key.canonical(K::BYTES).as_chunks();
        let rest = rest.iter().fold(0, |rest, byte| rest << 8 | u32::from(*byte));
        let others = rest ^ element as u32 ^ (element >> 32) as u32;
        words.iter().fold(others, |tag, word| tag ^ u32::from_le_bytes(*word)).into()
    }

    #[inline(always)]
    fn row(word: u64, rows: usize) -> usize {
        (word as u32 % rows as u32) as usize
    }

    #[inline(always)]
    fn tag(word: u64) -> u32 {
        word as u32
    }
}

/// Sixteen tags of 32 bits, a cache line.
#[derive(Clone, Copy, Zeroable)]
#[repr(C, align(64))]
pub(super) struct WideTags([[u32; 8]; PAIRS / 8]);

impl TagRow for WideTags {
    type Tag = u32;

    #[inline(always)]
    fn find(&self, tag: u32) -> Option<usize> {
        let [first, second] = self.0.each_ref().map(|tags| equal_in_group(tags, u32::MAX, tag));
        let equal = first | second << 8;
        (equal != 0).then(|| equal.trailing_zeros() as usize)
    }

    #[inline(always)]
    fn set(&mut self, pair: usize, tag: u32) {
        self.0[pair / 8][pair % 8] = tag;
    }
}
