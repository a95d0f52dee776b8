//! Snapshots: closed epochs that can be stored, merged and asked again.
//!
//! A snapshot holds the identity of its measurement, the epochs that it covers, their account and the
//! summaries of all lanes. `docs/snapshot.md` describes it byte by byte.

mod coarse;
mod codec;
mod coverage;

use coarse::Coarse;
use codec::{Head, text};
use flowgauge_core::any::AnySummary;
use flowgauge_core::audit::Audit;
use flowgauge_core::catalog;
use flowgauge_core::key::{CanonicalKey, KeyError};
use flowgauge_core::summary::codec::{DecodeError, DecodeErrorKind};
use flowgauge_core::summary::sketch::places;
use flowgauge_core::summary::{BuildError, Info, Merge, Options, Setting};
use flowgauge_core::task::{self, TASKS, Unsupported};
use flowgauge_filter::FilterError;
use flowgauge_kernel::{Seed, SeedId};

use crate::account::Account;
use crate::config::{Config, EpochLength};
use crate::error::{Able, EngineError};
use crate::intake::Ended;
use crate::report::{TotalReport, Traffic};
use crate::sink::Sink;
use crate::summaries::{Summaries, View};
use crate::{builder, outline, seed};

pub(crate) use codec::saving_bytes;
pub use coverage::Coverage;

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
        check_identity_of(self, other)
    }

    /// Adds another snapshot of the same measurement, which covers other epochs. Whether epochs of
    /// several hosts are of the same time is up to [`Self::check_aligned`].
    ///
    /// # Errors
    /// When their identities differ, they overlap, or their summaries do not add up. This snapshot is
    /// then unchanged, unless only the summaries of its second lane did not add up.
    pub fn merge(&mut self, other: &Self) -> Result<(), MergeError> {
        check_identity_of(self, other)?;
        coverage::check_apart(&self.coverage, &other.coverage)?;
        let account = codec::sum_accounts(&self.account, &other.account);
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

/// Compares the identities, field by field.
///
/// # Errors
/// When they differ, with the field and both values.
fn check_identity_of(one: &Snapshot, other: &Snapshot) -> Result<(), MergeError> {
    for ((field, one), (_, other)) in fields(one).into_iter().zip(fields(other)) {
        if one != other {
            return Err(MergeError::Differs { field, one, other });
        }
    }
    Ok(())
}

/// The identity of a snapshot, by field.
fn fields(snapshot: &Snapshot) -> [(&'static str, String); 16] {
    let Snapshot { config, summaries, options, .. } = snapshot;
    let filter = config.filter.as_ref().map_or("", |filter| filter.expression());
    let parameters = summaries.parameters().into_iter();
    let parameters: Vec<_> = parameters.map(|(name, value)| format!("{name}={value}")).collect();
    let seed = options[0].digester.seed().id();
    [
        ("measurement", config.name.clone()),
        ("key", config.key.to_string()),
        ("by", config.by.name().to_owned()),
        ("algorithm", config.algorithm.clone()),
        ("accelerator", summaries.accelerator()),
        ("threshold", format!("{:?}", config.threshold)),
        ("spread", config.spread.to_string()),
        ("spread-of", format!("{:?}", config.spread_of)),
        ("hierarchy", format!("{:?}", config.hierarchy)),
        ("filter", format!("'{filter}'")),
        ("tunnels", format!("{:?}", config.tunnels)),
        ("epoch", format!("{:?}", config.epoch)),
        ("seed", format!("{} {seed}", seed.kind())),
        // An audit takes memory from the summaries, whose parameters then differ, too.
        ("audit", summaries.audits.first().map_or(0, Audit::one_in).to_string()),
        ("parameters", parameters.join(",")),
        ("lanes", summaries.lanes.len().to_string()),
    ]
}

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

/// Why bytes are no snapshot.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The bytes do not begin as a snapshot does.
    #[error("not a snapshot")]
    Magic,
    /// A field is cut or wrong.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The key is none that this version knows.
    #[error("the snapshot's key: {0}")]
    Key(#[from] KeyError),
    /// The filter cannot be compiled.
    #[error("the snapshot's filter: {0}")]
    Filter(#[from] FilterError),
    /// The algorithm is none that this version knows.
    #[error("the snapshot's algorithm: {0}")]
    Build(#[from] BuildError),
    /// A field has a value that it cannot have.
    #[error("the snapshot's {field} is {value}, which this version does not know")]
    Unknown {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
}

impl SnapshotError {
    /// Whether bytes of a snapshot were damaged or cut, as opposed to what could be read elsewhere, by
    /// another version, with another seed file or with more memory.
    pub fn is_damage(&self) -> bool {
        let Self::Decode(error) = self else { return false };
        matches!(error.kind(), DecodeErrorKind::Cut { .. } | DecodeErrorKind::Invalid { .. })
    }
}

/// Why two snapshots are not merged.
#[derive(Debug, thiserror::Error)]
pub enum MergeError {
    /// They measured different things.
    #[error("the snapshots differ in {field}: {one} and {other}")]
    Differs {
        /// What differs.
        field: &'static str,
        /// One value.
        one: String,
        /// The other.
        other: String,
    },
    /// Both cover the same epoch of the same run, whose packets would count twice.
    #[error("both snapshots cover epoch {epoch} of one run on '{host}'; merge each epoch once")]
    Overlap {
        /// Its number.
        epoch: u64,
        /// The host.
        host: String,
    },
    /// Two hosts measured at different times.
    #[error(
        "'{}' covers {} and '{}' covers {}; merge equal intervals, or give --align the most by which \
         they may differ",
        hosts[0], intervals[0], hosts[1], intervals[1]
    )]
    Misaligned {
        /// The hosts.
        hosts: [String; 2],
        /// What each covers: the first interval that differs, or how many there are.
        intervals: [String; 2],
    },
    /// Together they cover more epochs than a snapshot can name, or count more than a number holds.
    #[error("the merged snapshot would have more {0} than a snapshot holds")]
    TooMany(&'static str),
    /// The algorithm's summaries do not add up.
    #[error("{0}")]
    Summaries(String),
}
