//! Headers to keys: which fields of a packet name the flow that it belongs to.
//!
//! A key is stored in whole machine words, whose first bytes are the key's *canonical bytes*: the fields
//! in network order, addresses at the begin and numbers at the end. The rest of the words is zero. Hot code compares and
//! digests words; everything after the close of an epoch reads canonical bytes.

mod canonical;
mod coarser;
mod element;
mod extract;
mod fields;
mod kind;
mod spec;

use bytemuck::{Pod, Zeroable};
use flowgauge_kernel::{Digester, Words};

pub use canonical::CanonicalKey;
pub use coarser::Coarser;
pub use element::{Detail, Element, Elements};
pub use extract::{Extract, Whole};
pub use fields::{Fields, Mac, TcpFlags};
pub use kind::{Field, KeyKind};
pub(crate) use spec::prefix_mask;
pub use spec::{KeyError, KeySpec};

/// The key type of a pipeline: canonical bytes in whole words, zeros behind them.
///
/// The type says how many words there are. How many bytes of them are the key is a value, so that
/// keys of as many words share their code: that of a summary is in its [`Digester`].
pub trait FlowKey: Copy + Eq + Pod + Send + Sync + 'static {
    /// The words that hold the key.
    type Words: Words;
    /// Canonical bytes of the longest key.
    const BYTES: usize;
    /// Canonical bytes of the shortest key.
    const SHORTEST: usize;

    /// The digest of this key alone; batches of keys are digested by [`Batch::digest`].
    ///
    /// [`Batch::digest`]: crate::batch::Batch::digest
    fn digest(&self, digester: &Digester) -> u64;
    /// The words of many keys.
    fn words(keys: &[Self]) -> &[Self::Words];
    /// The first `bytes` canonical bytes: all that a key of this length has.
    fn canonical(&self, bytes: usize) -> &[u8];
    /// The key with these canonical bytes; `None` where no key of this type has as many.
    fn from_canonical(canonical: &[u8]) -> Option<Self>;
    /// The key with the bits that `mask` lacks set to zero.
    #[must_use]
    fn masked(self, mask: Self) -> Self;

    /// Whether keys of this type may have so many canonical bytes.
    fn holds(bytes: usize) -> bool {
        (Self::SHORTEST..=Self::BYTES).contains(&bytes)
    }

    /// The canonical bytes of this key, as many as the digester's keys have.
    fn to_canonical(&self, digester: &Digester) -> CanonicalKey {
        CanonicalKey::new(self.canonical(digester.key_bytes()))
    }

    /// The key with these canonical bytes, if the digester's keys have as many.
    fn matching(canonical: &[u8], digester: &Digester) -> Option<Self> {
        let fits = canonical.len() == digester.key_bytes();
        fits.then(|| Self::from_canonical(canonical)).flatten()
    }
}

/// A key in the words `W`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(transparent)]
pub struct Key<W>(W);

/// One IPv4 address, or numbers of at most 4 bytes: a protocol, a port, both ports.
pub type Key4 = Key<u32>;
/// Two IPv4 addresses, one beside numbers of at most 4 bytes, or numbers of at most 8.
pub type Key8 = Key<u64>;
/// An IPv4 five-tuple (source, destination, source port, destination port, protocol) of 13 bytes, or of
/// some of these fields; IPv4 addresses beside more numbers, or numbers alone (16 bytes); or one IPv6
/// address.
pub type Key16 = Key<[u64; 2]>;
/// Two IPv6 addresses, or one beside numbers (32 bytes); an IPv6 five-tuple (37 bytes), or one beside
/// more numbers (40 bytes).
pub type Key37 = Key<[u64; 5]>;

impl<W: Words> FlowKey for Key<W> {
    type Words = W;
    const BYTES: usize = W::LONGEST;
    const SHORTEST: usize = W::SHORTEST;

    // At the end of an epoch, mostly, and from places without number: a call costs less than copies.
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
