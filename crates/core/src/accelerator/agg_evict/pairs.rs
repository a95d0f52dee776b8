//! The pairs of flow and weight, row by row.

use std::slice;

use bytemuck::Zeroable;
use flowgauge_kernel::{CompareLines, Digester, Line, WithLines, Zeroed, prefetch};

use super::policy::Policy;
use crate::batch::{BATCH_PACKETS, Batch, Columns};
use crate::key::FlowKey;
use crate::summary::remix;

/// Pairs of a row: their fingerprints fill a cache line.
pub(super) const PAIRS: usize = 16;

/// Rows at most: 16 bits of the digest choose one.
pub(super) const MOST_ROWS: usize = 1 << 16;

/// Packets whose rows are asked for ahead of the one in hand.
const PREFETCH_AHEAD: usize = 16;

/// The word of a digest and of an element that a flow of both is found by.
const ELEMENT_WORD: u64 = 21;

/// What packets are told apart by.
pub(super) trait Flow<K>: Copy + PartialEq + Zeroable + Send + 'static {
    /// The digests of a batch's flows, of whose keys [`Batch::digests`] are; written to `own` where
    /// they are others.
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

/// A key.
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

/// A key and an element, for summaries that count those.
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
            // Turned, lest a flow's two directions have one sum.
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

/// What is summed up of a flow's packets.
pub(super) trait Sum: Copy + Zeroable + Send + 'static {
    fn add(&mut self, packets: u32, bytes: u64);
    fn packets(self) -> u32;
    fn bytes(self) -> u64;
}

/// Packets alone, for summaries that read no bytes.
#[derive(Clone, Copy, Zeroable)]
#[repr(transparent)]
pub(super) struct Packets(u32);

impl Sum for Packets {
    #[inline(always)]
    fn add(&mut self, packets: u32, _: u64) {
        self.0 += packets;
    }

    #[inline(always)]
    fn packets(self) -> u32 {
        self.0
    }

    #[inline(always)]
    fn bytes(self) -> u64 {
        0
    }
}

/// Packets and bytes.
#[derive(Clone, Copy, Zeroable)]
#[repr(C, packed(4))]
pub(super) struct Both {
    packets: u32,
    bytes: u64,
}

impl Sum for Both {
    #[inline(always)]
    fn add(&mut self, packets: u32, bytes: u64) {
        self.packets += packets;
        self.bytes += bytes;
    }

    #[inline(always)]
    fn packets(self) -> u32 {
        self.packets
    }

    #[inline(always)]
    fn bytes(self) -> u64 {
        self.bytes
    }
}

/// Sixteen flows with what they sent.
///
/// An empty pair is all zeros. A flow that is all zeros itself is found in it, which is as good a
/// place for it as any.
#[derive(Clone, Copy, Zeroable)]
#[repr(C, align(64))]
pub(super) struct Row<F, S> {
    fingerprints: Line,
    sums: [S; PAIRS],
    flows: [F; PAIRS],
}

/// The row of a flow, one of `rows`, a power of two of them.
#[inline(always)]
fn row_of(digest: u64, rows: usize) -> usize {
    // The bits of fingerprints and tags; those of columns are the fingerprint here.
    (digest >> 32) as usize & (rows - 1)
}

/// Adds packets of a batch to their pairs, and writes what has to make room to `evicted`, which has
/// room for as many.
pub(super) struct Add<'a, K, F, S, P> {
    pub(super) rows: &'a mut Zeroed<Row<F, S>>,
    pub(super) policy: &'a mut P,
    pub(super) columns: Columns<'a, K>,
    /// Of the flows.
    pub(super) digests: &'a [u64; BATCH_PACKETS],
    pub(super) packets: std::ops::Range<usize>,
    pub(super) evicted: &'a mut Evicted<F, S>,
}

/// What left its pair, in one piece each: there are few of them, and columns would be as many cache
/// lines apart.
pub(super) struct Evicted<F, S> {
    len: usize,
    pairs: Box<[(F, S); BATCH_PACKETS]>,
}

impl<F: Zeroable + Copy, S: Sum> Evicted<F, S> {
    pub(super) fn new() -> Self {
        Self { len: 0, pairs: Box::new([(F::zeroed(), S::zeroed()); BATCH_PACKETS]) }
    }

    /// How many more find room.
    pub(super) fn room(&self) -> usize {
        BATCH_PACKETS - self.len
    }

    #[inline(always)]
    pub(super) fn push_unless_empty(&mut self, flow: F, sum: S) {
        self.pairs[self.len % BATCH_PACKETS] = (flow, sum);
        self.len += usize::from(sum.packets() != 0);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (F, S)> {
        self.pairs[..self.len].iter().copied()
    }

    pub(super) fn clear(&mut self) {
        self.len = 0;
    }
}

impl<K: FlowKey, F: Flow<K>, S: Sum, P: Policy> WithLines for Add<'_, K, F, S, P> {
    type Output = ();

    #[inline(always)]
    fn run<C: CompareLines>(self, compare: C) {
        let Self { rows, policy, columns, digests, packets, evicted } = self;
        let rows = &mut rows[..];
        for i in packets.start..packets.end.min(BATCH_PACKETS) {
            // Behind the last packet stand digests of earlier ones, which do no harm.
            let ahead = row_of(digests[(i + PREFETCH_AHEAD) % BATCH_PACKETS], rows.len());
            prefetch(slice::from_ref(&rows[ahead].fingerprints), 0);
            let (digest, flow) = (digests[i], F::new(columns.keys[i], columns.elements[i]));
            let (packets, bytes) = (columns.packets[i], columns.bytes[i]);
            let number = row_of(digest, rows.len());
            let row = &mut rows[number];
            let equal = compare.equal(&row.fingerprints, digest as u32);
            let pair = equal.trailing_zeros() as usize % PAIRS;
            if equal != 0 && row.flows[pair] == flow {
                policy.used(number, pair);
                row.sums[pair].add(packets, bytes);
                continue;
            }
            // Fingerprints of a row differ: a flow that has another's takes its pair.
            let pair = if equal == 0 { policy.victim(number) } else { pair };
            policy.used(number, pair);
            evicted.push_unless_empty(row.flows[pair], row.sums[pair]);
            row.fingerprints.0[pair] = digest as u32;
            row.flows[pair] = flow;
            row.sums[pair] = S::zeroed();
            row.sums[pair].add(packets, bytes);
        }
    }
}

impl<F: Copy, S: Sum> Row<F, S> {
    /// Puts the pairs that hold something out, and is empty then.
    pub(super) fn empty(&mut self, evicted: &mut Evicted<F, S>)
    where
        F: Zeroable,
    {
        for (flow, sum) in self.flows.into_iter().zip(self.sums) {
            evicted.push_unless_empty(flow, sum);
        }
        *self = Self::zeroed();
    }
}
