//! Measurement structures, a folder per family.

pub mod array;
mod build;
pub mod codec;
mod counter;
mod heavy;
mod memory;
mod remix;
mod slot;
pub mod sketch;
pub mod counter;
pub mod distinct;
pub mod quantile;
pub mod instant;
pub mod hierarchy;
pub mod table;
mod traits;

pub use build::{BuildError, Describe, Info, Laws, Merge, Options, Parameter, Parameters, Setting};
pub use counter::Counter;
pub use memory::Memory;
pub use traits::{Answers, Candidates, Cells, Estimate, Flows, Forecast, Forecasts, Incompatible, Ingest, Measure, Size, SizeEstimate, SizeQuery, Spread};
