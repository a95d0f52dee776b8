//! The frozen digest formula, one key at a time: the scalar twin of the vector kernels.
//!
//! The formula is of the rapidhash and wyhash family: 64 × 64 → 128-bit products, folded.
//! `docs/digest.md` gives it with test vectors. It must never change: summaries of different hosts
//! merge only if their digests agree.

use bytemuck::Pod;

/// Reads words such that the compiler does not digest them together with others: it would use SSE2,
/// which has no product of 64 bits, and take more than twice as long.
#[inline(always)]
pub fn read_alone<W: Pod>(words: &W) -> W {
    // SAFETY: a reference may be read.
    unsafe { std::ptr::read_volatile(words) }
}

/// Multiplies to 128 bits and returns the low and the high half.
#[inline(always)]
pub fn multiply(a: u64, b: u64) -> (u64, u64) {
    let product = u128::from(a) * u128::from(b);
    (product as u64, (product >> 64) as u64)
}

/// The exclusive or of both halves of the 128-bit product.
#[inline(always)]
pub fn fold(a: u64, b: u64) -> u64 {
    let (low, high) = multiply(a, b);
    low ^ high
}

/// The last step: mixes both halves of a product with the secrets and the key's length in bytes.
#[inline(always)]
fn finish((low, high): (u64, u64), secret: &[u64; 4], bytes: usize) -> u64 {
    fold(low ^ secret[2] ^ bytes as u64, high ^ secret[3])
}

/// Digest of a key of at most 8 bytes, as one little-endian word padded with zeros.
#[inline(always)]
pub fn digest1(secret: &[u64; 4], word: u64, bytes: usize) -> u64 {
    finish(multiply(word ^ secret[0], secret[1]), secret, bytes)
}

/// Digest of a key of 9 to 16 bytes, as two little-endian words padded with zeros.
#[inline(always)]
pub fn digest2(secret: &[u64; 4], words: [u64; 2], bytes: usize) -> u64 {
    finish(multiply(words[0] ^ secret[0], words[1] ^ secret[1]), secret, bytes)
}

/// Digest of a key of 17 to 32 bytes, as four little-endian words padded with zeros.
#[inline(always)]
pub fn digest4(secret: &[u64; 4], words: [u64; 4], bytes: usize) -> u64 {
    let head = fold(words[0] ^ secret[0], words[1] ^ secret[1]);
    finish(multiply(words[2] ^ secret[1] ^ head, words[3] ^ secret[0]), secret, bytes)
}

/// Digest of a key of 33 to 40 bytes, as five little-endian words padded with zeros.
#[inline(always)]
pub fn digest5(secret: &[u64; 4], words: [u64; 5], bytes: usize) -> u64 {
    let head = fold(words[0] ^ secret[0], words[1] ^ secret[1]);
    let body = fold(words[2] ^ secret[1] ^ head, words[3] ^ secret[0]);
    finish(multiply(words[4] ^ secret[0] ^ body, secret[1]), secret, bytes)
}
