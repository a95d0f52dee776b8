//! One generated packet, and the frame that it is on the wire.

use flowgauge_core::key::{CanonicalKey, KeyKind, KeySpec};

use super::flows::TCP;

/// What there is to know of a packet; [`Self::frame`] makes its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Nanoseconds since the UNIX epoch.
    pub time_ns: i64,
    /// Bytes on the wire, which are also those captured.
    pub wire: u32,
    /// The number of the planted event that it belongs to, from 0; `None` is the background.
    pub event: Option<u16>,
    /// The flags of TCP, where the packet is one.
    pub tcp_flags: u8,
    /// The five-tuple: source, destination, source port, destination port, protocol.
    pub key: CanonicalKey,
}

/// The flag that opens a connection.
pub(super) const SYN: u8 = 0x02;
/// The flag that acknowledges data.
pub(super) const ACK: u8 = 0x10;
/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;

impl Packet {
    /// The longest frame.
    pub const MAX_WIRE: usize = 65_535;

    /// Bytes that the headers of a packet with this five-tuple need: Ethernet, IP and TCP or UDP.
    #[inline]
    pub(super) fn headers(key: &CanonicalKey) -> u32 {
        let bytes = key.as_bytes();
        let ip = if bytes.len() == 13 { 20 } else { 40 };
        let transport = if bytes.last() == Some(&TCP) { 20 } else { 8 };
        ETHERNET as u32 + ip + transport
    }

    /// Writes the Ethernet frame to the beginning of `out` and returns its length, [`Self::wire`].
    /// Lengths and checksums are right, and the payload is zero. Nothing is allocated.
    ///
    /// # Panics
    /// When `out` is shorter than the frame, or the packet is not a generated one.
    #[inline]
    pub fn frame(&self, out: &mut [u8]) -> usize {
        let wire = self.wire as usize;
        let frame = &mut out[..wire];
        frame.fill(0);
        // Two stations with locally administered addresses.
        (frame[0], frame[5], frame[6], frame[11]) = (2, 2, 2, 1);
        let key = self.key.as_bytes();
        match key.len() {
            13 => ipv4(&mut frame[12..], key, self.tcp_flags),
            _ => ipv6(&mut frame[12..], key, self.tcp_flags),
        }
        wire
    }

    /// The five-tuple's parts by name.
    pub fn fields(&self) -> flowgauge_core::key::Fields {
        KeySpec::from(KeyKind::FIVE_TUPLE).fields(self.key.as_bytes())
    }
}

/// Writes `EtherType`, IPv4 and what follows. `key` has 13 bytes.
#[inline]
fn ipv4(out: &mut [u8], key: &[u8], tcp_flags: u8) {
    out[..2].copy_from_slice(&[0x08, 0x00]);
    let ip = &mut out[2..];
    ip[0] = 0x45;
    let total = ip.len() as u16;
    ip[2..4].copy_from_slice(&total.to_be_bytes());
    // Do not fragment; 64 hops to live.
    (ip[6], ip[8], ip[9]) = (0x40, 64, key[12]);
    ip[12..20].copy_from_slice(&key[..8]);
    let checksum = folded(sum(&ip[..20]));
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    transport(&mut ip[20..], key, 8, tcp_flags);
}

/// Writes `EtherType`, IPv6 and what follows. `key` has 37 bytes.
#[inline]
fn ipv6(out: &mut [u8], key: &[u8], tcp_flags: u8) {
    out[..2].copy_from_slice(&[0x86, 0xdd]);
    let ip = &mut out[2..];
    ip[0] = 0x60;
    let payload = (ip.len() - 40) as u16;
    ip[4..6].copy_from_slice(&payload.to_be_bytes());
    (ip[6], ip[7]) = (key[36], 64);
    ip[8..40].copy_from_slice(&key[..32]);
    transport(&mut ip[40..], key, 32, tcp_flags);
}

/// Writes TCP or UDP; the addresses are the first `addresses` bytes of `key`.
#[inline]
fn transport(out: &mut [u8], key: &[u8], addresses: usize, tcp_flags: u8) {
    let length = out.len() as u16;
    let protocol = key[addresses + 4];
    out[..4].copy_from_slice(&key[addresses..addresses + 4]);
    let (header, checksum_at) = if protocol == TCP {
        // Five words of header, a window of 65,535.
        out[12..16].copy_from_slice(&[0x50, tcp_flags, 0xff, 0xff]);
        (20, 16)
    } else {
        out[4..6].copy_from_slice(&length.to_be_bytes());
        (8, 6)
    };
    // The payload is zero, which adds nothing.
    let pseudo = sum(&key[..addresses]) + u32::from(protocol) + u32::from(length);
    let checksum = match folded(pseudo + sum(&out[..header])) {
        // UDP writes the other zero of one's complement: 0 would mean that there is none.
        0 if protocol != TCP => 0xffff,
        checksum => checksum,
    };
    out[checksum_at..checksum_at + 2].copy_from_slice(&checksum.to_be_bytes());
}

/// The 16-bit words of some bytes, added up; the Internet checksum before it is folded.
#[inline]
fn sum(bytes: &[u8]) -> u32 {
    bytes.chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum()
}

/// The Internet checksum of a sum.
#[inline]
fn folded(sum: u32) -> u16 {
    let once = (sum & 0xffff) + (sum >> 16);
    !((once & 0xffff) + (once >> 16)) as u16
}
