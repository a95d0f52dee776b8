//! Elastic Sketch.

use bytemuck::Zeroable;
use flowgauge_kernel::Zeroed;

use super::{BATCH, ByHand, mix, zeroed};

const BUCKETS: usize = 1 << 11;
const LIGHT: usize = 1 << 19;
const SLOTS: usize = 7;

#[derive(Clone, Copy, Zeroable)]
#[repr(C)]
struct Bucket {
    votes: [u32; SLOTS],
    against: u32,
    marked: u32,
    keys: [u64; SLOTS],
}

/// Buckets of seven flows, and a row of small counters.
pub(super) struct Elastic {
    buckets: Zeroed<Bucket>,
    light: Zeroed<u8>,
    light_total: u64,
}

impl Elastic {
    pub(super) fn new() -> Self {
        Self { buckets: zeroed(BUCKETS), light: zeroed(LIGHT), light_total: 0 }
    }
}

impl ByHand for Elastic {
    fn clear(&mut self) {
        self.buckets.fill(Bucket::zeroed());
        self.light.fill(0);
        self.light_total = 0;
    }

    #[inline(always)]
    fn update(&mut self, keys: &[u64], digests: &[u64]) {
        let (buckets, light) = (&mut self.buckets[..BUCKETS], &mut self.light[..LIGHT]);
        let mut lighten = |digest: u64, packets: u32| {
            let counter = &mut light[mix(digest, 1) as usize % LIGHT];
            *counter = counter.saturating_add(packets.min(255) as u8);
            self.light_total += u64::from(packets);
        };
        let mut places = [0; BATCH];
        for (place, &digest) in places.iter_mut().zip(digests) {
            *place = mix(digest, 0) as usize % BUCKETS;
        }
        for (i, &digest) in digests.iter().enumerate() {
            let bucket = &mut buckets[places[i % BATCH]];
            let found = (0..SLOTS).fold(0, |found, slot| {
                let (same, taken) = (bucket.keys[slot] == keys[i], bucket.votes[slot] > 0);
                found | (u32::from(same) & u32::from(taken)) << slot
            });
            if found != 0 {
                bucket.votes[found.trailing_zeros() as usize % SLOTS] += 1;
                continue;
            }
            // Votes with the slot number in the low bits, so the minimum gives both.
            let votes = |slot: usize| u64::from(bucket.votes[slot]) << 3 | slot as u64;
            let least = (0..SLOTS).map(votes).fold(u64::MAX, u64::min);
            let (slot, votes) = (least as usize % 8 % SLOTS, (least >> 3) as u32);
            if votes > 0 {
                bucket.against = bucket.against.saturating_add(1);
                if bucket.against / 8 < votes {
                    lighten(digest, 1);
                    continue;
                }
                // The digest of the evicted flow costs as much as another one of this flow.
                lighten(mix(bucket.keys[slot], 2), votes);
                bucket.against = 0;
            }
            bucket.marked &= !(1 << slot);
            bucket.marked |= u32::from(votes > 0) << slot;
            (bucket.keys[slot], bucket.votes[slot]) = (keys[i], 1);
        }
    }
}
