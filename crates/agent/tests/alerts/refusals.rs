//! Conditions and rules that are refused, with the reason; and no text stops the parser.

use flowgauge_agent::alert::Rule;
use flowgauge_agent::alert::condition::Condition;
use flowgauge_engine::Config;
use proptest::prelude::*;

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
