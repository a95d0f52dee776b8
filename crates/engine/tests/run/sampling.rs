//! Sampling before headers: few packets are read, all are counted, bounds hold, and skipped packets
//! cost little.
//!
//! The speed: `cargo test --release -p flowgauge-engine --test run -- --ignored --nocapture
//! sampling_speed`, alone on the machine. `FLOWGAUGE_CAPTURES` may name a folder of captures, whose
//! frames are then those asked about.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use flowgauge_capture::Captures;
use flowgauge_core::key::{KeyKind, KeySpec};
use flowgauge_core::packet::{Frame, FrameColumns, Frames};
use flowgauge_core::summary::Parameters;
use flowgauge_core::terms::{Measure, Threshold};
use flowgauge_engine::sink::{Json, Written};
use flowgauge_engine::source::{Burst, Columns, Skipped, Source};
use flowgauge_engine::{Arrivals, Config, EpochLength, Plan};
use flowgauge_filter::Filter;
use flowgauge_kernel::Seed;
use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;

use crate::account::balances;
use crate::capture::{Pcap, Random, arp, mixed, udp};
use crate::epochs::SECOND;
use crate::meters::{alone, frames, named, push, pushed};
use crate::{asking, only_epoch, refusal, run};

/// A configuration sampled before headers by an accelerator with these parameters.
fn sampled(accelerator: &str, parameters: &[(&str, &str)], config: Config) -> Config {
    let headers = parameters.iter().copied().chain([("before", "headers")]);
    let accelerators = vec![(accelerator.to_owned(), Parameters::new(headers))];
    Config { accelerators, ..config }
}

fn one_in_ten(config: Config) -> Config {
    sampled("uniform", &[("sample", "10")], config)
}

/// Seven packets of one host. Each counts for that host and for another one.
#[test]
fn no_host_has_more_than_all_packets() {
    let mut pcap = Pcap::new();
    for packet in 0..7 {
        pcap.udp(packet, (1, 1), (2 + packet as u32 % 2, 2));
    }
    let key = KeySpec::from(KeyKind::HOST);
    let parameters = Parameters::new([("sample", "3")]);
    for by in [Measure::Packets, Measure::Bytes] {
        for seed in 0..20 {
            let config = Config {
                key,
                by,
                seed: Some(Seed::number(seed)),
                accelerators: vec![("uniform".to_owned(), parameters.clone())],
                ..asking(&["top", "heavy-hitters", "flow-size"])
            };
            let flows = vec![key.parse_flow("host=10.0.0.1").unwrap()];
            let epoch = only_epoch(Config { flows, ..config }, &pcap.0);
            let all = match by {
                Measure::Packets => 7.0,
                Measure::Bytes => 7.0 * 64.0,
            };
            for task in ["top", "heavy-hitters", "flow-size"] {
                for item in epoch["tasks"][task]["items"].as_array().unwrap() {
                    let bound = |name: &str| item[by.name()][name].as_f64().unwrap();
                    assert!(bound("low") <= bound("value"), "{seed} {task} {item}");
                    assert!(bound("value") <= all && bound("high") <= all, "{seed} {task} {item}");
                    let share = item["share"].as_f64();
                    assert!(share.is_none_or(|share| share <= 1.0), "{seed} {task} {item}");
                }
            }
        }
    }
}

/// Every sampler that can decide before headers, with a summary that it supports.
fn every() -> Vec<Config> {
    let sources = Config { key: KeyKind::SOURCE.into(), ..asking(&["top"]) };
    let sketch = Config { algorithm: "count-sketch".to_owned(), ..sources.clone() };
    vec![
        one_in_ten(sources.clone()),
        sampled("skipper", &[("epsilon", "0.2"), ("delta", "0.1")], sources),
        sampled("nitro", &[("p", "0.05")], sketch),
    ]
}

fn count(epoch: &Value, name: &str) -> u64 {
    epoch["account"][name].as_u64().unwrap()
}

