//! The table of an aggregator: rows of pairs of flow and sum.

use std::slice;

use bytemuck::Zeroable;
use flowgauge_kernel::{Zeroed, prefetch};

use super::flow::{Flow, Tag, TagRow};
use super::policy::Policy;
use crate::batch::{BATCH_PACKETS, Columns};
use crate::key::FlowKey;

/// Pairs in a row: their 16-bit tags and packet counts fill a cache line.
pub(super) const PAIRS: usize = 16;

/// Maximum number of rows.
pub(super) const MOST_ROWS: usize = 1 << 16;

/// Number of sums passed on together: half a batch, so that the prefetched cells of the summary fit
/// into the first-level cache.
pub(super) const LEAVING: usize = BATCH_PACKETS / 2;

/// Maximum packets of a pair, and maximum bytes a packet: their product fits into 32 bits. Rows of
/// a batch with more bypass the table.
const MOST_PACKETS: u64 = u16::MAX as u64;
const MOST_BYTES: u64 = u16::MAX as u64;

/// Only the first cache line is prefetched of rows that have more cache lines than this.
const MOST_LINES: usize = 8;

/// Number of packets by which rows are prefetched ahead.
const PREFETCH_AHEAD: usize = 16;

/// The byte count of a sum, or none.
pub(super) trait Bytes: Copy + Zeroable + Send + 'static {
    /// Its type in a pair.
    type Held: Copy + Zeroable + Send;
    /// The byte count of a row of a batch.
    fn of(bytes: u64) -> Self;
    fn get(self) -> u64;
    fn hold(self) -> Self::Held;
    fn held(held: Self::Held) -> Self;
    fn add(held: &mut Self::Held, bytes: Self);
}

/// No byte count, for summaries that read no bytes.
impl Bytes for () {
    type Held = ();

    #[inline(always)]
    fn of(_: u64) -> Self {}

    #[inline(always)]
    fn get(self) -> u64 {
        0
    }

    #[inline(always)]
    fn hold(self) {}

    #[inline(always)]
    fn held((): ()) -> Self {}

    #[inline(always)]
    fn add((): &mut (), (): Self) {}
}

impl Bytes for u64 {
    type Held = u32;

    #[inline(always)]
    fn of(bytes: u64) -> Self {
        bytes
    }

    #[inline(always)]
    fn get(self) -> u64 {
        self
    }

    #[inline(always)]
    fn hold(self) -> u32 {
        self as u32
    }

    #[inline(always)]
    fn held(held: u32) -> Self {
        held.into()
    }

    #[inline(always)]
    fn add(held: &mut u32, bytes: Self) {
        *held += bytes as u32;
    }
}

/// A row of sixteen flows and their sums.
///
/// An empty pair is all zeros. The flow that is all zeros matches an empty pair, which does no
/// harm.
#[derive(Clone, Copy, Zeroable)]
#[repr(C, align(64))]
pub(super) struct Row<R, F, H> {
    tags: R,
    pairs: Pairs<F, H>,
}

/// The pairs of a row, without their tags.
#[derive(Clone, Copy, Zeroable)]
#[repr(C)]
struct Pairs<F, H> {
    packets: [u16; PAIRS],
    flows: [F; PAIRS],
    bytes: [H; PAIRS],
}

/// A flow with its packets and bytes.
#[derive(Clone, Copy, Zeroable)]
#[repr(C)]
pub(super) struct Sum<F, B> {
    flow: F,
    bytes: B,
    packets: u32,
}

impl<F: Copy, B: Bytes> Sum<F, B> {
    /// The sum as a row of a batch: key, packets, bytes and element.
    #[inline(always)]
    pub(super) fn row<K>(&self) -> (K, u32, u64, u64)
    where
        F: Flow<K>,
    {
        (self.flow.key(), self.packets, self.bytes.get(), self.flow.element())
    }
}

/// Evicted sums. Each is stored in one piece: there are few, and columns would touch more cache
/// lines.
pub(super) struct Evicted<F, B> {
    len: usize,
    sums: Box<[Sum<F, B>; 2 * BATCH_PACKETS]>,
}

impl<F, B> Evicted<F, B> {
    pub(super) const BYTES: usize = 2 * BATCH_PACKETS * size_of::<Sum<F, B>>();
}

