//! What must hold for any bytes that are decoded as a summary: run by the fuzz target, and by the
//! laws on the inputs that are kept.

use flowgauge_core::key::{Key8, Key16};

use super::stream::decode_and_use;

/// What a summary may reserve.
const LIMIT: usize = 16 << 20;

/// The stored form of a summary of pairs or of flows. Its last four bytes, the checksum, are made
/// to fit: no input that a fuzzer makes up would pass it.
pub fn summary(bytes: &[u8]) {
    let Some(end) = bytes.len().checked_sub(4) else { return };
    let mut bytes = bytes.to_vec();
    let checksum = crc32fast::hash(&bytes[..end]);
    bytes[end..].copy_from_slice(&checksum.to_le_bytes());
    let _ = (decode_and_use::<Key8>(&bytes, LIMIT), decode_and_use::<Key16>(&bytes, LIMIT));
}
