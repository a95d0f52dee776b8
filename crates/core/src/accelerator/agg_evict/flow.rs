//! The flows of an aggregator, and the row and the tag by which each is found.

use bytemuck::Zeroable;
use flowgauge_kernel::{Digester, Tags, equal_in_group};

use super::pairs::PAIRS;
use crate::batch::{BATCH_PACKETS, Batch};
use crate::key::FlowKey;
use crate::summary::remix;

/// The remixed word of digest and element that finds a flow of key and element.
const ELEMENT_WORD: u64 = 21;

/// The flow of a packet: its key, or its key and element.
pub(super) trait Flow<K>: Copy + PartialEq + Zeroable + Send + 'static {
    /// The digests of a batch's flows: [`Batch::digests`] for keys, or others that it writes to
    /// `own`.
    fn digests<'a>(
        batch: &'a Batch<K>,
        digester: &Digester,
        own: &'a mut [u64; BATCH_PACKETS],
    ) -> &'a [u64; BATCH_PACKETS]
    where
        K: FlowKey;
    fn new(key: K, element: u64) -> Self;
    fn key(self) -> K;
    fn element(self) -> u64;
}

/// A flow identified by its key.
#[derive(Clone, Copy, PartialEq, Zeroable)]
#[repr(transparent)]
pub(super) struct Keyed<K>(K);

impl<K: FlowKey> Flow<K> for Keyed<K> {
    #[inline(always)]
    fn digests<'a>(
        batch: &'a Batch<K>,
        _: &Digester,
        _: &'a mut [u64; BATCH_PACKETS],
    ) -> &'a [u64; BATCH_PACKETS] {
        batch.columns().digests
    }

    #[inline(always)]
    fn new(key: K, _: u64) -> Self {
        Self(key)
    }

    #[inline(always)]
    fn key(self) -> K {
        self.0
    }

    #[inline(always)]
    fn element(self) -> u64 {
        0
    }
}

/// A flow identified by key and element, for summaries that read elements.
#[derive(Clone, Copy, PartialEq, Zeroable)]
#[repr(C)]
pub(super) struct Spoken<K> {
    element: u64,
    key: K,
}

impl<K: FlowKey> Flow<K> for Spoken<K> {
    fn digests<'a>(
        batch: &'a Batch<K>,
        digester: &Digester,
        own: &'a mut [u64; BATCH_PACKETS],
    ) -> &'a [u64; BATCH_PACKETS] {
        let mut both = [0; BATCH_PACKETS];
        for ((both, digest), element) in both.iter_mut().zip(batch.digests()).zip(batch.elements())
        {
            // Rotated, so that the two directions of a flow differ.
            *both = digest ^ element.rotate_left(32);
        }
        let len = batch.len();
        remix::remix_batch(digester, &both[..len], ELEMENT_WORD, &mut own[..len]);
        own
    }

    #[inline(always)]
    fn new(key: K, element: u64) -> Self {
        Self { element, key }
    }

    #[inline(always)]
    fn key(self) -> K {
        self.key
    }

    #[inline(always)]
    fn element(self) -> u64 {
        self.element
    }
}

/// Derives the row and the tag of a flow. Flows with equal tags are compared in full.
pub(super) trait Tag: Send + 'static {
    /// The word for it on the command line.
    const NAME: &'static str;
    /// The tags of a row.
    type Row: TagRow;

    /// The largest possible number of rows up to `most`.
    fn rows(most: usize) -> usize;
    /// The word that row and tag are taken from, of a flow with this digest.
    fn word<K: FlowKey, F: Flow<K>>(digest: u64, flow: F) -> u64;
    /// The row, of `rows` rows.
    fn row(word: u64, rows: usize) -> usize;
    /// The tag.
    fn tag(word: u64) -> <Self::Row as TagRow>::Tag;
}

/// The tags of a row.
pub(super) trait TagRow: Copy + Zeroable + Send + 'static {
    type Tag: Copy;

    /// The first pair with this tag.
    fn find(&self, tag: Self::Tag) -> Option<usize>;
    fn set(&mut self, pair: usize, tag: Self::Tag);
}

/// A tag of 16 bits of the digest, and a row of other bits. Without the seed, a sender cannot crowd
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
        // Tables use these bits as fingerprints and tags. The bits that they use for columns are
        // the tag here.
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

/// The paper's tag: the XOR of a flow's 32-bit words, and its remainder for the row. Regular or
/// crafted keys collide in rows and tags, so that their packets reach the summary one by one; the
/// counts are the same.
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

/// Sixteen tags of 32 bits: a cache line.
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
