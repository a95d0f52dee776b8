//! Sampling before headers: which packets of a queue are read at all.
//!
//! An accelerator with `before=headers` stands first. Its draws then belong to the meter, which reads
//! no header of the others; what is behind takes the packets that were read, each with its weight.

use super::sampler::Steps;
use crate::summary::counter::Sampler;
use crate::summary::{BuildError, BuildErrorKind, Parameter, Parameters, Setting};
use crate::terms::Measure;

/// Where an accelerator decides.
const SUMMARY: &str = "summary";
const HEADERS: &str = "headers";
const NAME: &str = "before";

/// The parameter.
pub(super) const PARAMETER: Parameter = Parameter {
    name: NAME,
    help: "where to sample: right before the summary (summary, the default), or before headers \
           are read (headers), so that skipped packets cost almost nothing; totals of keyed \
           traffic, thresholds and shares are then estimates",
};

/// Whether these parameters ask for a decision before headers.
///
/// # Errors
/// When it says something else, or packets are weighed by their bytes.
pub(super) fn asked(parameters: &Parameters, by: Measure) -> Result<bool, BuildError> {
    let asked = parameters.word(NAME, &[SUMMARY, HEADERS])? == HEADERS;
    match by {
        Measure::Bytes if asked => Err(refused(
            "supported by bytes, since the lengths of skipped packets are unknown: use --by \
             packets, or before=summary"
                .to_owned(),
        )),
        _ => Ok(asked),
    }
}

/// Whether the first of these accelerators decides before headers.
pub fn is_before_headers(accelerators: &[(String, Parameters)]) -> bool {
    accelerators.first().is_some_and(|(_, parameters)| is_asked(parameters))
}

/// Whether an accelerator with these parameters is to decide before headers are read.
pub(super) fn is_asked(parameters: &Parameters) -> bool {
    parameters.get(NAME) == Some(HEADERS)
}

/// Refuses a decision before headers behind another accelerator, which needs the keys.
///
/// # Errors
/// When one of these that is not the first asks for it.
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

/// Why `before=headers` is not possible here, with what is.
pub(super) fn refused(range: String) -> BuildError {
    BuildErrorKind::OutOfRange { name: NAME, value: HEADERS.to_owned(), range }.into()
}

/// The parameter in force, where it is not the default.
pub(super) fn setting() -> (&'static str, Setting) {
    (NAME, Setting::Word(HEADERS))
}

/// How few packets are read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HeaderRate {
    pub(super) chance: Chance,
    /// Chance of a larger error than the bounds allow.
    pub(super) delta: f64,
}

/// The chance that a packet is read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Chance {
    /// One in a number that may grow.
    Steps(Steps),
    /// That at least one row takes it: each of `rows` takes one packet in `one_in`.
    Rows { one_in: u64, rows: u32 },
}

impl Chance {
    /// The chance at the packet of this number, counted from 1, the weight of a packet that is read in
    /// the summary, and the number of the last packet for which that holds.
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

/// The chance that one of so many slots is taken, each with the chance of one in so many.
pub(super) fn any_of(one_in: u64, slots: u32) -> f64 {
    if one_in == 1 { 1.0 } else { -(f64::from(slots) * (-1.0 / one_in as f64).ln_1p()).exp_m1() }
}

impl HeaderRate {
    /// Chance that a sum is not within the bounds of what it estimates.
    pub fn delta(self) -> f64 {
        self.delta
    }
}

/// Packets that are drawn at a time.
const DRAWN: usize = 16;

/// Draws which packets of a queue are read.
///
/// Cost: a draw for each packet that is read, of several at a time; those passed over are a subtraction,
/// however many.
#[derive(Debug)]
pub struct HeaderSampler {
    rate: HeaderRate,
    /// What the draws of an epoch follow from, beside its number.
    seed: u64,
    draws: Sampler,
    /// Packets to pass over before each of the next ones that are read, and the chance and the weight of
    /// these; those before `at` were read.
    gaps: [u64; DRAWN],
    odds: [(f64, u64); DRAWN],
    at: usize,
    drawn: usize,
    /// The number in the epoch of the packet drawn last, and the last packet for which its chance and its
    /// weight hold.
    next: u64,
    until: u64,
}

impl HeaderSampler {
    /// A sampler that has yet to begin an epoch; its draws follow from `seed`.
    pub fn new(rate: HeaderRate, seed: u64) -> Self {
        let (draws, gaps, odds) = (Sampler::new(seed, 1.0), [0; DRAWN], [(1.0, 1); DRAWN]);
        let (at, drawn, next, until) = (0, 0, 0, 0);
        let mut sampler = Self { rate, seed, draws, gaps, odds, at, drawn, next, until };
        sampler.begin(0);
        sampler
    }

