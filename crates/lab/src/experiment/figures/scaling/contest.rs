//! One worker against two, round by round, with arithmetic as a reference.

use std::hint::black_box;
use std::ops::RangeInclusive;
use std::sync::Arc;

use flowgauge_core::batch::{BATCH_PACKETS, Batch};
use flowgauge_core::key::Key8;

use crate::experiment::latency::Runner;
use crate::experiment::parallel::{Crew, Together};
use crate::experiment::part::median;
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
    /// When a runner cannot be built.
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

/// Speed-up of arithmetic on two threads with a core each. Two threads of one core gain less; a
/// thread that was kept from its core seems to gain more.
pub(super) const DOUBLES: RangeInclusive<f64> = 1.9..=2.1;

/// Minimum number of counting rounds for a reliable result.
pub(super) const LEAST: usize = 3;

/// A round: one worker, two workers, and arithmetic before and after.
#[derive(Clone, Copy, Debug)]
pub(super) struct Round {
    /// Nanoseconds per packet.
    pub(super) one_ns: f64,
    pub(super) two_ns: f64,
    /// Speed-up of arithmetic on two threads, before and after.
    pub(super) arithmetic: [f64; 2],
    /// Whether every worker had a core.
    pub(super) cores: bool,
}

impl Round {
    /// The speed-up of arithmetic, before or after, that is farther from two.
    fn gain(&self) -> f64 {
        let [before, after] = self.arithmetic;
        if (before - 2.0).abs() > (after - 2.0).abs() { before } else { after }
    }

    /// Whether it counts. This does not depend on the measured result.
    fn counts(&self) -> bool {
        self.cores && self.arithmetic.iter().all(|gain| DOUBLES.contains(gain))
    }
}

/// The rounds of a measurement. Rounds without two full cores are retaken.
#[derive(Clone, Debug)]
pub(super) struct Rounds {
    taken: Vec<Round>,
    wanted: usize,
    most: usize,
}

/// Medians of the rounds that count, or of all if too few do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    /// Nanoseconds per packet.
    pub(super) one_ns: f64,
    pub(super) two_ns: f64,
    pub(super) ratio: f64,
    pub(super) arithmetic: f64,
}

impl Rounds {
    /// Takes rounds until `wanted` count, at most `most`.
    pub(super) fn new(wanted: usize, most: usize) -> Self {
        Self { taken: Vec::with_capacity(most), wanted, most }
    }

    /// Takes a round, if more are wanted.
    pub(super) fn take(&mut self, round: impl FnOnce() -> Round) {
        if self.taken.len() < self.most && self.taken() - self.retaken() < self.wanted {
            self.taken.push(round());
        }
    }

    /// Number of rounds taken.
    pub(super) fn taken(&self) -> usize {
        self.taken.len()
    }

    /// Number of rounds that do not count.
    pub(super) fn retaken(&self) -> usize {
        self.taken.iter().filter(|round| !round.counts()).count()
    }

    /// The speed-up of arithmetic in every round, counted or not.
    pub(super) fn gains(&self) -> impl Iterator<Item = f64> {
        self.taken.iter().map(Round::gain)
    }

    pub(super) fn told(&self) -> Told {
        let all = self.taken() - self.retaken() < LEAST;
        let told = || self.taken.iter().filter(|round| all || round.counts());
        let middle = |of: fn(&Round) -> f64| median(&told().map(of).collect::<Vec<_>>());
        Told {
            one_ns: middle(|round| round.one_ns),
            two_ns: middle(|round| round.two_ns),
            ratio: middle(|round| round.one_ns / round.two_ns),
            arithmetic: middle(Round::gain),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes rounds with these gains of a summary and of arithmetic, as long as more are wanted.
    fn rounds(wanted: usize, most: usize, times: &[(f64, [f64; 2])]) -> Rounds {
        let mut rounds = Rounds::new(wanted, most);
        for &(ratio, arithmetic) in times {
            rounds.take(|| Round { one_ns: 10.0 * ratio, two_ns: 10.0, arithmetic, cores: true });
        }
        rounds
    }

    fn assert_near(number: f64, wanted: f64) {
        assert!((number - wanted).abs() < 1e-9, "{number} instead of {wanted}");
    }

    #[test]
    fn rounds_without_two_cores_are_retaken() {
        let (good, shared) = ([1.97, 1.98], [1.22, 1.23]);
        let changed = [[1.97, 1.3], [1.3, 1.97], [1.97, 2.5], [f64::NAN, 1.97]];
        let mut times = vec![(1.2, shared); 4];
        times.extend(changed.map(|arithmetic| (1.5, arithmetic)));
        times.extend([(1.9, good), (1.7, good), (1.8, good), (9.0, good)]);
        let rounds = rounds(3, 100, &times);
        assert_eq!((rounds.taken(), rounds.retaken()), (11, 8), "no more than are wanted");
        let told = rounds.told();
        assert_near(told.ratio, 1.8);
        assert_near(told.one_ns / told.two_ns, 1.8);
        assert_near(told.arithmetic, 1.97);
        assert_eq!(rounds.gains().filter(|gain| *gain < 1.4).count(), 6);
    }

    #[test]
    fn what_was_measured_has_no_say() {
        let good = [2.0, 1.95];
        let times = [(0.6, good), (3.0, good), (0.7, good), (0.5, good)];
        let rounds = rounds(4, 8, &times);
        assert_eq!((rounds.taken(), rounds.retaken()), (4, 0));
        assert_near(rounds.told().ratio, 0.7);
    }

    #[test]
    fn rounds_in_which_others_ran_are_retaken() {
        let mut rounds = Rounds::new(2, 9);
        for cores in [false, true, false, true, true] {
            rounds.take(|| Round { one_ns: 2.0, two_ns: 1.0, arithmetic: [2.0; 2], cores });
        }
        assert_eq!((rounds.taken(), rounds.retaken()), (4, 2));
    }

    #[test]
    fn there_is_an_end_to_it() {
        let mut times = vec![(1.2, [1.22, 1.22]); 20];
        times[3] = (1.9, [1.96, 1.96]);
        times[5] = (1.9, [1.96, 1.96]);
        let rounds = rounds(5, 10, &times);
        assert_eq!((rounds.taken(), rounds.retaken()), (10, 8));
        assert!(rounds.taken() - rounds.retaken() < LEAST);
        let told = rounds.told();
        assert_near(told.ratio, 1.2);
        assert_near(told.arithmetic, 1.22);
    }
}
