//! What every capture format does: find its file header, then walk records in a slice of bytes.

use flowgauge_core::packet::Frame;
use flowgauge_engine::source::{Ahead, Burst, Skipped};

use crate::{
    damage::{Damage, Refusal},
    pcap::Pcap,
    pcapng::{self, Pcapng},
};

/// A format, with what its file said so far.
#[derive(Clone, Debug)]
pub(crate) enum Format {
    Pcap(Pcap),
    Pcapng(Pcapng),
}

/// The next packet, and what its record says beside its frame.
pub(crate) struct Packet<'a> {
    pub(crate) frame: Frame<'a>,
    /// Where the next record begins.
    pub(crate) end: usize,
    /// Whether the record contradicts itself.
    pub(crate) irregular: bool,
}

/// Why there is no next packet. Looking again at the same place gives the same reason.
pub(crate) enum Stop {
    /// The bytes end before the record does.
    Need(Need),
    /// The record cannot be understood.
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

/// What is missing to go on.
#[derive(Clone, Copy)]
pub(crate) struct Need {
    /// Bytes that must be there, from where the walk ended.
    pub(crate) bytes: usize,
    /// What the record is cut inside of, if they never come.
    pub(crate) field: &'static str,
    /// Bytes of the same record that were passed over already; 0 between records.
    pub(crate) passed: u64,
    /// Bytes from the begin of the record to the field, and to its end.
    pub(crate) before: u64,
    pub(crate) whole: u64,
}

impl Need {
    /// So many bytes from the begin of a record.
    pub(crate) fn whole(bytes: usize, field: &'static str) -> Self {
        Self::behind(0, bytes, field)
    }

    /// So many bytes of a field that stands behind others of its record.
    pub(crate) fn behind(before: usize, bytes: usize, field: &'static str) -> Self {
        let (bytes, before) = (before + bytes, before as u64);
        Self { bytes, field, passed: 0, before, whole: bytes as u64 }
    }
}

/// What the begin of a file is.
pub(crate) enum Begin {
    /// A format, and the bytes of its file header.
    Found(Format, usize),
    /// Not to be told from fewer than so many bytes.
    Need(usize),
}

impl Format {
    /// Recognises a file by its first bytes.
    pub(crate) fn begin(bytes: &[u8]) -> Result<Begin, Refusal> {
        let Some(&magic) = bytes.first_chunk::<4>() else { return Ok(Begin::Need(4)) };
        if magic == pcapng::SECTION { Pcapng::begin(bytes) } else { Pcap::begin(magic, bytes) }
    }

    /// Whether a whole packet begins at `at`, which moves behind what is none.
    pub(crate) fn seek(&mut self, bytes: &[u8], at: &mut usize) -> Result<(), Stop> {
        match self {
            Self::Pcap(pcap) => pcap.next(bytes, *at).map(|_| ()),
            Self::Pcapng(pcapng) => pcapng.next(bytes, at).map(|_| ()),
        }
    }

    /// Moves `at` behind the whole packets in `bytes`, and adds their frames to `burst` as far as
    /// there is room. Pays one branch per call, so that the loops inside know their format.
    pub(crate) fn walk<'a>(&mut self, bytes: &'a [u8], at: &mut usize, burst: &mut Burst<'a>) {
        match self {
            Self::Pcap(pcap) => pcap.walk(bytes, at, burst),
            Self::Pcapng(pcapng) => pcapng.walk(bytes, at, burst),
        }
    }

    /// Moves `at` behind whole packets in `bytes`, as far as `ahead` goes.
    pub(crate) fn skip(&mut self, bytes: &[u8], at: &mut usize, ahead: &Ahead) -> Skipped {
        match self {
            Self::Pcap(pcap) => pcap.skip(bytes, at, ahead),
            Self::Pcapng(pcapng) => pcapng.skip(bytes, at, ahead),
        }
    }

    /// Whether what comes next is read alike after this as after `other`.
    pub(crate) fn is_as(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Pcap(_), Self::Pcap(_)) => true,
            (Self::Pcapng(own), Self::Pcapng(other)) => own.is_as(other),
            _ => false,
        }
    }

    /// Records so far that contradict themselves without being damaged.
    pub(crate) fn irregular(&self) -> u64 {
        match self {
            Self::Pcap(pcap) => pcap.irregular,
            Self::Pcapng(pcapng) => pcapng.irregular,
        }
    }
}

/// The byte order of the host that wrote a file or a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ByteOrder {
    Little,
    Big,
}

impl ByteOrder {
    /// The two bytes at `at`, which must be there.
    #[inline(always)]
    pub(crate) fn u16(self, bytes: &[u8], at: usize) -> u16 {
        let field = [bytes[at], bytes[at + 1]];
        match self {
            Self::Little => u16::from_le_bytes(field),
            Self::Big => u16::from_be_bytes(field),
        }
    }

    /// The four bytes at `at`, which must be there.
    #[inline(always)]
    pub(crate) fn u32(self, bytes: &[u8], at: usize) -> u32 {
        let field = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        match self {
            Self::Little => u32::from_le_bytes(field),
            Self::Big => u32::from_be_bytes(field),
        }
    }

    /// The eight bytes at `at`, which must be there.
    pub(crate) fn i64(self, bytes: &[u8], at: usize) -> i64 {
        let (first, second) = (self.u32(bytes, at), self.u32(bytes, at + 4));
        let (high, low) = match self {
            Self::Little => (second, first),
            Self::Big => (first, second),
        };
        (i64::from(high) << 32) | i64::from(low)
    }
}
