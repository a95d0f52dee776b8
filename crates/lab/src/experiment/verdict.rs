//! Whether a claim stands: computed from the numbers of a table, part by part.

use std::fmt;

use super::table::short;

/// Relative differences that are not told apart: rounds of one measurement differ by as much.
pub(crate) const ALIKE: f64 = 0.03;

/// What became of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stand {
    /// Every part of it holds.
    Confirmed,
    /// Some part of it does not.
    Contradicted,
    /// Too close to tell, or not measurable here.
    Open,
}

impl Stand {
    /// All of them.
    pub(crate) const ALL: [Self; 3] = [Self::Confirmed, Self::Contradicted, Self::Open];
}

impl fmt::Display for Stand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Confirmed => "Confirmed",
            Self::Contradicted => "Contradicted",
            Self::Open => "Open",
        })
    }
}

/// What became of a claim.
#[derive(Clone, Debug)]
pub(crate) struct Verdict {
    pub(crate) stand: Stand,
    parts: Vec<Part>,
}

/// A part of a claim, checked.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    /// Whether it holds; `None` where that cannot be told.
    holds: Option<bool>,
    /// What was measured.
    told: String,
}

impl Part {
    /// A part that cannot be told, with the reason.
    pub(crate) fn open(reason: impl Into<String>) -> Self {
        Self { holds: None, told: reason.into() }
    }

    /// Claims that numbers are less than others, pair by pair, by more than [`ALIKE`]: of all pairs, or
    /// at least no pair the other way round and most of them so.
    pub(crate) fn less(what: &str, less: &[f64], more: &[f64]) -> Self {
        let ratios: Vec<f64> = less.iter().zip(more).map(|(less, more)| less / more).collect();
        let ratios: Vec<f64> = ratios.into_iter().filter(|ratio| ratio.is_finite()).collect();
        if ratios.is_empty() {
            return Self::open(format!("{what}: nothing was measured"));
        }
        let under = ratios.iter().filter(|ratio| **ratio < 1.0 - ALIKE).count();
        let over = ratios.iter().filter(|ratio| **ratio > 1.0 + ALIKE).count();
        let holds = match (under, over) {
            (_, 0) if 2 * under > ratios.len() => Some(true),
            (_, over) if over > 0 => Some(false),
            _ => None,
        };
        let told = match ratios[..] {
            [ratio] => format!("{what}: {}", digits(ratio)),
            _ => format!(
                "{what}: {} ({} to {}); less at {under} of {} points, more at {over}",
                digits(median(&ratios)),
                digits(least(&ratios)),
                digits(most(&ratios)),
                ratios.len()
            ),
        };
        Self { holds, told }
    }

    /// Claims that numbers rise (or fall, where `up` is false) from first to last by more than
    /// [`ALIKE`].
    pub(crate) fn moves(what: &str, numbers: &[f64], up: bool) -> Self {
        let numbers: Vec<f64> = numbers.iter().copied().filter(|n| n.is_finite()).collect();
        let (Some(first), Some(last)) = (numbers.first(), numbers.last()) else {
            return Self::open(format!("{what}: nothing was measured"));
        };
        let ratio = if up { last / first } else { first / last };
        let holds = if ratio > 1.0 + ALIKE {
            Some(true)
        } else if ratio < 1.0 - ALIKE {
            Some(false)
        } else {
            None
        };
        Self { holds, told: format!("{what}: from {} to {}", digits(*first), digits(*last)) }
    }

    /// Claims that a number is at least so much; a missing one is open.
    pub(crate) fn at_least(what: &str, number: f64, least: f64) -> Self {
        let holds = number.is_finite().then_some(number >= least);
        Self { holds, told: format!("{what}: {} (at least {})", digits(number), digits(least)) }
    }

    /// Claims that a number is at most so much; a missing one is open.
    pub(crate) fn at_most(what: &str, number: f64, most: f64) -> Self {
        let holds = number.is_finite().then_some(number <= most);
        Self { holds, told: format!("{what}: {} (at most {})", digits(number), digits(most)) }
    }
}

