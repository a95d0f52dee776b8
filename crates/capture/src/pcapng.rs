//! pcapng: sections of blocks, each section in its own byte order and with its own interfaces.

use flowgauge_core::packet::{Frame, LinkType};
use flowgauge_engine::source::{Ahead, Burst, Skipped};

use crate::{
    damage::{Damage, MAX_BLOCK, MAX_CAPTURED, MAX_INTERFACES, Refusal},
    record::{Begin, ByteOrder, Need, Packet, Stop},
};

/// The type of a section header block, the same in both byte orders.
pub(crate) const SECTION: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;

/// Bytes of a block before its body: type and length.
pub(crate) const BLOCK_HEADER: usize = 8;

/// Bytes of a block after its body, where its length is repeated.
const TRAILER: usize = 4;

/// The state of a pcapng file during a walk.
#[derive(Clone, Debug)]
pub(crate) struct Pcapng {
    order: ByteOrder,
    interfaces: Vec<Interface>,
    passing: Option<Passing>,
    pub(crate) irregular: u64,
}

/// A block that is skipped without being kept in memory, whatever its size.
#[derive(Clone, Copy, Debug)]
struct Passing {
    length: u32,
    /// Bytes still to skip, including the trailer.
    left: u32,
}

impl Pcapng {
    /// Reads the first section header up to its version.
    pub(crate) fn begin(bytes: &[u8]) -> Result<Begin<Self>, Refusal> {
        let Some(header) = bytes.first_chunk::<16>() else { return Ok(Begin::Need(16)) };
        let order = byte_order(header).ok_or(Refusal::NotCapture(SECTION))?;
        let (major, minor) = version(order, header);
        if !version_known(major, minor) {
            return Err(Refusal::Version { format: "pcapng", major, minor });
        }
        let pcapng = Self { order, interfaces: Vec::new(), passing: None, irregular: 0 };
        // Consumes nothing: the walk reads this section header like every later one.
        Ok(Begin::Found(pcapng, 0))
    }

    /// Whether the following blocks are read the same way in this state as in `other`.
    pub(crate) fn is_as(&self, other: &Self) -> bool {
        self.order == other.order && self.interfaces == other.interfaces
    }

    /// The length of the block of at most `largest` bytes that may begin here. The length must be
    /// repeated at the end of the block, if `bytes` reaches that far.
    #[inline(always)]
    pub(crate) fn plausible(&self, bytes: &[u8], largest: usize) -> Option<usize> {
        let header = bytes.first_chunk::<BLOCK_HEADER>()?;
        let length = self.order.u32(header, 4) as usize;
        let sound = (12..=largest).contains(&length) && length.is_multiple_of(4);
        let again = |trailer| self.order.u32(trailer, 0) as usize == length;
        (sound && bytes.get(length - TRAILER..length).is_none_or(again)).then_some(length)
    }

