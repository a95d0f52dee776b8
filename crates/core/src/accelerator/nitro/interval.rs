//! The sampling interval of a row: it takes one packet in a number that may change over time.

use crate::accelerator::headers;
use crate::summary::codec::{DecodeError, Reader, Writer};
use crate::summary::{BuildError, BuildErrorKind, Parameters, Setting};
use crate::terms::Measure;

/// Rows of batches from one check of a variable interval to the next. A row is a packet, or a sum
/// of packets.
const WINDOW: u64 = 10_000;

/// Nanoseconds for each sampled packet at line rate: 0.625 million samples a second.
const NS_A_PACKET: u64 = 1600;

/// Default intervals.
const FIXED: u64 = 100;
const LINE_RATE: u64 = 1 << 7;

/// The largest interval: the smallest `p` is one over this number.
const MOST: u64 = 1 << 16;

/// Default error that convergence is tested for, as a share of L2.
const EPSILON: f64 = 0.05;

const MODES: &[&str] = &["fixed", "line-rate", "correct"];

/// When the interval changes.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Mode {
    /// Never.
    Fixed,
    /// With the rate of the packets.
    LineRate,
    /// With the rate of the packets, once L2 is large enough for samples to be as accurate as all
    /// packets.
    Correct,
}

/// The parameters.
#[derive(Clone, Copy)]
pub(super) struct Config {
    pub(super) mode: Mode,
    /// The largest interval.
    pub(super) most: u64,
    pub(super) epsilon: f64,
    /// Whether the meter samples before headers are read.
    pub(super) headers: bool,
}

impl Config {
    pub(super) fn new(parameters: &Parameters) -> Result<Self, BuildError> {
        let mode = match parameters.word("mode", MODES)? {
            "fixed" => Mode::Fixed,
            "line-rate" => Mode::LineRate,
            _ => Mode::Correct,
        };
        let given = one_in(parameters)?;
        let most = match mode {
            Mode::Fixed => given.unwrap_or(FIXED),
            // The largest power of two up to it.
            _ => 1 << given.unwrap_or(LINE_RATE).ilog2(),
        };
        let epsilon = parameters.fraction("epsilon")?.unwrap_or(EPSILON);
        let headers = headers::requested(parameters, Measure::Packets)?;
        Ok(Self { mode, most, epsilon, headers })
    }

    /// Refuses sampling before headers in the modes that adapt to packets.
    pub(super) fn check(self) -> Result<(), BuildError> {
        if !self.headers || self.mode == Mode::Fixed {
            return Ok(());
        }
        Err(headers::refused(format!(
            "supported with mode={}, which adapts to the packets: use mode=fixed, or before=summary",
            MODES[self.mode as usize]
        )))
    }

    pub(super) fn p(self) -> f64 {
        1.0 / self.most as f64
    }

    /// Whether all packets are always taken.
    pub(super) fn takes_all(self) -> bool {
        self.most == 1
    }

    /// Whether each level of the sketch has its own interval, given whether it has levels.
    pub(super) fn by_levels(self, has_levels: bool) -> bool {
        has_levels && self.mode != Mode::Fixed && !self.takes_all()
    }

    /// The parameters in force.
    pub(super) fn settings(self) -> Vec<(&'static str, Setting)> {
        let mut settings = vec![
            ("mode", Setting::Word(MODES[self.mode as usize])),
            ("p", Setting::Fraction(self.p())),
        ];
        if self.mode == Mode::Correct {
            settings.push(("epsilon", Setting::Fraction(self.epsilon)));
        }
        settings.extend(self.headers.then(headers::setting));
        settings
    }

    /// The L2² from which on the error of a sample exceeds ε L2 no more often than that of all
    /// packets does, for packets of weight at most 1.
    pub(super) fn convergence(self) -> f64 {
        let (epsilon, p) = (self.epsilon, self.p());
        121.0 * (1.0 + epsilon * p.sqrt()) * epsilon.powi(-4) * p.powi(-2)
    }
}

