//! Runs that are refused before they begin, and what the refusal says would do.

use flowgauge_core::catalog;
use flowgauge_core::key::KeyKind;
use flowgauge_core::summary::{BuildErrorKind, Parameters};
use flowgauge_core::task::{ForecastModel, TASKS};
use flowgauge_core::terms::Hierarchy;
use flowgauge_engine::{Config, EngineError, Plan};

use crate::capture::mixed;
use crate::{asking, refusal, run};

#[test]
fn unknown_names_are_refused() {
    let text = refusal(asking(&["tops"])).to_string();
    assert_eq!(text, "unknown task 'tops'; did you mean 'top'?");
    let text = refusal(asking(&["weather"])).to_string();
    assert!(text.contains("'weather'") && text.contains("heavy-hitters"), "{text}");
    let text = refusal(Config { algorithm: "table".to_owned(), ..asking(&["top"]) }).to_string();
    assert!(text.contains("linear-table"), "{text}");
    let text = refusal(Config { memory_bytes: 100, ..Config::seeded(0) }).to_string();
    assert!(text.contains("--memory"), "{text}");
}

/// The name becomes a part of file names, and is printed.
#[test]
fn names_that_no_file_may_have_are_refused() {
    for name in ["../web", "", "a b", "x\u{1b}[31m"] {
        let text = refusal(Config { name: name.to_owned(), ..asking(&["top"]) }).to_string();
        assert!(text.starts_with("invalid name '") && !text.contains('\u{1b}'), "{text}");
    }
}

/// The bytes needed and given, if the memory of a plan is too small.
fn lacks(config: &Config) -> Option<(usize, usize)> {
    match Plan::new(config.clone()).err()? {
        EngineError::Build(error) => match *error.kind() {
            BuildErrorKind::TooLittleMemory { needed, given } => Some((needed, given)),
            _ => None,
        },
        _ => None,
    }
}