    /// Walks blocks; see [`Format::walk`](crate::format::Format::walk).
    pub(crate) fn walk<'a>(&mut self, bytes: &'a [u8], at: &mut usize, burst: &mut Burst<'a>) {
        loop {
            // Compiled once per byte order.
            match self.order {
                ByteOrder::Little => self.walk_enhanced::<false>(bytes, at, burst),
                ByteOrder::Big => self.walk_enhanced::<true>(bytes, at, burst),
            }
            if burst.room() == 0 {
                break;
            }
            let Ok(packet) = self.next(bytes, at) else { break };
            burst.push(packet.frame);
            self.irregular += u64::from(packet.irregular);
            *at = packet.end;
        }
    }

    /// Walks enhanced packet blocks up to the first block of another type. Almost all blocks are
    /// enhanced packet blocks.
    fn walk_enhanced<'a, const BIG: bool>(
        &mut self,
        bytes: &'a [u8],
        at: &mut usize,
        burst: &mut Burst<'a>,
    ) {
        if self.passing.is_some() {
            return;
        }
        let order = if BIG { ByteOrder::Big } else { ByteOrder::Little };
        let (mut next, mut irregular) = (*at, 0);
        while burst.room() > 0 {
            let Some(packet) = self.enhanced(order, bytes, next) else { break };
            burst.push(packet.frame);
            irregular += u64::from(packet.irregular);
            next = packet.end;
        }
        self.irregular += irregular;
        *at = next;
    }

    /// The packet of the enhanced packet block at `at`; `None` if the block is of another type, cut
    /// short or damaged.
    #[inline(always)]
    fn enhanced<'a>(&self, order: ByteOrder, bytes: &'a [u8], at: usize) -> Option<Packet<'a>> {
        let header = bytes.get(at..)?.first_chunk::<8>()?;
        let (kind, length) = (order.u32(header, 0), order.u32(header, 4));
        if kind != ENHANCED_PACKET || !(32..=MAX_BLOCK).contains(&length) || length % 4 != 0 {
            return None;
        }
        let end = at + length as usize;
        let block = bytes.get(at..end)?;
        let (frame, odd) = read_packet(order, kind, block, &self.interfaces).ok()?;
        let irregular = odd || order.u32(block, block.len() - TRAILER) != length;
        Some(Packet { frame, end, irregular })
    }

    /// Skips packets; see [`Format::skip`](crate::format::Format::skip).
    pub(crate) fn skip(&mut self, bytes: &[u8], at: &mut usize, ahead: &Ahead) -> Skipped {
        let mut skipped = Skipped::none(ahead);
        while let Ok(packet) = self.next(bytes, at)
            && skipped.take(ahead, packet.frame.wire, packet.frame.time_ns)
        {
            self.irregular += u64::from(packet.irregular);
            *at = packet.end;
        }
        skipped
    }

    /// The next packet. Moves `at` to its block.
    pub(crate) fn next<'a>(&mut self, bytes: &'a [u8], at: &mut usize) -> Result<Packet<'a>, Stop> {
        loop {
            if let Some(passing) = self.passing {
                self.pass(passing, bytes, at)?;
            } else if let Some(packet) = self.block(bytes, at)? {
                return Ok(packet);
            }
        }
    }

    /// Reads the block at `at`, and moves past it unless it holds a packet or must be skipped.
    fn block<'a>(&mut self, bytes: &'a [u8], at: &mut usize) -> Result<Option<Packet<'a>>, Stop> {
        let rest = &bytes[*at..];
        let header = rest.first_chunk::<12>().ok_or(Need::whole(12, "block header"))?;
        let order = if header.starts_with(&SECTION) {
            byte_order(header).ok_or(Damage::ByteOrder(magic(header)))?
        } else {
            self.order
        };
        let (kind, length) = (order.u32(header, 0), order.u32(header, 4));
        let fixed = fixed_bytes(kind);
        let bounds = fixed.map_or(12..=u32::MAX, |fixed| fixed..=MAX_BLOCK);
        if !bounds.contains(&length) || length % 4 != 0 {
            return Err(Damage::BlockLength { length, kind }.into());
        }
        if fixed.is_none() {
            self.passing = Some(Passing { length, left: length });
            return Ok(None);
        }
        let whole = length as usize;
        let block = rest.get(..whole).ok_or(Need::whole(whole, "block"))?;
        let mut irregular = order.u32(block, whole - TRAILER) != length;
        match kind {
            SECTION_HEADER => self.begin_section(order, block)?,
            INTERFACE_DESCRIPTION => irregular |= self.describe_interface(block)?,
            _ => {
                let (frame, odd) = read_packet(order, kind, block, &self.interfaces)?;
                let (end, irregular) = (*at + whole, irregular | odd);
                return Ok(Some(Packet { frame, end, irregular }));
            }
        }
        self.irregular += u64::from(irregular);
        *at += whole;
        Ok(None)
    }

    /// Begins a new section, without interfaces.
    fn begin_section(&mut self, order: ByteOrder, block: &[u8]) -> Result<(), Damage> {
        let (major, minor) = version(order, block);
        if !version_known(major, minor) {
            return Err(Damage::SectionVersion { major, minor });
        }
        self.order = order;
        self.interfaces.clear();
        Ok(())
    }

    /// Adds an interface. Returns whether its description is irregular.
    fn describe_interface(&mut self, block: &[u8]) -> Result<bool, Damage> {
        if self.interfaces.len() == MAX_INTERFACES {
            return Err(Damage::Interfaces);
        }
        let (interface, irregular) = Interface::read(self.order, block);
        self.interfaces.push(interface);
        Ok(irregular)
    }

    /// Skips as much of a block as is in `bytes`.
    fn pass(&mut self, passing: Passing, bytes: &[u8], at: &mut usize) -> Result<(), Stop> {
        let Passing { length, mut left } = passing;
        let body = (left as usize - TRAILER).min(bytes.len() - *at);
        *at += body;
        left -= body as u32;
        match bytes[*at..].first_chunk::<TRAILER>() {
            Some(trailer) if left as usize == TRAILER => {
                self.irregular += u64::from(self.order.u32(trailer, 0) != length);
                self.passing = None;
                *at += TRAILER;
                Ok(())
            }
            _ => {
                self.passing = Some(Passing { length, left });
                let bytes = if left as usize == TRAILER { TRAILER } else { 1 };
                let passed = u64::from(length - left);
                let whole = u64::from(length);
                Err(Need { bytes, field: "block", passed, before: 0, whole }.into())
            }
        }
    }
}

