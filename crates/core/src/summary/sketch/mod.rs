//! Sketches of many rows: Count-Min and its kin.

mod cell;
mod conservative;
mod count_min;
mod count_sketch;
mod k_ary;
mod row_sketch;
mod rows;

pub use conservative::ConservativeCountMin;
pub use count_min::CountMin;
pub use count_sketch::CountSketch;
pub use k_ary::KAry;

pub(super) use cell::Unsigned;
pub(super) use count_min::Least;
pub(super) use row_sketch::RowSketch;
