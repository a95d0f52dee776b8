//! Sketches of many rows: Count-Min and its kin.

mod bloom;
mod cell;
mod conservative;
mod count_min;
mod count_sketch;
mod elastic;
mod exceeding;
mod flow_radar;
mod grid;
mod k_ary;
mod mangle;
mod modular;
mod noise;
mod places;
mod reversible;
mod reversible_answers;
mod reversible_search;
mod reversible_shape;
mod row_sketch;
pub(super) mod rows;
mod sampled_rows;
mod spreaders;
mod top_keys;
mod two_level;
mod univmon;

pub use conservative::ConservativeCountMin;
pub use count_min::CountMin;
pub use count_sketch::CountSketch;
pub use elastic::ElasticSketch;
pub use flow_radar::FlowRadar;
pub use k_ary::KAry;
pub use places::places;
pub use reversible::ReversibleSketch;
pub use two_level::TwoLevel;
pub use univmon::{UnivMon, UniversalSketch};

pub(super) use cell::Unsigned;
pub(super) use count_min::Least;
pub(crate) use reversible_shape::recovers;
pub(super) use row_sketch::RowSketch;
