//! Keys: the fields of a packet that identify its flow.
//!
//! A key is stored in whole machine words, which begin with the key's *canonical bytes*: the fields
//! in network order, addresses at the start and numbers at the end. The other bytes are zero. Hot
//! code compares and digests words; code after the close of an epoch reads canonical bytes.

mod extract;
mod fields;
mod kind;
mod spec;

use std::cmp::Ordering;
use std::fmt;

use bytemuck::{Pod, Zeroable};
use flowgauge_kernel::{Digester, Words};

pub use extract::{Detail, Element, Elements, Extract, Whole};
pub use fields::{Fields, Mac, TcpFlags};
pub use kind::{Field, KeyKind};
pub(crate) use spec::prefix_mask;
pub use spec::{Coarser, KeyError, KeySpec};

/// A key type: canonical bytes in whole words, padded with zeros.
///
/// The type fixes the number of words. The number of canonical bytes is a run-time value, which a
/// summary keeps in its [`Digester`], so that keys of the same number of words share compiled code.
///
/// ```
/// use flowgauge_core::key::{FlowKey, Key8};
/// use flowgauge_kernel::{Digester, Isa, Seed};
///
/// let digester = Digester::new(Seed::number(1), Isa::best()).for_keys(4);
/// let key = Key8::from_canonical(&[10, 0, 0, 1]).unwrap();
/// assert_eq!(key.canonical(4), [10, 0, 0, 1]);
/// let other = Key8::from_canonical(&[10, 0, 0, 2]).unwrap();
/// assert_ne!(key.digest(&digester), other.digest(&digester));
/// ```
pub trait FlowKey: Copy + Eq + Pod + Send + Sync + 'static {
    /// The words of a key.
    type Words: Words;
    /// Canonical bytes of the longest key.
    const BYTES: usize;
    /// Canonical bytes of the shortest key.
    const SHORTEST: usize;

    /// The digest of one key. [`Batch::digest`] computes those of a batch.
    ///
    /// [`Batch::digest`]: crate::batch::Batch::digest
    fn digest(&self, digester: &Digester) -> u64;
    /// The words of many keys.
    fn words(keys: &[Self]) -> &[Self::Words];
    /// The canonical bytes of a key of length `bytes`.
    fn canonical(&self, bytes: usize) -> &[u8];
    /// The order of canonical bytes, of keys of the same length.
    fn order(&self, other: &Self) -> Ordering;
    /// The key with these canonical bytes; `None` where no key of this type has this length.
    fn from_canonical(canonical: &[u8]) -> Option<Self>;
    /// The key with all bits outside `mask` set to zero.
    #[must_use]
    fn masked(self, mask: Self) -> Self;

    /// Whether keys of this type can have this number of canonical bytes.
    fn holds(bytes: usize) -> bool {
        (Self::SHORTEST..=Self::BYTES).contains(&bytes)
    }

    /// The canonical bytes of this key, of the digester's key length.
    fn to_canonical(&self, digester: &Digester) -> CanonicalKey {
        CanonicalKey::new(self.canonical(digester.key_bytes()))
    }

    /// The key with these canonical bytes; `None` unless they have the digester's key length.
    fn matching(canonical: &[u8], digester: &Digester) -> Option<Self> {
        let fits = canonical.len() == digester.key_bytes();
        fits.then(|| Self::from_canonical(canonical)).flatten()
    }
}

/// A key stored in the words `W`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(transparent)]
pub struct Key<W>(W);

/// A key of 4 bytes: one IPv4 address, or numbers such as a protocol, a port or both ports. Or a
/// key of 8 bytes: two IPv4 addresses, one address and numbers of at most 4 bytes, or numbers
/// alone.
pub type Key8 = Key<[u32; 2]>;
/// A key of 13 bytes: an IPv4 five-tuple (source, destination, source port, destination port,
/// protocol) or some of its fields. Or a key of 16 bytes: IPv4 addresses with more numbers, numbers
/// alone, or one IPv6 address.
pub type Key16 = Key<[u64; 2]>;
/// A key of 32 bytes: two IPv6 addresses, or one address and numbers. Or a key of 37 bytes: an IPv6
/// five-tuple. Or one of 40 bytes: IPv6 addresses with more numbers.
pub type Key37 = Key<[u64; 5]>;

impl<W: Words> FlowKey for Key<W> {
    type Words = W;
    const BYTES: usize = W::LONGEST;
    const SHORTEST: usize = W::SHORTEST;

    // Called from many places, mostly at the end of an epoch: not worth inlining.
    #[inline(never)]
    fn digest(&self, digester: &Digester) -> u64 {
        debug_assert!(Self::holds(digester.key_bytes()), "the digester is for other keys");
        digester.digest(&self.0, digester.key_bytes())
    }

    #[inline(always)]
    fn words(keys: &[Self]) -> &[W] {
        bytemuck::cast_slice(keys)
    }

    #[inline(always)]
    fn canonical(&self, bytes: usize) -> &[u8] {
        &bytemuck::bytes_of(&self.0)[..bytes]
    }

    // All bytes, since those behind a shorter key are 0: a comparison of constant length.
    #[inline(always)]
    fn order(&self, other: &Self) -> Ordering {
        self.canonical(Self::BYTES).cmp(other.canonical(Self::BYTES))
    }

    #[inline]
    fn from_canonical(canonical: &[u8]) -> Option<Self> {
        if !Self::holds(canonical.len()) {
            return None;
        }
        let mut words = W::zeroed();
        bytemuck::bytes_of_mut(&mut words)[..canonical.len()].copy_from_slice(canonical);
        Some(Self(words))
    }

    #[inline(always)]
    fn masked(self, mask: Self) -> Self {
        Self(self.0.and(mask.0))
    }
}

/// The canonical bytes of a key of any type, at most 40, for code outside the hot path. Ordered by
/// length (so IPv4 comes before IPv6), then by bytes.
///
/// ```
/// use flowgauge_core::key::CanonicalKey;
///
/// let v4 = CanonicalKey::new(&[192, 0, 2, 1]);
/// let v6 = CanonicalKey::new(&[0; 16]);
/// assert_eq!(v4.as_bytes(), [192, 0, 2, 1]);
/// assert!(v4 < v6);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Zeroable)]
#[repr(C)]
pub struct CanonicalKey {
    len: u8,
    bytes: [u8; CanonicalKey::MAX_BYTES],
}

impl CanonicalKey {
    /// Length of the longest key: an IPv6 five-tuple with VLAN ID and TCP flags.
    pub const MAX_BYTES: usize = 40;

    /// Copies canonical bytes.
    ///
    /// # Panics
    /// When they exceed [`Self::MAX_BYTES`].
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