/// The run can begin with the memory that the refusal names, and not with a byte less.
#[test]
fn the_memory_that_is_needed_is_enough() {
    let mut lacking = 0;
    for info in catalog::ALGORITHMS {
        for kind in [KeyKind::SOURCE, KeyKind::PAIR, KeyKind::FIVE_TUPLE, KeyKind::PROTOCOL] {
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

/// The configurations that the refusal names: `algorithm`, or `algorithm:parameter=value`.
fn named(config: &Config) -> Vec<Config> {
    let Err(EngineError::Task { able, .. }) = Plan::new(config.clone()).map(drop) else {
        return Vec::new();
    };
    let named = |name: &String| {
        let (algorithm, parameters) = name.split_once(':').unwrap_or((name, ""));
        let pairs = parameters.split(',').filter_map(|pair| pair.split_once('='));
        let accelerators = if able.alone { Vec::new() } else { config.accelerators.clone() };
        Config {
            algorithm: algorithm.to_owned(),
            parameters: Parameters::new(pairs),
            accelerators,
            ..config.clone()
        }
    };
    able.algorithms.iter().map(named).collect()
}

/// Asserts that the configurations that a refusal names can begin; returns their names.
fn remedies(config: &Config) -> Vec<String> {
    let named = named(config);
    for config in &named {
        let refused = Plan::new(config.clone()).err().map(|error| error.to_string());
        let (algorithm, parameters) = (&config.algorithm, &config.parameters);
        assert_eq!(refused, None, "{algorithm} {parameters:?} {:?}", config.tasks);
    }
    named.into_iter().map(|config| config.algorithm).collect()
}

/// A refusal names no algorithm that is refused in the same run.
#[test]
fn the_algorithms_named_can() {
    let forecast = Config { forecast: ForecastModel::HoltWinters, ..asking(&["changes"]) };
    let pairs = Config {
        key: KeyKind::PAIR.into(),
        hierarchy: Hierarchy::Pair,
        algorithm: "count-min".to_owned(),
        ..asking(&["hierarchical"])
    };
    for (config, can, cannot) in
        [(forecast, "k-ary", "linear-table"), (pairs, "rhhh", "hyperloglog")]
    {
        let named = remedies(&config);
        assert!(named.iter().any(|name| name == can), "{named:?}");
        assert!(named.iter().all(|name| name != cannot), "{named:?}");
    }
}

/// Every task, for every key: what answers it is named with its parameters, and does.
#[test]
fn every_refused_task_names_algorithms_that_answer_it() {
    let mut refused = 0;
    for kind in KeyKind::NAMED.map(|(_, kind)| kind) {
        for task in TASKS {
            // It answers the first of these tasks, and `hyperloglog` only one other.
            let algorithm = if task.name == "cardinality" { "space-saving" } else { "hyperloglog" };
            let config = Config {
                key: kind.into(),
                algorithm: algorithm.to_owned(),
                memory_bytes: 4 << 20,
                ..asking(&[task.name])
            };
            let named = remedies(&config);
            let needed = match task.name {
                "findings" => &[KeyKind::FIVE_TUPLE][..],
                "top-sources" | "top-destinations" => &[KeyKind::PAIR],
                "superspreaders" => &[KeyKind::SOURCE],
                "victims" => &[KeyKind::DESTINATION],
                "hierarchical" => &[KeyKind::SOURCE, KeyKind::DESTINATION],
                _ => &[KeyKind::of(&[])],
            };
            let all = needed == [KeyKind::of(&[])];
            let has = needed.iter().any(|needed| kind.has_all(*needed));
            // A conversation tells no source from a destination.
            let has = has && (all || kind != KeyKind::CONVERSATION);
            assert_eq!(named.is_empty(), !has, "{kind} {}", task.name);
            refused += usize::from(!named.is_empty());
        }
    }
    assert!(refused > 40, "{refused}");
}

#[test]
fn parameters_that_answer_are_named() {
    let source = Config { key: KeyKind::SOURCE.into(), ..asking(&["superspreaders"]) };
    let text = refusal(source).to_string();
    assert!(text.contains("linear-table:state=distinct"), "{text}");
    assert!(text.contains("two-level"), "{text}");
}

/// Behind a sampler no algorithm answers entropy; without it some do.
#[test]
fn algorithms_that_answer_without_the_accelerators_are_named_as_such() {
    let accelerators = vec![("uniform".to_owned(), Parameters::default())];
    let config = Config { accelerators, ..asking(&["entropy"]) };
    let text = refusal(config.clone()).to_string();
    assert!(text.contains("(without --accelerator: linear-table"), "{text}");
    assert!(!remedies(&config).is_empty());
}

/// A task that is left out, or refused, comes with advice that the run can follow.
#[test]
fn advice_can_be_followed() {
    let behind = |accelerator: &str, algorithm: &str, tasks: Option<&[&str]>| Config {
        accelerators: vec![(accelerator.to_owned(), Parameters::default())],
        algorithm: algorithm.to_owned(),
        tasks: tasks.map(|tasks| tasks.iter().map(|task| (*task).to_owned()).collect()),
        memory_bytes: 4 << 20,
        ..Config::seeded(0)
    };
    for (algorithm, advice) in [
        // The table itself answers.
        ("linear-table", "leave out --accelerator"),
        ("count-min", "use --algorithm linear-table without --accelerator"),
    ] {
        let (lines, _) = run(behind("uniform", algorithm, None), &mixed(1, 10));
        let notes = lines[0]["notes"].to_string();
        assert!(notes.contains("entropy is left out: "), "{notes}");
        assert!(notes.contains(&format!("or a table of every flow; {advice}\"")), "{notes}");
    }
    let alone = Config { accelerators: Vec::new(), ..behind("", "count-min", None) };
    let notes = run(alone, &mixed(1, 10)).0[0]["notes"].to_string();
    assert!(notes.contains("or a table of every flow; use --algorithm linear-table\""), "{notes}");

    let refused = refusal(behind("skipper", "netflow", Some(&["cardinality"]))).to_string();
    assert!(refused.ends_with("use --algorithm univmon (available: univmon)"), "{refused}");
}

/// Prefixes are counted by a table too, if its key has the addresses.
#[test]
fn a_table_is_advised_only_for_keys_with_a_hierarchy() {
    for kind in KeyKind::NAMED.map(|(_, kind)| kind) {
        for hierarchy in [Hierarchy::Bytes, Hierarchy::Bits, Hierarchy::Pair] {
            let config = Config { key: kind.into(), hierarchy, ..asking(&["hierarchical"]) };
            let counting = Config { algorithm: "mst".to_owned(), ..config.clone() };
            if Plan::new(counting.clone()).is_ok() {
                continue;
            }
            let refused = refusal(counting).to_string();
            assert!(refused.contains("; use --"), "{refused}");
            let answers = Plan::new(config).is_ok();
            assert_eq!(
                refused.contains("linear-table"),
                answers,
                "{kind} {hierarchy:?}: {refused}"
            );
        }
    }
}
