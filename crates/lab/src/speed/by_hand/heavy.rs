//! A set of heavy keys, as sketches have one beside their counters.

/// Keys that find room.
const MOST: usize = 1 << 13;

/// Open addressing; 0 is an empty tag.
pub(super) struct Heavy {
    places: Vec<(u32, u64)>,
    members: usize,
}

impl Heavy {
    pub(super) fn new() -> Self {
        Self { places: vec![(0, 0); 2 * MOST], members: 0 }
    }

    pub(super) fn clear(&mut self) {
        self.places.fill((0, 0));
        self.members = 0;
    }

    /// Adds a key, unless it is there or there is no room.
    #[inline(always)]
    pub(super) fn note(&mut self, key: u64, digest: u64) {
        let tag = (digest >> 32) as u32 | 1;
        let mut at = (tag >> 1) as usize & (2 * MOST - 1);
        while self.places[at].0 != 0 {
            if self.places[at] == (tag, key) {
                return;
            }
            at = (at + 1) & (2 * MOST - 1);
        }
        if self.members < MOST {
            self.places[at] = (tag, key);
            self.members += 1;
        }
    }
}
