//! Packets pushed into meters, by bursts of any size, and several measurements of one pass.

use std::sync::Mutex;

use flowgauge_core::block::{Parsed, ParsedColumns, ParsedRow};
use flowgauge_core::key::KeyKind;
use flowgauge_core::packet::{
    Captured, Column, Frame, FrameColumns, Frames, Headers, Ip, LinkType, Ports, parse,
};
use flowgauge_core::terms::Measure;
use flowgauge_engine::sink::{Json, Written};
use flowgauge_engine::{Config, EpochLength, Meter, Plan};
use flowgauge_filter::Filter;
use serde_json::Value;

use crate::capture::mixed;
use crate::epochs::SECOND;
use crate::{asking, run};

const PACKETS: usize = 6000;

/// The records of a capture made by [`mixed`].
pub(crate) fn frames(bytes: &[u8]) -> Vec<Frame<'_>> {
    let (mut frames, mut at) = (Vec::new(), 24);
    while let Some(record) = bytes.get(at..at + 16) {
        let word = |from: usize| u32::from_le_bytes(record[from..from + 4].try_into().unwrap());
        let time_ns = i64::from(word(0)) * SECOND + i64::from(word(4));
        let (start, captured, link) = (at + 16, word(8) as usize, LinkType::ETHERNET);
        let bytes = &bytes[start..start + captured];
        frames.push(Frame { bytes, wire: word(12), link, time_ns });
        at = start + captured;
    }
    frames
}

