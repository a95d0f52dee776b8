//! `flowgauge list`: algorithms, accelerators, tasks and keys, and how they combine.
//!
//! The catalog of the engine provides everything.

use flowgauge_core::accelerator::AcceleratorInfo;
use flowgauge_core::catalog::{self, ACCELERATORS, ALGORITHMS};
use flowgauge_core::key::KeyKind;
use flowgauge_core::summary::{Info, Merge, Parameter};
use flowgauge_core::task::{TASKS, TaskEntry};
use flowgauge_core::terms::Measure;
use flowgauge_engine::answered;
use flowgauge_engine::sink::layout::{Align, Cell, Look, Page, Table, paragraph};
use serde_json::{Value, json};

use crate::args::Listing;
use crate::failure::Failure;
use crate::output;
use crate::values::{Format, Topic};

/// Runs the command.
pub(crate) fn run(listing: &Listing) -> Result<(), Failure> {
    listing.output.text_or_json("the list")?;
    let path = listing.output.path.as_deref();
    let of = |topic| listing.topic.is_none_or(|asked| asked == topic);
    let text = match listing.output.format.unwrap_or_default() {
        Format::Json => lines(of, &Answered::new()),
        _ => page(of, listing.output.look(path), &Answered::new()),
    };
    output::write(path, &text)
}

/// The combinations of algorithm, key and task that work in at least one measure.
struct Answered(Vec<(&'static str, KeyKind, &'static str)>);

impl Answered {
    fn new() -> Self {
        let mut all = Vec::new();
        for algorithm in ALGORITHMS {
            for (_, kind) in KeyKind::NAMED {
                for by in [Measure::Packets, Measure::Bytes] {
                    let tasks = answered(kind.into(), by, algorithm.name);
                    all.extend(tasks.into_iter().map(|task| (algorithm.name, kind, task)));
                }
            }
        }
        Self(all)
    }

    fn by(&self, algorithm: &Info, task: &TaskEntry) -> bool {
        self.0.iter().any(|(name, _, answered)| (*name, *answered) == (algorithm.name, task.name))
    }

    fn of(&self, kind: KeyKind, task: &TaskEntry) -> bool {
        self.0.iter().any(|(_, key, answered)| (*key, *answered) == (kind, task.name))
    }
}

/// The names of the items for which `holds` returns `true`.
fn names<T: Copy>(
    all: impl IntoIterator<Item = T>,
    holds: impl Fn(T) -> bool,
    name: impl Fn(T) -> &'static str,
) -> Vec<&'static str> {
    all.into_iter().filter(|one| holds(*one)).map(name).collect()
}

/// JSON lines: algorithms, accelerators, tasks, keys.
fn lines(of: impl Fn(Topic) -> bool, answered: &Answered) -> String {
    let algorithms = ALGORITHMS.iter().map(|algorithm| {
        let parameters = algorithm.parameters.iter().map(|p| (p.name.to_owned(), json!(p.help)));
        json!({
            "kind": "algorithm",
            "name": algorithm.name,
            "idea": algorithm.idea,
            "paper": algorithm.paper,
            "tasks": names(TASKS, |task| answered.by(algorithm, task), |task| task.name),
            "accelerators": accelerators(algorithm),
            "merges": true,
            "merged": merged(algorithm),
            "commutable": algorithm.laws.commutable,
            "aggregatable": algorithm.laws.aggregatable,
            "parameters": parameters.collect::<serde_json::Map<_, _>>(),
            "memory": algorithm.memory,
        })
    });
    let none = json!({ "kind": "accelerator", "name": "none" });
    let accelerators = ACCELERATORS.iter().map(|accelerator| {
        let parameters = accelerator.parameters.iter().map(|p| (p.name.to_owned(), json!(p.help)));
        json!({
            "kind": "accelerator",
            "name": accelerator.name,
            "idea": accelerator.idea,
            "paper": accelerator.paper,
            "algorithms": catalog::able(accelerator.name),
            "parameters": parameters.collect::<serde_json::Map<_, _>>(),
            "memory": accelerator.memory,
        })
    });
    let tasks = TASKS.into_iter().map(|task| {
        json!({
            "kind": "task",
            "name": task.name,
            "question": task.question,
            "default": task.by_default,
            "algorithms": names(ALGORITHMS, |one| answered.by(one, task), |one| one.name),
            "keys": names(KeyKind::NAMED, |(_, kind)| answered.of(kind, task), |(name, _)| name),
        })
    });
    let keys = KeyKind::NAMED.into_iter().map(|(name, kind)| {
        json!({
            "kind": "key",
            "name": name,
            "prefixes": kind.has_addresses(),
            "tasks": names(TASKS, |task| answered.of(kind, task), |task| task.name),
        })
    });
    let all: [(Topic, Vec<Value>); 4] = [
        (Topic::Algorithms, algorithms.collect()),
        (Topic::Accelerators, [none].into_iter().chain(accelerators).collect()),
        (Topic::Tasks, tasks.collect()),
        (Topic::Keys, keys.collect()),
    ];
    let asked = all.iter().filter(|(topic, _)| of(*topic)).flat_map(|(_, lines)| lines);
    let lines: Vec<String> = asked.map(Value::to_string).collect();
    lines.join("\n") + "\n"
}