/// Lower and upper bound.
fn bounds(estimate: &Value) -> (f64, f64) {
    (estimate["low"].as_f64().unwrap(), estimate["high"].as_f64().unwrap())
}

/// A file whose source passes over packets, frames that are pushed in bursts of any size, and packets
/// that are asked about one by one: the same are read.
#[test]
fn the_same_packets_are_read_however_they_come() {
    println!("seeds 0 and 4");
    let bytes = mixed(4, 6000);
    let frames = frames(&bytes);
    for base in every() {
        for config in [
            base.clone(),
            Config { epoch: EpochLength::Time(3 * SECOND), ..base.clone() },
            Config { filter: Some(Filter::new("udp port 81 or ip6").unwrap()), ..base.clone() },
            Config {
                epoch: EpochLength::Time(9 * SECOND),
                updates: EpochLength::Time(2 * SECOND),
                ..base
            },
        ] {
            let file = alone(config.clone(), &bytes);
            for line in file.iter().filter(|line| line["type"] != "gap") {
                balances(&line["account"]);
                assert!(count(line, "skipped") > 0 && count(line, "keyed") > 0, "{line}");
                let (low, high) = bounds(&line["traffic"]);
                let keyed = count(line, "keyed") as f64;
                assert!(low >= keyed && high <= keyed + count(line, "skipped") as f64, "{line}");
                assert!(!line["notes"].as_array().unwrap().is_empty());
            }
            for burst in [1, 7, 256, 1000] {
                let lines = pushed(vec![config.clone()], |meter| {
                    frames.chunks(burst).for_each(|frames| push(meter, frames));
                });
                assert_eq!(lines, file, "bursts of {burst}");
            }
            let each = |frame: &Frame<'_>| Arrivals {
                packets: 1,
                bytes: frame.wire.into(),
                time_ns: frame.time_ns,
            };
            let asked = pushed(vec![config.clone()], |meter| {
                for frame in &frames {
                    match meter.want(&each(frame)) {
                        0 => {}
                        _ => push(meter, &[*frame]),
                    }
                }
            });
            assert_eq!(asked, file);
            let fetched = pushed(vec![config], |meter| {
                for frame in &frames {
                    meter.push_wanted(&each(frame), &mut |_| *frame);
                }
            });
            assert_eq!(fetched, file);
        }
    }
}

/// A source that goes on behind packets that are wanted, as far as it likes, and lends them out together.
#[test]
fn packets_that_a_source_picks_are_those_that_are_wanted() {
    println!("seeds 0 and 4");
    let bytes = mixed(4, 6000);
    let frames = frames(&bytes);
    for base in every() {
        let config = Config { epoch: EpochLength::Time(3 * SECOND), ..base };
        for most in [1, 3, usize::MAX] {
            let mut together = 0;
            let lines = pushed(vec![config.clone()], |meter| {
                let mut at = 0;
                while at < frames.len() {
                    let (ahead, gaps) = (meter.ahead(), meter.gaps());
                    let gaps = &gaps[..gaps.len().min(most)];
                    let (mut skipped, mut picked) = (Skipped::none(&ahead), Vec::new());
                    let mut left = ahead.packets;
                    while let Some(frame) = frames.get(at)
                        && (skipped.last_ns..=ahead.until_ns).contains(&frame.time_ns)
                    {
                        if left > 0 {
                            (left, skipped.packets) = (left - 1, skipped.packets + 1);
                        } else if picked.len() < gaps.len() {
                            picked.push(*frame);
                            left = gaps.get(picked.len()).copied().unwrap_or(0);
                        } else {
                            break;
                        }
                        skipped.bytes += u64::from(frame.wire);
                        skipped.last_ns = frame.time_ns;
                        at += 1;
                    }
                    skipped.picked = picked.len();
                    together = together.max(picked.len());
                    meter.skip(&skipped);
                    if picked.is_empty() && at < frames.len() {
                        picked.push(frames[at]);
                        at += 1;
                    }
                    push(meter, &picked);
                }
            });
            assert_eq!(lines, alone(config.clone(), &bytes), "{most} at a time");
            assert!(together == most.min(16), "{together} of {most} together");
        }
    }
}