impl<F: Zeroable + Copy, B: Bytes> Evicted<F, B> {
    pub(super) fn new() -> Self {
        let empty = Sum { flow: F::zeroed(), bytes: B::zeroed(), packets: 0 };
        Self { len: 0, sums: Box::new([empty; 2 * BATCH_PACKETS]) }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[inline(always)]
    fn push_unless_empty(&mut self, flow: F, packets: u32, bytes: B) {
        self.sums[self.len % (2 * BATCH_PACKETS)] = Sum { flow, bytes, packets };
        self.len += usize::from(packets != 0);
    }

    /// The sums to pass on next.
    pub(super) fn first(&self) -> &[Sum<F, B>] {
        &self.sums[..self.len.min(LEAVING)]
    }

    /// Removes the sums that [`Self::first`] returns.
    pub(super) fn drop_first(&mut self) {
        let taken = self.first().len();
        self.sums.copy_within(taken..self.len, 0);
        self.len -= taken;
    }

    pub(super) fn clear(&mut self) {
        self.len = 0;
    }
}

/// Adds the packets of a batch to their pairs, and writes evicted sums to `evicted`, which has room
/// for a batch.
pub(super) struct Add<'a, K, F, B: Bytes, T: Tag, P> {
    pub(super) rows: &'a mut Zeroed<Row<T::Row, F, B::Held>>,
    pub(super) tagging: T,
    pub(super) policy: &'a mut P,
    pub(super) columns: Columns<'a, K>,
    pub(super) len: usize,
    /// Whether each row of the batch is one packet.
    pub(super) plain: bool,
    /// Digests of the flows.
    pub(super) digests: &'a [u64; BATCH_PACKETS],
    pub(super) evicted: &'a mut Evicted<F, B>,
}

impl<K: FlowKey, F: Flow<K>, B: Bytes, T: Tag, P: Policy> Add<'_, K, F, B, T, P> {
    pub(super) fn run(self) {
        if P::IS_DEFAULT && self.plain { self.add::<true>() } else { self.add::<false>() }
    }

    #[inline(always)]
    fn add<const PLAIN: bool>(self) {
        let Self { rows, tagging, policy, columns, len, digests, evicted, .. } = self;
        let rows = &mut rows[..];
        let count = rows.len();
        // All row numbers are computed at once, vectorized. Row 0 pads the end.
        let mut numbers = [0; BATCH_PACKETS + PREFETCH_AHEAD];
        for (i, digest) in digests[..len].iter().enumerate() {
            let flow = F::new(columns.keys[i], columns.elements[i]);
            numbers[i] = T::row(tagging.word(*digest, flow), count) as u32;
        }
        for i in 0..len.min(BATCH_PACKETS) {
            ask(rows, numbers[i + PREFETCH_AHEAD] as usize);
            let number = numbers[i] as usize;
            let Row { tags, pairs } = &mut rows[number];
            let flow = F::new(columns.keys[i], columns.elements[i]);
            let tag = T::tag(tagging.word(digests[i], flow));
            let packets = if PLAIN { 1 } else { u64::from(columns.packets[i]) };
            let bytes = B::of(columns.bytes[i]);
            let passes_by = packets > MOST_PACKETS || bytes.get() > packets * MOST_BYTES;
            let found = tags.find(tag);
            if let Some(pair) = found
                && pairs.flows[pair] == flow
                && !passes_by
            {
                let sum = u64::from(pairs.packets[pair]) + packets;
                if sum <= MOST_PACKETS {
                    policy.used(number, pair);
                    pairs.packets[pair] = sum as u16;
                    B::add(&mut pairs.bytes[pair], bytes);
                    continue;
                }
            }
            if passes_by {
                evicted.push_unless_empty(flow, columns.packets[i], bytes);
                continue;
            }
            // Tags in a row are distinct, so a flow with another's tag evicts that pair. A flow
            // whose sum would overflow evicts its own pair.
            let pair = found.unwrap_or_else(|| policy.victim(number));
            policy.used(number, pair);
            pairs.leave(pair, evicted);
            tags.set(pair, tag);
            pairs.flows[pair] = flow;
            pairs.packets[pair] = packets as u16;
            pairs.bytes[pair] = bytes.hold();
        }
    }
}

/// Prefetches a row.
#[inline(always)]
fn ask<R, F, H>(rows: &[Row<R, F, H>], number: usize) {
    if size_of::<Row<R, F, H>>() <= MOST_LINES * align_of::<Row<R, F, H>>() {
        prefetch(rows, number);
    } else {
        prefetch(slice::from_ref(&rows[number].tags), 0);
    }
}

impl<R: Copy + Zeroable, F: Copy + Zeroable, H: Copy + Zeroable> Row<R, F, H> {
    /// The number of occupied pairs.
    #[inline(always)]
    pub(super) fn occupied(&self) -> usize {
        occupied(&self.pairs.packets)
    }

    /// Evicts all occupied pairs.
    pub(super) fn empty<B: Bytes<Held = H>>(&mut self, evicted: &mut Evicted<F, B>) {
        self.pairs.leave_all(evicted);
        *self = Self::zeroed();
    }
}

/// The number of pairs with packets.
#[inline(never)]
fn occupied(packets: &[u16; PAIRS]) -> usize {
    packets.iter().filter(|packets| **packets != 0).count()
}

impl<F: Copy + Zeroable, H: Copy + Zeroable> Pairs<F, H> {
    #[inline(never)]
    fn leave_all<B: Bytes<Held = H>>(&self, evicted: &mut Evicted<F, B>) {
        for pair in 0..PAIRS {
            self.leave(pair, evicted);
        }
    }

    /// Evicts a pair, if it is occupied.
    #[inline(always)]
    fn leave<B: Bytes<Held = H>>(&self, pair: usize, evicted: &mut Evicted<F, B>) {
        let bytes = B::held(self.bytes[pair]);
        evicted.push_unless_empty(self.flows[pair], self.packets[pair].into(), bytes);
    }
}
