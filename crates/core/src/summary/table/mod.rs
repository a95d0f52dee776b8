//! Exact tables (Simple, §3).

mod index;
mod linear;

pub use linear::LinearTable;
