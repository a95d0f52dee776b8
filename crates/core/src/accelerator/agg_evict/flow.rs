//! The flows of an aggregator, and the row and the tag by which each is found.

use bytemuck::Zeroable;
use flowgauge_kernel::{Tags, equal_in_group};

use super::pairs::PAIRS;
use crate::batch::{BATCH_PACKETS, Batch};
use crate::key::FlowKey;
use crate::summary::{BuildError, Parameters, Setting};

/// The flow of a packet: its key, or its key and element.
pub(super) trait Flow<K>: Copy + PartialEq + Zeroable + Send + 'static {
    /// The digests of a batch's flows: [`Batch::digests`] for keys, or others that it writes to
    /// `own`.
    fn digests<'a>(
        batch: &'a Batch<K>,
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

/// A flow identified by key and element, for summaries that read elements. The element is in two
/// halves, so that its alignment adds no bytes to a short key.
#[derive(Clone, Copy, PartialEq, Zeroable)]
#[repr(C)]
pub(super) struct Spoken<K> {
    element: [u32; 2],
    key: K,
}

impl<K: FlowKey> Flow<K> for Spoken<K> {
    /// Elements are digests themselves, so that an exclusive or is a hash of both. They are rotated,
    /// so that the two directions of a flow differ.
    #[inline(never)]
    fn digests<'a>(
        batch: &'a Batch<K>,
        own: &'a mut [u64; BATCH_PACKETS],
    ) -> &'a [u64; BATCH_PACKETS] {
        for ((own, digest), element) in own.iter_mut().zip(batch.digests()).zip(batch.elements()) {
            *own = digest ^ element.rotate_left(32);
        }
        own
    }

    #[inline(always)]
    fn new(key: K, element: u64) -> Self {
        Self { element: [element as u32, (element >> 32) as u32], key }
    }

    #[inline(always)]
    fn key(self) -> K {
        self.key
    }

    #[inline(always)]
    fn element(self) -> u64 {
        let [low, high] = self.element.map(u64::from);
        high << 32 | low
    }
}

/// Derives the row and the tag of a flow. Flows with equal tags are compared in full.
pub(super) trait Tag: Copy + Send + 'static {
    /// The tags of a row.
    type Row: TagRow;

    /// The word of a flow with this digest: the low half gives the tag, the high half the row.
    fn word<K: FlowKey, F: Flow<K>>(self, digest: u64, flow: F) -> u64;
    /// The row, of `rows` rows.
    fn row(word: u64, rows: usize) -> usize;
    /// The tag.
    fn tag(word: u64) -> <Self::Row as TagRow>::Tag;
    /// The parameters in force; none for the defaults, which reports do not name.
    fn settings(self) -> Vec<(&'static str, Setting)>;
}

/// The tags of a row.
pub(super) trait TagRow: Copy + Zeroable + Send + 'static {
    type Tag: Copy;

    /// The first pair with this tag.
    fn find(&self, tag: Self::Tag) -> Option<usize>;
    fn set(&mut self, pair: usize, tag: Self::Tag);
}

/// The default: a tag of 16 bits of the digest, and a row of other bits. Without the seed, a sender
/// cannot crowd flows into one row.
#[derive(Clone, Copy)]
pub(super) struct OfDigest;

impl Tag for OfDigest {
    type Row = Tags;

