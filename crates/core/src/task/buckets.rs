//! A first pass over flows that finds the few worth sorting: sums in buckets chosen by a hash.

/// The power of two that is the number of buckets: a 16th to an eighth of the flows, so that few keys
/// share a bucket by chance, and at most 2¹⁸, so that the sums stay in the second-level cache.
pub(super) fn bits(flows: usize) -> u32 {
    (flows / 8).checked_ilog2().unwrap_or(0).clamp(10, 18)
}

/// Bytes of scratch for a sum in each bucket, and an entry for each flow.
pub(super) fn scratch_bytes(flows: usize) -> usize {
    ((1 << bits(flows)) + flows) * size_of::<u64>()
}

/// A quick hash of bytes. Its collisions cost only time, and not much: no seed is needed.
#[inline]
pub(super) fn mix(bytes: &[u8]) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    bytes
        .chunks(4)
        .fold(0, |hash: u64, chunk| {
            let word = chunk.iter().fold(0, |word, &byte| word << 8 | u64::from(byte));
            let hash = (hash ^ word).wrapping_mul(ODD);
            hash ^ hash >> 32
        })
        .wrapping_mul(ODD)
}
