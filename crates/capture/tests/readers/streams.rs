//! Streams: inputs that arrive in pieces or compressed, several files, and skipped packets.

use std::io::{self, Read, Write};
use std::iter::repeat_n;
use std::path::PathBuf;
use std::{fs, thread};

use flate2::Compression;
use flate2::write::GzEncoder;
use flowgauge_capture::{CaptureError, Captures, Damage, Refusal};
use flowgauge_core::batch::BATCH_PACKETS;
use flowgauge_core::packet::{Frame, LinkType};
use flowgauge_engine::source::{Ahead, Burst, Columns, Counter, CounterKind, Source};

use crate::naive::walk;
use crate::support::{
    InChunks, Random, enhanced, interface, other, pcap, pcapng, read, real, section, sound,
};

/// Returns at most `most` bytes at a time, with interruptions in between.
struct Piecemeal {
    bytes: io::Cursor<Vec<u8>>,
    most: usize,
    interrupted: bool,
}

impl Read for Piecemeal {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.interrupted = !self.interrupted;
        if self.interrupted {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let most = self.most.min(buffer.len());
        self.bytes.read(&mut buffer[..most])
    }
}

fn piecemeal(bytes: &[u8], most: usize) -> Captures {
    let bytes = io::Cursor::new(bytes.to_vec());
    Captures::from_reader("x", Piecemeal { bytes, most, interrupted: false })
}

#[test]
fn pieces_of_any_size_give_the_same_packets() {
    for (name, file) in sound() {
        let cut = file[..file.len() - 3].to_vec();
        for bytes in [&file, &cut, &gzip(&file), &zstd(&file), &gzip(&cut)] {
            let (packets, errors, irregular) = read(&mut Captures::from_bytes("x", bytes.clone()));
            let texts: Vec<_> = errors.iter().map(ToString::to_string).collect();
            for most in 1..=64 {
                let (others, errors, irregulars) = read(&mut piecemeal(bytes, most));
                assert_eq!(others, packets, "{name} by {most}");
                assert_eq!(irregulars, irregular, "{name} by {most}");
                let others: Vec<_> = errors.iter().map(ToString::to_string).collect();
                assert_eq!(others, texts, "{name} by {most}");
                let (others, ..) = read(&mut InChunks::from(piecemeal(bytes, most)));
                assert_eq!(others, packets, "{name} in chunks by {most}");
            }
        }
    }
}

#[test]
fn records_that_straddle_the_buffer_are_whole() {
    let lengths: Vec<usize> = (0..3000).map(|i| i * 37 % 1500).collect();
    let file = pcap(true, 0xa1b2_3c4d, (2, 4), &lengths);
    assert!(file.len() > 4 * (256 << 10), "several buffers");
    let expected = crate::naive::walk(&file).packets;
    let (packets, errors, _) = read(&mut Captures::from_bytes("x", file.clone()));
    assert!(errors.is_empty());
    assert_eq!(packets, expected);
    let (packets, errors, _) = read(&mut InChunks::from(piecemeal(&file, 4099)));
    assert!(errors.is_empty());
    assert_eq!(packets, expected);
}

