//! Arrays and bitmaps with one access per packet.

use bytemuck::Zeroable;
use flowgauge_kernel::Zeroed;

use super::sketches::Heavy;
use super::{BATCH, ByHand, FRAME, ask, mix, zeroed};

const COLUMNS: usize = 1 << 18;

/// MRAC: counters and the number of packets.
pub(super) struct Mrac {
    counters: Zeroed<u32>,
    packets: u64,
}

impl Mrac {
    pub(super) fn new() -> Self {
        Self { counters: zeroed(COLUMNS), packets: 0 }
    }
}

impl ByHand for Mrac {
    fn clear(&mut self) {
        self.counters.fill(0);
        self.packets = 0;
    }

    #[inline(always)]
    fn update(&mut self, _: &[u64], digests: &[u64]) {
        let counters = &mut self.counters[..COLUMNS];
        for &digest in digests {
            let counter = &mut counters[digest as usize % COLUMNS];
            *counter = counter.saturating_add(1);
        }
        self.packets += digests.len() as u64;
    }
}

/// An array of counters. Keys whose column exceeds half a thousandth of the packets so far are
/// counted separately.
pub(super) struct CountArray {
    counters: Zeroed<u32>,
    heavy: Heavy,
    packets: u64,
}

impl CountArray {
    pub(super) fn new() -> Self {
        Self { counters: zeroed(COLUMNS), heavy: Heavy::new(), packets: 0 }
    }
}

impl ByHand for CountArray {
    fn clear(&mut self) {
        self.counters.fill(0);
        self.heavy.clear();
        self.packets = 0;
    }

    #[inline(always)]
    fn update(&mut self, keys: &[u64], digests: &[u64]) {
        let counters = &mut self.counters[..COLUMNS];
        for &digest in digests {
            ask(counters, digest as usize % COLUMNS);
        }
        let (mut listed, mut over, mut packets) = ([0_u8; BATCH], 0, self.packets);
        for (i, &digest) in digests.iter().enumerate() {
            packets += 1;
            let counter = &mut counters[digest as usize % COLUMNS];
            *counter = counter.saturating_add(1);
            listed[over % BATCH] = i as u8;
            over += usize::from(u64::from(*counter) > (packets * 2_147_484) >> 32);
        }
        self.packets = packets;
        for i in listed[..over].iter().map(|&i| usize::from(i)) {
            self.heavy.count(keys[i], digests[i]);
        }
    }
}

/// Linear counting with 8 Mi bits.
pub(super) struct LinearCounting {
    words: Zeroed<u64>,
    packets: u64,
}

const WORDS: usize = 1 << 17;

impl LinearCounting {
    pub(super) fn new() -> Self {
        Self { words: zeroed(WORDS), packets: 0 }
    }
}

impl ByHand for LinearCounting {
    fn clear(&mut self) {
        self.words.fill(0);
        self.packets = 0;
    }

    #[inline(always)]
    fn update(&mut self, _: &[u64], digests: &[u64]) {
        let words = &mut self.words[..WORDS];
        for &digest in digests {
            words[(digest >> 6) as usize % WORDS] |= 1 << (digest % 64);
        }
        self.packets += digests.len() as u64;
    }
}

/// Four bitmaps of 32 bits.
#[derive(Default)]
pub(super) struct Fm {
    bitmaps: [u32; 4],
    packets: u64,
}

impl ByHand for Fm {
    fn clear(&mut self) {
        *self = Self::default();
    }

    #[inline(always)]
    fn update(&mut self, _: &[u64], digests: &[u64]) {
        for &digest in digests {
            self.bitmaps[digest as usize % 4] |= 1 << (digest >> 32 | 1 << 31).trailing_zeros();
        }
        self.packets += digests.len() as u64;
    }
}

/// A key with its packets and bytes.
#[derive(Clone, Copy, Zeroable)]
#[repr(C, packed(4))]
struct Slot {
    key: u64,
    packets: u32,
    bytes: u64,
    unused: u32,
}

/// Keyed slots that a colliding key takes over, and the traffic lost that way.
pub(super) struct Replacing {
    slots: Zeroed<Slot>,
    displaced: (u64, u64),
}

impl Replacing {
    pub(super) fn new() -> Self {
        Self { slots: zeroed(COLUMNS), displaced: (0, 0) }
    }
}

impl ByHand for Replacing {
    fn clear(&mut self) {
        self.slots.fill(Slot::zeroed());
        self.displaced = (0, 0);
    }

    #[inline(always)]
    fn update(&mut self, keys: &[u64], digests: &[u64]) {
        let slots = &mut self.slots[..COLUMNS];
        for &digest in digests {
            ask(slots, digest as usize % COLUMNS);
        }
        let (mut packets, mut bytes) = self.displaced;
        for (&key, &digest) in keys.iter().zip(digests) {
            let slot = &mut slots[digest as usize % COLUMNS];
            if slot.key == key {
                slot.packets = slot.packets.saturating_add(1);
                slot.bytes = slot.bytes.saturating_add(FRAME);
            } else {
                packets += u64::from(slot.packets);
                bytes += slot.bytes;
                *slot = Slot { key, packets: 1, bytes: FRAME, unused: 0 };
            }
        }
        self.displaced = (packets, bytes);
    }
}

/// Randomized counter sharing: each packet increments one of its flow's 4096 counters. Keeps the
/// sum of squares.
pub(super) struct Csm {
    counters: Zeroed<u32>,
    random: u64,
    packets: u64,
    squares: u128,
}

impl Csm {
    pub(super) fn new() -> Self {
        Self { counters: zeroed(COLUMNS), random: 1, packets: 0, squares: 0 }
    }
}

impl ByHand for Csm {
    fn clear(&mut self) {
        self.counters.fill(0);
        (self.packets, self.squares) = (0, 0);
    }

    #[inline(always)]
    fn update(&mut self, _: &[u64], digests: &[u64]) {
        let counters = &mut self.counters[..COLUMNS];
        let mut places = [0; BATCH];
        for (place, &digest) in places.iter_mut().zip(digests) {
            self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
            *place = (mix(digest, mix(self.random, 1) % 4096) % COLUMNS as u64) as usize;
            ask(counters, *place);
        }
        for &place in &places[..digests.len()] {
            let counter = &mut counters[place % COLUMNS];
            self.squares += u128::from(2 * u64::from(*counter) + 1);
            *counter = counter.saturating_add(1);
        }
        self.packets += digests.len() as u64;
    }
}
