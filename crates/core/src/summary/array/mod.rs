//! Arrays with one hash: one column per packet, collisions accepted (Simple, §3).

mod additive;
mod mrac;
mod replacing;

pub use additive::CountArray;
pub use mrac::Mrac;
pub use replacing::ReplacingArray;
