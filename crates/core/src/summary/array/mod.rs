//! One-hash arrays (Simple, §3): one column a packet, collisions accepted.

mod additive;
mod mrac;
mod replacing;

pub use additive::CountArray;
pub use mrac::Mrac;
pub use replacing::ReplacingArray;
