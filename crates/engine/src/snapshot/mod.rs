//! Snapshots: closed epochs that can be stored, merged and asked again.
//!
//! A snapshot holds the identity of its measurement, the epochs that it covers, their account and the
//! summaries of all lanes. `docs/snapshot.md` describes it byte by byte.

mod account;
mod coarse;
mod codec;
mod coverage;
mod error;
mod identity;
mod saving;

use flowgauge_core::any::AnySummary;
use flowgauge_core::key::CanonicalKey;
use flowgauge_core::summary::sketch::places;
use flowgauge_core::summary::{Info, Merge, Options, Setting};
use flowgauge_core::task::{self, TASKS, Unsupported};
use flowgauge_kernel::Seed;

use crate::account::Account;
use crate::builder;
use crate::config::{Config, EpochLength};
use crate::error::{Able, EngineError};
use crate::intake::Ended;
use crate::outline;
use crate::report::{TotalReport, Traffic};
use crate::sink::Sink;
use crate::summaries::{Summaries, View};
use coarse::Coarse;
use codec::{Head, text};

pub(crate) use codec::saving_bytes;
pub use coverage::Coverage;
pub use error::{MergeError, SnapshotError};
pub use saving::Saved;
pub(crate) use saving::Saving;

/// A closed epoch, or several that were merged.
pub struct Snapshot {
    /// The measurement: what it counts, and by what.
    config: Config,
    info: &'static Info,
    /// What each lane's summary was built from.
    options: Vec<Options>,
    summaries: Summaries,
    coverage: Vec<Coverage>,
    /// Packets that no lane takes are untracked in it; what is untracked in a lane is not.
    account: Account,
    /// The keyed traffic, where a sampler before the headers read a sample of it.
    traffic: Option<Traffic>,
    /// Times of the earliest and the latest packet.
    times_ns: Option<(i64, i64)>,
}

/// The cells of a linear sketch.
#[derive(Clone, Debug, PartialEq)]
pub struct LaneCells {
    /// Canonical bytes of its keys.
    pub key_bytes: usize,
    /// Its rows.
    pub rows: usize,
    /// The columns of each.
    pub columns: usize,
    /// The cells row by row. Those of several snapshots add up.
    pub cells: Vec<f64>,
}

impl Snapshot {
    /// Reads a snapshot into summaries of at most `limit` bytes each. `file` is the seed of the seed
    /// file that it was made under, if it was.
    ///
    /// # Errors
    /// When the bytes are no snapshot, or it needs more memory or another seed file.
    pub fn decode(bytes: &[u8], limit: usize, file: Option<&Seed>) -> Result<Self, SnapshotError> {
        codec::read(bytes, limit, file, None)
    }

    /// [`Self::decode`] into the memory of a snapshot that is not needed any more, where both are built
    /// alike: fresh pages for each would take longer than all the rest. `limit` is the one that it was
    /// decoded with.
    ///
    /// # Errors
    /// As [`Self::decode`].
    pub fn decode_again(
        bytes: &[u8],
        limit: usize,
        file: Option<&Seed>,
        spare: Self,
    ) -> Result<Self, SnapshotError> {
        codec::read(bytes, limit, file, Some(spare))
    }

    /// The stored form.
    pub fn encode(&self) -> Vec<u8> {
        let Self { config, coverage, account, traffic, times_ns, .. } = self;
        let (traffic, times_ns) = (*traffic, *times_ns);
        let head = Head { config, coverage, account, traffic, times_ns };
        head.write(&self.summaries, self.info, self.options.iter())
    }

    /// The measurement that it is of, with the defaults for what no snapshot stores.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The epochs that it covers, in order of host, run and epoch.
    pub fn coverage(&self) -> &[Coverage] {
        &self.coverage
    }

    /// What became of the packets; what is untracked in a summary is not in it.
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// The part of the time that it covers which was observed; 1 where epochs do not end by time.
    fn observed_share(&self) -> f64 {
        match self.config.epoch {
            EpochLength::Time(_) => coverage::observed_share(&self.coverage),
            EpochLength::Whole | EpochLength::Packets(_) => 1.0,
        }
    }

    /// Bytes of memory of its summaries.
    pub fn memory_bytes(&self) -> usize {
        self.summaries.all_bytes()
    }

    /// Checks that another snapshot is of the same measurement, under the same seed and parameters.
    ///
    /// # Errors
    /// With the first field that differs.
    pub fn check_identity(&self, other: &Self) -> Result<(), MergeError> {
        identity::check(self, other)
    }

    /// Adds another snapshot of the same measurement, which covers other epochs. Whether epochs of
    /// several hosts are of the same time is up to [`Self::check_aligned`].
    ///
    /// # Errors
    /// When their identities differ, they overlap, or their summaries do not add up. This snapshot is
    /// then unchanged, unless only the summaries of its second lane did not add up.
    pub fn merge(&mut self, other: &Self) -> Result<(), MergeError> {
        identity::check(self, other)?;
        coverage::check_apart(&self.coverage, &other.coverage)?;
        let account = account::sum(&self.account, &other.account);
        let account = account.ok_or(MergeError::TooMany("packets"))?;
        if !self.adds_up() {
            return Err(MergeError::Summaries(format!(
                "snapshots of {} merge only if they share no flow, which is unknown; query each \
                 by itself",
                self.info.name
            )));
        }
        let merged = self.summaries.merge(&other.summaries);
        merged.map_err(|reason| MergeError::Summaries(reason.to_string()))?;
        self.summaries.settle();
        coverage::add(&mut self.coverage, &other.coverage);
        self.account = account;
        self.traffic = Traffic::both(self.traffic, other.traffic);
        self.times_ns = match (self.times_ns, other.times_ns) {
            (Some((start, end)), Some((earliest, latest))) => {
                Some((start.min(earliest), end.max(latest)))
            }
            (own, other) => own.or(other),
        };
        Ok(())
    }

