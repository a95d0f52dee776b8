//! Runs that are refused before they begin, and what the refusal says would do.

use flowgauge_core::catalog;
use flowgauge_core::key::KeyKind;
use flowgauge_core::summary::BuildError;
use flowgauge_core::task::ForecastModel;
use flowgauge_core::terms::Hierarchy;
use flowgauge_engine::{Config, EngineError, Plan};

use crate::{asking, refusal};

#[test]
fn what_does_not_exist_is_refused() {
    let text = refusal(asking(&["tops"])).to_string();
    assert!(text.contains("'tops'") && text.contains("heavy-hitters"), "{text}");
    let text = refusal(Config { algorithm: "table".to_owned(), ..asking(&["top"]) }).to_string();
    assert!(text.contains("linear-table"), "{text}");
    let text = refusal(Config { memory_bytes: 100, ..Config::seeded(0) }).to_string();
    assert!(text.contains("--memory"), "{text}");
}

/// Bytes that a plan lacks the memory for: needed, and given.
fn lacks(config: &Config) -> Option<(usize, usize)> {
    match Plan::new(config.clone()).err()? {
        EngineError::Build(BuildError::TooLittleMemory { needed, given }) => Some((needed, given)),
        _ => None,
    }
}

/// With the memory that is said to be needed the run can begin, and with a byte less it cannot.
#[test]
fn the_memory_that_is_needed_is_enough() {
    let mut lacking = 0;
    for info in catalog::ALGORITHMS {
        for kind in [KeyKind::Source, KeyKind::Pair, KeyKind::FiveTuple, KeyKind::Protocol] {
            for tasks in [None, Some(vec!["changes".to_owned()])] {
                let config = Config {
                    key: kind.into(),
                    algorithm: info.name.to_owned(),
                    memory_bytes: 99,
                    tasks,
                    ..Config::seeded(0)
                };
                let Some((needed, given)) = lacks(&config) else { continue };
                lacking += 1;
                assert_eq!(given, 99);
                let with = |memory_bytes| lacks(&Config { memory_bytes, ..config.clone() });
                assert_eq!(with(needed), None, "{} {kind:?}", info.name);
                let less = needed - 1;
                assert_eq!(with(less), Some((needed, less)), "{} {kind:?}", info.name);
            }
        }
    }
    assert!(lacking > 100, "{lacking}");
}

/// The algorithms that the refusal names.
fn named(config: &Config) -> Vec<String> {
    let text = refusal(config.clone()).to_string();
    let Some((_, names)) = text.split_once("(these can: ") else { return Vec::new() };
    names.trim_end_matches(')').split(", ").map(str::to_owned).collect()
}

/// What a refusal names is not refused, whatever else the run is asked for.
#[test]
fn the_algorithms_named_can() {
    let forecast = Config { forecast: ForecastModel::HoltWinters, ..asking(&["changes"]) };
    let pairs = Config {
        key: KeyKind::Pair.into(),
        hierarchy: Hierarchy::Pair,
        algorithm: "count-min".to_owned(),
        ..asking(&["hierarchical"])
    };
    for (config, can, cannot) in
        [(forecast, "k-ary", "linear-table"), (pairs, "rhhh", "hyperloglog")]
    {
        let named = named(&config);
        assert!(named.iter().any(|name| name == can), "{named:?}");
        assert!(named.iter().all(|name| name != cannot), "{named:?}");
        for algorithm in named {
            assert!(Plan::new(Config { algorithm, ..config.clone() }).is_ok());
        }
    }
}
