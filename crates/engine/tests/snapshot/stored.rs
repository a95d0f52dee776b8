//! A second reader of the stored form: what `docs/snapshot.md` says, and no more.

use std::ops::Range;

/// Fields of a snapshot by their offset.
struct Fields<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Fields<'a> {
    /// Behind magic and version.
    fn new(bytes: &'a [u8]) -> Self {
        assert_eq!((&bytes[..4], &bytes[4..6]), (&b"FGSS"[..], &[3, 0][..]));
        Self { bytes, at: 6 }
    }

    fn skip(&mut self, count: usize) -> &'a [u8] {
        self.at += count;
        &self.bytes[self.at - count..self.at]
    }

    fn number(&mut self) -> u64 {
        u64::from_le_bytes(self.skip(8).try_into().unwrap())
    }

    fn text(&mut self) -> &'a [u8] {
        let length = self.number() as usize;
        self.skip(length)
    }

    /// From the name to the length of an epoch.
    fn skip_identity(&mut self) {
        let (_name, _key) = (self.text(), self.text());
        let _flags = self.skip(2);
        let _filter = self.text();
        let _epoch = self.skip(9);
    }
}

/// The bytes with a checksum that fits them.
pub(crate) fn mended(mut bytes: Vec<u8>) -> Vec<u8> {
    let end = bytes.len() - 4;
    let checksum = crc32(&bytes[..end]);
    bytes[end..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// The snapshot of one epoch as run `run` on `host` would have stored it.
pub(crate) fn measured_by(bytes: &[u8], host: &str, run: u64) -> Vec<u8> {
    let mut fields = Fields::new(bytes);
    fields.skip_identity();
    assert_eq!(fields.number(), 1, "epochs");
    let start = fields.at;
    let (_host, _run) = (fields.text(), fields.number());
    let mut other = bytes[..start].to_vec();
    other.extend((host.len() as u64).to_le_bytes());
    other.extend(host.as_bytes());
    other.extend(run.to_le_bytes());
    other.extend(&bytes[fields.at..]);
    mended(other)
}

/// Where the lanes stand.
pub(crate) fn lanes(bytes: &[u8]) -> Vec<Range<usize>> {
    let mut fields = Fields::new(bytes);
    fields.skip_identity();
    for _epoch in 0..fields.number() {
        let (_host, _numbers) = (fields.text(), fields.skip(32));
    }
    for _count in 0..fields.skip(1)[0] {
        let (_name, _value) = (fields.text(), fields.number());
    }
    let _times = fields.skip(16);
    let lanes = fields.skip(1)[0];
    let lane = |_| {
        let length = fields.text().len();
        fields.at - length..fields.at
    };
    let lanes = (0..lanes).map(lane).collect();
    assert_eq!(fields.at, bytes.len() - 4, "the checksum is the last field");
    lanes
}

/// The bytes with a checksum that fits them, and one that fits each lane.
pub(crate) fn mended_whole(mut bytes: Vec<u8>, lanes: &[Range<usize>]) -> Vec<u8> {
    for lane in lanes {
        let whole = mended(bytes[lane.clone()].to_vec());
        bytes[lane.clone()].copy_from_slice(&whole);
    }
    mended(bytes)
}

/// The CRC-32 of Ethernet and zip.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc: u32, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg())
        })
    })
}
