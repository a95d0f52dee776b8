//! Every task against a plain oracle, over both lanes, with ties, prefixes and full tables; the
//! registry of tasks, and refusals before a run.

mod addresses;
mod changes;
mod findings;
mod hierarchical;
mod sizes;
mod support;

use std::collections::BTreeSet;

use flowgauge_core::key::{KeyKind, KeySpec};
use flowgauge_core::packet::Tunnels;
use flowgauge_core::summary::Answers;
use flowgauge_core::task::{
    EpochContext, HistoryShape, Lane, Lists, OVERVIEW, TASKS, TaskOptions, find,
};
use flowgauge_core::terms::{Hierarchy, Measure, Threshold};
use flowgauge_core::timeline::Timeline;
use support::{Rough, Table, build, every_kind, lane_bytes, options};

// The registry, and the refusals of tasks before a run.

/// A summary that answers nothing.
struct Mute;

impl Answers for Mute {}

fn lanes(kind: KeyKind, answers: &dyn Answers) -> Vec<Lane<'_>> {
    let lane = |key_bytes| Lane { key: KeySpec::from(kind), key_bytes, answers };
    lane_bytes(kind.into()).into_iter().map(lane).collect()
}

fn with_history() -> TaskOptions {
    let mut options = options();
    options.history = [4, 8, 13, 16, 32, 37]
        .into_iter()
        .map(|key_bytes| HistoryShape { key_bytes, flows: 10, cells: 0 })
        .collect();
    options
}

#[test]
fn the_registry_knows_every_task_once() {
    let names: Vec<_> = TASKS.iter().map(|entry| entry.name).collect();
    let expected = "findings top top-sources top-destinations heavy-hitters flow-size superspreaders \
                    victims changes cardinality entropy size-distribution quantiles hierarchical";
    assert_eq!(names, expected.split_whitespace().collect::<Vec<_>>());
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
    for entry in TASKS {
        assert_eq!(entry.build(&with_history()).unwrap().name(), entry.name);
        assert!(!entry.question.is_empty());
        assert_eq!(find(entry.name).unwrap().name, entry.name);
    }
    assert!(find("nothing").is_err());
    let default: Vec<_> = TASKS.iter().filter(|e| e.by_default).map(|e| e.name).collect();
    let expected = "top heavy-hitters superspreaders cardinality entropy size-distribution";
    assert_eq!(default, expected.split_whitespace().collect::<Vec<_>>());
    assert!(OVERVIEW.iter().all(|name| names.contains(name)));
}

#[test]
fn check_accepts_the_keys_with_the_fields_that_a_task_needs() {
    let table = Table::default();
    for entry in TASKS {
        let mut task = build(entry.name, &with_history());
        for kind in every_kind().into_iter().chain([KeyKind::CONVERSATION]) {
            let lanes = lanes(kind, &table);
            let checked = task.check(Measure::Packets, &lanes);
            // A conversation does not distinguish source and destination.
            let ends = kind != KeyKind::CONVERSATION;
            let one = |address| kind.has_all(address) && kind != address && ends;
            let answered = match entry.name {
                "findings" => kind == KeyKind::FIVE_TUPLE,
                "top-sources" => one(KeyKind::SOURCE),
                "top-destinations" => one(KeyKind::DESTINATION),
                // For a key of one address, spread needs a summary that counts its peers.
                "superspreaders" | "victims" => kind.has_all(KeyKind::PAIR) && ends,
                "hierarchical" => kind.has_addresses() && ends,
                _ => true,
            };
            assert_eq!(checked.is_ok(), answered, "{} {kind}", entry.name);
            let keyed = flowgauge_core::terms::Size::default();
            let timeline = Timeline::new(kind.into(), Tunnels::Outer, 0);
            let (by, threshold) = (Measure::Packets, Threshold::Share(0.001));
            let epoch = EpochContext {
                by,
                keyed,
                threshold,
                lists: Lists::unlimited(10),
                timeline: Some(&timeline),
            };
            let mut scratch = vec![0; task.scratch_bytes(0).div_ceil(8)];
            let ran = task.run(&epoch, &lanes, &mut scratch);
            assert_eq!(ran.map(drop), checked);
        }
    }
}

#[test]
fn refusals_name_algorithms_that_answer() {
    let rough = Rough::default();
    let refusal = |name: &str, kind, answers| {
        let task = build(name, &with_history());
        task.check(Measure::Packets, &lanes(kind, answers)).unwrap_err().to_string()
    };
    for entry in TASKS {
        let names_table = refusal(entry.name, KeyKind::FIVE_TUPLE, &Mute);
        assert!(names_table.contains("linear-table"), "{names_table}");
        if !["top", "heavy-hitters", "flow-size"].contains(&entry.name) {
            let names_table = refusal(entry.name, KeyKind::FIVE_TUPLE, &rough);
            assert!(names_table.contains("linear-table"), "{names_table}");
        }
    }
    // No error says that a table is needed where another summary would do.
    for (name, need) in [
        ("cardinality", "a summary that estimates the number of flows"),
        ("entropy", "a summary that estimates the sum of f log f"),
        ("size-distribution", "a summary that estimates how many flows have each size"),
        ("quantiles", "a summary of quantiles"),
        ("hierarchical", "a summary that counts prefixes"),
        ("superspreaders", "a summary that counts distinct peers"),
        ("victims", "a summary that counts distinct peers"),
        ("changes", "a summary with forecasts or a linear sketch"),
    ] {
        assert_eq!(
            refusal(name, KeyKind::FIVE_TUPLE, &Mute),
            format!("{name} needs {need}, or a table of every flow; use --algorithm linear-table")
        );
    }
    let spread = refusal("superspreaders", KeyKind::SOURCE, &Table::default());
    assert_eq!(
        spread,
        "superspreaders needs a key with source and destination (got source); use five-tuple or pair, \
         or an algorithm that counts distinct peers, such as two-level"
    );
    let mut pair = options();
    pair.hierarchy = Hierarchy::Pair;
    let table = Table::default();
    let task = build("hierarchical", &pair);
    let refusal = task.check(Measure::Bytes, &lanes(KeyKind::SOURCE, &table)).unwrap_err();
    assert!(refusal.to_string().contains("use pair or five-tuple"), "{refusal}");
    let task = build("changes", &options());
    let refusal = task.check(Measure::Bytes, &lanes(KeyKind::SOURCE, &table)).unwrap_err();
    assert!(refusal.to_string().contains("history"), "{refusal}");
}
