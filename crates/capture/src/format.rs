//! The interface of both capture formats: recognize the file header, then walk records in a slice.

use flowgauge_engine::source::{Ahead, Burst, Skipped};

use crate::{
    damage::Refusal,
    pcap::Pcap,
    pcapng::{self, Pcapng},
    record::{Begin, Stop},
};

/// A capture format with the state of its file so far.
#[derive(Clone, Debug)]
pub(crate) enum Format {
    Pcap(Pcap),
    Pcapng(Pcapng),
}

impl Format {
    /// Recognizes a file by its first bytes.
    pub(crate) fn begin(bytes: &[u8]) -> Result<Begin<Self>, Refusal> {
        let Some(&magic) = bytes.first_chunk::<4>() else { return Ok(Begin::Need(4)) };
        if magic == pcapng::SECTION {
            Ok(Pcapng::begin(bytes)?.map(Self::Pcapng))
        } else {
            Ok(Pcap::begin(magic, bytes)?.map(Self::Pcap))
        }
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
