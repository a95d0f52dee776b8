//! Reads the five-tuples of common frames: Ethernet with TCP or UDP, in IPv4 without options or
//! IPv6 without extension headers.
//!
//! The caller writes the loop over frames, so that a five-tuple stays in registers on its way to
//! the caller's columns. The loop is a [`WithHeaders`]; [`Isa::with_headers`] runs it, compiled
//! once per instruction set.

use bytemuck::{Pod, Zeroable};

use crate::isa::Isa;
#[cfg(target_arch = "x86_64")]
use crate::isa::Level;

/// The five-tuple of a packet, in network order. `N` is the size of both addresses: 8 bytes for
/// IPv4, 32 for IPv6.
///
/// ```
/// use flowgauge_kernel::Tuple;
///
/// let tuple = Tuple::new([10, 0, 0, 1, 10, 0, 0, 2], [0x30, 0x39, 0, 53], 17);
/// assert_eq!((tuple.ports(), tuple.protocol()), ([0x30, 0x39, 0, 53], 17));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Tuple<const N: usize> {
    /// Source address, then destination address.
    pub addresses: [u8; N],
    /// Source port, destination port and protocol in the first five bytes in memory; the rest is 0.
    pub rest: u64,
}

impl<const N: usize> Tuple<N> {
    /// A five-tuple of these fields.
    #[inline(always)]
    pub fn new(addresses: [u8; N], ports: [u8; 4], protocol: u8) -> Self {
        let [a, b, c, d] = ports;
        Self { addresses, rest: u64::from_ne_bytes([a, b, c, d, protocol, 0, 0, 0]) }
    }

    /// Source port and destination port.
    #[inline(always)]
    pub fn ports(&self) -> [u8; 4] {
        let [a, b, c, d, ..] = self.rest.to_ne_bytes();
        [a, b, c, d]
    }

    /// The protocol; in IPv6, the one after the extension headers.
    #[inline(always)]
    pub fn protocol(&self) -> u8 {
        self.rest.to_ne_bytes()[4]
    }
}

// SAFETY: there is no padding, and any bytes are valid.
unsafe impl Zeroable for Tuple<8> {}
// SAFETY: as above.
unsafe impl Pod for Tuple<8> {}

/// Bytes of Ethernet, IPv4 and both ports.
pub(crate) const V4_BYTES: usize = 14 + 20 + 4;
/// Bytes of Ethernet, IPv6 and both ports.
const V6_BYTES: usize = 14 + 40 + 4;

/// The bits of the fragment offset: zero in a whole packet and in a first fragment.
const FRAGMENT_OFFSET: u16 = 0x1fff;

const TCP: u8 = 6;
const UDP: u8 = 17;

/// Reads the headers of untagged Ethernet frames on one instruction set. Every processor can use
/// [`ScalarHeaders`]; all others come from [`Isa::with_headers`], so a value proves that the
/// instruction set was detected.
///
/// No function reads beyond the frame. `None` means only that the frame is not a common one. The
/// functions ignore the Ethernet addresses before byte 12, so a frame with a VLAN tag can be passed
/// from its fourth byte on.
///
/// ```
/// use flowgauge_kernel::{ReadHeaders, ScalarHeaders};
///
/// let mut frame = [0; 60];
/// frame[12..15].copy_from_slice(&[0x08, 0x00, 0x45]);
/// frame[23] = 17;
/// frame[26..34].copy_from_slice(&[10, 0, 0, 1, 192, 0, 2, 9]);
/// frame[34..38].copy_from_slice(&[0x03, 0xe8, 0x00, 0x35]);
/// let tuple = ScalarHeaders.v4(&frame);
/// assert_eq!(tuple.map(|tuple| tuple.addresses), Some([10, 0, 0, 1, 192, 0, 2, 9]));
/// assert_eq!(tuple.map(|tuple| tuple.protocol()), Some(17));
/// assert!(ScalarHeaders.v6(&frame).is_none());
/// ```
pub trait ReadHeaders: Copy {
    /// The five-tuple of a common IPv4 packet.
    fn v4(self, frame: &[u8]) -> Option<Tuple<8>>;
    /// The five-tuple of a common IPv6 packet.
    fn v6(self, frame: &[u8]) -> Option<Tuple<32>>;
}

