//! Snapshots: closed epochs that can be stored, merged and queried.
//!
//! A snapshot holds the identity of its measurement, the epochs that it covers, their account and
//! the summaries of all lanes. `docs/snapshot.md` describes it byte by byte.

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
use flowgauge_core::task::{self, TASKS, TaskEntry, Unsupported};
use flowgauge_filter::FilterError;
use flowgauge_kernel::{Seed, SeedId};

use crate::account::Account;
use crate::builder::candidate_threshold;
use crate::config::{Config, EpochLength};
use crate::error::{Able, EngineError};
use crate::intake::Ended;
use crate::report::{TotalReport, Traffic};
use crate::sink::Sink;
use crate::summaries::{Summaries, View};
use crate::{builder, outline, seed};

pub(crate) use codec::saving_bytes;
pub use coverage::Coverage;

/// A snapshot: a closed epoch, or several merged ones.
///
/// ```
/// use flowgauge_capture::Captures;
/// use flowgauge_engine::{Config, Plan, run, sink::{Item, Sink, SinkError}, snapshot::Snapshot};
/// use flowgauge_synthetic::{Config as Synthetic, Traffic, to_pcap_bytes};
///
/// struct Keep(Vec<u8>);
/// impl Sink for Keep {
///     fn deliver(&mut self, item: &Item) -> Result<(), SinkError> {
///         Ok(if let Item::Snapshot(saved) = item { self.0.clone_from(&saved.bytes) })
///     }
/// }
/// let traffic = Traffic::new(Synthetic { packets: 1_000, ..Synthetic::default() })?;
/// let mut source = Captures::from_bytes("demo.pcap", to_pcap_bytes(traffic));
/// let (config, mut keep) = (Config { save: true, ..Config::default() }, Keep(Vec::new()));
/// run(Plan::new(config)?, &mut source, &mut keep, &mut |_| {})?;
/// assert_eq!(Snapshot::decode(&keep.0, 1 << 30, None)?.account().keyed, 1_000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Snapshot {
    /// The configuration of the measurement.
    config: Config,
    info: &'static Info,
    /// The options of each lane's summary.
    options: Vec<Options>,
    summaries: Summaries,
    coverage: Vec<Coverage>,
    /// The account. Packets that no lane measures count as untracked in it; the untracked packets
    /// of the lanes do not.
    account: Account,
    /// The estimated keyed traffic, if a sampler before headers read a sample of it.
    traffic: Option<Traffic>,
    /// Times of the earliest and the latest packet.
    times_ns: Option<(i64, i64)>,
}

/// The cells of a linear sketch.
#[derive(Clone, Debug, PartialEq)]
pub struct LaneCells {
    /// Canonical bytes of its keys.
    pub key_bytes: usize,
    /// Number of rows.
    pub rows: usize,
    /// Number of columns of each row.
    pub columns: usize,
    /// The cells row by row. The cells of several snapshots add up.
    pub cells: Vec<f64>,
}

impl Snapshot {
    /// Decodes a snapshot into summaries of at most `limit` bytes each. `file` is the seed of the
    /// seed file under which it was made, if any.
    ///
    /// # Errors
    /// When the bytes are not a snapshot, or it needs more memory or another seed file.
    pub fn decode(bytes: &[u8], limit: usize, file: Option<&Seed>) -> Result<Self, SnapshotError> {
        codec::read(bytes, limit, file, None)
    }

    /// As [`Self::decode`], but reuses the memory of a snapshot that is no longer needed, if both
    /// are built alike. Faulting in new pages would take longer than everything else. `limit` must
    /// be the one with which `spare` was decoded.
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

    /// Encodes the snapshot in its stored form.
    pub fn encode(&self) -> Vec<u8> {
        let Self { config, coverage, account, traffic, times_ns, .. } = self;
        let (traffic, times_ns) = (*traffic, *times_ns);
        let head = Head { config, coverage, account, traffic, times_ns };
        let mut bytes = head.write(&self.summaries, self.info, self.options.iter(), Vec::new());
        bytes.shrink_to_fit();
        bytes
    }

