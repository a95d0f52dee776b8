//! The command line.

use std::env;
use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args, Parser, Subcommand};
use flowgauge_core::catalog::ALGORITHMS;

use crate::accuracy::plan::{Form, PROFILES};
use crate::accuracy::table::Row;
use crate::speed::ORDERS;

/// Measure the accuracy and the speed of every algorithm, and check them against earlier results
#[derive(Parser)]
#[command(
    name = "flowgauge-lab",
    version,
    after_help = "Exit codes: 0 fine, 1 the gate found a row that is worse or the check one \
                  that is too slow, 2 anything else."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Write a table with a row for each algorithm, task and profile of traffic
    ///
    /// Bias, root mean square (rms) and worst are of relative errors: of the sizes of the flows
    /// that are truly heavy (or changed, spread) and were named, of the number of flows, of the
    /// bits of entropy. For size-distribution the error is the weighted mean relative error, for
    /// quantiles that of the rank. Precision and recall are of the flows named. Of bounds that hold
    /// always (sure) and of those with a confidence (likely, the lowest stated) the table says how
    /// many failed of how many.
    Accuracy(Accuracy),
    /// Measure the small form again, and fail where a row is worse than in an earlier table
    Gate(Gate),
    /// Measure updates per second, beside hand-written loops and other implementations
    ///
    /// All on one core, from keys in memory, in CPU time, medians over interleaved rounds. `share` is
    /// of the rate of the yardstick: a plain loop that counts into a Count-Min of 4 x 65536. `ratio`
    /// is the time of the algorithm over that of a hand-written loop of the same work, of a sampler
    /// over that of a loop that reads all keys; `speedup` is its rate over that of another implementation, or of itself alone where something accelerates it.
    Speed(Speed),
    /// Measure where Agg-Evict pays: rates by structure, traffic, length of runs and rows
    ///
    /// `evicted` is the share of the packets that reaches the structure as a sum, `speedup` the rate over
    /// that of the structure alone, `link_gbit` the fastest Ethernet whose smallest packets one core
    /// keeps up with, and `best` marks the fastest of a structure on a stream.
    Sweep(Sweep),
    /// Measure other projects' structures beside ours: updates per second and errors
    ///
    /// All get the same keys in the same order and equal memory, and take turns on one core in every round.
    /// Times are CPU times. Errors are relative: of the sizes of flows with more than 0.1 % of the packets, or
    /// of the number of flows.
    Peers(Peers),
    /// List every experiment: the papers' figures
    List,
    /// Measure the papers' figures again, and say whether their claims hold on this machine
    ///
    /// Each figure gets a table, a picture and a page. A report beside the folder joins all pages.
    Run(Run),
    /// Judge and draw earlier measurements again, from the tables in a folder
    Judge(Judge),
}

#[derive(Args)]
pub(crate) struct Run {
    /// Experiments as `list` names them, or all
    #[arg(required = true, value_name = "NAME")]
    pub(crate) names: Vec<String>,

    /// Smaller epochs, fewer sizes and rounds: half an hour for all of them (the default)
    #[arg(long)]
    pub(crate) quick: bool,

    /// The papers' epochs and sizes: up to 15 minutes for most figures on two cores, an hour for skipper/fig3
    #[arg(long, conflicts_with = "quick")]
    pub(crate) full: bool,

    /// Seed of traffic and digests
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Packets to take instead of those of a generated backbone: a capture, or with --key-bytes a file
    /// of keys; sweeps over skews stay generated
    #[arg(long, value_name = "FILE")]
    pub(crate) keys: Option<PathBuf>,

    /// Bytes of each key: 4 (source), 8 (addresses) or 13 (addresses, ports, protocol)
    #[arg(long, value_name = "N", requires = "keys", value_parser = key_bytes)]
    pub(crate) key_bytes: Option<usize>,

    /// The folder of an Open vSwitch with flowgauge inside [default: where 'make ovs' builds it]
    #[arg(long, value_name = "DIR")]
    switch: Option<PathBuf>,

    /// The folder for the files
    #[arg(short, long, value_name = "DIR", default_value = "docs/lab")]
    pub(crate) output: PathBuf,

    /// Skip experiments whose page in the folder was made with the same options
    #[arg(long)]
    pub(crate) resume: bool,
}

#[derive(Args)]
pub(crate) struct Judge {
    /// Experiments as `list` names them, or all
    #[arg(required = true, value_name = "NAME")]
    pub(crate) names: Vec<String>,

    /// The folder of the files
    #[arg(short, long, value_name = "DIR", default_value = "docs/lab")]
    pub(crate) folder: PathBuf,
}

