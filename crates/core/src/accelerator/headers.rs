//! Sampling before headers: the meter chooses the packets of a queue whose headers it reads.
//!
//! An accelerator with `before=headers` is the first one. The meter then does its sampling and
//! reads no headers of skipped packets; the accelerator takes the packets that were read with their
//! weights.

use super::sampler::Steps;
use crate::summary::sampling::Sampler;
use crate::summary::{BuildError, BuildErrorKind, Parameter, Parameters, Setting};
use crate::terms::Measure;

/// The places where an accelerator can sample.
const SUMMARY: &str = "summary";
const HEADERS: &str = "headers";
const NAME: &str = "before";

/// The parameter `before`.
pub(super) const PARAMETER: Parameter = Parameter {
    name: NAME,
    help: "where to sample: right before the summary (summary, the default), or before headers \
           are read (headers), so that skipped packets cost almost nothing; totals of keyed \
           traffic, thresholds and shares are then estimates",
};

/// Whether these parameters ask for sampling before headers.
///
/// # Errors
/// When the value is unknown, or packets are weighted by their bytes.
pub(super) fn requested(parameters: &Parameters, by: Measure) -> Result<bool, BuildError> {
    let requested = parameters.word(NAME, &[SUMMARY, HEADERS])? == HEADERS;
    match by {
        Measure::Bytes if requested => Err(refused(
            "supported by bytes, since the lengths of skipped packets are unknown: use --by \
             packets, or before=summary"
                .to_owned(),
        )),
        _ => Ok(requested),
    }
}

/// Whether the first of these accelerators samples before headers.
pub fn is_before_headers(accelerators: &[(String, Parameters)]) -> bool {
    accelerators.first().is_some_and(|(_, parameters)| is_requested(parameters))
}

/// Whether an accelerator with these parameters samples before headers.
pub(super) fn is_requested(parameters: &Parameters) -> bool {
    parameters.get(NAME) == Some(HEADERS)
}

/// Refuses sampling before headers behind another accelerator, which needs the keys.
///
/// # Errors
/// When an accelerator other than the first asks for it.
pub(crate) fn check_order(accelerators: &[(String, Parameters)]) -> Result<(), BuildError> {
    let late = |(_, parameters): &&(String, Parameters)| parameters.get(NAME) == Some(HEADERS);
    match (accelerators.first(), accelerators.iter().skip(1).find(late)) {
        (Some((first, _)), Some((name, _))) => Err(refused(format!(
            "supported behind {first}, which needs the keys of all packets: put {name} first, or use \
             before=summary"
        ))),
        _ => Ok(()),
    }
}

/// The error that `before=headers` is not supported here, with the remedy.
pub(super) fn refused(range: String) -> BuildError {
    BuildErrorKind::OutOfRange { name: NAME, value: HEADERS.to_owned(), range }.into()
}

/// The setting to report where it is not the default.
pub(super) fn setting() -> (&'static str, Setting) {
    (NAME, Setting::Word(HEADERS))
}

/// The sampling rate before headers.
///
/// ```
/// use flowgauge_core::catalog::build_accelerated;
/// use flowgauge_core::key::Key8;
/// use flowgauge_core::summary::{Options, Parameters};
///
/// let parameters = Parameters::new([("sample", "100"), ("before", "headers")]);
/// let chain = [("uniform".to_owned(), parameters)];
/// let options = Options::new(1 << 20, 1).for_keys(4);
/// let summary = build_accelerated::<Key8>(&chain, "count-min", &options)?;
/// assert!(summary.header_rate().unwrap().delta() < 0.5);
/// # Ok::<(), flowgauge_core::summary::BuildError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HeaderRate {
    pub(super) chance: Chance,
    /// Probability of an error outside the bounds.
    pub(super) delta: f64,
}

/// The probability that a packet is read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Chance {
    /// One packet in a number that may grow.
    Steps(Steps),
    /// At least one of `rows` rows samples the packet; each samples one packet in `one_in`.
    Rows { one_in: u64, rows: u32 },
}

impl Chance {
    /// The probability at the packet of this number, counted from 1; the weight of a packet that is
    /// read; and the number of the last packet for which both hold.
    fn at(self, packet: u64) -> (f64, u64, u64) {
        match self {
            Self::Steps(steps) => {
                let (one_in, until) = steps.at(packet);
                (1.0 / one_in as f64, one_in, until)
            }
            Self::Rows { one_in, rows } => (any_of(one_in, rows), 1, u64::MAX),
        }
    }
}

/// The probability that at least one of `slots` slots is sampled, each with probability 1/`one_in`.
pub(super) fn any_of(one_in: u64, slots: u32) -> f64 {
    if one_in == 1 { 1.0 } else { -(f64::from(slots) * (-1.0 / one_in as f64).ln_1p()).exp_m1() }
}

impl HeaderRate {
    /// Probability that an estimated sum is outside its bounds.
    pub fn delta(self) -> f64 {
        self.delta
    }
}

/// Number of packets drawn at a time.
const DRAWN: usize = 16;

