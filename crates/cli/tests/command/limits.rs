//! Reports are bounded: by a limit on lists, and within the memory that `explain` prints.

use std::io::Read;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::run::{file, flowgauge, pcap, traffic};

/// Bytes beside what is reserved and reported: the program, its stacks, and buffers.
const SLACK: u64 = 64_000_000;

/// A capture of this many flows of one packet, each with its own source.
fn flows(name: &str, flows: u32) -> String {
    let mut bytes = pcap(&[]);
    let mut frame = vec![2; 12];
    frame.extend([0x08, 0x00, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0]);
    frame.extend([0, 0, 0, 0, 192, 0, 2, 1, 0x0f, 0xa0, 0, 53, 0, 26, 0, 0]);
    frame.resize(60, 0);
    for flow in 0..flows {
        for word in [1_459_947_600, flow, 60, 60] {
            bytes.extend(word.to_le_bytes());
        }
        frame[26..30].copy_from_slice(&(0x0a00_0000 | flow).to_be_bytes());
        bytes.extend(&frame);
    }
    file(name, &bytes)
}

/// Runs the command; returns its output and its peak resident memory.
fn peak(arguments: &[&str]) -> (Vec<u8>, u64) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_flowgauge"))
        .args(arguments)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let status = format!("/proc/{}/status", child.id());
    let (mut out, mut peak) = (Vec::new(), 0);
    let mut pipe = child.stdout.take().unwrap();
    let mut chunk = vec![0; 1 << 16];
    loop {
        let read = pipe.read(&mut chunk).unwrap();
        out.extend(&chunk[..read]);
        // It is there for as long as the command is not waited for, and empty once it has ended.
        let status = std::fs::read_to_string(&status).unwrap();
        let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = most.map_or(0, |most| most.trim().trim_end_matches(" kB").parse().unwrap());
        peak = peak.max(1024 * kib);
        if read == 0 {
            break;
        }
    }
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(peak > 0);
    (out, peak)
}

/// The most memory that `explain` says a run takes.
fn promised(arguments: &[&str]) -> u64 {
    let explained = flowgauge(&[&["explain", "--format", "json"], arguments].concat());
    explained.lines()[0]["total_bytes"].as_u64().unwrap()
}

#[test]
fn a_report_of_a_million_flows_takes_no_more_memory_than_explained() {
    let capture = flows("million.pcap", 1_000_000);
    let every = "top,heavy-hitters,superspreaders,victims,hierarchical,cardinality,entropy";
    let lists = ["--threshold", "0%", "--spread", "0", "--top", "100000000"];
    let asked = [&["--task", every], &lists[..]].concat();
    let promised = promised(&asked);
    let one = [&["--task", "top"], &lists[..]].concat();
    for (format, asked) in [("json", &asked[..]), ("text", &asked), ("csv", &one)] {
        let arguments = [&["analyze", "--format", format], asked, &[&capture]].concat();
        let (out, peak) = peak(&arguments);
        println!("{format}: {} bytes written, {peak} of {promised} resident", out.len());
        assert!(peak <= promised + SLACK, "{format}: {peak} bytes, {promised} explained");
        let out = String::from_utf8(out).unwrap();
        if format == "csv" {
            assert_eq!(out.lines().count(), 10_001);
            continue;
        }
        assert!(out.contains("heavy-hitters lists 10000 of 1000000 items; --limit lists more"));
        if format == "json" {
            let epoch: Value = serde_json::from_str(out.lines().next().unwrap()).unwrap();
            for task in ["top", "heavy-hitters", "superspreaders"] {
                let list = &epoch["tasks"][task];
                assert_eq!(list["items"].as_array().unwrap().len(), 10_000, "{task}");
                assert_eq!(list["truncated"], 990_000, "{task}");
            }
        }
    }
}

#[test]
fn without_a_limit_lists_are_whole_and_explain_gives_their_memory() {
    let capture = flows("unlimited.pcap", 100_000);
    let asked = ["--task", "heavy-hitters", "--threshold", "0", "--memory", "16MiB"];
    let limited = promised(&asked);
    let asked = [&asked[..], &["--limit", "0"]].concat();
    let promised = promised(&asked);
    assert!(promised > limited + 20_000_000, "{limited} {promised}");
    let (out, peak) = peak(&[&["analyze", "--format", "json"], &asked[..], &[&capture]].concat());
    assert!(peak <= promised + SLACK, "{peak} bytes, {promised} explained");
    let line = String::from_utf8(out).unwrap();
    let epoch: Value = serde_json::from_str(line.lines().next().unwrap()).unwrap();
    let list = &epoch["tasks"]["heavy-hitters"];
    assert_eq!(list["items"].as_array().unwrap().len(), 100_000);
    assert_eq!(list["truncated"], 0);
    assert_eq!(epoch["notes"], Value::Array(Vec::new()));
}

#[test]
fn a_limited_list_is_the_head_of_the_whole_one() {
    let capture = file("limited.pcap", &pcap(&traffic()));
    let tasks = "top,heavy-hitters,superspreaders,victims,changes,hierarchical";
    let asked = ["analyze", "--format", "json", "--epoch", "250ms", "--top", "50", "--task", tasks];
    let asked = [&asked[..], &["--threshold", "0", "--spread", "0", &capture]].concat();
    let whole = flowgauge(&asked).lines();
    let limited = flowgauge(&[&asked[..], &["--limit", "3"]].concat()).lines();
    assert_eq!(whole.len(), limited.len());
    let mut lists = 0;
    for (whole, limited) in whole.iter().zip(&limited).filter(|(line, _)| line["type"] == "epoch") {
        for (task, whole) in whole["tasks"].as_object().unwrap() {
            let limited = &limited["tasks"][task];
            let (all, items) = (whole["items"].as_array(), limited["items"].as_array());
            let (all, items) = (all.unwrap(), items.unwrap());
            assert_eq!(items[..], all[..all.len().min(3)], "{task}");
            assert_eq!(limited["truncated"], all.len() - items.len(), "{task}");
            assert_eq!(whole["truncated"], 0, "{task}");
            lists += usize::from(all.len() > 3);
        }
    }
    assert!(lists > 6, "{lists}");
    let page = flowgauge(&["analyze", "--threshold", "0", "--limit", "3", &capture]).out;
    assert!(
        page.contains("204 flows have more than 0 packets each; the 3 largest together have"),
        "{page}"
    );
    assert!(page.contains("heavy-hitters lists 3 of 204 items"), "{page}");
}
