//! Decides whether a row is worse than in the baseline, and whether its bounds fail too often.
//!
//! Traffic and algorithms have fixed seeds, so equal code gives equal rows: a limit is exceeded
//! only if a code change affects results. The limits allow for equally good changes, such as
//! another way to draw random bits.

use std::fmt;

use super::table::Row;

/// How much worse a row may get.
struct Slack {
    /// The factor by which an error may grow, and an additional allowance.
    factor: f64,
    error: f64,
    /// How much precision and recall may drop.
    share: f64,
}

/// 10 % and 0.2 percentage points: exact and nearly exact results must stay so.
const SLACK: Slack = Slack { factor: 1.1, error: 0.002, share: 0.01 };

/// Algorithms with unseeded random bits: no two runs are equal. Rank errors have a standard
/// deviation of half a percent (`k = 200`). The slack is six of them: one false alarm in 10⁸
/// numbers.
const UNSEEDED: [&str; 1] = ["kll"];
const UNSEEDED_SLACK: Slack = Slack { factor: 1.1, error: 0.03, share: 0.05 };

/// A problem with a row.
#[derive(Debug, PartialEq)]
pub(crate) struct Finding {
    row: [String; 4],
    column: &'static str,
    was: String,
    is: String,
    limit: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { row: [algorithm, asked, task, profile], column, was, is, limit } = self;
        write!(f, "{algorithm} ({asked}), {task}, {profile}: {column} was {was}, is {is}; {limit}")
    }
}

/// The problems of one row.
struct Findings<'a> {
    row: &'a Row,
    found: Vec<Finding>,
}

impl Findings<'_> {
    fn add(
        &mut self,
        column: &'static str,
        was: impl Into<String>,
        is: impl Into<String>,
        limit: impl Into<String>,
    ) {
        self.found.push(Finding {
            row: self.row.name().map(str::to_owned),
            column,
            was: was.into(),
            is: is.into(),
            limit: limit.into(),
        });
    }

    /// Values that define the measurement must be equal.
    fn same<T: PartialEq + ToString>(&mut self, column: &'static str, was: &T, is: &T) {
        if was != is {
            self.add(
                column,
                was.to_string(),
                is.to_string(),
                "must be equal: measure the table anew",
            );
        }
    }

    fn error(&mut self, column: &'static str, was: Option<f64>, is: Option<f64>, slack: &Slack) {
        let Some(was) = was.map(f64::abs) else { return };
        let most = was * slack.factor + slack.error;
        match is.map(f64::abs) {
            Some(is) if is <= most => {}
            Some(is) => self.add(column, six(was), six(is), format!("at most {most:.6}")),
            None => self.add(column, six(was), "missing", format!("at most {most:.6}")),
        }
    }

    fn share(&mut self, column: &'static str, was: Option<f64>, is: Option<f64>, slack: &Slack) {
        let Some(was) = was else { return };
        let least = was - slack.share;
        match is {
            // Both are rounded in the table.
            Some(is) if is >= least - 1e-6 => {}
            Some(is) => self.add(column, six(was), six(is), format!("at least {least:.6}")),
            None => self.add(column, six(was), "missing", format!("at least {least:.6}")),
        }
    }

    /// Bounds must hold as stated, whatever the baseline says.
    fn bounds(&mut self) {
        let Row { sure, likely, confidence, .. } = *self.row;
        if sure.broken > 0 {
            let is = format!("{} of {} broken", sure.broken, sure.asked);
            self.add("sure", "to hold always", is, "at most 0");
        }
        let confidence = confidence.unwrap_or(1.0);
        let (most, enough) =
            (most_failures(likely.asked, 1.0 - confidence), enough_to_judge(1.0 - confidence));
        let was = format!("to hold with {confidence:.6}");
        if (1..enough).contains(&likely.asked) {
            let is = format!("{} asked", likely.asked);
            self.add("likely", was, is, format!("{enough} could fail; measure more seeds"));
        } else if likely.broken > most {
            let is = format!("{} of {} broken", likely.broken, likely.asked);
            let limit = format!("at most {most}: more by chance once in {:.0}", 1.0 / FALSE_ALARM);
            self.add("likely", was, is, limit);
        }
    }
}

