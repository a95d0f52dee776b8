//! The options of one measurement, and its configuration for the engine.

use clap::Args;
use clap::builder::RangedU64ValueParser;
use flowgauge_core::key::KeySpec;
use flowgauge_core::summary::Parameters;
use flowgauge_core::task::ForecastModel;
use flowgauge_core::terms::{Hierarchy, Measure, SpreadOf, Threshold};
use flowgauge_engine::{Config, EpochLength};
use flowgauge_filter::Filter;

use crate::values::{self, Spec};
use crate::{HOW, WHAT, choice};

/// One measurement: what to measure, and how.
#[derive(Args, Clone)]
pub struct Measurement {
    /// Measure only packets that match, in tcpdump's syntax: 'tcp and port 443'
    #[arg(short, long, value_name = "EXPRESSION", help_heading = WHAT)]
    pub filter: Option<String>,

    /// Group packets into flows by this key: source, destination, host (either end), pair, five-tuple,
    /// conversation (both directions of a five-tuple), protocol, source-port, destination-port, vlan,
    /// tcp-flags, source-mac, destination-mac, mac (either end), or several joined by +
    /// (source/24+destination-port); /LEN or /LEN,LEN keeps prefixes of IPv4, or of IPv4 and IPv6
    /// addresses [default: five-tuple]
    #[arg(long, help_heading = WHAT)]
    pub key: Option<KeySpec>,

    /// Rank flows, and measure thresholds and shares, by packets or bytes [default: packets]
    #[arg(long, help_heading = WHAT,
        value_parser = choice([("packets", Measure::Packets), ("bytes", Measure::Bytes)]))]
    pub by: Option<Measure>,

    /// Answer this task, or several separated by commas; see 'flowgauge list tasks' [default: top,
    /// heavy-hitters, superspreaders, cardinality, entropy and size-distribution, as far as key and
    /// algorithm can answer them]
    #[arg(long, value_name = "NAME", value_delimiter = ',', help_heading = WHAT)]
    pub task: Option<Vec<String>>,

    /// End an epoch after a time (10s, 500ms, 1m) or a number of packets (2000000p), or with the input
    /// (whole) [default: whole; live: 10s]
    #[arg(long, value_name = "LENGTH", value_parser = values::epoch, help_heading = WHAT)]
    pub epoch: Option<EpochLength>,

    /// Report an open epoch after each time (1s) or number of packets (1000000p), if packets arrived
    /// since; not as csv or parquet [default: only at its end]
    #[arg(long, value_name = "LENGTH", value_parser = values::epoch, help_heading = WHAT)]
    pub updates: Option<EpochLength>,

    /// Set the threshold of heavy-hitters, changes and hierarchical: a share of the epoch (0.1%), or a
    /// number of packets or bytes [default: 0.1%]
    #[arg(long, value_name = "SHARE|N", value_parser = values::threshold, help_heading = WHAT)]
    pub threshold: Option<Threshold>,

    /// Set the number of distinct peers that superspreaders and victims exceed [default: 128]
    #[arg(long, value_name = "N", help_heading = WHAT)]
    pub spread: Option<u64>,

    /// Count as peers of superspreaders and victims addresses, ports, or endpoints (an address with a
    /// port) [default: address]
    #[arg(long, value_name = "PEER", value_parser = choice(SpreadOf::ALL), help_heading = WHAT)]
    pub spread_of: Option<SpreadOf>,

    /// Forecast for changes by half the last size and half the last forecast (ewma), the mean of 4 epochs
    /// (moving-average), or with a trend (holt-winters); exact tables support only ewma [default: ewma]
    #[arg(long, value_name = "MODEL", value_parser = choice(ForecastModel::ALL),
        help_heading = WHAT)]
    pub forecast: Option<ForecastModel>,

    /// List at most N items in top and changes, and in each list of a text report [default: 10]
    #[arg(long, value_name = "N", help_heading = WHAT,
        value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    pub top: Option<usize>,

    /// Choose the prefixes of hierarchical: whole bytes, any number of bits, or pairs of source and
    /// destination [default: bytes]
    #[arg(long, value_name = "PREFIXES", value_parser = choice(Hierarchy::ALL),
        help_heading = WHAT)]
    pub hierarchy: Option<Hierarchy>,

    /// Ask flow-size for this flow, with every field of the key, such as
    /// 'source=10.0.0.1,destination=10.0.0.2'; may be repeated
    #[arg(long, value_name = "FIELD=VALUE,…", help_heading = WHAT)]
    pub flow: Vec<String>,

    /// Measure with this algorithm and its parameters: NAME[:k=v,…]; see 'flowgauge list algorithms'.
    /// auto chooses the fastest one that answers the tasks within --error, by trials of a second or two
    /// [default: linear-table]
    #[arg(long, value_name = "NAME", value_parser = values::spec, help_heading = HOW)]
    pub algorithm: Option<Spec>,

    /// Put this accelerator before the algorithm: NAME[:k=v,…] or none; see 'flowgauge list
    /// accelerators'. May be repeated; packets meet the first one first [default: none]
    #[arg(long, value_name = "NAME", value_parser = values::spec, help_heading = HOW)]
    pub accelerator: Vec<Spec>,

    /// With --algorithm auto, limit half the width of bounds: as a share of the traffic for sizes, of the
    /// number itself elsewhere; 0 for exact [default: 0.01%]
    #[arg(long, value_name = "SHARE", value_parser = values::share, help_heading = HOW)]
    pub error: Option<f64>,

    /// With --algorithm auto, keep up with this rate in packets per second, such as 10Mpps
    #[arg(long, value_name = "RATE", value_parser = values::rate, help_heading = HOW)]
    pub rate: Option<f64>,

    /// Also count one flow in N exactly, such as 1/64, and report how far its estimate is off; takes an
    /// eighth of --memory
    #[arg(long, value_name = "1/N", value_parser = values::slice, help_heading = HOW)]
    pub audit: Option<u32>,

    /// Limit the memory for measuring, such as 64MiB or 1GB [default: 256MiB]
    #[arg(long, value_name = "SIZE", value_parser = values::size, help_heading = HOW)]
    pub memory: Option<usize>,
}

