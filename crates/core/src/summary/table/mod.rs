//! Exact tables (Simple, §3).

mod answers;
mod cuckoo;
mod exact;
mod index;
mod indirect;
mod inline;
mod layout;
mod linear;
mod probing;

pub use cuckoo::{Cuckoo1, Cuckoo4};
pub use indirect::IndirectTable;
pub(super) use layout::Layout;
pub use linear::LinearTable;
pub(super) use linear::{Counts, LAYOUTS, Linear, MOST_BUCKETS};
