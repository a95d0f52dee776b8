//! The values in which keys, summaries and tasks speak of traffic.

mod hierarchy;
mod size;
mod spread;

pub use hierarchy::Hierarchy;
pub use size::{Measure, Size, Threshold};
pub use spread::SpreadOf;
