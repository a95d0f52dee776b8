//! Measurement structures, a folder per family.

pub mod array;
mod build;
mod counter;
mod heavy;
mod slot;
pub mod table;
mod traits;

pub use build::{BuildError, Describe, Info, Laws, Merge, Options, Parameter, Parameters};
pub use counter::Counter;
pub use traits::{
    Answers, Candidates, Estimate, Flows, Incompatible, Ingest, Measure, Size, SizeEstimate,
    SizeQuery,
};
