//! Hand-written loops: the cost of an update without generality.
//!
//! Each does the work of its algorithm and keeps the same data, for 64-bit keys of weight one at
//! the measured size: no traits, no parameters, no other measures.

mod arrays;
mod composed;
mod counters;
mod instant;
mod sketches;
mod tables;

use flowgauge_core::batch::{BATCH_PACKETS as BATCH, Batch};
use flowgauge_core::key::{FlowKey, Key8};
use flowgauge_kernel::{Digester, prefetch as ask};

use super::contestant::{Contestant, FRAME_BYTES};
use super::stream::Stream;
use crate::machine::zeroed;
pub(super) use sketches::two_level;
use sketches::{Conservative, CountMin, CountSketch, KAry, Sketch, Yardstick};

/// Bytes per packet.
const FRAME: u64 = FRAME_BYTES as u64;

/// Prefetch distance in packets.
const AHEAD: usize = 16;

/// The hand-written loop of one algorithm.
trait ByHand {
    /// Whether it needs digests of the keys.
    const DIGESTS: bool = true;
    /// Removes all keys.
    fn clear(&mut self);
    /// Counts a packet for each of these keys, at most a batch.
    fn update(&mut self, keys: &[u64], digests: &[u64]);
}

/// A loop that processes runs of common packets.
trait ByRuns {
    /// Counts packets up to the first uncommon one; returns how many.
    fn run(&mut self, keys: &[u64], digests: &[u64]) -> usize;
    /// Counts any packet.
    fn add(&mut self, key: u64, digest: u64);

    /// Counts all packets.
    #[inline(always)]
    fn take(&mut self, keys: &[u64], digests: &[u64]) {
        let mut at = 0;
        loop {
            at += self.run(&keys[at..], &digests[at..]);
            if at == keys.len() {
                return;
            }
            self.add(keys[at], digests[at]);
            at += 1;
        }
    }
}

/// A loop that receives the same batches as a summary, so that both include the cost of filling
/// them.
struct Batched<L> {
    digester: Digester,
    by_hand: L,
    batch: Batch<Key8>,
}

impl<L: ByHand> Batched<L> {
    fn count(&mut self, keys: &[Key8]) {
        for keys in keys.chunks(BATCH) {
            self.batch.fill(keys, FRAME_BYTES);
            let digests = if L::DIGESTS {
                self.batch.digest(&self.digester);
                self.batch.digests()
            } else {
                &[]
            };
            self.by_hand.update(words(&self.batch), digests);
        }
    }
}

impl<L: ByHand> Contestant for Batched<L> {
    fn begin(&mut self, earlier: &[Key8]) {
        self.by_hand.clear();
        self.count(earlier);
    }

    fn take(&mut self, stream: &mut Stream) -> usize {
        self.count(&stream.keys);
        stream.keys.len()
    }
}

/// A loop that digests keys 256 at a time, without batches.
struct Plain<L> {
    digester: Digester,
    by_hand: L,
}

impl<L: ByHand> Plain<L> {
    /// The keys are copied first: digesting them directly from uncached memory takes longer.
    fn count(&mut self, keys: &[Key8]) {
        let (mut held, mut digests) = ([0; BATCH], [0; BATCH]);
        for keys in keys.chunks(BATCH) {
            let (held, digests) = (&mut held[..keys.len()], &mut digests[..keys.len()]);
            bytemuck::cast_slice_mut(held).copy_from_slice(keys);
            self.digester.digest_batch(held, Key8::BYTES, digests);
            self.by_hand.update(held, digests);
        }
    }
}

impl<L: ByHand> Contestant for Plain<L> {
    fn begin(&mut self, earlier: &[Key8]) {
        self.by_hand.clear();
        self.count(earlier);
    }

    fn take(&mut self, stream: &mut Stream) -> usize {
        self.count(&stream.keys);
        stream.keys.len()
    }
}

/// The keys of a batch as words: the allocator aligns a column of this size to 8 bytes.
#[inline(always)]
fn words(batch: &Batch<Key8>) -> &[u64] {
    bytemuck::cast_slice(batch.keys())
}

/// Derives another word from a digest, by a folded multiply.
#[inline(always)]
fn mix(digest: u64, n: u64) -> u64 {
    let product = u128::from(digest ^ n) * 0x9e37_79b9_7f4a_7c15_u128;
    (product >> 64) as u64 ^ product as u64
}

/// The digest of a single key, such as an evicted one.
#[inline(always)]
fn digest(key: u64, digester: &Digester) -> u64 {
    Key8::from_canonical(&key.to_ne_bytes()).map_or(0, |key| key.digest(digester))
}

/// The yardstick of all rates: a plain Count-Min with 4 rows of 65536 columns, indexed by the
/// digest's four 16-bit slices.
pub(super) fn yardstick(digester: Digester) -> Box<dyn Contestant> {
    Box::new(Plain { digester, by_hand: Yardstick::new() })
}

/// Defines the builders of the loops.
macro_rules! loops {
    ($($name:ident: $loop:expr;)*) => {
        $(pub(super) fn $name(digester: Digester) -> Box<dyn Contestant> {
            Box::new(Batched { digester, by_hand: $loop, batch: Batch::new() })
        })*
    };
}

/// The same for loops that digest their keys themselves.
macro_rules! digesting_loops {
    ($($name:ident: $new:expr;)*) => {
        $(pub(super) fn $name(digester: Digester) -> Box<dyn Contestant> {
            Box::new(Batched { digester, by_hand: $new(digester), batch: Batch::new() })
        })*
    };
}

loops! {
    mrac: arrays::Mrac::new();
    count_array: arrays::CountArray::new();
    linear_counting: arrays::LinearCounting::new();
    fm: arrays::Fm::default();
    replacing: arrays::Replacing::new();
    large_table: tables::LinearTable::<{ 1 << 21 }>::new();
    small_table: tables::LinearTable::<{ 1 << 19 }>::new();
    indirect_table: tables::IndirectTable::<{ 1 << 19 }>::new();
    csm: arrays::Csm::new();
    rows: Yardstick::new();
    signed_rows: Sketch::<CountSketch, false>::new();
    count_min: Sketch::<CountMin, true>::new();
    conservative: Sketch::<Conservative, true>::new();
    count_sketch: Sketch::<CountSketch, true>::new();
    k_ary: Sketch::<KAry, true>::new();
    elastic: composed::Elastic::new();
    flow_radar: composed::FlowRadar::new();
    reversible: sketches::Reversible::new();
    univmon: composed::UnivMon::new();
    rcc: instant::Marks::<1>::new();
    insta_measure: instant::Marks::<2>::new();
}

digesting_loops! {
    cuckoo_1: tables::Cuckoo::<{ 1 << 19 }, 1>::new;
    cuckoo_4: tables::Cuckoo::<{ 1 << 16 }, 4>::new;
    space_saving: counters::SpaceSaving::<128, 64>::all;
    stream_summary: counters::StreamSummary::new;
    misra_gries: counters::MisraGries::<128, 64>::new;
    sketch_visor: composed::SketchVisor::new;
    netflow: tables::NetFlow::new;
    mst: composed::Mst::new;
    rhhh: composed::Rhhh::new;
}
