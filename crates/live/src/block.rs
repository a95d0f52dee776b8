//! The packets of one block of the ring.

use std::mem::offset_of;
use std::ops::Range;

use flowgauge_core::packet::{Frame, LinkType};
use flowgauge_engine::source::Burst;
use libc::{tpacket_block_desc, tpacket_hdr_v1, tpacket_hdr_variant1, tpacket3_hdr};

use crate::port::link;
use crate::ring::RESERVED;

/// Bytes of the two addresses before a VLAN tag.
const ADDRESSES: usize = 12;

/// The EtherType of a VLAN tag if the kernel does not report it.
const VLAN: u16 = 0x8100;

/// The link type of unsupported frames, which are counted as such: the first link type reserved for
/// private use.
const UNKNOWN: LinkType = LinkType(147);

/// The position in a block.
pub(crate) struct Walk {
    /// Number of packets left.
    left: u32,
    /// Offset of the next packet's header.
    at: usize,
    /// Whether a packet exceeds the block. No kernel writes such a block.
    broken: bool,
}

impl Walk {
    /// The first packet of `block`.
    pub(crate) fn new(block: &[u8]) -> Self {
        let field = |offset| u32_at(block, offset_of!(tpacket_block_desc, hdr) + offset);
        let left = field(offset_of!(tpacket_hdr_v1, num_pkts)).unwrap_or(0);
        let at = field(offset_of!(tpacket_hdr_v1, offset_to_first_pkt)).unwrap_or(0);
        Self { left, at: at as usize, broken: false }
    }

    /// Whether there is another packet.
    pub(crate) fn has_next(&self) -> bool {
        self.left > 0 && !self.broken
    }

    /// Number of packets left; at the end of the walk, those that cannot be read.
    pub(crate) fn unread(&self) -> u32 {
        self.left
    }

    /// Adds frames to `burst` while it has room, as they were on the wire: puts back VLAN tags that
    /// the kernel stores apart. Without `link`, each packet gives its link type.
    pub(crate) fn frames<'a>(
        &mut self,
        block: &'a mut [u8],
        link: Option<LinkType>,
        burst: &mut Burst<'a>,
    ) {
        let mut rest = block.get_mut(self.at..).unwrap_or_default();
        while self.has_next() && burst.room() > 0 {
            let length = match u32_at(rest, offset_of!(tpacket3_hdr, tp_next_offset)) {
                Some(next) if self.left > 1 => rest.len().min(next as usize),
                _ => rest.len(),
            };
            let (packet, behind) = std::mem::take(&mut rest).split_at_mut(length);
            let Some(frame) = frame(packet, link) else {
                self.broken = true;
                break;
            };
            burst.push(frame);
            rest = behind;
            self.left -= 1;
            self.at += length;
        }
    }
}

/// The frame of a packet that begins with its header.
#[inline(always)]
fn frame(packet: &mut [u8], link: Option<LinkType>) -> Option<Frame<'_>> {
    let link = match link {
        Some(link) => link,
        None => packet_link(packet)?,
    };
    let header = packet.get(..size_of::<tpacket3_hdr>())?;
    let word = |offset| u32_at(header, offset);
    let seconds = i64::from(word(offset_of!(tpacket3_hdr, tp_sec))?);
    let fraction_ns = i64::from(word(offset_of!(tpacket3_hdr, tp_nsec))?);
    let time_ns = seconds * 1_000_000_000 + fraction_ns;
    let status = word(offset_of!(tpacket3_hdr, tp_status))?;
    let captured = word(offset_of!(tpacket3_hdr, tp_snaplen))? as usize;
    let mut wire = word(offset_of!(tpacket3_hdr, tp_len))?;
    let mut begin = usize::from(u16_at(header, offset_of!(tpacket3_hdr, tp_mac))?);
    let end = begin + captured;
    if status & libc::TP_STATUS_VLAN_VALID != 0 && link == LinkType::ETHERNET {
        let tag = offset_of!(tpacket3_hdr, hv1);
        let control = word(tag + offset_of!(tpacket_hdr_variant1, tp_vlan_tci))? as u16;
        let kind = match status & libc::TP_STATUS_VLAN_TPID_VALID {
            0 => VLAN,
            _ => u16_at(header, tag + offset_of!(tpacket_hdr_variant1, tp_vlan_tpid))?,
        };
        if put_back(packet, begin..end, kind, control) {
            begin -= RESERVED;
            wire += RESERVED as u32;
        }
    }
    Some(Frame { bytes: packet.get(begin..end)?, wire, link, time_ns })
}

/// The link type in the address that follows the header of a packet.
fn packet_link(packet: &[u8]) -> Option<LinkType> {
    let address = size_of::<tpacket3_hdr>().next_multiple_of(libc::TPACKET_ALIGNMENT);
    let hardware = u16_at(packet, address + offset_of!(libc::sockaddr_ll, sll_hatype))?;
    Some(link(hardware).unwrap_or(UNKNOWN))
}

