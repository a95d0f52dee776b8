//! One-hash arrays (Simple, §3): one column a packet, collisions accepted.

mod additive;
mod replacing;

pub use additive::CountArray;
pub use replacing::ReplacingArray;