/// Skipped packets tell the time as others do.
#[test]
fn epochs_and_steps_of_the_clock_are_those_of_all_packets() {
    let bytes = mixed(4, 6000);
    let base = Config { epoch: EpochLength::Time(3 * SECOND), ..asking(&["top"]) };
    let names = ["read", "late", "backwards", "jumps", "lost"];
    let seen = |line: &Value| {
        let counts = names.map(|name| line["account"][name].clone());
        (["type", "epoch", "start", "end", "epochs"].map(|name| line[name].clone()), counts)
    };
    let all: Vec<_> = run(base.clone(), &bytes).0.iter().map(seen).collect();
    let sample: Vec<_> = run(one_in_ten(base), &bytes).0.iter().map(seen).collect();
    assert_eq!(all, sample);
}

/// Over 300 seeds: the mean estimate is off by more than 5 of its standard deviations one time in 10⁶;
/// of bounds that hold with 99 % each, 16 or more fail one time in 10⁶.
#[test]
fn estimates_are_right_on_average_and_within_their_bounds() {
    const SEEDS: u64 = 300;
    println!("seeds 0 to {SEEDS}");
    let mut pcap = Pcap::new();
    for packet in 0..4000u32 {
        let time_ns = u64::from(packet) * 1000;
        match packet % 8 {
            0 => pcap.frame(time_ns, &arp()),
            1..4 => pcap.udp(time_ns, (1, 1), (2, 2)),
            _ => pcap.udp(time_ns, (packet % 97 + 10, 1), (2, 2)),
        };
    }
    let (keyed, flow) = (3500.0, 1500.0);
    for config in every() {
        let (mut sums, mut squares, mut outside) = ([0.0; 2], [0.0; 2], [0; 2]);
        for seed in 0..SEEDS {
            let config = Config { seed: Some(Seed::number(seed)), ..config.clone() };
            let epoch = only_epoch(config, &pcap.0);
            let top = &epoch["tasks"]["top"]["items"][0]["packets"];
            for (at, (estimate, truth)) in
                [(&epoch["traffic"], keyed), (top, flow)].into_iter().enumerate()
            {
                let error = estimate["value"].as_f64().unwrap() - truth;
                sums[at] += error;
                squares[at] += error * error;
                let (low, high) = bounds(estimate);
                outside[at] += u32::from(low > truth || high < truth);
            }
        }
        for at in 0..2 {
            let mean = sums[at] / SEEDS as f64;
            let deviation = (squares[at] / SEEDS as f64).sqrt() / (SEEDS as f64).sqrt();
            assert!(mean.abs() < 5.0 * deviation, "{:?} {at}: {mean}", config.accelerators);
            assert!(outside[at] < 16, "{:?} {at}: {}", config.accelerators, outside[at]);
        }
    }
}

/// Bursts of a switch, of which all packets have the time of the burst.
#[test]
fn a_burst_is_asked_about_as_a_whole() {
    println!("seeds 0 and 4");
    let bytes = mixed(4, 6000);
    let frames = frames(&bytes);
    let config = one_in_ten(Config { epoch: EpochLength::Time(3 * SECOND), ..asking(&["top"]) });
    let mut pushes = 0;
    let lines = pushed(vec![config], |meter| {
        for (number, burst) in (0i64..).zip(frames.chunks(32)) {
            let time_ns = 20 * SECOND + number * SECOND / 16;
            let bytes = burst.iter().map(|frame| u64::from(frame.wire)).sum();
            let packets = burst.len() as u32;
            let wanted = meter.want(&Arrivals { packets, bytes, time_ns });
            assert_eq!(wanted >> (burst.len() - 1) >> 1, 0);
            let wanted = (0..burst.len()).filter(|at| wanted >> at & 1 == 1);
            let wanted: Vec<_> = wanted.map(|at| burst[at]).collect();
            // One burst is lost on the way back.
            if number == 50 {
                assert!(!wanted.is_empty());
                continue;
            }
            pushes += wanted.len() as u64;
            push(meter, &wanted);
        }
    });
    let sum = |name| lines.iter().map(|line| count(line, name)).sum::<u64>();
    for line in &lines {
        balances(&line["account"]);
    }
    assert!(lines.len() > 3 && sum("late") == 0 && sum("backwards") == 0, "{lines:?}");
    assert_eq!(sum("read") + sum("lost"), 6000);
    assert!(sum("lost") > 0 && sum("read") - sum("skipped") == pushes);
    let wires: u64 = frames.iter().map(|frame| u64::from(frame.wire)).sum();
    assert!(sum("skipped_bytes") + sum("keyed_bytes") <= wires);
}