    /// The configuration of the measurement. Fields that snapshots do not store have their
    /// defaults.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The epochs that it covers, in order of host, run and epoch.
    pub fn coverage(&self) -> &[Coverage] {
        &self.coverage
    }

    /// The account of the packets, without the untracked packets of the summaries.
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// The part of the covered time that was observed; 1 if epochs do not end by time.
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

    /// Checks that another snapshot is of the same measurement, with the same seed and parameters.
    ///
    /// # Errors
    /// When they differ. The error names the first field that differs.
    pub fn check_identity(&self, other: &Self) -> Result<(), MergeError> {
        check_identity_of(self, other)
    }

    /// Merges another snapshot of the same measurement that covers other epochs. Does not check
    /// that epochs of several hosts are of the same time; see [`Self::check_aligned`].
    ///
    /// # Errors
    /// When their identities differ, their epochs overlap, or their summaries do not add up. This
    /// snapshot is then unchanged, unless only the summaries of its second lane did not add up.
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

    /// The cells of a linear sketch, for each length of its keys in canonical bytes. Empty for
    /// other algorithms, and for UnivMon and the reversible sketch, which have several kinds of
    /// cells.
    pub fn cells(&self) -> Vec<LaneCells> {
        let lanes = self.summaries.lanes.iter().zip(self.config.key.lanes());
        let read = |(summary, key_bytes): (&AnySummary, &usize)| {
            let parameters = summary.parameters();
            // Any key shows whether the cells have places.
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

    /// The registers of a distinct counter, for each length of its keys in canonical bytes. Empty
    /// for other algorithms. Registers of hyperloglog merge by maximum, words of bitmaps (fm,
    /// linear-counting) by OR.
    pub fn registers(&self) -> Vec<(usize, Vec<u32>)> {
        let lanes = self.summaries.lanes.iter().zip(self.config.key.lanes());
        let read = |(summary, key_bytes): (&AnySummary, &usize)| {
            Some((*key_bytes, summary.answers().registers()?))
        };
        lanes.filter_map(read).collect()
    }

    /// The cells of a flow, one in each row of [`Self::cells`], and whether its weight is
    /// subtracted there; with the length of its key in canonical bytes.
    pub fn places(&self, flow: &CanonicalKey) -> Option<(usize, Vec<(usize, bool)>)> {
        let key = flow.as_bytes();
        let lane = self.config.key.lanes().iter().position(|bytes| *bytes == key.len())?;
        let (summary, options) = (self.summaries.lanes.get(lane)?, self.options.get(lane)?);
        let digest = summary.digest(key, &options.digester.for_keys(key.len()))?;
        Some((key.len(), places(self.info.name, &summary.parameters(), digest)?))
    }

    /// Whether snapshots of this algorithm can be merged. Otherwise each is queried by itself.
    pub fn adds_up(&self) -> bool {
        self.info.laws.merge != Merge::Disjoint
    }

    /// Checks that all merged hosts measured at the same times: their intervals start and end
    /// within `tolerance_ns` nanoseconds of each other.
    ///
    /// # Errors
    /// When two hosts did not.
    pub fn check_aligned(&self, tolerance_ns: u64) -> Result<(), MergeError> {
        coverage::check_aligned(&self.coverage, tolerance_ns)
    }

    /// Answers tasks from the snapshot, and reports to `sink`. `ask` may change the tasks and the
    /// lengths of lists, and set a coarser key. It cannot change what the summaries were built for.
    ///
    /// # Errors
    /// When a task is unknown, the summaries cannot answer it or not by this key, they answer none
    /// of the default tasks, or the report cannot be written.
    pub fn query(
        &mut self,
        ask: impl FnOnce(&mut Config),
        sink: &mut dyn Sink,
    ) -> Result<TotalReport, EngineError> {
        let mut config = self.config.clone();
        ask(&mut config);
        let mut named = config.tasks.iter().flatten().filter_map(|name| task::find(name).ok());
        if let Some((task, reason)) = named.find_map(|entry| Some((entry.name, unasked(entry)?))) {
            let (reason, able) = (Unsupported(reason.to_owned()), Able::default());
            return Err(EngineError::Task { task, reason, able });
        }
        let seed = *self.options[0].digester.seed();
        self.summaries.settle();
        let coarse = if config.key == self.config.key {
            None
        } else {
            let keyed = Traffic::keyed(self.traffic, &self.account);
            let measured = (keyed, self.config.by);
            Some(Coarse::new((self.config.key, config.key), &self.summaries, measured)?)
        };
        let (view, notes) = match &coarse {
            None => (View::new(config.key, std::iter::once(&self.summaries)), Vec::new()),
            Some(coarse) => (coarse.view(config.key), coarse.notes.clone()),
        };
        if config.tasks.is_none() {
            let entries = TASKS.into_iter().filter(|entry| unasked(entry).is_none());
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

/// Why snapshots cannot answer a task; `None` if they may.
fn unasked(entry: &TaskEntry) -> Option<&'static str> {
    match entry.name {
        "changes" => Some("it compares an epoch with those before it, which query does not keep"),
        _ if entry.timeline => Some("it needs the times of packets, which snapshots do not store"),
        _ => None,
    }
}

/// Compares the identities field by field.
///
/// # Errors
/// When they differ. The error names the field and both values.
fn check_identity_of(one: &Snapshot, other: &Snapshot) -> Result<(), MergeError> {
    for ((field, one), (_, other)) in fields(one).into_iter().zip(fields(other)) {
        if one != other {
            return Err(MergeError::Differs { field, one, other });
        }
    }
    Ok(())
}

/// The identity of a snapshot by field. Merged snapshots must agree in it.
fn fields(snapshot: &Snapshot) -> [(&'static str, String); 17] {
    let Snapshot { config, summaries, options, .. } = snapshot;
    let filter = config.filter.as_ref().map_or("", |filter| filter.expression());
    let parameters = summaries.parameters().into_iter();
    let parameters: Vec<_> = parameters.map(|(name, value)| format!("{name}={value}")).collect();
    let seed = options[0].digester.seed().id();
    // A long list lowers it. Tables keep all flows.
    let has_candidates = summaries.lanes.iter().any(|lane| lane.answers().flows().is_none());
    let candidates = has_candidates.then(|| format!("{:?}", options[0].threshold));
    [
        ("measurement", config.name.clone()),
        ("key", config.key.to_string()),
        ("by", config.by.name().to_owned()),
        ("algorithm", config.algorithm.clone()),
        ("accelerator", summaries.accelerator()),
        ("threshold", format!("{:?}", config.threshold)),
        ("threshold of candidates", candidates.unwrap_or_default()),
        ("spread", config.spread.to_string()),
        ("spread-of", format!("{:?}", config.spread_of)),
        ("hierarchy", format!("{:?}", config.hierarchy)),
        ("filter", format!("'{filter}'")),
        ("tunnels", format!("{:?}", config.tunnels)),
        ("epoch", format!("{:?}", config.epoch)),
        ("seed", format!("{} {seed}", seed.kind())),
        // An audit takes memory from the summaries, so their parameters would differ too.
        ("audit", summaries.audits.first().map_or(0, Audit::one_in).to_string()),
        ("parameters", parameters.join(",")),
        ("lanes", summaries.lanes.len().to_string()),
    ]
}

/// The encoded snapshot of a closed epoch.
#[derive(Clone, Debug)]
pub struct Saved {
    /// The name of the measurement.
    pub measurement: String,
    /// The run, by a random number drawn at its start.
    pub run: u64,
    /// Number of the epoch in that run.
    pub epoch: u64,
    /// Start and end in nanoseconds since the UNIX epoch; both 0 without a packet.
    pub bounds_ns: (i64, i64),
    /// Whether the bytes contain the seed. Such bytes must be kept secret from anyone who can send
    /// packets.
    pub is_secret: bool,
    /// The snapshot.
    pub bytes: Vec<u8>,
}

/// Encodes the closed epochs of a measurement as snapshots.
pub(crate) struct Saving {
    config: Config,
    seed: Seed,
    host: String,
    run: u64,
    /// Memory in which snapshots are encoded. Sinks receive a copy without spare room.
    room: Vec<u8>,
}

impl Saving {
    /// Encodes epochs of `config` on this host, as those of a new run.
    pub(crate) fn new(config: &Config, seed: Seed) -> Result<Self, EngineError> {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let run = seed::random().map_err(EngineError::Seed)?.draws();
        Ok(Self { config: config.clone(), seed, host, run, room: Vec::new() })
    }

    /// The run, by its number.
    pub(crate) fn run(&self) -> u64 {
        self.run
    }

    /// Encodes a closed epoch. Empty epochs before it began at `quiet_ns`.
    pub(crate) fn save(
        &mut self,
        ended: &Ended,
        quiet_ns: Option<i64>,
        summaries: &Summaries,
    ) -> Result<Saved, EngineError> {
        let Self { config, seed, host, run, room } = self;
        let info = catalog::info(&config.algorithm)?;
        let options = Options {
            by: config.by,
            threshold: candidate_threshold(config),
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
        account.outages = u64::from(ended.unseen);
        let head = Head {
            config,
            coverage: &[Coverage { host, run, epoch, bounds_ns, observed_ns }],
            account: &account,
            traffic: ended.traffic,
            times_ns: ended.times_ns,
        };
        let options = std::iter::repeat(&options);
        *room = head.write(summaries, info, options, std::mem::take(room));
        let bytes = room.clone();
        let is_secret = matches!(seed.id(), SeedId::Random(_));
        Ok(Saved { measurement, run, epoch, bounds_ns, is_secret, bytes })
    }
}

/// Why a snapshot cannot be decoded.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The bytes do not begin like a snapshot.
    #[error("not a snapshot")]
    Magic,
    /// A field is cut off or invalid.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// This version does not know the key.
    #[error("the snapshot's key: {0}")]
    Key(#[from] KeyError),
    /// The filter cannot be compiled.
    #[error("the snapshot's filter: {0}")]
    Filter(#[from] FilterError),
    /// This version does not know the algorithm.
    #[error("the snapshot's algorithm: {0}")]
    Build(#[from] BuildError),
    /// This version does not know the value of a field.
    #[error("the snapshot's {field} is {value}, which this version does not know")]
    Unknown {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
}

impl SnapshotError {
    /// Whether the snapshot is damaged or cut off. Otherwise another version, another seed file or
    /// more memory might read it.
    pub fn is_damage(&self) -> bool {
        let Self::Decode(error) = self else { return false };
        matches!(error.kind(), DecodeErrorKind::Cut { .. } | DecodeErrorKind::Invalid { .. })
    }
}

/// Why two snapshots cannot be merged.
#[derive(Debug, thiserror::Error)]
pub enum MergeError {
    /// They measured different things.
    #[error("the snapshots differ in {field}: {one} and {other}")]
    Differs {
        /// The field that differs.
        field: &'static str,
        /// One value.
        one: String,
        /// The other.
        other: String,
    },
    /// Both cover the same epoch of the same run; its packets would count twice.
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
        /// The first interval of each that differs, or the numbers of intervals.
        intervals: [String; 2],
    },
    /// Together they have more epochs than a snapshot holds, or a count overflows.
    #[error("the merged snapshot would have more {0} than a snapshot holds")]
    TooMany(&'static str),
    /// The algorithm's summaries do not add up.
    #[error("{0}")]
    Summaries(String),
}
