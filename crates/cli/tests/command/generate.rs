//! `flowgauge generate`: the truth of a capture is what `analyze` finds in it.

use serde_json::Value;

use crate::run::{file, flowgauge};

#[test]
fn the_truth_is_what_analyze_finds() {
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
