//! Sketches of many rows: Count-Min and its kin.

mod cell;
mod conservative;
mod count_min;
mod count_sketch;
mod grid;
mod k_ary;
mod row_sketch;
mod rows;

pub use conservative::ConservativeCountMin;
pub use count_min::CountMin;
pub use count_sketch::CountSketch;
pub use k_ary::KAry;
