//! Verdicts on the claims of a paper, computed from the numbers of a table.

use std::fmt::{self, Write as _};

use super::part::{Checked, Part, digits};
use super::table::{Noise, Table};

/// A claim of a paper, with the numbers that decide it.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    says: String,
    ours: Vec<Part>,
    baseline: Option<(Vec<Part>, Gain)>,
    otherwise: String,
}

/// How much better this engine is than the paper's structure, as a factor.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Gain {
    /// Packets a second.
    Faster(f64),
    /// Errors, inverted.
    Closer(f64),
}

impl fmt::Display for Gain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told = |times: f64| match times {
            times if times > 1e3 => "over a thousand".to_owned(),
            _ => digits(times),
        };
        match self {
            Self::Faster(times) => write!(f, "ours is {} times as fast", told(*times)),
            Self::Closer(times) => write!(f, "the error of ours is {} times less", told(*times)),
        }
    }
}

impl Claim {
    /// A claim with its checks, and an explanation in case one of them fails.
    pub(crate) fn new(
        says: impl Into<String>,
        ours: impl IntoIterator<Item = Part>,
        otherwise: impl Into<String>,
    ) -> Self {
        Self {
            says: says.into(),
            ours: ours.into_iter().collect(),
            baseline: None,
            otherwise: otherwise.into(),
        }
    }

    /// The same claim for the paper's structure, and how much better this engine's does.
    pub(crate) fn on_baseline(self, parts: impl IntoIterator<Item = Part>, gain: Gain) -> Self {
        Self { baseline: Some((parts.into_iter().collect(), gain)), ..self }
    }

    fn judge(self, noise: Noise) -> Judged {
        let check = |parts: Vec<Part>| -> Vec<Checked> {
            parts.into_iter().map(|part| part.check(noise)).collect()
        };
        let ours = check(self.ours);
        let (baseline, gain) = match self.baseline {
            Some((parts, gain)) => (check(parts), Some(gain)),
            None => (Vec::new(), None),
        };
        let finding = match (together(&ours), gain, together(&baseline)) {
            (Some(true), _, _) => Finding::Reproduced,
            (_, Some(gain), Some(true)) => Finding::OnBaseline(gain),
            (Some(false), None, _) | (Some(false), _, Some(false)) => {
                Finding::Contradicted { why: self.otherwise }
            }
            _ => Finding::Untold,
        };
        Judged { says: self.says, finding, ours, baseline }
    }
}

/// Whether all checks hold: `Some(false)` if one fails, otherwise `None` if one cannot be decided.
fn together(parts: &[Checked]) -> Option<bool> {
    if parts.iter().any(|part| part.holds == Some(false)) {
        Some(false)
    } else if parts.is_empty() || parts.iter().any(|part| part.holds.is_none()) {
        None
    } else {
        Some(true)
    }
}

/// The finding for a claim.
#[derive(Clone, Debug)]
pub(crate) enum Finding {
    /// Every check holds.
    Reproduced,
    /// The paper's structure behaves as claimed; this engine's is better.
    OnBaseline(Gain),
    /// A check fails, for a known reason.
    Contradicted { why: String },
    /// This run cannot decide it.
    Untold,
}

/// The words for findings in pages and reports, plus the one for claims that cannot be measured.
pub(super) const WORDS: [&str; 5] = [
    "Reproduced",
    "Reproduced on the paper's baseline only",
    "Not comparable here",
    "Contradicted",
    "Cannot be told",
];

impl Finding {
    /// Its word.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Reproduced => WORDS[0],
            Self::OnBaseline(_) => WORDS[1],
            Self::Contradicted { .. } => WORDS[3],
            Self::Untold => WORDS[4],
        }
    }
}

/// A judged claim.
#[derive(Clone, Debug)]
pub(crate) struct Judged {
    says: String,
    pub(crate) finding: Finding,
    pub(crate) ours: Vec<Checked>,
    pub(crate) baseline: Vec<Checked>,
}

impl Judged {
    /// A list item, with the checks below it.
    fn item(&self) -> String {
        let gain = match self.finding {
            Finding::OnBaseline(gain) => format!(" ({gain})"),
            _ => String::new(),
        };
        let mut item = format!("**{}{gain}.** {}\n", self.finding.word(), self.says);
        if let Finding::Contradicted { why } = &self.finding {
            let _ = writeln!(item, "   - **Why.** {why}");
        }
        for part in &self.ours {
            let _ = writeln!(item, "   - {}", part.line());
        }
        for part in &self.baseline {
            let _ = writeln!(item, "   - on the paper's baseline, {}", part.line());
        }
        item
    }
}

/// A claim that cannot be measured here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Missing {
    /// The paper's statement.
    pub(crate) says: &'static str,
    /// The hardware, trace or code that it needs.
    pub(crate) needs: &'static str,
}

