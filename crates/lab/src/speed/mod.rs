//! Updates per second: every algorithm beside a yardstick, a hand-written loop of the same work,
//! and another implementation.
//!
//! Everything runs on one core and counts the thread's CPU time. In each round, an algorithm, its
//! counterparts and the yardstick process the same packets, one right after the other, so that
//! interference slows all of them alike. Ratios are medians over the rounds.

mod by_hand;
mod contestant;
mod stream;
mod sweep;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use flowgauge_core::key::{FlowKey, Key8};
use flowgauge_kernel::{Digester, Isa, Seed};

use crate::args::Speed;
use crate::failure::Failure;
use crate::machine::thread_seconds;
use contestant::{Cataloged, Contestant, ENTRIES, Entry, Reading, Traffic};
pub(crate) use contestant::{FREQUENT, frequent_bytes};
pub(crate) use stream::ORDERS;
use stream::{Order, Streams};
pub(crate) use sweep::measure as sweep;

/// Maximum time of an algorithm relative to its hand-written loop.
const LIMIT: f64 = 1.25;

/// One entry, ready to run.
struct Contest {
    entry: &'static Entry,
    summary: Cataloged,
    by_hand: Option<Box<dyn Contestant>>,
    rival: Option<Box<dyn Contestant>>,
    /// Seconds per packet of the summary, the yardstick, the loop and the rival, round by round.
    times: Vec<[f64; 4]>,
}

impl Contest {
    fn new(entry: &'static Entry, digester: Digester) -> Result<Self, Failure> {
        let summary = Cataloged::new(entry, false, digester)?;
        let by_hand = match entry.reading {
            Some(_) => Some(Box::new(Reading) as Box<dyn Contestant>),
            None => entry.by_hand.map(|build| build(digester)),
        };
        let rival = match &entry.rival {
            _ if entry.accelerator.is_some() => {
                Some(Box::new(Cataloged::new(entry, true, digester)?) as Box<dyn Contestant>)
            }
            rival => rival.as_ref().map(|rival| (rival.build)()),
        };
        Ok(Self { entry, summary, by_hand, rival, times: Vec::new() })
    }

    fn run(&mut self, streams: &mut Streams, yardstick: &mut dyn Contestant) {
        let (stream, begun) = match self.entry.traffic {
            Traffic::Ordered => (&mut streams.ordered, false),
            Traffic::Crowded => (&mut streams.ordered, true),
            Traffic::Scattered => (&mut streams.scattered, true),
        };
        let mut seconds = |contestant: &mut dyn Contestant| {
            contestant.begin(if begun { &stream.earlier } else { &[] });
            let start = thread_seconds();
            let packets = contestant.take(stream);
            (thread_seconds() - start) / packets as f64
        };
        self.times.push([
            seconds(&mut self.summary),
            seconds(yardstick),
            self.by_hand.as_mut().map_or(f64::NAN, |by_hand| seconds(&mut **by_hand)),
            self.rival.as_mut().map_or(f64::NAN, |rival| seconds(&mut **rival)),
        ]);
    }

    /// The row. `wanted` is whether the targets apply to this traffic.
    fn row(&self, wanted: bool) -> Row {
        let rate = |i: usize| rate(&self.times, i);
        let ratio =
            |of: usize, to: usize| median(self.times.iter().map(|times| times[of] / times[to]));
        Row {
            structure: self.entry.name,
            accelerator: self.entry.accelerator.as_ref().map(|accelerator| accelerator.name),
            parameters: self.summary.parameters(),
            traffic: self.entry.traffic.name(),
            memory_bytes: self.summary.memory_bytes(),
            rate: rate(0),
            share: ratio(1, 0),
            wanted_share: self.entry.share.filter(|_| wanted),
            by_hand: self.by_hand.as_ref().map(|_| (rate(2), ratio(0, 2))),
            most_ratio: self.entry.reading.unwrap_or(LIMIT),
            rival: self.entry.rivalry().map(|(name, speedup)| Rivalry {
                name,
                rate: rate(3),
                speedup: ratio(3, 0),
                wanted: speedup.filter(|_| wanted),
            }),
        }
    }
}

/// The profile with this name, which must exist.
fn order(name: &str) -> &'static Order {
    ORDERS.iter().find(|order| order.name == name).unwrap_or(&ORDERS[0])
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Millions of packets per second, from the times at index `i`.
fn rate<'a>(times: impl IntoIterator<Item = &'a [f64; 4]>, i: usize) -> f64 {
    1e-6 / median(times.into_iter().map(|times| times[i]))
}

/// Measures, prints and writes; returns whether all targets are met.
pub(crate) fn measure(speed: &Speed) -> Result<bool, Failure> {
    let digester = Digester::new(Seed::number(1), Isa::best()).for_keys(Key8::BYTES);
    let among = |entry: &&Entry| {
        speed.algorithms.is_empty() || speed.algorithms.iter().any(|name| name == entry.name)
    };
    let contests = ENTRIES.iter().filter(among).map(|entry| Contest::new(entry, digester));
    let mut contests = contests.collect::<Result<Vec<_>, _>>()?;
    let order = order(&speed.profile);
    let mut streams = Streams::draw(order, speed.packets as usize, &digester)?;
    let mut yardstick = by_hand::yardstick(digester);
    // The first round touches the memory and is not counted.
    for round in 0..=speed.rounds {
        for contest in &mut contests {
            contest.run(&mut streams, &mut *yardstick);
            if round == 0 {
                contest.times.clear();
            }
        }
    }
    let wanted = order.name == ORDERS[0].name;
    let report = Report {
        machine: crate::machine::describe(),
        stream: streams.describe(speed.rounds),
        yardstick: rate(contests.iter().flat_map(|contest| &contest.times), 1),
        rows: contests.iter().map(|contest| contest.row(wanted)).collect(),
    };
    report.write(speed.output.as_deref())?;
    Ok(report.met())
}

