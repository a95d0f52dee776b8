//! One measurement by its options, and what it asks of the engine.

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

    /// What makes packets one flow: source, destination, host (either end), pair, five-tuple,
    /// conversation (both directions of a five-tuple), protocol, source-port, destination-port, vlan,
    /// tcp-flags, source-mac, destination-mac, mac (either end), or several joined by +
    /// (source/24+destination-port); /LEN or /LEN,LEN keeps prefixes of IPv4 or of IPv4 and IPv6
    /// addresses [default: five-tuple]
    #[arg(long, help_heading = WHAT)]
    pub key: Option<KeySpec>,

    /// The measure of thresholds, shares and order [default: packets]
    #[arg(long, help_heading = WHAT,
        value_parser = choice([("packets", Measure::Packets), ("bytes", Measure::Bytes)]))]
    pub by: Option<Measure>,

    /// What to answer; see 'flowgauge list' [default: those that key and algorithm can answer of
    /// top, heavy-hitters, superspreaders, cardinality, entropy and size-distribution]
    #[arg(long, value_name = "NAME", value_delimiter = ',', help_heading = WHAT)]
    pub task: Option<Vec<String>>,

    /// Where an epoch ends: whole, after a time (10s, 500ms, 1m) or after packets (2000000p)
    /// [default: whole; live: 10s]
    #[arg(long, value_name = "LENGTH", value_parser = values::epoch, help_heading = WHAT)]
    pub epoch: Option<EpochLength>,

    /// How often an epoch is reported so far while it goes on: each time (1s) or packets (1000000p) of
    /// it; not where there was no packet since, nor as csv [default: only at its end]
    #[arg(long, value_name = "LENGTH", value_parser = values::epoch, help_heading = WHAT)]
    pub updates: Option<EpochLength>,

    /// What heavy-hitters, changes and hierarchical exceed: a share of the epoch (0.1%), or a
    /// number of packets or bytes [default: 0.1%]
    #[arg(long, value_name = "SHARE|N", value_parser = values::threshold, help_heading = WHAT)]
    pub threshold: Option<Threshold>,

    /// How many distinct peers superspreaders and victims exceed [default: 128]
    #[arg(long, value_name = "N", help_heading = WHAT)]
    pub spread: Option<u64>,

    /// What superspreaders and victims count as a peer: an address, a port, or an endpoint, which is an
    /// address with a port [default: address]
    #[arg(long, value_name = "PEER", value_parser = choice(SpreadOf::ALL), help_heading = WHAT)]
    pub spread_of: Option<SpreadOf>,

    /// How changes forecasts: half the last size and half the last forecast, the mean of 4 epochs,
    /// or with a trend; flows of a table by ewma only [default: ewma]
    #[arg(long, value_name = "MODEL", value_parser = choice(ForecastModel::ALL),
        help_heading = WHAT)]
    pub forecast: Option<ForecastModel>,

    /// Most items in top and changes, and in a list of the text report [default: 10]
    #[arg(long, value_name = "N", help_heading = WHAT,
        value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    pub top: Option<usize>,

    /// The prefixes of hierarchical: by whole bytes, of any length, or source and destination
    /// [default: bytes]
    #[arg(long, value_name = "PREFIXES", value_parser = choice(Hierarchy::ALL),
        help_heading = WHAT)]
    pub hierarchy: Option<Hierarchy>,

    /// A flow that flow-size is asked for, such as 'source=10.0.0.1,destination=10.0.0.2' with
    /// every field of the key; may be repeated
    #[arg(long, value_name = "FIELD=VALUE,…", help_heading = WHAT)]
    pub flow: Vec<String>,

    /// What measures, with its parameters: NAME[:k=v,…]; see 'flowgauge list'. With auto the fastest
    /// is chosen that answers the tasks within --error, by trials of a second or two
    /// [default: linear-table]
    #[arg(long, value_name = "NAME", value_parser = values::spec, help_heading = HOW)]
    pub algorithm: Option<Spec>,

    /// What stands before it and makes it cheaper, with its parameters: NAME[:k=v,…] or none; may be
    /// repeated, packets meet the first one first [default: none]
    #[arg(long, value_name = "NAME", value_parser = values::spec, help_heading = HOW)]
    pub accelerator: Vec<Spec>,

    /// Half the width that bounds may have under --algorithm auto: of the traffic for sizes, of the
    /// number itself elsewhere; 0 for exact [default: 0.01%]
    #[arg(long, value_name = "SHARE", value_parser = values::share, help_heading = HOW)]
    pub error: Option<f64>,

    /// Packets a second that --algorithm auto must keep up with, such as 10Mpps
    #[arg(long, value_name = "RATE", value_parser = values::rate, help_heading = HOW)]
    pub rate: Option<f64>,

    /// The memory reserved for measuring, such as 64MiB or 1GB [default: 256MiB]
    #[arg(long, value_name = "SIZE", value_parser = values::size, help_heading = HOW)]
    pub memory: Option<usize>,
}

impl Measurement {
    /// The same, with the options of `others` where it sets none itself.
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
            memory: self.memory.or(others.memory),
        }
    }

    /// What the engine is asked for under this name, with the defaults of the command line. An epoch
    /// that is not given is `epoch`.
    ///
    /// # Errors
    /// With the reason in one line, when options do not go together or a flow or filter is not
    /// understood.
    pub fn config(&self, name: &str, epoch: EpochLength) -> Result<Config, String> {
        let defaults = Config::default();
        check_flows(self.task.as_deref(), &self.flow)?;
        let key = self.key.unwrap_or(defaults.key);
        let flows = self.flow.iter().map(|flow| key.parse_flow(flow)).collect::<Result<_, _>>();
        let filter = self.filter.as_deref().map(Filter::new).transpose();
        let (algorithm, parameters) = match &self.algorithm {
            Some(spec) => (spec.name.clone(), spec.parameters.clone()),
            // The table says what went each way, where the key has both.
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

    /// The accelerators asked for; `none` stands alone.
    fn accelerators(&self) -> Result<Vec<(String, Parameters)>, String> {
        match &self.accelerator[..] {
            [one] if one.name == "none" && one.parameters == Parameters::default() => {
                Ok(Vec::new())
            }
            all if all.iter().any(|one| one.name == "none") => {
                Err("--accelerator none has neither parameters nor another one beside it"
                    .to_owned())
            }
            all => Ok(all.iter().map(|one| (one.name.clone(), one.parameters.clone())).collect()),
        }
    }
}

/// Checks that flows are given where `flow-size` is asked, and only there.
///
/// # Errors
/// With the reason in one line.
pub fn check_flows(tasks: Option<&[String]>, flows: &[String]) -> Result<(), String> {
    let asked = tasks.into_iter().flatten().any(|task| task == "flow-size");
    if asked == flows.is_empty() {
        let message = "the task flow-size and the flows to measure go together: --task flow-size \
                       --flow …";
        return Err(message.to_owned());
    }
    Ok(())
}