fn six(number: f64) -> String {
    format!("{number:.6}")
}

/// Rows whose bounds do not hold as stated.
pub(crate) fn broken(rows: &[Row]) -> Vec<Finding> {
    let of = |row| {
        let mut findings = Findings { row, found: Vec::new() };
        findings.bounds();
        findings.found
    };
    rows.iter().flat_map(of).collect()
}

/// All ways in which `rows` are worse than `baseline`, and missing or new rows.
pub(crate) fn compare(baseline: &[Row], rows: &[Row]) -> Vec<Finding> {
    let mut found = Vec::new();
    for was in baseline {
        let mut findings = Findings { row: was, found: Vec::new() };
        match rows.iter().find(|is| is.name() == was.name()) {
            Some(is) => compare_row(&mut findings, was, is),
            None => findings.add("row", "there", "missing", "must be measured"),
        }
        found.append(&mut findings.found);
    }
    for row in rows.iter().filter(|is| baseline.iter().all(|was| was.name() != is.name())) {
        let mut findings = Findings { row, found: Vec::new() };
        findings.add("row", "missing", "there", "measure the table anew: make accuracy");
        found.append(&mut findings.found);
    }
    found.extend(broken(rows));
    found
}

fn compare_row(findings: &mut Findings<'_>, was: &Row, is: &Row) {
    let unseeded = UNSEEDED.contains(&was.own_algorithm());
    let slack = if unseeded { UNSEEDED_SLACK } else { SLACK };
    findings.same("key", &was.key, &is.key);
    findings.same("parameters", &was.parameters, &is.parameters);
    findings.same("memory_bytes", &was.memory_bytes, &is.memory_bytes);
    findings.same("flows", &was.flows, &is.flows);
    if is.answered < was.answered {
        let [was, is] = [was, is].map(|row| row.answered.to_string());
        findings.add("answered", &was, is, format!("at least {was}"));
    }
    findings.error("bias", was.bias, is.bias, &slack);
    findings.error("rms", was.rms, is.rms, &slack);
    findings.error("worst", was.worst, is.worst, &slack);
    findings.share("precision", was.precision, is.precision, &slack);
    findings.share("recall", was.recall, is.recall, &slack);
}

/// Probability that a row of correct bounds is flagged, if bounds were independent and seeds not
/// fixed.
pub(crate) const FALSE_ALARM: f64 = 1e-6;

/// The smallest number of bounds, each failing with this probability, for which too many failures
/// are possible at all.
pub(crate) fn enough_to_judge(probability: f64) -> u64 {
    let mut asked = 1;
    while probability < 1.0 && most_failures(asked, probability) == asked {
        asked += 1;
    }
    asked
}