/// The byte-order magic of a section header.
fn magic(header: &[u8; 12]) -> [u8; 4] {
    [header[8], header[9], header[10], header[11]]
}

fn byte_order(header: &[u8]) -> Option<ByteOrder> {
    match header.get(8..12)? {
        b"\x4d\x3c\x2b\x1a" => Some(ByteOrder::Little),
        b"\x1a\x2b\x3c\x4d" => Some(ByteOrder::Big),
        _ => None,
    }
}

fn version(order: ByteOrder, section: &[u8]) -> (u16, u16) {
    (order.u16(section, 12), order.u16(section, 14))
}

/// Some programs write version 1.2 instead of 1.0.
fn version_known(major: u16, minor: u16) -> bool {
    matches!((major, minor), (1, 0 | 2))
}

/// Bytes of a block without its variable part. `None` for types that are skipped.
fn fixed_bytes(kind: u32) -> Option<u32> {
    match kind {
        SECTION_HEADER => Some(28),
        INTERFACE_DESCRIPTION => Some(20),
        SIMPLE_PACKET => Some(16),
        OBSOLETE_PACKET | ENHANCED_PACKET => Some(32),
        _ => None,
    }
}

/// Reads a packet block of any of the three types, which must have at least its fixed bytes.
/// Returns the frame and whether the block is irregular.
#[inline(always)]
fn read_packet<'a>(
    order: ByteOrder,
    kind: u32,
    block: &'a [u8],
    interfaces: &[Interface],
) -> Result<(Frame<'a>, bool), Damage> {
    let field = |at| order.u32(block, at);
    let number = match kind {
        SIMPLE_PACKET => 0,
        // The other half of this field is a count of drops.
        OBSOLETE_PACKET => u32::from(order.u16(block, 8)),
        _ => field(8),
    };
    let interface = interfaces.get(number as usize);
    let (offset, captured, wire) = if kind == SIMPLE_PACKET {
        let snap_length = interface.map_or(u32::MAX, |interface| interface.snap_length);
        (12, field(8).min(snap_length), field(8))
    } else {
        (28, field(20), field(24))
    };
    if captured > MAX_CAPTURED {
        return Err(Damage::CapturedLength(captured));
    }
    let room = (block.len() - TRAILER - offset) as u32;
    if captured > room {
        return Err(Damage::CapturedOverBlock { captured, room });
    }
    let interface = interface.ok_or(Damage::Interface(number))?;
    let time_ns = match kind {
        // The block has no time. libpcap also returns 1970.
        SIMPLE_PACKET => 0,
        _ => interface.clock.time_ns((u64::from(field(12)) << 32) | u64::from(field(16))),
    };
    let bytes = &block[offset..offset + captured as usize];
    let frame = Frame { bytes, wire, link: interface.link, time_ns };
    Ok((frame, captured > wire.min(interface.snap_length)))
}

