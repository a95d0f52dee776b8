//! Measurement structures, a folder per family.

mod answers;
pub mod array;
pub mod codec;
pub mod concurrent;
pub mod counter;
mod decompound;
pub(crate) mod describe;
pub mod distinct;
mod estimate;
mod heavy;
pub mod hierarchy;
mod ingest;
pub mod instant;
mod options;
pub mod quantile;
pub(crate) mod remix;
pub(crate) mod sampling;
mod saturating;
pub mod sketch;
mod state;
pub mod table;

pub use answers::{
    Answers, Candidates, Cells, Details, Flows, Forecast, Forecasts, Prefixes, QuantileOf,
    Quantiles, Seen, SizeQuery, Spread,
};
pub use describe::{Ability, Counted, Describe, Form, Info, Laws, Merge, Parameter};
pub use estimate::{Estimate, Sampling, SizeEstimate};
pub(crate) use ingest::FIRST_WHOLE;
pub use ingest::{
    Incompatible, Ingest, LevelIngest, LevelSample, MOST_LEVELS, Reads, RowIngest, Summary,
};
pub use options::{BuildError, BuildErrorKind, Memory, Options, Parameters, Setting};
pub use saturating::Counter;
pub(crate) use saturating::sum_and_largest;

/// Arrays up to this size stay in a cache that the processor's own prefetching reaches in time, even
/// between the bursts of a switch: explicit prefetches of their lines cost more than they save.
const CACHED_BYTES: usize = 1 << 18;
