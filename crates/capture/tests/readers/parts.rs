//! The parts of a file give the packets of the whole file, or cutting gives the reason for
//! refusing.

use std::path::PathBuf;
use std::time::Instant;
use std::{env, fs, process};

use flowgauge_capture::{CaptureError, Captures, Damage, Part, Whole, cut};

use crate::naive::walk;
use crate::streams::gzip;
use crate::support::{
    Bytes, Packet, Random, block, enhanced, interface, obsolete, other, pcapng, read, real,
    section, simple,
};

const SEED: u64 = 0x5eed_0011;
const SECONDS: u32 = 1_700_000_000;
const MAGICS: [u32; 3] = [0xa1b2_c3d4, 0xa1b2_3c4d, 0xa1b2_cd34];

/// A file that is deleted on drop.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str, bytes: &[u8]) -> Self {
        let path = env::temp_dir().join(format!("flowgauge-{}-{name}", process::id()));
        fs::write(&path, bytes).unwrap();
        Self(path)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// The start of a file.
fn header(big: bool, magic: u32) -> Bytes {
    Bytes::new(big).u32(magic).u16(2).u16(4).u32(0).u32(0).u32(262_144).u32(1)
}

/// Adds a record to the file.
fn with(file: Bytes, magic: u32, time: (u32, u32), packet: &[u8]) -> Bytes {
    let length = packet.len() as u32;
    let file = file.u32(time.0).u32(time.1).u32(length).u32(length);
    let file = if magic == MAGICS[2] { file.raw(&[0; 8]) } else { file };
    file.raw(packet)
}

/// A realistic packet, or one whose bytes look like records.
fn packet(random: &mut Random, most: usize) -> Vec<u8> {
    let length = random.below(most + 1);
    match random.below(5) {
        0 => vec![0; length],
        1 => vec![0xff; length],
        2 => (0..length).map(|at| b"HTTP/1.1 200 OK\r\n"[at % 17]).collect(),
        3 => {
            let inner = with(header(false, MAGICS[0]), MAGICS[0], (SECONDS, 9), &[7; 60]);
            inner.bytes.iter().copied().cycle().skip(random.below(100)).take(length).collect()
        }
        _ => (0..length).map(|_| random.below(256) as u8).collect(),
    }
}

/// A valid file of at least `bytes` bytes, with packets of at most `most` bytes.
fn file(random: &mut Random, big: bool, magic: u32, bytes: usize, most: usize) -> Vec<u8> {
    let mut file = header(big, magic);
    let mut count = 0;
    while file.bytes.len() < bytes {
        let packet = packet(random, most);
        file = with(file, magic, (SECONDS + count / 1000, count % 1000), &packet);
        count += 1;
    }
    file.bytes
}

/// The packets of all parts, the errors of each, and the irregular records.
fn joined(parts: &[Part]) -> (Vec<Packet>, Vec<Vec<CaptureError>>, u64) {
    let (mut packets, mut errors, mut irregular) = (Vec::new(), Vec::new(), 0);
    for part in parts {
        let (some, wrong, strange) = read(&mut part.open());
        packets.extend(some);
        errors.push(wrong);
        irregular += strange;
    }
    (packets, errors, irregular)
}

/// Cuts a valid file and compares its parts with the whole.
fn check(name: &str, bytes: &[u8], pieces: usize) {
    let whole = read(&mut Captures::from_bytes("whole", bytes.to_vec()));
    assert!(whole.1.is_empty(), "{name} is sound");
    let file = Temporary::new(name, bytes);
    let begun = Instant::now();
    let parts = cut(&file.0, pieces).unwrap_or_else(|why| panic!("{name}: {why}"));
    println!("{name}: {} parts in {:?}", parts.len(), begun.elapsed());
    assert_eq!(parts.len(), pieces, "{name}");
    let mut ends = parts.iter().map(|part| part.bytes().end);
    assert_eq!(parts[0].bytes().start, if bytes.starts_with(b"\n\r\r\n") { 0 } else { 24 });
    assert!(ends.clone().zip(&parts[1..]).all(|(end, next)| end == next.bytes().start));
    assert_eq!(ends.next_back(), Some(bytes.len() as u64));
    let even = bytes.len() as u64 / pieces as u64;
    // Up to a largest record after the wanted place.
    assert!(parts.iter().all(|part| {
        let range = part.bytes();
        (range.end - range.start).abs_diff(even) <= 262_168 + 24
    }));
    let (packets, errors, irregular) = joined(&parts);
    assert!(errors.iter().all(Vec::is_empty), "{name}: {errors:?}");
    assert!(packets == whole.0 && irregular == whole.2, "{name}: parts are not the whole");
}