/// Frames that the meter fetches are those that it wants of the burst when asked.
#[test]
fn wanted_frames_are_fetched_from_their_bursts() {
    println!("seeds 0 and 4");
    let bytes = mixed(4, 6000);
    let frames = frames(&bytes);
    let by_time = |config| Config { epoch: EpochLength::Time(3 * SECOND), ..config };
    let sample = by_time(one_in_ten(asking(&["top"])));
    let mut cases: Vec<_> = every().into_iter().map(|config| vec![by_time(config)]).collect();
    cases.push(vec![Config { limit: Some(4321), ..sample.clone() }]);
    cases.push(vec![named("one", sample.clone()), named("other", by_time(every().remove(2)))]);
    cases.push(vec![sample, named("exact", by_time(asking(&["top"])))]);
    cases.push(vec![by_time(asking(&["top"]))]);
    for configs in cases {
        for size in [1, 32, 64] {
            let run = |fetches: bool| {
                let mut reads = 0;
                let mut lines = pushed(configs.clone(), |meter| {
                    for (number, burst) in (0i64..).zip(frames.chunks(size)) {
                        let bytes = burst.iter().map(|frame| u64::from(frame.wire)).sum();
                        let time_ns = 20 * SECOND + number * SECOND / 16;
                        let now = burst.iter().map(|frame| Frame { time_ns, ..*frame });
                        let burst: Vec<_> = now.collect();
                        let arrivals = Arrivals { packets: burst.len() as u32, bytes, time_ns };
                        // One burst is asked about in vain.
                        if number == 50 {
                            meter.want(&arrivals);
                        } else if fetches {
                            meter.push_wanted(&arrivals, &mut |at| {
                                reads += 1;
                                burst[at]
                            });
                        } else {
                            let wanted = meter.want(&arrivals);
                            let wanted = (0..burst.len()).filter(|at| wanted >> at & 1 == 1);
                            let wanted: Vec<_> = wanted.map(|at| burst[at]).collect();
                            reads += wanted.len();
                            push(meter, &wanted);
                        }
                    }
                });
                // Each measurement writes its lines in order.
                lines.sort_by_key(|line| line["measurement"].to_string());
                (lines, reads)
            };
            let (asked, fetched) = (run(false), run(true));
            assert!(asked.1 > 100, "{asked:?}");
            assert_eq!(asked, fetched, "bursts of {size}");
        }
    }
}

#[test]
#[should_panic(expected = "a burst has at most 64 packets")]
fn a_burst_for_which_a_mask_has_no_room_is_a_defect() {
    let (mut meters, _group) = Plan::new(one_in_ten(asking(&["top"]))).unwrap().build().unwrap();
    let arrivals = Arrivals { packets: 65, bytes: 65 * 64, time_ns: 0 };
    meters[0].push_wanted(&arrivals, &mut |_| panic!("no frame is fetched"));
}

