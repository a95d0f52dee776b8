//! Measurement structures, a folder per family.

pub mod array;
mod basis;
mod build;
pub mod codec;
pub mod concurrent;
pub mod counter;
mod decompound;
pub mod distinct;
pub(crate) mod forms;
mod heavy;
pub mod hierarchy;
pub mod instant;
mod level_ingest;
mod listed;
mod memory;
pub mod quantile;
pub(crate) mod remix;
mod row_ingest;
mod saturating;
pub mod sketch;
mod state;
pub mod table;
mod traits;

pub use build::{
    BuildError, BuildErrorKind, Describe, Info, Laws, Merge, Options, Parameter, Parameters,
    Setting,
};
pub use forms::{Ability, Counted, Form};
pub(crate) use level_ingest::FIRST_WHOLE;
pub use level_ingest::{LevelIngest, LevelSample, MOST_LEVELS};
pub use memory::Memory;
pub use row_ingest::RowIngest;
pub use saturating::Counter;
pub(crate) use saturating::sum_and_largest;
pub use traits::{
    Answers, Candidates, Cells, Details, Estimate, Flows, Forecast, Forecasts, Incompatible,
    Ingest, Prefixes, QuantileOf, Quantiles, Sampling, Seen, SizeEstimate, SizeQuery, Spread,
    Summary,
};
