//! The epochs that a snapshot covers.

use flowgauge_core::sorting::sort_by;
use flowgauge_core::summary::codec::{DecodeError, Reader, Writer};

use super::{MergeError, text};
use crate::sink::{rfc3339, units};

/// Most epochs that a snapshot covers.
const MOST: usize = 1 << 20;

/// One epoch of one run of a measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coverage {
    /// The host that measured it.
    pub host: String,
    /// The run, by a random number drawn at its start.
    pub run: u64,
    /// Number of the epoch in that run.
    pub epoch: u64,
    /// Start and end in nanoseconds since the UNIX epoch; both 0 without a packet.
    pub bounds_ns: (i64, i64),
    /// The interval in which it was observed, including the empty epochs right before it. Equals
    /// the bounds unless it is a time epoch.
    pub observed_ns: (i64, i64),
}

impl Coverage {
    /// Start and end, if there was a packet.
    pub(super) fn interval_ns(&self) -> Option<(i64, i64)> {
        Some(self.bounds_ns).filter(|bounds_ns| *bounds_ns != (0, 0))
    }

    /// Its identity. Coverages are sorted by it, and each occurs once.
    fn id(&self) -> (&str, u64, u64) {
        (&self.host, self.run, self.epoch)
    }
}

/// Appends coverages, preceded by their number.
pub(super) fn write(coverage: &[Coverage], out: &mut Writer) {
    out.number(coverage.len() as u64);
    for Coverage { host, run, epoch, bounds_ns, observed_ns } in coverage {
        out.bytes(host.as_bytes());
        out.numbers(&[*run, *epoch]);
        out.numbers(&[bounds_ns.0, bounds_ns.1, observed_ns.0, observed_ns.1]);
    }
}

/// Reads coverages: at least one, in order. Without `is_timed` they lack the observed interval, and
/// each epoch counts as fully observed.
pub(super) fn read(from: &mut Reader<'_>, is_timed: bool) -> Result<Vec<Coverage>, DecodeError> {
    let mut coverage: Vec<Coverage> = Vec::new();
    for _ in 0..from.count("number of epochs", MOST)? {
        let (host, run) = (text(from, "host")?.to_owned(), from.number("run")?);
        let epoch = from.number("epoch")?;
        let bounds_ns = interval(from, ["start", "end"])?;
        let observed_ns =
            if is_timed { interval(from, ["observed from", "observed to"])? } else { bounds_ns };
        let next = Coverage { host, run, epoch, bounds_ns, observed_ns };
        if coverage.last().is_some_and(|last| last.id() >= next.id()) {
            return Err(from.invalid("epoch", 24, "epochs are out of order or repeated"));
        }
        coverage.push(next);
    }
    match coverage.len() {
        0 => Err(from.invalid("number of epochs", 8, "it covers none")),
        _ => Ok(coverage),
    }
}

/// Reads two times, and checks that the second is not before the first.
fn interval(
    from: &mut Reader<'_>,
    [start, end]: [&'static str; 2],
) -> Result<(i64, i64), DecodeError> {
    let interval_ns: (i64, i64) = (from.number(start)?, from.number(end)?);
    if interval_ns.0 > interval_ns.1 {
        return Err(from.invalid(end, 8, "it is before the start"));
    }
    Ok(interval_ns)
}

/// The part of the time from the first start to the last end that was observed: for each host the
/// sum over its epochs, and for several hosts the mean.
pub(super) fn observed_share(coverage: &[Coverage]) -> f64 {
    let Some((start_ns, end_ns)) = bounds_ns(coverage) else { return 1.0 };
    let (mut observed_ns, mut hosts) = (0, 0);
    for of_host in coverage.chunk_by(|one, other| one.host == other.host) {
        let timed = of_host.iter().filter(|epoch| epoch.interval_ns().is_some());
        let mut spans: Vec<_> = timed.map(|epoch| epoch.observed_ns).collect();
        hosts += i128::from(!spans.is_empty());
        spans.sort_unstable();
        let mut until_ns = start_ns;
        for (from_ns, to_ns) in spans {
            let to_ns = to_ns.min(end_ns);
            observed_ns += (i128::from(to_ns) - i128::from(from_ns.max(until_ns))).max(0);
            until_ns = until_ns.max(to_ns);
        }
    }
    let whole_ns = hosts * (i128::from(end_ns) - i128::from(start_ns));
    if whole_ns > 0 { observed_ns as f64 / whole_ns as f64 } else { 1.0 }
}

/// The first start and the last end.
pub(super) fn bounds_ns(coverage: &[Coverage]) -> Option<(i64, i64)> {
    let bounds = coverage.iter().filter_map(Coverage::interval_ns);
    bounds.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)))
}

