//! What the walks of both capture formats share: the byte order, a packet of a record, and the
//! reasons to stop.

use flowgauge_core::packet::Frame;

use crate::damage::Damage;

/// The result of reading a file header.
pub(crate) enum Begin<F> {
    /// The format, and the length of its file header in bytes.
    Found(F, usize),
    /// Needs at least this number of bytes.
    Need(usize),
}

impl<F> Begin<F> {
    /// Converts the format.
    pub(crate) fn map<G>(self, convert: impl FnOnce(F) -> G) -> Begin<G> {
        match self {
            Self::Found(format, header) => Begin::Found(convert(format), header),
            Self::Need(bytes) => Begin::Need(bytes),
        }
    }
}

/// A packet and its record.
pub(crate) struct Packet<'a> {
    pub(crate) frame: Frame<'a>,
    /// Where the next record begins.
    pub(crate) end: usize,
    /// Whether the record contradicts itself.
    pub(crate) irregular: bool,
}

/// Why there is no next packet. Looking at the same place again gives the same reason.
pub(crate) enum Stop {
    /// The bytes end before the record does.
    Need(Need),
    /// The record is not valid.
    Damaged(Damage),
}

impl From<Need> for Stop {
    fn from(need: Need) -> Self {
        Self::Need(need)
    }
}

impl From<Damage> for Stop {
    fn from(damage: Damage) -> Self {
        Self::Damaged(damage)
    }
}

/// The bytes that are missing to continue.
#[derive(Clone, Copy)]
pub(crate) struct Need {
    /// Number of bytes needed, from where the walk ended.
    pub(crate) bytes: usize,
    /// The field in which the record is cut short if they are missing.
    pub(crate) field: &'static str,
    /// Bytes of the same record that were skipped already; 0 between records.
    pub(crate) passed: u64,
    /// Bytes from the start of the record to the start of the field.
    pub(crate) before: u64,
    /// Bytes from the start of the record to the end of the field.
    pub(crate) whole: u64,
}

impl Need {
    /// `bytes` bytes from the start of a record.
    pub(crate) fn whole(bytes: usize, field: &'static str) -> Self {
        Self::behind(0, bytes, field)
    }

    /// A field of `bytes` bytes that follows `before` bytes of its record.
    pub(crate) fn behind(before: usize, bytes: usize, field: &'static str) -> Self {
        let (bytes, before) = (before + bytes, before as u64);
        Self { bytes, field, passed: 0, before, whole: bytes as u64 }
    }
}

/// The byte order of the host that wrote a file or a section. Its functions panic if `bytes` is too
/// short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ByteOrder {
    Little,
    Big,
}

impl ByteOrder {
    /// The two bytes at `at`.
    #[inline(always)]
    pub(crate) fn u16(self, bytes: &[u8], at: usize) -> u16 {
        let field = [bytes[at], bytes[at + 1]];
        match self {
            Self::Little => u16::from_le_bytes(field),
            Self::Big => u16::from_be_bytes(field),
        }
    }

    /// The four bytes at `at`.
    #[inline(always)]
    pub(crate) fn u32(self, bytes: &[u8], at: usize) -> u32 {
        let field = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        match self {
            Self::Little => u32::from_le_bytes(field),
            Self::Big => u32::from_be_bytes(field),
        }
    }

    /// The eight bytes at `at`.
    pub(crate) fn i64(self, bytes: &[u8], at: usize) -> i64 {
        let (first, second) = (self.u32(bytes, at), self.u32(bytes, at + 4));
        let (high, low) = match self {
            Self::Little => (second, first),
            Self::Big => (first, second),
        };
        (i64::from(high) << 32) | i64::from(low)
    }
}
