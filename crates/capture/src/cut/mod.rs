//! Cuts one large capture into parts for several readers.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::{Range, RangeInclusive};
use std::path::Path;

use thiserror::Error;

use crate::captures::Captures;
use crate::format::Format;
use crate::input::{Codec, Origin, Part};
use crate::pcap::{LARGEST_RECORD, Pcap, Record};
use crate::pcapng::{BLOCK_HEADER, Pcapng};
use crate::record::Begin;

/// Minimum size of a part. The finder looks at a stretch before the wanted place, and finds a
/// record up to a largest record after it.
const LEAST_BYTES: u64 = 2 * STRETCH as u64;

/// Why a capture must be read by one reader. The text completes "… is read by one reader: ".
#[derive(Debug, Error)]
pub enum Whole {
    /// The file cannot be opened or read.
    #[error("it cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    /// A pipe, standard input or a directory.
    #[error("it is not a regular file")]
    NoFile,
    /// Compressed data cannot be read from the middle.
    #[error("it is compressed")]
    Compressed,
    /// Not a capture.
    #[error("it is not a capture")]
    OtherFormat,
    /// Too small for a second reader to pay off.
    #[error("it is smaller than {} bytes", 2 * LEAST_BYTES)]
    Small,
    /// The first packet is so close to 1970 that lengths and fractions of a second may look like
    /// times.
    #[error("its first timestamp is so early that lengths look like timestamps")]
    Early,
    /// The part lies outside the file's records.
    #[error(
        "it has records in bytes {} to {}, and the part is bytes {} to {}",
        file.start, file.end, part.start, part.end
    )]
    Outside {
        /// Bytes of the part.
        part: Range<u64>,
        /// Bytes of the file's records.
        file: Range<u64>,
    },
    /// After this byte, records may begin at several places, as in a packet that holds a capture.
    #[error("after byte {0}, a record may begin at several places")]
    Ambiguous(u64),
    /// After this byte, no records follow with valid lengths and, in a pcap, with times within a
    /// year of the first one.
    #[error("after byte {0}, no record within a year of the first one was found")]
    Lost(u64),
}

/// Cuts a pcap or pcapng file into at most `pieces` parts of about the same size.
///
/// The start of a record cannot be recognized on its own. So `cut` follows all chains of records
/// that could begin within the length of one largest record, over one more such length, up to the
/// wanted place. It cuts only where all chains meet in one, at the record to which they lead. A
/// possible record of a pcap is one that the reader accepts, with a valid fraction of a second and
/// a time within a year of the first record; a possible block of a pcapng repeats its length at its
/// end. This does not guess: if the true chain is among those followed, the cut is right, and the
/// end of the part before shows whether it is (see [`Part`]).
///
/// Cost: 512 KiB read and some 1 to 2 ms for each part but the first, and 3 MiB of memory.
///
/// ```
/// use flowgauge_capture::{Whole, cut};
///
/// let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/tcpdump/isup.pcap");
/// // Parts have at least 1 MiB.
/// assert!(matches!(cut(path.as_ref(), 4), Err(Whole::Small)));
/// ```
///
/// # Errors
/// The reason why the file must be read as a whole.
pub fn cut(path: &Path, pieces: usize) -> Result<Vec<Part>, Whole> {
    let head = Head::read(path)?;
    let pieces = (pieces as u64).min(head.bytes / LEAST_BYTES);
    if pieces < 2 {
        return Err(Whole::Small);
    }
    let next = head.next()?;
    let Head { mut file, bytes, header, begin, .. } = head;
    let find: Box<Find<'_>> = match &next {
        Format::Pcap(pcap) => {
            let first = pcap.record(&begin[header..]).ok_or(Whole::Lost(header as u64))?;
            let finder = Finder::new(pcap, &first).ok_or(Whole::Early)?;
            Box::new(move |stretch| finder.find(stretch))
        }
        Format::Pcapng(pcapng) => Box::new(|stretch| find_block(pcapng, stretch)),
    };
    let mut stretch = vec![0; STRETCH];
    let mut begins = vec![header as u64];
    for piece in 1..pieces {
        let wanted = (u128::from(bytes) * u128::from(piece) / u128::from(pieces)) as u64;
        let from = (wanted - STRETCH as u64).next_multiple_of(4);
        file.seek(SeekFrom::Start(from))?;
        file.read_exact(&mut stretch)?;
        begins.push(match find(&stretch) {
            Found::At(at) => from + at as u64,
            Found::Several => return Err(Whole::Ambiguous(from)),
            Found::None => return Err(Whole::Lost(from)),
        });
    }
    let ends = begins[1..].iter().copied().chain([bytes]);
    let part = |(&begin, end): (&u64, u64)| Part {
        path: path.to_owned(),
        bytes: begin..end,
        format: if begin == header as u64 { head.format.clone() } else { next.clone() },
        next: (end < bytes).then(|| next.clone()),
    };
    Ok(begins.iter().zip(ends).map(part).collect())
}

/// The start of a capture that is a regular file.
struct Head {
    file: File,
    /// Length of the file.
    bytes: u64,
    /// The first [`STRETCH`] bytes of the file.
    begin: Vec<u8>,
    /// Length of the file header.
    header: usize,
    format: Format,
}

impl Head {
    fn read(path: &Path) -> Result<Self, Whole> {
        let mut file = open(path)?;
        let bytes = file.metadata()?.len();
        let mut begin = Vec::new();
        file.by_ref().take(STRETCH as u64).read_to_end(&mut begin)?;
        if Codec::of(&begin).is_some() {
            return Err(Whole::Compressed);
        }
        let Ok(Begin::Found(format, header)) = Format::begin(&begin) else {
            return Err(Whole::OtherFormat);
        };
        Ok(Self { file, bytes, begin, header, format })
    }

