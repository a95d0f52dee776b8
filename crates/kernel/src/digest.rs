//! The keyed digest, of one key or of a whole batch.

use bytemuck::{Pod, Zeroable};

use crate::isa::{Isa, Level};
use crate::scalar;
use crate::seed::Seed;
#[cfg(target_arch = "x86_64")]
use crate::vector;

/// The words that store a key: `u64`, `[u64; 2]` or `[u64; 5]`; or `[u32; 2]`, the same as `u64` on
/// half its alignment.
///
/// ```
/// use flowgauge_kernel::{Digester, Isa, Seed, Words};
///
/// let digester = Digester::new(Seed::number(1), Isa::scalar());
/// let key = [1_u64, 2];
/// assert_eq!(<[u64; 2]>::SHORTEST, 13);
/// assert_eq!(digester.digest(&key, 16), key.digest(digester.seed().secret(), 16));
/// ```
pub trait Words: Pod + Zeroable + Eq + Send + Sync + 'static {
    /// Canonical bytes of the shortest key stored in these words.
    const SHORTEST: usize;
    /// Canonical bytes of the longest key.
    const LONGEST: usize;
    /// Digest of one key of `bytes` canonical bytes.
    fn digest(&self, secret: &[u64; 4], bytes: usize) -> u64;
    /// The bitwise and.
    #[must_use]
    fn and(self, other: Self) -> Self;
}

impl Words for u64 {
    const SHORTEST: usize = 4;
    const LONGEST: usize = 8;

    #[inline(always)]
    fn digest(&self, secret: &[u64; 4], bytes: usize) -> u64 {
        scalar::digest1(secret, u64::from_le(*self), bytes)
    }

    #[inline(always)]
    fn and(self, other: Self) -> Self {
        self & other
    }
}

impl Words for [u32; 2] {
    const SHORTEST: usize = u64::SHORTEST;
    const LONGEST: usize = u64::LONGEST;

    #[inline(always)]
    fn digest(&self, secret: &[u64; 4], bytes: usize) -> u64 {
        bytemuck::cast::<_, u64>(*self).digest(secret, bytes)
    }

    #[inline(always)]
    fn and(self, other: Self) -> Self {
        std::array::from_fn(|i| self[i] & other[i])
    }
}

impl Words for [u64; 2] {
    const SHORTEST: usize = 13;
    const LONGEST: usize = 16;

    #[inline(always)]
    fn digest(&self, secret: &[u64; 4], bytes: usize) -> u64 {
        scalar::digest2(secret, self.map(u64::from_le), bytes)
    }

    #[inline(always)]
    fn and(self, other: Self) -> Self {
        std::array::from_fn(|i| self[i] & other[i])
    }
}

impl Words for [u64; 5] {
    const SHORTEST: usize = 32;
    const LONGEST: usize = 40;

    #[inline(always)]
    fn digest(&self, secret: &[u64; 4], bytes: usize) -> u64 {
        let words @ [head @ .., _] = self.map(u64::from_le);
        if bytes <= 32 {
            scalar::digest4(secret, head, bytes)
        } else {
            scalar::digest5(secret, words, bytes)
        }
    }

    #[inline(always)]
    fn and(self, other: Self) -> Self {
        std::array::from_fn(|i| self[i] & other[i])
    }
}

/// The digest function with its seed, its instruction set and the length of its keys.
///
/// ```
/// use flowgauge_kernel::{Digester, Isa, Seed};
///
/// let digester = Digester::new(Seed::number(1), Isa::best()).for_keys(8);
/// let keys = [1_u64, 2, 3];
/// let mut digests = [0; 3];
/// digester.digest_batch(&keys, digester.key_bytes(), &mut digests);
/// assert_eq!(digests[2], digester.digest(&3_u64, 8));
/// assert_ne!(digests[0], digests[1]);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Digester {
    seed: Seed,
    isa: Isa,
    key_bytes: usize,
}

impl Digester {
    /// A digest function for `seed` on the instruction set `isa`, without a key length.
    pub fn new(seed: Seed, isa: Isa) -> Self {
        Self { seed, isa, key_bytes: 0 }
    }

    /// The same function for keys of `key_bytes` canonical bytes.
    #[must_use]
    pub fn for_keys(self, key_bytes: usize) -> Self {
        Self { key_bytes, ..self }
    }

    /// Canonical bytes of a key; 0 before [`Self::for_keys`].
    #[inline(always)]
    pub fn key_bytes(&self) -> usize {
        self.key_bytes
    }

    /// The seed.
    pub fn seed(&self) -> &Seed {
        &self.seed
    }

    /// The instruction set.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// The digest of one key of `bytes` canonical bytes.
    #[inline(always)]
    pub fn digest<W: Words>(&self, key: &W, bytes: usize) -> u64 {
        key.digest(self.seed.secret(), bytes)
    }

    /// Fills `out[i]` with the digest of `keys[i]`. Each key has `bytes` canonical bytes.
    ///
    /// # Panics
    /// When the slices differ in length.
    #[inline]
    pub fn digest_batch<W: Words>(&self, keys: &[W], bytes: usize, out: &mut [u64]) {
        assert_eq!(keys.len(), out.len(), "one digest per key");
        let secret = self.seed.secret();
        let whole = match self.isa.level() {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: holding an `Isa` of this level proves that it was detected.
            Level::Avx512 => unsafe { vector::digest(secret, keys, bytes, out) },
            _ => 0,
        };
        each(&keys[whole..], &mut out[whole..], |key| key.digest(secret, bytes));
    }

    /// Fills `out[i]` with [`scalar::fold`] of `words[i] ^ other` and `factor`. This derives
    /// further words from digests, on the same instruction set.
    ///
    /// # Panics
    /// When the slices differ in length.
    #[inline]
    pub fn fold_batch(&self, words: &[u64], other: u64, factor: u64, out: &mut [u64]) {
        assert_eq!(words.len(), out.len(), "one result per word");
        let whole = match self.isa.level() {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Level::Avx512 => unsafe { vector::fold_each(words, other, factor, out) },
            _ => 0,
        };
        each(&words[whole..], &mut out[whole..], |word| scalar::fold(word ^ other, factor));
    }
}

/// Fills `out[i]` with the result for `words[i]`, four in a turn, which saves
/// the loop's own instructions.
#[inline(always)]
fn each<W: Pod>(words: &[W], out: &mut [u64], result: impl Fn(W) -> u64) {
    let ((fours, rest), (out_fours, out_rest)) = (words.as_chunks::<4>(), out.as_chunks_mut::<4>());
    for (words, out) in fours.iter().zip(out_fours) {
        for (word, out) in words.iter().zip(out) {
            *out = result(scalar::read_alone(word));
        }
    }
    for (word, out) in rest.iter().zip(out_rest) {
        *out = result(scalar::read_alone(word));
    }
}
