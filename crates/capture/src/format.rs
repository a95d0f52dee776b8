//! The interface of both capture formats: recognize the file header, then walk records in a slice.

use flowgauge_core::packet::Frame;
use flowgauge_engine::source::{Ahead, Burst, Skipped};

use crate::{
    damage::{Damage, Refusal},
    pcap::Pcap,
    pcapng::{self, Pcapng},
};

/// A capture format with the state of its file so far.
#[derive(Clone, Debug)]
pub(crate) enum Format {
    Pcap(Pcap),
    Pcapng(Pcapng),
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

/// The result of reading a file header.
pub(crate) enum Begin {
    /// The format, and the length of its file header in bytes.
    Found(Format, usize),
    /// Needs at least this number of bytes.
    Need(usize),
}

impl Format {
    /// Recognizes a file by its first bytes.
    pub(crate) fn begin(bytes: &[u8]) -> Result<Begin, Refusal> {
        let Some(&magic) = bytes.first_chunk::<4>() else { return Ok(Begin::Need(4)) };
        if magic == pcapng::SECTION { Pcapng::begin(bytes) } else { Pcap::begin(magic, bytes) }
    }

    /// Moves `at` to the next whole packet, past records without a packet.
    pub(crate) fn seek(&mut self, bytes: &[u8], at: &mut usize) -> Result<(), Stop> {
        match self {
            Self::Pcap(pcap) => pcap.next(bytes, *at).map(|_| ()),
            Self::Pcapng(pcapng) => pcapng.next(bytes, at).map(|_| ()),
        }
    }

    /// Adds the whole packets in `bytes` to `burst` while it has room, and moves `at` past them.
    /// Costs one branch per call; the loops inside are compiled per format.
    pub(crate) fn walk<'a>(&mut self, bytes: &'a [u8], at: &mut usize, burst: &mut Burst<'a>) {
        match self {
            Self::Pcap(pcap) => pcap.walk(bytes, at, burst),
            Self::Pcapng(pcapng) => pcapng.walk(bytes, at, burst),
        }
    }

    /// Moves `at` past whole packets in `bytes`, as far as `ahead` allows.
    pub(crate) fn skip(&mut self, bytes: &[u8], at: &mut usize, ahead: &Ahead) -> Skipped {
        match self {
            Self::Pcap(pcap) => pcap.skip(bytes, at, ahead),
            Self::Pcapng(pcapng) => pcapng.skip(bytes, at, ahead),
        }
    }

    /// Whether the following records are read the same way in this state as in `other`.
    pub(crate) fn is_as(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Pcap(_), Self::Pcap(_)) => true,
            (Self::Pcapng(own), Self::Pcapng(other)) => own.is_as(other),
            _ => false,
        }
    }

    /// Number of records so far that contradict themselves without being damaged.
    pub(crate) fn irregular(&self) -> u64 {
        match self {
            Self::Pcap(pcap) => pcap.irregular,
            Self::Pcapng(pcapng) => pcapng.irregular,
        }
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