    /// The state of the format that later parts assume: for pcapng, the state before the first
    /// packet.
    fn next(&self) -> Result<Format, Whole> {
        let mut next = self.format.clone();
        if let Format::Pcapng(pcapng) = &mut next {
            let mut at = 0;
            if pcapng.next(&self.begin, &mut at).is_err() {
                return Err(Whole::Lost(at as u64));
            }
            pcapng.irregular = 0;
        }
        Ok(next)
    }
}

/// Finds a record in a stretch of a file.
type Find<'a> = dyn Fn(&[u8]) -> Found + 'a;

/// Opens a regular file. Other files are refused, because opening a pipe could block.
fn open(path: &Path) -> Result<File, Whole> {
    if path == Path::new("-") || !path.metadata()?.is_file() {
        return Err(Whole::NoFile);
    }
    Ok(File::open(path)?)
}

impl Part {
    /// The part that [`cut()`] found in these bytes, perhaps in another process. Reads the start of
    /// the file again.
    ///
    /// # Errors
    /// When the file cannot be read, or the part lies outside its records.
    pub fn at(path: &Path, bytes: Range<u64>) -> Result<Self, Whole> {
        let head = Head::read(path)?;
        let header = head.header as u64;
        if bytes.start < header || bytes.start >= bytes.end || bytes.end > head.bytes {
            return Err(Whole::Outside { part: bytes, file: header..head.bytes });
        }
        let next = head.next()?;
        let is_last = bytes.end == head.bytes;
        let format = if bytes.start == header { head.format } else { next.clone() };
        Ok(Self { path: path.to_owned(), bytes, format, next: (!is_last).then_some(next) })
    }

    /// The part as a source of packets. It opens the file at the first read. Errors name offsets in
    /// the whole file.
    pub fn open(&self) -> Captures {
        Captures::new([Origin::Part(self.clone())])
    }
}

/// Number of bytes that the finder looks at. In a valid file, at least one record begins in the
/// first half; the second half lets chains meet or end.
const STRETCH: usize = 2 * LARGEST_RECORD;

/// Allowed distance of times from the first one: a day before, a year after.
const BACK_SECONDS: u32 = 86_400;
const ON_SECONDS: u32 = 366 * 86_400;

/// Finds the start of a record of a classic pcap file.
struct Finder<'a> {
    pcap: &'a Pcap,
    /// Plausible seconds of a record.
    seconds: RangeInclusive<u32>,
}

/// The result of following all chains in a stretch of a file.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    /// All chains lead to the record that begins here: near the end of the stretch, or up to a
    /// largest record after it.
    At(usize),
    /// Several chains do not meet.
    Several,
    /// There is no chain.
    None,
}

impl<'a> Finder<'a> {
    /// A finder for the file that begins with the record `first`. `None` if its time is so early
    /// that a fraction of a second or a length is also a plausible time: then each chain would have
    /// a second one a few bytes away.
    fn new(pcap: &'a Pcap, first: &Record) -> Option<Self> {
        let earliest = first.seconds.checked_sub(BACK_SECONDS)?;
        let seconds = earliest..=first.seconds.saturating_add(ON_SECONDS);
        (earliest >= pcap.fractions()).then_some(Self { pcap, seconds })
    }

    /// The record to which all chains in [`STRETCH`] bytes of the file lead.
    fn find(&self, stretch: &[u8]) -> Found {
        self.find_within(stretch, LARGEST_RECORD)
    }

    /// As [`Self::find`], if no record has more than `largest` bytes.
    fn find_within(&self, stretch: &[u8], largest: usize) -> Found {
        follow(stretch, largest, self.pcap.record_header, |at| self.plausible(&stretch[at..]))
    }

    /// The length of the record that may begin here.
    #[inline(always)]
    fn plausible(&self, bytes: &[u8]) -> Option<usize> {
        let record = self.pcap.record(bytes)?;
        let timely = self.seconds.contains(&record.seconds);
        (timely && record.fraction < self.pcap.fractions()).then_some(record.bytes)
    }
}

/// The block of a pcapng file to which all chains in [`STRETCH`] bytes lead. The stretch must begin
/// at a multiple of four bytes in the file, as all blocks do.
fn find_block(pcapng: &Pcapng, stretch: &[u8]) -> Found {
    follow(stretch, LARGEST_RECORD, BLOCK_HEADER, |at| {
        (at % 4 == 0).then(|| pcapng.plausible(&stretch[at..], LARGEST_RECORD))?
    })
}

/// Follows all chains of adjacent records that begin within the first `largest` bytes. `plausible`
/// gives the length of a record that may begin at a place.
#[inline(always)]
fn follow(
    stretch: &[u8],
    largest: usize,
    header: usize,
    plausible: impl Fn(usize) -> Option<usize>,
) -> Found {
    // For each place, the length of a record that begins there and whose chain reaches the end of
    // the stretch; otherwise 0.
    let mut records = vec![0_u32; stretch.len()];
    for at in (0..stretch.len()).rev() {
        let Some(bytes) = plausible(at) else { continue };
        // The chain has reached the end if not even a header fits behind the record.
        let unseen = at + bytes + header > stretch.len();
        if unseen || records[at + bytes] > 0 {
            records[at] = bytes as u32;
        }
    }
    // The next record of each chain that begins within `largest` bytes. Chains that met share one
    // place. Any of them may be the true chain.
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

#[cfg(test)]
mod tests;