#[test]
fn blocks_larger_than_the_buffer_are_skipped_or_kept() {
    // Its second section is little-endian.
    let mut file = pcapng(true);
    file.extend(other(false, 0x0bad, 3 << 20));
    let large = vec![5; 262_144];
    file.extend(enhanced(false, 0, 9, &large, 262_144));
    // Many comments of 16 KiB after the packet.
    let mut options = interface(false, 1, 0, &[(1, &[b'c'; 16_384][..]); 40]);
    let whole = options.len();
    file.append(&mut options);
    assert!(whole > 2 * (256 << 10));
    file.extend(enhanced(false, 2, 9, b"x", 1));
    let (expected, sound) = (crate::naive::walk(&file), file.len());
    let (packets, errors, irregular) = read(&mut Captures::from_bytes("x", file.clone()));
    assert!(errors.is_empty(), "{errors:?}");
    assert_eq!(packets, expected.packets);
    assert_eq!(irregular, expected.irregular);
    let (packets, ..) = read(&mut piecemeal(&file, 4099));
    assert_eq!(packets, expected.packets);
    let (packets, errors, irregular) = read(&mut InChunks::from(piecemeal(&file, 4099)));
    assert!(errors.is_empty(), "{errors:?}");
    assert_eq!((packets, irregular), (expected.packets.clone(), expected.irregular));

    // Cut inside a skipped block whose start has left the buffer.
    file.extend(other(false, 0x0bad, 3 << 20));
    file.truncate(sound + (2 << 20));
    let begin =
        format!("x: byte {sound}: block cut short: the file ends after 2097152 of 3145740 ");
    let whole = || Captures::from_bytes("x", file.clone());
    for (packets, errors, _) in [read(&mut whole()), read(&mut InChunks::from(whole()))] {
        assert_eq!(packets.len(), expected.packets.len());
        assert!(errors[0].to_string().starts_with(&begin), "{}", errors[0]);
    }
}

#[test]
fn a_pipe_is_read_as_it_is_written() {
    let (reader, mut writer) = io::pipe().unwrap();
    let file = pcapng(true);
    let expected = crate::naive::walk(&file).packets;
    let writing = thread::spawn(move || {
        for piece in gzip(&file).chunks(100) {
            writer.write_all(piece).unwrap();
        }
    });
    let mut captures = Captures::from_reader("pipe", reader);
    assert_eq!(captures.progress().total, None);
    let (packets, errors, _) = read(&mut captures);
    writing.join().unwrap();
    assert!(errors.is_empty());
    assert_eq!(packets, expected);
}

/// Valid bytes, then an error.
struct Failing(io::Cursor<Vec<u8>>);

impl Read for Failing {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.0.read(buffer)? {
            0 => Err(io::Error::other("the disk is gone")),
            read => Ok(read),
        }
    }
}

#[test]
fn bytes_before_a_read_error_are_kept() {
    let file = pcap(false, 0xa1b2_c3d4, (2, 4), &[60, 60]);
    let failing = Failing(io::Cursor::new(file[..130].to_vec()));
    let (packets, errors, _) = read(&mut Captures::from_reader("x", failing));
    assert_eq!(packets.len(), 1);
    assert!(
        matches!(&errors[..], [CaptureError::Damaged { offset: 100, damage: Damage::Read(_), .. }]),
        "{errors:?}"
    );
    // Without the first byte of a header, it is not a capture.
    let failing = Failing(io::Cursor::new(section(false)[..3].to_vec()));
    let (_, errors, _) = read(&mut Captures::from_reader("x", failing));
    assert!(matches!(&errors[..], [CaptureError::Unreadable { .. }]), "{errors:?}");
}

/// An empty folder for one test.
fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    drop(fs::remove_dir_all(&folder));
    fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
