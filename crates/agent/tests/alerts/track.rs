//! The state of an alert, epoch by epoch.

use flowgauge_agent::alert::Alerts;
use flowgauge_agent::alert::notify::{LIMIT, Notifier};
use flowgauge_agent::alert::state::{Change, Evidence, Lasting, State, Tracker};
use flowgauge_engine::sink::{Item, Sink};
use proptest::prelude::*;

use Evidence::{Doubtful, Gap, Matched, Quiet};

const SECOND: u64 = 1_000_000_000;

/// Feeds epochs of a second; the changes, with the numbers of their epochs.
fn feed(tracker: &mut Tracker, evidence: &[Evidence]) -> Vec<(usize, Change)> {
    let take = |(number, evidence): (usize, &Evidence)| {
        let end_ns = (number as u64 + 1) * SECOND;
        tracker.take(end_ns.cast_signed(), SECOND, *evidence).map(|change| (number, change))
    };
    evidence.iter().enumerate().filter_map(take).collect()
}

fn tracker(epochs: u64, clear_after_s: u64) -> Tracker {
    Tracker::new(Lasting::Epochs(epochs), clear_after_s * SECOND)
}

#[test]
fn it_fires_after_as_many_epochs_in_a_row_as_asked() {
    let mut alert = tracker(3, 2);
    let epochs = [Matched, Matched, Quiet, Matched, Matched, Matched, Matched, Quiet, Quiet];
    let changes = feed(&mut alert, &epochs);
    assert_eq!(changes, [(5, Change::Firing), (8, Change::Cleared)]);
    assert_eq!(alert.state(), State::Quiet);
    assert_eq!(alert.since_ns(), Some(9 * SECOND.cast_signed()));
}

#[test]
fn it_fires_after_as_long_as_asked() {
    let mut alert = Tracker::new(Lasting::Time(3 * SECOND), SECOND);
    assert_eq!(feed(&mut alert, &[Matched, Matched]), []);
    assert_eq!(alert.state(), State::Pending);
    assert_eq!(feed(&mut alert, &[Matched]), [(0, Change::Firing)]);
}

#[test]
fn neither_gaps_nor_lossy_epochs_clear_it() {
    let mut alert = tracker(1, 3);
    assert_eq!(feed(&mut alert, &[Matched]), [(0, Change::Firing)]);
    assert_eq!(feed(&mut alert, &[Gap, Doubtful].repeat(1_000)), []);
    assert_eq!(feed(&mut alert, &[Quiet, Doubtful, Quiet, Gap, Quiet]), [(4, Change::Cleared)]);
}

#[test]
fn doubt_keeps_it_pending_and_a_gap_does_not() {
    let mut alert = tracker(2, 3);
    assert_eq!(feed(&mut alert, &[Matched, Gap, Matched, Quiet]), []);
    assert_eq!(feed(&mut alert, &[Matched, Doubtful, Matched]), [(2, Change::Firing)]);
}

#[test]
fn one_that_flaps_is_notified_once() {
    let mut alert = tracker(1, 3);
    let flapping = [Matched, Quiet, Quiet].repeat(1_000);
    assert_eq!(feed(&mut alert, &flapping), [(0, Change::Firing)]);
}

proptest! {
    #[test]
    fn two_notifications_that_it_fires_are_apart_by_more_than_clear_after(
        epochs in proptest::collection::vec(prop::sample::select(vec![Matched, Quiet, Doubtful, Gap]), 0..400),
        lasting in 1_u64..4,
        clear_after in 1_u64..6,
    ) {
        let changes = feed(&mut tracker(lasting, clear_after), &epochs);
        let fired = |(_, change): &&(usize, Change)| *change == Change::Firing;
        let fired: Vec<_> = changes.iter().filter(fired).collect();
        for pair in fired.windows(2) {
            prop_assert!(pair[1].0 - pair[0].0 > clear_after as usize);
        }
        for pair in changes.windows(2) {
            prop_assert!(pair[0].1 != pair[1].1, "firing and cleared take turns");
        }
    }
}

/// A flood of alerts must not come again with each reload, nor a changed rule keep the state of the old one.
#[test]
fn a_reload_keeps_alerts_whose_rules_stay() {
    let report = super::sample();
    let rule = |least: u32| {
        super::rules(&format!(
            "many: {{ when: 'main.cardinality.flows.low > {least}' }}\n\
             more: {{ when: 'main.cardinality.flows.low > 20' }}"
        ))
    };
    let log = super::Log::default();
    let notifier = Notifier::start(Box::new(log.clone()), LIMIT, None).unwrap();
    let mut alerts = Alerts::new(rule(10), notifier);
    let board = alerts.board();
    let states = || {
        let standings = board.standings().into_iter();
        standings.map(|one| (one.alert, one.state)).collect::<Vec<_>>()
    };
    let firing = |alert: &str| (alert.to_owned(), State::Firing);
    let quiet = |alert: &str| (alert.to_owned(), State::Quiet);
    alerts.deliver(&Item::Epoch(report.clone().into())).unwrap();
    assert_eq!(states(), [quiet("loss"), firing("many"), firing("more")]);
    alerts.reload(rule(10));
    assert_eq!(states(), [quiet("loss"), firing("many"), firing("more")]);
    alerts.reload(rule(1_000_000));
    assert_eq!(states(), [quiet("loss"), firing("more")]);
    alerts.deliver(&Item::Epoch(report.into())).unwrap();
    assert_eq!(states(), [quiet("loss"), quiet("many"), firing("more")]);
    drop(alerts);
    assert_eq!(log.lines().len(), 2, "{:?}", log.lines());
}
