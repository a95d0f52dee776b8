//! Updates a second: every algorithm beside a yardstick, a hand-written loop of the same work, and
//! another implementation.
//!
//! Everything runs on one core and counts the thread's CPU time. In every round an algorithm, what
//! it is compared with and the yardstick take the same packets, one right after the other, so that
//! whatever slows the machine down slows all of them; ratios are medians over the rounds.

mod by_hand;
mod clock;
mod contestant;
mod entry;
mod machine;
mod report;
mod rival;
mod stream;

use flowgauge_core::key::Key8;
use flowgauge_kernel::{Digester, Isa, Seed};

use crate::args::Speed;
use crate::failure::Failure;
use contestant::{Cataloged, Contestant};
use entry::{ENTRIES, Entry, Traffic};
use report::{Report, Rivalry, Row};
use stream::{Stream, Streams};

/// An algorithm may take this much longer than its hand-written loop.
const LIMIT: f64 = 1.25;

/// One entry, ready to run.
struct Contest {
    entry: &'static Entry,
    summary: Cataloged,
    by_hand: Option<Box<dyn Contestant>>,
    rival: Option<Box<dyn Contestant>>,
    /// Seconds of the summary, the yardstick, the loop and the rival, round by round.
    times: Vec<[f64; 4]>,
}

impl Contest {
    fn new(entry: &'static Entry, digester: Digester) -> Result<Self, Failure> {
        let summary = Cataloged::new(entry, false, digester)?;
        let by_hand = entry.by_hand.map(|build| build(digester));
        let rival = match &entry.rival {
            _ if entry.accelerator.is_some() => {
                Some(Box::new(Cataloged::new(entry, true, digester)?) as Box<dyn Contestant>)
            }
            rival => rival.as_ref().map(|rival| (rival.build)()),
        };
        Ok(Self { entry, summary, by_hand, rival, times: Vec::new() })
    }

    fn run(&mut self, streams: &Streams, yardstick: &mut dyn Contestant) {
        let (stream, earlier): (&Stream, &[Key8]) = match self.entry.traffic {
            Traffic::Backbone => (&streams.backbone, &[]),
            Traffic::Crowded => (&streams.backbone, &streams.backbone.earlier),
            Traffic::Scattered => (&streams.scattered, &streams.scattered.earlier),
        };
        let seconds = |contestant: &mut dyn Contestant| {
            contestant.begin(earlier);
            let start = clock::thread_seconds();
            contestant.take(stream);
            clock::thread_seconds() - start
        };
        self.times.push([
            seconds(&mut self.summary),
            seconds(yardstick),
            self.by_hand.as_mut().map_or(f64::NAN, |by_hand| seconds(&mut **by_hand)),
            self.rival.as_mut().map_or(f64::NAN, |rival| seconds(&mut **rival)),
        ]);
    }

    fn row(&self, packets: usize) -> Row {
        let rate = |i: usize| rate(packets, &self.times, i);
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
            wanted_share: self.entry.share,
            by_hand: self.by_hand.as_ref().map(|_| (rate(2), ratio(0, 2))),
            most_ratio: LIMIT,
            rival: self.entry.rivalry().map(|(name, wanted)| Rivalry {
                name,
                rate: rate(3),
                speedup: ratio(3, 0),
                wanted,
            }),
        }
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Millions of packets a second, from the times at position `i`.
fn rate<'a>(packets: usize, times: impl IntoIterator<Item = &'a [f64; 4]>, i: usize) -> f64 {
    packets as f64 / 1e6 / median(times.into_iter().map(|times| times[i]))
}

/// Measures, prints and writes; returns whether all is as wanted.
pub(crate) fn measure(speed: &Speed) -> Result<bool, Failure> {
    let digester = Digester::new(Seed::new(1), Isa::best());
    let among = |entry: &&Entry| {
        speed.algorithms.is_empty() || speed.algorithms.iter().any(|name| name == entry.name)
    };
    let contests = ENTRIES.iter().filter(among).map(|entry| Contest::new(entry, digester));
    let mut contests = contests.collect::<Result<Vec<_>, _>>()?;
    let streams = Streams::draw(speed.packets as usize, &digester)?;
    let mut yardstick = by_hand::yardstick(digester);
    // The first round touches the memory and is not counted.
    for round in 0..=speed.rounds {
        for contest in &mut contests {
            contest.run(&streams, &mut *yardstick);
            if round == 0 {
                contest.times.clear();
            }
        }
    }
    let packets = streams.backbone.keys.len();
    let report = Report {
        machine: machine::describe(),
        stream: streams.describe(speed.rounds),
        yardstick: rate(packets, contests.iter().flat_map(|contest| &contest.times), 1),
        rows: contests.iter().map(|contest| contest.row(packets)).collect(),
    };
    report.write(speed.output.as_deref())?;
    Ok(report.met())
}
