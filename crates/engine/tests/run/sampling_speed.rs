//! The cost of packets that a sampler before headers skips.
//!
//! `cargo test --release -p flowgauge-engine --test run -- --ignored --nocapture sampling_speed`,
//! alone on the machine. `FLOWGAUGE_CAPTURES` may name a folder of captures, whose frames are then
//! those asked about.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use flowgauge_capture::Captures;
use flowgauge_core::key::KeyKind;
use flowgauge_core::packet::{FrameColumns, Frames};
use flowgauge_core::summary::Parameters;
use flowgauge_engine::sink::{Json, Written};
use flowgauge_engine::source::{Burst, Columns, Source};
use flowgauge_engine::{Arrivals, Config, Plan};
use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;

use crate::account::balances;
use crate::asking;
use crate::capture::{Pcap, Random, udp};
use crate::meters::{frames, pushed};

/// Frames in the cache, of a few flows of which the first has every fourth packet.
const FRAMES: usize = 4096;
const ROUNDS: u64 = 5;
const PASSES: u64 = 2000;

/// Most that a packet may take, and the least share of the rate of a walk over the records.
const MOST_NS: f64 = 1.0;
const LEAST_SHARE: f64 = 0.7;

fn config() -> Config {
    let parameters = Parameters::new([("sample", "100"), ("before", "headers")]);
    Config {
        key: KeyKind::SOURCE.into(),
        accelerators: vec![("uniform".to_owned(), parameters)],
        ..asking(&["top"])
    }
}

fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.cast_unsigned(), now.tv_nsec as u32)
}

fn record(packets: usize) -> Vec<u8> {
    println!("seed 9");
    let mut random = Random(9);
    let mut pcap = Pcap::new();
    for packet in 0..packets {
        let host = if packet % 4 == 0 { 1 } else { random.below(2000) as u32 + 2 };
        let time_ns = 1_700_000_000_000_000_000 + packet as u64 * 100;
        pcap.frame(time_ns, &udp((host, 1), (2, 53)));
    }
    pcap.0
}

/// Frames of captures, or of [`record`].
fn cached() -> Vec<u8> {
    let Some(folder) = std::env::var_os("FLOWGAUGE_CAPTURES") else { return record(FRAMES) };
    let mut pcap = Pcap::new();
    let folders = fs::read_dir(Path::new(&folder)).unwrap().map(|entry| entry.unwrap().path());
    let files = folders.filter(|path| path.is_dir()).flat_map(|path| fs::read_dir(path).unwrap());
    let (mut files, mut packets) = (files.map(|entry| entry.unwrap().path()), 0);
    let mut columns = Columns::default();
    while packets < FRAMES
        && let Some(file) = files.next()
    {
        let mut source = Captures::open([&file]);
        loop {
            let mut burst = Burst::new(&mut columns);
            if !matches!(source.poll(&mut burst), Ok(true)) || packets >= FRAMES {
                break;
            }
            for frame in burst.frames().iter().filter(|frame| frame.link.0 == 1) {
                pcap.frame(packets as u64, frame.bytes);
                packets += 1;
            }
        }
    }
    pcap.0
}

#[test]
#[ignore = "measures time, alone on the machine: `make bench` runs it"]
fn sampling_speed_of_bursts_in_the_cache() {
    let bytes = cached();
    let frames: FrameColumns<'_> = frames(&bytes).into_iter().collect();
    let frames = frames.frames();
    let packets = PASSES * frames.len() as u64;
    let mut best_ns = f64::MAX;
    for _ in 0..ROUNDS {
        let mut spent = Duration::ZERO;
        let lines = pushed(vec![config()], |meter| {
            let mut time_ns = 0;
            let begun = cpu_time();
            for _ in 0..PASSES {
                for burst in frames.chunks(32) {
                    let arrivals = Arrivals {
                        packets: burst.len() as u32,
                        bytes: burst.len() as u64 * 64,
                        time_ns,
                    };
                    let mut wanted = meter.want(&arrivals);
                    while wanted != 0 {
                        let place = wanted.trailing_zeros() as usize;
                        meter.push(burst.part(place..place + 1));
                        wanted &= wanted - 1;
                    }
                    time_ns += 1000;
                }
            }
            spent = cpu_time().saturating_sub(begun);
        });
        let epoch = &lines[0];
        balances(&epoch["account"]);
        assert_eq!(epoch["account"]["read"], packets);
        within(&epoch["traffic"], keyed(frames) * PASSES as f64);
        best_ns = best_ns.min(spent.as_nanos() as f64 / packets as f64);
    }
    println!("{best_ns:.2} ns a packet, in bursts of 32, one in 100 read");
    assert!(best_ns <= MOST_NS, "{best_ns}");
}

/// How many of the frames have a key.
fn keyed(frames: Frames<'_>) -> f64 {
    let exact = Config { accelerators: Vec::new(), ..config() };
    let lines = pushed(vec![exact], |meter| meter.push(frames));
    lines[0]["account"]["keyed"].as_f64().unwrap()
}

fn within(estimate: &Value, truth: f64) {
    let [low, high] = ["low", "high"].map(|bound| estimate[bound].as_f64().unwrap());
    assert!(low <= truth && truth <= high, "{estimate} {truth}");
}

#[test]
#[ignore = "measures time, alone on the machine: `make bench` runs it"]
fn sampling_speed_of_a_file_in_the_page_cache() {
    const PACKETS: usize = 4_000_000;
    let path = std::env::temp_dir().join(format!("flowgauge-sampling-{}.pcap", std::process::id()));
    fs::write(&path, record(PACKETS)).unwrap();
    let (mut walk, mut analyzed) = (Duration::MAX, Duration::MAX);
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        let (mut source, mut packets) = (Captures::open([&path]), 0);
        let mut columns = Columns::default();
        loop {
            let mut burst = Burst::new(&mut columns);
            if !source.poll(&mut burst).unwrap() {
                break;
            }
            packets += burst.len();
        }
        walk = walk.min(begun.elapsed());
        assert_eq!(packets, PACKETS);
        let plan = Plan::new(config()).unwrap();
        let mut out = Vec::new();
        let mut source = Captures::open([&path]);
        let begun = Instant::now();
        flowgauge_engine::run(plan, &mut source, &mut Written::new(Json, &mut out), &mut |_| {})
            .unwrap();
        analyzed = analyzed.min(begun.elapsed());
        let lines = String::from_utf8(out).unwrap();
        let epoch: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
        balances(&epoch["account"]);
        within(&epoch["traffic"], PACKETS as f64);
        within(&epoch["tasks"]["top"]["items"][0]["packets"], PACKETS as f64 / 4.0);
    }
    fs::remove_file(&path).unwrap();
    let share = walk.as_secs_f64() / analyzed.as_secs_f64();
    println!("{walk:?} to walk the records, {analyzed:?} to analyze them: {share:.2} of the rate");
    assert!(share >= LEAST_SHARE, "{share}");
}
