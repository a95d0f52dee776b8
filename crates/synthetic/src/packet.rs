//! One generated packet: its frame and its length.

use std::fmt;
use std::str::FromStr;

use flowgauge_core::key::{CanonicalKey, KeyKind, KeySpec};

use super::flows::TCP;
use super::random::Random;

/// A generated packet. [`Self::frame`] makes its bytes.
///
/// ```
/// use flowgauge_synthetic::{Config, Packet, Traffic};
///
/// let mut traffic = Traffic::new(Config::default())?;
/// let packet = traffic.next().expect("a million packets");
/// let mut frame = [0; Packet::MAX_WIRE];
/// assert_eq!(packet.frame(&mut frame), 64);
/// // Ethernet with IPv4, and the addresses of the five-tuple.
/// assert_eq!(frame[12..15], [0x08, 0x00, 0x45]);
/// assert_eq!(frame[26..34], packet.key.as_bytes()[..8]);
/// # Ok::<(), flowgauge_synthetic::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Nanoseconds since the UNIX epoch.
    pub time_ns: i64,
    /// Bytes on the wire; all of them are captured.
    pub wire: u32,
    /// The number of its planted event, from 0; `None` for the background.
    pub event: Option<u16>,
    /// The TCP flags, if the packet is TCP.
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

    /// Length of the headers of a packet with this five-tuple: Ethernet, IP and TCP or UDP.
    #[inline]
    pub(super) fn headers(key: &CanonicalKey) -> u32 {
        let bytes = key.as_bytes();
        let ip = if bytes.len() == 13 { 20 } else { 40 };
        let transport = if bytes.last() == Some(&TCP) { 20 } else { 8 };
        ETHERNET as u32 + ip + transport
    }

    /// Writes the Ethernet frame to the start of `out` and returns its length, [`Self::wire`].
    /// Lengths and checksums are valid, and the payload is zero. Does not allocate.
    ///
    /// # Panics
    /// When `out` is shorter than the frame, or the packet was not made by
    /// [`Traffic`](crate::Traffic).
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

    /// The fields of the five-tuple.
    pub fn fields(&self) -> flowgauge_core::key::Fields {
        KeySpec::from(KeyKind::FIVE_TUPLE).fields(self.key.as_bytes())
    }
}

/// Writes `EtherType`, IPv4 and the transport header. `key` has 13 bytes.
#[inline]
fn ipv4(out: &mut [u8], key: &[u8], tcp_flags: u8) {
    out[..2].copy_from_slice(&[0x08, 0x00]);
    let ip = &mut out[2..];
    ip[0] = 0x45;
    let total = ip.len() as u16;
    ip[2..4].copy_from_slice(&total.to_be_bytes());
    // Don't fragment; time to live 64.
    (ip[6], ip[8], ip[9]) = (0x40, 64, key[12]);
    ip[12..20].copy_from_slice(&key[..8]);
    let checksum = folded(sum(&ip[..20]));
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    transport(&mut ip[20..], key, 8, tcp_flags);
}

/// Writes `EtherType`, IPv6 and the transport header. `key` has 37 bytes.
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
        // A header of five words, a window of 65,535.
        out[12..16].copy_from_slice(&[0x50, tcp_flags, 0xff, 0xff]);
        (20, 16)
    } else {
        out[4..6].copy_from_slice(&length.to_be_bytes());
        (8, 6)
    };
    // A payload of zeros adds nothing to the checksum.
    let pseudo = sum(&key[..addresses]) + u32::from(protocol) + u32::from(length);
    let checksum = match folded(pseudo + sum(&out[..header])) {
        // In UDP, 0 means no checksum, so UDP writes the other zero of one's complement.
        0 if protocol != TCP => 0xffff,
        checksum => checksum,
    };
    out[checksum_at..checksum_at + 2].copy_from_slice(&checksum.to_be_bytes());
}

/// The sum of the 16-bit words: the Internet checksum before folding.
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

/// Lengths of frames on the wire, without the frame check sequence of four bytes, which captures
/// lack.
///
/// A frame that is too short for its headers is enlarged: IPv6 needs 74 bytes with TCP and 62 with
/// UDP; IPv4 needs 54 with TCP and 42 with UDP.
///
/// ```
/// use flowgauge_synthetic::Size;
///
/// assert_eq!("imix".parse(), Ok(Size::Imix));
/// assert_eq!("1500".parse(), Ok(Size::Fixed(1500)));
/// assert!("41".parse::<Size>().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// Every frame has this length, 42 to 65,535 bytes.
    Fixed(u32),
    /// The simple Internet mix: of 12 frames, on average 7 have 64 bytes, 4 have 570 and 1 has
    /// 1,518.
    Imix,
}

impl Size {
    /// The shortest and the longest fixed length.
    pub const RANGE: std::ops::RangeInclusive<u32> = 42..=65_535;

    /// The next length.
    #[inline]
    pub(super) fn draw(self, random: &mut Random) -> u32 {
        match self {
            Self::Fixed(bytes) => bytes,
            Self::Imix => match random.below(12) {
                0..7 => 64,
                7..11 => 570,
                _ => 1518,
            },
        }
    }
}

/// The error of a text that is not a [`Size`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid frame size '{0}'; write 'imix' or a number of bytes from 42 to 65535")]
pub struct SizeError(String);

impl FromStr for Size {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        match text.parse() {
            _ if text == "imix" => Ok(Self::Imix),
            Ok(bytes) if Self::RANGE.contains(&bytes) => Ok(Self::Fixed(bytes)),
            _ => Err(SizeError(text.to_owned())),
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(bytes) => write!(f, "{bytes}"),
            Self::Imix => f.write_str("imix"),
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may fail")]
mod tests {
    use super::super::random::Stream;
    use super::*;

    #[test]
    fn text_is_read_and_written() {
        for (text, size) in
            [("64", Size::Fixed(64)), ("1518", Size::Fixed(1518)), ("imix", Size::Imix)]
        {
            assert_eq!(text.parse::<Size>().unwrap(), size);
            assert_eq!(size.to_string(), text);
        }
        for text in ["", "IMIX", "41", "65536", "-1", "64.0"] {
            assert_eq!(text.parse::<Size>().unwrap_err(), SizeError(text.to_owned()));
        }
    }

    /// Shares within 5 standard errors.
    #[test]
    fn imix_is_seven_four_one() {
        let mut random = Random::new(9, Stream::Sizes);
        let drawn: Vec<u32> = (0..120_000).map(|_| Size::Imix.draw(&mut random)).collect();
        for (bytes, expected) in [(64, 70_000.0_f64), (570, 40_000.0), (1518, 10_000.0)] {
            let count = drawn.iter().filter(|&&drawn| drawn == bytes).count() as f64;
            let error = (expected * (1.0 - expected / 120_000.0)).sqrt();
            assert!((count - expected).abs() < 5.0 * error, "{bytes} bytes: {count}");
        }
    }
}
