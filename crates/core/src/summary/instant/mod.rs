//! InstaMeasure: what most packets leave behind is one bit, and a flow is counted when its bits
//! saturate.
//!
//! Paper: Jang et al., "InstaMeasure: instant per-flow detection using large in-DRAM working set of
//! active flows" (ICDCS 2019), §3. A [`Regulator`] of [`Word`]s decides which packets reach a flow
//! table, and [`Regulated`] reads that table for what each of those stands for. Its own table is the
//! [`WorkingSet`]: then it is [`InstaMeasure`]. Before another table it is an accelerator.

mod bounds;
mod insta_measure;
mod regulated;
pub(crate) mod regulator;
mod word;
mod working_set;

pub(crate) use insta_measure::LAWS;
pub use insta_measure::{InstaMeasure, InstantTable, Rcc};
pub use regulated::{Behind, Regulated};
pub use regulator::Regulator;
pub use word::Word;
pub use working_set::WorkingSet;