const END_OF_OPTIONS: u16 = 0;
const TIME_RESOLUTION: u16 = 9;
const TIME_OFFSET: u16 = 14;

/// An interface description.
#[derive(Clone, Debug, PartialEq)]
struct Interface {
    link: LinkType,
    /// Maximum captured bytes of a packet; `u32::MAX` for no limit.
    snap_length: u32,
    clock: Clock,
}

impl Interface {
    /// Reads an interface description block, which must have at least its 20 fixed bytes. Returns
    /// whether its options are irregular: they exceed the block, or one has a wrong length and is
    /// ignored.
    fn read(order: ByteOrder, block: &[u8]) -> (Self, bool) {
        let snap_length = match order.u32(block, 12) {
            0 => u32::MAX,
            length => length,
        };
        let (mut resolution, mut offset_s, mut irregular) = (6, 0, false);
        let mut options = &block[16..block.len() - 4];
        while options.len() >= 4 {
            let (code, length) = (order.u16(options, 0), order.u16(options, 2));
            let padded = 4 + usize::from(length).next_multiple_of(4);
            if code == END_OF_OPTIONS {
                break;
            }
            let Some(value) = options.get(4..4 + usize::from(length)) else {
                irregular = true;
                break;
            };
            match (code, value.len()) {
                (TIME_RESOLUTION, 1) => resolution = value[0],
                (TIME_OFFSET, 8) => offset_s = order.i64(value, 0),
                (TIME_RESOLUTION | TIME_OFFSET, _) => irregular = true,
                _ => {}
            }
            options = options.get(padded..).unwrap_or_default();
        }
        let link = LinkType(order.u16(block, 8));
        (Self { link, snap_length, clock: Clock::new(resolution, offset_s) }, irregular)
    }
}

/// Converts an interface's timestamps (64-bit counts of its own unit) to nanoseconds since the UNIX
/// epoch. Exact, except that fractions of a nanosecond are cut off.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Clock {
    unit: Unit,
    offset_ns: i128,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Unit {
    /// A multiple of a nanosecond.
    Nanoseconds(u64),
    /// A nanosecond divided by this number.
    Part(u64),
    /// A second halved this many times.
    Halved(u32),
}

impl Clock {
    /// The clock of an interface with this `if_tsresol` (a negative power of ten, or of two if the
    /// high bit is set) and `if_tsoffset` (seconds).
    fn new(resolution: u8, offset_s: i64) -> Self {
        let exponent = u32::from(resolution & 0x7f);
        let unit = match exponent {
            _ if resolution & 0x80 != 0 => Unit::Halved(exponent),
            0..=9 => Unit::Nanoseconds(10u64.pow(9 - exponent)),
            10..=28 => Unit::Part(10u64.pow(exponent - 9)),
            // No 64-bit count of these units reaches a nanosecond.
            _ => Unit::Nanoseconds(0),
        };
        Self { unit, offset_ns: i128::from(offset_s) * 1_000_000_000 }
    }

    /// The time of a timestamp, clamped to the range of 64 bits.
    #[inline]
    fn time_ns(&self, ticks: u64) -> i64 {
        // Almost all interfaces take this path.
        if let Unit::Nanoseconds(ns) = self.unit
            && self.offset_ns == 0
            && let Some(time_ns) = ticks.checked_mul(ns)
            && let Ok(time_ns) = i64::try_from(time_ns)
        {
            return time_ns;
        }
        let ns = match self.unit {
            Unit::Nanoseconds(ns) => i128::from(ticks) * i128::from(ns),
            Unit::Part(parts) => i128::from(ticks / parts),
            Unit::Halved(times) => (i128::from(ticks) * 1_000_000_000) >> times,
        };
        (ns + self.offset_ns).clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }
}