fn each_file_is_read_to_its_end_or_to_damage() {
    let folder = folder("each");
    let plain = pcap(false, 0xa1b2_c3d4, (2, 4), &[60, 61, 62]);
    let files = [
        ("a.pcap", plain.clone()),
        ("cut.pcap", plain[..plain.len() - 1].to_vec()),
        ("empty.pcap", Vec::new()),
        ("b.gz", gzip(&pcapng(true))),
        ("text", b"no capture".to_vec()),
        ("c.zst", zstd(&plain)),
    ];
    let mut paths = Vec::new();
    for (name, bytes) in &files {
        paths.push(folder.join(name));
        fs::write(paths.last().unwrap(), bytes).unwrap();
    }
    paths.push(folder.join("absent"));
    paths.push(folder.clone());
    paths.push(folder.join("a.pcap"));

    let mut captures = Captures::open(&paths);
    let total: usize = files.iter().map(|(_, bytes)| bytes.len()).sum::<usize>() + plain.len();
    assert_eq!(captures.progress().total, Some(total as u64));
    assert_eq!(captures.progress().read, 0);
    let (packets, errors, irregular) = read(&mut captures);
    assert_eq!(captures.progress().read, total as u64);
    assert_eq!(
        captures.inputs(),
        paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>()
    );
    let alone = paths.iter().map(|path| read(&mut Captures::open([path])));
    let (alone, each): (Vec<_>, Vec<_>) =
        alone.map(|(packets, ..)| (packets.len(), packets)).unzip();
    assert_eq!(alone, [3, 2, 0, 10, 0, 3, 0, 0, 3]);
    assert_eq!(packets, each.concat());
    assert_eq!(irregular, 2);

    assert!(matches!(&errors[0], CaptureError::Damaged { .. }), "{errors:?}");
    let refusals: Vec<&Refusal> = errors[1..]
        .iter()
        .map(|error| match error {
            CaptureError::Unreadable { refusal, .. } => refusal,
            CaptureError::Damaged { .. } => panic!("{error}"),
        })
        .collect();
    assert!(
        matches!(
            refusals[..],
            [Refusal::Empty, Refusal::NotCapture(_), Refusal::Open(_), Refusal::Directory]
        ),
        "{refusals:?}"
    );
    let absent = errors[3].to_string();
    assert!(absent.contains("absent: cannot be read: No such file"), "{absent}");
    assert!(errors.iter().all(|error| !error.to_string().contains('\n')));
}

#[test]
fn file_names_are_escaped_in_messages() {
    let name = "a\nb\u{1b}[31m\u{202e}'\"\\é";
    let captures = &mut Captures::open([name]);
    let (_, errors, _) = read(captures);
    let text = errors[0].to_string();
    assert!(text.starts_with("a\\nb\\u{1b}[31m\\u{202e}'\"\\é: cannot be read"), "{text}");
    assert_eq!(captures.inputs(), [name]);
}

#[test]
fn without_files_the_stream_ends_at_once() {
    let mut captures = Captures::open([""; 0]);
    assert_eq!(captures.progress().total, Some(0));
    assert_eq!(read(&mut captures).0, []);
}

const FILLER: Frame<'_> = Frame { bytes: &[], wire: 0, link: LinkType::ETHERNET, time_ns: 0 };

/// Reads a capture with skips of random lengths and times, and returns the number of packets
/// skipped.
fn skipping(name: &str, bytes: &[u8], random: &mut Random) -> usize {
    let (packets, _, irregular) = read(&mut Captures::from_bytes(name, bytes.to_vec()));
    let mut captures = Captures::from_bytes(name, bytes.to_vec());
    let (mut at, mut passed, mut fillers) = (0, 0, 0);
    let mut columns = Columns::default();
    loop {
        let until_ns = match packets.get(at + random.below(8)) {
            Some(packet) if random.below(2) == 0 => packet.time_ns,
            _ => i64::MAX,
        };
        let ahead = Ahead { packets: random.below(6) as u64, from_ns: i64::MIN, until_ns };
        let skipped = captures.skip(&ahead);
        let over = &packets[at..at + skipped.packets as usize];
        let bytes: u64 = over.iter().map(|packet| u64::from(packet.wire)).sum();
        assert_eq!(skipped.bytes, bytes, "{name}");
        assert_eq!(skipped.last_ns, over.last().map_or(i64::MIN, |last| last.time_ns), "{name}");
        assert!(over.is_sorted_by_key(|packet| packet.time_ns), "{name}");
        assert!(over.len() as u64 <= ahead.packets && skipped.last_ns <= until_ns, "{name}");
        (at, passed) = (at + over.len(), passed + over.len());
        // An almost full burst gets few packets.
        let filled = BATCH_PACKETS - 1 - random.below(3);
        let mut burst = Burst::new(&mut columns);
        burst.extend(repeat_n(FILLER, filled));
        match captures.poll(&mut burst) {
            Ok(true) => {}
            Ok(false) => break,
            Err(_) => continue,
        }
        let lent = burst.frames().part(filled..burst.len());
        for (frame, packet) in lent.iter().zip(&packets[at..]) {
            assert_eq!((frame.time_ns, frame.bytes), (packet.time_ns, &packet.data[..]), "{name}");
        }
        (at, fillers) = (at + lent.len(), fillers + filled);
    }
    assert_eq!(at, packets.len(), "{name}");
    let sum = |kind| Counter::sum(captures.counters(), kind);
    assert_eq!(sum(CounterKind::Other), (at + fillers) as u64, "{name}");
    assert_eq!(sum(CounterKind::Irregular), irregular, "{name}");
    passed
}

