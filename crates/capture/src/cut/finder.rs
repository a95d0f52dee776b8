//! Where records begin in the midst of a file.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use crate::pcap::{LARGEST_RECORD, Pcap, Record};
use crate::pcapng::{BLOCK_HEADER, Pcapng};

/// Bytes that the finder looks at: one record begins at least in the first half of a sound file's,
/// and chains have another largest record to run together or to end.
pub(super) const STRETCH: usize = 2 * LARGEST_RECORD;

/// How far the times of a capture may be from its first one: a day back, a year on.
const BACK_SECONDS: u32 = 86_400;
const ON_SECONDS: u32 = 366 * 86_400;

/// Looks for the begin of a record of a classic pcap file.
pub(super) struct Finder<'a> {
    pcap: &'a Pcap,
    /// What the seconds of a record may be.
    seconds: RangeInclusive<u32>,
}

/// What a stretch of a file holds.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// All chains come to the record that begins here: about at the end, or up to a largest record
    /// behind it.
    At(usize),
    /// Chains that stay apart.
    Several,
    /// No chain.
    None,
}

impl<'a> Finder<'a> {
    /// A finder for the file that begins with the record `first`; `None` if its time is so early
    /// that the fraction of a second or a length, read as seconds, is a time as well: then each
    /// chain has another one beside it, a few bytes on.
    pub(super) fn new(pcap: &'a Pcap, first: &Record) -> Option<Self> {
        let earliest = first.seconds.checked_sub(BACK_SECONDS)?;
        let seconds = earliest..=first.seconds.saturating_add(ON_SECONDS);
        (earliest >= pcap.fractions()).then_some(Self { pcap, seconds })
    }

    /// The record that [`STRETCH`] bytes of the file lead to for certain.
    pub(super) fn find(&self, stretch: &[u8]) -> Found {
        self.find_within(stretch, LARGEST_RECORD)
    }

    /// The same where no record has more than `largest` bytes.
    pub(super) fn find_within(&self, stretch: &[u8], largest: usize) -> Found {
        follow(stretch, largest, self.pcap.record_header, |at| self.plausible(&stretch[at..]))
    }

    /// The bytes of the record that `bytes` may begin with.
    #[inline(always)]
    fn plausible(&self, bytes: &[u8]) -> Option<usize> {
        let record = self.pcap.record(bytes)?;
        let timely = self.seconds.contains(&record.seconds);
        (timely && record.fraction < self.pcap.fractions()).then_some(record.bytes)
    }
}

/// The block of a pcapng file that [`STRETCH`] bytes lead to for certain, behind these interfaces. Where all
/// blocks begin, so does the stretch: at a multiple of four bytes.
pub(super) fn find_block(pcapng: &Pcapng, stretch: &[u8]) -> Found {
    follow(stretch, LARGEST_RECORD, BLOCK_HEADER, |at| {
        (at % 4 == 0).then(|| pcapng.plausible(&stretch[at..], LARGEST_RECORD))?
    })
}

/// Follows all chains of records that begin within the largest one, each where the one before ends;
/// `plausible` gives the bytes of a record that may begin at a place.
#[inline(always)]
fn follow(
    stretch: &[u8],
    largest: usize,
    header: usize,
    plausible: impl Fn(usize) -> Option<usize>,
) -> Found {
    // For each place the bytes of a record that begins there, and on which others follow as
    // far as can be seen; 0 where there is none.
    let mut records = vec![0_u32; stretch.len()];
    for at in (0..stretch.len()).rev() {
        let Some(bytes) = plausible(at) else { continue };
        // Where not even a header is left, what follows cannot be seen.
        let unseen = at + bytes + header > stretch.len();
        if unseen || records[at + bytes] > 0 {
            records[at] = bytes as u32;
        }
    }
    // Where the chains go next that begin within a largest record: one place each, and one for
    // those that have run together. Any of them may be the true one.
    let mut tips = BTreeSet::new();
    for at in (0..stretch.len()).filter(|&at| records[at] > 0) {
        if tips.remove(&at) || at < largest {
            tips.insert(at + records[at] as usize);
        }
    }
    match (tips.pop_first(), tips.len()) {
        (None, _) => Found::None,
        (Some(at), 0) => Found::At(at),
        _ => Found::Several,
    }
}