#[test]
fn the_parts_of_any_valid_pcap_equal_the_whole() {
    println!("seed {SEED:#x}");
    let mut random = Random(SEED);
    for magic in MAGICS {
        for (index, most) in [0, 60, 1500, 65_535, 262_144].into_iter().enumerate() {
            let pieces = 2 + index % 3;
            let big = index % 2 == 1;
            let bytes = file(&mut random, big, magic, pieces * (1 << 20) + 300_000, most);
            check(&format!("{magic:x}-{most}.pcap"), &bytes, pieces);
        }
    }
}

#[test]
fn packets_of_real_captures_do_not_mislead_the_finder() {
    let packets: Vec<Packet> =
        real().into_iter().flat_map(|(_, file)| walk(&file).packets).collect();
    let mut file = header(false, MAGICS[0]);
    let mut count = 0;
    while file.bytes.len() < 5 << 20 {
        for packet in &packets {
            // Longer on the wire than captured, and vice versa.
            let wire = packet.wire.wrapping_add(count % 3);
            file = file.u32(SECONDS + count / 500).u32(count % 1_000_000);
            file = file.u32(packet.data.len() as u32).u32(wire).raw(&packet.data);
            count += 1;
        }
    }
    check("real.pcap", &file.bytes, 4);
}

/// A file whose packets each hold a capture. Its last record extends over the next outer header, so
/// the inner chain never ends. The first outer record has the time of the inner ones, the others
/// have `seconds`.
fn capture_in_each_packet(seconds: u32) -> Vec<u8> {
    let file = with(header(false, MAGICS[0]), MAGICS[0], (SECONDS, 1), &[3; 40]);
    let inner = &file.bytes[24..];
    let packet = [&inner.repeat(400), &inner[..40]].concat();
    let mut file = file.clone();
    while file.bytes.len() < 3 << 20 {
        file = with(file, MAGICS[0], (seconds, 5), &packet);
    }
    file.bytes
}

#[test]
fn an_uncertain_cut_is_refused() {
    let mut random = Random(SEED);
    let sound = file(&mut random, false, MAGICS[0], 3 << 20, 1500);
    let nested = capture_in_each_packet(SECONDS);
    let clock = file(&mut random, false, MAGICS[0], 3 << 20, 1500);
    let clock =
        [&with(header(false, MAGICS[0]), MAGICS[0], (SECONDS / 2, 0), &[]).bytes, &clock[24..]];
    let early = with(header(false, MAGICS[0]), MAGICS[0], (5, 5), &[0; 60]).bytes;
    let damaged = {
        let mut file = sound.clone();
        let half = file.len() / 2;
        file[half - 400_000..].fill(0xff);
        file
    };
    let cases = [
        ("gzip", gzip(&sound), "it is compressed"),
        ("pcapng", pcapng(false), "it is smaller than"),
        ("empty", Vec::new(), "it is not a capture"),
        ("short", sound[..2_000_000].to_vec(), "it is smaller than 2097344 bytes"),
        ("nested", nested.clone(), "after byte 1"),
        ("clock", clock.concat(), "after byte 1"),
        ("damaged", damaged, "after byte 1"),
        (
            "early",
            [&early[..24], &early[24..].repeat(40_000)].concat(),
            "its first timestamp is so early",
        ),
    ];
    for (name, bytes, reason) in cases {
        let file = Temporary::new(name, &bytes);
        let why = cut(&file.0, 2).expect_err(name).to_string();
        assert!(why.starts_with(reason), "{name}: {why}");
    }
    let nested = Temporary::new("nested-again", &nested);
    assert!(matches!(cut(&nested.0, 2), Err(Whole::Ambiguous(_))));
    for name in ["-", "/", "/dev/null"] {
        assert!(matches!(cut(name.as_ref(), 2), Err(Whole::NoFile)), "{name}");
    }
    assert!(matches!(cut("/no/such.pcap".as_ref(), 2), Err(Whole::Unreadable(_))));
}