    /// The cells of a linear sketch, for each length of its keys in canonical bytes; none of other
    /// algorithms, and of UnivMon and the reversible sketch, whose cells are of several kinds.
    pub fn cells(&self) -> Vec<LaneCells> {
        let lanes = self.summaries.lanes.iter().zip(self.config.key.lanes());
        let read = |(summary, key_bytes): (&AnySummary, &usize)| {
            let parameters = summary.parameters();
            // Any key tells whether the cells have places.
            let rows = places(self.info.name, &parameters, 0)?.len();
            let cells = summary.answers().cells()?;
            let mut all = vec![0.0; cells.len()];
            cells.read(&mut all);
            let columns = parameters.iter().find_map(|(name, setting)| match setting {
                Setting::Integer(columns) if *name == "columns" => usize::try_from(*columns).ok(),
                _ => None,
            })?;
            all.truncate(rows * columns);
            Some(LaneCells { key_bytes: *key_bytes, rows, columns, cells: all })
        };
        lanes.filter_map(read).collect()
    }

    /// The registers of a distinct counter, for each length of its keys in canonical bytes; none of other
    /// algorithms. Those of hyperloglog merge by their maximum, the words of bitmaps (fm, linear-counting)
    /// by OR.
    pub fn registers(&self) -> Vec<(usize, Vec<u32>)> {
        let lanes = self.summaries.lanes.iter().zip(self.config.key.lanes());
        let read = |(summary, key_bytes): (&AnySummary, &usize)| {
            Some((*key_bytes, summary.answers().registers()?))
        };
        lanes.filter_map(read).collect()
    }

    /// The cells that take a flow's weight, one in each row of [`Self::cells`], and whether it is subtracted
    /// there: of the keys of the returned length.
    pub fn places(&self, flow: &CanonicalKey) -> Option<(usize, Vec<(usize, bool)>)> {
        let key = flow.as_bytes();
        let lane = self.config.key.lanes().iter().position(|bytes| *bytes == key.len())?;
        let (summary, options) = (self.summaries.lanes.get(lane)?, self.options.get(lane)?);
        let digest = summary.digest(key, &options.digester.for_keys(key.len()))?;
        Some((key.len(), places(self.info.name, &summary.parameters(), digest)?))
    }

    /// Whether snapshots of this algorithm add up: else each is asked by itself.
    pub fn adds_up(&self) -> bool {
        self.info.laws.merge != Merge::Disjoint
    }

    /// Checks that all hosts whose epochs were merged measured at the same times: that their intervals
    /// start and end within `tolerance_ns` nanoseconds of each other.
    ///
    /// # Errors
    /// When two hosts did not.
    pub fn check_aligned(&self, tolerance_ns: u64) -> Result<(), MergeError> {
        coverage::check_aligned(&self.coverage, tolerance_ns)
    }

    /// Answers tasks from the snapshot, and reports them to `sink`. `ask` may name other tasks and list
    /// lengths than the measurement's defaults, and a coarser key; what the summaries were built for stays.
    ///
    /// # Errors
    /// When a task is unknown, the summaries cannot answer it, or not by this key, or none of the default
    /// tasks, or the report cannot be written.
    pub fn query(
        &mut self,
        ask: impl FnOnce(&mut Config),
        sink: &mut dyn Sink,
    ) -> Result<TotalReport, EngineError> {
        let mut config = self.config.clone();
        ask(&mut config);
        let mut named = config.tasks.iter().flatten().filter_map(|name| task::find(name).ok());
        if let Some(entry) = named.find(|entry| entry.timeline) {
            let reason = "it needs the times of packets, which snapshots do not store";
            return Err(EngineError::Task {
                task: entry.name,
                reason: Unsupported(reason.to_owned()),
                able: Able::default(),
            });
        }
        let seed = *self.options[0].digester.seed();
        self.summaries.settle();
        let coarse = if config.key == self.config.key {
            None
        } else {
            let keyed = Traffic::keyed(self.traffic, &self.account);
            Some(Coarse::new((self.config.key, config.key), &self.summaries, keyed)?)
        };
        let (view, notes) = match &coarse {
            None => (View::new(config.key, std::iter::once(&self.summaries)), Vec::new()),
            Some(coarse) => (coarse.view(config.key), coarse.notes.clone()),
        };
        if config.tasks.is_none() {
            let entries = TASKS.into_iter().filter(|entry| !entry.timeline);
            outline::choose(&mut config, &view.lanes(), entries)?;
        }
        let mut closer = builder::closer(&config, seed, &view, &self.summaries, notes)?;
        let ended = Ended {
            epoch: self.coverage.iter().map(|one| one.epoch).min().unwrap_or_default(),
            account: self.account.clone(),
            traffic: self.traffic,
            bounds_ns: coverage::bounds_ns(&self.coverage),
            times_ns: self.times_ns,
            ..Ended::default()
        };
        closer.report(ended, self.observed_share(), &view, sink)?;
        Ok(closer.total)
    }
}
