//! The frames of the benchmarks.

/// Ethernet, IPv4 and UDP: 60 bytes of a flow that its number tells.
pub(crate) fn frame(flow: u64) -> [u8; 60] {
    let mut bytes = [0; 60];
    bytes[12..14].copy_from_slice(&[8, 0]);
    bytes[14] = 0x45;
    bytes[17] = 46;
    bytes[22..24].copy_from_slice(&[64, 17]);
    bytes[26..34].copy_from_slice(&flow.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    bytes[39] = 26;
    bytes
}
