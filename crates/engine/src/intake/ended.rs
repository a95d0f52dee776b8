//! The end of an epoch, which a meter passes to the closer.

use std::sync::Arc;

use flowgauge_core::services::ServiceCounts;
use flowgauge_core::terms::Size;
use flowgauge_core::timeline::Timeline;

use crate::account::Account;
use crate::sampling::Traffic;

/// The state of an epoch after its last packet, or at an update.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ended {
    /// Number of the epoch from 0, and of the last epoch included in it. Empty epochs count.
    pub(crate) epoch: u64,
    pub(crate) through: u64,
    /// Whether it is still open.
    pub(crate) update: bool,
    /// The account of the packets before they are measured.
    pub(crate) account: Account,
    /// The keyed traffic, if a sample of it was read.
    pub(crate) traffic: Option<Traffic>,
    /// Keyed packets that no lane measures.
    pub(crate) unmeasured: Size,
    /// Keyed packets that count for both of their ends.
    pub(crate) twice: Size,
    /// Bounds of a time epoch so far; of other epochs the bounds of the packets.
    pub(crate) bounds_ns: Option<(i64, i64)>,
    /// The interval in which a time epoch was observed: all of it, except in the first and the last
    /// epoch of a run.
    pub(crate) observed_ns: Option<(i64, i64)>,
    /// Times of the earliest and the latest packet.
    pub(crate) times_ns: Option<(i64, i64)>,
    /// Times of the first and the last packet of the run so far, in order of arrival.
    pub(crate) ends_ns: Option<(i64, i64)>,
    /// Why the filter could not judge some packets.
    pub(crate) unfit: Option<Arc<str>>,
    /// The step of the clock that ended the epoch; 0 if there was none.
    pub(crate) step_ns: i64,
    /// Number of earlier epochs included in it, because no summaries were free when they ended.
    pub(crate) late_epochs: u64,
    /// Queues that touched the epoch but did not hand it over in time.
    pub(crate) missing: Vec<usize>,
    /// Packets over time, if a task asks for it.
    pub(crate) timeline: Option<Box<Timeline>>,
    /// The packets by protocol and service, if they are counted.
    pub(crate) services: Option<ServiceCounts>,
    /// Notes of the source.
    pub(crate) notes: Vec<String>,
    /// Whether packets may have passed unseen.
    pub(crate) unseen: bool,
}

impl Ended {
    /// Combines what two workers read of the same epoch, which covers the whole input.
    pub(crate) fn beside(mut self, other: Self) -> Self {
        self.account.add(&other.account);
        self.unmeasured += other.unmeasured;
        self.twice += other.twice;
        self.unfit = self.unfit.or(other.unfit);
        self.times_ns = around(self.times_ns, other.times_ns);
        self.bounds_ns = self.times_ns;
        self.timeline = both(self.timeline, other.timeline, |own, other| own.merge(other));
        self.services = both(self.services, other.services, ServiceCounts::merge);
        self
    }

    /// The part of a time epoch that was observed; 1 if epochs do not end by time.
    pub(crate) fn coverage(&self) -> f64 {
        let length_ns = |(start_ns, end_ns): (i64, i64)| i128::from(end_ns) - i128::from(start_ns);
        match (self.bounds_ns, self.observed_ns) {
            (Some(bounds_ns), Some(observed_ns)) if length_ns(bounds_ns) > 0 => {
                (length_ns(observed_ns) as f64 / length_ns(bounds_ns) as f64).clamp(0.0, 1.0)
            }
            _ => 1.0,
        }
    }

    /// Joins this epoch with the next one.
    pub(crate) fn and(mut self, next: Self) -> Self {
        self.account.add(&next.account);
        self.traffic = Traffic::both(self.traffic, next.traffic);
        self.unmeasured += next.unmeasured;
        self.twice += next.twice;
        // After a step of the clock, the next one may be earlier.
        self.bounds_ns = around(self.bounds_ns, next.bounds_ns);
        self.times_ns = around(self.times_ns, next.times_ns);
        self.observed_ns = around(self.observed_ns, next.observed_ns);
        self.ends_ns = next.ends_ns.or(self.ends_ns);
        self.unfit = self.unfit.or(next.unfit);
        self.timeline = both(self.timeline, next.timeline, |own, other| own.merge(other));
        self.services = both(self.services, next.services, ServiceCounts::merge);
        next.notes.into_iter().for_each(|note| add_note(&mut self.notes, note));
        self.unseen |= next.unseen;
        self.step_ns = if self.step_ns == 0 { next.step_ns } else { self.step_ns };
        self.late_epochs += next.late_epochs + 1;
        self.through = next.through;
        self.update = next.update;
        self
    }
}

/// The smallest interval that contains both intervals.
fn around(times_ns: Option<(i64, i64)>, others_ns: Option<(i64, i64)>) -> Option<(i64, i64)> {
    match (times_ns, others_ns) {
        (Some((start_ns, end_ns)), Some((earliest_ns, latest_ns))) => {
            Some((start_ns.min(earliest_ns), end_ns.max(latest_ns)))
        }
        (times_ns, others_ns) => times_ns.or(others_ns),
    }
}

/// The merged parts, or the only one.
fn both<T>(own: Option<T>, other: Option<T>, merge: impl FnOnce(&mut T, &T)) -> Option<T> {
    match (own, other) {
        (Some(mut own), Some(other)) => {
            merge(&mut own, &other);
            Some(own)
        }
        (own, other) => own.or(other),
    }
}

/// Adds a note, unless it is a repetition.
pub(crate) fn add_note(notes: &mut Vec<String>, note: String) {
    if !notes.contains(&note) {
        notes.push(note);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A clock that is set back ends an epoch, and the next one is earlier.
    #[test]
    fn epochs_that_are_joined_have_bounds_in_order() {
        let bounded = |bounds_ns| Ended { bounds_ns: Some(bounds_ns), ..Ended::default() };
        assert_eq!(bounded((600, 610)).and(bounded((10, 20))).bounds_ns, Some((10, 610)));
    }
}
