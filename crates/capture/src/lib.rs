//! Packet sources: every one counts what it read and what it lost.
//!
//! [`Captures`] reads files one after another as one stream: an input is opened and decompressed
//! (`input`), its bytes pass through a `window`, a format (`pcap` or `pcapng`) walks the records
//! in it, and a `reader` joins the three and says where a file is damaged. [`cut()`] makes parts of a
//! large file, each a source of its own. [`AfPacket`] waits for what an interface receives; `unsafe`
//! code is in its folder only.

#![deny(unsafe_code)]

mod captures;
mod cut;
mod damage;
mod format;
mod frames;
mod gzip;
mod input;
mod live;
mod pcap;
mod pcapng;
mod reader;
mod window;

pub use captures::Captures;
pub use cut::{Part, Whole, cut};
pub use damage::{CaptureError, Damage, Refusal};
pub use frames::{FileCounts, Frame, Frames, Progress, Source};
pub use live::{AfPacket, InterfaceFault};
