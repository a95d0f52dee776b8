//! Updates per second: every algorithm beside a yardstick, a hand-written loop of the same work,
//! and another implementation.
//!
//! Everything runs on one core and counts the thread's CPU time. In each round, an algorithm, its
//! counterparts and the yardstick process the same packets, one right after the other, so that
//! interference slows all of them alike. Ratios are medians over the rounds.

mod by_hand;
mod contestant;
mod entry;
mod report;
mod stream;
mod sweep;

use flowgauge_core::key::{FlowKey, Key8};
use flowgauge_kernel::{Digester, Isa, Seed};

use crate::args::Speed;
use crate::failure::Failure;
use crate::machine::thread_seconds;
use contestant::{Cataloged, Contestant, Reading};
pub(crate) use contestant::{FREQUENT, frequent_bytes};
use entry::{ENTRIES, Entry, Traffic};
use report::{Report, Rivalry, Row};
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