/// The largest number of failures among `asked` bounds, each failing with this probability. More
/// occur with a probability of at most [`FALSE_ALARM`].
pub(crate) fn most_failures(asked: u64, probability: f64) -> u64 {
    if probability <= 0.0 {
        return 0;
    }
    if probability >= 1.0 {
        return asked;
    }
    // Terms from the top down, smallest first: ln P(X = k), by the ratio of neighbouring terms.
    let (n, odds) = (asked as f64, (1.0 - probability).ln() - probability.ln());
    let mut log = n * probability.ln();
    let mut tail = 0.0;
    for failures in (1..=asked).rev() {
        tail += log.exp();
        if tail > FALSE_ALARM {
            return failures;
        }
        let k = failures as f64;
        log += odds + k.ln() - (n - k + 1.0).ln();
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accuracy::table::tests::row;
    use crate::score::Bounds;

    /// The columns with a finding when the changed row is compared with the original.
    fn columns(change: impl Fn(&mut Row)) -> Vec<&'static str> {
        let mut is = row();
        change(&mut is);
        compare(&[row()], &[is]).iter().map(|finding| finding.column).collect()
    }

    #[test]
    fn equal_and_better_rows_pass() {
        assert!(columns(|_| ()).is_empty());
        let better = columns(|row| {
            (row.bias, row.rms, row.worst) = (Some(-0.001), Some(0.0), Some(0.0));
            (row.precision, row.recall) = (Some(1.0), Some(1.0));
            row.likely.broken = 0;
        });
        assert!(better.is_empty());
    }

    #[test]
    fn each_column_can_fail() {
        // Each at its limit, and just above it.
        assert!(columns(|row| row.rms = Some(0.0239)).is_empty());
        assert_eq!(columns(|row| row.rms = Some(0.0241)), ["rms"]);
        assert_eq!(columns(|row| row.bias = Some(-0.0131)), ["bias"]);
        assert_eq!(columns(|row| row.worst = None), ["worst"]);
        assert!(columns(|row| row.precision = Some(0.94)).is_empty());
        assert_eq!(columns(|row| row.precision = Some(0.9399)), ["precision"]);
        assert_eq!(columns(|row| row.recall = Some(0.98)), ["recall"]);
        assert_eq!(columns(|row| row.answered = 0), ["answered"]);
        assert_eq!(columns(|row| row.flows += 1), ["flows"]);
        assert_eq!(columns(|row| row.memory_bytes += 1), ["memory_bytes"]);
        assert_eq!(columns(|row| row.parameters.push('0')), ["parameters"]);
        assert_eq!(columns(|row| row.sure.broken = 1), ["sure"]);
        let most = most_failures(100, 0.05);
        assert!(columns(|row| row.likely.broken = most).is_empty());
        assert_eq!(columns(|row| row.likely.broken = most + 1), ["likely"]);
        // Too few bounds to judge.
        assert_eq!(columns(|row| row.likely = Bounds { broken: 0, asked: 4 }), ["likely"]);
        assert!(columns(|row| row.likely = Bounds { broken: 0, asked: 0 }).is_empty());
    }

    #[test]
    fn rows_that_are_only_on_one_side_fail() {
        assert_eq!(columns(|row| row.task.push('s')), ["row", "row"]);
        let found = compare(&[row()], &[]);
        assert_eq!(
            found[0].to_string(),
            "count-array (memory=1048576), heavy-hitters, zipf-1.1: row was there, is missing; \
             must be measured"
        );
    }

    #[test]
    fn unseeded_random_bits_get_more_room() {
        let kll = || Row { algorithm: UNSEEDED[0].to_owned(), ..row() };
        let passes = |rms| compare(&[kll()], &[Row { rms: Some(rms), ..kll() }]).is_empty();
        assert!(passes(0.05) && !passes(0.06));
    }

    /// Compares with sums of the probability's terms, from zero failures up.
    #[test]
    fn the_tail_is_the_binomial_one() {
        for (asked, probability) in [(20_u64, 0.05), (100, 0.05), (1000, 0.01), (300, 0.3)] {
            let most = most_failures(asked, probability);
            let mut term = (1.0_f64 - probability).powi(asked as i32);
            let mut below = 0.0;
            for k in 0..most {
                below += term;
                term *= (asked - k) as f64 / (k + 1) as f64 * probability / (1.0 - probability);
            }
            // Tolerance for rounding near 1.
            assert!(
                1.0 - below > FALSE_ALARM * 0.999,
                "{asked} {probability}: {most} are too many"
            );
            assert!(1.0 - below - term <= FALSE_ALARM * 1.001, "{asked} {probability}: {most}");
        }
    }

    #[test]
    fn edges() {
        assert_eq!(most_failures(0, 0.05), 0);
        assert_eq!(most_failures(1, 0.05), 1);
        assert_eq!(most_failures(1000, 0.0), 0);
        assert_eq!(most_failures(7, 1.0), 7);
        // 0.05⁴ is 6 × 10⁻⁶, and 0.002² 4 × 10⁻⁶.
        assert_eq!(enough_to_judge(0.05), 5);
        assert_eq!(enough_to_judge(0.002), 3);
    }
}