impl Run {
    /// The folder of the switch.
    pub(crate) fn switch(&self) -> Option<PathBuf> {
        let cache = || match env::var_os("XDG_CACHE_HOME").filter(|cache| !cache.is_empty()) {
            Some(cache) => Some(PathBuf::from(cache)),
            None => env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")),
        };
        self.switch.clone().or_else(|| Some(cache()?.join("flowgauge/ovs-3.1/switch")))
    }
}

fn key_bytes(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(bytes @ (4 | 8 | 13)) => Ok(bytes),
        _ => Err("must be 4, 8 or 13".to_owned()),
    }
}

#[derive(Args)]
pub(crate) struct Accuracy {
    /// Packets of an epoch; without --packets, --seeds and --small come the full form (2500000
    /// packets, 3 seeds) and then the small one
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1000..))]
    packets: Option<u64>,

    /// Streams of each profile, every one with a seed of its own for the algorithms too
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    seeds: Option<u64>,

    /// The form that the gate measures: 200000 packets, 1 seed, zipf-1.1 and backbone
    #[arg(long, conflicts_with_all = ["packets", "seeds"])]
    small: bool,

    #[command(flatten)]
    pub(crate) selection: Selection,

    /// Write the table to FILE [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct Gate {
    /// The earlier table
    #[arg(long, value_name = "FILE")]
    pub(crate) baseline: PathBuf,

    #[command(flatten)]
    pub(crate) selection: Selection,
}

#[derive(Args)]
pub(crate) struct Speed {
    /// The profile of the traffic
    #[arg(long, value_name = "NAME", default_value = ORDERS[0].name,
        value_parser = PossibleValuesParser::new(ORDERS.iter().map(|order| order.name)))]
    pub(crate) profile: String,

    /// Measure N packets in a round, after 26 million that only introduce the flows
    #[arg(long, value_name = "N", default_value_t = 4_000_000,
        value_parser = clap::value_parser!(u64).range(256..))]
    pub(crate) packets: u64,

    /// Write the medians of N rounds
    #[arg(long, value_name = "N", default_value_t = 7,
        value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) rounds: u64,

    /// Only these algorithms
    #[arg(long = "algorithm", value_name = "NAME", value_delimiter = ',',
        value_parser = PossibleValuesParser::new(ALGORITHMS.iter().map(|info| info.name)))]
    pub(crate) algorithms: Vec<String>,

    /// Write the table also to FILE
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// Exit with 1 if a number misses its target
    #[arg(long)]
    pub(crate) check: bool,
}

#[derive(Args)]
pub(crate) struct Peers {
    /// Packets of the stream
    #[arg(long, value_name = "N", default_value_t = 4_000_000,
        value_parser = clap::value_parser!(u64).range(1000..))]
    pub(crate) packets: u64,

    /// Write the medians of N rounds
    #[arg(long, value_name = "N", default_value_t = 7,
        value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) rounds: u64,

    /// Seed of traffic and digests
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Write the table also to FILE, with tabs, and in Markdown beside it
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct Sweep {
    /// Packets of each stream
    #[arg(long, value_name = "N", default_value_t = 4_000_000,
        value_parser = clap::value_parser!(u64).range(256..))]
    pub(crate) packets: u64,

    /// Write the medians of N rounds
    #[arg(long, value_name = "N", default_value_t = 3,
        value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) rounds: u64,

    /// Write the table also to FILE
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// The selection of profiles and algorithms to measure.
#[derive(Args)]
pub(crate) struct Selection {
    /// Only these profiles of traffic
    #[arg(long = "profile", value_name = "NAME", value_delimiter = ',',
        value_parser = PossibleValuesParser::new(PROFILES.iter().map(|profile| profile.name)))]
    pub(crate) profiles: Vec<String>,

    /// Only these algorithms
    #[arg(long = "algorithm", value_name = "NAME", value_delimiter = ',',
        value_parser = PossibleValuesParser::new(ALGORITHMS.iter().map(|info| info.name)))]
    pub(crate) algorithms: Vec<String>,
}

impl Selection {
    /// Whether it includes this row.
    pub(crate) fn has(&self, row: &Row) -> bool {
        let among =
            |names: &[String], name: &str| names.is_empty() || names.iter().any(|n| n == name);
        among(&self.profiles, &row.profile) && among(&self.algorithms, row.own_algorithm())
    }
}

impl Accuracy {
    /// The forms to run.
    pub(crate) fn forms(&self) -> Vec<Form> {
        let (full, small) = (Form::full(&self.selection), Form::small(&self.selection));
        match (self.packets, self.seeds) {
            _ if self.small => vec![small],
            (None, None) => vec![full, small],
            (packets, seeds) => vec![Form {
                packets: packets.unwrap_or(full.packets),
                seeds: seeds.unwrap_or(full.seeds),
                ..full
            }],
        }
    }
}
