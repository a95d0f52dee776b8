//! `list`, `explain`, and the completions and manual page that `make install` uses.

use serde_json::Value;

use crate::run::{file, flowgauge, pcap, traffic};

fn names<'a>(lines: &'a [Value], kind: &str) -> Vec<&'a str> {
    let of_kind = lines.iter().filter(|line| line["kind"] == kind);
    of_kind.map(|line| line["name"].as_str().unwrap()).collect()
}

/// Keys, each with a flow.
const KEYS: [(&str, &str); 4] = [
    (
        "five-tuple",
        "source=10.0.0.1,destination=192.0.2.2,source_port=4000,destination_port=53,protocol=17",
    ),
    ("source", "source=10.0.0.1"),
    ("destination", "destination=192.0.2.2"),
    ("pair", "source=10.0.0.1,destination=192.0.2.2"),
];

#[test]
fn all_listed_names_run() {
    let answer = flowgauge(&["list", "--format", "json"]);
    assert_eq!((answer.code, answer.err.as_str()), (0, ""));
    let lines = answer.lines();
    let tasks = names(&lines, "task");
    assert_eq!(names(&lines, "algorithm")[0], "linear-table");
    assert_eq!(names(&lines, "key").len(), 14);
    let accelerators = names(&lines, "accelerator");
    assert_eq!(accelerators[..2], ["none", "agg-evict"]);
    let capture = file("listed.pcap", &pcap(&traffic()));
    for task in &tasks {
        for line in lines.iter().filter(|line| line["kind"] == "algorithm") {
            let algorithm = line["name"].as_str().unwrap();
            let listed = line["tasks"].as_array().unwrap().iter().any(|name| name == task);
            let runs = |(key, flow): (&str, &str)| {
                let mut arguments = vec!["analyze", "--memory", "16MiB", "--key", key];
                arguments.extend(["--task", task, "--algorithm", algorithm]);
                if *task == "flow-size" {
                    arguments.extend(["--flow", flow]);
                }
                arguments.push(&capture);
                flowgauge(&arguments).code == 0
            };
            // What is listed runs for some key; of what is not, the usual key is tried.
            let keys = if listed { &KEYS[..] } else { &KEYS[..1] };
            assert_eq!(keys.iter().copied().any(runs), listed, "{task} {algorithm}");
        }
    }
    for line in lines.iter().filter(|line| line["kind"] == "algorithm") {
        for accelerator in &accelerators {
            let algorithm = line["name"].as_str().unwrap();
            let listed = line["accelerators"].as_array().unwrap();
            let mut arguments = vec!["analyze", "--memory", "16MiB", "--key", "source"];
            arguments.extend(["--algorithm", algorithm, "--accelerator", accelerator, &capture]);
            // It answers none of the default tasks.
            if algorithm == "csm" {
                arguments.extend(["--task", "flow-size", "--flow", "source=10.0.0.1"]);
            }
            let answer = flowgauge(&arguments);
            let listed = listed.iter().any(|name| name == accelerator);
            assert_eq!(answer.code == 0, listed, "{accelerator} {algorithm}: {}", answer.err);
        }
    }
    for (topic, kind) in [
        ("algorithms", "algorithm"),
        ("accelerators", "accelerator"),
        ("tasks", "task"),
        ("keys", "key"),
    ] {
        let only = flowgauge(&["list", topic, "--format", "json"]).lines();
        let of_kind: Vec<_> = lines.iter().filter(|line| line["kind"] == kind).cloned().collect();
        assert_eq!(only, of_kind, "{topic}");
        assert!(flowgauge(&["list", topic]).out.len() < flowgauge(&["list"]).out.len());
    }
    let misspelt = flowgauge(&["list", "algorithm"]);
    assert_eq!(misspelt.code, 2);
    assert!(misspelt.err.contains("'algorithms'"), "{}", misspelt.err);
    let text = flowgauge(&["list"]).out;
    for name in names(&lines, "algorithm").iter().chain(&tasks).chain(&names(&lines, "key")) {
        assert!(text.contains(name), "{name}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
}

#[test]
fn explains_the_run() {
    let answer = flowgauge(&["explain", "--format", "json", "--memory", "64MiB", "not-read.pcap"]);
    assert_eq!((answer.code, answer.err.as_str()), (0, ""));
    let line = &answer.lines()[0];
    let memory = line["memory_bytes"].as_u64().unwrap();
    assert!((32 << 20..=64 << 20).contains(&memory), "{memory}");
    let lanes: Vec<_> =
        line["lanes"].as_array().unwrap().iter().map(|lane| lane["key_bytes"].clone()).collect();
    assert_eq!(lanes, [13, 37]);
    let parts = line["lanes"].as_array().unwrap().iter().map(|lane| &lane["memory_bytes"]);
    let parts: u64 = parts
        .chain([&line["scratch_bytes"], &line["history_bytes"]])
        .map(|bytes| bytes.as_u64().unwrap())
        .sum();
    assert_eq!(parts, memory);
    assert_eq!(line["tasks"].as_array().unwrap().len(), 8);

    let source = flowgauge(&["explain", "--format", "json", "--key", "source"]);
    let left_out = source.lines()[0]["left_out"].to_string();
    assert!(left_out.contains("superspreaders"), "{left_out}");
    for arguments in [&["explain"][..], &["explain", "--key", "protocol", "--epoch", "90s"]] {
        let page = flowgauge(arguments);
        assert_eq!((page.code, page.err.as_str()), (0, ""));
        assert!(page.out.contains("linear-table") && page.out.contains("MiB"), "{}", page.out);
    }
}

#[test]
fn prints_completions_and_the_manual_page() {
    for shell in ["bash", "zsh", "fish"] {
        let answer = flowgauge(&["completions", shell]);
        assert_eq!((answer.code, answer.err.as_str()), (0, ""));
        assert!(answer.out.contains("analyze") && !answer.out.contains("helper"), "{shell}");
    }
    let man = flowgauge(&["man"]);
    assert_eq!((man.code, man.err.as_str()), (0, ""));
    for word in [".TH flowgauge 1", ".SH ANALYZE", "\\-\\-threshold", ".SH LIST", ".SH EXPLAIN"] {
        assert!(man.out.contains(word), "{word}: {}", man.out);
    }
    assert!(man.out.matches(".SS EXAMPLES").count() > 10 && !man.out.contains("EXTRA"));
    assert!(!man.out.contains("instruction set avx"), "the page is for any machine");
}

/// Up to 16 workers deal the flows of tables out among each other; of more, one reads.
#[test]
fn the_plan_says_how_workers_read() {
    for (workers, turns) in [("16", true), ("17", false)] {
        let page = flowgauge(&["explain", "--workers", workers]).out;
        let way = if turns { "they read in turns" } else { "one reads, and assigns packets to" };
        assert!(page.contains(&format!("can be split; else {way}")), "{page}");
        let line = &flowgauge(&["explain", "--workers", workers, "--format", "json"]).lines()[0];
        assert_eq!((&line["parts"], &line["turns"]), (&true.into(), &turns.into()));
    }
}

#[test]
fn completions_know_the_names() {
    for shell in ["bash", "zsh", "fish"] {
        let script = flowgauge(&["completions", shell]).out;
        for name in ["agg-evict", "count-min", "five-tuple", "top-sources"] {
            assert!(script.contains(name), "{shell} {name}");
        }
    }
}
