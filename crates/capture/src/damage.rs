//! The errors of captures. Each text is one line: the problem, its place and the remedy.

use std::io;

use flowgauge_engine::source::SourceError;
use thiserror::Error;

/// Maximum captured bytes of a packet: the largest snapshot length that capture tools use. A longer
/// packet is damage.
pub(crate) const MAX_CAPTURED: u32 = 262_144;

/// Largest pcapng block that is read. Skipped blocks may be larger.
pub(crate) const MAX_BLOCK: u32 = 16 << 20;

/// Maximum number of interfaces in one section of a pcapng file.
pub(crate) const MAX_INTERFACES: usize = 1 << 16;

/// The error of a capture that was not read, or not to its end. Its text is one line.
///
/// ```
/// use flowgauge_capture::Captures;
/// use flowgauge_engine::source::{Burst, Columns, Source};
///
/// let mut captures = Captures::from_bytes("notes.txt", b"just some text".to_vec());
/// let error = captures.poll(&mut Burst::new(&mut Columns::default())).unwrap_err();
/// assert!(error.to_string().starts_with("notes.txt: not a capture"));
/// ```
#[derive(Debug, Error)]
pub enum CaptureError {
    /// The capture is damaged or cut short. All packets before that place were returned.
    #[error(
        "{file}: byte {offset}{}: {damage}; packets before it are counted",
        if *.decompressed { " of the decompressed data" } else { "" }
    )]
    Damaged {
        /// The file, with control characters escaped.
        file: String,
        /// Start of the first record (packet or block) that was not read. The file up to this
        /// offset is valid.
        offset: u64,
        /// Whether `offset` counts decompressed bytes.
        decompressed: bool,
        /// The damage.
        damage: Damage,
    },
    /// The file cannot be opened or is not a capture.
    #[error("{file}: {refusal}")]
    Unreadable {
        /// The file, with control characters escaped.
        file: String,
        /// The reason.
        refusal: Refusal,
    },
}

impl From<CaptureError> for SourceError {
    fn from(error: CaptureError) -> Self {
        match error {
            CaptureError::Damaged { .. } => Self::Damaged(error.into()),
            CaptureError::Unreadable { .. } => Self::Unreadable(error.into()),
        }
    }
}

/// A name for messages, escaped so that it is one line.
pub(crate) fn shown(name: &str) -> String {
    let mut shown = String::with_capacity(name.len());
    for character in name.chars() {
        match character {
            '\\' | '\'' | '"' => shown.push(character),
            // Escapes control characters and those that change the text direction.
            _ => shown.extend(character.escape_debug()),
        }
    }
    shown
}

/// The damage of a record. The text begins with the name of the field.
#[derive(Debug, Error)]
pub enum Damage {
    /// The file ends inside a record or a block.
    #[error("{field} cut short: the file ends after {present} of {needed} bytes")]
    Cut {
        /// `record header`, `packet`, `block header` or `block`.
        field: &'static str,
        /// Bytes of the field in the file.
        present: u64,
        /// Length of the field in bytes.
        needed: u64,
    },
    /// A packet crosses the place where the file was cut for several readers, so the next part was
    /// read wrongly.
    #[error("packet crosses byte {0}, where the file was split for several readers")]
    Seam(u64),
    /// The interfaces change before the place where the file was cut for several readers, so the
    /// next part was read wrongly.
    #[error("interfaces change before byte {0}, where the file was split for several readers")]
    Redescribed(u64),
    /// More captured bytes than any capture tool writes.
    #[error("captured length {0} exceeds {MAX_CAPTURED}")]
    CapturedLength(u32),
    /// More captured bytes than the block has room for.
    #[error("captured length {captured} exceeds the {room} bytes of its block")]
    CapturedOverBlock {
        /// The captured length.
        captured: u32,
        /// Bytes between the fixed fields and the trailer of the block.
        room: u32,
    },
    /// A block length that is too short for its type, not a multiple of four, or too large to read.
    #[error("block length {length} is impossible for a block of type {kind:#x}")]
    BlockLength {
        /// The block's length field.
        length: u32,
        /// The block's type field.
        kind: u32,
    },
    /// A section header with an unknown byte order.
    #[error("byte-order magic {0:02x?} does not belong to a pcapng section")]
    ByteOrder([u8; 4]),
    /// A section of an unknown version.
    #[error("section version {major}.{minor} is not 1.0 or 1.2")]
    SectionVersion {
        /// Major version.
        major: u16,
        /// Minor version.
        minor: u16,
    },
    /// A packet of an interface without a description, so its link type is unknown.
    #[error("interface {0} of a packet has no description")]
    Interface(u32),
    /// More interfaces than the memory limit allows.
    #[error("more than {MAX_INTERFACES} interface descriptions in one section")]
    Interfaces,
    /// The compressed data are damaged, cut short, or need more memory than allowed.
    #[error("compressed data {0}")]
    Compressed(io::Error),
    /// The operating system failed to read.
    #[error("reading failed: {0}")]
    Read(io::Error),
}

/// Why a file has nothing to read.
#[derive(Debug, Error)]
pub enum Refusal {
    /// Compressed in an unsupported format.
    #[error("compressed with {0}, which is not supported; use: {0} -dc FILE | flowgauge analyze -")]
    Compressed(&'static str),
    /// The file cannot be opened, or its first bytes cannot be read.
    #[error("cannot be read: {0}; check its name and permissions")]
    Open(io::Error),
    /// A directory.
    #[error("is a directory; name the capture files in it")]
    Directory,
    /// An empty file.
    #[error("is empty; a capture has at least a file header")]
    Empty,
    /// The file ends inside its header.
    #[error("ends inside its file header, after {0} bytes; capture or copy it again")]
    HeaderCut(u64),
    /// Neither pcap nor pcapng.
    #[error(
        "not a capture: it begins with {0:02x?}; supported are pcap and pcapng, plain, .gz \
             or .zst"
    )]
    NotCapture([u8; 4]),
    /// An unknown version; libpcap does not read it either.
    #[error(
        "version {major}.{minor} of {format} is not supported; convert it with the tools \
             that wrote it"
    )]
    Version {
        /// `pcap` or `pcapng`.
        format: &'static str,
        /// Major version.
        major: u16,
        /// Minor version.
        minor: u16,
    },
    /// A link type with reserved bits set.
    #[error("link type {0:#010x} has reserved bits set; its file header is damaged")]
    LinkType(u32),
}
