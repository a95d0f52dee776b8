//! Measurement rounds that count only if the machine provided the cores they need.

use std::ops::RangeInclusive;

use crate::experiment::part::median;

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