/// Checks that two coverages can be merged.
///
/// # Errors
/// When an epoch is in both, or the sum has too many.
pub(super) fn check_apart(one: &[Coverage], other: &[Coverage]) -> Result<(), MergeError> {
    if one.len() + other.len() > MOST {
        return Err(MergeError::TooMany("epochs"));
    }
    let is_in_both =
        |epoch: &&Coverage| one.binary_search_by(|own| own.id().cmp(&epoch.id())).is_ok();
    match other.iter().find(is_in_both) {
        Some(Coverage { host, epoch, .. }) => {
            Err(MergeError::Overlap { epoch: *epoch, host: host.clone() })
        }
        None => Ok(()),
    }
}

/// Adds the epochs of another coverage, which must not be in this one.
pub(super) fn add(coverage: &mut Vec<Coverage>, other: &[Coverage]) {
    if let [only] = other {
        // Most epochs are added at the end.
        let place = coverage.partition_point(|own| own.id() < only.id());
        coverage.insert(place, only.clone());
    } else {
        coverage.extend_from_slice(other);
        sort_by(coverage, &|one, other| one.id().cmp(&other.id()));
    }
}

/// Checks that all hosts cover the same intervals, with starts and ends at most `tolerance_ns`
/// apart.
///
/// # Errors
/// When two hosts do not.
pub(super) fn check_aligned(coverage: &[Coverage], tolerance_ns: u64) -> Result<(), MergeError> {
    let near = |one: (i64, i64), other: (i64, i64)| {
        one.0.abs_diff(other.0) <= tolerance_ns && one.1.abs_diff(other.1) <= tolerance_ns
    };
    // Several runs of a host may cover the same interval.
    let intervals = |of_host: &[Coverage]| {
        let mut intervals: Vec<_> = of_host.iter().filter_map(Coverage::interval_ns).collect();
        intervals.sort_unstable();
        intervals.dedup_by(|next, kept| near(*next, *kept));
        intervals
    };
    let hosts = coverage.chunk_by(|one, other| one.host == other.host);
    // An epoch without a packet has no times.
    let mut hosts = hosts
        .map(|of_host| (&of_host[0].host, intervals(of_host)))
        .filter(|(_, intervals)| !intervals.is_empty());
    let Some((first, expected)) = hosts.next() else { return Ok(()) };
    for (other, found) in hosts {
        let differ = expected.iter().zip(&found).find(|(one, other)| !near(**one, **other));
        if differ.is_none() && expected.len() == found.len() {
            continue;
        }
        let described = |intervals: &[(i64, i64)], differing: Option<&(i64, i64)>| match differing {
            Some((start_ns, end_ns)) => format!("{} to {}", rfc3339(*start_ns), rfc3339(*end_ns)),
            None => units::plural(intervals.len() as u64, "interval"),
        };
        let (one, two) = differ.unzip();
        return Err(MergeError::Misaligned {
            hosts: [first.clone(), other.clone()],
            intervals: [described(&expected, one), described(&found, two)],
        });
    }
    Ok(())
}
