//! Captures compared with other readers (the crate pcap-parser, and tcpdump's counts of public
//! captures), and times by hand, exact to the nanosecond.

use std::collections::HashMap;
use std::io::Cursor;
use std::path::Path;
use std::{env, fs};

use flowgauge_capture::{CaptureError, Captures, Writer};
use flowgauge_core::packet::{Frame, LinkType};
use pcap_parser::traits::PcapNGPacketBlock;
use pcap_parser::{Block, PcapBlockOwned, PcapError, create_reader};

use crate::support::{enhanced, interface, obsolete, read, real, section, simple, sound};

/// Wire length and captured bytes of each packet, except in obsolete packet blocks, which that
/// crate does not read; `None` if it cannot read the file.
fn parsed(file: &[u8]) -> Option<Vec<(u32, Vec<u8>)>> {
    let mut reader = create_reader(1 << 20, Cursor::new(file.to_vec())).ok()?;
    let (mut packets, mut refilled) = (Vec::new(), false);
    loop {
        let (bytes, block) = match reader.next() {
            Ok(next) => next,
            Err(PcapError::Eof) => return Some(packets),
            // One refill shows it the end; the whole file is in its buffer from the start.
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
fn packets_equal_those_of_pcap_parser() {
    let mut compared = 0;
    for (name, file) in sound().into_iter().chain(real()) {
        // It knows neither the order of lengths in old versions nor the versions.
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

/// That crate and this one read back the packets that were written.
#[test]
fn pcap_parser_reads_written_packets() {
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

/// Intended differences of this reader: file, packets, outcome.
const DIFFERENCES: &[(&str, usize, &str)] = &[
    // tcpdump does not decompress; these are its counts after gunzip.
    ("zeek/contentline__telnet-unclosed-suboption.pcapng.gz", 13_987, WHOLE),
    ("zeek/http__iso-download.pcap.gz", 289, WHOLE),
    ("zeek/pe__pe_files_timestamp.pcap.gz", 22, WHOLE),
    ("zeek/smb__smb_many_open_files_500.pcap.gz", 500, WHOLE),
    ("zeek/smtp__mime-header-size-limit.pcap.gz", 44, WHOLE),
    ("zeek/smtp__smtp-many-addresses.pcap.gz", 2_508, WHOLE),
    ("zeek/ssh__kex-quadratic-1000.pcap.gz", 11, WHOLE),
    // Blocks whose two lengths differ are accepted and counted as irregular.
    ("libpcap/tests__shb-option-too-long.pcapng", 1, WHOLE),
    // Interfaces may differ in their snap lengths.
    ("zeek/ldap__modify-request.pcapng", 17, WHOLE),
    // A file without interfaces is valid if it has no packets.
    ("pcap-parser/test017-be.pcapng", 0, WHOLE),
    ("pcap-parser/test017-le.pcapng", 0, WHOLE),
    // tcpdump refuses these, too. A reader that ignores the version counts packets in them.
    ("libpcap/tests__pcap-invalid-version-1.pcap", 0, UNREADABLE),
    ("libpcap/tests__pcap-invalid-version-2.pcap", 0, UNREADABLE),
];

const WHOLE: &str = "whole";
const DAMAGED: &str = "damaged";
const UNREADABLE: &str = "unreadable";

#[test]
fn counts_equal_those_of_tcpdump() {
    let Some(folder) = env::var_os("FLOWGAUGE_CAPTURES") else {
        println!(
            "skipped: FLOWGAUGE_CAPTURES does not name a folder of captures with MANIFEST.tsv"
        );
        return;
    };
    let folder = Path::new(&folder);
    let manifest = fs::read_to_string(folder.join("MANIFEST.tsv")).unwrap();
    let mut columns = manifest.lines().map(|line| line.split('\t').collect::<Vec<_>>());
    let header = columns.next().unwrap();
    let column = |name| header.iter().position(|&column| column == name).unwrap();
    let [corpus, file, walked, counted, code] =
        ["corpus", "file", "walker_packets", "tcpdump_count", "tcpdump_rc"].map(column);
    let mut differences: HashMap<_, _> =
        DIFFERENCES.iter().map(|&(file, packets, outcome)| (file, (packets, outcome))).collect();
    let (mut files, mut wrong) = (0, Vec::new());
    for cells in columns {
        let name = format!("{}/{}", cells[corpus], cells[file]);
        // If tcpdump refused a file without counting, it refused the file header.
        let expected = differences.remove(&name[..]).unwrap_or_else(|| {
            let count = [cells[counted], cells[walked]].into_iter().find(|cell| !cell.is_empty());
            let outcome = if cells[code] == "0" { WHOLE } else { UNREADABLE };
            (count.map_or(0, |count| count.parse().unwrap()), outcome)
        });
        let (packets, errors, _) = read(&mut Captures::open([folder.join(&name)]));
        let outcome = match &errors[..] {
            [] => WHOLE,
            [CaptureError::Damaged { .. }] => DAMAGED,
            _ => UNREADABLE,
        };
        files += 1;
        if (packets.len(), outcome) != expected {
            wrong.push(format!("{name}: {} {outcome}, not {expected:?}", packets.len()));
        }
    }
    println!("{files} files");
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(differences.is_empty(), "no such files: {differences:?}");
    assert!(files >= 1000, "{files} files");
}

// Times of sections and interfaces, exact to the nanosecond.

#[test]
fn each_interface_has_its_own_unit_and_offset() {
    let big = false;
    let ticks = 1_234_567_890_123_456_789_u64;
    let offset = |seconds: i64| seconds.to_le_bytes();
    for (options, expected) in [
        // Microseconds by default; saturated, because the ticks overflow.
        (vec![], i64::MAX),
        (vec![(9, &[9][..])], 1_234_567_890_123_456_789),
        (vec![(9, &[12][..])], 1_234_567_890_123_456),
        (vec![(9, &[10][..])], 123_456_789_012_345_678),
        (vec![(9, &[28][..])], 0),
        (vec![(9, &[27][..])], 1),
        (vec![(9, &[127][..])], 0),
        (vec![(9, &[0][..])], i64::MAX),
        // Halves of a second, 2^-30 and 2^-32: floor(ticks × 10⁹ / 2ⁿ).
        (vec![(9, &[0x80 + 30][..])], 1_149_780_945_967_376_966),
        (vec![(9, &[0x80 + 32][..])], 287_445_236_491_844_241),
        (vec![(9, &[0xff][..])], 0),
        (vec![(9, &[9][..]), (14, &offset(-1))], 1_234_567_889_123_456_789),
        (vec![(14, &offset(1)), (9, &[9][..])], 1_234_567_891_123_456_789),
        (vec![(9, &[9][..]), (14, &offset(i64::MAX))], i64::MAX),
        (vec![(9, &[9][..]), (14, &offset(i64::MIN))], i64::MIN),
    ] {
        let mut file = section(big);
        file.extend(interface(big, 1, 0, &options));
        file.extend(enhanced(big, 0, ticks, b"x", 1));
        file.extend(obsolete(big, 0, ticks, b"x", 1));
        let (packets, errors, irregular) = read(&mut Captures::from_bytes("x", file));
        assert!(errors.is_empty() && irregular == 0, "{errors:?}");
        let times: Vec<i64> = packets.iter().map(|packet| packet.time_ns).collect();
        assert_eq!(times, [expected; 2], "{options:?}");
    }
}

#[test]
fn sections_keep_their_own_interfaces_and_byte_order() {
    let mut file = Vec::new();
    for (big, link) in [(true, 113), (false, 101), (true, 228)] {
        file.extend(section(big));
        file.extend(interface(big, 1, 0, &[(9, &[6])]));
        file.extend(interface(big, link, 0, &[(9, &[3])]));
        file.extend(enhanced(big, 1, 5, b"a", 1));
        file.extend(enhanced(big, 0, 5, b"b", 1));
    }
    let (packets, errors, _) = read(&mut Captures::from_bytes("x", file.clone()));
    assert!(errors.is_empty());
    let seen: Vec<_> = packets.iter().map(|packet| (packet.link, packet.time_ns)).collect();
    let expected =
        [(113, 5_000_000), (1, 5000), (101, 5_000_000), (1, 5000), (228, 5_000_000), (1, 5000)];
    assert_eq!(seen, expected);

    // A new section has no interfaces.
    let before = file.len();
    file.extend(section(false));
    file.extend(interface(false, 1, 0, &[]));
    let at = file.len();
    file.extend(enhanced(false, 1, 5, b"a", 1));
    let (packets, errors, _) = read(&mut Captures::from_bytes("x", file));
    assert!(before < at && packets.len() == 6);
    let expected = format!("x: byte {at}: interface 1 of a packet has no description");
    assert!(errors[0].to_string().starts_with(&expected), "{}", errors[0]);
}

#[test]
fn a_simple_packet_is_cut_at_the_snap_length_and_has_no_time() {
    for (snap, captured) in [(0, 21), (8, 8), (21, 21), (65_535, 21)] {
        let mut file = section(true);
        file.extend(interface(true, 1, snap, &[(9, &[9])]));
        file.extend(simple(true, &vec![7; captured], 21));
        let (packets, errors, irregular) = read(&mut Captures::from_bytes("x", file));
        assert!(errors.is_empty());
        let packet = &packets[0];
        assert_eq!((packet.data.len(), packet.wire, packet.time_ns), (captured, 21, 0));
        // The block has no captured length, so it cannot exceed the snap length of its interface.
        assert_eq!(irregular, 0);
    }
}
