//! The flowgauge engine: from packet source to report.
//!
//! A [`Config`] describes a measurement, a [`Plan`] reserves its memory, and [`run()`] reads a
//! [source](source::Source) and delivers reports to a [sink](sink::Sink). A program that has
//! packets in memory pushes them into a [`Meter`] instead.
//!
//! ```
//! use flowgauge_capture::Captures;
//! use flowgauge_engine::sink::{Json, Written};
//! use flowgauge_engine::{Config, Plan, run};
//! use flowgauge_synthetic::{Traffic, to_pcap_bytes};
//!
//! let traffic = flowgauge_synthetic::Config { packets: 1_000, ..Default::default() };
//! let capture = to_pcap_bytes(Traffic::new(traffic)?);
//! let mut source = Captures::from_bytes("synthetic.pcap", capture);
//! let plan = Plan::new(Config { memory_bytes: 1 << 20, ..Config::default() })?;
//! let mut lines = Vec::new();
//! let outcome = run(plan, &mut source, &mut Written::new(Json, &mut lines), &mut |_| {})?;
//! assert_eq!(outcome.total.account.keyed, 1_000);
//! assert_eq!(String::from_utf8(lines)?.lines().count(), 2, "an epoch and the total");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

pub mod account;
pub mod auto;
mod builder;
mod clock;
mod close;
mod config;
mod crew;
mod error;
mod intake;
mod meter;
mod outline;
mod plan;
pub mod report;
mod run;
mod sampling;
pub mod seed;
pub mod sink;
pub mod snapshot;
pub mod source;
mod summaries;
mod swaps;

pub use close::{Closed, Group};
pub use config::{Config, Dispatch, EpochLength, Overrun, Pace, is_name};
pub use crew::Cores;
pub use error::{Able, EngineError};
pub use meter::Meter;
pub use outline::{answered, capable};
pub use plan::{Explanation, LaneExplanation, Plan};
pub use run::{Outcome, run, run_inputs, run_queues};
pub use sampling::Arrivals;
pub use swaps::{Swaps, Waits};