#[test]
fn a_measurement_without_a_sampler_gets_every_packet() {
    println!("seeds 0 and 4");
    let bytes = mixed(4, 6000);
    let frames = frames(&bytes);
    let exact = named("exact", Config { epoch: EpochLength::Time(3 * SECOND), ..asking(&["top"]) });
    let sample = named("sample", one_in_ten(asking(&["top", "cardinality"])));
    let sample = Config { tasks: Some(vec!["top".to_owned()]), ..sample };
    for burst in [1, 100, 300] {
        let lines = pushed(vec![sample.clone(), exact.clone()], |meter| {
            for frames in frames.chunks(burst) {
                assert_eq!(meter.ahead().packets, 0);
                let arrivals = Arrivals { packets: 2, bytes: 0, time_ns: frames[0].time_ns };
                assert_eq!(meter.want(&arrivals), 0b11);
                push(meter, frames);
            }
        });
        for config in [&sample, &exact] {
            let own = lines.iter().filter(|line| line["measurement"] == *config.name);
            assert!(own.eq(alone(config.clone(), &bytes).iter()), "{}", config.name);
        }
    }
}

/// Measurements that all sample each read the packets that they read alone, however these come; those
/// that none of them wants are not asked for.
#[test]
fn measurements_that_all_sample_read_the_same_as_each_alone() {
    println!("seeds 0 and 4");
    let bytes = mixed(4, 6000);
    let frames = frames(&bytes);
    let base = Config { epoch: EpochLength::Time(3 * SECOND), ..asking(&["top"]) };
    let tenth = named("tenth", one_in_ten(base.clone()));
    let sources = Config { key: KeyKind::SOURCE.into(), ..base };
    let twentieth = named("twentieth", sampled("uniform", &[("sample", "20")], sources));
    let both = vec![tenth.clone(), twentieth];
    let expected: Vec<_> = both.iter().flat_map(|config| alone(config.clone(), &bytes)).collect();
    let same = |lines: Vec<Value>, what: &str| {
        let of = |config: &Config| {
            let own = |line: &&Value| line["measurement"] == *config.name;
            lines.iter().filter(own).cloned().collect::<Vec<_>>()
        };
        let found: Vec<_> = both.iter().flat_map(of).collect();
        assert_eq!(found, expected, "{what}");
    };
    for burst in [1, 7, 256, 1000] {
        let lines = pushed(both.clone(), |meter| {
            frames.chunks(burst).for_each(|frames| push(meter, frames));
        });
        same(lines, &format!("bursts of {burst}"));
    }
    let (mut passed, mut asked) = (0, 0);
    let lines = pushed(both.clone(), |meter| {
        let mut at = 0;
        while at < frames.len() {
            let ahead = meter.ahead();
            let mut skipped = Skipped::none(&ahead);
            let passes = |frame: &&Frame<'_>| skipped.take(&ahead, frame.wire, frame.time_ns);
            at += frames[at..].iter().take_while(passes).count();
            meter.skip(&skipped);
            passed += skipped.packets;
            if let Some(frame) = frames.get(at) {
                let (bytes, time_ns) = (u64::from(frame.wire), frame.time_ns);
                let wanted = meter.want(&Arrivals { packets: 1, bytes, time_ns });
                if wanted != 0 {
                    push(meter, &[*frame]);
                }
                (at, asked) = (at + 1, asked + 1);
            }
        }
    });
    same(lines, "one by one");
    let limited = |config: &Config| Config { limit: Some(5000), ..config.clone() };
    let mut source = flowgauge_capture::Captures::from_bytes("test.pcap", bytes.clone());
    let mut out = Vec::new();
    let plan = Plan::several(both.iter().map(limited).collect()).unwrap();
    flowgauge_engine::run(plan, &mut source, &mut Written::new(Json, &mut out), &mut |_| {})
        .unwrap();
    for total in str::from_utf8(&out).unwrap().lines().filter(|line| line.contains("\"total\"")) {
        assert_eq!(count(&serde_json::from_str(total).unwrap(), "read"), 5000);
    }
    assert!(passed > 3500 && asked < 1500, "{passed} passed over, {asked} asked about");
    // Bursts of one time: what is pushed is what was wanted, and reaches those that wanted it.
    let mut pushes = 0;
    let lines = pushed(vec![tenth, both[1].clone()], |meter| {
        for burst in frames[..4800].chunks(48) {
            let bytes = burst.iter().map(|frame| u64::from(frame.wire)).sum();
            let arrivals = Arrivals { packets: 48, bytes, time_ns: 20 * SECOND };
            let wanted = meter.want(&arrivals);
            let wanted = (0..burst.len()).filter(|at| wanted >> at & 1 == 1);
            let wanted: Vec<_> = wanted.map(|at| burst[at]).collect();
            pushes += wanted.len() as u64;
            push(meter, &wanted);
        }
    });
    let read = |line: &Value| count(line, "read") - count(line, "skipped");
    let each: Vec<_> = lines.iter().map(read).collect();
    assert!(lines.iter().all(|line| count(line, "read") == 4800 && count(line, "lost") == 0));
    assert!(each.iter().all(|read| *read > 100 && *read < pushes), "{each:?} of {pushes}");
    assert!(each.iter().sum::<u64>() >= pushes, "{each:?} of {pushes}");
}

