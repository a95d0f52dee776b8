//! The options of a run, which every measuring program shares.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::RangedU64ValueParser;
use flowgauge_core::packet::Tunnels;
use flowgauge_core::summary::Parameters;
use flowgauge_core::task::OVERVIEW;
use flowgauge_engine::auto::Wanted;
use flowgauge_engine::seed::{self, SeedError};
use flowgauge_engine::{Config, Dispatch, EpochLength, Overrun};
use flowgauge_kernel::Seed;

use crate::{HOW, INPUT, MAIN, Measurement, Named, OUTPUT, WHAT, choice};

/// Whose bytes a tunneled packet counts, by name.
const BYTES_OF: [(&str, Tunnels); 2] = [("outer", Tunnels::Inner), ("inner", Tunnels::InnerBytes)];

/// How to run, and what to measure.
#[derive(Args, Clone)]
pub struct Running {
    /// Stop after N packets that pass the filter
    #[arg(short = 'c', value_name = "N", help_heading = INPUT,
        value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,

    /// Measure the packet inside a tunnel (GRE, VXLAN, Geneve, GTP-U, Teredo, IP in IP)
    #[arg(long, help_heading = INPUT)]
    pub inner: bool,

    /// With --inner, count the bytes of the whole frame (outer), or leave out the headers of the tunnel,
    /// from the outer IP header up to the inner one (inner) [default: outer]
    #[arg(long, value_name = "PACKET", value_parser = choice(BYTES_OF), help_heading = INPUT,
        requires = "inner")]
    pub bytes_of: Option<Tunnels>,

    /// Add a measurement: a name, and options below without their dashes, such as 'scanners: key=source
    /// task=superspreaders memory=16MiB'; quote values with spaces. May be repeated; all run in one pass.
    /// Options outside it apply to every measurement that does not set them
    #[arg(long, value_name = "NAME: OPTION=VALUE …", help_heading = WHAT)]
    pub measure: Vec<String>,

    /// Read measurements from a YAML file; see docs/config.schema.json
    #[arg(short = 'C', long = "config", value_name = "FILE", help_heading = WHAT)]
    pub config: Option<PathBuf>,

    /// Choose the tasks: overview begins with what stands out, and lists flows, sources and destinations;
    /// flows answers only the default tasks [default: overview; flows with --key, --task, --algorithm,
    /// --accelerator, --measure or --config]
    #[arg(long, value_name = "NAME", value_parser = choice(Preset::ALL), help_heading = WHAT,
        conflicts_with_all = ["task", "measure", "config"])]
    pub preset: Option<Preset>,

    /// The options of every measurement that does not set them.
    #[command(flatten)]
    pub measurement: Measurement,

    /// Measure with N threads: each measures a part of the input, or they take turns reading it, or one
    /// reads for all
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = HOW,
        value_parser = RangedU64ValueParser::<usize>::new().range(1..=256))]
    pub workers: usize,

    /// Let all workers fill one concurrent summary instead of one each: slower, but the summary gets all
    /// the memory
    #[arg(long, help_heading = HOW)]
    pub shared: bool,

    /// Assign packets to workers by the digest of their key (digest), or in whole batches by turns (queue)
    /// [default: digest; queue behind a sampler and with --shared]
    #[arg(long, value_name = "BY", value_parser = choice(Dispatch::ALL), help_heading = HOW)]
    pub dispatch: Option<Dispatch>,

    /// Wait when the queue of a worker is full, or drop packets and count them
    #[arg(long, value_name = "WHAT", default_value = "wait", value_parser = choice(Overrun::ALL),
        help_heading = HOW)]
    pub overrun: Overrun,

    /// Pin each worker to a core of its own
    #[arg(long, help_heading = HOW)]
    pub pin: bool,

    /// Seed the hash with N, for tests and comparisons: a sender who knows N can make packets that collide
    /// [default: 256 random bits from the operating system at each start]
    #[arg(long, value_name = "N", conflicts_with = "seed_file", help_heading = HOW)]
    pub seed: Option<u64>,

    /// Seed the hash with the bytes of FILE, at least 16, which only its owner may read: for hosts whose
    /// snapshots will be merged
    #[arg(long, value_name = "FILE", help_heading = HOW)]
    pub seed_file: Option<PathBuf>,

    /// List at most N items, and say how many were left out; 0 lists all, with memory for all of them (not
    /// for live)
    #[arg(long, value_name = "N", default_value_t = 10_000, help_heading = OUTPUT)]
    pub limit: usize,
}

