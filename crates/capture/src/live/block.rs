//! The packets of one block of the ring.

use std::mem::offset_of;

use flowgauge_core::packet::LinkType;
use libc::{tpacket_block_desc, tpacket_hdr_v1, tpacket_hdr_variant1, tpacket3_hdr};

use super::ring::RESERVED;
use crate::frames::Frame;

/// Bytes of the two addresses that a VLAN tag stands behind.
const ADDRESSES: usize = 12;

/// The EtherType of a VLAN tag whose own the kernel does not tell.
const VLAN: u16 = 0x8100;

/// How far a block has been walked.
pub(super) struct Walk {
    /// Packets left, and where the next one's header begins.
    left: u32,
    at: usize,
    /// Whether what is left does not lie in the block, as no kernel has it.
    broken: bool,
}

impl Walk {
    /// At the first packet of `block`.
    pub(super) fn new(block: &[u8]) -> Self {
        let field = |offset| u32_at(block, offset_of!(tpacket_block_desc, hdr) + offset);
        let left = field(offset_of!(tpacket_hdr_v1, num_pkts)).unwrap_or(0);
        let at = field(offset_of!(tpacket_hdr_v1, offset_to_first_pkt)).unwrap_or(0);
        Self { left, at: at as usize, broken: false }
    }

    /// Packets of the block that cannot be read.
    pub(super) fn unread(&self) -> u32 {
        self.left
    }

    /// Writes where the next frames lie, and puts VLAN tags back that the kernel keeps apart, as
    /// they were on the wire. How many there are; none at the end of the block.
    pub(super) fn frames(&mut self, block: &mut [u8], link: LinkType, to: &mut [Frame]) -> usize {
        let mut written = 0;
        while self.left > 0
            && !self.broken
            && let Some(frame) = to.get_mut(written)
        {
            let Some(next) = self.frame(block, link, frame) else {
                self.broken = true;
                break;
            };
            written += 1;
            self.left -= 1;
            self.at += next;
        }
        written
    }

    /// Reads one header, and gives how far on the next one is.
    #[inline(always)]
    fn frame(&self, block: &mut [u8], link: LinkType, frame: &mut Frame) -> Option<usize> {
        let header = block.get(self.at..self.at + size_of::<tpacket3_hdr>())?;
        let word = |offset| u32_at(header, offset);
        let seconds = i64::from(word(offset_of!(tpacket3_hdr, tp_sec))?);
        let fraction_ns = i64::from(word(offset_of!(tpacket3_hdr, tp_nsec))?);
        let status = word(offset_of!(tpacket3_hdr, tp_status))?;
        let next = word(offset_of!(tpacket3_hdr, tp_next_offset))? as usize;
        let mac = usize::from(u16_at(header, offset_of!(tpacket3_hdr, tp_mac))?);
        *frame = Frame {
            offset: self.at + mac,
            captured: word(offset_of!(tpacket3_hdr, tp_snaplen))?,
            wire: word(offset_of!(tpacket3_hdr, tp_len))?,
            time_ns: seconds * 1_000_000_000 + fraction_ns,
            link,
        };
        if status & libc::TP_STATUS_VLAN_VALID != 0 && link == LinkType::ETHERNET {
            let tag = offset_of!(tpacket3_hdr, hv1);
            let control = word(tag + offset_of!(tpacket_hdr_variant1, tp_vlan_tci))? as u16;
            let kind = match status & libc::TP_STATUS_VLAN_TPID_VALID {
                0 => VLAN,
                _ => u16_at(header, tag + offset_of!(tpacket_hdr_variant1, tp_vlan_tpid))?,
            };
            put_back(block, frame, kind, control);
        }
        let end = frame.offset + frame.captured as usize;
        (end <= block.len()).then_some(next)
    }
}

/// Moves the addresses of a frame into the free bytes before it, and a tag behind them.
fn put_back(block: &mut [u8], frame: &mut Frame, kind: u16, control: u16) {
    let Some(begin) = frame.offset.checked_sub(RESERVED) else { return };
    let addresses = frame.offset..frame.offset + ADDRESSES;
    if (frame.captured as usize) < ADDRESSES || addresses.end > block.len() {
        return;
    }
    block.copy_within(addresses, begin);
    let tag = begin + ADDRESSES;
    block[tag..tag + 2].copy_from_slice(&kind.to_be_bytes());
    block[tag + 2..tag + 4].copy_from_slice(&control.to_be_bytes());
    frame.offset = begin;
    frame.captured += RESERVED as u32;
    frame.wire += RESERVED as u32;
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
    use super::*;
    use crate::frames::NO_FRAME;

    /// A block with packets of 20 bytes each, 1, 2, 3, …, of these states and tags.
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
        let mut frames = [NO_FRAME; 2];
        let mut seen = Vec::new();
        loop {
            let read = walk.frames(&mut block, LinkType::ETHERNET, &mut frames);
            if read == 0 {
                break;
            }
            for frame in &frames[..read] {
                let bytes = &block[frame.offset..][..frame.captured as usize];
                seen.push((frame.wire, frame.time_ns, bytes.to_vec()));
            }
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
    fn what_lies_outside_of_the_block_is_not_read_but_counted() {
        let whole = block(&[(0, 0, 0); 3]);
        for length in 0..whole.len() {
            let mut block = whole[..length].to_vec();
            let mut walk = Walk::new(&block);
            let left = walk.unread();
            let mut frames = [NO_FRAME; 4];
            let read = walk.frames(&mut block, LinkType::ETHERNET, &mut frames);
            let expected = (0..3).filter(|index| 48 + index * 128 + 106 <= length).count();
            assert_eq!(read, expected, "{length}");
            assert_eq!(read as u32 + walk.unread(), left);
            assert_eq!(walk.frames(&mut block, LinkType::ETHERNET, &mut frames), 0);
        }
    }
}
