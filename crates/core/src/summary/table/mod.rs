//! Exact tables (Simple, §3).

mod double;
mod linear;

pub use linear::LinearTable;
