//! Addresses as numbers, and their prefixes.

use std::ops::Range;

use crate::key::{CanonicalKey, prefix_mask};

/// One address of a lane's keys, and the prefix lengths to look at.
pub(super) struct Address {
    /// Where it stands in the key.
    pub(super) field: Range<usize>,
    /// Prefix lengths, from 0 to the bits that the key keeps.
    pub(super) levels: Vec<u8>,
}

impl Address {
    /// Levels of `step` bits each; the last is what the key keeps.
    pub(super) fn new(field: Range<usize>, step: u8, bits: u8) -> Self {
        let levels = (0..bits).step_by(usize::from(step)).chain([bits]).collect();
        Self { field, levels }
    }

    /// The address of this key, its first bit the highest of the number.
    pub(super) fn of(&self, key: &[u8]) -> u128 {
        let mut bytes = [0; 16];
        let field = &key[self.field.clone()];
        bytes[..field.len()].copy_from_slice(field);
        u128::from_be_bytes(bytes)
    }

    /// The prefix at this level: the address with its host bits zero, and the length.
    pub(super) fn prefix(&self, address: u128, level: usize) -> (CanonicalKey, u8) {
        let bits = self.levels[level];
        let bytes = (address & prefix_mask(bits)).to_be_bytes();
        (CanonicalKey::new(&bytes[..self.field.len()]), bits)
    }
}
