//! Cuts one large capture among several readers.

mod finder;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::captures::Captures;
use crate::format::{Begin, Format};
use crate::input::{Codec, Origin};
use finder::{Finder, Found, STRETCH, find_block};

/// Least bytes of a part: the finder looks at a stretch before the wanted place, and finds one that
/// is up to a largest record behind it.
const LEAST_BYTES: u64 = 2 * STRETCH as u64;

/// A part of a capture: whole records, as far as the finder can tell.
///
/// The parts in their order give what the whole file gives if each of them is read without error:
/// the first one begins where the file does, or behind its header, and one that ends exactly where the next
/// begins, with the same interfaces, proves the next. Where a part gives an error, what the parts behind it give is to be thrown
/// away, since reading the whole file would have ended there.
#[derive(Clone, Debug)]
pub struct Part {
    pub(crate) path: PathBuf,
    /// Where it lies in the file. The last one goes as far as the file does, whatever stands here.
    pub(crate) bytes: Range<u64>,
    /// What the file said before the part, and what it has to have said before the next one.
    pub(crate) format: Format,
    pub(crate) next: Option<Format>,
}

/// Why a capture has to be read by one reader. The text completes "… is read by one reader: ".
#[derive(Debug, Error)]
pub enum Whole {
    /// It cannot be opened or read; reading it says why.
    #[error("it cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    /// A pipe, standard input, a directory.
    #[error("it is not a regular file")]
    NoFile,
    /// Compressed data have no places to begin at.
    #[error("it is compressed")]
    Compressed,
    /// No capture.
    #[error("it is not a capture")]
    OtherFormat,
    /// Another reader would cost more than it reads.
    #[error("it is smaller than {} bytes", 2 * LEAST_BYTES)]
    Small,
    /// The first packet is so near to 1970 that lengths and fractions of a second may be taken for
    /// times.
    #[error("its first timestamp is so early that lengths look like timestamps")]
    Early,
    /// Such a part would lie outside the file's records.
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
    /// From this byte on, bytes may be taken for records in several ways, as where a packet holds
    /// a capture.
    #[error("after byte {0}, a record may begin at several places")]
    Ambiguous(u64),
    /// From this byte on, no records follow whose lengths are sound and, in a pcap, whose times are within a
    /// year of the first one's.
    #[error("after byte {0}, no record within a year of the first one was found")]
    Lost(u64),
}

/// Cuts a pcap or pcapng file into at most `pieces` parts of about the same number of bytes.
///
/// A record's begin cannot be recognised by itself. So all chains of records are followed that
/// could begin within one largest record, over another such length up to the wanted place; only where
/// they all run into one is the file cut, at the record that they lead to. What a
/// record may be is what the reader accepts, with a sound fraction of a second and a time within a
/// year of the first record's; of pcapng, what has the same length before and behind it. Nothing is guessed: if the true chain is among these it is the one,
/// and whether it was shows in the end of the part before (see [`Part`]).
///
/// Costs 512 KiB read and some 1 to 2 ms for each part but the first, and 3 MiB of memory.
///
/// # Errors
/// Why the file has to be read as a whole.
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

/// The begin of a capture that is a regular file.
struct Head {
    file: File,
    /// Bytes of the file.
    bytes: u64,
    /// Its first bytes.
    begin: Vec<u8>,
    /// The bytes of the file's header, and what it says.
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

    /// What later parts take for granted: of pcapng, all that comes before the first packet.
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

/// Opens what must be a regular file: opening a pipe could wait for its other end.
fn open(path: &Path) -> Result<File, Whole> {
    if path == Path::new("-") || !path.metadata()?.is_file() {
        return Err(Whole::NoFile);
    }
    Ok(File::open(path)?)
}

impl Part {
    /// The part of a capture that [`cut()`] found in these bytes, perhaps in another process: what the
    /// file says before it is read again.
    ///
    /// # Errors
    /// When the file cannot be read, or such a part cannot be one of it.
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

    /// The part as a source of packets, which opens the file when it is read first. An error names
    /// the byte of the file, as when the whole of it is read.
    pub fn open(&self) -> Captures {
        Captures::new([Origin::Part(self.clone())])
    }

    /// Where it lies in the file.
    pub fn bytes(&self) -> Range<u64> {
        self.bytes.clone()
    }

    /// Its bytes.
    pub(crate) fn reader(&self) -> io::Result<impl Read + Send + use<>> {
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(self.bytes.start))?;
        let bytes = if self.next.is_none() { u64::MAX } else { self.bytes.end - self.bytes.start };
        Ok(file.take(bytes))
    }
}
