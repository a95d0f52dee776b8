//! Snapshots: closed epochs that can be stored, merged and asked again.
//!
//! A snapshot holds the identity of its measurement, the epochs that it covers, their account and the
//! summaries of all lanes. `docs/snapshot.md` describes it byte by byte.

use flowgauge_core::any::AnySummary;
use flowgauge_core::catalog;
use flowgauge_core::key::{KeyError, KeySpec};
use flowgauge_core::summary::codec::{DecodeError, Reader, Writer};
use flowgauge_core::summary::{BuildError, Info, Merge, Options};
use flowgauge_core::terms::{Size, SpreadOf};
use flowgauge_filter::{Filter, FilterError};
use flowgauge_kernel::{Seed, SeedId};

use crate::account::Account;
use crate::builder;
use crate::config::{Config, EpochLength};
use crate::error::EngineError;
use crate::intake::Ended;
use crate::report::TotalReport;
use crate::sink::Sink;
use crate::summaries::Summaries;

const MAGIC: &[u8; 4] = b"FGSS";
const VERSION: u16 = 2;

/// Bytes of a name, a key or a filter at most.
const LONGEST_TEXT: usize = 1 << 20;

/// Epochs that a snapshot covers at most.
const MOST_EPOCHS: usize = 1 << 20;

/// One epoch of one run of a measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coverage {
    /// The host that measured it.
    pub host: String,
    /// The run, by a number drawn at its start.
    pub run: u64,
    /// Number of the epoch in that run.
    pub epoch: u64,
    /// Start and end in nanoseconds since the UNIX epoch; both 0 without a packet.
    pub bounds_ns: (i64, i64),
}

/// A closed epoch, or several that were merged.
pub struct Snapshot {
    /// The measurement: what it counts, and by what.
    config: Config,
    info: &'static Info,
    /// What each lane's summary was built from.
    options: Vec<Options>,
    summaries: Summaries,
    coverage: Vec<Coverage>,
    account: Account,
    unmeasured: Size,
    times_ns: Option<(i64, i64)>,
}

/// Why bytes are no snapshot.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
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
    /// The algorithm's summaries do not add up.
    #[error("{0}")]
    Summaries(String),
}

/// A closed epoch on its way to where it is stored.
#[derive(Clone, Debug)]
pub struct Saved {
    /// The name of the measurement.
    pub measurement: String,
    /// Number of the epoch.
    pub epoch: u64,
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
        let drawn = crate::seed::random().map_err(EngineError::Refused)?;
        let run = drawn.draws();
        Ok(Self { config: config.clone(), seed, host, run })
    }

    /// The stored form of a closed epoch.
    pub(crate) fn save(&self, ended: &Ended, summaries: &Summaries) -> Result<Saved, EngineError> {
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
        let bounds_ns = ended.bounds_ns.unwrap_or_default();
        let parts = Parts {
            config,
            coverage: &[Coverage { host, run, epoch, bounds_ns }],
            account: &ended.account,
            unmeasured: ended.unmeasured,
            times_ns: ended.times_ns,
        };
        let lanes = summaries.0.iter().map(|summary| summary.encode(info, &options));
        let bytes = parts.write(&lanes.collect::<Vec<_>>());
        let is_secret = matches!(seed.id(), SeedId::Random(_));
        Ok(Saved { measurement: config.name.clone(), epoch, is_secret, bytes })
    }
}

/// The parts of a snapshot before its lanes.
struct Parts<'a> {
    config: &'a Config,
    coverage: &'a [Coverage],
    account: &'a Account,
    unmeasured: Size,
    times_ns: Option<(i64, i64)>,
}

impl Parts<'_> {
    fn write(&self, lanes: &[Vec<u8>]) -> Vec<u8> {
        let Self { config, coverage, account, unmeasured, times_ns } = self;
        let mut out = Writer::default();
        out.numbers(MAGIC);
        out.number(VERSION);
        out.bytes(config.name.as_bytes());
        out.bytes(config.key.to_string().as_bytes());
        out.number(u8::from(config.spread_of == SpreadOf::Address));
        out.number(u8::from(config.inner));
        out.bytes(config.filter.as_ref().map_or("", Filter::expression).as_bytes());
        let (kind, length) = match config.epoch {
            EpochLength::Whole => (0u8, 0),
            EpochLength::Packets(packets) => (1, packets),
            EpochLength::Time(ns) => (2, ns.cast_unsigned()),
        };
        out.number(kind);
        out.number(length);
        out.number(coverage.len() as u64);
        for Coverage { host, run, epoch, bounds_ns } in *coverage {
            out.bytes(host.as_bytes());
            out.numbers(&[*run, *epoch]);
            out.numbers(&[bounds_ns.0, bounds_ns.1]);
        }
        for size in [account.dropped, *unmeasured, account.skipped] {
            out.size(size);
        }
        out.numbers(&[
            account.read,
            account.filtered,
            account.malformed,
            account.no_key,
            account.keyed,
            account.keyed_bytes,
            account.lost,
            account.late,
            account.backwards,
            account.jumps,
        ]);
        let (earliest_ns, latest_ns) = times_ns.unwrap_or((i64::MAX, i64::MIN));
        out.numbers(&[earliest_ns, latest_ns]);
        out.number(lanes.len() as u8);
        for lane in lanes {
            out.bytes(lane);
        }
        out.checked()
    }
}

