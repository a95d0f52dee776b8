//! An Open vSwitch that contains flowgauge. `bench/ovs.py` runs it, and measures one way after the
//! other.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};
use std::{env, fs, process, thread};

use flowgauge_synthetic::{Packet, to_pcap_bytes};
use serde_json::{Value, json};

use crate::experiment::part::median;
use crate::experiment::setting::Setting;
use crate::experiment::table::{Cell, Table};
use crate::failure::Failure;

const DRIVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/ovs.py");

/// Seconds per way and round.
const SECONDS: f64 = 0.5;

/// Paths of packets through the switch: found in the exact-match cache, found by the same rules
/// without that cache, from port to port without parsing, and dropped on reception.
pub(super) const EMC: &str = "emc";
pub(super) const MEGAFLOW: &str = "megaflow";
pub(super) const SIMPLE: &str = "simple";
pub(super) const DROP: &str = "drop";

/// The number of repeating packets, and of the flows they are drawn from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Traffic {
    pub(super) packets: u64,
    pub(super) flows: u64,
}

pub(super) const FEW: Traffic = Traffic { packets: 16_384, flows: 4_000 };
pub(super) const MANY: Traffic = Traffic { packets: 200_000, flows: 50_000 };

/// What is done with packets besides forwarding.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    /// Nothing.
    Bare,
    /// flowgauge in the switch with these options, which include tasks.
    Measure(String),
    /// The same, with the task of reporting the sizes of the largest flows.
    Sizes(String),
    /// The switch's own sFlow, sampling one packet in this many.
    SFlow(u32),
    /// The switch's own IPFIX, sampling one packet in this many.
    Ipfix(u32),
    /// A mirror that flowgauge reads in its own process.
    Mirror,
}