/// Pushes frames in one burst.
pub(crate) fn push(meter: &mut dyn Meter, frames: &[Frame<'_>]) {
    meter.push(frames.iter().copied().collect::<FrameColumns<'_>>().frames());
}

/// The lines of a group whose meter gets the packets of `push`, without those of the total.
pub(crate) fn pushed(configs: Vec<Config>, push: impl FnOnce(&mut dyn Meter)) -> Vec<Value> {
    let measurements = configs.len();
    let limited = configs.iter().any(|config| config.limit.is_some());
    let (mut meters, group) = Plan::several(configs).unwrap().build().unwrap();
    let mut meter = meters.pop().unwrap();
    let out = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        let closing = scope.spawn(|| {
            let mut lines = Vec::new();
            let closed = group.close(&mut Written::new(Json, &mut lines)).unwrap();
            *out.lock().unwrap() = lines;
            closed
        });
        push(&mut *meter);
        assert_eq!(meter.is_done(), limited);
        meter.finish();
        assert_eq!(closing.join().unwrap().totals.len(), measurements);
    });
    let out = String::from_utf8(out.into_inner().unwrap()).unwrap();
    out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The lines of a run over the capture, without the total.
pub(crate) fn alone(config: Config, bytes: &[u8]) -> Vec<Value> {
    let mut lines = run(config, bytes).0;
    assert_eq!(lines.pop().unwrap()["type"], "total");
    lines
}

pub(crate) fn named(name: &str, config: Config) -> Config {
    Config { name: name.to_owned(), ..config }
}

/// Measurements that differ in everything that may differ.
fn different() -> Vec<Config> {
    let base = asking(&["top", "cardinality"]);
    vec![
        named("whole", base.clone()),
        named(
            "sources",
            Config {
                key: KeyKind::SOURCE.into(),
                epoch: EpochLength::Time(4 * SECOND),
                by: Measure::Bytes,
                ..base.clone()
            },
        ),
        named(
            "filtered",
            Config {
                key: KeyKind::PAIR.into(),
                epoch: EpochLength::Packets(777),
                updates: EpochLength::Packets(250),
                filter: Some(Filter::new("udp port 81 or ip6").unwrap()),
                ..base.clone()
            },
        ),
        named(
            "ports",
            Config {
                key: KeyKind::DESTINATION_PORT.into(),
                algorithm: "count-min".to_owned(),
                tasks: Some(vec!["top".to_owned()]),
                epoch: EpochLength::Time(SECOND),
                ..base
            },
        ),
    ]
}

#[test]
fn bursts_of_any_size_give_the_report_of_a_run() {
    println!("seed 31");
    let bytes = mixed(31, PACKETS);
    let frames = frames(&bytes);
    assert_eq!(frames.len(), PACKETS);
    for config in different() {
        let reference = alone(config.clone(), &bytes);
        for burst in [1, 7, 32, 64, 256, 1000] {
            let lines = pushed(vec![config.clone()], |meter| {
                frames.chunks(burst).for_each(|burst| push(meter, burst));
            });
            assert!(lines == reference, "{} in bursts of {burst}", config.name);
        }
    }
}

/// Lines by measurement, as several measurements close at any time.
fn sorted(mut lines: Vec<Value>) -> Vec<Value> {
    lines.sort_by_key(|line| line["measurement"].as_str().map(str::to_owned));
    lines
}

/// A driver's burst counts as frames that have the same time each: in one measurement, in
/// several, over time, and where epochs end within bursts.
#[test]
fn a_burst_of_one_time_counts_as_frames_of_equal_times() {
    println!("seed 36");
    let bytes = mixed(36, PACKETS);
    let mut frames = frames(&bytes);
    for burst in frames.chunks_mut(32) {
        let time_ns = burst[0].time_ns;
        for frame in burst {
            frame.time_ns = time_ns;
        }
    }
    let mut groups: Vec<_> = different().into_iter().map(|config| vec![config]).collect();
    groups.push(different());
    groups.push(vec![asking(&["findings"])]);
    let (epoch, updates) = (EpochLength::Packets(777), EpochLength::Packets(250));
    groups.push(vec![Config { epoch, updates, ..asking(&["top", "cardinality"]) }]);
    for group in groups {
        let reference = pushed(group.clone(), |meter| {
            frames.chunks(32).for_each(|burst| push(meter, burst));
        });
        let lines = pushed(group.clone(), |meter| {
            for burst in frames.chunks(32) {
                let bytes: Vec<_> = burst.iter().map(|frame| Captured::from(frame.bytes)).collect();
                let wires: Vec<_> = burst.iter().map(|frame| frame.wire).collect();
                let (link, time_ns) = (Column::Same(burst[0].link), Column::Same(burst[0].time_ns));
                meter.push(Frames::new(&bytes, &wires, link, time_ns));
            }
        });
        assert!(!lines.is_empty() && sorted(lines) == sorted(reference), "{}", group[0].name);
    }
}

#[test]
fn headers_that_the_caller_parsed_count_as_frames_do() {
    println!("seed 32");
    let bytes = mixed(32, PACKETS);
    let rows: Vec<_> = frames(&bytes)
        .into_iter()
        .map(|frame| {
            let headers = parse(frame.link, frame.bytes);
            ParsedRow { headers, wire: frame.wire, time_ns: frame.time_ns }
        })
        .collect();
    let judged: Vec<_> = different().into_iter().filter(|config| config.filter.is_none()).collect();
    for config in &judged {
        let lines = pushed(vec![config.clone()], |meter| {
            rows.chunks(32).for_each(|burst| meter.push_headers(burst));
        });
        assert!(lines == alone(config.clone(), &bytes), "{}", config.name);
    }
    // A filter needs the bytes: without them no packet passes.
    let filtered = different().swap_remove(2);
    let lines = pushed(vec![filtered], |meter| meter.push_headers(&rows));
    let account = &lines[0]["account"];
    assert_eq!((lines.len(), &account["read"]), (1, &PACKETS.into()));
    assert_eq!(account["filtered"], account["read"]);
}

/// A key that the caller's headers lack counts every packet, also where an epoch has few of them.
#[test]
fn headers_without_a_key_are_all_counted() {
    println!("seed 36");
    let rows: Vec<_> = frames(&mixed(36, PACKETS))
        .into_iter()
        .map(|frame| {
            let headers = parse(frame.link, frame.bytes);
            ParsedRow { headers, wire: frame.wire, time_ns: frame.time_ns }
        })
        .collect();
    let by_packets = |key: &str| Config {
        name: key.to_owned(),
        key: key.parse().unwrap(),
        epoch: EpochLength::Packets(10),
        ..asking(&["top"])
    };
    let updates = EpochLength::Packets(10);
    let updated = Config { updates, epoch: EpochLength::Whole, ..by_packets("vlan") };
    let (mac, source) = (by_packets("source-mac"), by_packets("source"));
    for configs in [vec![mac.clone()], vec![updated], vec![source, mac]] {
        let (without, epochs) = (configs.last().unwrap().name.clone(), configs.len());
        let lines = pushed(configs, |meter| {
            rows.chunks(64).for_each(|burst| meter.push_headers(burst));
        });
        let of: Vec<_> = lines.iter().filter(|line| line["measurement"] == without).collect();
        assert_eq!(of.len(), 1, "{without} of {epochs}");
        let account = &of[0]["account"];
        let left_out = ["malformed", "no_key"].map(|name| account[name].as_u64().unwrap());
        assert_eq!(account["read"], PACKETS);
        assert_eq!(left_out.iter().sum::<u64>(), PACKETS as u64, "{account}");
    }
}

/// Columns of IPv4 packets count as their rows do, with protocols that have no ports among them or not.
#[test]
fn headers_in_columns_count_as_rows_do() {
    println!("seed 35");
    let mut random = fastrand::Rng::with_seed(35);
    let number = |random: &mut fastrand::Rng| random.u32(0..300);
    let sources: Vec<_> = (0..PACKETS).map(|_| number(&mut random)).collect();
    let destinations: Vec<_> = (0..PACKETS).map(|_| number(&mut random)).collect();
    let source_ports: Vec<_> = (0..PACKETS).map(|_| random.u16(0..4)).collect();
    let destination_ports: Vec<_> = (0..PACKETS).map(|_| random.u16(0..4)).collect();
    let wires: Vec<_> = (0..PACKETS).map(|_| number(&mut random)).collect();
    let times_ns: Vec<_> = (0..).map(|packet| packet * SECOND / 1000).take(PACKETS).collect();
    let judged: Vec<_> = different().into_iter().filter(|config| config.filter.is_none()).collect();
    for among in [&[6, 17, 132][..], &[1, 6, 17, 47]] {
        let protocols: Vec<u8> =
            (0..PACKETS).map(|_| among[random.usize(0..among.len())]).collect();
        let row = |at: usize| {
            let mut addresses = [0; 8];
            addresses[..4].copy_from_slice(&sources[at].to_be_bytes());
            addresses[4..].copy_from_slice(&destinations[at].to_be_bytes());
            let ports = u32::from(source_ports[at]) << 16 | u32::from(destination_ports[at]);
            let with_ports = [6, 17, 132].contains(&protocols[at]);
            let ports = if with_ports { Ports::Found(ports) } else { Ports::Absent };
            let headers = Headers::V4(Ip { addresses, protocol: protocols[at], ports });
            ParsedRow { headers, wire: wires[at], time_ns: times_ns[at] }
        };
        let rows: Vec<_> = (0..PACKETS).map(row).collect();
        let columns = ParsedColumns {
            sources: &sources,
            destinations: &destinations,
            source_ports: &source_ports,
            destination_ports: &destination_ports,
            protocols: &protocols,
            wires: &wires,
            times_ns: &times_ns,
        };
        let one = judged.iter().map(|config| vec![config.clone()]);
        for configs in one.chain([judged.clone()]) {
            let by_rows = pushed(configs.clone(), |meter| meter.push_headers(&rows));
            let by_columns = pushed(configs.clone(), |meter| {
                for first in (0..PACKETS).step_by(777) {
                    meter.push_columns(columns.part(first..PACKETS.min(first + 777)));
                }
            });
            // Each measurement has its own order.
            for Config { name, .. } in configs {
                let own = |lines: &[Value]| -> Vec<_> {
                    lines.iter().filter(|line| line["measurement"] == *name).cloned().collect()
                };
                assert!(own(&by_columns) == own(&by_rows), "{name} of protocols {among:?}");
            }
        }
    }
}

/// Each packet is read once, into blocks of rows; every measurement reports what it reports alone.
#[test]
fn several_measurements_in_one_pass_report_the_same_as_each_alone() {
    println!("seed 33");
    let bytes = mixed(33, PACKETS);
    let frames = frames(&bytes);
    for burst in [5, 256, 1000] {
        let lines = pushed(different(), |meter| {
            frames.chunks(burst).for_each(|burst| push(meter, burst));
        });
        for config in different() {
            let own: Vec<_> =
                lines.iter().filter(|line| line["measurement"] == *config.name).cloned().collect();
            assert!(own == alone(config.clone(), &bytes), "{} in bursts of {burst}", config.name);
        }
    }
}

/// The limit counts a packet once that passes the filter of one measurement or of several.
#[test]
fn a_limit_holds_for_the_packets_of_all_measurements() {
    let bytes = mixed(34, 500);
    let of = |filter: &str, name: &str| {
        let filter = Some(Filter::new(filter).unwrap());
        named(name, Config { filter, limit: Some(100), ..asking(&["top"]) })
    };
    let (plan, mut out) = (Plan::several(vec![of("ip", "v4"), of("ip6", "v6")]), Vec::new());
    let mut source = flowgauge_capture::Captures::from_bytes("test.pcap", bytes);
    let mut sink = Written::new(Json, &mut out);
    flowgauge_engine::run(plan.unwrap(), &mut source, &mut sink, &mut |_| {}).unwrap();
    let lines: Vec<Value> = String::from_utf8(out)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let totals: Vec<_> = lines.iter().filter(|line| line["type"] == "total").collect();
    let count = |at: usize, name: &str| totals[at]["account"][name].as_u64().unwrap();
    assert_eq!((totals.len(), count(0, "read")), (2, count(1, "read")));
    let passed = |at| count(at, "read") - count(at, "filtered");
    assert_eq!(passed(0) + passed(1), 100);
}

#[test]
fn names_tell_measurements_apart() {
    let twice = Plan::several(vec![Config::seeded(0), Config::seeded(0)]).err().unwrap();
    assert!(twice.to_string().contains("two measurements are named 'main'"), "{twice}");
    assert!(Plan::several(Vec::new()).is_err());
}
