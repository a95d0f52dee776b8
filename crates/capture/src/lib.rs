//! Packet sources: every one counts what it read and what it lost.

mod frames;
pub mod synthetic;

pub use frames::{Frame, Frames, Source};
