//! `--algorithm auto`: its choice compared with every candidate.

use flowgauge_capture::Captures;
use flowgauge_core::batch::BATCH_PACKETS;
use flowgauge_core::key::KeyKind;
use flowgauge_core::terms::{Measure, Threshold};
use flowgauge_engine::auto::{self, Choice, Largest, Sample, Tried, Wanted, choose};
use flowgauge_engine::report::EpochReport;
use flowgauge_engine::sink::Each;
use flowgauge_engine::{Config, EngineError};
use flowgauge_synthetic::{self as synthetic, Profile, Traffic, to_pcap_bytes};

use crate::experiment::chart::{Chart, linear};
use crate::experiment::part::{Part, median};
use crate::experiment::setting::Setting;
use crate::experiment::table::{Table, row};
use crate::experiment::verdict::{Claim, Verdict};
use crate::experiment::{Experiment, Outcome};
use crate::failure::Failure;
use crate::machine::thread_seconds;

pub(crate) const AUTO: Experiment = Experiment {
    name: "auto",
    title: "what auto chooses, against the best there is",
    paper: "This project: `--algorithm auto`",
    presets: &[],
    measure,
    judge,
    missing: &[],
    charts: &[Chart {
        title: "Time of a packet",
        x: "workload",
        x_axis: linear(""),
        y: &[("ns", "")],
        y_axis: linear("time (ns a packet, from its frame on)"),
        series: "which",
        only: &[],
        paper: &[],
        see: "The bar of auto's choice should not stand above the one beside it, the fastest that keeps the error.",
    }],
};

const CHOICE: &str = "auto's choice";
const BEST: &str = "fastest that keeps the error";
const EXACT: &str = "exact table";

/// How much slower than the fastest candidate the choice may be.
const LONGER: f64 = 1.2;

/// Candidates slower than the fastest by this factor in the first run are not measured again.
const AGAIN: f64 = 1.5;

/// A workload: traffic and what is asked about it.
struct Workload {
    name: &'static str,
    profile: Profile,
    key: KeyKind,
    by: Measure,
    tasks: Option<&'static [&'static str]>,
    memory_bytes: usize,
    threshold: f64,
    /// As [`Wanted::error`].
    error: f64,
}

const fn zipf(flows: u64, skew: f64) -> Profile {
    Profile::Zipf { flows, skew }
}

const BACKBONE: Profile = Profile::Backbone { flows: None };

const WORKLOADS: [Workload; 6] = [
    Workload {
        name: "default tasks",
        profile: BACKBONE,
        key: KeyKind::FIVE_TUPLE,
        by: Measure::Packets,
        tasks: None,
        memory_bytes: 256 << 20,
        threshold: 0.001,
        error: 0.01,
    },
    Workload {
        name: "heavy pairs, 1 %",
        profile: BACKBONE,
        key: KeyKind::PAIR,
        by: Measure::Packets,
        tasks: Some(&["heavy-hitters"]),
        memory_bytes: 16 << 20,
        threshold: 0.01,
        error: 0.002,
    },
    Workload {
        name: "heavy sources, 1 MiB",
        profile: zipf(1_000_000, 1.1),
        key: KeyKind::SOURCE,
        by: Measure::Packets,
        tasks: Some(&["heavy-hitters"]),
        memory_bytes: 1 << 20,
        threshold: 0.001,
        error: 0.0005,
    },
    Workload {
        name: "number of pairs, 2 %",
        profile: zipf(10_000_000, 0.0),
        key: KeyKind::PAIR,
        by: Measure::Packets,
        tasks: Some(&["cardinality"]),
        memory_bytes: 16 << 20,
        threshold: 0.001,
        error: 0.02,
    },
    Workload {
        name: "top destinations by bytes",
        profile: zipf(1_000_000, 1.5),
        key: KeyKind::DESTINATION,
        by: Measure::Bytes,
        tasks: Some(&["top"]),
        memory_bytes: 16 << 20,
        threshold: 0.001,
        error: 0.001,
    },
    Workload {
        name: "many flows, 256 KiB",
        profile: zipf(10_000_000, 0.75),
        key: KeyKind::FIVE_TUPLE,
        by: Measure::Packets,
        tasks: Some(&["top"]),
        memory_bytes: 256 << 10,
        threshold: 0.001,
        error: 0.01,
    },
];

impl Workload {
    fn asked(&self, setting: &Setting) -> Config {
        let tasks = self.tasks.map(|tasks| tasks.iter().map(|task| (*task).to_owned()).collect());
        Config {
            key: self.key.into(),
            by: self.by,
            tasks,
            memory_bytes: self.memory_bytes,
            threshold: Threshold::Share(self.threshold),
            ..Config::seeded(setting.seed)
        }
    }

    /// The packets as a pcap file.
    fn pcap(&self, setting: &Setting) -> Result<Vec<u8>, Failure> {
        let config = synthetic::Config {
            profile: self.profile,
            packets: setting.packets as u64,
            seed: setting.seed,
            ..synthetic::Config::default()
        };
        Ok(to_pcap_bytes(Traffic::new(config)?))
    }
}

/// The result of a candidate on the whole workload.
struct Run {
    name: String,
    config: Config,
    ns: Vec<f64>,
    error: f64,
}

