//! `docs/algorithms.md` describes every algorithm of the catalog. Its tables are made from
//! `flowgauge list` and the committed measurements of speed and accuracy; its examples run.

use std::fmt::Write;
use std::fs;

use serde_json::Value;

use crate::book::{DOCS, GENERATE, print, repository};
use crate::run::flowgauge;

/// Rows of a table of the lab whose first column is this name, as cells.
fn rows<'a>(table: &'a str, name: &'a str) -> impl Iterator<Item = Vec<&'a str>> {
    let rows = table.lines().map(|line| line.split('\t').collect::<Vec<_>>());
    rows.filter(move |cells| cells[0] == name)
}

fn page(name: &str) -> String {
    fs::read_to_string(format!("{DOCS}/{name}")).unwrap()
}

/// Names in the list of a JSON field, as code.
fn names(list: &Value) -> String {
    let names: Vec<_> =
        list.as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    names
        .iter()
        .filter(|name| **name != "none")
        .map(|name| format!("`{name}`"))
        .collect::<Vec<_>>()
        .join(", ")
}

/// Rates of an algorithm, as fractions of the yardstick's.
fn cost(speed: &str, name: &str) -> String {
    let shares = rows(speed, name).filter(|cells| !cells[4].is_empty());
    shares.map(|cells| format!("{} (`{}`)", cells[4], cells[1])).collect::<Vec<_>>().join(", ")
}

/// Errors of an algorithm by task, under the largest limit of memory that was measured. Nothing for an
/// algorithm without measurements.
fn errors(accuracy: &str, name: &str) -> String {
    let measured: Vec<_> = rows(accuracy, name)
        .filter(|cells| cells[3] == "backbone" && cells[7] == "2500000")
        .filter_map(|cells| Some((cells[1].strip_prefix("memory=")?.parse::<u64>().ok()?, cells)))
        .collect();
    let Some(limit) = measured.iter().map(|(limit, _)| *limit).max() else {
        return String::new();
    };
    let errors: Vec<_> = measured
        .iter()
        .filter(|(memory, _)| *memory == limit)
        .filter_map(|(_, cells)| Some((cells[2], cells[12].parse::<f64>().ok()?)))
        .collect();
    if errors.is_empty() {
        return String::new();
    }
    let text = if errors.iter().all(|(_, rms)| *rms == 0.0) {
        "none".to_owned()
    } else {
        let errors = errors.iter().map(|(task, rms)| format!("`{task}` {:.3} %", 100.0 * rms));
        errors.collect::<Vec<_>>().join(", ")
    };
    format!("{text}; limit {} MiB", limit >> 20)
}

/// The table of an algorithm.
fn table(line: &Value, speed: &str, accuracy: &str) -> String {
    let name = line["name"].as_str().unwrap();
    let parameters = line["parameters"].as_object().unwrap().iter();
    let parameters = parameters
        .map(|(name, what)| format!("`{name}`: {}", what.as_str().unwrap()))
        .collect::<Vec<_>>()
        .join("<br>");
    let rows = [
        ("idea", line["idea"].as_str().unwrap().to_owned()),
        ("answers", names(&line["tasks"])),
        ("accelerators", names(&line["accelerators"])),
        ("cost", cost(speed, name)),
        ("memory in bytes", line["memory"].as_str().unwrap().to_owned()),
        ("error (RMS)", errors(accuracy, name)),
        ("merges", line["merged"].as_str().unwrap().to_owned()),
        ("parameters", parameters),
        ("paper", line["paper"].as_str().unwrap().to_owned()),
    ];
    let mut text = String::from("| | |\n|---|---|\n");
    for (title, cell) in rows.iter().filter(|(_, cell)| !cell.is_empty()) {
        writeln!(text, "| {title} | {} |", cell.replace('|', "\\|")).unwrap();
    }
    text
}

/// `FLOWGAUGE_GOLDEN=write` rewrites the tables of the page after an intended change.
#[test]
fn the_page_of_algorithms_is_current() {
    let (speed, accuracy) = (page("speed.tsv"), page("accuracy.tsv"));
    let old = page("algorithms.md");
    let mut sections = old.split("\n### ");
    let mut new = sections.next().unwrap().to_owned();
    let described: Vec<_> = sections.collect();
    let catalog = flowgauge(&["list", "algorithms", "--format", "json"]).lines();
    let titles: Vec<_> = described.iter().map(|text| text.lines().next().unwrap()).collect();
    let listed: Vec<_> = catalog.iter().map(|line| line["name"].as_str().unwrap()).collect();
    assert_eq!(titles, listed, "sections of docs/algorithms.md");
    for (line, text) in catalog.iter().zip(described) {
        let written = text.split("\n| | |").next().unwrap().trim_end();
        write!(new, "\n### {written}\n\n{}", table(line, &speed, &accuracy)).unwrap();
    }
    if std::env::var_os("FLOWGAUGE_GOLDEN").is_some_and(|value| value == "write") {
        fs::write(format!("{DOCS}/algorithms.md"), &new).unwrap();
    }
    assert!(
        page("algorithms.md") == new,
        "tables of docs/algorithms.md are not those of the catalog, docs/speed.tsv and \
         docs/accuracy.tsv; write them again by FLOWGAUGE_GOLDEN=write"
    );
}

#[test]
fn the_examples_of_algorithms_run() {
    let folder = repository("catalog");
    print(GENERATE, &folder);
    let page = page("algorithms.md");
    for section in page.split("\n### ").skip(1) {
        let name = section.lines().next().unwrap();
        let example = section.lines().find(|line| line.starts_with("flowgauge analyze "));
        let example = example.unwrap_or_else(|| panic!("{name} has no example"));
        let report = print(example, &folder);
        assert!(report.contains(&format!("· {name} ")), "{example}\n{report}");
    }
}
