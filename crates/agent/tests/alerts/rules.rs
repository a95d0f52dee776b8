//! Conditions and rules that are rejected, and the state of an alert from epoch to epoch.

use flowgauge_agent::alert::condition::Condition;
use flowgauge_agent::alert::notify::{LIMIT, Notifier};
use flowgauge_agent::alert::state::{Change, Evidence, Lasting, State, Tracker};
use flowgauge_agent::alert::{Alerts, Rule};
use flowgauge_engine::Config;
use flowgauge_engine::sink::{Item, Sink};
use proptest::prelude::*;

use Evidence::{Doubtful, Gap, Matched, Quiet};

const SECOND: u64 = 1_000_000_000;

/// Feeds epochs of one second; returns the changes with their epoch numbers.
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

/// A reload must not repeat alerts, and a changed rule must not keep the state of the old one.
#[test]
fn a_reload_keeps_alerts_of_unchanged_rules() {
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
    let main = [Config { name: "main".to_owned(), ..Config::seeded(1) }];
    alerts.reload(rule(10), &main);
    assert_eq!(states(), [quiet("loss"), firing("many"), firing("more")]);
    alerts.reload(rule(1_000_000), &main);
    assert_eq!(states(), [quiet("loss"), firing("more")]);
    alerts.deliver(&Item::Epoch(report.into())).unwrap();
    assert_eq!(states(), [quiet("loss"), quiet("many"), firing("more")]);
    // No epoch of a measurement that is gone would clear them.
    let other = [Config { name: "other".to_owned(), ..Config::seeded(1) }];
    alerts.reload(rule(1_000_000), &other);
    assert_eq!(states(), []);
    drop(alerts);
    let lines = log.lines();
    assert_eq!(lines.len(), 4, "{lines:?}");
    let cleared = |alert: &str, least: u32| {
        format!("alert {alert} cleared: main reload: main.cardinality.flows.low > {least}")
    };
    assert_eq!(lines[2..], [cleared("many", 10), cleared("more", 20)]);
}

fn refusal(text: &str) -> String {
    text.parse::<Condition>().unwrap_err()
}

#[test]
fn a_condition_that_is_wrong_is_refused_with_the_reason() {
    let cases = [
        ("", "the condition is empty"),
        ("account.droped > 0", "unknown field 'droped' of account; did you mean 'dropped'?"),
        ("acount.dropped > 0", "'acount.dropped' is not a field"),
        ("acount.dropped > 0", "did you mean 'account'?"),
        ("v.victim.distinct > 0", "unknown task 'victim'; did you mean 'victims'?"),
        ("v.victims.distnct > 0", "unknown field 'distnct' of victims; did you mean 'distinct'?"),
        ("v.victims.distinct.lo > 0", "unknown bound 'lo'; did you mean 'low'?"),
        ("v.quantiles.size > 0", "task 'quantiles' has no field"),
        ("v.victims.distinct", "compared with nothing"),
        ("v.victims.distinct => 1", "unknown operator '=>'"),
        ("v.victims.distinct >", "needs a number"),
        ("v.victims.distinct > many", "'many' after 'v.victims.distinct >' is not a number"),
        ("v.victims.distinct > inf", "is not a number"),
        ("account.lost > 1 account.lost > 2", "expected 'and' or 'or' before 'account.lost'"),
        ("(account.lost > 1", "'(' has no ')'"),
        ("account.lost > 1)", "')' has no '('"),
        ("not", "ends where a field was expected"),
        ("a.top.packets > 1 and b.top.packets > 1", "'a' and 'b' are different measurements"),
    ];
    for (text, reason) in cases {
        let said = refusal(text);
        assert!(said.contains(reason), "{text}: {said}");
        assert!(!said.contains('\n'), "{said}");
    }
    assert!(refusal(&"(".repeat(1_000_000)).contains("more than 32"));
}

#[test]
fn a_rule_is_checked_against_the_measurements() {
    let tasks = Some(vec!["victims".to_owned()]);
    let there = [Config { name: "victims".to_owned(), tasks, ..Config::seeded(1) }];
    let check = |when: &str| {
        let rule: Rule = serde_saphyr::from_str(&format!("when: '{when}'")).unwrap();
        rule.check(&there)
    };
    check("victims.victims.distinct > 1").unwrap();
    check("account.lost > 1").unwrap();
    assert_eq!(
        check("victim.victims.distinct > 1").unwrap_err(),
        "unknown measurement 'victim'; did you mean 'victims'?"
    );
    assert_eq!(
        check("talkers.victims.distinct > 1").unwrap_err(),
        "unknown measurement 'talkers'; available: victims"
    );
    assert_eq!(
        check("victims.top.packets > 1").unwrap_err(),
        "measurement 'victims' does not answer 'top'; add 'top' to its tasks"
    );
}

#[test]
fn a_rule_that_is_wrong_is_refused_where_it_stands() {
    let cases = [
        ("{ when: account.lost > 1, until: 3s }", "until"),
        ("{ when: account.lost > 1, for: 3 hours }", "write a number of epochs"),
        ("{ when: account.lost > 1, for: 0 epochs }", "'0' is not a number of epochs"),
        ("{ when: account.lost > 1, for: soon }", "'soon' is not a time"),
        ("{ when: account.lost > 1, post: 'https://a/' }", "TLS is not supported"),
        ("{ when: account.lost > 1, post: 'ftp://a/' }", "write http://HOST:PORT/PATH"),
        ("{ when: account.lost > 1, post: 'http://a:99999/' }", "the port is not a number"),
        ("{ when: account.lost > 1, post: 'http://:80/' }", "it names no host"),
        ("{ run: ./a }", "when"),
    ];
    for (rule, reason) in cases {
        let said = serde_saphyr::from_str::<Rule>(rule).unwrap_err().to_string();
        assert!(said.contains(reason), "{rule}: {said}");
    }
}

proptest! {
    #[test]
    fn no_text_stops_the_parser(text in "\\PC{0,80}") {
        let _ = text.parse::<Condition>();
    }

    #[test]
    fn no_words_of_conditions_stop_the_parser(
        words in proptest::collection::vec(
            prop::sample::select(vec![
                "and", "or", "not", "(", ")", ">", "<=", "==", "1", "-1e9", ".", "account.lost",
                "a.top.packets", "a.victims.distinct.low", "é", "\u{0}",
            ]),
            0..20,
        ),
    ) {
        let _ = words.join(" ").parse::<Condition>();
        let _ = words.concat().parse::<Condition>();
    }
}
