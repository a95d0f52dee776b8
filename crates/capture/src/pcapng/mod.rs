//! pcapng: sections of blocks, each section in its own byte order and with its own interfaces.

mod clock;
mod interface;
mod packet;

use flowgauge_engine::source::{Ahead, Burst, Skipped};

use self::interface::Interface;
use crate::{
    damage::{Damage, MAX_BLOCK, MAX_INTERFACES, Refusal},
    format::{Begin, ByteOrder, Format, Need, Packet, Stop},
};

/// The type of a section header block: the same in both byte orders.
pub(crate) const SECTION: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;

/// Bytes of a block before its body: type and length.
pub(crate) const BLOCK_HEADER: usize = 8;

/// The block's length stands before its body and again behind it.
const TRAILER: usize = 4;

/// A pcapng file, as far as it was walked.
#[derive(Clone, Debug)]
pub(crate) struct Pcapng {
    order: ByteOrder,
    interfaces: Vec<Interface>,
    passing: Option<Passing>,
    pub(crate) irregular: u64,
}

/// A block that is passed over without being kept, whatever its size.
#[derive(Clone, Copy, Debug)]
struct Passing {
    length: u32,
    /// Bytes still to come, the trailer among them.
    left: u32,
}

impl Pcapng {
    /// Looks at the first section header as far as its version.
    pub(crate) fn begin(bytes: &[u8]) -> Result<Begin, Refusal> {
        let Some(header) = bytes.first_chunk::<16>() else { return Ok(Begin::Need(16)) };
        let order = byte_order(header).ok_or(Refusal::NotCapture(SECTION))?;
        let (major, minor) = version(order, header);
        if !version_known(major, minor) {
            return Err(Refusal::Version { format: "pcapng", major, minor });
        }
        let pcapng = Self { order, interfaces: Vec::new(), passing: None, irregular: 0 };
        // Nothing is consumed: the walk meets this section header as it meets every later one.
        Ok(Begin::Found(Format::Pcapng(pcapng), 0))
    }

    /// Whether what comes next is read alike after this as after `other`.
    pub(crate) fn is_as(&self, other: &Self) -> bool {
        self.order == other.order && self.interfaces == other.interfaces
    }

    /// The bytes of the block that `bytes` may begin with, of those that have at most `largest`: its
    /// length stands at its end, too, unless that cannot be seen.
    #[inline(always)]
    pub(crate) fn plausible(&self, bytes: &[u8], largest: usize) -> Option<usize> {
        let header = bytes.first_chunk::<BLOCK_HEADER>()?;
        let length = self.order.u32(header, 4) as usize;
        let sound = (12..=largest).contains(&length) && length.is_multiple_of(4);
        let again = |trailer| self.order.u32(trailer, 0) as usize == length;
        (sound && bytes.get(length - TRAILER..length).is_none_or(again)).then_some(length)
    }

    /// Walks blocks; see [`Format::walk`].
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

    /// Walks enhanced packet blocks up to the first block of another kind. Nearly all blocks are enhanced.
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

    /// The packet of the enhanced packet block at `at`; `None` where there is another one, or
    /// something is wrong.
    #[inline(always)]
    fn enhanced<'a>(&self, order: ByteOrder, bytes: &'a [u8], at: usize) -> Option<Packet<'a>> {
        let header = bytes.get(at..)?.first_chunk::<8>()?;
        let (kind, length) = (order.u32(header, 0), order.u32(header, 4));
        if kind != ENHANCED_PACKET || !(32..=MAX_BLOCK).contains(&length) || length % 4 != 0 {
            return None;
        }
        let end = at + length as usize;
        let block = bytes.get(at..end)?;
        let (frame, odd) = packet::read(order, kind, block, &self.interfaces).ok()?;
        let irregular = odd || order.u32(block, block.len() - TRAILER) != length;
        Some(Packet { frame, end, irregular })
    }

    /// Passes over packets; see [`Format::skip`].
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

    /// The next packet, to whose block `at` moves.
    pub(crate) fn next<'a>(&mut self, bytes: &'a [u8], at: &mut usize) -> Result<Packet<'a>, Stop> {
        loop {
            if let Some(passing) = self.passing {
                self.pass(passing, bytes, at)?;
            } else if let Some(packet) = self.block(bytes, at)? {
                return Ok(packet);
            }
        }
    }

    /// Reads the block at `at`: moves behind it unless it holds a packet or is to be passed over.
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
                let (frame, odd) = packet::read(order, kind, block, &self.interfaces)?;
                let (end, irregular) = (*at + whole, irregular | odd);
                return Ok(Some(Packet { frame, end, irregular }));
            }
        }
        self.irregular += u64::from(irregular);
        *at += whole;
        Ok(None)
    }

    /// Forgets the section before.
    fn begin_section(&mut self, order: ByteOrder, block: &[u8]) -> Result<(), Damage> {
        let (major, minor) = version(order, block);
        if !version_known(major, minor) {
            return Err(Damage::SectionVersion { major, minor });
        }
        self.order = order;
        self.interfaces.clear();
        Ok(())
    }

    /// Adds an interface, and says whether its description is irregular.
    fn describe_interface(&mut self, block: &[u8]) -> Result<bool, Damage> {
        if self.interfaces.len() == MAX_INTERFACES {
            return Err(Damage::Interfaces);
        }
        let (interface, irregular) = Interface::read(self.order, block);
        self.interfaces.push(interface);
        Ok(irregular)
    }

    /// Goes on over a block of no interest as far as there are bytes.
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

/// Some programs wrote 1.2 for what is 1.0.
fn version_known(major: u16, minor: u16) -> bool {
    matches!((major, minor), (1, 0 | 2))
}

/// Bytes of a block without its variable part, if its kind is one that is looked into.
fn fixed_bytes(kind: u32) -> Option<u32> {
    match kind {
        SECTION_HEADER => Some(28),
        INTERFACE_DESCRIPTION => Some(20),
        SIMPLE_PACKET => Some(16),
        OBSOLETE_PACKET | ENHANCED_PACKET => Some(32),
        _ => None,
    }
}
