//! A key of any type, for the cold path.

use std::cmp::Ordering;
use std::fmt;

use bytemuck::Zeroable;

/// The canonical bytes of any key, at most 40 of them, ordered by length (so IPv4 before IPv6),
/// then by bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Zeroable)]
#[repr(C)]
pub struct CanonicalKey {
    len: u8,
    bytes: [u8; CanonicalKey::MAX_BYTES],
}

impl CanonicalKey {
    /// The longest key: an IPv6 five-tuple beside a VLAN ID and TCP flags.
    pub const MAX_BYTES: usize = 40;

    /// Copies canonical bytes.
    ///
    /// # Panics
    /// When there are more than [`Self::MAX_BYTES`].
    pub fn new(canonical: &[u8]) -> Self {
        let mut bytes = [0; Self::MAX_BYTES];
        bytes[..canonical.len()].copy_from_slice(canonical);
        Self { len: canonical.len() as u8, bytes }
    }

    /// The canonical bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl Ord for CanonicalKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.len.cmp(&other.len).then_with(|| self.as_bytes().cmp(other.as_bytes()))
    }
}

impl PartialOrd for CanonicalKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Debug for CanonicalKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CanonicalKey({:02x?})", self.as_bytes())
    }
}
