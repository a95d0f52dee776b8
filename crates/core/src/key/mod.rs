//! Headers to keys: which fields of a packet name the flow that it belongs to.
//!
//! A key is stored in whole machine words, whose first bytes are the key's *canonical bytes*:
//! the fields in network order, unpadded. The rest of the words is zero. Hot code compares and
//! digests words; everything after the close of an epoch reads canonical bytes.

mod canonical;
mod element;
mod extract;
mod spec;

use bytemuck::{Pod, Zeroable};
use flowgauge_kernel::{Digester, Words};

pub use canonical::CanonicalKey;
pub use element::Element;
pub use extract::Extract;
pub(crate) use spec::prefix_mask;
pub use spec::{Fields, KeyError, KeyKind, KeySpec};

/// The key type of a pipeline: a fixed number of canonical bytes in words.
pub trait FlowKey: Copy + Eq + Pod + Send + Sync + 'static {
    /// The words that hold the key.
    type Words: Words;
    /// Canonical bytes of a key.
    const BYTES: usize;

    /// The digest of this key alone; batches of keys are digested by [`Batch::digest`].
    ///
    /// [`Batch::digest`]: crate::batch::Batch::digest
    fn digest(&self, digester: &Digester) -> u64;
    /// The words of many keys.
    fn words(keys: &[Self]) -> &[Self::Words];
    /// The canonical bytes.
    fn canonical(&self) -> &[u8];
    /// The key with these canonical bytes; `None` where their number is not [`Self::BYTES`].
    fn from_canonical(bytes: &[u8]) -> Option<Self>;
    /// The key with the bits that `mask` lacks set to zero.
    #[must_use]
    fn masked(self, mask: Self) -> Self;
}

/// A key of `BYTES` canonical bytes in the words `W`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(transparent)]
pub struct Key<W, const BYTES: usize>(W);

/// One IPv4 address, a protocol or a port.
pub type Key4 = Key<u32, 4>;
/// Two IPv4 addresses.
pub type Key8 = Key<u64, 8>;
/// An IPv4 five-tuple: source, destination, source port, destination port, protocol.
pub type Key13 = Key<[u64; 2], 13>;
/// One IPv6 address.
pub type Key16 = Key<[u64; 2], 16>;
/// Two IPv6 addresses.
pub type Key32 = Key<[u64; 4], 32>;
/// An IPv6 five-tuple.
pub type Key37 = Key<[u64; 5], 37>;

impl<W: Words, const BYTES: usize> FlowKey for Key<W, BYTES> {
    type Words = W;
    const BYTES: usize = BYTES;

    #[inline(always)]
    fn digest(&self, digester: &Digester) -> u64 {
        digester.digest(&self.0, BYTES)
    }

    #[inline(always)]
    fn words(keys: &[Self]) -> &[W] {
        bytemuck::cast_slice(keys)
    }

    #[inline(always)]
    fn canonical(&self) -> &[u8] {
        &bytemuck::bytes_of(&self.0)[..BYTES]
    }

    #[inline]
    fn from_canonical(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != BYTES {
            return None;
        }
        let mut words = W::zeroed();
        bytemuck::bytes_of_mut(&mut words)[..BYTES].copy_from_slice(bytes);
        Some(Self(words))
    }

    #[inline(always)]
    fn masked(self, mask: Self) -> Self {
        Self(self.0.and(mask.0))
    }
}
