//! Exact tables (Simple, §3).

mod linear;
mod spread;

pub use linear::LinearTable;