    #[inline(always)]
    fn word<K: FlowKey, F: Flow<K>>(self, digest: u64, _: F) -> u64 {
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

    fn settings(self) -> Vec<(&'static str, Setting)> {
        Vec::new()
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

/// The chosen tag and row, in one type for all choices, as [`Chosen`](super::policy::Chosen) has all
/// policies. The paper has 32 bits of the XOR, whose remainder is the row: regular or crafted keys
/// then collide in rows and tags, so that their packets reach the summary one by one.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct ChosenTag {
    /// Whether the tag is the XOR of the flow's words instead of bits of its digest.
    xor: bool,
    /// The bits of the tag.
    bits: u8,
    /// Whether the row is a remainder, for any number of rows.
    modulo: bool,
}

impl ChosenTag {
    /// The choice that [`OfDigest`] makes.
    pub(super) const DEFAULT: Self = Self { xor: false, bits: 16, modulo: false };

    pub(super) fn new(parameters: &Parameters) -> Result<Self, BuildError> {
        Ok(Self {
            xor: parameters.word("tag", &[DIGEST, XOR])? == XOR,
            bits: if parameters.word("bits", &["16", "32"])? == "32" { 32 } else { 16 },
            modulo: parameters.word("index", &[DIGEST, MODULO])? == MODULO,
        })
    }

    /// The largest possible number of rows up to `most`.
    pub(super) fn rows(self, most: usize) -> usize {
        if self.modulo { most } else { 1 << most.ilog2() }
    }
}

const DIGEST: &str = "digest";
const XOR: &str = "xor";
const MODULO: &str = "modulo";

impl Tag for ChosenTag {
    type Row = WideTags;

    #[inline(always)]
    fn word<K: FlowKey, F: Flow<K>>(self, digest: u64, flow: F) -> u64 {
        let (mut row, mut tag) = (digest >> 32, digest as u32);
        if self.xor {
            let words = xor_of_words(flow);
            if self.modulo {
                row = words.into();
            }
            // With 16 bits, the XOR of the 16-bit words: half of the 32-bit XOR would ignore bytes
            // of addresses.
            tag = words ^ words.unbounded_shr(self.bits.into());
        }
        row << 32 | u64::from(tag & u32::MAX >> (32 - self.bits))
    }

    #[inline(always)]
    fn row(word: u64, rows: usize) -> usize {
        // Of a power of two, the remainder is the bits that the default selects.
        ((word >> 32) as u32 % rows as u32) as usize
    }

    #[inline(always)]
    fn tag(word: u64) -> u32 {
        word as u32
    }

    #[inline(never)]
    fn settings(self) -> Vec<(&'static str, Setting)> {
        vec![
            ("tag", Setting::Word(if self.xor { XOR } else { DIGEST })),
            ("bits", Setting::Integer(self.bits.into())),
            ("index", Setting::Word(if self.modulo { MODULO } else { DIGEST })),
        ]
    }
}

/// The XOR of the 32-bit words of a flow's key and element.
#[inline(always)]
fn xor_of_words<K: FlowKey, F: Flow<K>>(flow: F) -> u32 {
    let (key, element) = (flow.key(), flow.element());
    let (words, rest) = key.canonical(K::BYTES).as_chunks();
    let rest = rest.iter().fold(0, |rest, byte| rest << 8 | u32::from(*byte));
    let others = rest ^ element as u32 ^ (element >> 32) as u32;
    words.iter().fold(others, |xor, word| xor ^ u32::from_le_bytes(*word))
}

/// Sixteen tags of up to 32 bits: a cache line.
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

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
mod tests {
    use super::*;
    use crate::key::Key8;

    /// Row and tag of a flow with the words 0x0403_0201 and 0x0010_0080.
    #[test]
    fn each_choice_gives_its_row_and_tag() {
        let flow = Keyed::new(Key8::from_canonical(&[1, 2, 3, 4, 0x80, 0, 0x10, 0]).unwrap(), 0);
        let digest = 0xffff_fff7_8765_4321;
        for (tag, bits, index, expected) in [
            ("digest", "16", "digest", (7, 0x4321)),
            ("digest", "16", "modulo", (0xffff_fff7 % 1000, 0x4321)),
            ("digest", "32", "digest", (7, 0x8765_4321)),
            ("digest", "32", "modulo", (0xffff_fff7 % 1000, 0x8765_4321)),
            ("xor", "16", "digest", (7, 0x0413 ^ 0x0281)),
            ("xor", "16", "modulo", (0x0413_0281 % 1000, 0x0413 ^ 0x0281)),
            ("xor", "32", "digest", (7, 0x0413_0281)),
            ("xor", "32", "modulo", (0x0413_0281 % 1000, 0x0413_0281)),
        ] {
            let parameters = Parameters::new([("tag", tag), ("bits", bits), ("index", index)]);
            let chosen = ChosenTag::new(&parameters).unwrap();
            let rows = if index == "modulo" { 1000 } else { 16 };
            let word = chosen.word(digest, flow);
            let found = (ChosenTag::row(word, rows), ChosenTag::tag(word));
            assert_eq!(found, expected, "{parameters:?}");
        }
    }
}
