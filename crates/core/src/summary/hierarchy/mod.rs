//! Heavy prefixes.

mod levels;
mod mst;
mod nodes;
mod rhhh;

pub use mst::Mst;
pub use rhhh::Rhhh;