/// Samples the packets of a queue that are read.
///
/// Cost: a random draw for each packet that is read, several at a time, and one subtraction for any
/// number of skipped packets.
///
/// ```
/// use flowgauge_core::summary::{Options, Parameters};
/// use flowgauge_core::{accelerator::HeaderSampler, catalog::build_accelerated, key::Key8};
///
/// let parameters = Parameters::new([("sample", "100"), ("before", "headers")]);
/// let chain = [("uniform".to_owned(), parameters)];
/// let options = Options::new(1 << 20, 1).for_keys(4);
/// let summary = build_accelerated::<Key8>(&chain, "count-min", &options).unwrap();
/// let mut sampler = HeaderSampler::new(summary.header_rate().unwrap(), 7);
/// let (mut read, mut packets) = (0, 100_000);
/// while sampler.ahead() < packets {
///     packets -= sampler.ahead() + 1;
///     assert!(sampler.pass(sampler.ahead()));
///     sampler.take();
///     read += 1;
/// }
/// assert!((850..1150).contains(&read), "{read}");
/// ```
#[derive(Debug)]
pub struct HeaderSampler {
    rate: HeaderRate,
    /// The seed of the draws, together with the number of the epoch.
    seed: u64,
    draws: Sampler,
    /// The number of packets to skip before each of the next sampled packets, and the probability
    /// and weight of each. Entries before `at` are used up.
    gaps: [u64; DRAWN],
    odds: [(f64, u64); DRAWN],
    at: usize,
    drawn: usize,
    /// The number of the packet drawn last, and of the last packet with the same probability and
    /// weight.
    next: u64,
    until: u64,
}

impl HeaderSampler {
    /// A sampler with draws determined by `seed`, at the start of epoch 0.
    pub fn new(rate: HeaderRate, seed: u64) -> Self {
        let (draws, gaps, odds) = (Sampler::new(seed, 1.0), [0; DRAWN], [(1.0, 1); DRAWN]);
        let (at, drawn, next, until) = (0, 0, 0, 0);
        let mut sampler = Self { rate, seed, draws, gaps, odds, at, drawn, next, until };
        sampler.begin(0);
        sampler
    }

    /// Begins epoch number `epoch`.
    pub fn begin(&mut self, epoch: i64) {
        // The multiplier of Knuth's generator gives each epoch another seed.
        let seed = self.seed ^ epoch.cast_unsigned().wrapping_mul(0x5851_f42d_4c95_7f2d);
        self.draws = Sampler::new(seed, 1.0);
        (self.next, self.until) = (0, 0);
        self.draw();
    }

    /// Number of packets to skip before the next packet to read.
    #[inline(always)]
    pub fn ahead(&self) -> u64 {
        self.gaps[self.at]
    }

    /// The numbers of packets to skip before each of the next packets to read, as far as they are
    /// drawn: at least one.
    #[inline(always)]
    pub fn gaps(&self) -> &[u64] {
        &self.gaps[self.at..self.drawn]
    }

    /// Skips `packets` packets unless one of them is to be read. Returns whether it did.
    #[inline(always)]
    pub fn pass(&mut self, packets: u64) -> bool {
        let ahead = &mut self.gaps[self.at];
        let passed = *ahead >= packets;
        if passed {
            *ahead -= packets;
        }
        passed
    }

    /// The weight in the summary of the next packet to read.
    #[inline(always)]
    pub fn weight(&self) -> u64 {
        self.odds[self.at].1
    }

    /// The probability with which the next packet is read.
    #[inline(always)]
    pub fn chance(&self) -> f64 {
        self.odds[self.at].0
    }

    /// Number of consecutive packets to read with the same weight. 0 if a packet must be skipped
    /// first.
    pub fn run(&self) -> u64 {
        match self.ahead() {
            // Only one packet is drawn at a time in this case.
            0 if self.chance() >= 1.0 => self.until - self.next + 1,
            0 => 1,
            _ => 0,
        }
    }

    /// The sampling rate before headers.
    pub fn rate(&self) -> HeaderRate {
        self.rate
    }

    /// Takes the next packet to read; no packet may be left to skip.
    #[inline]
    pub fn take(&mut self) {
        debug_assert_eq!(self.ahead(), 0, "packets ahead of it are passed over first");
        self.at += 1;
        if self.at == self.drawn {
            self.draw();
        }
    }

    /// Draws the next packets to read: only one where all are read.
    #[inline(never)]
    fn draw(&mut self) {
        // The last drawn packet has the latest probability and weight.
        let mut odds = self.odds[self.drawn.saturating_sub(1)];
        (self.at, self.drawn) = (0, 0);
        if odds.0 < 1.0 && self.draw_all(odds) {
            return;
        }
        while self.drawn == 0 || self.drawn < DRAWN && odds.0 < 1.0 && self.next < u64::MAX {
            let gap = self.draw_one(&mut odds);
            (self.gaps[self.drawn], self.odds[self.drawn]) = (gap, odds);
            self.drawn += 1;
        }
    }

