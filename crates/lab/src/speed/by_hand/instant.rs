//! InstaMeasure: marks that let one in several packets pass, and the flow table behind them.
//!
//! The table deliberately copies the one in core (`summary/instant/working_set.rs`) for one
//! kind of key.

use std::hint::black_box;

use bytemuck::Zeroable;
use flowgauge_kernel::Zeroed;

use super::{BATCH, ByHand, FRAME, ask, zeroed};

/// Bytes of all marks.
const SKETCH: usize = 128 << 10;
const ENTRIES: usize = 1 << 14;
const PROBES: usize = 16;

const OCCUPIED: u32 = 1;
const REFERENCED: u32 = 2;
const WHOLE: u32 = 4;
const FLAGS: u32 = OCCUPIED | REFERENCED | WHOLE;

#[derive(Clone, Copy, Zeroable)]
#[repr(C)]
struct Entry {
    key: u64,
    id: u32,
    packets: u32,
    bytes: u64,
    time_ns: i64,
}

/// One layer of marks, or two with three arrays in the second.
pub(super) struct Marks<const LAYERS: usize> {
    halves: [u16; 256],
    first: Zeroed<u32>,
    second: Zeroed<u32>,
    random: fastrand::Rng,
    packets: u64,
    bytes: u64,
    largest: u64,
    sizes: [u64; BATCH],
    entries: Zeroed<Entry>,
    occupied: Zeroed<u32>,
    flows: usize,
    evictions: u64,
    evicted: (u64, u64),
}

impl<const LAYERS: usize> Marks<LAYERS> {
    const WORDS: usize = if LAYERS == 1 { SKETCH / 4 } else { SKETCH / 16 };

    pub(super) fn new() -> Self {
        let half = |value: usize| {
            (0..4).fold(0, |half, at| half | 1 << (4 * at + (value >> (2 * at)) % 4))
        };
        Self {
            halves: std::array::from_fn(half),
            first: zeroed(Self::WORDS),
            second: zeroed(if LAYERS == 1 { 0 } else { 3 * Self::WORDS }),
            random: fastrand::Rng::with_seed(1),
            packets: 0,
            bytes: 0,
            largest: 0,
            sizes: [FRAME; BATCH],
            entries: zeroed(ENTRIES),
            occupied: zeroed(ENTRIES),
            flows: 0,
            evictions: 0,
            evicted: (0, 0),
        }
    }

    /// Counts the packets that a passed packet represents.
    #[inline(never)]
    fn count(&mut self, key: u64, digest: u64) {
        let entries = &mut self.entries[..ENTRIES];
        let mut path = [0; PROBES];
        let mut at = digest as usize;
        for (step, place) in path.iter_mut().enumerate() {
            at = at.wrapping_add(step) % ENTRIES;
            *place = at;
            let entry = &mut entries[at];
            if entry.key == key && entry.id != 0 {
                entry.id |= REFERENCED;
                entry.packets = entry.packets.saturating_add(1);
                entry.bytes = entry.bytes.saturating_add(FRAME);
                return;
            }
            if entry.id == 0 {
                self.occupied[self.flows] = at as u32;
                self.flows += 1;
                return self.fill(at, key, digest);
            }
        }
        // All entries have the same time, so none has expired.
        let rank = |&at: &usize| (entries[at].id & REFERENCED, entries[at].packets);
        let victim = path.iter().copied().min_by_key(rank).unwrap_or(0);
        for at in path {
            entries[at].id &= !REFERENCED;
        }
        self.evictions += 1;
        self.evicted.0 += u64::from(entries[victim].packets);
        self.evicted.1 += entries[victim].bytes;
        self.fill(victim, key, digest);
    }

    #[inline(always)]
    fn fill(&mut self, at: usize, key: u64, digest: u64) {
        let whole = if self.evictions == 0 { WHOLE } else { 0 };
        let id = (digest >> 32) as u32 & !FLAGS | OCCUPIED | whole;
        self.entries[at] = Entry { key, id, packets: 1, bytes: FRAME, time_ns: 0 };
    }
}

/// The eight bits of a flow.
#[inline(always)]
fn vector(halves: &[u16; 256], digest: u64) -> u32 {
    let half = |shift: u32| u32::from(halves[(digest >> shift) as usize % 256]);
    half(56) | half(48) << 16
}

/// Sets a mark; returns whether at most two are missing.
#[inline(always)]
fn mark(word: &mut u32, vector: u32, random: u32) -> bool {
    *word |= vector & (0xf << (4 * (random % 8)));
    let clear = vector & !*word;
    let clear = clear & clear.wrapping_sub(1);
    clear & clear.wrapping_sub(1) == 0
}

impl<const LAYERS: usize> ByHand for Marks<LAYERS> {
    fn clear(&mut self) {
        self.first.fill(0);
        self.second.fill(0);
        self.entries.fill(Entry::zeroed());
        (self.flows, self.evictions, self.packets) = (0, 0, 0);
    }

    #[inline(always)]
    fn update(&mut self, keys: &[u64], digests: &[u64]) {
        let (mut random, mut noted, mut count) = (self.random.clone(), [(0, 0, 0); BATCH], 0);
        let first = &mut self.first[..Self::WORDS];
        for &digest in digests {
            ask(first, digest as usize % Self::WORDS);
        }
        for (i, &digest) in digests.iter().enumerate() {
            let (vector, draw) = (vector(&self.halves, digest), random.u64(..));
            let word = &mut first[digest as usize % Self::WORDS];
            let saturated = mark(word, vector, draw as u32);
            noted[count % BATCH] = (i, vector & !*word, (draw >> 32) as u32);
            *word &= !(vector & u32::from(saturated).wrapping_neg());
            count += usize::from(saturated);
        }
        self.random = random;
        let mut through = 0;
        for at in 0..count {
            let (i, missing, draw) = noted[at];
            let digest = digests[i];
            let mut saturated = true;
            if LAYERS == 2 {
                let (level, vector) = (missing.count_ones() as usize, vector(&self.halves, digest));
                let word = &mut self.second[level * Self::WORDS + digest as usize % Self::WORDS];
                saturated = mark(word, vector, draw);
                *word &= !(vector & u32::from(saturated).wrapping_neg());
            }
            ask(&self.entries, digest as usize % ENTRIES);
            noted[through].0 = i;
            through += usize::from(saturated);
        }
        for &(i, ..) in &noted[..through] {
            self.count(keys[i], digests[i]);
        }
        self.packets += digests.len() as u64;
        let sizes = &black_box(&self.sizes)[..keys.len()];
        let both = |(sum, bits): (u64, u64), size: &u64| (sum + size, bits | size);
        let (sum, bits) = sizes.iter().fold((0, 0), both);
        self.bytes += sum;
        if bits > self.largest {
            self.largest = sizes.iter().copied().fold(self.largest, u64::max);
        }
    }
}