/// A loop that reads headers. `run` must be `#[inline(always)]`; otherwise each frame costs a call.
///
/// ```
/// use flowgauge_kernel::{Isa, ReadHeaders, WithHeaders};
///
/// /// Counts the frames with common IPv4 headers.
/// struct Count<'a>(&'a [[u8; 60]]);
/// impl WithHeaders for Count<'_> {
///     type Output = usize;
///     #[inline(always)]
///     fn run<H: ReadHeaders>(self, headers: H) -> usize {
///         self.0.iter().filter(|frame| headers.v4(&frame[..]).is_some()).count()
///     }
/// }
/// assert_eq!(Isa::best().with_headers(Count(&[[0; 60]])), 0);
/// ```
pub trait WithHeaders {
    /// What the loop returns.
    type Output;
    /// Runs the loop.
    fn run<H: ReadHeaders>(self, headers: H) -> Self::Output;
}

impl Isa {
    /// Runs the loop, compiled for this instruction set.
    #[inline]
    pub fn with_headers<W: WithHeaders>(self, body: W) -> W::Output {
        match self.level() {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: holding an `Isa` of this level proves that it was detected.
            Level::Avx2 => unsafe { x86::with_avx2(body) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Level::Avx512 => unsafe { x86::with_avx512(body) },
            _ => body.run(ScalarHeaders),
        }
    }
}

/// The portable reader, the scalar twin of all others.
#[derive(Clone, Copy, Debug)]
pub struct ScalarHeaders;

impl ReadHeaders for ScalarHeaders {
    #[inline(always)]
    #[expect(clippy::needless_bitwise_bool, reason = "one branch instead of six")]
    fn v4(self, frame: &[u8]) -> Option<Tuple<8>> {
        let head: &[u8; V4_BYTES] = frame.first_chunk()?;
        let protocol = head[23];
        let common = (short(head, 12) == 0x0800)
            & (head[14] == 0x45)
            // The total length is 0 or covers the ports.
            & (short(head, 16).wrapping_sub(1) >= 20 + 4 - 1)
            & (short(head, 20) & FRAGMENT_OFFSET == 0)
            & ((protocol == TCP) | (protocol == UDP));
        common.then(|| tuple(head, 26, protocol))
    }

    #[inline(always)]
    #[expect(clippy::needless_bitwise_bool, reason = "one branch instead of five")]
    fn v6(self, frame: &[u8]) -> Option<Tuple<32>> {
        let head: &[u8; V6_BYTES] = frame.first_chunk()?;
        let next = head[20];
        let common = (short(head, 12) == 0x86dd)
            & (head[14] >> 4 == 6)
            // The payload length is 0 or covers the ports.
            & (short(head, 18).wrapping_sub(1) >= 4 - 1)
            & ((next == TCP) | (next == UDP));
        common.then(|| tuple(head, 22, next))
    }
}

#[inline(always)]
fn short<const N: usize>(head: &[u8; N], at: usize) -> u16 {
    u16::from_be_bytes([head[at], head[at + 1]])
}

/// The addresses that begin at `at`, and the ports after them.
#[inline(always)]
fn tuple<const N: usize>(head: &[u8], at: usize, protocol: u8) -> Tuple<N> {
    let (mut addresses, mut ports) = ([0; N], [0; 4]);
    addresses.copy_from_slice(&head[at..at + N]);
    ports.copy_from_slice(&head[at + N..at + N + 4]);
    Tuple::new(addresses, ports, protocol)
}

#[cfg(target_arch = "x86_64")]
pub(crate) mod x86 {
    use std::arch::x86_64::*;

    use super::{
        FRAGMENT_OFFSET, ReadHeaders, TCP, Tuple, UDP, V4_BYTES, V6_BYTES, WithHeaders, tuple,
    };

    /// The places of the deciding fields from byte 12 of an IPv4 frame on: EtherType; version,
    /// header length and protocol; total length; fragment offset. They fill half a vector, so all
    /// vectors have them twice: for one frame, or for two.
    pub(crate) const FIELDS: [u8; 16] = [1, 0, 2, 11, 5, 4, 9, 8, 1, 0, 2, 11, 5, 4, 9, 8];
    /// The bits of each field that decide.
    pub(crate) const DECIDING: [i16; 8] = twice([-1, -1, -1, FRAGMENT_OFFSET.cast_signed()]);
    /// Subtracting 1 makes a length of 0 the largest one: all valid lengths then reach [`LEAST`].
    pub(crate) const ONE_LESS: [i16; 8] = twice([0, 0, 1, 0]);
    const LEAST: i16 = 20 + 4 - 1;
    pub(crate) const MOST: [i16; 8] = twice([-1, -1, LEAST, -1]);
    /// The fields of a common frame.
    pub(crate) const TCP_FIELDS: [i16; 8] = common(TCP);
    pub(crate) const UDP_FIELDS: [i16; 8] = common(UDP);