fn page(of: impl Fn(Topic) -> bool, look: Look, answered: &Answered) -> String {
    let mut page = Page::new(look);
    if of(Topic::Algorithms) {
        page.heading("Algorithms");
        for info in ALGORITHMS {
            let &Info { name, idea, paper, parameters, memory, .. } = info;
            entry(&mut page, [name, idea, paper, memory], parameters);
            paragraph(&mut page, INDENT, &format!("merges {}", merged(info)));
        }
    }
    if of(Topic::Accelerators) {
        page.heading("Accelerators");
        for &AcceleratorInfo { name, idea, paper, parameters, memory, .. } in ACCELERATORS {
            entry(&mut page, [name, idea, paper, memory], parameters);
        }
    }
    if of(Topic::Tasks) || of(Topic::Keys) {
        page.heading("Tasks (+ runs by default)");
        for (number, task) in (1..).zip(TASKS) {
            let mark = if task.by_default { '+' } else { ' ' };
            paragraph(&mut page, &format!("{mark} {number:>2} {:<17}  ", task.name), task.question);
        }
    }
    let algorithms = || ALGORITHMS.iter().map(|algorithm| (algorithm.name, algorithm));
    if of(Topic::Accelerators) {
        page.heading("Accelerators of an algorithm with its default parameters");
        let names = ACCELERATORS.iter().map(|accelerator| accelerator.name);
        matrix(&mut page, names, algorithms(), |algorithm, at| {
            catalog::able(ACCELERATORS[at].name).contains(&algorithm.name)
        });
    }
    let numbers = || (1..=TASKS.len()).map(|number| number.to_string());
    if of(Topic::Tasks) {
        page.heading("Tasks of an algorithm, by number, with at least one key");
        matrix(&mut page, numbers(), algorithms(), |algorithm, at| {
            answered.by(algorithm, TASKS[at])
        });
    }
    if of(Topic::Keys) {
        page.heading("Tasks of a key, by number, with at least one algorithm");
        matrix(&mut page, numbers(), KeyKind::NAMED, |kind, at| answered.of(*kind, TASKS[at]));
    }
    page.into_text()
}

/// The indent below a name.
const INDENT: &str = "                   ";

/// An algorithm or an accelerator.
fn entry(page: &mut Page, [name, idea, paper, memory]: [&str; 4], parameters: &[Parameter]) {
    paragraph(page, &format!("  {name:<15}  "), idea);
    paragraph(page, INDENT, paper);
    for parameter in parameters {
        paragraph(page, INDENT, &format!("{}: {}", parameter.name, parameter.help));
    }
    paragraph(page, INDENT, &format!("memory in bytes: {memory}"));
}

/// A row for each of `rows`, a column for each title.
fn matrix<T>(
    page: &mut Page,
    titles: impl Iterator<Item = impl Into<String>>,
    rows: impl IntoIterator<Item = (&'static str, T)>,
    holds: impl Fn(&T, usize) -> bool,
) {
    let titles: Vec<String> = titles.map(Into::into).collect();
    let mut columns = vec![("", Align::Left)];
    columns.extend(titles.iter().map(|title| (title.as_str(), Align::Right)));
    let mut table = Table::new(&columns);
    for (name, one) in rows {
        let mut cells: Vec<Cell> = vec![name.into()];
        cells.extend((0..titles.len()).map(|at| if holds(&one, at) { "x" } else { "·" }.into()));
        table.row(cells, 0.0);
    }
    table.write(page);
}

/// The accelerators that support an algorithm with its default parameters.
fn accelerators(algorithm: &Info) -> Vec<&'static str> {
    let before =
        |accelerator: &&AcceleratorInfo| catalog::able(accelerator.name).contains(&algorithm.name);
    let able = ACCELERATORS.iter().filter(before).map(|accelerator| accelerator.name);
    std::iter::once("none").chain(able).collect()
}

/// The result of merging two summaries of an algorithm.
fn merged(algorithm: &Info) -> &'static str {
    match algorithm.laws.merge {
        Merge::Equal => "to the same numbers as one summary of all packets",
        Merge::WithinBounds => "to numbers within the bounds",
        Merge::Disjoint => "to the same numbers, where no flow is in both",
    }
}