#[test]
fn skipping_packets_does_not_change_the_others() {
    println!("seed 7");
    let mut random = Random(7);
    let mut passed = 0;
    for (name, bytes) in sound().into_iter().chain(real()) {
        for _ in 0..20 {
            passed += skipping(&name, &bytes, &mut random);
        }
    }
    assert!(passed > 100, "{passed}");
}

// gzip and zstd, recognized by their bytes.

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub(crate) fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 3).unwrap()
}

/// A capture that hardly compresses.
fn large() -> Vec<u8> {
    let mut random = Random(5);
    let lengths: Vec<usize> = (0..2000).map(|_| random.below(1400)).collect();
    let mut file = pcap(false, 0xa1b2_c3d4, (2, 4), &lengths);
    for edge in walk(&file).edges.windows(2) {
        file[edge[0] + 16..edge[1]].fill_with(|| random.below(256) as u8);
    }
    file
}

#[test]
fn one_member_and_several_members_are_decompressed() {
    for file in [large(), pcapng(true)] {
        let expected = walk(&file).packets;
        let middle = file.len() / 3;
        // A skippable frame; parallel compressors begin with one.
        let mut skipped = b"\x50\x2a\x4d\x18\x04\0\0\0skip".to_vec();
        skipped.extend(zstd(&file));
        for compressed in [
            gzip(&file),
            zstd(&file),
            [gzip(&file[..middle]), gzip(&[]), gzip(&file[middle..])].concat(),
            // Filled up with zeros, as on tapes.
            [gzip(&file[..middle]), vec![0; 9], gzip(&file[middle..]), vec![0; 100_000]].concat(),
            [zstd(&file[..middle]), zstd(&[]), zstd(&file[middle..])].concat(),
            skipped,
        ] {
            let bytes = compressed.len() as u64;
            let mut captures = Captures::from_bytes("no name that says so", compressed);
            let (packets, errors, _) = read(&mut captures);
            assert!(errors.is_empty(), "{errors:?}");
            assert_eq!(packets, expected);
            assert_eq!(captures.progress().read, bytes, "progress counts what stands in the file");
        }
    }
}

#[test]
fn a_truncated_stream_is_read_up_to_its_end() {
    let file = large();
    let walked = walk(&file);
    for (name, compressed) in [("gzip", gzip(&file)), ("zstd", zstd(&file))] {
        let mut random = Random(6);
        let mut most = 0;
        for _ in 0..60 {
            let cut = 5 + random.below(compressed.len() - 5);
            let captures = || Captures::from_bytes("x.gz", compressed[..cut].to_vec());
            let (packets, errors, _) = read(&mut captures());
            let (others, other_errors, _) = read(&mut InChunks::from(captures()));
            assert!(others == packets, "{name} cut at {cut}, in chunks");
            assert_eq!(other_errors[0].to_string(), errors[0].to_string());
            most = most.max(packets.len());
            assert_eq!(packets, walked.packets[..packets.len()], "{name} cut at {cut}");
            let [CaptureError::Damaged { offset, decompressed: true, damage, .. }] = &errors[..]
            else {
                panic!("{name} cut at {cut}: {errors:?}")
            };
            assert!(matches!(damage, Damage::Compressed(_)), "{damage:?}");
            let edge = if *offset == 0 { 0 } else { walked.edges[packets.len()] as u64 };
            assert_eq!(*offset, edge, "{name} cut at {cut}");
            let text = errors[0].to_string();
            let expected = format!(
                "x.gz: byte {offset} of the decompressed data: compressed data is cut short; "
            );
            assert!(text.starts_with(&expected), "{text}");
        }
        assert!(most > 1500, "{name}: most packets of a capture cut near its end are read: {most}");
    }
}

