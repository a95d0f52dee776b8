//! Captures: parts for readers in other processes, generated ones with known counts, and those that
//! `-w` writes.

use std::fs;

use serde_json::{Value, json};

use crate::run::{file, flowgauge, flowgauge_reading, folder, pcap, traffic, udp};

/// A capture of records of 80 bytes behind 24 of the header.
fn capture(name: &str) -> String {
    let mut bytes = pcap(&[]);
    for packet in 0..60_000_u32 {
        let header = [1_700_000_000 + packet / 1000, packet % 1000, 64, 64];
        bytes.extend_from_slice(header.map(u32::to_le_bytes).as_flattened());
        bytes.extend_from_slice(
            &[&udp(1, packet as u8, packet as u16)[..], &[0; 64]].concat()[..64],
        );
    }
    file(name, &bytes)
}

fn parts(path: &str, parts: &str) -> Vec<Value> {
    let answer = flowgauge(&["cut", "--parts", parts, "--format", "json", path]);
    assert_eq!(answer.code, 0, "{}", answer.err);
    answer.lines()
}

fn place(part: &Value) -> (u64, u64) {
    (part["offset"].as_u64().unwrap(), part["length"].as_u64().unwrap())
}

#[test]
fn parts_begin_at_records_and_cover_the_file() {
    let path = capture("cut.pcap");
    let found = parts(&path, "4");
    assert_eq!(found.len(), 4);
    let mut end = 24;
    for (number, part) in found.iter().enumerate() {
        let (offset, length) = place(part);
        assert_eq!((offset, offset % 80), (end, 24));
        assert!((1_000_000..1_400_000).contains(&length), "{part}");
        assert_eq!((&part["part"], &part["parts"]), (&json!(number), &json!(4)));
        assert_eq!((&part["file"], &part["reason"]), (&json!(path), &Value::Null));
        end = offset + length;
    }
    assert_eq!(end, fs::metadata(&path).unwrap().len());
    let text = flowgauge(&["cut", "--parts", "4", &path]).out;
    assert!(text.contains(&place(&found[3]).0.to_string()), "{text}");
}

#[test]
fn parts_of_pcapng_cover_its_blocks() {
    let path = capture("cut-ng.pcap");
    let written = format!("{path}ng");
    let copied =
        flowgauge(&["analyze", "--task", "top", "-q", "-w", &written, "-o", "/dev/null", &path]);
    assert_eq!(copied.code, 0, "{}", copied.err);
    let found = parts(&written, "3");
    assert_eq!(found.len(), 3, "{found:?}");
    let (last, length) = place(&found[2]);
    assert_eq!(last + length, fs::metadata(&written).unwrap().len());
}

#[test]
fn an_uncertain_file_is_one_part_with_the_reason() {
    let small = file("small.pcap", &pcap(&traffic()));
    let zeros = file("zeros.bin", &vec![0; 4 << 20]);
    let gzip = file("trace.pcap.gz", &[&[0x1f, 0x8b][..], &vec![7; 4 << 20]].concat());
    // Each packet is a chain of records that goes on in the next one.
    let whole = fs::read(capture("cut-within.pcap")).unwrap();
    let inner = &whole[24..24 + 80 * 10];
    let bridge = &whole[24..24 + 64];
    let packet = [inner, bridge].concat();
    let length = (packet.len() as u32).to_le_bytes();
    let record = [&whole[24..32], &length, &length, &packet].concat();
    let within = file("within.pcap", &[&whole[..24], &record.repeat(4000)].concat());
    for (path, reason) in [
        (&small, "it is smaller than"),
        (&zeros, "it is not a capture"),
        (&gzip, "it is compressed"),
        (&within, "a record may begin at several places"),
    ] {
        let found = parts(path, "8");
        let told = found[0]["reason"].as_str().unwrap();
        assert!(told.contains(reason), "{told}");
        assert_eq!((&found[0]["offset"], &found[0]["length"]), (&json!(0), &Value::Null));
        assert_eq!(found.len(), 1);
        let text = flowgauge(&["cut", "--parts", "8", path]).out;
        assert!(text.contains(reason) && text.contains("all"), "{text}");
    }
    assert_eq!(parts(&within, "1")[0]["reason"], Value::Null);
}

#[test]
fn unreadable_files_are_refused() {
    for (path, reason) in [("/nothing.pcap", "No such file"), ("/tmp", "not a regular file")] {
        let answer = flowgauge(&["cut", "--parts", "2", path]);
        assert_eq!(answer.code, 1);
        assert!(answer.err.contains("cannot cut") && answer.err.contains(reason));
    }
    let path = file("some.pcap", &pcap(&traffic()));
    for arguments in [&["cut", &path][..], &["cut", "--parts", "0", &path]] {
        assert_eq!(flowgauge(arguments).code, 2);
    }
    assert_eq!(flowgauge(&["cut", "--parts", "2", "--format", "csv", &path]).code, 2);
}