fn measure(setting: &Setting) -> Result<Outcome, Failure> {
    let mut table = Table::new([
        "workload",
        "which",
        "candidate",
        "ns",
        "error_percent",
        "wanted_percent",
        "candidates",
    ]);
    for workload in &WORKLOADS {
        compare(&mut table, workload, setting)?;
    }
    let limit = format!("The exact table, where it answers, is told as '{EXACT}'.");
    let notes = format!(
        "{} packets of each workload, of which auto sees the first 262,144. Every candidate that can answer \
         runs over all of them; those within half as much again of the fastest, and the choice, {} times \
         more in turns. Errors are half the width of the widest bounds that were reported, those of the \
         largest flow among them, which is asked for by name; whose table was full, or who does not list \
         the largest flow, does not keep the error. Times are CPU time over the second half of the \
         packets.",
        setting.packets, setting.rounds
    );
    Ok(Outcome { table, limit, notes })
}

fn compare(table: &mut Table, workload: &Workload, setting: &Setting) -> Result<(), Failure> {
    let pcap = workload.pcap(setting)?;
    let wanted = Wanted { error: workload.error, rate: None };
    let (asked, source) =
        (workload.asked(setting), || Captures::from_bytes("workload", pcap.clone()));
    let chosen = choose(&asked, wanted, Sample::of(&mut source()))
        .and_then(|choice| Ok((auto::largest(&choice.config, &mut source())?, choice)));
    let none = f64::NAN;
    let wanted_percent = 100.0 * workload.error;
    let (largest, choice) = match chosen {
        Ok(chosen) => chosen,
        Err(refused) => {
            row!(table, workload.name, CHOICE, refused.to_string(), none, none, wanted_percent);
            return Ok(());
        }
    };
    let mut runs = runs(&choice, largest, &pcap);
    let count = runs.len();
    let keeps = |run: &&Run| run.error <= workload.error;
    let fastest = runs.iter().filter(keeps).map(|run| run.ns[0]).fold(f64::NAN, f64::min);
    let chosen = choice.tried.first().map(|tried| tried.name.clone()).unwrap_or_default();
    runs.retain(|run| {
        let near = run.error <= workload.error && run.ns[0] <= AGAIN * fastest;
        near || run.name == chosen || run.name == "linear-table"
    });
    for _ in 0..setting.rounds {
        for run in &mut runs {
            if let Ok((ns, _)) = over(&run.config, largest, &pcap) {
                run.ns.push(ns);
            }
        }
    }
    let mut told = |which: &str, run: Option<&Run>| {
        let (name, ns) = run.map_or(("none", none), |run| (&*run.name, median(&run.ns)));
        let error = 100.0 * run.map_or(none, |run| run.error);
        row!(table, workload.name, which, name, ns, error, wanted_percent, count);
    };
    let by_time = |a: &&Run, b: &&Run| median(&a.ns).total_cmp(&median(&b.ns));
    told(CHOICE, runs.iter().find(|run| run.name == chosen));
    told(BEST, runs.iter().filter(keeps).min_by(by_time));
    told(EXACT, runs.iter().filter(keeps).find(|run| run.name == "linear-table"));
    Ok(())
}

/// Runs every candidate once over the whole workload.
fn runs(choice: &Choice, largest: Option<Largest>, pcap: &[u8]) -> Vec<Run> {
    let run = |tried: &Tried| {
        let config = tried.config(&choice.config);
        let (ns, error) = over(&config, largest, pcap).ok()?;
        Some(Run { name: tried.name.clone(), config, ns: vec![ns], error })
    };
    choice.tried.iter().filter_map(run).collect()
}

/// CPU time in nanoseconds per packet over the second half of the workload, and the error of the
/// answers; infinite if they give none.
fn over(config: &Config, largest: Option<Largest>, pcap: &[u8]) -> Result<(f64, f64), EngineError> {
    let plan = auto::plan(config.clone(), largest)?;
    let mut source = Captures::from_bytes("workload", pcap.to_vec());
    let mut seen = None;
    let mut keep = Each(|report: &EpochReport| {
        seen = Some(report.clone());
        Ok(())
    });
    let mut polls: Vec<f64> = Vec::with_capacity(1 << 14);
    flowgauge_engine::run(plan, &mut source, &mut keep, &mut |_| polls.push(thread_seconds()))?;
    let (half, last) = (polls.len() / 2, polls.len().saturating_sub(1));
    let seconds = polls.get(last).zip(polls.get(half)).map_or(f64::NAN, |(end, start)| end - start);
    let error = seen.and_then(|report| auto::error(&report, largest).ok());
    let ns = 1e9 * seconds / ((last - half).max(1) * BATCH_PACKETS) as f64;
    Ok((ns, error.unwrap_or(f64::INFINITY)))
}

fn judge(table: &Table) -> Verdict {
    let of = |workload: &str, which: &str, column: &str| {
        let mut rows = table.of("workload", workload).filter(|row| row.text("which") == which);
        rows.next().map_or(f64::NAN, |row| row.number(column))
    };
    let keeps = table.texts("workload").into_iter().map(|workload| {
        let of = |column: &str| of(workload, CHOICE, column);
        let error = of("error_percent") / of("wanted_percent");
        Part::at_most(&format!("{workload}: error over that asked for"), error, 1.0)
    });
    let fast = table.texts("workload").into_iter().map(|workload| {
        let ratio = of(workload, CHOICE, "ns") / of(workload, BEST, "ns");
        Part::at_most(&format!("{workload}: choice over fastest"), ratio, LONGER).timed()
    });
    Verdict::of(
        table,
        [
            Claim::new(
                "From a sample auto chooses what keeps the asked error over the whole workload.",
                keeps,
                "The sample does not show what comes later.",
            ),
            Claim::new(
                "It takes at most 20 % longer than the fastest of all candidates that keep it.",
                fast,
                "Something else had the processor while one of them was tried.",
            ),
        ],
    )
}