#[test]
fn damage_in_a_part_is_reported_as_in_the_whole_file() {
    let mut random = Random(SEED);
    let sound = file(&mut random, false, MAGICS[0], 5 << 20, 1500);
    let edges = walk(&sound).edges;
    let half = sound.len() / 2;
    // In the first part, in the second, and a file that ends within a packet.
    for (name, record) in [("first", 40), ("second", edges.len() - 40)] {
        let mut bytes = sound.clone();
        bytes[edges[record] + 8..edges[record] + 12].fill(0xff);
        let (before, errors, _) = read(&mut Captures::from_bytes("x", bytes.clone()));
        let file = Temporary::new(name, &bytes);
        let parts = cut(&file.0, 2).unwrap();
        let (packets, wrong, _) = joined(&parts);
        let part = usize::from(edges[record] > half);
        let texts: Vec<_> = wrong[part].iter().map(ToString::to_string).collect();
        let whole = errors[0].to_string();
        assert_eq!(texts, [whole.replacen('x', &file.0.display().to_string(), 1)]);
        assert!(wrong[1 - part].is_empty());
        assert!(packets.starts_with(&before));
        // The packets of the second part must be discarded after damage in the first one.
        assert_eq!(packets.len() > before.len(), part == 0);
    }
    let file = Temporary::new("cut", &sound[..sound.len() - 1]);
    let (_, errors, _) = joined(&cut(&file.0, 3).unwrap());
    assert!(errors[0].is_empty() && errors[1].is_empty());
    assert!(matches!(errors[2][..], [CaptureError::Damaged { damage: Damage::Cut { .. }, .. }]));
}

#[test]
fn a_wrong_cut_is_detected() {
    // A clock that jumps by more than a year, with captures inside the packets before the jump.
    let file = Temporary::new("wrong", &capture_in_each_packet(SECONDS + 367 * 86_400));
    let parts = cut(&file.0, 2).unwrap();
    let (_, errors, _) = read(&mut parts[0].open());
    assert!(matches!(errors[..], [CaptureError::Damaged { damage: Damage::Seam(_), .. }]));
}

#[test]
fn a_part_ends_where_the_next_begins_or_is_an_error() {
    let mut random = Random(SEED);
    let mut bytes = file(&mut random, false, MAGICS[0], 3 << 20, 1500);
    let file = Temporary::new("seam", &bytes);
    let parts = cut(&file.0, 2).unwrap();
    let seam = parts[1].bytes().start;
    // The last record before the seam claims a byte more than it has, so that a chain over the
    // seam would go elsewhere.
    let edges = walk(&bytes).edges;
    let last = edges[edges.binary_search(&(seam as usize)).unwrap() - 1];
    let length = seam as u32 - last as u32 - 16 + 1;
    bytes[last + 8..last + 12].copy_from_slice(&length.to_le_bytes());
    fs::write(&file.0, &bytes).unwrap();
    let (_, errors, _) = read(&mut parts[0].open());
    let name = file.0.display();
    assert_eq!(
        errors[0].to_string(),
        format!(
            "{name}: byte {last}: packet crosses byte {seam}, where the file was split for \
             several readers; packets before it are counted"
        )
    );
    // A file that has shrunk since it was cut, even by whole records.
    fs::write(&file.0, &bytes[..last]).unwrap();
    let (_, errors, _) = read(&mut parts[0].open());
    let text = errors[0].to_string();
    assert!(text.contains(&format!("byte {last}: record header cut short")), "{text}");
}

