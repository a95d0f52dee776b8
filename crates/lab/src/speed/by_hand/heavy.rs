//! A set of heavy keys, as sketches keep beside their counters.

/// Capacity in keys.
const MOST: usize = 1 << 13;

/// Open addressing of tags, counts and keys; tag 0 is empty.
pub(super) struct Heavy {
    places: Vec<(u32, u32, u64)>,
    members: usize,
}

impl Heavy {
    pub(super) fn new() -> Self {
        Self { places: vec![(0, 0, 0); 2 * MOST], members: 0 }
    }

    pub(super) fn clear(&mut self) {
        self.places.fill((0, 0, 0));
        self.members = 0;
    }

    /// Adds a key, unless it is present or the set is full.
    #[inline(always)]
    pub(super) fn note(&mut self, key: u64, digest: u64) {
        self.find(key, digest);
    }

    /// Like [`note`](Self::note), and counts the key's packets from then on.
    #[inline(always)]
    pub(super) fn count(&mut self, key: u64, digest: u64) {
        if let Some(at) = self.find(key, digest) {
            self.places[at].1 = self.places[at].1.saturating_add(1);
        }
    }

    #[inline(always)]
    fn find(&mut self, key: u64, digest: u64) -> Option<usize> {
        let tag = (digest >> 32) as u32 | 1;
        let mut at = (tag >> 1) as usize & (2 * MOST - 1);
        while self.places[at].0 != 0 {
            if self.places[at].0 == tag && self.places[at].2 == key {
                return Some(at);
            }
            at = (at + 1) & (2 * MOST - 1);
        }
        if self.members == MOST {
            return None;
        }
        self.places[at] = (tag, 0, key);
        self.members += 1;
        Some(at)
    }
}
