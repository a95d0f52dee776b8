//! The command line.

use std::path::PathBuf;
use std::sync::LazyLock;

use clap::builder::RangedU64ValueParser;
use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use flowgauge_core::key::KeySpec;
use flowgauge_filter::Filter;
use flowgauge_kernel::Isa;
use flowgauge_live::Fanout;
use flowgauge_options::{INPUT, Measurement, OUTPUT, Running, choice, values as common};
use flowgauge_synthetic::{Plant, Size};

use crate::failure::Failure;
use crate::live::Engine;
use crate::values::{self, Color, Destination, Format, ProfileName, Topic};

/// The version, and the instruction set that this process uses.
static VERSION: LazyLock<String> =
    LazyLock::new(|| format!("{} (instruction set {})", env!("CARGO_PKG_VERSION"), Isa::best()));

/// Measure network traffic in fixed memory
///
/// Find heavy flows, superspreaders and changes, count flows, and estimate their sizes and entropy. Memory
/// is fixed at start, estimates carry bounds, and every packet is accounted for.
#[derive(Parser)]
#[command(
    name = "flowgauge",
    version = VERSION.as_str(),
    subcommand_required = true,
    arg_required_else_help = true,
    disable_help_subcommand = true,
    after_help = "\
Exit codes: 0 success, 1 failure, 2 wrong usage, 3 damaged or truncated input.

Examples:
  flowgauge analyze trace.pcap                          what stands out in a capture
  flowgauge live -i eth0                                a report every 10 seconds
  flowgauge analyze --help                              all options, with examples"
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Read captures (pcap or pcapng, plain, .gz or .zst) and report their traffic
    #[command(after_help = "\
Examples:
  flowgauge analyze trace.pcap                          what stands out, and the hosts behind it
  flowgauge analyze --key source --by bytes trace.pcap  the sources that send most bytes
  flowgauge analyze --filter 'dst host 10.0.0.7' --epoch 10s trace.pcap.gz
  flowgauge analyze -r trace.pcap tcp port 443          a filter at the end, as for tcpdump
  flowgauge analyze --format html -o report.html trace.pcap  a page with plots
  tcpdump -w - | flowgauge analyze -                    read from a pipe")]
    Analyze(Reading),
    /// Measure the traffic of an interface, and report it at the end of each epoch
    ///
    /// Runs until interrupted (Ctrl-C), then prints the total: packets received, dropped by the kernel, and
    /// measured. The signal USR1 prints the last report to standard error. Needs root or the capability
    /// CAP_NET_RAW.
    #[command(after_help = "\
Examples:
  flowgauge live -i eth0                                a report every 10 seconds
  flowgauge live -i any --epoch 1m --format json -o traffic.json
  flowgauge live -i eth0 --key source --task top udp port 53")]
    Live(Live),
    /// Write a synthetic capture with known counts
    #[command(after_help = "\
Examples:
  flowgauge generate --packets 1000000 -o trace.pcap
  flowgauge generate --plant flood:sources=5000 --truth truth.json -o flood.pcap")]
    Generate(Generation),
    /// Cut a large capture into parts that several readers measure
    ///
    /// A part begins at a record: all places where one may begin are followed until they lead to the same
    /// record. What cannot be cut for certain is one part, with the reason: compressed captures, small
    /// ones, and those in which a record may begin at several places. A part is proved where the part
    /// before it ends without an error.
    #[command(after_help = "\
Examples:
  flowgauge cut --parts 8 trace.pcap                    offsets and lengths
  flowgauge cut --parts 8 --format json trace.pcap      one JSON object per part")]
    Cut(Cutting),
    /// List algorithms, accelerators, tasks and keys, and how they combine
    #[command(after_help = "\
