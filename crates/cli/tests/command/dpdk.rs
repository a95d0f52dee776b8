//! Ports of DPDK: virtual devices that replay captures, as any user and without huge pages.
//! `make dpdk-test` runs these.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::live::same;
use crate::run::{Answer, file, flowgauge, pcap, tcp6, traffic, udp};

/// What DPDK needs as any user; two processes at a time do not meet.
const ANY_USER: &str = "--no-huge -m 160 -n 1 --no-pci --no-telemetry --no-shconf";

/// Measures at ports that are made by `devices`.
fn live(devices: &str, arguments: &[&str]) -> Answer {
    let dpdk = format!("{ANY_USER} {devices}");
    let engine = ["live", "--format", "json", "--engine", "dpdk", "--dpdk-args", &dpdk];
    flowgauge(&[&engine, arguments].concat())
}

/// Measures until so many packets were read, then interrupts.
fn live_until(packets: u64, devices: &str, arguments: &[&str]) -> Vec<Value> {
    let dpdk = format!("{ANY_USER} {devices}");
    let mut child = Command::new(env!("CARGO_BIN_EXE_flowgauge"))
        .args(["live", "--seed", "0", "--format", "json", "--engine", "dpdk", "--dpdk-args", &dpdk])
        .args(["--epoch", "200ms"])
        .args(arguments)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (begun, mut read, mut lines) = (Instant::now(), 0, Vec::new());
    let mut interrupted = false;
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line: Value = serde_json::from_str(&line.unwrap()).unwrap();
        read += line["account"]["read"].as_u64().unwrap();
        lines.push(line);
        let enough = read >= packets || begun.elapsed() > Duration::from_secs(30);
        if enough && !interrupted {
            interrupted = true;
            let id = child.id().to_string();
            assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
        }
    }
    assert!(child.wait().unwrap().success());
    lines
}

/// A capture of these frames under this name.
fn capture(name: &str, frames: &[Vec<u8>]) -> String {
    file(name, &pcap(frames))
}

#[test]
fn dpdk_counts_the_same_as_analyze() {
    let mut frames = traffic();
    frames.extend((0..40).map(tcp6));
    frames.push(udp(1, 2, 3)[..30].to_vec());
    let capture = capture("dpdk.pcap", &frames);
    let device = format!("--vdev=net_pcap0,rx_pcap={capture}");
    for arguments in [
        &["--epoch", "whole"][..],
        &["--epoch", "whole", "--key", "source", "--by", "bytes", "--algorithm", "count-min"],
        &["--epoch", "whole", "--filter", "udp", "--workers", "1"],
    ] {
        let offline =
            flowgauge(&[&["analyze", "--format", "json"], arguments, &[&capture]].concat());
        let expected = &offline.lines()[0];
        let count = |name: &str| expected["account"][name].as_u64().unwrap();
        // The limit is of packets that pass the filter.
        let passed = (count("read") - count("filtered")).to_string();
        let limit = ["-i", "net_pcap0", "-c", &passed];
        let answer = live(&device, &[&limit, arguments].concat());
        assert_eq!(answer.code, 0, "{}", answer.err);
        assert_eq!(same(&answer.lines()[0]), same(expected), "{arguments:?}");
        assert_eq!(answer.lines()[1]["counters"]["missed"], 0);
        assert!(answer.err.starts_with("net_pcap0: "), "{}", answer.err);
    }
}

#[test]
fn dpdk_reads_two_queues_of_a_port() {
    let (first, second) =
        (traffic(), (0..900).map(|index| udp(7, (index % 31) as u8, 9)).collect::<Vec<_>>());
    let all = [&first[..], &second].concat();
    let device = format!(
        "--vdev=net_pcap0,rx_pcap={},rx_pcap={}",
        capture("dpdk-first.pcap", &first),
        capture("dpdk-second.pcap", &second)
    );
    let lines = live_until(all.len() as u64, &device, &["-i", "net_pcap0", "--workers", "2"]);
    let total = lines.last().unwrap();
    let whole = capture("dpdk-all.pcap", &all);
    let offline = flowgauge(&["analyze", "--format", "json", "--epoch", "whole", &whole]);
    let expected = &offline.lines()[1];
    for count in ["read", "keyed", "keyed_bytes", "no_key", "malformed"] {
        assert_eq!(total["account"][count], expected["account"][count], "{count}");
    }
    assert_eq!(total["counters"]["received"], all.len());
    // More queues than files.
    let answer = live(&device, &["-i", "net_pcap0", "--workers", "3"]);
    assert_eq!(answer.code, 1);
    assert!(answer.err.contains("receive queues of the port: 2 at most"), "{}", answer.err);
}