    const fn common(protocol: u8) -> [i16; 8] {
        twice([0x0800, i16::from_le_bytes([0x45, protocol]), LEAST, 0])
    }

    const fn twice([a, b, c, d]: [i16; 4]) -> [i16; 8] {
        [a, b, c, d, a, b, c, d]
    }

    /// A vector of these bytes.
    #[inline(always)]
    pub(crate) fn bytes(of: &[u8; 16]) -> __m128i {
        // SAFETY: every processor of this architecture has SSE2; the load needs no alignment.
        unsafe { _mm_loadu_si128(of.as_ptr().cast()) }
    }

    /// A vector of these numbers.
    #[inline(always)]
    pub(crate) fn numbers(of: &[i16; 8]) -> __m128i {
        // SAFETY: as above.
        unsafe { _mm_loadu_si128(of.as_ptr().cast()) }
    }

    /// Tests all deciding fields of a frame at once.
    #[derive(Clone, Copy)]
    struct Avx2(());

    impl ReadHeaders for Avx2 {
        #[inline(always)]
        fn v4(self, frame: &[u8]) -> Option<Tuple<8>> {
            let head: &[u8; V4_BYTES] = frame.first_chunk()?;
            // SAFETY: only `with_avx2` and `with_avx512` make an `Avx2`, and their callers detected
            // AVX2; the load is of the bytes 12 to 27 of 38.
            let common = unsafe {
                let fields = _mm_loadu_si128(head.as_ptr().add(12).cast());
                let fields = _mm_shuffle_epi8(fields, bytes(&FIELDS));
                let fields = _mm_and_si128(fields, numbers(&DECIDING));
                let fields = _mm_sub_epi16(fields, numbers(&ONE_LESS));
                let fields = _mm_min_epu16(fields, numbers(&MOST));
                let tcp = _mm_xor_si128(fields, numbers(&TCP_FIELDS));
                let udp = _mm_xor_si128(fields, numbers(&UDP_FIELDS));
                let apart = _mm_min_epu16(tcp, udp);
                _mm_testz_si128(apart, apart) == 1
            };
            common.then(|| tuple(head, 26, head[23]))
        }

        #[inline(always)]
        fn v6(self, frame: &[u8]) -> Option<Tuple<32>> {
            let head: &[u8; V6_BYTES] = frame.first_chunk()?;
            // SAFETY: AVX2 was detected, as above; the load is of the bytes 12 to 27 of 58.
            let common = unsafe {
                let fields = _mm_shuffle_epi8(
                    _mm_loadu_si128(head.as_ptr().add(12).cast()),
                    // EtherType, version, payload length, next header.
                    _mm_setr_epi8(1, 0, 2, -1, 7, 6, 8, -1, -1, -1, -1, -1, -1, -1, -1, -1),
                );
                let fields = _mm_and_si128(fields, _mm_setr_epi16(-1, 0xf0, -1, -1, 0, 0, 0, 0));
                let least = 4 - 1;
                let fields = _mm_sub_epi16(fields, _mm_setr_epi16(0, 0, 1, 0, 0, 0, 0, 0));
                let most = _mm_setr_epi16(-1, -1, least, -1, -1, -1, -1, -1);
                let fields = _mm_min_epu16(fields, most);
                let ether_type = 0x86dd_u16.cast_signed();
                let tcp = _mm_setr_epi16(ether_type, 0x60, least, TCP.into(), 0, 0, 0, 0);
                let udp = _mm_setr_epi16(ether_type, 0x60, least, UDP.into(), 0, 0, 0, 0);
                let (tcp, udp) = (_mm_xor_si128(fields, tcp), _mm_xor_si128(fields, udp));
                let apart = _mm_min_epu16(tcp, udp);
                _mm_testz_si128(apart, apart) == 1
            };
            common.then(|| tuple(head, 22, head[20]))
        }
    }

    /// Runs the loop with AVX2.
    ///
    /// # Safety
    /// AVX2 must have been detected.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn with_avx2<W: WithHeaders>(body: W) -> W::Output {
        body.run(Avx2(()))
    }

    /// Runs the same loop with AVX-512, where comparisons use mask registers.
    ///
    /// # Safety
    /// AVX-512BW and VL must have been detected.
    #[target_feature(enable = "avx512bw,avx512vl")]
    pub(super) unsafe fn with_avx512<W: WithHeaders>(body: W) -> W::Output {
        body.run(Avx2(()))
    }
}
