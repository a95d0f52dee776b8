//! `auto` meets the requirements, or names the closest candidate. Which candidate is fastest
//! depends on the machine, so the tests assert what must hold for any.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use flowgauge_capture::Captures;
use flowgauge_core::summary::Parameters;
use flowgauge_core::terms::Threshold;
use flowgauge_engine::auto::{self, Choice, Largest, Reason, Sample, Wanted, choose};
use flowgauge_engine::report::EpochReport;
use flowgauge_engine::sink::Each;
use flowgauge_engine::{Config, EngineError, EpochLength, Plan};
use flowgauge_synthetic::{self as synthetic, Profile, Traffic, to_pcap_bytes};

/// 30,000 packets of up to 20,000 flows.
fn packets() -> Captures {
    let profile = Profile::Zipf { flows: 20_000, skew: 0.8 };
    let config = synthetic::Config { profile, packets: 30_000, ..synthetic::Config::default() };
    Captures::from_bytes("sample", to_pcap_bytes(Traffic::new(config).unwrap()))
}

fn sample() -> Sample {
    Sample::of(&mut packets())
}

fn asked(task: &str, memory_bytes: usize) -> Config {
    Config { tasks: Some(vec![task.to_owned()]), memory_bytes, ..Config::seeded(0) }
}

fn chosen(asked: &Config, error: f64) -> Result<Choice, EngineError> {
    choose(asked, Wanted { error, rate: None }, sample())
}

#[test]
fn the_choice_is_within_the_error_and_about_the_fastest() {
    let choice = chosen(&asked("heavy-hitters", 16 << 20), 0.001).unwrap();
    let (first, rest) = choice.tried.split_first().unwrap();
    assert!(first.reason.is_none() && first.error.unwrap() <= 0.001, "{first:?}");
    assert!(rest.len() > 10, "{rest:?}");
    for other in rest {
        match other.reason.unwrap() {
            Reason::Wide => assert!(other.error.unwrap() > 0.001, "{other:?}"),
            Reason::Full(room) => assert!((room as f64) < choice.flows, "{other:?}"),
            Reason::Slow => panic!("no rate was asked for: {other:?}"),
            Reason::Overflowed | Reason::Silent | Reason::Unknown => {
                assert_eq!(other.error, None, "{other:?}");
            }
            Reason::Slower => assert!(other.ns >= first.ns, "{other:?}"),
            Reason::LessExact => assert!(other.error >= first.error, "{other:?}"),
        }
    }
    // The choice can be run.
    assert_eq!(Plan::new(choice.config).unwrap().explain().tasks, ["heavy-hitters"]);
}

#[test]
fn exact_is_a_table_with_room() {
    let choice = chosen(&asked("cardinality", 16 << 20), 0.0).unwrap();
    // All of them are of IPv4.
    let lanes = Plan::new(choice.config).unwrap().explain().lanes;
    let room = lanes[0].flows.unwrap();
    assert!(room as f64 >= choice.flows, "{room} for {}", choice.flows);
    assert!(choice.tried.iter().all(|tried| tried.error == Some(0.0) || tried.reason.is_some()));
}

#[test]
fn unreachable_errors_are_refused_with_the_nearest_candidate() {
    let refused = chosen(&asked("cardinality", 32 << 10), 0.0).unwrap_err().to_string();
    assert!(refused.contains("the most exact is") && refused.contains("--memory"), "{refused}");
    let refused = chosen(&asked("superspreaders", 64), 0.1).unwrap_err().to_string();
    assert!(refused.contains("raise --memory"), "{refused}");
    let wanted = Wanted { error: 0.01, rate: Some(1e12) };
    let config = asked("heavy-hitters", 16 << 20);
    let refused = choose(&config, wanted, sample()).unwrap_err().to_string();
    assert!(refused.contains("1000000.0 Mpps") && refused.contains("too slow"), "{refused}");
}

#[test]
fn tasks_by_default_are_those_that_an_exact_table_answers() {
    let choice = chosen(&Config { memory_bytes: 16 << 20, ..Config::seeded(0) }, 0.001).unwrap();
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
fn parameters_of_other_algorithms_do_not_matter() {
    let config = Config {
        algorithm: "auto".to_owned(),
        parameters: Parameters::new([("rows", "7")]),
        ..asked("heavy-hitters", 16 << 20)
    };
    assert!(chosen(&config, 0.01).is_ok());
}

/// The error reported for a run, which also asks for the size of `largest` if it is given.
fn told(config: &Config, largest: Option<Largest>) -> Result<f64, Reason> {
    let mut last = None;
    let mut keep = Each(|report: &EpochReport| {
        last = Some(report.clone());
        Ok(())
    });
    let plan = auto::plan(config.clone(), largest).unwrap();
    flowgauge_engine::run(plan, &mut packets(), &mut keep, &mut |_| {}).unwrap();
    auto::error(&last.unwrap(), largest)
}

#[test]
fn an_empty_list_and_a_full_table_are_no_exact_answers() {
    let config = |algorithm: &str, share| Config {
        algorithm: algorithm.to_owned(),
        threshold: Threshold::Share(share),
        ..asked("heavy-hitters", 16 << 20)
    };
    let largest = auto::largest(&config("linear-table", 0.5), &mut packets()).unwrap().unwrap();
    assert!((0.001..0.1).contains(&largest.share), "{largest:?}");
    for algorithm in ["linear-table", "count-min", "space-saving"] {
        let listed = told(&config(algorithm, 0.001), None).unwrap();
        let quiet = config(algorithm, 0.5);
        assert_eq!(told(&quiet, None), Err(Reason::Unknown), "{algorithm}");
        let asked = told(&quiet, Some(largest)).unwrap();
        assert!(asked <= listed && listed < 0.01, "{algorithm} {asked} {listed}");
        // A flow of all the traffic should be listed.
        let larger = Largest { share: 1.0, ..largest };
        assert_eq!(told(&quiet, Some(larger)), Err(Reason::Silent), "{algorithm}");
    }
    let parameters = Parameters::new([("buckets", "1024")]);
    let full = Config { parameters, ..config("linear-table", 0.001) };
    assert_eq!(told(&full, Some(largest)), Err(Reason::Overflowed));
}

/// If nothing in the sample would be listed, the estimate of the largest flow still bounds the
/// sizes: a sampler is not chosen because its lists are empty.
#[test]
fn samplers_are_not_chosen_for_listing_nothing() {
    let quiet = Config { threshold: Threshold::Share(0.5), ..asked("heavy-hitters", 16 << 20) };
    let choice = chosen(&quiet, 0.001).unwrap();
    let wide = |name: &str| {
        let tried = choice.tried.iter().find(|tried| tried.name == name).unwrap();
        assert!(tried.error.unwrap() > 0.001, "{tried:?}");
        assert_eq!(tried.reason, Some(Reason::Wide), "{tried:?}");
    };
    wide("linear-table behind uniform");
    wide("space-saving behind uniform");
    assert!(choice.tried[0].error.unwrap() <= 0.001);
}
