//! Captures: parts for readers in other processes, and generated ones whose exact counts `analyze`
//! finds.

use std::fs;

use serde_json::{Value, json};

use crate::run::{file, flowgauge, pcap, traffic, udp};

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