impl Measurement {
    /// Takes the options that are not set from `others`.
    #[must_use]
    pub fn or(self, others: &Self) -> Self {
        let several =
            |own: Vec<_>, others: &Vec<_>| if own.is_empty() { others.clone() } else { own };
        Self {
            filter: self.filter.or_else(|| others.filter.clone()),
            key: self.key.or(others.key),
            by: self.by.or(others.by),
            task: self.task.or_else(|| others.task.clone()),
            epoch: self.epoch.or(others.epoch),
            updates: self.updates.or(others.updates),
            threshold: self.threshold.or(others.threshold),
            spread: self.spread.or(others.spread),
            spread_of: self.spread_of.or(others.spread_of),
            forecast: self.forecast.or(others.forecast),
            top: self.top.or(others.top),
            hierarchy: self.hierarchy.or(others.hierarchy),
            flow: if self.flow.is_empty() { others.flow.clone() } else { self.flow },
            algorithm: self.algorithm.or_else(|| others.algorithm.clone()),
            accelerator: several(self.accelerator, &others.accelerator),
            error: self.error.or(others.error),
            rate: self.rate.or(others.rate),
            audit: self.audit.or(others.audit),
            memory: self.memory.or(others.memory),
        }
    }

    /// The configuration with this name and the defaults of the command line. The default epoch is
    /// `epoch`.
    ///
    /// # Errors
    /// With a one-line reason, when options contradict each other or a flow or filter is invalid.
    pub fn config(&self, name: &str, epoch: EpochLength) -> Result<Config, String> {
        let defaults = Config::default();
        check_flows(self.task.as_deref(), &self.flow)?;
        let key = self.key.unwrap_or(defaults.key);
        let flows = self.flow.iter().map(|flow| key.parse_flow(flow)).collect::<Result<_, _>>();
        let filter = self.filter.as_deref().map(Filter::new).transpose();
        let (algorithm, parameters) = match &self.algorithm {
            Some(spec) => (spec.name.clone(), spec.parameters.clone()),
            // The table counts both directions separately if the key has both.
            None if self.accelerator.is_empty()
                && (key.kind().is_in_order() || key.kind().is_either()) =>
            {
                (defaults.algorithm, Parameters::new([("state", "detail")]))
            }
            None => (defaults.algorithm, defaults.parameters),
        };
        Ok(Config {
            name: name.to_owned(),
            key,
            by: self.by.unwrap_or(defaults.by),
            algorithm,
            parameters,
            accelerators: self.accelerators()?,
            memory_bytes: self.memory.unwrap_or(defaults.memory_bytes),
            audit: self.audit,
            tasks: self.task.clone(),
            epoch: self.epoch.unwrap_or(epoch),
            updates: self.updates.unwrap_or(defaults.updates),
            threshold: self.threshold.unwrap_or(defaults.threshold),
            spread: self.spread.unwrap_or(defaults.spread),
            spread_of: self.spread_of.unwrap_or(defaults.spread_of),
            top: self.top.unwrap_or(defaults.top),
            forecast: self.forecast.unwrap_or(defaults.forecast),
            hierarchy: self.hierarchy.unwrap_or(defaults.hierarchy),
            flows: flows.map_err(|error| error.to_string())?,
            filter: filter.map_err(|error| error.to_string())?,
            ..Config::default()
        })
    }

    /// The accelerators in order; `none` must be alone.
    fn accelerators(&self) -> Result<Vec<(String, Parameters)>, String> {
        match &self.accelerator[..] {
            [one] if one.name == "none" && one.parameters == Parameters::default() => {
                Ok(Vec::new())
            }
            all if all.iter().any(|one| one.name == "none") => {
                Err("--accelerator none takes no parameters and no other accelerator; leave them \
                     out"
                .to_owned())
            }
            all => Ok(all.iter().map(|one| (one.name.clone(), one.parameters.clone())).collect()),
        }
    }
}

/// Checks that flows are given if and only if the tasks include `flow-size`.
///
/// # Errors
/// With a one-line reason.
pub fn check_flows(tasks: Option<&[String]>, flows: &[String]) -> Result<(), String> {
    let asked = tasks.into_iter().flatten().any(|task| task == "flow-size");
    if asked == flows.is_empty() {
        let message = "--task flow-size needs --flow, and --flow needs --task flow-size; give both";
        return Err(message.to_owned());
    }
    Ok(())
}