    /// Draws packets to read, each with this probability and weight. Returns `false` if these might
    /// change before the last one.
    fn draw_all(&mut self, odds: (f64, u64)) -> bool {
        let far = DRAWN as f64 * (self.draws.most() + 1.0);
        if ((self.until - self.next) as f64) < far {
            return false;
        }
        self.draws.choose_all(&mut self.gaps);
        self.next += self.gaps.iter().sum::<u64>() + DRAWN as u64;
        (self.odds, self.drawn) = ([odds; DRAWN], DRAWN);
        true
    }

    /// Draws the number of packets to skip before the next packet to read, and updates its
    /// probability and weight.
    #[inline(always)]
    fn draw_one(&mut self, odds: &mut (f64, u64)) -> u64 {
        let mut gap = 0;
        loop {
            if self.next == self.until {
                (odds.0, odds.1, self.until) = self.rate.chance.at(self.next + 1);
                self.draws.change(odds.0);
            }
            let mut left = self.until - self.next;
            let passed = left;
            let chosen = self.draws.choose(&mut left);
            self.next += passed - left;
            gap += passed - left - u64::from(chosen);
            if chosen || self.next == u64::MAX {
                return gap;
            }
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
mod tests {
    use super::super::sampler::MOST;
    use super::*;

    /// The numbers of the packets read, counted from 0, with their weights.
    fn read(sampler: &mut HeaderSampler, packets: u64) -> Vec<(u64, u64)> {
        let (mut at, mut read) = (0, Vec::new());
        while at + sampler.ahead() < packets {
            at += sampler.ahead();
            assert!(sampler.pass(sampler.ahead()) && !sampler.pass(1));
            read.push((at, sampler.weight()));
            sampler.take();
            at += 1;
        }
        read
    }

    fn sampler(chance: Chance) -> HeaderSampler {
        HeaderSampler::new(HeaderRate { chance, delta: 0.01 }, 7)
    }

    #[test]
    fn weights_follow_the_rate_and_add_up_to_the_packets() {
        println!("seed 7");
        let packets = 3_000_000;
        // Off by more than 5 standard deviations one time in 10⁶; the standard deviation of one in
        // n is √(n packets).
        for (steps, most) in [(Steps::constant(100), 100), (Steps::falling(100_000), 30)] {
            let read = read(&mut sampler(Chance::Steps(steps)), packets);
            assert!(read.iter().all(|&(at, weight)| steps.at(at + 1).0 == weight));
            let sum: u64 = read.iter().map(|(_, weight)| weight).sum();
            let deviation = ((most * packets) as f64).sqrt();
            assert!((sum as f64 - packets as f64).abs() < 5.0 * deviation, "{sum}");
        }
        let all = read(&mut sampler(Chance::Steps(Steps::constant(1))), 50);
        assert_eq!(all, (0..50).map(|at| (at, 1)).collect::<Vec<_>>());
    }

    #[test]
    fn draws_depend_on_the_number_of_the_epoch() {
        let mut sampler = sampler(Chance::Steps(Steps::falling(1000)));
        let mut epoch = |number| {
            sampler.begin(number);
            read(&mut sampler, 10_000)
        };
        let (first, second) = (epoch(4), epoch(5));
        assert!(first != second && first == epoch(4));
        assert!(first[..1000].iter().zip(0..).all(|(read, at)| *read == (at, 1)));
    }

    #[test]
    fn a_packet_is_read_if_one_of_its_rows_samples_it() {
        for (one_in, chance) in [(100, 0.039_403_99), (1, 1.0)] {
            assert!((any_of(one_in, 4) - chance).abs() < 1e-9, "{one_in}");
        }
        let read = read(&mut sampler(Chance::Rows { one_in: 100, rows: 4 }), 1_000_000);
        // Binomial: off by 5 standard deviations one time in 10⁶.
        let expected = 39_403.99;
        assert!((read.len() as f64 - expected).abs() < 5.0 * expected.sqrt(), "{}", read.len());
    }

    #[test]
    fn sampling_before_headers_is_refused_with_the_reason() {
        let headers = Parameters::new([(NAME, HEADERS)]);
        assert!(requested(&headers, Measure::Packets).unwrap());
        assert!(!requested(&Parameters::default(), Measure::Bytes).unwrap());
        let refusal = requested(&headers, Measure::Bytes).unwrap_err().to_string();
        assert!(refusal.starts_with("'before=headers' is not supported by bytes"), "{refusal}");
        let chain = [
            ("agg-evict".to_owned(), Parameters::default()),
            ("uniform".to_owned(), headers.clone()),
        ];
        let refusal = check_order(&chain).unwrap_err().to_string();
        assert!(refusal.contains("behind agg-evict") && refusal.contains("put uniform first"));
        assert!(check_order(&chain[1..]).is_ok());
        assert!(requested(&Parameters::new([(NAME, "keys")]), Measure::Packets).is_err());
    }

    #[test]
    fn the_smallest_chance_never_overflows() {
        let mut sampler = sampler(Chance::Steps(Steps::constant(MOST)));
        for _ in 0..1000 {
            let ahead = sampler.ahead();
            assert!(sampler.pass(ahead));
            sampler.take();
        }
    }
}