Examples:
  flowgauge list                                        everything
  flowgauge list algorithms                             algorithms, their parameters and memory
  flowgauge list --format json                          one JSON object per line")]
    List(Listing),
    /// Answer tasks from stored epochs
    ///
    /// Several snapshots are merged first, as by 'flowgauge merge'. Where the algorithm's summaries cannot
    /// be merged, each snapshot is answered by itself.
    #[command(after_help = "\
Examples:
  flowgauge query --task top,entropy day/*.fgs          several epochs, merged
  flowgauge query --key source/24 day/*.fgs             by a coarser key than measured
  flowgauge query data --measurement talkers --from 1h --step 1m --task entropy
                                                        an agent's last hour, minute by minute")]
    Query(Query),
    /// Merge stored epochs of one measurement
    #[command(after_help = "\
Examples:
  flowgauge merge --seed-file seed -o day.fgs day/*.fgs")]
    Merge(Merging),
    /// Show what would run with these options, and its memory; run nothing
    #[command(after_help = "\
Examples:
  flowgauge explain --memory 64M --key source/24
  flowgauge explain --algorithm count-min:epsilon=0.0001,delta=0.01 --task heavy-hitters")]
    Explain(Reading),
    /// Run an agent: measure, keep epochs and report for years, as a file says
    ///
    /// HUP reads the file again, which takes effect at the end of an epoch. USR1 prints the last reports to
    /// standard error. Exit codes beyond the usual: 4 a source cannot be opened, 5 an output cannot be
    /// written.
    #[command(after_help = "\
Examples:
  flowgauge run -C flowgauge.yaml
  flowgauge run -C flowgauge.yaml --set sinks.prometheus.listen=127.0.0.1:9000")]
    Run(Agent),
    /// Merge the snapshots of many agents from Kafka, and report on the whole network, as a file says
    ///
    /// HUP reads the file again. USR1 prints the last reports to standard error. Exit codes beyond the
    /// usual: 4 the topic cannot be read, 5 an output cannot be written.
    #[command(after_help = "\
Examples:
  flowgauge collect -C collect.yaml
  flowgauge collect -C collect.yaml --set collect.delay=10s")]
    Collect(Agent),
    /// Serve an agent in its sandbox: open packet sockets, run programs of alerts
    #[command(name = "sandbox-helper", hide = true)]
    Helper(Agent),
    /// Show the last reports of an agent, an interface or a replayed capture in the terminal
    #[command(after_help = "\
Examples:
  flowgauge top data                                    the agent whose folder is data
  flowgauge top -i eth0 --key source                    an interface, without an agent
  flowgauge top -r trace.pcap                           a capture, at its own pace")]
    Top(Top),
    /// Check the file of an agent or a collector, and show what it would run and its memory
    #[command(after_help = "\
Examples:
  flowgauge check flowgauge.yaml
  flowgauge check flowgauge.yaml --set sinks.files.keep=1d")]
    Check(Checked),
    /// Print a completion script for a shell
    #[command(after_help = "\
Examples:
  flowgauge completions bash > /etc/bash_completion.d/flowgauge")]
    Completions {
        /// Complete commands of this shell
        shell: Shell,
    },
    /// Print the manual page
    #[command(after_help = "\
Examples:
  flowgauge man | man -l -")]
    Man,
}

/// Captures to measure.
#[derive(Args)]
pub(crate) struct Reading {
    /// Captures ('-' is standard input); after -r, the words of a filter
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,

    /// Read a capture, and a filter from the end of the line, as tcpdump does: -r FILE tcp port 80; may be
    /// repeated
    #[arg(short = 'r', value_name = "FILE", help_heading = INPUT)]
    pub(crate) read: Vec<PathBuf>,

    /// Read captures in the order given [default: in the order of their first packets, unless one is
    /// standard input]
    #[arg(long, help_heading = INPUT)]
    pub(crate) as_given: bool,

    #[command(flatten)]
    pub(crate) run: Run,
}

impl Reading {
    /// The trailing words that form a filter instead of naming captures.
    fn misplaced(&self) -> Option<String> {
        let captures = self.files.iter().rposition(|file| file.exists()).map_or(0, |last| last + 1);
        let words = |from: usize| joined(&self.files[from..]);
        (captures..self.files.len()).map(words).find(|words| Filter::new(words).is_ok())
    }
}

/// Words of the command line, joined by spaces.
fn joined(words: &[PathBuf]) -> String {
    words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

impl Command {
    /// Sets `--filter` from a filter at the end of the command line.
    pub(crate) fn settle(&mut self) -> Result<(), Failure> {
        let (words, run) = match self {
            Self::Analyze(reading) | Self::Explain(reading) if !reading.read.is_empty() => {
                let words = std::mem::replace(&mut reading.files, reading.read.clone());
                (joined(&words), &mut reading.run)
            }
            Self::Analyze(reading) | Self::Explain(reading) => {
                return reading.misplaced().map_or(Ok(()), |words| {
                    let message = format!("no file '{words}'; for a filter, write -r FILE {words}");
                    Err(Failure::Usage(message))
                });
            }
            Self::Live(live) => (std::mem::take(&mut live.expression).join(" "), &mut live.run),
            _ => return Ok(()),
        };
        let filter = &mut run.running.measurement.filter;
        match (words.is_empty(), &filter) {
            (true, _) => {}
            (false, None) => *filter = Some(words),
            (false, Some(_)) => {
                let message = "a filter is given both by --filter and at the end; leave one out";
                return Err(Failure::Usage(message.to_owned()));
            }
        }
        Ok(())
    }
}

/// Interfaces to measure.
#[derive(Args)]
#[expect(clippy::struct_excessive_bools, reason = "options, each independent of the others")]
pub(crate) struct Live {
    /// Words of a filter, as for tcpdump: tcp port 80
    #[arg(value_name = "EXPRESSION")]
    pub(crate) expression: Vec<String>,

    /// Measure this interface, such as eth0 or lo; any for all of them; may be repeated. With --engine
    /// dpdk, a port such as 0000:03:00.0 or net_pcap0; PORT,forward=PORT also forwards its packets
    #[arg(short, long, value_name = "INTERFACE", required_unless_present = "list_interfaces",
        help_heading = INPUT)]
    pub(crate) interface: Vec<String>,

    /// List the names of the interfaces and exit
    #[arg(short = 'D', long, conflicts_with = "interface", help_heading = INPUT)]
    pub(crate) list_interfaces: bool,

    /// Receive packets from packet sockets (af-packet), ahead of the kernel's stack (af-xdp), or from DPDK
    /// ports (dpdk). The last two are faster, but the host does not get incoming packets, and outgoing
    /// packets are not measured. Each worker then reads one queue of each interface; af-xdp needs as many
    /// workers as the interface has queues
    #[arg(long, value_name = "NAME", default_value = "af-packet", value_parser = choice(Engine::ALL),
        help_heading = INPUT)]
    pub(crate) engine: Engine,

    /// Agree that --engine af-xdp or dpdk takes all incoming packets of the interface from the host
    #[arg(long, help_heading = INPUT)]
    pub(crate) takes_traffic: bool,

    /// Pass these arguments to DPDK, separated by spaces, such as '--no-huge -m 512
    /// --vdev=net_pcap0,rx_pcap=FILE'
    #[arg(long, value_name = "ARGUMENTS", allow_hyphen_values = true, help_heading = INPUT)]
    pub(crate) dpdk_args: Option<String>,

    /// With af-xdp, poll the driver instead of waiting for packets: no packet is late, but each worker
    /// keeps its core busy
    #[arg(long, help_heading = INPUT)]
    pub(crate) busy_poll: bool,

    /// Give each worker a queue of each interface, and assign packets to queues by the hash of their flow
    /// or by the CPU that received them [default: hash for several interfaces; else one queue, whose
    /// packets --dispatch assigns to workers]
    #[arg(long, value_name = "BY", value_parser = choice(Fanout::ALL), help_heading = INPUT)]
    pub(crate) fanout: Option<Fanout>,

    /// Set the memory of the ring between the kernel and each queue, such as 64MiB, at least 512KiB; with
    /// dpdk, of the buffers of each queue
    #[arg(long, value_name = "SIZE", default_value = "32MiB", value_parser = values::ring,
        help_heading = INPUT)]
    pub(crate) ring: usize,

    /// Do not put the interface into promiscuous mode: receive no packets to other hosts
    #[arg(short = 'p', long, help_heading = INPUT)]
    pub(crate) no_promiscuous_mode: bool,

    #[command(flatten)]
    pub(crate) run: Run,
}

/// How to run, what to measure, and where the reports go: shared by every command that measures.
#[derive(Args)]
pub(crate) struct Run {
    /// Write packets that pass the filter to FILE, as pcapng ('-' is standard output; then send reports
    /// elsewhere with -o)
    #[arg(short = 'w', long, value_name = "FILE", help_heading = OUTPUT)]
    pub(crate) write: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) running: Running,

    /// Read at most the first N bytes of each packet; keys and filters see no more
    #[arg(short = 's', long = "snapshot-length", value_name = "N", help_heading = INPUT,
        value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    pub(crate) snap: Option<usize>,

    /// Store each closed epoch as a snapshot in the directory PATH, or in the file PATH for a single epoch;
    /// 'flowgauge query' and 'flowgauge merge' read snapshots
    #[arg(long, value_name = "PATH", help_heading = OUTPUT)]
    pub(crate) save: Option<PathBuf>,

    /// Write reports to FILE ('-' is standard output) as text, line, json, csv, parquet or html, or
    /// snapshots as with --save; replaces --format and -o. May be repeated, with another FILE each time
    #[arg(long, value_name = "FORMAT:FILE", value_parser = values::sink,
        conflicts_with_all = ["format", "path"], help_heading = OUTPUT)]
    pub(crate) sink: Vec<Destination>,

    /// Print only errors and warnings to standard error
    #[arg(short, long, help_heading = OUTPUT)]
    pub(crate) quiet: bool,

    /// Print the measurements and their memory to standard error, and the packet rate at the end
    #[arg(short, long, conflicts_with = "quiet", help_heading = OUTPUT)]
    pub(crate) verbose: bool,

    #[command(flatten)]
    pub(crate) output: Output,
}

/// Stored epochs to ask.
#[derive(Args)]
pub(crate) struct Query {
    /// Snapshots, as written by 'flowgauge analyze --save', or folders of them, such as that of an agent
    #[arg(value_name = "SNAPSHOT", required = true)]
    pub(crate) snapshots: Vec<PathBuf>,

    #[command(flatten)]
    pub(crate) selection: Selection,

    /// Answer this task, or several separated by commas [default: the default tasks that the summaries can
    /// answer]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) task: Option<Vec<String>>,

    /// Report by a coarser key, such as source/24 from source, or source from five-tuple: sums of the flows
    /// in exact tables, or of those that Space-Saving and Misra-Gries list [default: the measured key]
    #[arg(long)]
    pub(crate) key: Option<KeySpec>,

    /// Ask flow-size for this flow, such as 'source=10.0.0.1,destination=10.0.0.2' with every
    /// field of the key; may be repeated
    #[arg(long, value_name = "FIELD=VALUE,…")]
    pub(crate) flow: Vec<String>,

    /// List at most N items in top, and in each list of a text report
    #[arg(long, value_name = "N", default_value_t = 10,
        value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    pub(crate) top: usize,

    #[command(flatten)]
    pub(crate) reading: SnapshotReading,

    #[command(flatten)]
    pub(crate) output: Output,
}

/// The file of an agent or a collector.
#[derive(Args)]
pub(crate) struct Agent {
    /// Read what to measure or collect, sinks and alerts from this file
    #[arg(short = 'C', long, value_name = "FILE")]
    pub(crate) config: PathBuf,

    /// Override a field of the file; may be repeated
    #[arg(long, value_name = "PATH=VALUE")]
    pub(crate) set: Vec<String>,

    /// Run without the sandbox: keep the user, all privileges and access to all files
    #[arg(long)]
    pub(crate) no_sandbox: bool,
}

/// What to show in the terminal.
#[derive(Args)]
pub(crate) struct Top {
    /// Show the reports of the agent that has this folder
    #[arg(value_name = "DATA", required_unless_present_any = ["interface", "read"])]
    pub(crate) data: Option<PathBuf>,

    /// Measure this interface instead
    #[arg(short, long, value_name = "INTERFACE", conflicts_with_all = ["data", "read"])]
    pub(crate) interface: Option<String>,

    /// Replay this capture instead, at its own pace
    #[arg(short = 'r', value_name = "FILE", conflicts_with = "data")]
    pub(crate) read: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) measurement: Measurement,
}

/// A file of an agent or a collector to check.
#[derive(Args)]
pub(crate) struct Checked {
    /// File to check
    #[arg(value_name = "FILE")]
    pub(crate) config: PathBuf,

    /// Override a field of the file; may be repeated
    #[arg(long, value_name = "PATH=VALUE")]
    pub(crate) set: Vec<String>,
}

/// Which of the stored epochs are asked.
#[derive(Args)]
pub(crate) struct Selection {
    /// Take only the epochs of this measurement
    #[arg(long, value_name = "NAME")]
    pub(crate) measurement: Option<String>,

    /// Take only epochs that begin at this time or later: 2026-11-25T06:30:00Z, or how long ago (1h)
    #[arg(long, value_name = "TIME", value_parser = values::time_ns)]
    pub(crate) from: Option<i64>,

    /// Take only epochs that begin before this time: 2026-11-25T06:30:00Z, or how long ago (1h)
    #[arg(long, value_name = "TIME", value_parser = values::time_ns)]
    pub(crate) to: Option<i64>,

    /// Answer for each step of this length (1m) by itself, instead of for all epochs together
    #[arg(long, value_name = "LENGTH", value_parser = values::step)]
    pub(crate) step: Option<u64>,
}

/// Stored epochs to add up.
#[derive(Args)]
pub(crate) struct Merging {
    /// Snapshots of one measurement, of different epochs, runs or hosts
    #[arg(value_name = "SNAPSHOT", required = true)]
    pub(crate) snapshots: Vec<PathBuf>,

    /// Write the merged snapshot to SNAPSHOT
    #[arg(short = 'o', value_name = "SNAPSHOT", required = true)]
    pub(crate) output: PathBuf,

    #[command(flatten)]
    pub(crate) reading: SnapshotReading,
}

/// How snapshots are read.
#[derive(Args)]
pub(crate) struct SnapshotReading {
    /// Read the seed file that the snapshots were made with
    #[arg(long, value_name = "FILE")]
    pub(crate) seed_file: Option<PathBuf>,

    /// Merge epochs of several hosts whose starts and ends differ by at most this time, such as 500ms
    /// [default: 0s]
    #[arg(long, value_name = "TOLERANCE", default_value = "0s", value_parser = common::time,
        hide_default_value = true)]
    pub(crate) align: u64,

    /// Limit the memory of the summaries of a snapshot, such as 64MiB or 1GB
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = common::size)]
    pub(crate) memory: usize,
}

impl Run {
    /// The outputs that the options name.
    pub(crate) fn destinations(&self) -> Vec<Destination> {
        let mut destinations = self.sink.clone();
        if destinations.iter().all(|destination| destination.format.is_none()) {
            let Output { format, path, .. } = &self.output;
            let format = Some(format.unwrap_or_default());
            destinations.insert(0, Destination { format, path: path.clone() });
        }
        let save = self.save.clone().map(Some);
        destinations.extend(save.map(|path| Destination { format: None, path }));
        destinations
    }

    /// Whether closed epochs are stored.
    pub(crate) fn stores(&self) -> bool {
        self.destinations().iter().any(|destination| destination.format.is_none())
    }

    /// The input files that the options name.
    pub(crate) fn inputs(&self) -> impl Iterator<Item = PathBuf> {
        [&self.running.config, &self.running.seed_file].into_iter().flatten().cloned()
    }
}

/// Where a report goes, and how it looks.
#[derive(Args)]
pub(crate) struct Output {
    /// Write reports in this format; html is one page with plots [default: text; live on a terminal: a line
    /// for each epoch, and the last report as text at the end]
    #[arg(long, value_parser = choice(Format::ALL), help_heading = OUTPUT)]
    pub(crate) format: Option<Format>,

    /// Write to FILE instead of standard output; csv and parquet of several tasks write a file for each
    /// table into the directory FILE
    #[arg(short = 'o', value_name = "FILE", help_heading = OUTPUT)]
    pub(crate) path: Option<PathBuf>,

    /// Wrap text at N columns, 60 to 200 [default: the width of the terminal, else 100]
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(60..=200),
        help_heading = OUTPUT)]
    pub(crate) width: Option<usize>,

    /// Colour headings and alerts of text; auto does on a terminal, unless NO_COLOR is set in the
    /// environment
    #[arg(long, value_name = "WHEN", default_value = "auto", value_parser = choice(Color::ALL),
        help_heading = OUTPUT)]
    pub(crate) color: Color,

    /// Print ports in text without service names
    #[arg(short = 'n', help_heading = OUTPUT)]
    pub(crate) numeric: bool,
}

/// What to generate.
#[derive(Args)]
pub(crate) struct Generation {
    /// Generate N packets
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub(crate) packets: u64,

    /// Generate N flows [default: 100000 for zipf; for backbone 20500, and one more every 32 packets]
    #[arg(long, value_name = "N")]
    pub(crate) flows: Option<u64>,

    /// Set the skew of flow sizes under zipf: 0 (all alike) to 2 [default: 1]
    #[arg(long, value_name = "S")]
    pub(crate) skew: Option<f64>,

    /// Draw the flow of each packet by its rank (zipf), or as on a backbone link (backbone)
    #[arg(long, default_value = "zipf", value_parser = choice(ProfileName::ALL))]
    pub(crate) profile: ProfileName,

    /// Set the bytes of each frame, or imix for a mix of sizes
    #[arg(long, value_name = "BYTES|imix", default_value = "64")]
    pub(crate) size: Size,

    /// Make this share of the flows IPv6: 0 to 1
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    pub(crate) ipv6: f64,

    /// Set the packets per second
    #[arg(long, value_name = "PPS", default_value_t = 1_000_000)]
    pub(crate) rate: u64,

    /// Seed the random choices with N
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Plant an event: scan, ports, flood, reflection, burst or vanish, with its parameters, such as
    /// 'scan:destinations=500,start=0.2,end=0.4'; may be repeated
    #[arg(long, value_name = "EVENT[:k=v,…]")]
    pub(crate) plant: Vec<Plant>,

    /// Write the capture (pcap) to FILE instead of standard output
    #[arg(short = 'o', value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// Write the exact counts to FILE, as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) truth: Option<PathBuf>,
}

/// What to cut.
#[derive(Args)]
pub(crate) struct Cutting {
    /// Capture, a regular file
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    /// Cut into at most N parts of about the same number of bytes
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    pub(crate) parts: usize,

    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Args)]
pub(crate) struct Listing {
    /// List only these [default: all]
    #[arg(value_name = "WHAT", value_parser = choice(Topic::ALL))]
    pub(crate) topic: Option<Topic>,

    #[command(flatten)]
    pub(crate) output: Output,
}
