//! Sound captures as the crate pcap-parser reads them.

use std::io::Cursor;

use flowgauge_capture::{Captures, Writer};
use flowgauge_core::packet::{Frame, LinkType};
use pcap_parser::{Block, PcapBlockOwned, PcapError, create_reader, traits::PcapNGPacketBlock};

use crate::support::{read, real, sound};

/// Wire length and captured bytes of each packet, but for obsolete packet blocks, which that crate
/// does not take for packets; `None` where it does not understand the file.
fn parsed(file: &[u8]) -> Option<Vec<(u32, Vec<u8>)>> {
    let mut reader = create_reader(1 << 20, Cursor::new(file.to_vec())).ok()?;
    let (mut packets, mut refilled) = (Vec::new(), false);
    loop {
        let (bytes, block) = match reader.next() {
            Ok(next) => next,
            Err(PcapError::Eof) => return Some(packets),
            // Once, so that it sees the end; the whole file is in its buffer from the start.
            Err(PcapError::Incomplete(_)) if !refilled => {
                reader.refill().ok()?;
                refilled = true;
                continue;
            }
            Err(_) => return None,
        };
        match block {
            PcapBlockOwned::Legacy(packet) => packets.push((packet.origlen, packet.data.to_vec())),
            PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
                packets.push((packet.orig_len(), packet.packet_data().to_vec()));
            }
            PcapBlockOwned::NG(Block::SimplePacket(packet)) => {
                packets.push((packet.orig_len(), packet.packet_data().to_vec()));
            }
            _ => {}
        }
        reader.consume(bytes);
    }
}

#[test]
fn packets_are_those_of_pcap_parser() {
    let mut compared = 0;
    for (name, file) in sound().into_iter().chain(real()) {
        // It knows neither the order of lengths in old versions nor which versions there are.
        if name.ends_with("-2.2") || name.ends_with("-543.0") || name.contains("invalid") {
            continue;
        }
        let Some(expected) = parsed(&file) else { continue };
        let (packets, errors, _) = read(&mut Captures::from_bytes(&name, file));
        assert!(errors.is_empty(), "{name}: {errors:?}");
        // The only packet of 14 bytes in a pcapng file made here is in an obsolete packet block.
        let obsolete = |length| name.ends_with("-pcapng") && length == 14;
        let seen: Vec<_> = packets
            .into_iter()
            .filter(|packet| !obsolete(packet.data.len()))
            .map(|packet| (packet.wire, packet.data))
            .collect();
        assert_eq!(seen, expected, "{name}");
        compared += 1;
    }
    assert!(compared >= 20, "{compared} captures were compared");
}

/// What is written is what that crate reads, and what we read again.
#[test]
fn written_packets_are_those_of_pcap_parser() {
    let mut compared = 0;
    for (name, file) in sound().into_iter().chain(real()) {
        let (packets, ..) = read(&mut Captures::from_bytes(&name, file));
        let mut written = Vec::new();
        let mut writer = Writer::new(&mut written).unwrap();
        for packet in &packets {
            let (wire, link, time_ns) = (packet.wire, LinkType(packet.link), packet.time_ns);
            writer.write(&Frame { bytes: &packet.data, wire, link, time_ns }).unwrap();
        }
        writer.flush().unwrap();
        let expected: Vec<_> =
            packets.iter().map(|packet| (packet.wire, packet.data.clone())).collect();
        assert_eq!(parsed(&written).unwrap(), expected, "{name}");
        let (again, errors, _) = read(&mut Captures::from_bytes(&name, written));
        assert!(errors.is_empty(), "{name}: {errors:?}");
        assert_eq!(again, packets, "{name}");
        compared += packets.len();
    }
    assert!(compared >= 150, "{compared} packets were compared");
}
