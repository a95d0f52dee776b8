//! Sketches of many rows: Count-Min and its kin.

mod cell;
mod count_min;
mod row_sketch;
mod rows;

pub use count_min::CountMin;
pub(crate) use rows::MOST_ROWS;
