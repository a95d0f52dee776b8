//! Checks of measured numbers against claims.

use super::latency::TAIL;
use super::table::{Noise, short};

/// Relative differences that are never distinguished, even on a steady machine: rounds of one
/// measurement differ as much.
pub(crate) const ALIKE: f64 = 0.03;

/// One check of a claim.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    what: String,
    check: Check,
    of: Of,
}

/// The numbers of a check, which decide the noise that matters.
#[derive(Clone, Copy, Debug)]
enum Of {
    /// Counts and errors, which are the same in each run.
    Counts,
    /// Means of times, and rates.
    Means,
    /// Tails of times.
    Tails,
}

#[derive(Clone, Debug)]
enum Check {
    /// Ratios: most are below 1, and none above.
    Less(Vec<f64>),
    /// The last number is above the first, or below it.
    Moves {
        first: f64,
        last: f64,
        up: bool,
    },
    AtLeast(f64, f64),
    AtMost(f64, f64),
    /// A mean is at most this, within its margin of error.
    MeanAtMost {
        mean: f64,
        margin: f64,
        most: f64,
    },
    /// A number differs from another by at most this share.
    Within(f64, f64, f64),
    /// A share of a count is at most, or with `up` at least, this bound.
    Share {
        count: f64,
        of: f64,
        bound: f64,
        up: bool,
    },
    /// It cannot be decided.
    Open,
}

/// The result of a check.
#[derive(Clone, Debug)]
pub(crate) struct Checked {
    /// `None` if it cannot be decided.
    pub(crate) holds: Option<bool>,
    told: String,
}

impl Checked {
    /// The result in words.
    pub(super) fn line(&self) -> String {
        let word = match self.holds {
            Some(true) => "holds",
            Some(false) => "does not hold",
            None => "cannot be told",
        };
        format!("{word}: {}", self.told)
    }
}

impl Part {
    fn new(what: impl Into<String>, check: Check) -> Self {
        Self { what: what.into(), check, of: Of::Counts }
    }

    /// Cannot be decided, with the reason.
    pub(crate) fn open(reason: impl Into<String>) -> Self {
        Self::new(reason, Check::Open)
    }

    /// Numbers are less than others, pair by pair: none is greater, and most are less.
    pub(crate) fn less(what: &str, less: &[f64], more: &[f64]) -> Self {
        let ratios = less.iter().zip(more).map(|(less, more)| less / more);
        Self::new(what, Check::Less(ratios.filter(|ratio| ratio.is_finite()).collect())).timed()
    }

    /// Numbers rise from first to last, or fall if `up` is false.
    pub(crate) fn moves(what: &str, numbers: &[f64], up: bool) -> Self {
        let finite = || numbers.iter().copied().filter(|number| number.is_finite());
        let (first, last) =
            (finite().next().unwrap_or(f64::NAN), finite().next_back().unwrap_or(f64::NAN));
        Self::new(what, Check::Moves { first, last, up }).timed()
    }

    /// A number is at least this.
    pub(crate) fn at_least(what: &str, number: f64, least: f64) -> Self {
        Self::new(what, Check::AtLeast(number, least))
    }

    /// A number is at most this.
    pub(crate) fn at_most(what: &str, number: f64, most: f64) -> Self {
        Self::new(what, Check::AtMost(number, most))
    }

    /// The mean of a sample is at most this; its uncertainty is the margin.
    pub(crate) fn mean_at_most(what: &str, [mean, margin]: [f64; 2], most: f64) -> Self {
        Self::new(what, Check::MeanAtMost { mean, margin, most })
    }

    /// A number differs from the paper's by at most this share.
    pub(crate) fn within(what: &str, number: f64, wanted: f64, share: f64) -> Self {
        Self::new(what, Check::Within(number, wanted, share))
    }

    /// `count` of `of` are at least this share.
    pub(crate) fn most_are(what: &str, count: f64, of: f64, bound: f64) -> Self {
        Self::new(what, Check::Share { count, of, bound, up: true })
    }

    /// `count` of `of` are at most this share.
    pub(crate) fn few_are(what: &str, count: f64, of: f64, bound: f64) -> Self {
        Self::new(what, Check::Share { count, of, bound, up: false })
    }

    /// The numbers are times or rates: a distance to a bound within the noise decides nothing.
    pub(crate) fn timed(self) -> Self {
        Self { of: Of::Means, ..self }
    }

    /// The numbers are tails of times, whose noise is larger.
    pub(crate) fn tails(self) -> Self {
        Self { of: Of::Tails, ..self }
    }

    /// The numbers are means or tails of times, by the column that they are from.
    pub(crate) fn from(self, column: &str) -> Self {
        if column == TAIL { self.tails() } else { self.timed() }
    }

