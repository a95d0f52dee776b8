//! Sketches: rows of cells that every key is hashed into.

mod conservative;
mod count_min;
mod count_sketch;
mod elastic;
mod flow_radar;
mod k_ary;
mod reversible;
pub(super) mod rows;
mod two_level;
mod univmon;

pub use conservative::ConservativeCountMin;
pub use count_min::CountMin;
pub use count_sketch::CountSketch;
pub use elastic::ElasticSketch;
pub use flow_radar::FlowRadar;
pub use k_ary::KAry;
pub use reversible::ReversibleSketch;
pub use rows::places;
pub use two_level::TwoLevel;
pub use univmon::{UnivMon, UniversalSketch};

pub(super) use count_min::Least;
pub(crate) use reversible::recovers;
pub(super) use rows::{RowSketch, Unsigned};
