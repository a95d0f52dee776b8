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