/// A path, and what is done there.
pub(super) type Way = (&'static str, Kind);

/// The cost of one way in one round.
#[derive(Clone, Copy, Debug)]
pub(super) struct Figures {
    /// Time of the polling thread per packet.
    pub(super) ns: f64,
    /// Share of packets that were read.
    read: f64,
    /// Error of the sizes of the largest flows.
    error: f64,
}

/// The measurements of each way.
pub(super) struct Rounds {
    /// For each way, its rounds, or why it was refused.
    pub(super) ways: Vec<Result<Vec<Figures>, String>>,
    /// Number of flows in the traffic.
    pub(super) flows: usize,
    /// Description of the test system, in sentences.
    pub(super) told: String,
}

/// Sources (the keys) of the largest flows, with their shares.
type Truth = Vec<(Ipv4Addr, f64)>;

/// Measures every way in every round.
pub(super) fn run(setting: &Setting, traffic: Traffic, ways: &[Way]) -> Result<Rounds, Failure> {
    let prefix = ready(setting)?;
    let packets = super::draw(traffic.packets, traffic.flows, 64, setting.seed)?;
    let source = |packet: &Packet| {
        let key = packet.key.as_bytes();
        Ipv4Addr::new(key[0], key[1], key[2], key[3])
    };
    let (flows, truth) = super::largest(&packets, source);
    let capture = env::temp_dir().join(format!("flowgauge-switch-{}", process::id()));
    let failed = Failure::of(capture.display());
    fs::write(&capture, to_pcap_bytes(packets)).map_err(&failed)?;
    let words = [&prefix, &*capture.to_string_lossy(), &setting.rounds.to_string()];
    let lines: Vec<Value> = ways.iter().map(|way| line(way, &truth)).collect();
    let printed = drive(&words, &lines);
    fs::remove_file(&capture).map_err(&failed)?;
    let printed = printed?;
    let mut measured: Vec<_> = ways.iter().map(|_| Ok(Vec::new())).collect();
    for (figures, way) in printed.iter().filter_map(|line| Some((line, line["way"].as_u64()?))) {
        let rounds: &mut Result<Vec<Figures>, String> = &mut measured[way as usize];
        match (&figures["refused"], rounds) {
            (Value::String(cause), rounds) => *rounds = Err(cause.clone()),
            (_, Ok(rounds)) => rounds.push(read(figures, &truth)),
            (_, Err(_)) => {}
        }
    }
    let told = match (printed.first(), printed.last()) {
        (Some(first), Some(last)) => format!(
            "{}; {} pages; {} priority; load {:.1} at the start and {:.1} at the end.",
            text(&first["switch"]),
            text(&first["pages"]),
            text(&first["priority"]),
            number(&first["load"]),
            number(&last["load"])
        ),
        _ => String::new(),
    };
    Ok(Rounds { ways: measured, flows, told })
}

/// The folder of the switch, if everything needed is there.
fn ready(setting: &Setting) -> Result<String, Failure> {
    let skipped = |reason: String| Err(Failure::Skipped(reason));
    let Some(prefix) = &setting.switch else {
        return skipped("no folder of a switch is given".to_owned());
    };
    let version = Command::new(prefix.join("sbin/ovs-vswitchd")).arg("--version").output();
    let Ok(version) = version else {
        let prefix = prefix.display();
        return skipped(format!("no Open vSwitch in {prefix}; 'make ovs' builds it"));
    };
    if !String::from_utf8_lossy(&version.stdout).contains("DPDK") {
        return skipped("this Open vSwitch was built without DPDK".to_owned());
    }
    if thread::available_parallelism().map_or(1, usize::from) < 2 {
        return skipped("the switch needs two cores".to_owned());
    }
    Ok(prefix.to_string_lossy().into_owned())
}

/// A way in the driver's format.
fn line((path, kind): &Way, truth: &Truth) -> Value {
    let (kind, argument) = match kind {
        Kind::Bare => ("none", Value::Null),
        Kind::Measure(options) => {
            ("measure", json!(format!("key=source epoch=whole memory=256MiB {options}")))
        }
        Kind::Sizes(options) => {
            let sources: Vec<String> = truth.iter().map(|(source, _)| source.to_string()).collect();
            let flows = sources.join(" flow=source=");
            let options = format!("{options} task=flow-size flow=source={flows}");
            return line(&(path, Kind::Measure(options)), truth);
        }
        Kind::SFlow(sample) => ("sflow", json!(sample)),
        Kind::Ipfix(sample) => ("ipfix", json!(sample)),
        Kind::Mirror => {
            let command = env::current_exe().map(|lab| lab.with_file_name("flowgauge"));
            ("mirror", json!(command.unwrap_or_default()))
        }
    };
    json!({ "path": path, "kind": kind, "argument": argument })
}

/// Runs the driver, and returns what it prints.
fn drive(words: &[&str], ways: &[Value]) -> Result<Vec<Value>, Failure> {
    let failed = Failure::of("python3");
    let mut command = Command::new("python3");
    command.arg(DRIVER).args(words).arg(SECONDS.to_string());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut driver = command.spawn().map_err(|_| Failure::Skipped("no python3".to_owned()))?;
    if let Some(mut input) = driver.stdin.take() {
        for way in ways {
            writeln!(input, "{way}").map_err(&failed)?;
        }
    }
    let mut printed = Vec::new();
    if let Some(output) = driver.stdout.take() {
        for line in BufReader::new(output).lines() {
            let line = line.map_err(&failed)?;
            printed.push(serde_json::from_str(&line).map_err(|error| failed(error.into()))?);
        }
    }
    let mut complaint = String::new();
    if let Some(mut error) = driver.stderr.take() {
        error.read_to_string(&mut complaint).map_err(&failed)?;
    }
    if driver.wait().map_err(&failed)?.success() {
        Ok(printed)
    } else {
        Err(Failure::Switch(complaint))
    }
}

fn read(figures: &Value, truth: &Truth) -> Figures {
    let (received, read) = (number(&figures["received"]), number(&figures["read"]));
    let sizes = figures["sizes"].as_array().filter(|sizes| sizes.len() == truth.len());
    let error = sizes.map_or(f64::NAN, |sizes| {
        super::error(sizes.iter().map(number), truth.iter().map(|(_, share)| *share), received)
    });
    Figures { ns: number(&figures["ns"]), read: read / received, error }
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(f64::NAN)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// A measurement to compare.
pub(super) struct Contender {
    pub(super) name: String,
    /// The accelerator before it, or its sampling.
    pub(super) variant: String,
    pub(super) kind: Kind,
}

impl Contender {
    pub(super) fn new(name: &str, variant: &str, kind: Kind) -> Self {
        Self { name: name.to_owned(), variant: variant.to_owned(), kind }
    }
}

/// The cost of ways on a path, beside the bare switch.
pub(super) struct Compared {
    /// Nanoseconds of the bare switch.
    pub(super) bare_ns: f64,
    pub(super) flows: usize,
    /// Refused ways, with reasons.
    pub(super) refused: Vec<String>,
    pub(super) told: String,
}

/// The row of the bare switch.
pub(super) const BARE: &str = "without measurement";

/// Contenders between two runs of the bare switch.
const GROUP: usize = 4;

/// The columns of [`compare`].
pub(super) fn table() -> Table {
    Table::new([
        "measurement",
        "variant",
        "mpps",
        "added_ns",
        "lost_percent",
        "lost_quartile_1",
        "lost_quartile_3",
        "read_percent",
        "error_percent",
    ])
}

/// Measures contenders on a path, each relative to the runs of the bare switch before and after it.
pub(super) fn compare(
    setting: &Setting,
    traffic: Traffic,
    path: &'static str,
    contenders: &[Contender],
    table: &mut Table,
) -> Result<Compared, Failure> {
    let bare = || [(path, Kind::Bare)].into_iter();
    let asked: Vec<Way> = (contenders.chunks(GROUP))
        .flat_map(|group| bare().chain(group.iter().map(|one| (path, one.kind.clone()))))
        .chain(bare())
        .collect();
    let Rounds { ways, flows, told } = run(setting, traffic, &asked)?;
    let ns = |way: usize| ways[way].iter().flatten().map(|figures| figures.ns);
    let bares = (0..asked.len()).filter(|way| matches!(asked[*way].1, Kind::Bare));
    let bare_ns = median(&bares.flat_map(ns).collect::<Vec<_>>());
    let none = f64::NAN;
    push(table, BARE, "", [1e3 / bare_ns, 0.0, 0.0, none, none, none, none]);
    let mut refused = Vec::new();
    for (number, contender) in contenders.iter().enumerate() {
        let group = number / GROUP * (GROUP + 1);
        let before = ns(group);
        let after = ns((group + GROUP + 1).min(ways.len() - 1));
        let Contender { name, variant, .. } = contender;
        let rounds = match &ways[group + 1 + number % GROUP] {
            Ok(rounds) => rounds,
            Err(cause) => {
                let cause = cause.split(';').next().unwrap_or_default();
                refused.push(cause.to_owned());
                continue;
            }
        };
        let beside: Vec<(Figures, f64)> = (rounds.iter().copied())
            .zip(before.zip(after).map(|(before, after)| f64::midpoint(before, after)))
            .collect();
        let of = |figure: fn(&(Figures, f64)) -> f64| -> Vec<f64> {
            let mut figures: Vec<f64> = beside.iter().map(figure).collect();
            figures.sort_by(f64::total_cmp);
            figures
        };
        let lost = of(|(way, bare)| 100.0 * (1.0 - bare / way.ns));
        let quartile = |number| lost.get(number * lost.len() / 4).copied().unwrap_or(none);
        let figures = [
            1e3 / median(&of(|(way, _)| way.ns)),
            median(&of(|(way, bare)| way.ns - bare)),
            median(&lost),
            quartile(1),
            quartile(3),
            100.0 * median(&of(|(way, _)| way.read)),
            100.0 * median(&of(|(way, _)| way.error)),
        ];
        push(table, name, variant, figures);
    }
    Ok(Compared { bare_ns, flows, refused, told })
}

fn push(table: &mut Table, name: &str, variant: &str, figures: [f64; 7]) {
    table.push([name.into(), variant.into()].into_iter().chain(figures.map(Cell::from)));
}

impl Compared {
    /// The lower limit.
    pub(super) fn limit(&self) -> String {
        format!(
            "The switch alone takes {:.1} ns a packet, {:.2} million packets a second of its polling thread.",
            self.bare_ns,
            1e3 / self.bare_ns
        )
    }

    /// How it was measured.
    pub(super) fn notes(&self, setting: &Setting, traffic: Traffic) -> String {
        let refused = if self.refused.is_empty() {
            String::new()
        } else {
            format!(" Left out, since flowgauge refuses them: {}.", self.refused.join("; "))
        };
        format!(
            "{} packets of 64 bytes and {} sources by Zipf's law come again and again from `net_pcap` and go to \
             `net_null`; one polling thread, keys `source`; CPU time of that thread, medians of {} rounds of \
             {SECONDS} s in which all take turns, each beside the runs of the switch alone before and after it. \
             Errors are root mean squares over the {} largest sources, in a run of {SECONDS} s or more and the \
             0.3 s before. {}{refused}",
            traffic.packets,
            self.flows,
            setting.rounds,
            super::LARGEST,
            self.told
        )
    }
}

/// The number in a column, for a variant of a measurement.
pub(super) fn figure(table: &Table, name: &str, variant: &str, column: &str) -> f64 {
    let mut rows = table.of("measurement", name).filter(|row| row.text("variant") == variant);
    rows.next().map_or(f64::NAN, |row| row.number(column))
}