#[test]
fn damage_is_reported() {
    let file = large();
    let packets_of = walk(&file).packets;
    for (name, compressed) in [("gzip", gzip(&file)), ("zstd", zstd(&file))] {
        let mut random = Random(7);
        let mut caught = 0;
        for _ in 0..100 {
            let mut mutant = compressed.clone();
            let at = 20 + random.below(mutant.len() - 20);
            mutant[at] ^= 1 << random.below(8);
            let (packets, errors, _) = read(&mut Captures::from_bytes("x", mutant));
            assert!(packets.len() <= packets_of.len());
            caught += usize::from(matches!(&errors[..], [CaptureError::Damaged { .. }]));
        }
        // gzip has a checksum. These zstd streams have none, so flipped literals are not detected.
        assert!(name == "zstd" || caught == 100, "{name}: {caught} of 100");
    }
}

/// Blocks that are either read completely or lost: stored gzip blocks, with headers at known
/// places, and frames of zstd, one for each part of the capture.
#[test]
fn data_before_the_damage_is_kept() {
    const STORED: usize = 32 << 10;
    let file = large();
    let (mut gzip, mut zstd) = (vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255], Vec::new());
    let parts = file.chunks(STORED).count();
    let broken = parts / 2;
    for (number, part) in file.chunks(STORED).enumerate() {
        // The block type 3 does not exist.
        gzip.push(if number == broken { 0b110 } else { 0 });
        gzip.extend((part.len() as u16).to_le_bytes());
        gzip.extend((!(part.len() as u16)).to_le_bytes());
        gzip.extend(part);
        let start = zstd.len();
        zstd.extend(self::zstd(part));
        if number == broken {
            zstd[start] ^= 1;
        }
    }
    let kept = walk(&file[..broken * STORED]).packets;
    assert!(broken > 10 && kept.len() > 400);
    for (name, compressed) in [("gzip", gzip), ("zstd", zstd)] {
        let (packets, errors, _) = read(&mut Captures::from_bytes("x", compressed));
        assert_eq!(packets.len(), kept.len(), "{name}: {errors:?}");
        assert!(matches!(&errors[..], [CaptureError::Damaged { .. }]), "{name}: {errors:?}");
    }
}

#[test]
fn offsets_of_inner_damage_count_decompressed_bytes() {
    let file = pcap(false, 0xa1b2_c3d4, (2, 4), &[60, 60]);
    let (packets, errors, _) = read(&mut Captures::from_bytes("x", gzip(&file[..170])));
    assert_eq!(packets.len(), 1);
    let expected = "x: byte 100 of the decompressed data: packet cut short: ";
    assert!(errors[0].to_string().starts_with(expected), "{}", errors[0]);
}

#[test]
fn compressed_empty_input_is_not_a_capture() {
    for compressed in [gzip(&[]), zstd(&[]), gzip(b"text"), gzip(&gzip(&large()))] {
        let (packets, errors, _) = read(&mut Captures::from_bytes("x", compressed));
        assert!(packets.is_empty());
        assert!(matches!(&errors[..], [CaptureError::Unreadable { .. }]), "{errors:?}");
    }
}