    /// Checks it, given the relative spread of rounds.
    pub(super) fn check(self, noise: Noise) -> Checked {
        let noise = match self.of {
            Of::Counts => 0.0,
            Of::Means => noise.means.max(ALIKE),
            Of::Tails => noise.tails.max(ALIKE),
        };
        let what = self.what;
        let (holds, told) = match self.check {
            Check::Open => (None, what),
            Check::Less(ratios) => {
                let (holds, told) = less(&ratios, noise);
                (holds, format!("{what}: {told}"))
            }
            Check::Moves { first, last, up } => {
                let ratio = if up { last / first } else { first / last };
                let told = format!("{what}: from {} to {}", digits(first), digits(last));
                (apart(ratio, 1.0, noise), told)
            }
            Check::AtLeast(number, least) => (
                apart(number, least, noise),
                format!("{what}: {} (at least {})", digits(number), digits(least)),
            ),
            Check::AtMost(number, most) => (
                apart(number, most, noise).map(|over| !over || (noise <= 0.0 && number <= most)),
                format!("{what}: {} (at most {})", digits(number), digits(most)),
            ),
            Check::MeanAtMost { mean, margin, most } => {
                let holds = match mean {
                    mean if !mean.is_finite() => None,
                    mean if mean <= most => Some(true),
                    mean if mean - margin > most => Some(false),
                    _ => None,
                };
                let (mean, margin, most) = (digits(mean), digits(margin), digits(most));
                (holds, format!("{what}: {mean} ± {margin} (at most {most})"))
            }
            Check::Share { count, of, bound, up } => {
                let word = if up { "at least" } else { "at most" };
                let told = format!(
                    "{what}: {} of {}, {} % ({word} {} %)",
                    digits(count),
                    digits(of),
                    digits(100.0 * count / of),
                    digits(100.0 * bound)
                );
                (is_share(count, of, bound, up), told)
            }
            Check::Within(number, wanted, share) => (
                within((number / wanted - 1.0).abs(), share, noise),
                format!("{what}: {} ({} ± {:.0} %)", digits(number), digits(wanted), 100.0 * share),
            ),
        };
        Checked { holds, told }
    }
}

/// Whether a number is above a bound (or equal to it without noise); `None` within the noise.
fn apart(number: f64, bound: f64, noise: f64) -> Option<bool> {
    let margin = noise * bound.abs();
    match number {
        number if !number.is_finite() => None,
        number if number >= bound + margin => Some(true),
        number if number <= bound - margin => Some(false),
        _ => None,
    }
}

/// Whether a relative difference is at most this; `None` within the noise.
fn within(difference: f64, most: f64, noise: f64) -> Option<bool> {
    match difference {
        difference if !difference.is_finite() => None,
        difference if difference <= most => Some(true),
        difference if difference > most + noise => Some(false),
        _ => None,
    }
}

/// Significance level for telling shares apart.
const CHANCE: f64 = 0.025;

/// Above this mean number of exceptions, the normal approximation applies.
const MANY: f64 = 25.0;

/// Whether `count` of `of` reach this share; `None` if chance can explain the exceptions.
fn is_share(count: f64, of: f64, bound: f64, up: bool) -> Option<bool> {
    let (exceptions, share) = if up { (of - count, 1.0 - bound) } else { (count, bound) };
    match exceptions / of {
        rate if !rate.is_finite() => None,
        rate if rate <= share => Some(true),
        _ if is_chance(exceptions, of, share) => None,
        _ => Some(false),
    }
}

/// Whether at least this many of `of`, each with this probability, occur with a chance of
/// [`CHANCE`] or more.
fn is_chance(least: f64, of: f64, probability: f64) -> bool {
    let (mean, variance) = (of * probability, of * probability * (1.0 - probability));
    if variance > MANY {
        // 1.96 standard deviations.
        return least < mean + 1.96 * variance.sqrt();
    }
    let (mut fewer, mut term, mut k) = (0.0, (1.0 - probability).powf(of), 0.0);
    while k < least {
        fewer += term;
        term *= (of - k) / (k + 1.0) * probability / (1.0 - probability);
        k += 1.0;
    }
    1.0 - fewer >= CHANCE
}

fn less(ratios: &[f64], noise: f64) -> (Option<bool>, String) {
    let under = ratios.iter().filter(|ratio| **ratio < 1.0 - noise).count();
    let over = ratios.iter().filter(|ratio| **ratio > 1.0 + noise).count();
    let holds = match (under, over) {
        (_, 0) if 2 * under > ratios.len() => Some(true),
        (_, over) if over > 0 => Some(false),
        _ => None,
    };
    let told = match ratios[..] {
        [] => "nothing was measured".to_owned(),
        [ratio] => digits(ratio),
        _ => format!(
            "{} ({} to {}); less at {under} of {} points, more at {over}",
            digits(median(ratios)),
            digits(ratios.iter().copied().fold(f64::INFINITY, f64::min)),
            digits(ratios.iter().copied().fold(f64::NEG_INFINITY, f64::max)),
            ratios.len()
        ),
    };
    (holds, told)
}

/// The spread of numbers over rounds: half of the interquartile range, which at least half of the
/// numbers are within of the median.
pub(crate) fn spread(numbers: &[f64]) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    let quartile =
        |quarters: usize| sorted.get(sorted.len().saturating_sub(1) * quarters / 4).copied();
    match (quartile(1), quartile(3)) {
        (Some(first), Some(third)) => (third - first) / 2.0,
        _ => f64::NAN,
    }
}