#[test]
fn analyze_finds_the_true_counts() {
    let (capture, truth) = (file("truth.pcap", b""), file("truth.json", b""));
    for options in [
        &["--packets", "20000", "--flows", "500", "--seed", "7"][..],
        &["--packets", "20000", "--profile", "backbone", "--ipv6", "0.3", "--size", "imix"],
        &["--packets", "20000", "--plant", "scan:destinations=700", "--plant", "flood:sources=300"],
    ] {
        let files = ["generate", "-o", &capture, "--truth", &truth];
        let answer = flowgauge(&[&files[..], options].concat());
        assert_eq!((answer.code, answer.out.as_str(), answer.err.as_str()), (0, "", ""));
        let truth: Value = serde_json::from_slice(&std::fs::read(&truth).unwrap()).unwrap();
        let tasks = "top,cardinality,entropy,superspreaders,victims";
        let top = ["--top", "20000"];
        let measure = ["analyze", "--format", "json", "--task", tasks, &capture];
        let epoch = flowgauge(&[&measure[..], &top].concat()).lines().remove(0);
        assert_eq!(epoch["account"]["keyed"], truth["packets"], "{options:?}");
        assert_eq!(epoch["account"]["keyed_bytes"], truth["bytes"]);
        assert_eq!(epoch["tasks"]["cardinality"]["flows"]["value"], truth["flows"]);
        let bits = |value: &Value| value.as_f64().unwrap();
        let difference =
            bits(&epoch["tasks"]["entropy"]["bits"]["value"]) - bits(&truth["entropy_bits"]);
        assert!(difference.abs() < 1e-9, "{difference}");
        let found = epoch["tasks"]["top"]["items"].as_array().unwrap();
        let counts = truth["counts"].as_array().unwrap();
        assert_eq!(found.len(), counts.len());
        let sorted = |items: &[Value], packets: fn(&Value) -> &Value| {
            let mut rows: Vec<_> =
                items.iter().map(|item| (item["key"].to_string(), packets(item).clone())).collect();
            rows.sort_by(|a, b| a.0.cmp(&b.0));
            rows
        };
        assert!(
            sorted(found, |item| &item["packets"]["value"])
                == sorted(counts, |item| &item["packets"]),
            "{options:?}"
        );
        for planted in truth["planted"].as_array().unwrap() {
            let task = if planted["kind"] == "scan" { "superspreaders" } else { "victims" };
            assert_eq!(epoch["tasks"][task]["items"][0]["distinct"]["value"], planted["flows"]);
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_capture() {
    let generate = |seed: &str, name: &str| {
        let capture = file(name, b"");
        assert_eq!(
            flowgauge(&["generate", "--packets", "1000", "--seed", seed, "-o", &capture]).code,
            0
        );
        std::fs::read(capture).unwrap()
    };
    let first = generate("1", "seed-a.pcap");
    assert_eq!(first.len(), 24 + 1000 * (16 + 64));
    assert!(first == generate("1", "seed-b.pcap"));
    assert!(first != generate("2", "seed-c.pcap"));
}

// `-w` writes the packets that pass the filter, `-s` cuts packets short.

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

/// An old file stays where there is nothing to read. Otherwise it is replaced, even if no packet
/// passes.
#[test]
fn an_old_capture_outlives_a_run_without_packets() {
    let folder = folder("old-capture");
    let kept = folder.join("keep.pcap").to_str().unwrap().to_owned();
    let capture = file("old-capture.pcap", &pcap(&traffic()));
    let old = vec![7; 1 << 20];
    fs::write(&kept, &old).unwrap();
    let missing = folder.join("missing.pcap").to_str().unwrap().to_owned();
    let answer = flowgauge(&["analyze", &missing, "-w", &kept]);
    assert_eq!((answer.code, answer.err.lines().count()), (1, 1), "{}", answer.err);
    assert_eq!(fs::read(&kept).unwrap(), old);
    assert_eq!(flowgauge(&["live", "-i", "no-such-port", "-w", &kept]).code, 1);
    assert_eq!(fs::read(&kept).unwrap(), old);
    assert_eq!(flowgauge(&["analyze", &capture, "-w", &kept, "--filter", "udp"]).code, 0);
    assert_eq!(measured(&[&kept]), measured(&[&capture, "--filter", "udp"]));
    assert_eq!(flowgauge(&["analyze", &capture, "-w", &kept, "--filter", "sctp"]).code, 0);
    assert_eq!(fs::read(&kept).unwrap().len(), 28, "a section without packets");
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