/// The findings for the claims of a figure, headline first.
#[derive(Clone, Debug)]
pub(crate) struct Verdict {
    pub(crate) claims: Vec<Judged>,
}

impl Verdict {
    /// Judges these claims, headline first. The table's noise limits what can be told apart.
    pub(crate) fn of(table: &Table, claims: impl IntoIterator<Item = Claim>) -> Self {
        let judge = |claim: Claim| claim.judge(table.noise());
        Self { claims: claims.into_iter().map(judge).collect() }
    }

    /// The worst finding.
    #[cfg(test)]
    pub(crate) fn worst(&self) -> &'static str {
        let words: Vec<&str> = self.claims.iter().map(|claim| claim.finding.word()).collect();
        let worst = [WORDS[3], WORDS[4], WORDS[1], WORDS[0]];
        worst.into_iter().find(|word| words.contains(word)).unwrap_or(WORDS[4])
    }

    /// A sentence with the finding of the headline, and the number of other claims per finding.
    pub(super) fn sentence(&self, missing: &[Missing]) -> String {
        let gain = match self.claims.first().map(|claim| &claim.finding) {
            Some(Finding::OnBaseline(gain)) => format!(" ({gain})"),
            _ => String::new(),
        };
        let mut words = self.claims.iter().map(|claim| claim.finding.word());
        let headline = words.next().unwrap_or(WORDS[4]);
        let others: Vec<&str> = words.chain(missing.iter().map(|_| WORDS[2])).collect();
        let counts = WORDS.iter().filter_map(|word| {
            let count = others.iter().filter(|other| *other == word).count();
            (count > 0).then(|| format!("{count} {}", word.to_lowercase()))
        });
        match others.len() {
            0 => format!("{headline}{gain}"),
            _ => format!("{headline}{gain}; others: {}", counts.collect::<Vec<_>>().join(", ")),
        }
    }

    /// A numbered list of claims.
    pub(super) fn list(&self, missing: &[Missing]) -> String {
        let without = |one: &Missing| {
            format!("**{}.** {}\n   - **Missing.** {}\n", WORDS[2], one.says, one.needs)
        };
        let items = self.claims.iter().map(Judged::item).chain(missing.iter().map(without));
        let mut list = String::new();
        for (item, number) in items.zip(1..) {
            let _ = write!(list, "{number}. {item}");
        }
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(ours: f64, baseline: f64) -> Claim {
        let part = |number| Part::at_least("it", number, 1.0);
        Claim::new("It is.", [part(ours)], "It is not, since.")
            .on_baseline([part(baseline)], Gain::Faster(2.0))
    }

    fn word(claim: Claim) -> &'static str {
        Verdict::of(&Table::new([]), [claim]).worst()
    }

    #[test]
    fn claims_stand_and_fall_by_their_numbers() {
        let on_baseline = "Reproduced on the paper's baseline only";
        assert_eq!(word(claim(1.0, 0.0)), "Reproduced");
        assert_eq!([word(claim(0.0, 1.0)), word(claim(f64::NAN, 1.0))], [on_baseline; 2]);
        assert_eq!(word(claim(0.0, 0.0)), "Contradicted");
        for (ours, baseline) in [(0.0, f64::NAN), (f64::NAN, 0.0), (f64::NAN, f64::NAN)] {
            assert_eq!(word(claim(ours, baseline)), "Cannot be told");
        }
        assert_eq!(word(Claim::new("", [], "")), "Cannot be told");
        let failed = Claim::new("", [Part::open("a"), Part::at_least("", 0.0, 1.0)], "");
        assert_eq!(word(failed), "Contradicted");
    }

    #[test]
    fn the_headline_comes_first() {
        let missing = [Missing { says: "More.", needs: "A switch." }];
        let claims = [claim(0.0, 1.0), claim(1.0, 1.0), claim(0.0, 0.0)];
        let verdict = Verdict::of(&Table::new([]), claims);
        assert_eq!(
            verdict.sentence(&missing),
            "Reproduced on the paper's baseline only (ours is 2 times as fast); others: 1 reproduced, 1 not \
             comparable here, 1 contradicted"
        );
        let list = verdict.list(&missing);
        for line in [
            "1. **Reproduced on the paper's baseline only (ours is 2 times as fast).** It is.",
            "   - does not hold: it: 0 (at least 1)",
            "   - on the paper's baseline, holds: it: 1 (at least 1)",
            "2. **Reproduced.** It is.",
            "3. **Contradicted.** It is.",
            "   - **Why.** It is not, since.",
            "4. **Not comparable here.** More.",
            "   - **Missing.** A switch.",
        ] {
            assert!(list.lines().any(|have| have == line), "{line}\n{list}");
        }
        assert_eq!(Verdict::of(&Table::new([]), []).sentence(&[]), "Cannot be told");
    }
}