#[test]
fn dpdk_passes_packets_on() {
    let frames = traffic();
    let (from, to) = (capture("dpdk-from.pcap", &frames), file("dpdk-to.pcap", &[]));
    let devices = format!("--vdev=net_pcap0,rx_pcap={from} --vdev=net_pcap1,tx_pcap={to}");
    let ports = ["-i", "net_pcap0,forward=net_pcap1"];
    let analyzed = |capture: &str| {
        let arguments = ["analyze", "--format", "json", "--epoch", "whole", capture];
        same(&flowgauge(&arguments).lines()[0])
    };
    let lines = live_until(frames.len() as u64, &devices, &ports);
    assert_eq!(lines.last().unwrap()["counters"]["not_forwarded"], 0);
    assert_eq!(analyzed(&to), analyzed(&from));
    // A run that ends with a burst passes that on, too.
    let all = frames.len().to_string();
    let answer = live(&devices, &[&ports[..], &["-c", &all]].concat());
    assert_eq!(answer.code, 0, "{}", answer.err);
    assert_eq!(analyzed(&to), analyzed(&from));
}

#[test]
fn dpdk_draws_before_headers() {
    let frames: Vec<_> = (0..20_000).map(|index| udp(1, (index % 100) as u8, 80)).collect();
    let device = format!("--vdev=net_pcap0,rx_pcap={}", capture("dpdk-draws.pcap", &frames));
    let sample = ["--accelerator", "uniform:sample=10,before=headers"];
    let lines = live_until(20_000, &device, &[&["-i", "net_pcap0"], &sample[..]].concat());
    let account = &lines.last().unwrap()["account"];
    let count = |name: &str| account[name].as_u64().unwrap();
    assert_eq!((count("read"), count("skipped") + count("keyed")), (20_000, 20_000));
    // 2,000 are expected, with a deviation of 42. Draws follow from the seed and the epoch, which is of
    // the clock: one run of 400,000 fails by chance.
    assert!((1_800..2_200).contains(&count("keyed")), "{account}");
}

#[test]
fn dpdk_counts_the_wire_of_packets_in_several_buffers() {
    let mut large = udp(5, 5, 5);
    large.resize(8_000, 7);
    let capture = capture("dpdk-large.pcap", &vec![large; 10]);
    let device = format!("--vdev=net_pcap0,rx_pcap={capture}");
    let answer = live(&device, &["-i", "net_pcap0", "-c", "10", "--by", "bytes"]);
    assert_eq!(answer.lines()[0]["account"]["keyed_bytes"], 80_000, "{}", answer.err);
}

#[test]
fn dpdk_errors_are_one_line() {
    let capture = capture("dpdk-wrong.pcap", &traffic());
    let device = format!("{ANY_USER} --vdev=net_pcap0,rx_pcap={capture}");
    let missing = format!("{ANY_USER} --vdev=net_pcap0,rx_pcap=/nowhere.pcap");
    let sent = file("dpdk-sent.pcap", &[]);
    let sending = format!("{device},tx_pcap={sent} --vdev=net_pcap1,rx_pcap={capture}");
    let pcap = &["-i", "net_pcap0"][..];
    for (dpdk, arguments, code, says) in [
        (&*device, &["-i", "net_pcap1"][..], 1, "net_pcap1: no such port; DPDK knows net_pcap0"),
        (ANY_USER, pcap, 1, "bind a network card to vfio-pci"),
        (&missing, pcap, 1, "Couldn't open /nowhere.pcap"),
        ("--no-pci --huge-dir /nowhere", pcap, 1, "add '--no-huge -m 512' to --dpdk-args"),
        ("--no-such", pcap, 1, "unrecognized option '--no-such'"),
        (&device, &["-i", "net_pcap0", "--ring", "1GiB"], 1, "no memory for 1023 MiB of buffers"),
        (&device, &["-i", "net_pcap0,forward=net_x"], 1, "net_x: no such port"),
        (
            &sending,
            &["-i", "net_pcap0,forward=net_pcap0", "-i", "net_pcap1,forward=net_pcap0"],
            1,
            "send queues of the port: 1 at most",
        ),
        (&device, &["-i", "net_pcap0,backward=net_pcap0"], 2, "PORT,forward=PORT"),
        (&device, &["-i", "net_pcap0", "-i", "net_pcap0,forward=x"], 2, "is named twice"),
        (&device, &["-i", "0000:03:00.0"], 2, "add --takes-traffic to agree"),
        (&device, &["-i", "net_pcap0", "--fanout", "cpu"], 2, "--fanout needs --engine af-packet"),
    ] {
        let engine = ["live", "--engine", "dpdk", "--dpdk-args", dpdk];
        // The limit ends a run that is not refused. With two interfaces there is no limit.
        let limit = if arguments.len() > 2 { &[][..] } else { &["-c", "1"] };
        let answer = flowgauge(&[&engine, limit, arguments].concat());
        assert_eq!((answer.code, answer.err.lines().count()), (code, 1), "{}", answer.err);
        assert!(answer.err.contains(says), "{says}: {}", answer.err);
        assert_eq!(json!(answer.out), json!(""));
    }
}
