//! Exact tables (Simple, §3).

mod linear;

pub use linear::LinearTable;
