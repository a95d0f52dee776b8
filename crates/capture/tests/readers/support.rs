//! Hand-made captures, and functions to read them to the end.

use std::{
    fs,
    path::{Path, PathBuf},
};

use flowgauge_capture::{CaptureError, Captures};
use flowgauge_engine::source::{
    Burst, Chunk, Chunks, Columns, Counter, CounterKind, Source, SourceError,
};

/// The compared fields of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    pub(crate) time_ns: i64,
    pub(crate) wire: u32,
    pub(crate) link: u16,
    pub(crate) data: Vec<u8>,
}

/// The result of reading captures: packets, errors, number of irregular records.
pub(crate) fn read(captures: &mut impl Source) -> (Vec<Packet>, Vec<CaptureError>, u64) {
    let (mut packets, mut errors) = (Vec::new(), Vec::new());
    let mut columns = Columns::default();
    loop {
        let mut burst = Burst::new(&mut columns);
        match captures.poll(&mut burst) {
            Ok(true) => {
                assert!(!burst.is_empty());
                packets.extend(burst.frames().iter().map(|frame| Packet {
                    time_ns: frame.time_ns,
                    wire: frame.wire,
                    link: frame.link.0,
                    data: frame.bytes.to_vec(),
                }));
            }
            Ok(false) => break,
            Err(SourceError::Damaged(error) | SourceError::Unreadable(error)) => {
                errors.push(*error.downcast().unwrap());
            }
            Err(error) => panic!("{error}"),
        }
    }
    let mut end = Burst::new(&mut columns);
    assert!(!captures.poll(&mut end).unwrap() && end.is_empty(), "the end stays the end");
    drop(end);
    let sum = |kind| Counter::sum(captures.counters(), kind);
    assert_eq!(sum(CounterKind::Other), packets.len() as u64, "what was lent out is counted");
    (packets, errors, sum(CounterKind::Irregular))
}

/// Captures that are read in chunks. Returns the packets one burst at a time.
pub(crate) struct InChunks {
    captures: Captures,
    chunk: Chunk,
    at: usize,
}

impl From<Captures> for InChunks {
    fn from(captures: Captures) -> Self {
        Self { captures, chunk: Chunk::default(), at: 0 }
    }
}

impl Source for InChunks {
    fn poll<'a>(&'a mut self, burst: &mut Burst<'a>) -> Result<bool, SourceError> {
        let Self { captures, chunk, at } = self;
        if *at == chunk.len() {
            *at = 0;
            if !captures.read(chunk)? {
                assert!(chunk.is_empty());
                return Ok(false);
            }
        }
        burst.extend(chunk.frames().skip(*at).take(burst.room()));
        *at += burst.len();
        Ok(true)
    }

    fn counters(&self) -> &[Counter] {
        self.captures.counters()
    }
}

/// A random generator with the same numbers on every machine (splitmix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % bound as u64) as usize
    }
}

/// Writes numbers in either byte order.
#[derive(Clone, Default)]
pub(crate) struct Bytes {
    pub(crate) bytes: Vec<u8>,
    pub(crate) big: bool,
}

impl Bytes {
    pub(crate) fn new(big: bool) -> Self {
        Self { bytes: Vec::new(), big }
    }

    pub(crate) fn u16(mut self, value: u16) -> Self {
        self.bytes.extend(if self.big { value.to_be_bytes() } else { value.to_le_bytes() });
        self
    }

    pub(crate) fn u32(mut self, value: u32) -> Self {
        self.bytes.extend(if self.big { value.to_be_bytes() } else { value.to_le_bytes() });
        self
    }

    pub(crate) fn u64(mut self, value: u64) -> Self {
        self.bytes.extend(if self.big { value.to_be_bytes() } else { value.to_le_bytes() });
        self
    }

    pub(crate) fn raw(mut self, bytes: &[u8]) -> Self {
        self.bytes.extend(bytes);
        self
    }

    /// Zeros up to a multiple of four bytes.
    pub(crate) fn pad(mut self) -> Self {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
        self
    }
}

/// Some packet bytes.
pub(crate) fn payload(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i * 7 + length) as u8).collect()
}

/// A classic pcap file with the packets of `lengths`; `magic` and `version` as in its header.
pub(crate) fn pcap(big: bool, magic: u32, version: (u16, u16), lengths: &[usize]) -> Vec<u8> {
    let mut file = Bytes::new(big).u32(magic).u16(version.0).u16(version.1);
    file = file.u32(0).u32(0).u32(65_535).u32(1);
    for (index, &length) in lengths.iter().enumerate() {
        let (captured, wire) = (length as u32, length as u32 + 3);
        file = file.u32(1_600_000_000 + index as u32).u32(index as u32);
        file = if version < (2, 3) || version == (543, 0) {
            file.u32(wire).u32(captured)
        } else {
            file.u32(captured).u32(wire)
        };
        if magic == 0xa1b2_cd34 {
            file = file.raw(&[9; 8]);
        }
        file = file.raw(&payload(length));
    }
    file.bytes
}

