//! Sketches of many rows: Count-Min and its kin.

mod mangle;
mod modular;
mod reversible;
mod reversible_answers;
mod reversible_search;
mod spreaders;
mod two_level;

pub use reversible::ReversibleSketch;
pub use two_level::TwoLevel;
mod bloom;
mod cell;
mod conservative;
mod count_min;
mod elastic;
mod flow_radar;
mod count_sketch;
mod k_ary;
mod row_sketch;
mod rows;
mod top_keys;
mod univmon;

pub use conservative::ConservativeCountMin;
pub use count_min::CountMin;
pub use elastic::ElasticSketch;
pub use flow_radar::{FlowRadar, JointFlow, JointRadar, decode_jointly};
pub(crate) use rows::MOST_ROWS;
pub use univmon::UnivMon;
pub use count_sketch::CountSketch;
pub use k_ary::KAry;

pub(super) use cell::Unsigned;
pub(super) use count_min::Least;
pub(super) use row_sketch::RowSketch;
