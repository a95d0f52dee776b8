//! One worker against two, round by round, with arithmetic as a reference.

use std::hint::black_box;
use std::sync::Arc;

use flowgauge_core::batch::{BATCH_PACKETS, Batch};
use flowgauge_core::key::Key8;

use super::rounds::{Round, Rounds};
use crate::experiment::latency::Runner;
use crate::experiment::parallel::{Crew, Together};
use crate::experiment::setting::Setting;
use crate::experiment::stream::Stream;
use crate::experiment::table::{Table, row};
use crate::failure::Failure;

/// Rounds that should count, and the maximum taken, per round of the setting.
pub(super) const COUNT: usize = 4;
pub(super) const MOST: usize = 12;

/// Arithmetic steps per packet.
const STEPS: u64 = 8;

/// Multiplications for each packet, without reading it.
pub(super) struct Arithmetic;

impl Runner<Key8> for Arithmetic {
    fn begin(&mut self) {}

    fn take(&mut self, batch: &mut Batch<Key8>) {
        let steps = 0..STEPS * batch.len() as u64;
        // Four independent chains keep the multiplier busy.
        black_box(steps.fold([1_u64, 3, 5, 7], |chains, step| {
            chains.map(|chain| black_box(chain.wrapping_mul(step | 1)))
        }));
    }
}

pub(super) type Built = Result<Box<dyn Runner<Key8>>, Failure>;
pub(super) type Shared = Arc<Stream<Key8>>;

/// Streams shared with workers.
pub(super) fn shared(streams: impl IntoIterator<Item = Stream<Key8>>) -> Vec<Shared> {
    streams.into_iter().map(Arc::new).collect()
}

/// Workers with their packets.
struct Side {
    runners: Vec<Box<dyn Runner<Key8>>>,
    streams: Vec<Shared>,
    passes: usize,
}

impl Side {
    /// `least_ns` is the minimum duration of a measurement.
    fn new(
        crew: &Crew,
        build: impl Fn() -> Built,
        streams: &[Shared],
        least_ns: f64,
    ) -> Result<Self, Failure> {
        let runners = streams.iter().map(|_| build()).collect::<Result<_, _>>()?;
        let mut side = Self { runners, streams: streams.to_vec(), passes: 1 };
        // The first pass meets every flow for the first time.
        side.run(crew);
        side.passes = (least_ns / side.run(crew).wall_ns).ceil() as usize;
        Ok(side)
    }

    fn run(&mut self, crew: &Crew) -> Together {
        crew.together(&mut self.runners, &self.streams, BATCH_PACKETS, self.passes)
    }

    /// Nanoseconds per packet, and whether every worker had a core.
    fn ns(&mut self, crew: &Crew) -> (f64, bool) {
        let packets: usize = self.streams.iter().map(|stream| stream.keys.len()).sum();
        let run = self.run(crew);
        (run.wall_ns / (self.passes * packets) as f64, run.had_cores())
    }
}

/// One worker, and two.
pub(super) struct Both {
    one: Side,
    two: Side,
}

impl Both {
    /// Both with a minimum duration.
    ///
    /// # Errors
    /// A runner cannot be built.
    pub(super) fn new(
        crew: &Crew,
        build: impl Fn() -> Built,
        whole: &[Shared],
        parts: &[Shared],
        least_ns: f64,
    ) -> Result<Self, Failure> {
        let side = |streams| Side::new(crew, &build, streams, least_ns);
        Ok(Self { one: side(whole)?, two: side(parts)? })
    }
}

/// A measured summary.
pub(super) struct Contest {
    name: &'static str,
    kind: &'static str,
    both: Both,
    pub(super) rounds: Rounds,
}

impl Contest {
    pub(super) fn new(
        name: &'static str,
        kind: &'static str,
        both: Both,
        setting: &Setting,
    ) -> Self {
        let rounds = Rounds::new(COUNT * setting.rounds, MOST * setting.rounds);
        Self { name, kind, both, rounds }
    }

    /// Takes a round, if more are wanted.
    pub(super) fn round(&mut self, crew: &Crew, arithmetic: &mut Both) {
        let Self { both, rounds, .. } = self;
        rounds.take(|| {
            let (alone_ns, _) = arithmetic.one.ns(crew);
            let (before_ns, _) = arithmetic.two.ns(crew);
            let (one_ns, one_had) = both.one.ns(crew);
            let (two_ns, two_had) = both.two.ns(crew);
            let (after_ns, _) = arithmetic.two.ns(crew);
            Round {
                one_ns,
                two_ns,
                arithmetic: [alone_ns / before_ns, alone_ns / after_ns],
                cores: one_had && two_had,
            }
        });
    }

    /// Adds the rates; the ratio is the median of the rounds' ratios.
    pub(super) fn tell(&self, table: &mut Table) {
        let (told, rounds) = (self.rounds.told(), &self.rounds);
        row!(
            table,
            self.name,
            self.kind,
            1e3 / told.one_ns,
            1e3 / told.two_ns,
            told.ratio,
            told.arithmetic,
            rounds.taken(),
            rounds.retaken(),
        );
    }
}
