//! What can be wrong with a capture, in one line that says what, where and what to do.

use std::io;

use flowgauge_engine::source::SourceError;
use thiserror::Error;

/// Most captured bytes that a packet may have. More is damage: it is the largest snapshot length
/// that capture tools ask for.
pub(crate) const MAX_CAPTURED: u32 = 262_144;

/// Largest pcapng block that is looked into. Blocks that are only passed over may be larger.
pub(crate) const MAX_BLOCK: u32 = 16 << 20;

/// Most interfaces in one section of a pcapng file.
pub(crate) const MAX_INTERFACES: usize = 1 << 16;

/// Why a capture was not read, or not to its end. Its text is one line.
#[derive(Debug, Error)]
pub enum CaptureError {
    /// The capture is damaged or cut short. All packets before that place were handed out.
    #[error(
        "{file}: byte {offset}{}: {damage}; packets before it are counted",
        if *.decompressed { " of the decompressed data" } else { "" }
    )]
    Damaged {
        /// The file, with control characters escaped.
        file: String,
        /// Where the first record (packet, block) begins that was not read; a file cut there is
        /// sound. Behind a packet that was handed out, or behind the file header.
        offset: u64,
        /// Whether `offset` counts decompressed bytes.
        decompressed: bool,
        /// What is wrong there.
        damage: Damage,
    },
    /// Not one packet could be looked for: there is no such file, or it is no capture.
    #[error("{file}: {refusal}")]
    Unreadable {
        /// The file, with control characters escaped.
        file: String,
        /// Why.
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

/// A name for messages: one line, whatever characters it has.
pub(crate) fn shown(name: &str) -> String {
    let mut shown = String::with_capacity(name.len());
    for character in name.chars() {
        match character {
            '\\' | '\'' | '"' => shown.push(character),
            // Escapes control characters and what turns the reading direction around.
            _ => shown.extend(character.escape_debug()),
        }
    }
    shown
}

/// What is wrong with a record. The text begins with the name of the field.
#[derive(Debug, Error)]
pub enum Damage {
    /// The file ends inside a record or a block.
    #[error("{field} cut short: the file ends after {present} of {needed} bytes")]
    Cut {
        /// `record header`, `packet`, `block header` or `block`.
        field: &'static str,
        /// Bytes of it that the file has.
        present: u64,
        /// Bytes that it has by its length.
        needed: u64,
    },
    /// A packet goes on over the place where the file was cut for several readers, so that not all
    /// of what they read is right.
    #[error("packet crosses byte {0}, where the file was split for several readers")]
    Seam(u64),
    /// Interfaces were described before the place where the file was cut for several readers, so that
    /// not all of what they read is right.
    #[error("interfaces change before byte {0}, where the file was split for several readers")]
    Redescribed(u64),
    /// More captured bytes than any capture tool writes.
    #[error("captured length {0} exceeds {MAX_CAPTURED}")]
    CapturedLength(u32),
    /// More captured bytes than the block around them has.
    #[error("captured length {captured} exceeds the {room} bytes of its block")]
    CapturedOverBlock {
        /// The captured length.
        captured: u32,
        /// Bytes between the fixed fields and the end of the block.
        room: u32,
    },
    /// Too short for its kind, not a multiple of four, or too large to be looked into.
    #[error("block length {length} is impossible for a block of type {kind:#x}")]
    BlockLength {
        /// The block's length field.
        length: u32,
        /// The block's type field.
        kind: u32,
    },
    /// A section header whose byte order cannot be told.
    #[error("byte-order magic {0:02x?} does not belong to a pcapng section")]
    ByteOrder([u8; 4]),
    /// A section of a version that is not understood.
    #[error("section version {major}.{minor} is not 1.0 or 1.2")]
    SectionVersion {
        /// Major version.
        major: u16,
        /// Minor version.
        minor: u16,
    },
    /// A packet of an interface that no block before it describes: its link type is not known.
    #[error("interface {0} of a packet has no description")]
    Interface(u32),
    /// So many interfaces that describing them would take memory without end.
    #[error("more than {MAX_INTERFACES} interface descriptions in one section")]
    Interfaces,
    /// The compressed data are damaged, cut short, or need more memory than is granted.
    #[error("compressed data {0}")]
    Compressed(io::Error),
    /// The system could not read on.
    #[error("reading failed: {0}")]
    Read(io::Error),
}

/// Why there is nothing to read in a file.
#[derive(Debug, Error)]
pub enum Refusal {
    /// It is compressed by a program whose format is not read.
    #[error("compressed with {0}, which is not supported; use: {0} -dc FILE | flowgauge analyze -")]
    Compressed(&'static str),
    /// The file cannot be opened or not even begun.
    #[error("cannot be read: {0}; check its name and permissions")]
    Open(io::Error),
    /// A directory.
    #[error("is a directory; name the capture files in it")]
    Directory,
    /// Nothing in it.
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
    /// A version that this reader, like libpcap, does not know.
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
    /// Bits of the link type that must be zero.
    #[error("link type {0:#010x} has reserved bits set; its file header is damaged")]
    LinkType(u32),
}
