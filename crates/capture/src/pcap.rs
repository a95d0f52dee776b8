//! Classic pcap: a file header, then records of 16 (or 24) bytes of header and the packet.

use flowgauge_core::packet::{Frame, LinkType};
use flowgauge_engine::source::{Ahead, Burst, Skipped};

use crate::{
    damage::{Damage, MAX_CAPTURED, Refusal},
    record::{Begin, ByteOrder, Need, Packet, Stop},
};

/// Bytes of the file header.
pub(crate) const FILE_HEADER: usize = 24;

/// Bytes of the largest record.
pub(crate) const LARGEST_RECORD: usize = 24 + MAX_CAPTURED as usize;

/// The bits of the link type field that hold the link type. Above them are reserved bits and the
/// length of the frame check sequence.
const LINK_TYPE: u32 = 0xffff;
const LINK_RESERVED: u32 = 0x03ff_0000;

/// A classic pcap file, after its header.
#[derive(Clone, Debug)]
pub(crate) struct Pcap {
    order: ByteOrder,
    /// Nanoseconds in a unit of the fraction of a second.
    fraction_ns: i64,
    pub(crate) record_header: usize,
    lengths: Lengths,
    snap_length: u32,
    link: LinkType,
    pub(crate) irregular: u64,
}

/// The fields of a record header that are used to find records.
pub(crate) struct Record {
    /// Bytes of header and packet.
    pub(crate) bytes: usize,
    /// Seconds since the UNIX epoch.
    pub(crate) seconds: u32,
    /// Fraction of a second, below [`Pcap::fractions`] in a valid record.
    pub(crate) fraction: u32,
}

/// The order of the two lengths in a record.
#[derive(Clone, Copy, Debug)]
enum Lengths {
    /// Captured, then original: since version 2.4.
    Straight,
    /// Original, then captured: before version 2.3, and in DG/UX's version 543.0.
    Swapped,
    /// Either order, because programs of both kinds wrote version 2.3. The captured length is the
    /// smaller one.
    Lesser,
}

impl Pcap {
    /// Reads the file header that begins with `magic`.
    pub(crate) fn begin(magic: [u8; 4], bytes: &[u8]) -> Result<Begin<Self>, Refusal> {
        let (order, fraction_ns, record_header) = match &magic {
            b"\xd4\xc3\xb2\xa1" => (ByteOrder::Little, 1000, 16),
            b"\xa1\xb2\xc3\xd4" => (ByteOrder::Big, 1000, 16),
            b"\x4d\x3c\xb2\xa1" => (ByteOrder::Little, 1, 16),
            b"\xa1\xb2\x3c\x4d" => (ByteOrder::Big, 1, 16),
            // Kuznetzov's patched libpcap adds interface, protocol and direction to each record.
            b"\x34\xcd\xb2\xa1" => (ByteOrder::Little, 1000, 24),
            b"\xa1\xb2\xcd\x34" => (ByteOrder::Big, 1000, 24),
            [0xfd, b'7', b'z', b'X'] => return Err(Refusal::Compressed("xz")),
            [b'B', b'Z', b'h', _] => return Err(Refusal::Compressed("bzip2")),
            [0x04, 0x22, 0x4d, 0x18] => return Err(Refusal::Compressed("lz4")),
            _ => return Err(Refusal::NotCapture(magic)),
        };
        if bytes.len() < FILE_HEADER {
            return Ok(Begin::Need(FILE_HEADER));
        }
        let lengths = match (order.u16(bytes, 4), order.u16(bytes, 6)) {
            (2, 0..=2) | (543, 0) => Lengths::Swapped,
            (2, 3) => Lengths::Lesser,
            (2, 4) => Lengths::Straight,
            (major, minor) => return Err(Refusal::Version { format: "pcap", major, minor }),
        };
        let snap_length = match order.u32(bytes, 16) {
            0 => u32::MAX,
            length => length,
        };
        let link = order.u32(bytes, 20);
        if link & LINK_RESERVED != 0 {
            return Err(Refusal::LinkType(link));
        }
        let link = LinkType((link & LINK_TYPE) as u16);
        let pcap =
            Self { order, fraction_ns, record_header, lengths, snap_length, link, irregular: 0 };
        Ok(Begin::Found(pcap, FILE_HEADER))
    }

    /// The captured length and the length on the wire in a record header.
    #[inline(always)]
    fn lengths(&self, order: ByteOrder, header: &[u8]) -> (u32, u32) {
        let (first, second) = (order.u32(header, 8), order.u32(header, 12));
        match self.lengths {
            Lengths::Straight => (first, second),
            Lengths::Lesser if first <= second => (first, second),
            Lengths::Lesser | Lengths::Swapped => (second, first),
        }
    }