#[test]
fn several_workers_take_the_packets_of_one() {
    println!("seeds 0 and 4");
    let bytes = mixed(4, 6000);
    for config in every() {
        let one = only_epoch(config.clone(), &bytes);
        let two = only_epoch(Config { workers: 3, ..config }, &bytes);
        assert_eq!((&one["account"], &one["traffic"]), (&two["account"], &two["traffic"]));
        let items = |epoch: &Value| epoch["tasks"]["top"]["items"].as_array().unwrap().len();
        assert_eq!(items(&one), items(&two));
    }
}

#[test]
fn the_limit_counts_skipped_packets() {
    let config = Config { limit: Some(1000), ..one_in_ten(asking(&["top"])) };
    let epoch = only_epoch(config, &mixed(4, 6000));
    assert_eq!(count(&epoch, "read"), 1000);
}

#[test]
fn unsuitable_configurations_are_refused_with_suitable_ones() {
    let base = asking(&["top"]);
    let uniform = one_in_ten(base.clone());
    let filter = Some(Filter::new("udp").unwrap());
    let fixed = Threshold::Weight(100);
    let skipper = |parameters: &[(&str, &str)]| {
        let sketch = Config { algorithm: "count-sketch".to_owned(), ..base.clone() };
        sampled("skipper", parameters, sketch)
    };
    let nitro = |parameters: &[(&str, &str)]| Config {
        accelerators: sampled("nitro", parameters, base.clone()).accelerators,
        ..skipper(&[])
    };
    let mut behind = one_in_ten(base.clone());
    behind.accelerators.insert(0, ("agg-evict".to_owned(), Parameters::default()));
    for (config, reason, instead) in [
        (Config { by: Measure::Bytes, ..uniform.clone() }, "lengths", "--by packets"),
        (Config { epoch: EpochLength::Packets(9), ..uniform.clone() }, "end epochs", "by time"),
        (Config { updates: EpochLength::Packets(9), ..uniform.clone() }, "updates", "by time"),
        (Config { limit: Some(9), filter, ..uniform.clone() }, "filter", "leave out -c"),
        (
            Config { workers: 2, threshold: fixed, ..uniform.clone() },
            "weighted batches",
            "one worker",
        ),
        (behind, "behind agg-evict", "put uniform first"),
        (skipper(&[("l2", "own")]), "l2", "leave out l2"),
        (nitro(&[("mode", "correct")]), "mode=correct", "mode=fixed"),
        (nitro(&[("mode", "line-rate")]), "mode=line-rate", "mode=fixed"),
    ] {
        let refused = refusal(config).to_string();
        assert!(refused.contains("before=headers"), "{refused}");
        assert!(refused.contains(reason) && refused.contains(instead), "{refused}");
        assert!(refused.contains("before=summary"), "{refused}");
    }
}

// The cost of packets that a sampler before headers skips.

/// Frames that fit into the cache. Every fourth one belongs to the first flow.
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
                    meter.push_wanted(&arrivals, &mut |place| burst.at(place));
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
