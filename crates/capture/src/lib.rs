//! Packet sources: every one counts what it read and what it lost.

mod filter;
mod frames;

pub use filter::{Filter, FilterError, LONGEST_EXPRESSION};
pub use frames::{Frame, Frames, Source};
