//! Capture files, read as sources of packets and written: pcap and pcapng, plain or compressed with gzip or zstd.
//!
//! [`Captures`] reads files one after another as one stream: an input is opened and decompressed
//! (`input`), its bytes pass through a `window`, a format (`pcap` or `pcapng`) walks the records
//! in it, and a `reader` joins the three and says where a file is damaged. [`cut()`] makes parts of a
//! large file, each a source of its own, and [`Files`] divides several among readers. [`Writer`] writes
//! packets as pcapng.

#![forbid(unsafe_code)]

mod captures;
mod cut;
mod damage;
mod files;
mod format;
mod gzip;
mod input;
mod order;
mod pcap;
mod pcapng;
mod reader;
mod streams;
mod waiting;
mod window;
mod write;

pub use captures::Captures;
pub use cut::{Part, Whole, cut};
pub use damage::{CaptureError, Damage, Refusal};
pub use files::{Capture, Files};
pub use order::in_order;
pub use streams::Streams;
pub use write::Writer;