/// The whole number nearest to 1/p.
fn one_in(parameters: &Parameters) -> Result<Option<u64>, BuildError> {
    let Some(text) = parameters.get("p") else { return Ok(None) };
    match text.parse::<f64>() {
        Ok(p) if (1.0 / MOST as f64..=1.0).contains(&p) => Ok(Some((1.0 / p).round() as u64)),
        _ => Err(BuildErrorKind::OutOfRange {
            name: "p",
            value: text.to_owned(),
            range: format!("a number from 1/{MOST} to 1, such as 0.01"),
        }
        .into()),
    }
}

/// The current sampling interval.
pub(super) struct Interval {
    config: Config,
    /// Windows from one convergence test to the next: a test reads every cell, so at least as many
    /// rows come in between.
    tested_every: u64,
    pub(super) one_in: u64,
    /// Number of rows so far. A sum counts as one row: it costs as much as a packet, and says no
    /// more about times.
    pub(super) seen: u64,
    /// The time of the first packet of the window.
    since_ns: i64,
    converged: bool,
}

impl Interval {
    pub(super) fn new(config: Config, cells: usize) -> Self {
        let one_in = if config.mode == Mode::Fixed { config.most } else { 1 };
        let tested_every = (cells as u64).div_ceil(WINDOW);
        Self { config, tested_every, one_in, seen: 0, since_ns: 0, converged: false }
    }

    pub(super) fn config(&self) -> Config {
        self.config
    }

    /// The number of the row, counted from 1, after which the interval may change.
    #[inline(always)]
    pub(super) fn until(&self) -> u64 {
        match self.config.mode {
            Mode::Fixed => u64::MAX,
            _ => (self.seen / WINDOW + 1).saturating_mul(WINDOW),
        }
    }

    /// Records the time of the first packet.
    pub(super) fn begin(&mut self, time_ns: i64) {
        self.since_ns = time_ns;
    }

    /// Ends a window at this time, and returns the next interval. The sketch's L2² and the largest
    /// weight of a packet determine convergence.
    pub(super) fn turn(
        &mut self,
        time_ns: i64,
        squared_l2: impl FnOnce() -> f64,
        largest: u64,
    ) -> u64 {
        let windows = self.seen / WINDOW;
        // The first window has one gap fewer than packets.
        let packets = if windows == 1 { WINDOW - 1 } else { WINDOW };
        let passed_ns = time_ns.saturating_sub(self.since_ns);
        self.since_ns = time_ns;
        if self.config.mode == Mode::Correct
            && !self.converged
            && windows.is_multiple_of(self.tested_every)
        {
            let least = self.config.convergence() * (largest as f64).powi(2);
            self.converged = squared_l2() >= least;
        }
        if self.config.mode == Mode::Correct && !self.converged {
            return 1;
        }
        match u64::try_from(passed_ns) {
            // Packets without times.
            _ if time_ns == 0 => 1,
            Ok(passed_ns @ 1..) => {
                let one_in = (packets * NS_A_PACKET).div_ceil(passed_ns).next_power_of_two();
                one_in.min(self.config.most)
            }
            // A clock that stands still or goes back says nothing about the rate.
            _ => self.one_in,
        }
    }

    /// Returns to the initial state.
    pub(super) fn clear(&mut self) {
        self.next_epoch();
        self.since_ns = 0;
        if self.config.mode != Mode::Fixed {
            self.one_in = 1;
        }
    }

    /// Begins an epoch, at the current interval.
    pub(super) fn next_epoch(&mut self) {
        (self.seen, self.converged) = (0, false);
        if self.config.mode == Mode::Correct {
            self.one_in = 1;
        }
    }

    pub(super) fn save(&self, out: &mut Writer) {
        out.numbers(&[self.seen, self.one_in]);
        out.number(self.since_ns);
        out.number(u8::from(self.converged));
    }

