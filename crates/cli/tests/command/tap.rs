//! `-w` writes the packets that pass the filter, `-s` cuts packets short.

use std::fs;

use serde_json::Value;

use crate::run::{file, flowgauge, flowgauge_reading, folder, pcap, traffic, udp};

/// The tasks of a report, and its packets with a key.
fn answers(line: &Value) -> (Value, Value) {
    (line["tasks"].clone(), line["account"]["keyed"].clone())
}

fn measured(arguments: &[&str]) -> (Value, Value) {
    let answer =
        flowgauge(&[&["analyze", "--format", "json", "--task", "top"], arguments].concat());
    assert_eq!(answer.code, 0, "{}", answer.err);
    answers(&answer.lines()[0])
}

#[test]
fn packets_that_pass_the_filter_are_written() {
    let folder = folder("written");
    let at = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let capture = file("written.pcap", &pcap(&traffic()));
    let filtered = measured(&[&capture, "--filter", "udp"]);
    for (name, more) in [("one", &[][..]), ("two", &["--workers", "2"]), ("zst", &["--seed", "7"])]
    {
        let written = at(name);
        let arguments = [&[&*capture, "--filter", "udp", "-w", &written], more].concat();
        assert_eq!(measured(&arguments), filtered);
        assert_eq!(measured(&[&written]), filtered, "{name}");
        assert_eq!(measured(&[&written, "--filter", "not udp"]).1, 0);
    }
    // All packets, also those without a key.
    let all = at("all");
    measured(&[&capture, "-w", &all]);
    let account = |file: &str| {
        let answer = flowgauge(&["analyze", "--format", "json", file]);
        answer.lines()[0]["account"].clone()
    };
    assert_eq!(account(&all), account(&capture));
    // The first packets that pass.
    let few = at("few");
    let limited = measured(&[&capture, "--filter", "udp", "-c", "2", "-w", &few]);
    assert_eq!((&limited.1, &measured(&[&few])), (&Value::from(2), &limited));
    // Those of any of several measurements.
    let both = at("both");
    let answer = flowgauge(&[
        "analyze",
        &capture,
        "--measure",
        "a: filter=udp task=top",
        "--measure",
        "b: filter='not udp' task=top",
        "-w",
        &both,
    ]);
    assert_eq!(answer.code, 0, "{}", answer.err);
    assert_eq!(account(&both), account(&capture));
}

#[test]
fn packets_go_to_standard_output_where_reports_do_not() {
    let folder = folder("piped");
    let report = folder.join("report.json").to_str().unwrap().to_owned();
    let bytes = pcap(&traffic());
    let capture = file("piped.pcap", &bytes);
    let refused = flowgauge(&["analyze", &capture, "-w", "-"]);
    assert_eq!(refused.code, 2);
    assert_eq!(
        refused.err,
        "flowgauge: packets and reports cannot both go to standard output; name a file with -w or -o\n"
    );
    let missing = flowgauge(&["analyze", &capture, "-w", "/nowhere/x.pcapng"]);
    assert_eq!(missing.code, 1);
    assert_eq!(
        missing.err,
        "flowgauge: cannot write /nowhere/x.pcapng: No such file or directory (os error 2)\n"
    );
    let own = flowgauge(&["analyze", &capture, "-w", &capture]);
    assert_eq!((own.code, fs::read(&capture).unwrap()), (2, bytes));
    let twice = flowgauge(&["analyze", &capture, "-w", &report, "-o", &report]);
    assert_eq!(twice.code, 2);
    assert!(twice.err.contains("name a different file for each"), "{}", twice.err);
    // The report is complete all the same.
    let full = flowgauge(&["analyze", &capture, "-w", "/dev/full", "--format", "json"]);
    assert_eq!((full.code, full.lines().len()), (1, 2));
    let line = "flowgauge: cannot write /dev/full: No space left on device (os error 28); \
                packets after that are missing in it\n";
    assert_eq!(full.err, line);
    let piped = std::process::Command::new(env!("CARGO_BIN_EXE_flowgauge"))
        .args(["analyze", "--seed", "0", &capture, "--format", "json", "-o", &report, "-w", "-"])
        .output()
        .unwrap();
    assert_eq!(piped.status.code(), Some(0));
    let read = flowgauge_reading(&["analyze", "--format", "json", "-"], &piped.stdout);
    let report: Value =
        serde_json::from_str(fs::read_to_string(&report).unwrap().lines().next().unwrap()).unwrap();
    assert_eq!(answers(&read.lines()[0]), answers(&report));
}

#[test]
fn packets_are_cut_short() {
    let folder = folder("short");
    let short = folder.join("short").to_str().unwrap().to_owned();
    let packets: Vec<_> = (0..10).map(|n| udp(1, 2, n)).collect();
    let capture = file("short.pcap", &pcap(&packets));
    let account = |arguments: &[&str]| {
        let arguments = [&["analyze", "--format", "json", "--task", "top"], arguments].concat();
        let answer = flowgauge(&arguments);
        assert_eq!(answer.code, 0, "{}", answer.err);
        answer.lines()[0]["account"].clone()
    };
    let whole = account(&[&capture]);
    assert_eq!(account(&[&capture, "-s", "38", "-w", &short]), whole);
    assert_eq!(account(&[&capture, "-s", "38", "--workers", "2"]), whole);
    let written = fs::read(&short).unwrap();
    assert_eq!(written.len(), 28 + 32 + 10 * (32 + 40), "38 bytes of each packet, filled up to 40");
    assert_eq!(account(&[&short]), whole);
    let cut = account(&[&capture, "-s", "37"]);
    assert_eq!((&cut["malformed"], &cut["keyed"]), (&Value::from(10), &Value::from(0)));
    assert_eq!(cut["malformed_reasons"]["transport-cut"], 10);
}

/// Protocols and services are counted alike by one reader, by readers of parts, and by readers in turns.
#[test]
fn protocols_beside_a_sketch_are_those_of_any_reader() {
    let folder = folder("readers");
    let capture = folder.join("large.pcap").to_str().unwrap().to_owned();
    let made = ["generate", "--packets", "60000", "--seed", "4", "--ipv6", "0.2", "-o", &capture];
    assert_eq!(flowgauge(&made).code, 0);
    let bytes = fs::read(&capture).unwrap();
    let breakdown = |arguments: &[&str]| {
        let options = ["analyze", "--format", "json", "--key", "host", "--algorithm", "count-min"];
        let answer = flowgauge_reading(&[&options, arguments].concat(), &bytes);
        assert_eq!(answer.code, 0, "{}", answer.err);
        answer.lines()[0]["breakdown"].clone()
    };
    let one = breakdown(&[&capture]);
    let packets = one["protocols"].as_array().unwrap().iter().map(|one| one["packets"].as_u64());
    assert_eq!(packets.sum::<Option<u64>>(), Some(60_000));
    for arguments in [[&*capture, "--workers", "2"], ["-", "--workers", "2"]] {
        assert_eq!(breakdown(&arguments), one, "{arguments:?}");
    }
}
