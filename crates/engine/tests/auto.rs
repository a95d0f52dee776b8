//! `auto` keeps within what is wanted, or says what comes nearest. Which candidate is the fastest
//! depends on the machine; the tests assert what must hold whichever it is.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use flowgauge_capture::Captures;
use flowgauge_capture::synthetic::{self, Profile, Traffic, to_pcap_bytes};
use flowgauge_core::summary::Parameters;
use flowgauge_engine::auto::{Choice, Reason, Sample, Wanted, choose};
use flowgauge_engine::{Config, EngineError, EpochLength, Plan};

/// 30,000 packets of up to 20,000 flows.
fn sample() -> Sample {
    let profile = Profile::Zipf { flows: 20_000, skew: 0.8 };
    let config = synthetic::Config { profile, packets: 30_000, ..synthetic::Config::default() };
    let pcap = to_pcap_bytes(Traffic::new(config).unwrap());
    Sample::of(&mut Captures::from_bytes("sample", pcap))
}

fn asked(task: &str, memory_bytes: usize) -> Config {
    Config { tasks: Some(vec![task.to_owned()]), memory_bytes, ..Config::default() }
}

fn chosen(asked: &Config, error: f64) -> Result<Choice, EngineError> {
    choose(asked, Wanted { error, rate: None }, &sample())
}

#[test]
fn the_choice_is_within_the_error_and_about_the_fastest() {
    let choice = chosen(&asked("heavy-hitters", 16 << 20), 0.001).unwrap();
    let (first, rest) = choice.tried.split_first().unwrap();
    assert!(first.reason.is_none() && first.error <= 0.001, "{first:?}");
    assert!(rest.len() > 10, "{rest:?}");
    for other in rest {
        match other.reason.unwrap() {
            Reason::Wide => assert!(other.error > 0.001, "{other:?}"),
            Reason::Full(room) => assert!((room as f64) < choice.flows, "{other:?}"),
            Reason::Slow => panic!("no rate was asked for: {other:?}"),
            Reason::Slower => assert!(other.ns >= first.ns, "{other:?}"),
            Reason::LessExact => assert!(other.error >= first.error, "{other:?}"),
        }
    }
    // It runs.
    assert_eq!(Plan::new(choice.config).unwrap().explain().tasks, ["heavy-hitters"]);
}

#[test]
fn exact_is_a_table_with_room() {
    let choice = chosen(&asked("cardinality", 16 << 20), 0.0).unwrap();
    // All of them are of IPv4.
    let lanes = Plan::new(choice.config).unwrap().explain().lanes;
    let room = lanes[0].flows.unwrap();
    assert!(room as f64 >= choice.flows, "{room} for {}", choice.flows);
    assert!(choice.tried.iter().all(|tried| tried.error == 0.0 || tried.reason.is_some()));
}

#[test]
fn what_no_memory_holds_is_refused_with_what_comes_nearest() {
    let refused = chosen(&asked("cardinality", 32 << 10), 0.0).unwrap_err().to_string();
    assert!(refused.contains("the most exact is") && refused.contains("--memory"), "{refused}");
    let refused = chosen(&asked("superspreaders", 64), 0.1).unwrap_err().to_string();
    assert!(refused.contains("raise the memory"), "{refused}");
    let wanted = Wanted { error: 0.01, rate: Some(1e12) };
    let config = asked("heavy-hitters", 16 << 20);
    let refused = choose(&config, wanted, &sample()).unwrap_err().to_string();
    assert!(refused.contains("1000000.0 Mpps") && refused.contains("too slow"), "{refused}");
}

#[test]
fn tasks_by_default_are_those_that_an_exact_table_answers() {
    let choice = chosen(&Config { memory_bytes: 16 << 20, ..Config::default() }, 0.001).unwrap();
    let tasks = choice.config.tasks.unwrap();
    assert!(tasks.iter().any(|task| task == "superspreaders") && tasks.len() == 6, "{tasks:?}");
}

/// Flows grow with the packets, less than in proportion, up to the epoch's.
#[test]
fn the_outlook_is_that_of_the_epoch() {
    let outlook = |epoch, limit| {
        let config = Config { epoch, limit, ..asked("cardinality", 16 << 20) };
        let choice = chosen(&config, 1.0).unwrap();
        (choice.packets, choice.flows)
    };
    let (packets, flows) = outlook(EpochLength::Whole, None);
    assert!((29_999.0..30_001.0).contains(&packets) && flows > 5_000.0, "{packets} {flows}");
    let (packets, _) = outlook(EpochLength::Packets(10_000), None);
    assert!((9_999.0..10_001.0).contains(&packets), "{packets}");
    let (packets, _) = outlook(EpochLength::Whole, Some(7));
    assert!((6.9..7.1).contains(&packets), "{packets}");
    // The sample is of a million packets a second.
    let (packets, _) = outlook(EpochLength::Time(10_000_000), None);
    assert!((9_900.0..10_100.0).contains(&packets), "{packets}");
}

#[test]
fn what_was_asked_otherwise_does_not_matter() {
    let config = Config {
        algorithm: "auto".to_owned(),
        parameters: Parameters::new([("rows", "7")]),
        ..asked("heavy-hitters", 16 << 20)
    };
    assert!(chosen(&config, 0.01).is_ok());
}
