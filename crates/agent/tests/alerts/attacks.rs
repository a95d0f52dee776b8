//! Planted attacks are found.

use flowgauge_engine::{Config, EpochLength};
use flowgauge_synthetic::{self as synthetic, Profile};

use super::watch;

const SECOND: i64 = 1_000_000_000;

pub(crate) fn measurement(name: &str, key: &str, tasks: &[&str]) -> Config {
    Config {
        name: name.to_owned(),
        key: key.parse().unwrap(),
        algorithm: "linear-table".to_owned(),
        tasks: Some(tasks.iter().map(|task| (*task).to_owned()).collect()),
        epoch: EpochLength::Time(SECOND),
        memory_bytes: 64 << 20,
        ..Config::seeded(1)
    }
}

pub(crate) fn backbone(seconds: u64, rate: u64, plants: &[&str]) -> synthetic::Config {
    synthetic::Config {
        profile: Profile::Backbone { flows: None },
        packets: seconds * rate,
        rate,
        seed: 7,
        plants: plants.iter().map(|plant| plant.parse().unwrap()).collect(),
        ..synthetic::Config::default()
    }
}

/// The epoch of the first line that says that an alert fires.
fn first_epoch(lines: &[String], alert: &str) -> Option<u64> {
    let begin = format!("alert {alert} firing: ");
    let line = lines.iter().find(|line| line.starts_with(&begin))?;
    line.split("epoch ").nth(1)?.split(':').next()?.parse().ok()
}

#[test]
fn a_flood_is_found_within_two_epochs_and_names_its_victim() {
    let config = measurement("victims", "five-tuple", &["victims"]);
    // The flood is from second 10 to 15 of 20.
    let traffic = backbone(20, 20_000, &["flood:sources=20000,packets=40000,start=0.5,end=0.75"]);
    let alert =
        "flood: { when: 'victims.victims.distinct.low > 1000', for: 2 epochs, clear-after: 3s }";
    let (lines, board) = watch(config, alert, traffic);
    let epoch = first_epoch(&lines, "flood").unwrap();
    assert!((10..12).contains(&epoch), "{lines:?}");
    assert!(lines[0].contains("198.18.0.0 victims.distinct"), "{lines:?}");
    assert!(lines[1].starts_with("alert flood cleared: victims epoch "), "{lines:?}");
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert_eq!(board.missed(), 0);
}

#[test]
fn a_scan_is_found_within_two_epochs_and_stays_until_it_is_surely_over() {
    let config = measurement("scanners", "five-tuple", &["superspreaders"]);
    let traffic =
        backbone(20, 20_000, &["scan:destinations=20000,packets=20000,start=0.5,end=0.75"]);
    let alert = "scan: { when: scanners.superspreaders.distinct > 500 }";
    let (lines, board) = watch(config, alert, traffic);
    assert_eq!(first_epoch(&lines, "scan"), Some(10), "{lines:?}");
    assert_eq!(lines.len(), 1, "five minutes of quiet have not passed: {lines:?}");
    let firing = board.standings().into_iter().find(|standing| standing.alert == "scan").unwrap();
    assert_eq!(serde_json::to_value(firing.state).unwrap(), "firing");
    assert_eq!(firing.items[0].item, "198.18.0.0");
}

#[test]
fn rates_and_entropy_are_those_of_the_epoch() {
    let config = measurement("main", "five-tuple", &["top", "entropy", "cardinality"]);
    let traffic = backbone(4, 10_000, &["burst:packets=20000,start=0.0,end=1.0"]);
    let alerts = "
        volume: { when: main.top.packets_per_second.low > 4900 and main.top.packets_per_second < 5100 }
        share: { when: main.top.share > 0.45 and not main.top.share > 0.55 }
        even: { when: main.entropy.normalized > 0.99 or main.cardinality.flows == 0 }
    ";
    let (lines, _) = watch(config, alerts, traffic);
    assert_eq!(first_epoch(&lines, "volume"), Some(0), "{lines:?}");
    assert_eq!(first_epoch(&lines, "share"), Some(0), "{lines:?}");
    assert_eq!(first_epoch(&lines, "even"), None, "{lines:?}");
}