impl Verdict {
    /// Of a claim with these parts: contradicted where one does not hold, else open where one cannot
    /// be told.
    pub(crate) fn of(parts: impl IntoIterator<Item = Part>) -> Self {
        let parts: Vec<Part> = parts.into_iter().collect();
        let stand = if parts.iter().any(|part| part.holds == Some(false)) {
            Stand::Contradicted
        } else if parts.is_empty() || parts.iter().any(|part| part.holds.is_none()) {
            Stand::Open
        } else {
            Stand::Confirmed
        };
        Self { stand, parts }
    }

    /// In a sentence.
    pub(crate) fn sentence(&self) -> String {
        let count = |holds| self.parts.iter().filter(|part| part.holds == holds).count();
        let open = match count(None) {
            0 => String::new(),
            open => format!(", {open} cannot be told"),
        };
        format!("{}: {} of {} parts hold{open}", self.stand, count(Some(true)), self.parts.len())
    }

    /// Part by part, with the numbers that decided.
    pub(crate) fn lines(&self) -> impl Iterator<Item = String> {
        self.parts.iter().map(|part| {
            let word = match part.holds {
                Some(true) => "holds",
                Some(false) => "does not hold",
                None => "cannot be told",
            };
            format!("{word}: {}", part.told)
        })
    }
}

/// The middle one; not a number of none.
pub(crate) fn median(numbers: &[f64]) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// A number with three digits that tell.
fn digits(number: f64) -> String {
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

fn least(numbers: &[f64]) -> f64 {
    numbers.iter().copied().fold(f64::INFINITY, f64::min)
}

fn most(numbers: &[f64]) -> f64 {
    numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stand(part: Part) -> Stand {
        Verdict::of([part]).stand
    }

    #[test]
    fn claims_stand_and_fall_by_their_numbers() {
        let less = |less: &[f64], more: &[f64]| stand(Part::less("", less, more));
        assert_eq!(less(&[1.0, 1.0, 1.0], &[2.0, 1.5, 1.01]), Stand::Confirmed);
        assert_eq!(less(&[1.0, 2.0], &[2.0, 1.0]), Stand::Contradicted);
        assert_eq!(less(&[1.0, 1.0], &[1.01, 1.02]), Stand::Open);
        assert_eq!(less(&[1.0, f64::NAN], &[2.0, 1.0]), Stand::Confirmed);
        assert_eq!(less(&[], &[]), Stand::Open);
        let moves = |numbers: &[f64], up| stand(Part::moves("", numbers, up));
        assert_eq!(moves(&[1.0, 5.0, 2.0], true), Stand::Confirmed);
        assert_eq!(moves(&[1.0, 5.0, 2.0], false), Stand::Contradicted);
        assert_eq!(moves(&[1.0, 5.0, 1.01], false), Stand::Open);
        assert_eq!(stand(Part::at_least("", 1.8, 1.8)), Stand::Confirmed);
        assert_eq!(stand(Part::at_most("", 1.8, 1.7)), Stand::Contradicted);
        assert_eq!(stand(Part::at_most("", f64::NAN, 1.7)), Stand::Open);
        assert_eq!(Part::at_most("it", f64::NAN, 1.7).told, "it: not measured (at most 1.7)");
        let both = [Part::at_least("one", 1.0, 2.0), Part::open("other")];
        let verdict = Verdict::of(both);
        assert_eq!(verdict.stand, Stand::Contradicted);
        assert_eq!(verdict.sentence(), "Contradicted: 0 of 2 parts hold, 1 cannot be told");
        let lines: Vec<String> = verdict.lines().collect();
        assert_eq!(lines, ["does not hold: one: 1 (at least 2)", "cannot be told: other"]);
        assert_eq!(Verdict::of([]).stand, Stand::Open);
    }
}