/// The tasks of a run that names none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// Findings, flows and addresses.
    Overview,
    /// The default tasks of the key and the algorithm.
    Flows,
}

impl Preset {
    /// All of them, by name.
    const ALL: [(&'static str, Self); 2] = [("overview", Self::Overview), ("flows", Self::Flows)];
}

/// A measurement of the options, with its configuration.
pub struct Asked {
    /// Its options.
    pub measurement: Measurement,
    /// Its configuration.
    pub config: Config,
    /// A one-line note if another algorithm replaces the default one, which does not answer the
    /// tasks.
    pub note: Option<String>,
}

/// Why options are refused. The text is the message to show.
#[derive(Debug)]
pub enum Refusal {
    /// They name something unknown or contradict each other.
    Usage(String),
    /// A file that they name cannot be read.
    Unreadable(String),
}

/// Default of `--error`: a tenth of the default threshold.
const ERROR: f64 = 0.0001;

/// The name that lets the engine choose an algorithm.
const AUTO: &str = "auto";

impl Asked {
    /// The requirements for the choice of an algorithm; `None` if one is named.
    ///
    /// # Errors
    /// When requirements are given with a named algorithm, or parameters without one.
    pub fn wanted(&self) -> Result<Option<Wanted>, Refusal> {
        let Self { measurement, config, .. } = self;
        if config.algorithm != AUTO {
            let given = measurement.error.is_some() || measurement.rate.is_some();
            return if given {
                Err(Refusal::Usage("--error and --rate need --algorithm auto".to_owned()))
            } else {
                Ok(None)
            };
        }
        if config.parameters != Parameters::default() || !config.accelerators.is_empty() {
            let text =
                "--algorithm auto chooses parameters and accelerators by itself; leave them out";
            return Err(Refusal::Usage(text.to_owned()));
        }
        let error = measurement.error.unwrap_or(ERROR);
        Ok(Some(Wanted { error, rate: measurement.rate }))
    }
}

impl Running {
    /// Which packet of a tunnel is measured, and whose bytes it counts.
    pub fn tunnels(&self) -> Tunnels {
        if self.inner { self.bytes_of.unwrap_or(Tunnels::Inner) } else { Tunnels::Outer }
    }

    /// The measurements of the options. The default epoch is `epoch`; with `save`, closed epochs
    /// are stored too.
    ///
    /// ```
    /// use clap::{Args, Command, FromArgMatches};
    /// use flowgauge_engine::EpochLength;
    /// use flowgauge_options::Running;
    ///
    /// let command = Running::augment_args(Command::new("measure"));
    /// let options = ["measure", "--key", "source", "--memory", "16MiB", "--seed", "1"];
    /// let running = Running::from_arg_matches(&command.try_get_matches_from(options)?)?;
    /// let measurements = running.configs(EpochLength::Whole, false).map_err(|_| "refused")?;
    /// assert_eq!(measurements[0].config.key.to_string(), "source");
    /// assert_eq!(measurements[0].config.memory_bytes, 16 << 20);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When options contradict each other, or a file that they name cannot be read.
    pub fn configs(&self, epoch: EpochLength, save: bool) -> Result<Vec<Asked>, Refusal> {
        if self.workers == 1
            && (self.shared || self.dispatch.is_some() || self.overrun == Overrun::Drop)
        {
            let message =
                "--shared, --dispatch and --overrun need several workers; give --workers 2 or more";
            return Err(Refusal::Usage(message.to_owned()));
        }
        let all = self.measurements()?;
        let one = all.len() == 1;
        let asked = |Named { name, measurement }| {
            let (config, note) =
                self.config(&name, &measurement, epoch, save).map_err(|refusal| match refusal {
                    Refusal::Usage(message) if !one => Refusal::Usage(format!("{name}: {message}")),
                    other => other,
                })?;
            Ok(Asked { measurement, config, note })
        };
        all.into_iter().map(asked).collect()
    }

    /// The measurements of the options, in order.
    fn measurements(&self) -> Result<Vec<Named>, Refusal> {
        let mut all = match &self.config {
            Some(path) => read(path)?,
            None => Vec::new(),
        };
        for text in &self.measure {
            let named = crate::parse(text);
            all.push(named.map_err(|reason| Refusal::Usage(format!("--measure: {reason}")))?);
        }
        if all.is_empty() {
            let mut measurement = self.measurement.clone();
            if self.preset() == Preset::Overview {
                measurement.task = Some(OVERVIEW.map(str::to_owned).to_vec());
            }
            return Ok(vec![Named { name: MAIN.to_owned(), measurement }]);
        }
        for named in &mut all {
            named.measurement = named.measurement.clone().or(&self.measurement);
        }
        Ok(all)
    }

    /// The preset. Options that name a key, a task or an algorithm imply `flows`.
    fn preset(&self) -> Preset {
        let Measurement { key, task, algorithm, accelerator, .. } = &self.measurement;
        let plain =
            key.is_none() && task.is_none() && algorithm.is_none() && accelerator.is_empty();
        self.preset.unwrap_or(if plain { Preset::Overview } else { Preset::Flows })
    }

    fn config(
        &self,
        name: &str,
        measurement: &Measurement,
        epoch: EpochLength,
        save: bool,
    ) -> Result<(Config, Option<String>), Refusal> {
        let mut config = Config {
            list_limit: if self.limit == 0 { usize::MAX } else { self.limit },
            tunnels: self.tunnels(),
            limit: self.count,
            seed: self.seed()?,
            workers: self.workers,
            shared: self.shared,
            dispatch: self.dispatch,
            overrun: self.overrun,
            pin: self.pin,
            services: true,
            save,
            ..measurement.config(name, epoch).map_err(Refusal::Usage)?
        };
        if measurement.algorithm.is_some() {
            return Ok((config, None));
        }
        if self.shared {
            // Concurrent summaries have no state but counters.
            config.parameters = Parameters::default();
        }
        let Some((instead, chosen)) = flowgauge_engine::capable(&config) else {
            return Ok((config, None));
        };
        let unanswered = config.tasks.iter().flatten().filter(|task| {
            let alone = Config { tasks: Some(vec![(*task).clone()]), ..config.clone() };
            flowgauge_engine::capable(&alone).is_some()
        });
        let tasks: Vec<_> = unanswered.map(String::as_str).collect();
        let note = format!(
            "using --algorithm {chosen}: {} does not answer {} by {}",
            config.algorithm,
            tasks.join(", "),
            config.key
        );
        Ok((instead, Some(note)))
    }

    /// The seed of the options.
    fn seed(&self) -> Result<Option<Seed>, Refusal> {
        match &self.seed_file {
            None => Ok(self.seed.map(Seed::number)),
            Some(path) => seed::from_file(path).map(Some).map_err(|error| match error {
                SeedError::Unreadable { .. } => Refusal::Unreadable(error.to_string()),
                SeedError::Open { .. } | SeedError::Size { .. } => {
                    Refusal::Usage(error.to_string())
                }
            }),
        }
    }
}

/// The measurements of a YAML file.
fn read(path: &Path) -> Result<Vec<Named>, Refusal> {
    let name = path.display();
    let text = fs::read_to_string(path)
        .map_err(|error| Refusal::Unreadable(format!("cannot read {name}: {error}")))?;
    crate::parse_yaml(&text).map_err(|reason| Refusal::Usage(format!("{name}: {reason}")))
}
