//! pcapng: sections of blocks, each section in its own byte order and with its own interfaces.

mod clock;
mod interface;

use self::interface::Interface;
use crate::{
    damage::{Damage, MAX_BLOCK, MAX_CAPTURED, MAX_INTERFACES, Refusal},
    format::{Begin, ByteOrder, Format, Need, Stop, Walk},
    frames::Frame,
};

/// The type of a section header block: the same in both byte orders.
pub(crate) const SECTION: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;

/// The block's length stands before its body and again behind it.
const TRAILER: usize = 4;

/// A pcapng file, as far as it was walked.
pub(crate) struct Pcapng {
    order: ByteOrder,
    interfaces: Vec<Interface>,
    passing: Option<Passing>,
    pub(crate) irregular: u64,
}

/// A block that is passed over without being kept, whatever its size.
#[derive(Clone, Copy)]
struct Passing {
    length: u32,
    /// Bytes still to come, the trailer among them.
    left: u32,
}

/// Where a packet lies in its block and what the block says of it.
struct Packet {
    interface: u32,
    ticks: u64,
    captured: u32,
    wire: u32,
    /// Bytes of the block before the packet's first.
    before: u32,
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

    /// Walks blocks; see [`Format::walk`].
    pub(crate) fn walk(&mut self, bytes: &[u8], mut at: usize, frames: &mut [Frame]) -> Walk {
        let mut written = 0;
        let stop = loop {
            let step = match self.passing {
                Some(passing) => self.pass(passing, bytes, &mut at),
                None if written == frames.len() => Err(Stop::Full),
                None => self.block(bytes, at).map(|(length, frame)| {
                    if let Some(frame) = frame {
                        frames[written] = frame;
                        written += 1;
                    }
                    at += length;
                }),
            };
            if let Err(stop) = step {
                break stop;
            }
        };
        Walk { at, frames: written, stop }
    }

    /// Reads the block at `at`: its bytes (0 where it is to be passed over) and its packet.
    fn block(&mut self, bytes: &[u8], at: usize) -> Result<(usize, Option<Frame>), Stop> {
        let rest = &bytes[at..];
        let Some(header) = rest.first_chunk::<12>() else {
            return Err(Stop::Need(Need::whole(12, "block header")));
        };
        let order = if header.starts_with(&SECTION) {
            byte_order(header).ok_or(Stop::Damaged(Damage::ByteOrder(magic(header))))?
        } else {
            self.order
        };
        let (kind, length) = (order.u32(header, 0), order.u32(header, 4));
        let fixed = fixed_bytes(kind);
        let bounds = fixed.map_or(12..=u32::MAX, |fixed| fixed..=MAX_BLOCK);
        if !bounds.contains(&length) || length % 4 != 0 {
            return Err(Stop::Damaged(Damage::BlockLength { length, kind }));
        }
        if fixed.is_none() {
            self.passing = Some(Passing { length, left: length });
            return Ok((0, None));
        }
        let whole = length as usize;
        let block = rest.get(..whole).ok_or(Stop::Need(Need::whole(whole, "block")))?;
        let (frame, odd) = self.known_block(order, kind, block, at).map_err(Stop::Damaged)?;
        self.irregular += u64::from(odd | (order.u32(block, whole - TRAILER) != length));
        Ok((whole, frame))
    }

    /// Reads a block of a known kind that is wholly there: its packet, and whether it is irregular.
    fn known_block(
        &mut self,
        order: ByteOrder,
        kind: u32,
        block: &[u8],
        at: usize,
    ) -> Result<(Option<Frame>, bool), Damage> {
        let field = |at| order.u32(block, at);
        let ticks = || u64::from(field(12)) << 32 | u64::from(field(16));
        let packet = match kind {
            SECTION_HEADER => {
                let (major, minor) = version(order, block);
                if !version_known(major, minor) {
                    return Err(Damage::SectionVersion { major, minor });
                }
                self.order = order;
                self.interfaces.clear();
                return Ok((None, false));
            }
            INTERFACE_DESCRIPTION => {
                if self.interfaces.len() == MAX_INTERFACES {
                    return Err(Damage::Interfaces);
                }
                let (interface, odd) = Interface::read(order, block);
                self.interfaces.push(interface);
                return Ok((None, odd));
            }
            SIMPLE_PACKET => {
                let snap = self.interfaces.first().map_or(u32::MAX, |first| first.snap_length);
                let wire = field(8);
                // It has no time either: what libpcap calls time 0.
                Packet { interface: 0, ticks: 0, captured: wire.min(snap), wire, before: 12 }
            }
            kind => {
                // An obsolete packet block shares this field with a count of drops.
                let interface = match kind {
                    OBSOLETE_PACKET => u32::from(order.u16(block, 8)),
                    _ => field(8),
                };
                let (captured, wire) = (field(20), field(24));
                Packet { interface, ticks: ticks(), captured, wire, before: 28 }
            }
        };
        let Packet { captured, wire, before, .. } = packet;
        if captured > MAX_CAPTURED {
            return Err(Damage::CapturedLength(captured));
        }
        let room = block.len() as u32 - before - TRAILER as u32;
        if captured > room {
            return Err(Damage::CapturedOverBlock { captured, room });
        }
        let interface = self
            .interfaces
            .get(packet.interface as usize)
            .ok_or(Damage::Interface(packet.interface))?;
        let time_ns = match kind {
            SIMPLE_PACKET => 0,
            _ => interface.clock.time_ns(packet.ticks),
        };
        let offset = at + before as usize;
        let frame = Frame { offset, captured, wire, time_ns, link: interface.link };
        Ok((Some(frame), captured > wire.min(interface.snap_length)))
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
                Err(Stop::Need(Need { bytes, field: "block", passed, whole }))
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