/// Moves the addresses of a frame to the free bytes before it and inserts a tag after them. Returns
/// `false` if there is no room.
fn put_back(packet: &mut [u8], frame: Range<usize>, kind: u16, control: u16) -> bool {
    let addresses = frame.start..frame.start + ADDRESSES;
    let Some(begin) = frame.start.checked_sub(RESERVED) else { return false };
    if begin < size_of::<tpacket3_hdr>() || frame.len() < ADDRESSES || frame.end > packet.len() {
        return false;
    }
    packet.copy_within(addresses, begin);
    let tag = begin + ADDRESSES;
    packet[tag..tag + 2].copy_from_slice(&kind.to_be_bytes());
    packet[tag + 2..tag + 4].copy_from_slice(&control.to_be_bytes());
    true
}

#[inline(always)]
fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[inline(always)]
fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use flowgauge_core::batch::BATCH_PACKETS;
    use flowgauge_engine::source::Columns;

    use super::*;

    const NO_FRAME: Frame<'_> = Frame { bytes: &[], wire: 0, link: LinkType::NULL, time_ns: 0 };

    /// A block of packets with the bytes 1 to 20, and with these states and tags.
    fn block(packets: &[(u32, u32, u16)]) -> Vec<u8> {
        let mut block = vec![0; 512];
        let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
        let head = offset_of!(tpacket_block_desc, hdr);
        let number = packets.len() as u32;
        put(head + offset_of!(tpacket_hdr_v1, num_pkts), &number.to_ne_bytes());
        put(head + offset_of!(tpacket_hdr_v1, offset_to_first_pkt), &48_u32.to_ne_bytes());
        for (index, (status, control, kind)) in packets.iter().enumerate() {
            let at = 48 + index * 128;
            let tag = at + offset_of!(tpacket3_hdr, hv1);
            for (offset, word) in [
                (offset_of!(tpacket3_hdr, tp_next_offset), 128),
                (offset_of!(tpacket3_hdr, tp_sec), 7),
                (offset_of!(tpacket3_hdr, tp_nsec), 9),
                (offset_of!(tpacket3_hdr, tp_snaplen), 20),
                (offset_of!(tpacket3_hdr, tp_len), 60),
                (offset_of!(tpacket3_hdr, tp_status), *status),
            ] {
                put(at + offset, &u32::to_ne_bytes(word));
            }
            put(at + offset_of!(tpacket3_hdr, tp_mac), &86_u16.to_ne_bytes());
            put(tag + offset_of!(tpacket_hdr_variant1, tp_vlan_tci), &control.to_ne_bytes());
            put(tag + offset_of!(tpacket_hdr_variant1, tp_vlan_tpid), &kind.to_ne_bytes());
            let packet: Vec<u8> = (1..=20).collect();
            put(at + 86, &packet);
        }
        block
    }

    #[test]
    fn frames_are_as_they_were_on_the_wire() {
        let (valid, known) = (libc::TP_STATUS_VLAN_VALID, libc::TP_STATUS_VLAN_TPID_VALID);
        let mut block = block(&[(0, 5, 5), (valid, 0x2007, 0), (valid | known, 1, 0x88a8)]);
        let mut walk = Walk::new(&block);
        let (mut seen, mut columns) = (Vec::new(), Columns::default());
        while walk.has_next() {
            // A burst with room for two.
            let mut burst = Burst::new(&mut columns);
            burst.extend([NO_FRAME; BATCH_PACKETS - 2]);
            walk.frames(&mut block, Some(LinkType::ETHERNET), &mut burst);
            let frames = burst.frames().part(BATCH_PACKETS - 2..burst.len());
            seen.extend(
                frames.iter().map(|frame| (frame.wire, frame.time_ns, frame.bytes.to_vec())),
            );
        }
        let packet: Vec<u8> = (1..=20).collect();
        let with = |tag: [u8; 4]| [&packet[..12], &tag, &packet[12..]].concat();
        let time_ns = 7_000_000_009;
        assert_eq!(
            seen,
            [
                (60, time_ns, packet.clone()),
                (64, time_ns, with([0x81, 0, 0x20, 7])),
                (64, time_ns, with([0x88, 0xa8, 0, 1])),
            ]
        );
        assert_eq!(walk.unread(), 0);
    }

    #[test]
    fn packets_beyond_the_block_are_counted_but_not_read() {
        let whole = block(&[(0, 0, 0); 3]);
        let mut columns = Columns::default();
        for length in 0..whole.len() {
            let mut block = whole[..length].to_vec();
            let mut walk = Walk::new(&block);
            let left = walk.unread();
            let mut burst = Burst::new(&mut columns);
            walk.frames(&mut block, Some(LinkType::ETHERNET), &mut burst);
            let expected = (0..3).filter(|index| 48 + index * 128 + 106 <= length).count();
            assert_eq!(burst.len(), expected, "{length}");
            assert_eq!(expected as u32 + walk.unread(), left);
            assert!(!walk.has_next());
        }
    }
}
