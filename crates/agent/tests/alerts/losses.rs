//! Losses raise their own alert, and never clear another one.

use std::sync::Arc;

use flowgauge_agent::alert::Alerts;
use flowgauge_agent::alert::notify::{LIMIT, Notifier};
use flowgauge_engine::report::{EpochReport, Gap};
use flowgauge_engine::sink::{Item, Sink};

use super::{Log, rules, sample};

const SECOND: i64 = 1_000_000_000;

/// The report of second `second`, with this many lost packets.
fn epoch(like: &EpochReport, second: i64, lost: u64) -> EpochReport {
    let mut report = like.clone();
    report.epoch = second as u64;
    report.start_ns = Some(second * SECOND);
    report.end_ns = Some((second + 1) * SECOND);
    report.coverage = 1.0;
    report.account.lost = lost;
    report
}

fn deliver(alerts: &mut Alerts, report: EpochReport) {
    alerts.deliver(&Item::Epoch(Arc::new(report))).unwrap();
}

fn alerts(yaml: &str) -> (Alerts, Log) {
    let log = Log::default();
    let notifier = Notifier::start(Box::new(log.clone()), LIMIT, None).unwrap();
    (Alerts::new(rules(yaml), notifier), log)
}

#[test]
fn three_lossy_epochs_raise_an_alert_that_no_rule_names() {
    let (like, (mut alerts, log)) = (sample(), alerts("{}"));
    for (second, lost) in [(0, 5), (1, 5), (2, 0), (3, 5), (4, 5), (5, 7)] {
        deliver(&mut alerts, epoch(&like, second, lost));
    }
    drop(alerts);
    let expected = "alert loss firing: main epoch 5: account.dropped > 0; account.dropped 7";
    assert_eq!(log.lines(), [expected]);
}

#[test]
fn a_rule_named_loss_takes_the_place_of_that_one() {
    let yaml = "loss: { when: account.lost > 100 }";
    let (like, (mut alerts, log)) = (sample(), alerts(yaml));
    for second in 0..10 {
        deliver(&mut alerts, epoch(&like, second, 5));
    }
    drop(alerts);
    assert_eq!(log.lines(), [""; 0]);
}

#[test]
fn no_update_partial_or_lossy_epoch_or_gap_clears_an_alert() {
    let yaml = "
        many: { when: main.cardinality.flows > 1, clear-after: 2s }
        loss: { when: account.lost > 1000000 }
    ";
    let (like, (mut alerts, log)) = (sample(), alerts(yaml));
    deliver(&mut alerts, epoch(&like, 0, 0));
    // From here on, the condition does not match.
    let mut quiet = like.clone();
    for (name, answer) in &mut quiet.tasks {
        if let flowgauge_core::task::Report::Cardinality { flows } = answer {
            assert_eq!(*name, "cardinality");
            *flows = flowgauge_core::summary::Estimate::exact(0);
        }
    }
    for second in 1..100 {
        deliver(&mut alerts, epoch(&quiet, second, 1));
        deliver(&mut alerts, EpochReport { coverage: 0.9, ..epoch(&quiet, second, 0) });
        deliver(&mut alerts, EpochReport { update: true, ..epoch(&quiet, second, 0) });
        deliver(&mut alerts, EpochReport { tasks: Vec::new(), ..epoch(&quiet, second, 0) });
        let (start_ns, end_ns) = (second * SECOND, (second + 50) * SECOND);
        let measurement = Arc::clone(&quiet.measurement);
        let gap =
            Gap { measurement, run: None, epoch: second as u64, epochs: 50, start_ns, end_ns };
        alerts.deliver(&Item::Gap(gap)).unwrap();
    }
    deliver(&mut alerts, epoch(&quiet, 100, 0));
    deliver(&mut alerts, epoch(&quiet, 101, 0));
    drop(alerts);
    let lines = log.lines();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].starts_with("alert many firing: main epoch 0"), "{lines:?}");
    assert!(lines[1].starts_with("alert many cleared: main epoch 101"), "{lines:?}");
}