/// One pcapng block around `body`.
pub(crate) fn block(big: bool, kind: u32, body: Bytes) -> Vec<u8> {
    let body = body.pad().bytes;
    let length = body.len() as u32 + 12;
    Bytes::new(big).u32(kind).u32(length).raw(&body).u32(length).bytes
}

pub(crate) fn section(big: bool) -> Vec<u8> {
    let body = Bytes::new(big).u32(0x1a2b_3c4d).u16(1).u16(0).u64(u64::MAX);
    block(big, 0x0a0d_0d0a, body.u16(2).u16(3).raw(b"box"))
}

/// An interface; `options` are codes with their values.
pub(crate) fn interface(big: bool, link: u16, snap: u32, options: &[(u16, &[u8])]) -> Vec<u8> {
    let mut body = Bytes::new(big).u16(link).u16(0).u32(snap);
    for (code, value) in options {
        body = body.u16(*code).u16(value.len() as u16).raw(value).pad();
    }
    if !options.is_empty() {
        body = body.u32(0);
    }
    block(big, 1, body)
}

pub(crate) fn enhanced(big: bool, interface: u32, ticks: u64, data: &[u8], wire: u32) -> Vec<u8> {
    let body = Bytes::new(big).u32(interface).u32((ticks >> 32) as u32).u32(ticks as u32);
    let body = body.u32(data.len() as u32).u32(wire).raw(data).pad();
    block(big, 6, body.u16(1).u16(2).raw(b"ok").pad().u32(0))
}

pub(crate) fn obsolete(big: bool, interface: u16, ticks: u64, data: &[u8], wire: u32) -> Vec<u8> {
    let body = Bytes::new(big).u16(interface).u16(7).u32((ticks >> 32) as u32).u32(ticks as u32);
    block(big, 2, body.u32(data.len() as u32).u32(wire).raw(data))
}

pub(crate) fn simple(big: bool, data: &[u8], wire: u32) -> Vec<u8> {
    block(big, 3, Bytes::new(big).u32(wire).raw(data))
}

/// A block of statistics, names and the like, which is skipped.
pub(crate) fn other(big: bool, kind: u32, bytes: usize) -> Vec<u8> {
    block(big, kind, Bytes::new(big).raw(&payload(bytes)))
}

/// A pcapng file with every block type, in two sections with different byte orders.
pub(crate) fn pcapng(big: bool) -> Vec<u8> {
    let mut file = Vec::new();
    for big in [big, !big] {
        file.extend(section(big));
        file.extend(interface(big, 1, 65_535, &[(2, b"eth0")]));
        file.extend(enhanced(big, 0, 1_600_000_000_000_000, &payload(60), 64));
        file.extend(other(big, 0x4567, 20));
        file.extend(interface(big, 101, 32, &[(9, &[9]), (14, &3_i64.to_le_bytes())]));
        file.extend(enhanced(big, 1, 1_600_000_000_000_000_000, &payload(33), 40));
        file.extend(obsolete(big, 0, 7, &payload(14), 14));
        file.extend(simple(big, &payload(21), 21));
        file.extend(other(big, 0x0bad, 3));
        file.extend(enhanced(big, 0, 8, &[], 0));
        file.extend(other(big, 5, 12));
    }
    file
}

/// Small valid captures of every kind: name and bytes.
pub(crate) fn sound() -> Vec<(String, Vec<u8>)> {
    let lengths = [60, 0, 1, 14, 33, 64];
    let mut captures = Vec::new();
    for big in [false, true] {
        let end = if big { "big" } else { "little" };
        for (magic, version) in [
            (0xa1b2_c3d4, (2, 4)),
            (0xa1b2_3c4d, (2, 4)),
            (0xa1b2_cd34, (2, 4)),
            (0xa1b2_c3d4, (2, 3)),
            (0xa1b2_c3d4, (2, 2)),
            (0xa1b2_c3d4, (543, 0)),
        ] {
            let name = format!("{end}-{magic:x}-{}.{}", version.0, version.1);
            captures.push((name, pcap(big, magic, version, &lengths)));
        }
        captures.push((format!("{end}-pcapng"), pcapng(big)));
    }
    captures
}

/// Small real captures; see `data/README.md`.
pub(crate) fn real() -> Vec<(String, Vec<u8>)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data");
    let entries = |folder: &Path| -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect()
    };
    let folders = entries(Path::new(folder)).into_iter().filter(|path| path.is_dir());
    let mut captures: Vec<_> = folders
        .flat_map(|folder| entries(&folder))
        .filter(|path| path.extension().is_some_and(|end| end == "pcap" || end == "pcapng"))
        .map(|path| (path.file_name().unwrap().display().to_string(), fs::read(&path).unwrap()))
        .collect();
    captures.sort();
    assert!(captures.len() > 20);
    captures
}