    pub(super) fn load(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.seen = from.number("packets seen")?;
        if self.seen > u64::MAX / 2 {
            return Err(from.invalid("packets seen", 8, "it is impossibly large"));
        }
        self.one_in = from.number("sampling interval")?;
        let possible = match self.config.mode {
            Mode::Fixed => self.one_in == self.config.most,
            _ => self.one_in.is_power_of_two() && self.one_in <= self.config.most,
        };
        if !possible {
            return Err(from.invalid("sampling interval", 8, "it is impossibly large"));
        }
        self.since_ns = from.number("time of the window")?;
        self.converged = from.flag("convergence")?;
        Ok(())
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
mod tests {
    use super::*;

    fn interval(pairs: &[(&str, &str)]) -> Interval {
        let parameters = Parameters::new(pairs.iter().copied());
        Interval::new(Config::new(&parameters).unwrap(), 25_000)
    }

    /// The intervals after windows of packets with these gaps.
    fn windows(interval: &mut Interval, gaps_ns: &[i64], squared_l2: f64) -> Vec<u64> {
        let mut time_ns = 1_000_000_000;
        interval.begin(time_ns);
        time_ns -= gaps_ns[0];
        let turn = |gap_ns: &i64| {
            time_ns += gap_ns * WINDOW.cast_signed();
            interval.seen = interval.until();
            interval.one_in = interval.turn(time_ns, || squared_l2, 1);
            interval.one_in
        };
        gaps_ns.iter().map(turn).collect()
    }

    #[test]
    fn the_line_rate_decides() {
        let mut line_rate = interval(&[("mode", "line-rate")]);
        assert_eq!((line_rate.one_in, line_rate.until()), (1, 10_000));
        // 40 million packets a second, 10 million, 0.6 million, 100 million; a clock that stands
        // still, and one that goes back.
        let gaps = [25, 25, 100, 1650, 10, 0, -5, 100];
        assert_eq!(windows(&mut line_rate, &gaps, 0.0), [64, 64, 16, 1, 128, 128, 128, 16]);
        let mut bounded = interval(&[("mode", "line-rate"), ("p", "0.03")]);
        assert_eq!(windows(&mut bounded, &[10, 100, 200], 0.0), [32, 16, 8]);
        bounded.next_epoch();
        assert_eq!((bounded.one_in, bounded.until()), (8, 10_000));
    }

    #[test]
    fn without_times_nothing_is_left_out() {
        let mut line_rate = interval(&[("mode", "line-rate")]);
        line_rate.begin(0);
        line_rate.seen = line_rate.until();
        assert_eq!(line_rate.turn(0, || 0.0, 1), 1);
    }

    /// Tests are due after as many packets as cells: at every third window.
    #[test]
    fn it_converges_before_it_samples() {
        let config = [("mode", "correct"), ("epsilon", "0.1"), ("p", "0.25")];
        let least = 121.0 * 1.05 * 1e4 * 16.0;
        let mut correct = interval(&config);
        assert!((correct.config.convergence() / least - 1.0).abs() < 1e-9);
        assert_eq!(windows(&mut correct, &[25; 7], least * 0.99), [1; 7]);
        let mut correct = interval(&config);
        assert_eq!(windows(&mut correct, &[25; 4], least * 1.01), [1, 1, 4, 4]);
        correct.next_epoch();
        assert_eq!((correct.one_in, correct.converged), (1, false));
    }

    #[test]
    fn p_is_one_over_a_whole_number() {
        for (p, one_in) in [("0.01", 100), ("0.3", 3), ("1", 1), ("0.7", 1), ("1e-3", 1000)] {
            assert_eq!(interval(&[("p", p)]).one_in, one_in, "{p}");
        }
        for p in ["0", "1.5", "-1", "nan", "1e-9", "x"] {
            assert!(Config::new(&Parameters::new([("p", p)])).is_err(), "{p}");
        }
    }
}
