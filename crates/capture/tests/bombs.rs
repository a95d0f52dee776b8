//! Decompression bombs, and files that claim to be larger than they are, are stopped in little
//! memory.
//!
//! This test has its own process, because it measures the memory of the process.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::{
    fs,
    io::{Cursor, Write},
    time::Instant,
};

use flate2::{Compression, write::GzEncoder};
use flowgauge_capture::Captures;
use flowgauge_engine::source::{Burst, Columns, Source};

const MIB: usize = 1 << 20;

/// A line of `/proc/self/status`, in bytes.
fn memory(field: &str) -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.trim_matches([':', ' ', '\t', 'k', 'B']).parse::<usize>().unwrap() << 10
}

/// Reads to the end. Returns packets, messages, and the peak growth of memory.
fn measure(file: Vec<u8>) -> (u64, Vec<String>, usize) {
    // Resets the peak to the current memory.
    fs::write("/proc/self/clear_refs", "5").unwrap();
    let base = memory("VmRSS");
    let mut captures = Captures::from_reader("bomb", Cursor::new(file));
    let (mut packets, mut messages) = (0, Vec::new());
    let mut columns = Columns::default();
    loop {
        let mut burst = Burst::new(&mut columns);
        match captures.poll(&mut burst) {
            Ok(true) => packets += burst.len() as u64,
            Ok(false) => break,
            Err(error) => messages.push(error.to_string()),
        }
    }
    let grown = memory("VmHWM").saturating_sub(base);
    (packets, messages, grown)
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstd(bytes: &[u8], window_log: Option<u32>) -> Vec<u8> {
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    if let Some(log) = window_log {
        encoder.window_log(log).unwrap();
    }
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// `first`, then gigabytes of `more`, compressed member by member.
fn bomb(compress: impl Fn(&[u8]) -> Vec<u8>, first: &[u8], more: &[u8]) -> Vec<u8> {
    let (first, more) = (compress(first), compress(more));
    let mut file = first;
    for _ in 0..2048 * MIB / (8 * MIB) {
        file.extend(&more);
    }
    file
}

#[test]
fn bombs_stop_in_little_memory() {
    let header = b"\xd4\xc3\xb2\xa1\x02\0\x04\0\0\0\0\0\0\0\0\0\0\0\x04\0\x01\0\0\0";
    let section = b"\x0a\x0d\x0d\x0a\x1c\0\0\0\x4d\x3c\x2b\x1a\x01\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\x1c\0\0\0";
    // A skipped block and a section header that both claim to be huge.
    let passed = [&section[..], b"\xad\x0b\0\0\xfc\xff\xff\xff"].concat();
    let held = [&section[..], b"\x0a\x0d\x0d\x0a\0\0\0\x01\x4d\x3c\x2b\x1a"].concat();
    let interface = b"\x01\0\0\0\x14\0\0\0\x01\0\0\0\0\0\0\0\x14\0\0\0".repeat(8 * MIB / 20);
    let zeros = vec![0; 8 * MIB];
    // Incompressible, so that only sizes count.
    let mut state = 1_u64;
    let noise: Vec<u8> = (0..MIB)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        })
        .collect();
    let promise = [&section[..], b"\x06\0\0\0\0\0\0\x01", &noise.repeat(20)].concat();
    // Fills the largest window allowed.
    let wide = [&passed[..], &noise.repeat(80)].concat();

    let plain_zstd = |bytes: &[u8]| zstd(bytes, None);
    let widest = |bytes: &[u8]| zstd(bytes, Some(25));
    let ratio = "expands more than 256 times";
    for (name, file, expected) in [
        ("gzip of empty packets", bomb(gzip, header, &zeros), ratio),
        ("zstd of empty packets", bomb(plain_zstd, header, &zeros), ratio),
        ("zstd of the widest window", widest(&wide), "block cut short"),
        ("gzip of a block passed over", bomb(gzip, &passed, &zeros), ratio),
        ("zstd of a section header", bomb(plain_zstd, &held, &zeros), ratio),
        ("zstd of interfaces", bomb(plain_zstd, section, &interface), "more than 65536 interface"),
        (
            "zstd of a wider window",
            zstd(&[&header[..], &zeros].concat(), Some(27)),
            "needs a window",
        ),
        ("a packet of 16 MiB", promise, "captured length"),
    ] {
        let begin = Instant::now();
        let (packets, messages, grown) = measure(file);
        let seconds = begin.elapsed().as_secs_f64();
        println!("{name}: {packets} packets, {grown} bytes, {seconds:.2} s, {messages:?}");
        assert_eq!(messages.len(), 1, "{name}: {messages:?}");
        assert!(messages[0].contains(expected), "{name}: {messages:?}");
        assert!(grown <= 64 * MIB, "{name}: memory grew by {grown} bytes");
    }

    // A capture that compresses well, but is not a bomb: valid at any size.
    let mut honest = header.to_vec();
    for index in 0..400_000_u32 {
        honest.extend((index / 1000).to_le_bytes());
        honest.extend((index % 1000).to_le_bytes());
        honest.extend(b"\x3c\0\0\0\x3c\0\0\0");
        honest.extend([7; 60]);
    }
    assert!(honest.len() > 28 * MIB);
    for file in [gzip(&honest), zstd(&honest, None)] {
        let (packets, messages, grown) = measure(file);
        assert_eq!((packets, &messages[..]), (400_000, &[][..]));
        assert!(grown <= 64 * MIB);
    }
}