    /// The record at the start of `bytes`. `None` if its header is incomplete or has a captured
    /// length that [`Pcap::next`] refuses.
    #[inline(always)]
    pub(crate) fn record(&self, bytes: &[u8]) -> Option<Record> {
        let header = bytes.get(..self.record_header)?;
        let (captured, _) = self.lengths(self.order, header);
        (captured <= MAX_CAPTURED).then(|| Record {
            bytes: self.record_header + captured as usize,
            seconds: self.order.u32(header, 0),
            fraction: self.order.u32(header, 4),
        })
    }

    /// Fractions per second: a valid record has a smaller fraction.
    pub(crate) fn fractions(&self) -> u32 {
        (1_000_000_000 / self.fraction_ns) as u32
    }

    /// The packet whose record begins at `at`.
    pub(crate) fn next<'a>(&self, bytes: &'a [u8], at: usize) -> Result<Packet<'a>, Stop> {
        self.packet(self.order, bytes, at).ok_or_else(|| self.stop(bytes, at))
    }

    /// The reason why there is no packet at `at`.
    #[cold]
    fn stop(&self, bytes: &[u8], at: usize) -> Stop {
        let Some(header) = bytes.get(at..at + self.record_header) else {
            return Need::whole(self.record_header, "record header").into();
        };
        match self.lengths(self.order, header) {
            (captured, _) if captured > MAX_CAPTURED => Damage::CapturedLength(captured).into(),
            (captured, _) => Need::behind(self.record_header, captured as usize, "packet").into(),
        }
    }

    /// Walks records; see [`Format::walk`](crate::format::Format::walk).
    pub(crate) fn walk<'a>(&mut self, bytes: &'a [u8], at: &mut usize, burst: &mut Burst<'a>) {
        // Compiled once per byte order.
        match self.order {
            ByteOrder::Little => self.walk_ordered::<false>(bytes, at, burst),
            ByteOrder::Big => self.walk_ordered::<true>(bytes, at, burst),
        }
    }

    fn walk_ordered<'a, const BIG: bool>(
        &mut self,
        bytes: &'a [u8],
        at: &mut usize,
        burst: &mut Burst<'a>,
    ) {
        let order = if BIG { ByteOrder::Big } else { ByteOrder::Little };
        let (mut next, mut irregular) = (*at, 0);
        while burst.room() > 0 {
            let Some(packet) = self.packet(order, bytes, next) else { break };
            burst.push(packet.frame);
            irregular += u64::from(packet.irregular);
            next = packet.end;
        }
        self.irregular += irregular;
        *at = next;
    }

    /// Skips records; see [`Format::skip`](crate::format::Format::skip).
    pub(crate) fn skip(&mut self, bytes: &[u8], at: &mut usize, ahead: &Ahead) -> Skipped {
        // Compiled once per byte order.
        match self.order {
            ByteOrder::Little => self.skip_ordered::<false>(bytes, at, ahead),
            ByteOrder::Big => self.skip_ordered::<true>(bytes, at, ahead),
        }
    }

    fn skip_ordered<const BIG: bool>(
        &mut self,
        bytes: &[u8],
        at: &mut usize,
        ahead: &Ahead,
    ) -> Skipped {
        let order = if BIG { ByteOrder::Big } else { ByteOrder::Little };
        let (mut next, mut irregular, mut skipped) = (*at, 0, Skipped::none(ahead));
        while let Some(packet) = self.packet(order, bytes, next)
            && skipped.take(ahead, packet.frame.wire, packet.frame.time_ns)
        {
            irregular += u64::from(packet.irregular);
            next = packet.end;
        }
        self.irregular += irregular;
        *at = next;
        skipped
    }

    /// The packet whose record begins at `at`. `None` if it is cut short or damaged.
    #[inline(always)]
    fn packet<'a>(&self, order: ByteOrder, bytes: &'a [u8], at: usize) -> Option<Packet<'a>> {
        let header = bytes.get(at..at + self.record_header)?;
        let (captured, wire) = self.lengths(order, header);
        if captured > MAX_CAPTURED {
            return None;
        }
        let begin = at + self.record_header;
        let end = begin + captured as usize;
        let captured_bytes = bytes.get(begin..end)?;
        let seconds = i64::from(order.u32(header, 0));
        let fraction = i64::from(order.u32(header, 4));
        // At most 2³² × 10⁹ + 2³² × 10³: no overflow.
        let time_ns = seconds * 1_000_000_000 + fraction * self.fraction_ns;
        let frame = Frame { bytes: captured_bytes, wire, link: self.link, time_ns };
        Some(Packet { frame, end, irregular: captured > wire.min(self.snap_length) })
    }
}
