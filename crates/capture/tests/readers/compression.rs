//! gzip and zstd, recognized by their bytes.

use std::io::Write;

use flate2::{Compression, write::GzEncoder};
use flowgauge_capture::{CaptureError, Captures, Damage};
use flowgauge_engine::source::Source;

use crate::{
    naive::walk,
    support::{InChunks, Random, pcap, pcapng, read},
};

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
