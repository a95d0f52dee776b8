//! `flowgauge list`: what there is, and what goes with what.
//!
//! What goes with what is asked of the engine itself: a pair is listed where a run of it can be
//! planned.

use flowgauge_core::catalog::ALGORITHMS;
use flowgauge_core::key::KeyKind;
use flowgauge_core::summary::{Info, Merge};
use flowgauge_core::task::{TASKS, TaskEntry};
use flowgauge_engine::sink::layout::{Align, Cell, Table, paragraph};
use flowgauge_engine::{Config, Plan};
use serde_json::{Value, json};

use crate::args::{Format, Listing};
use crate::failure::Failure;
use crate::output;

/// Runs the command.
pub(crate) fn run(listing: &Listing) -> Result<(), Failure> {
    listing.output.no_csv("the list")?;
    let text = match listing.output.format {
        Format::Json => lines(),
        Format::Text | Format::Csv => page(),
    };
    output::write(listing.output.output.as_deref(), &text)
}

/// Whether `algorithm` answers `task` for this key.
fn answers(algorithm: &Info, task: &TaskEntry, kind: KeyKind) -> bool {
    let config = Config {
        key: kind.into(),
        algorithm: algorithm.name.to_owned(),
        tasks: Some(vec![task.name.to_owned()]),
        ..Config::default()
    };
    Plan::new(config).is_ok()
}

fn algorithm_answers(algorithm: &Info, task: &TaskEntry) -> bool {
    KeyKind::ALL.iter().any(|(_, kind)| answers(algorithm, task, *kind))
}

fn key_answers(kind: KeyKind, task: &TaskEntry) -> bool {
    ALGORITHMS.iter().any(|algorithm| answers(algorithm, task, kind))
}

/// The names of those that `holds` is true of.
fn names<T: Copy>(
    all: impl IntoIterator<Item = T>,
    holds: impl Fn(T) -> bool,
    name: impl Fn(T) -> &'static str,
) -> Vec<&'static str> {
    all.into_iter().filter(|one| holds(*one)).map(name).collect()
}

/// One object a line: algorithms, accelerators, tasks, keys.
fn lines() -> String {
    let algorithms = ALGORITHMS.iter().map(|algorithm| {
        let parameters = algorithm.parameters.iter().map(|p| (p.name.to_owned(), json!(p.help)));
        json!({
            "kind": "algorithm",
            "name": algorithm.name,
            "idea": algorithm.idea,
            "paper": algorithm.paper,
            "tasks": names(TASKS, |task| algorithm_answers(algorithm, task), |task| task.name),
            "accelerators": ["none"],
            "merges": true,
            "merged": merged(algorithm),
            "commutable": algorithm.laws.commutable,
            "aggregatable": algorithm.laws.aggregatable,
            "parameters": parameters.collect::<serde_json::Map<_, _>>(),
            "memory": algorithm.memory,
        })
    });
    let accelerator = json!({ "kind": "accelerator", "name": "none" });
    let tasks = TASKS.into_iter().map(|task| {
        json!({
            "kind": "task",
            "name": task.name,
            "question": task.question,
            "default": task.by_default,
            "algorithms": names(ALGORITHMS, |one| algorithm_answers(one, task), |one| one.name),
            "keys": names(KeyKind::ALL, |(_, kind)| key_answers(kind, task), |(name, _)| name),
        })
    });
    let keys = KeyKind::ALL.into_iter().map(|(name, kind)| {
        json!({
            "kind": "key",
            "name": name,
            "prefixes": kind.has_addresses(),
            "tasks": names(TASKS, |task| key_answers(kind, task), |task| task.name),
        })
    });
    let all: Vec<Value> = algorithms.chain([accelerator]).chain(tasks).chain(keys).collect();
    let lines: Vec<String> = all.iter().map(Value::to_string).collect();
    lines.join("\n") + "\n"
}

fn page() -> String {
    let mut page = String::from("Algorithms\n");
    for algorithm in ALGORITHMS {
        paragraph(&mut page, &format!("  {:<17}", algorithm.name), algorithm.idea);
        let indent = " ".repeat(19);
        paragraph(&mut page, &indent, algorithm.paper);
        for parameter in algorithm.parameters {
            paragraph(&mut page, &indent, &format!("{}: {}", parameter.name, parameter.help));
        }
        paragraph(&mut page, &indent, &format!("memory in bytes: {}", algorithm.memory));
        paragraph(&mut page, &indent, &format!("merges: {}", merged(algorithm)));
    }
    page.push_str("\nAccelerators\n  none\n\nTasks (+ runs by default)\n");
    for task in TASKS {
        let mark = if task.by_default { '+' } else { ' ' };
        paragraph(&mut page, &format!("{mark} {:<17}  ", task.name), task.question);
    }
    page.push_str("\nAlgorithms that answer a task, for a key that can\n");
    let columns: Vec<_> = ALGORITHMS.iter().map(|one| (one.name, one)).collect();
    matrix(&mut page, &columns, |algorithm, task| algorithm_answers(algorithm, task));
    page.push_str("\nKeys that a task is answered for, by an algorithm that can\n");
    matrix(&mut page, &KeyKind::ALL, |kind, task| key_answers(*kind, task));
    page
}

/// A row for each task, a column for each of `columns`.
fn matrix<T>(
    page: &mut String,
    columns: &[(&'static str, T)],
    holds: impl Fn(&T, &TaskEntry) -> bool,
) {
    let mut titles = vec![("", Align::Left)];
    titles.extend(columns.iter().map(|(name, _)| (*name, Align::Left)));
    let mut table = Table::new(&titles);
    for task in TASKS {
        let mut cells: Vec<Cell> = vec![task.name.into()];
        cells.extend(
            columns.iter().map(|(_, one)| if holds(one, task) { "yes" } else { "·" }.into()),
        );
        table.row(cells, 0.0);
    }
    table.write(page);
}

/// What a merge of two summaries gives.
fn merged(algorithm: &Info) -> &'static str {
    match algorithm.laws.merge {
        Merge::Equal => "to the same numbers as one summary of all packets",
        Merge::WithinBounds => "to numbers within the bounds",
        Merge::Disjoint => "to the same numbers, where no flow is in both",
    }
}
