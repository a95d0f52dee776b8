//! InstaMeasure: what most packets leave behind is one bit, and a flow is counted when its bits
//! saturate.
//!
//! Paper: Jang et al., "InstaMeasure: instant per-flow detection using large in-DRAM working set of
//! active flows" (ICDCS 2019), §3. A [`Regulator`] of [`Word`]s decides which packets reach the
//! table of [`InstaMeasure`], and what each of those stands for.

mod bounds;
mod insta_measure;
mod regulator;
mod word;
mod working_set;

pub use insta_measure::InstaMeasure;
pub use regulator::Regulator;
pub use word::Word;