/// The median; NaN for an empty list.
pub(crate) fn median(numbers: &[f64]) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// A number with three significant digits.
pub(super) fn digits(number: f64) -> String {
    if !number.is_finite() {
        return "not measured".to_owned();
    }
    let whole = number.abs() >= 100.0;
    let text = if whole { format!("{number:.0}") } else { short((number * 1e3).round() / 1e3) };
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const YES: Option<bool> = Some(true);
    const NO: Option<bool> = Some(false);

    fn holds(part: Part) -> Option<bool> {
        part.check(Noise { means: 0.01, tails: 0.01 }).holds
    }

    #[test]
    fn parts_hold_by_their_numbers() {
        let less = |less: &[f64], more: &[f64]| holds(Part::less("", less, more));
        assert_eq!(less(&[1.0, 1.0, 1.0], &[2.0, 1.5, 1.01]), YES);
        assert_eq!(less(&[1.0, 2.0], &[2.0, 1.0]), NO);
        assert_eq!(less(&[1.0, 1.0], &[1.01, 1.02]), None);
        assert_eq!(less(&[1.0, f64::NAN], &[2.0, 1.0]), YES);
        assert_eq!(less(&[], &[]), None);
        let moves = |numbers: &[f64], up| holds(Part::moves("", numbers, up));
        assert_eq!(moves(&[1.0, 5.0, 2.0], true), YES);
        assert_eq!(moves(&[1.0, 5.0, 2.0], false), NO);
        assert_eq!(moves(&[1.0, 5.0, 1.01], false), None);
        assert_eq!(
            [holds(Part::at_least("", 1.8, 1.8)), holds(Part::at_most("", 1.8, 1.8))],
            [YES; 2]
        );
        assert_eq!(
            [holds(Part::at_least("", 1.7, 1.8)), holds(Part::at_most("", 1.9, 1.8))],
            [NO; 2]
        );
        assert_eq!(
            [holds(Part::at_least("", 0.0, 0.0)), holds(Part::at_most("", 0.0, 0.0))],
            [YES; 2]
        );
        assert_eq!(holds(Part::at_most("", f64::NAN, 1.7)), None);
        let within = |number| holds(Part::within("", number, 10.0, 0.05));
        assert_eq!([within(9.6), within(10.4), within(9.4), within(10.6)], [YES, YES, NO, NO]);
    }

    #[test]
    fn few_of_few_are_no_share() {
        let few = |count, of| holds(Part::few_are("", count, of, 0.01));
        assert_eq!([few(1.0, 100.0), few(2.0, 100.0), few(5.0, 100.0)], [YES, None, NO]);
        assert_eq!([few(20.0, 1000.0), few(0.0, 0.0)], [NO, None]);
        assert_eq!(holds(Part::few_are("", 4.0, 143.0, 0.01)), None, "one time in eighteen");
        let most = |count| holds(Part::most_are("", count, 1000.0, 0.95));
        assert_eq!([most(950.0), most(948.0), most(900.0)], [YES, None, NO]);
    }

    #[test]
    fn means_have_margins() {
        let mean = |mean| holds(Part::mean_at_most("", [mean, 0.2], 1.0));
        assert_eq!([mean(0.9), mean(1.1), mean(1.3), mean(f64::NAN)], [YES, None, NO, None]);
    }

    #[test]
    fn differences_within_the_noise_are_undecided() {
        let means = |means| Noise { means, tails: 0.0 };
        let least =
            |number, noise| Part::at_least("", number, 10.0).timed().check(means(noise)).holds;
        assert_eq!([least(10.2, 0.0), least(9.8, 0.0), least(10.4, 0.0)], [None, None, YES]);
        assert_eq!([least(10.4, 0.05), least(9.4, 0.05), least(10.6, 0.05)], [None, NO, YES]);
        let most = |number| Part::at_most("", number, 10.0).timed().check(means(0.05)).holds;
        assert_eq!([most(9.4), most(9.6), most(10.4), most(10.6)], [YES, None, None, NO]);
        let less = |ratio| Part::less("", &[ratio], &[1.0]).check(means(0.2)).holds;
        assert_eq!([less(0.7), less(0.9), less(1.1), less(1.3)], [YES, None, None, NO]);
        let tail = |ratio, noise| Part::less("", &[ratio], &[1.0]).tails().check(noise).holds;
        let tails = Noise { means: 0.0, tails: 0.2 };
        assert_eq!([tail(0.9, tails), tail(0.9, means(0.2)), tail(0.7, tails)], [None, YES, YES]);
    }

    #[test]
    fn parts_tell_their_numbers() {
        let line = |part: Part| part.check(Noise::default()).line();
        assert_eq!(
            line(Part::at_most("it", f64::NAN, 1.7)),
            "cannot be told: it: not measured (at most 1.7)"
        );
        assert_eq!(line(Part::within("it", 9.0, 10.0, 0.05)), "does not hold: it: 9 (10 ± 5 %)");
        assert_eq!(line(Part::open("no core")), "cannot be told: no core");
    }
}