    /// Begins the epoch of this number.
    pub fn begin(&mut self, epoch: i64) {
        // The multiplier of Knuth's generator keeps seeds of epochs apart.
        let seed = self.seed ^ epoch.cast_unsigned().wrapping_mul(0x5851_f42d_4c95_7f2d);
        self.draws = Sampler::new(seed, 1.0);
        (self.next, self.until) = (0, 0);
        self.draw();
    }

    /// Packets before the next one that is to be read.
    #[inline(always)]
    pub fn ahead(&self) -> u64 {
        self.gaps[self.at]
    }

    /// The gaps between the next packets to be read, as far as they are drawn: at least one gap.
    #[inline(always)]
    pub fn gaps(&self) -> &[u64] {
        &self.gaps[self.at..self.drawn]
    }

    /// Passes over all of `packets`, unless one of them is to be read; whether it did.
    #[inline(always)]
    pub fn pass(&mut self, packets: u64) -> bool {
        let ahead = &mut self.gaps[self.at];
        let passed = *ahead >= packets;
        if passed {
            *ahead -= packets;
        }
        passed
    }

    /// How many packets the next one that is read stands for in the summary.
    #[inline(always)]
    pub fn weight(&self) -> u64 {
        self.odds[self.at].1
    }

    /// The chance with which the next packet is read.
    #[inline(always)]
    pub fn chance(&self) -> f64 {
        self.odds[self.at].0
    }

    /// Packets from the next one on that are surely read, with the same weight: at least one, where none
    /// is ahead of it.
    pub fn run(&self) -> u64 {
        match self.ahead() {
            // No packet is drawn behind such a one.
            0 if self.chance() >= 1.0 => self.until - self.next + 1,
            0 => 1,
            _ => 0,
        }
    }

    /// How few packets are read.
    pub fn rate(&self) -> HeaderRate {
        self.rate
    }

    /// Reads the next packet, none being ahead of it.
    #[inline]
    pub fn take(&mut self) {
        debug_assert_eq!(self.ahead(), 0, "packets ahead of it are passed over first");
        self.at += 1;
        if self.at == self.drawn {
            self.draw();
        }
    }

    /// Draws the next packets that are read: one, where all are.
    #[inline(never)]
    fn draw(&mut self) {
        // The packet drawn last stands behind all others.
        let mut odds = self.odds[self.drawn.saturating_sub(1)];
        (self.at, self.drawn) = (0, 0);
        while self.drawn == 0 || self.drawn < DRAWN && odds.0 < 1.0 && self.next < u64::MAX {
            let gap = self.draw_one(&mut odds);
            (self.gaps[self.drawn], self.odds[self.drawn]) = (gap, odds);
            self.drawn += 1;
        }
    }

    /// Draws how many packets are passed over before one that is read, with its chance and its weight.
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

    /// The numbers of the packets that are read, counted from 0, with their weights.
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
        // Off by more than 5 standard deviations one time in 10⁶: those of one in n are √(n packets).
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
    fn epochs_draw_anew_and_the_same_again() {
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
    fn a_packet_is_read_if_one_of_its_rows_takes_it() {
        for (one_in, chance) in [(100, 0.039_403_99), (1, 1.0)] {
            assert!((any_of(one_in, 4) - chance).abs() < 1e-9, "{one_in}");
        }
        let read = read(&mut sampler(Chance::Rows { one_in: 100, rows: 4 }), 1_000_000);
        // Binomial: off by 5 standard deviations one time in 10⁶.
        let expected = 39_403.99;
        assert!((read.len() as f64 - expected).abs() < 5.0 * expected.sqrt(), "{}", read.len());
    }

    #[test]
    fn what_cannot_decide_before_headers_says_why() {
        let headers = Parameters::new([(NAME, HEADERS)]);
        assert!(asked(&headers, Measure::Packets).unwrap());
        assert!(!asked(&Parameters::default(), Measure::Bytes).unwrap());
        let refusal = asked(&headers, Measure::Bytes).unwrap_err().to_string();
        assert!(refusal.starts_with("'before=headers' is not supported by bytes"), "{refusal}");
        let chain = [
            ("agg-evict".to_owned(), Parameters::default()),
            ("uniform".to_owned(), headers.clone()),
        ];
        let refusal = check_order(&chain).unwrap_err().to_string();
        assert!(refusal.contains("behind agg-evict") && refusal.contains("put uniform first"));
        assert!(check_order(&chain[1..]).is_ok());
        assert!(asked(&Parameters::new([(NAME, "keys")]), Measure::Packets).is_err());
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