/// One algorithm with its parameters.
struct Row {
    structure: &'static str,
    /// The accelerator before it.
    accelerator: Option<&'static str>,
    /// The effective parameters.
    parameters: String,
    /// Its traffic, unless it is only the backbone's packets.
    traffic: &'static str,
    memory_bytes: usize,
    /// Millions of updates per second.
    rate: f64,
    /// The rate relative to the yardstick.
    share: f64,
    wanted_share: Option<f64>,
    /// The rate of the hand-written loop, and the algorithm's time relative to it.
    by_hand: Option<(f64, f64)>,
    /// The maximum for that ratio.
    most_ratio: f64,
    rival: Option<Rivalry>,
}

/// Another implementation compared with an algorithm, or an algorithm alone compared with itself
/// accelerated.
struct Rivalry {
    name: &'static str,
    rate: f64,
    /// The algorithm's rate over the other's.
    speedup: f64,
    wanted: Option<f64>,
}

const COLUMNS: [&str; 14] = [
    "structure",
    "parameters",
    "memory_bytes",
    "rate",
    "share",
    "wanted_share",
    "loop_rate",
    "loop_ratio",
    "most_ratio",
    "rival",
    "rival_rate",
    "speedup",
    "wanted_speedup",
    "met",
];

impl Row {
    /// The targets that are not met.
    fn short(&self) -> Vec<String> {
        let mut short = Vec::new();
        if let Some(wanted) = self.wanted_share.filter(|wanted| self.share < *wanted) {
            short.push(format!("share {:.2} < {wanted}", self.share));
        }
        if let Some((_, ratio)) = self.by_hand.filter(|(_, ratio)| *ratio > self.most_ratio) {
            short.push(format!("loop_ratio {ratio:.2} > {}", self.most_ratio));
        }
        if let Some(rival) = &self.rival
            && let Some(wanted) = rival.wanted.filter(|wanted| rival.speedup < *wanted)
        {
            short.push(format!("speedup {:.2} < {wanted}", rival.speedup));
        }
        short
    }

    fn wants(&self) -> bool {
        let speedup = self.rival.as_ref().and_then(|rival| rival.wanted);
        self.wanted_share.is_some() || self.by_hand.is_some() || speedup.is_some()
    }

    fn fields(&self) -> [String; COLUMNS.len()] {
        let number =
            |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.3}"));
        let wanted = |value: Option<f64>| value.map_or(String::new(), |value| value.to_string());
        let rival = self.rival.as_ref();
        let met = match self.short() {
            short if !short.is_empty() => format!("no: {}", short.join("; ")),
            _ if self.wants() => "yes".to_owned(),
            _ => String::new(),
        };
        [
            self.structure.to_owned()
                + self.traffic
                + &self.accelerator.map_or(String::new(), |name| format!(" behind {name}")),
            self.parameters.clone(),
            self.memory_bytes.to_string(),
            format!("{:.1}", self.rate),
            number(Some(self.share)),
            wanted(self.wanted_share),
            number(self.by_hand.map(|(rate, _)| rate)),
            number(self.by_hand.map(|(_, ratio)| ratio)),
            wanted(self.by_hand.map(|_| self.most_ratio)),
            rival.map_or(String::new(), |rival| rival.name.to_owned()),
            number(rival.map(|rival| rival.rate)),
            number(rival.map(|rival| rival.speedup)),
            wanted(rival.and_then(|rival| rival.wanted)),
            met,
        ]
    }
}

/// All rows, with a description of the test and the machine.
struct Report {
    machine: String,
    stream: String,
    /// Rate of the yardstick in millions of updates per second.
    yardstick: f64,
    rows: Vec<Row>,
}

impl Report {
    /// Whether all targets are met.
    fn met(&self) -> bool {
        self.rows.iter().all(|row| row.short().is_empty())
    }

    /// Writes the table to standard output, and to the file at `path`.
    fn write(&self, path: Option<&Path>) -> Result<(), Failure> {
        self.write_to(io::stdout().lock()).map_err(Failure::of("standard output"))?;
        let Some(path) = path else { return Ok(()) };
        let failed = Failure::of(path.display());
        let file = BufWriter::new(File::create(path).map_err(&failed)?);
        self.write_to(file).map_err(&failed)
    }

    fn write_to(&self, mut out: impl Write) -> io::Result<()> {
        writeln!(out, "# {}", self.machine)?;
        writeln!(out, "# {}", self.stream)?;
        writeln!(
            out,
            "# rates in million updates a second; the yardstick's is {:.1}: it copies its keys plainly, \
             while batches are filled with a prefetch of the keys behind (loop_rate of count-min is \
             that loop from such batches)",
            self.yardstick
        )?;
        writeln!(out, "{}", COLUMNS.join("\t"))?;
        for row in &self.rows {
            writeln!(out, "{}", row.fields().join("\t"))?;
        }
        let short = self.rows.iter().filter(|row| !row.short().is_empty()).count();
        let wanted = self.rows.iter().filter(|row| row.wants()).count();
        writeln!(out, "# {short} of {wanted} rows are not as wanted")?;
        out.flush()
    }
}
