//! One-hash arrays (Simple, §3): one column a packet, collisions accepted.

mod additive;
mod displaced;
mod mrac;
mod own;
mod passing;
mod replacing;
mod shared;

pub use additive::CountArray;
pub use mrac::Mrac;
pub use replacing::ReplacingArray;