fn text<'a>(from: &mut Reader<'a>, field: &'static str) -> Result<&'a str, DecodeError> {
    let bytes = from.bytes(field, LONGEST_TEXT)?;
    str::from_utf8(bytes).map_err(|_| from.invalid(field, bytes.len(), "it is not UTF-8"))
}

impl Snapshot {
    /// Reads a snapshot into summaries of at most `limit` bytes each. `file` is the seed of the seed
    /// file that it was made under, if it was.
    ///
    /// # Errors
    /// When the bytes are no snapshot, or it needs more memory or another seed file.
    pub fn decode(bytes: &[u8], limit: usize, file: Option<&Seed>) -> Result<Self, SnapshotError> {
        let (mut head, mut magic) = (Reader::new(bytes), [0; 4]);
        head.numbers("magic", &mut magic)?;
        // A file of another kind is told from a damaged snapshot.
        if magic != *MAGIC {
            return Err(head.invalid("magic", 4, "no snapshot begins so").into());
        }
        let mut from = Reader::checked(bytes)?;
        from.numbers("magic", &mut magic)?;
        if from.number::<u16>("version")? != VERSION {
            return Err(from.invalid("version", 2, "only version 2 is known").into());
        }
        let name = text(&mut from, "name")?.to_owned();
        let key: KeySpec = text(&mut from, "key")?.parse()?;
        let by_address = from.flag("spread-of")?;
        let inner = from.flag("inner")?;
        let filter = text(&mut from, "filter")?;
        let filter = (!filter.is_empty()).then(|| Filter::new(filter)).transpose()?;
        let (kind, length) = (from.number::<u8>("kind of epoch")?, from.number("epoch length")?);
        let epoch = match kind {
            0 => EpochLength::Whole,
            1 => EpochLength::Packets(length),
            2 => EpochLength::Time(length.cast_signed()),
            _ => return Err(unknown("kind of epoch", kind.into())),
        };
        let mut coverage = Vec::new();
        for _ in 0..from.count("number of epochs", MOST_EPOCHS)? {
            coverage.push(Coverage {
                host: text(&mut from, "host")?.to_owned(),
                run: from.number("run")?,
                epoch: from.number("epoch")?,
                bounds_ns: (from.number("start")?, from.number("end")?),
            });
        }
        let (dropped, unmeasured) = (from.size("dropped")?, from.size("unmeasured")?);
        let skipped = from.size("skipped")?;
        let mut account = Account { skipped, dropped, ..Account::default() };
        for count in [
            &mut account.read,
            &mut account.filtered,
            &mut account.malformed,
            &mut account.no_key,
            &mut account.keyed,
            &mut account.keyed_bytes,
            &mut account.lost,
            &mut account.late,
            &mut account.backwards,
            &mut account.jumps,
        ] {
            *count = from.number("account")?;
        }
        let times_ns = (from.number("earliest")?, from.number("latest")?);
        let lanes = from.number::<u8>("number of lanes")?;
        if lanes == 0 || usize::from(lanes) > key.lanes().len() {
            return Err(unknown("number of lanes", lanes.into()));
        }
        let (mut summaries, mut options, mut info) = (Vec::new(), Vec::new(), None);
        for key_bytes in &key.lanes()[..lanes.into()] {
            let frame = from.bytes("lane", bytes.len())?;
            let (summary, known, of_lane) = AnySummary::decode(*key_bytes, frame, limit, file)?;
            summaries.push(summary);
            options.push(of_lane);
            info = Some(known);
        }
        let Some(info) = info.filter(|_| from.is_at_end()) else {
            return Err(from.invalid("end", 0, "there is more than a snapshot has").into());
        };
        let first = &options[0];
        let config = Config {
            name,
            key,
            by: first.by,
            algorithm: info.name.to_owned(),
            threshold: first.threshold,
            spread: first.spread,
            spread_of: if by_address { SpreadOf::Address } else { SpreadOf::Endpoint },
            hierarchy: first.hierarchy,
            seed: Some(*first.digester.seed()),
            inner,
            filter,
            epoch,
            ..Config::default()
        };
        let (summaries, times_ns) = (Summaries(summaries), Some(times_ns).filter(|(a, b)| a <= b));
        Ok(Self { config, info, options, summaries, coverage, account, unmeasured, times_ns })
    }

    /// The stored form.
    pub fn encode(&self) -> Vec<u8> {
        let Self { config, coverage, account, unmeasured, times_ns, .. } = self;
        let parts =
            Parts { config, coverage, account, unmeasured: *unmeasured, times_ns: *times_ns };
        let lanes = self.summaries.0.iter().zip(&self.options);
        let lanes = lanes.map(|(summary, options)| summary.encode(self.info, options));
        parts.write(&lanes.collect::<Vec<_>>())
    }

