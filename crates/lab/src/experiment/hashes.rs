//! The papers' hash functions: one call per row, whereas this engine takes all rows from one
//! digest.

const PRIMES: [u32; 5] = [0x9e37_79b1, 0x85eb_ca77, 0xc2b2_ae3d, 0x27d4_eb2f, 0x1656_67b1];

/// xxHash32 for inputs shorter than 16 bytes, as NitroSketch uses it. Like a library function, it
/// is called once per row and not inlined into a loop over rows.
#[inline(never)]
pub(super) fn xxhash32(bytes: &[u8], seed: u32) -> u32 {
    debug_assert!(bytes.len() < 16, "longer inputs are mixed in lanes");
    let mut hash = seed.wrapping_add(PRIMES[4]).wrapping_add(bytes.len() as u32);
    let words = bytes.chunks_exact(4);
    let rest = words.remainder();
    for word in words {
        let word = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        hash = hash.wrapping_add(word.wrapping_mul(PRIMES[2]));
        hash = hash.rotate_left(17).wrapping_mul(PRIMES[3]);
    }
    for byte in rest {
        hash = hash.wrapping_add(u32::from(*byte).wrapping_mul(PRIMES[4]));
        hash = hash.rotate_left(11).wrapping_mul(PRIMES[0]);
    }
    hash = (hash ^ (hash >> 15)).wrapping_mul(PRIMES[1]);
    hash = (hash ^ (hash >> 13)).wrapping_mul(PRIMES[2]);
    hash ^ (hash >> 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of the reference implementation.
    #[test]
    fn hashes_are_the_published_ones() {
        assert_eq!(xxhash32(b"", 0), 0x02cc_5d05);
        assert_eq!(xxhash32(b"a", 0), 0x550d_7456);
        assert_eq!(xxhash32(b"abc", 0), 0x32d1_53ff);
        assert_eq!(xxhash32(b"", 1), 0x0b2c_b792);
    }
}
