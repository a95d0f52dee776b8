//! Closed epochs of a run as snapshots.

use flowgauge_core::catalog;
use flowgauge_core::summary::Options;
use flowgauge_kernel::{Seed, SeedId};

use super::codec::Head;
use super::coverage::Coverage;
use crate::config::Config;
use crate::error::EngineError;
use crate::intake::Ended;
use crate::seed;
use crate::summaries::Summaries;

/// A closed epoch on its way to where it is stored.
#[derive(Clone, Debug)]
pub struct Saved {
    /// The name of the measurement.
    pub measurement: String,
    /// The run, by a number drawn at its start.
    pub run: u64,
    /// Number of the epoch in that run.
    pub epoch: u64,
    /// Start and end in nanoseconds since the UNIX epoch; both 0 without a packet.
    pub bounds_ns: (i64, i64),
    /// Whether the bytes hold the seed: they must be kept from everyone who may send packets.
    pub is_secret: bool,
    /// The snapshot.
    pub bytes: Vec<u8>,
}

/// How the closed epochs of a measurement are stored.
pub(crate) struct Saving {
    config: Config,
    seed: Seed,
    host: String,
    run: u64,
}

impl Saving {
    /// Stores epochs of `config` on this host, as those of a new run.
    pub(crate) fn new(config: &Config, seed: Seed) -> Result<Self, EngineError> {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let run = seed::random().map_err(EngineError::Refused)?.draws();
        Ok(Self { config: config.clone(), seed, host, run })
    }

    /// The run, by its number.
    pub(crate) fn run(&self) -> u64 {
        self.run
    }

    /// The stored form of a closed epoch, before which there were empty ones since `quiet_ns`.
    pub(crate) fn save(
        &self,
        ended: &Ended,
        quiet_ns: Option<i64>,
        summaries: &Summaries,
    ) -> Result<Saved, EngineError> {
        let Self { config, seed, host, run } = self;
        let info = catalog::info(&config.algorithm)?;
        let options = Options {
            by: config.by,
            threshold: config.threshold,
            spread: config.spread,
            hierarchy: config.hierarchy,
            ..Options::new(0, *seed)
        };
        let (host, run, epoch) = (host.clone(), *run, ended.epoch);
        let measurement = config.name.clone();
        let bounds_ns = ended.bounds_ns.unwrap_or_default();
        let (from_ns, to_ns) = ended.observed_ns.unwrap_or(bounds_ns);
        let from_ns = quiet_ns.unwrap_or(from_ns);
        let observed_ns = (from_ns, to_ns.max(from_ns));
        let mut account = ended.account.clone();
        account.untracked += ended.unmeasured;
        let head = Head {
            config,
            coverage: &[Coverage { host, run, epoch, bounds_ns, observed_ns }],
            account: &account,
            traffic: ended.traffic,
            times_ns: ended.times_ns,
        };
        let bytes = head.write(summaries, info, std::iter::repeat(&options));
        let is_secret = matches!(seed.id(), SeedId::Random(_));
        Ok(Saved { measurement, run, epoch, bounds_ns, is_secret, bytes })
    }
}