    /// The measurement that it is of, with the defaults for what no snapshot stores.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The epochs that it covers.
    pub fn coverage(&self) -> &[Coverage] {
        &self.coverage
    }

    /// Adds another snapshot of the same measurement, which covers other epochs.
    ///
    /// # Errors
    /// When their identities differ, they overlap, or their summaries do not add up. This snapshot is
    /// then unchanged, unless only the summaries of its second lane did not add up.
    pub fn merge(&mut self, other: &Self) -> Result<(), MergeError> {
        self.check(other)?;
        if self.info.laws.merge == Merge::Disjoint {
            return Err(MergeError::Summaries(format!(
                "snapshots of {} add up only where they share no flow, which is not known; query each",
                self.info.name
            )));
        }
        let merged = self.summaries.merge(&other.summaries);
        merged.map_err(|reason| MergeError::Summaries(reason.to_string()))?;
        self.summaries.settle();
        self.account.add(&other.account);
        self.unmeasured += other.unmeasured;
        self.coverage.extend_from_slice(&other.coverage);
        self.times_ns = match (self.times_ns, other.times_ns) {
            (Some((start, end)), Some((earliest, latest))) => {
                Some((start.min(earliest), end.max(latest)))
            }
            (own, other) => own.or(other),
        };
        Ok(())
    }

    /// Compares the identities, field by field.
    fn check(&self, other: &Self) -> Result<(), MergeError> {
        let seed = |snapshot: &Self| {
            let id = snapshot.options[0].digester.seed().id();
            format!("{} {id}", id.kind())
        };
        let filter = |config: &Config| {
            config.filter.as_ref().map_or_else(String::new, |one| one.expression().to_owned())
        };
        let parameters = |snapshot: &Self| {
            let all = snapshot.summaries.parameters().into_iter();
            all.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(",")
        };
        let (one, two) = (&self.config, &other.config);
        for (field, one, other) in [
            ("measurement", one.name.clone(), two.name.clone()),
            ("key", one.key.to_string(), two.key.to_string()),
            ("by", one.by.name().to_owned(), two.by.name().to_owned()),
            ("algorithm", one.algorithm.clone(), two.algorithm.clone()),
            ("accelerator", self.summaries.accelerator(), other.summaries.accelerator()),
            ("threshold", format!("{:?}", one.threshold), format!("{:?}", two.threshold)),
            ("spread", one.spread.to_string(), two.spread.to_string()),
            ("spread-of", format!("{:?}", one.spread_of), format!("{:?}", two.spread_of)),
            ("hierarchy", format!("{:?}", one.hierarchy), format!("{:?}", two.hierarchy)),
            ("filter", filter(one), filter(two)),
            ("inner", one.inner.to_string(), two.inner.to_string()),
            ("epoch", format!("{:?}", one.epoch), format!("{:?}", two.epoch)),
            ("seed", seed(self), seed(other)),
            ("parameters", parameters(self), parameters(other)),
        ] {
            if one != other {
                return Err(MergeError::Differs { field, one, other });
            }
        }
        let same = |one: &Coverage, other: &Coverage| {
            (&one.host, one.run, one.epoch) == (&other.host, other.run, other.epoch)
        };
        for one in &self.coverage {
            if other.coverage.iter().any(|other| same(one, other)) {
                return Err(MergeError::Overlap { epoch: one.epoch, host: one.host.clone() });
            }
        }
        Ok(())
    }

    /// Answers tasks from the snapshot, and reports them to `sink`. `ask` may name other tasks and list
    /// lengths than the measurement's defaults; what the summaries were built for stays.
    ///
    /// # Errors
    /// When a task is unknown or the summaries cannot answer it, or the report cannot be written.
    pub fn query(
        &mut self,
        ask: impl FnOnce(&mut Config),
        sink: &mut dyn Sink,
    ) -> Result<TotalReport, EngineError> {
        let mut config = self.config.clone();
        ask(&mut config);
        let seed = *self.options[0].digester.seed();
        self.summaries.settle();
        let mut closer = builder::closer(&config, seed, &self.summaries)?;
        let bounds = self.coverage.iter().map(|one| one.bounds_ns);
        let bounds_ns = bounds.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)));
        let ended = Ended {
            epoch: self.coverage.iter().map(|one| one.epoch).min().unwrap_or_default(),
            account: self.account.clone(),
            unmeasured: self.unmeasured,
            bounds_ns: bounds_ns.filter(|_| self.times_ns.is_some()),
            times_ns: self.times_ns,
            ..Ended::default()
        };
        closer.close(ended, &[&self.summaries], sink)?;
        Ok(closer.total)
    }
}

fn unknown(field: &'static str, value: u64) -> SnapshotError {
    SnapshotError::Unknown { field, value }
}
