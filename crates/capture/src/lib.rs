//! Capture files as sources of packets, and a writer: pcap and pcapng, plain or compressed with
//! gzip or zstd.
//!
//! [`Captures`] reads files one after another as one stream. `input` opens and decompresses a file,
//! `pcap` or `pcapng` walk its records, and `reader` joins both and says where a file is damaged.
//! [`cut()`] cuts a large file into parts, each a source of its own; [`Files`] divides files among
//! readers. [`Writer`] writes packets as pcapng.

#![forbid(unsafe_code)]

mod captures;
mod cut;
mod damage;
mod files;
mod format;
mod input;
mod pcap;
mod pcapng;
mod reader;
mod record;
mod write;

pub use captures::Captures;
pub use cut::{Whole, cut};
pub use damage::{CaptureError, Damage, Refusal};
pub use files::{Capture, Files, Streams, in_order};
pub use input::Part;
pub use write::Writer;