/// A valid pcapng file of at least `bytes` bytes, with two interfaces described before all packets.
/// The packets have at most `most` bytes, and some of them hold blocks.
fn blocks(random: &mut Random, big: bool, bytes: usize, most: usize) -> Vec<u8> {
    let mut file = section(big);
    file.extend(interface(big, 1, 0, &[(2, b"eth0")]));
    file.extend(interface(big, 101, 0, &[(9, &[9])]));
    let mut count = 0;
    while file.len() < bytes {
        let mut data = packet(random, most);
        if random.below(4) == 0 {
            let inner = enhanced(big, random.below(3) as u32, count, &data, 60);
            let cut = random.below(inner.len());
            data = [inner.repeat(random.below(3)), inner[..cut].to_vec()].concat();
            data.truncate(most);
        }
        let wire = data.len() as u32;
        file.extend(match random.below(40) {
            0 => other(big, 5, random.below(60)),
            1 => other(big, 0x0bad, random.below(3000)),
            2 => simple(big, &data, wire),
            3 => obsolete(big, 1, count, &data, wire),
            _ => enhanced(big, random.below(2) as u32, count, &data, wire),
        });
        count += 1;
    }
    file
}

#[test]
fn the_parts_of_any_valid_pcapng_equal_the_whole() {
    println!("seed {SEED:#x}");
    let mut random = Random(SEED);
    for (index, most) in [0, 60, 1500, 65_535, 250_000].into_iter().enumerate() {
        let pieces = 2 + index % 3;
        let bytes = blocks(&mut random, index % 2 == 1, pieces * (1 << 20) + 300_000, most);
        check(&format!("{most}.pcapng"), &bytes, pieces);
    }
}

/// The assumptions of the next part are checked, including its interfaces.
#[test]
fn changed_interfaces_are_detected() {
    let mut random = Random(SEED);
    let head = blocks(&mut random, false, 0, 0);
    let behind = head.len();
    let packets = |random: &mut Random, bytes| blocks(random, false, bytes, 1500).split_off(behind);
    let sections = |middle: &[u8], random: &mut Random| {
        [&head, &packets(random, 1 << 20)[..], middle, &packets(random, 2 << 20)].concat()
    };
    let unchanged = sections(&head, &mut random);
    check("again.pcapng", &unchanged, 2);
    let added = sections(&interface(false, 1, 0, &[]), &mut random);
    let other_section = [section(false), interface(false, 1, 0, &[]), interface(false, 1, 0, &[])];
    let changed = sections(&other_section.concat(), &mut random);
    for (name, bytes) in [("added", added), ("changed", changed)] {
        let file = Temporary::new(name, &bytes);
        let parts = cut(&file.0, 2).unwrap();
        let (packets, errors, _) = joined(&parts);
        let [CaptureError::Damaged { damage: damage @ Damage::Redescribed(_), .. }] =
            &errors[0][..]
        else {
            panic!("{name}: {errors:?}")
        };
        let seam = parts[1].bytes().start;
        let text = format!("interfaces change before byte {seam}, where the file was split");
        assert!(damage.to_string().starts_with(&text), "{damage}");
        assert_eq!(packets.len(), walk(&bytes).packets.len(), "the same blocks");
    }
}

/// Packets that hold blocks. The chain of the inner blocks never meets that of the outer ones.
#[test]
fn an_endless_chain_of_inner_blocks_is_not_cut() {
    let head = blocks(&mut Random(SEED), false, 0, 0);
    // The last block within ends behind the four bytes at which the next packet's blocks begin.
    let gap = block(false, 0x0bad, Bytes::new(false).raw(&[0; 48]));
    let outer = enhanced(false, 0, 1, &[], 0).len();
    let fill = enhanced(false, 0, 7, &[1; 64], 64);
    let mut file = head;
    while file.len() < 3 << 20 {
        let data = [fill.repeat(300), gap[..gap.len() - outer].to_vec()].concat();
        file.extend(enhanced(false, 0, 9, &data, data.len() as u32));
    }
    let file_on_disk = Temporary::new("nested.pcapng", &file);
    match cut(&file_on_disk.0, 2) {
        Err(Whole::Ambiguous(_) | Whole::Lost(_)) => {}
        Ok(parts) => {
            let whole = walk(&file).packets;
            let (packets, errors, _) = joined(&parts);
            assert!(packets == whole || !errors[0].is_empty());
        }
        Err(why) => panic!("{why}"),
    }
}
