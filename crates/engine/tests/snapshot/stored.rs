//! A second reader of the stored form, made from `docs/snapshot.md` alone.

use std::ops::Range;

/// Fields of a snapshot by their offset; `None` where the bytes end.
struct Fields<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Fields<'a> {
    /// Behind magic and version.
    fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 6 }
    }

    fn skip(&mut self, count: usize) -> Option<&'a [u8]> {
        let taken = self.bytes.get(self.at..self.at.checked_add(count)?)?;
        self.at += count;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.skip(1).map(|bytes| bytes[0])
    }

    fn number(&mut self) -> Option<u64> {
        self.skip(8).map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap()))
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let length = self.number()?;
        self.skip(usize::try_from(length).ok()?)
    }

    /// From the name to the length of an epoch.
    fn skip_identity(&mut self) -> Option<()> {
        let (_name, _key) = (self.text()?, self.text()?);
        let _flags = self.skip(2)?;
        let _filter = self.text()?;
        let has_threshold = self.bytes.get(4..6) == Some(&[7, 0]);
        let _threshold = self.skip(if has_threshold { 9 } else { 0 })?;
        let _epoch = self.skip(9)?;
        Some(())
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
    assert_eq!((&bytes[..4], &bytes[4..6]), (&b"FGSS"[..], &[7, 0][..]));
    let mut fields = Fields::new(bytes);
    fields.skip_identity().unwrap();
    assert_eq!(fields.number(), Some(1), "epochs");
    let start = fields.at;
    let (_host, _run) = (fields.text().unwrap(), fields.number().unwrap());
    let mut other = bytes[..start].to_vec();
    other.extend((host.len() as u64).to_le_bytes());
    other.extend(host.as_bytes());
    other.extend(run.to_le_bytes());
    other.extend(&bytes[fields.at..]);
    mended(other)
}

/// Where the lanes and their audits stand; `None` where the bytes end before.
pub(crate) fn lanes(bytes: &[u8]) -> Option<Vec<Range<usize>>> {
    let mut fields = Fields::new(bytes);
    fields.skip_identity()?;
    let numbers = if bytes.get(4..6) == Some(&[4, 0]) { 4 } else { 6 };
    for _epoch in 0..fields.number()? {
        let (_host, _numbers) = (fields.text()?, fields.skip(8 * numbers)?);
    }
    for _count in 0..fields.byte()? {
        let (_name, _value) = (fields.text()?, fields.number()?);
    }
    if fields.byte()? == 1 {
        let _sampled = fields.skip(24)?;
    }
    let _times = fields.skip(16)?;
    let mut lanes = Vec::new();
    for _lane in 0..fields.byte()? {
        let length = fields.text()?.len();
        lanes.push(fields.at - length..fields.at);
    }
    let has_audits = matches!(bytes.get(4..6), Some([6 | 7, 0]));
    let audited = has_audits && fields.skip(4)? != [0; 4];
    for _audit in 0..if audited { lanes.len() } else { 0 } {
        let length = fields.text()?.len();
        lanes.push(fields.at - length..fields.at);
    }
    Some(lanes)
}

/// The bytes with a checksum that fits them, and one that fits each lane.
pub(crate) fn mended_whole(mut bytes: Vec<u8>, lanes: &[Range<usize>]) -> Vec<u8> {
    for lane in lanes.iter().filter(|lane| lane.len() >= 4) {
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
