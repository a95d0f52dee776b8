//! Nothing is allocated for a packet: how often a run allocates depends on its epochs and their
//! reports, never on how many packets pass.
//!
//! The captures repeat one cycle of packets, so that a longer one has the same flows, every flow's
//! share is the same, and the reports are as long.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::io::{self, Read};

use flowgauge_capture::Captures;
use flowgauge_core::catalog;
use flowgauge_core::key::KeyKind;
use flowgauge_core::packet::{Captured, Column, Frames, LinkType, Tunnels};
use flowgauge_core::summary::Parameters;
use flowgauge_core::task::TASKS;
use flowgauge_core::terms::Measure;
use flowgauge_engine::account::Account;
use flowgauge_engine::sink::{Item, Json, Sink, SinkError, Written};
use flowgauge_engine::{Config, Dispatch, EpochLength, Plan};
use flowgauge_filter::Filter;
use flowgauge_kernel::counting::{Counting, Heap, heap};
use flowgauge_synthetic::{self as synthetic, Packet, Profile, Traffic};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The allocations between the ends of two reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    /// Allocations of the engine, up to the report. Writing it is left out: text grows with the
    /// digits of a number.
    allocations: u64,
    /// Bytes kept, the writing of the report included.
    bytes: i64,
}

/// A sink that discards reports, and notes the allocations up to each: by the closer's thread,
/// which begins with none, and up to the total by the reading thread.
struct Meter {
    sink: Written<Json, io::Sink>,
    steps: Vec<Step>,
    before: Heap,
    reading: Heap,
}

impl Sink for Meter {
    fn deliver(&mut self, item: &Item) -> Result<(), SinkError> {
        if let Item::Total(_) = item {
            self.before = self.reading;
        }
        let allocations = heap().allocations - self.before.allocations;
        self.sink.deliver(item)?;
        let bytes = heap().bytes - self.before.bytes;
        self.steps.push(Step { allocations, bytes });
        self.before = heap();
        Ok(())
    }
}

/// The steps of a run, with the total's as the last, and its account.
fn steps(config: &Config, format: Format, cycles: u64) -> (Vec<Step>, Account) {
    let plan = Plan::new(config.clone()).unwrap();
    let mut source = Captures::from_reader("cycle", Cycle::new(format, cycles));
    let (sink, steps) = (Written::new(Json, io::sink()), Vec::with_capacity(64));
    let before = Heap { allocations: 0, bytes: 0 };
    let mut meter = Meter { sink, steps, before, reading: heap() };
    let total = flowgauge_engine::run(plan, &mut source, &mut meter, &mut |_| {}).unwrap().total;
    assert_eq!(total.account.read, cycles * PACKETS);
    assert!(total.problems.is_empty(), "{:?}", total.problems);
    (meter.steps, total.account)
}

/// Every kind of run: all ways of a packet to a summary, each with all tasks that can be answered.
fn configs() -> Vec<(String, Config)> {
    let mut configs = Vec::new();
    for info in catalog::ALGORITHMS {
        // The ways of a packet do not depend on the algorithm: run all of them with one.
        let all = info.name == "linear-table";
        let kinds = [KeyKind::FIVE_TUPLE, KeyKind::SOURCE, KeyKind::PROTOCOL];
        for kind in kinds.into_iter().take(if all { 3 } else { 2 }) {
            // Few candidates, if the algorithm has them, so that they fit into little memory.
            let set = info.parameters.iter().filter(|parameter| parameter.name == "candidates");
            let plain = Config {
                key: kind.into(),
                algorithm: info.name.to_owned(),
                parameters: Parameters::new(set.map(|set| (set.name.to_owned(), 1 << 10))),
                memory_bytes: 2 << 20,
                ..Config::seeded(0)
            };
            let filter = Some(Filter::new("udp or tcp port 443").unwrap());
            let ways = [
                ("plain", plain.clone()),
                ("by bytes", Config { by: Measure::Bytes, ..plain.clone() }),
                ("inner", Config { tunnels: Tunnels::Inner, ..plain.clone() }),
                ("filter", Config { filter, ..plain }),
            ];
            for (way, config) in ways.into_iter().take(if all { 4 } else { 1 }) {
                let mut tasks = answerable(&config);
                if info.name == "rhhh" {
                    // How many prefixes it lists changes with how far it has converged.
                    tasks.retain(|task| task != "hierarchical");
                }
                if tasks.is_empty() {
                    continue;
                }
                let name = format!("{} {kind} {way}", info.name);
                configs.push((name, Config { tasks: Some(tasks), ..config }));
            }
        }
    }
    configs
}

/// KLL is the exception: its library allocates whenever it compacts a level, and unseeded random
/// bits decide at which packets it does.
fn library_allocates(name: &str) -> bool {
    name.starts_with("kll ")
}

/// These draw at random, otherwise in each epoch, so that reports differ in length.
fn draws(name: &str) -> bool {
    let drawing = ["netflow ", "rhhh ", "csm ", "rcc ", "insta-measure "];
    drawing.iter().any(|start| name.starts_with(start))
}

/// Whether every flow is listed with its exact size.
fn is_table(config: &Config) -> bool {
    Plan::new(config.clone()).unwrap().explain().lanes[0].flows.is_some()
}

/// The tasks that a run can answer.
fn answerable(config: &Config) -> Vec<String> {
    let alone = |name: &str| Config { tasks: Some(vec![name.to_owned()]), ..config.clone() };
    let names = TASKS.iter().map(|entry| entry.name.to_owned());
    // Findings group a sample that grows with the packets, up to a bound: they have a test of their own.
    names.filter(|name| name != "findings" && Plan::new(alone(name)).is_ok()).collect()
}

/// The sample of packets is reserved at start; maps over it may grow a few times more.
#[test]
fn four_times_the_packets_hardly_allocate_more_for_findings() {
    let tasks = Some(vec!["findings".to_owned()]);
    let config = Config { tasks, memory_bytes: 8 << 20, ..Config::seeded(0) };
    let (few, account) = steps(&config, Format::Pcap, 4);
    let (many, _) = steps(&config, Format::Pcap, 16);
    let allocations = |steps: &[Step]| steps.iter().map(|step| step.allocations).sum::<u64>();
    let more = allocations(&many).saturating_sub(allocations(&few));
    assert!(account.keyed > 1_000 && more < 50, "{more} more");
}

/// PPP has no Ethernet addresses.
#[test]
fn a_filter_that_cannot_judge_a_link_allocates_once() {
    let filter = Some(Filter::new("ether host 02:00:00:00:00:01").unwrap());
    let plan = Plan::new(Config { filter, ..Config::seeded(0) }).unwrap();
    let (mut meters, group) = plan.build().unwrap();
    let mut meter = meters.pop().unwrap();
    let (captured, wires) = ([Captured::from(&[0; 60][..]); 32], [60; 32]);
    let (link, time_ns) = (Column::Same(LinkType::PPP), Column::Same(1));
    let mut push = || meter.push(Frames::new(&captured, &wires, link, time_ns));
    push();
    let before = heap().allocations;
    (0..100).for_each(|_| push());
    assert_eq!(heap().allocations, before);
    meter.finish();
    let total = group.close(&mut Written::new(Json, io::sink())).unwrap().totals.remove(0);
    assert_eq!(total.account.filtered, 101 * 32);
}

#[test]
fn four_times_the_packets_allocate_no_more() {
    for (name, config) in configs() {
        for format in [Format::Pcap, Format::Pcapng] {
            let (few, account) = steps(&config, format, 4);
            let (many, _) = steps(&config, format, 16);
            assert!(account.keyed > 1_000 && account.malformed > 0, "{name}: {account:?}");
            let allocations = |steps: &[Step]| steps.iter().map(|s| s.allocations).collect();
            let [few, many]: [Vec<u64>; 2] = [allocations(&few), allocations(&many)];
            if is_table(&config) {
                assert_eq!(few, many, "{name} {format:?}");
                continue;
            }
            if library_allocates(&name) {
                continue;
            }
            // An estimate, and how many items pass for heavy, may change with every packet, and
            // so what a report takes; an allocation for each packet would be a hundred times this.
            let more =
                few.iter().zip(&many).map(|(few, many)| many.saturating_sub(*few)).sum::<u64>();
            assert!(more < 3 * account.keyed / 100, "{name} {format:?}: {more} more");
        }
    }
}

/// What the thread that reads and dispatches allocates; the others only fill summaries, as one that is
/// alone does.
#[test]
fn four_times_the_packets_allocate_no_more_where_several_measure() {
    for (_, dispatch) in Dispatch::ALL {
        let dispatch = Some(dispatch);
        let config = Config { workers: 3, dispatch, memory_bytes: 8 << 20, ..Config::seeded(0) };
        let allocations = |cycles| {
            let plan = Plan::new(config.clone()).unwrap();
            let mut source = Captures::from_reader("cycle", Cycle::new(Format::Pcap, cycles));
            let before = heap();
            let total = flowgauge_engine::run(
                plan,
                &mut source,
                &mut Written::new(Json, io::sink()),
                &mut |_| {},
            );
            assert_eq!(total.unwrap().total.account.read, cycles * PACKETS);
            heap().allocations - before.allocations
        };
        assert_eq!(allocations(4), allocations(16), "{dispatch:?}");
    }
}

/// Epochs until reports repeat themselves: before the third there are no forecasts.
const WARM_UP: usize = 2;

/// Epochs that are compared after these.
const EPOCHS: u64 = 10;

#[test]
fn epochs_allocate_for_their_reports_only_and_keep_nothing() {
    for (name, config) in configs() {
        // So many keyed packets are in a cycle; the filter and the tunnels decide.
        let keyed = steps(&config, Format::Pcap, 1).1.keyed;
        for (one, four) in [
            (EpochLength::Packets(keyed), EpochLength::Packets(4 * keyed)),
            (EpochLength::Time(1_000_000_000), EpochLength::Time(4_000_000_000)),
        ] {
            let steady = |epoch, cycles| {
                let config = Config { epoch, ..config.clone() };
                // One epoch more, since the last is closed when the capture is.
                let cycles = cycles * (WARM_UP as u64 + EPOCHS + 1);
                let steps = steps(&config, Format::Pcap, cycles).0;
                steps[WARM_UP..][..EPOCHS as usize].to_vec()
            };
            let [short, long] = [steady(one, 1), steady(four, 4)];
            if is_table(&config) {
                assert_eq!(short, long, "{name} {one:?}");
            }
            if library_allocates(&name) {
                continue;
            }
            if draws(&name) {
                let kept = short.iter().map(|step| step.bytes).sum::<i64>();
                let most = short.iter().map(|step| step.allocations).max();
                assert!(kept.abs() < 8 << 10 && most < Some(1_000), "{name} {one:?} {short:?}");
                continue;
            }
            let first = Step { bytes: 0, ..short[0] };
            assert!(short.iter().all(|step| *step == first), "{name} {one:?} {short:?}");
        }
    }
}

/// Packets of a cycle, which are a second apart in all: one every 500 µs.
const PACKETS: u64 = 2_000;

/// The formats that captures come in.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Format {
    Pcap,
    Pcapng,
}

/// A stream of `cycles` times the same packets. Reading from it does not allocate.
pub(crate) struct Cycle {
    format: Format,
    head: Vec<u8>,
    /// The records of a cycle, and where their timestamps lie.
    records: Vec<u8>,
    stamps: Vec<usize>,
    /// Microseconds since the UNIX epoch at which the cycle begins.
    start_us: u64,
    cycles: u64,
    head_at: usize,
    at: usize,
}

impl Cycle {
    pub(crate) fn new(format: Format, cycles: u64) -> Self {
        let start_us = synthetic::Config::START_NS.cast_unsigned() / 1_000;
        let (records, head) = (Vec::new(), head(format));
        let (stamps, at) = (Vec::new(), 0);
        let mut cycle = Self { format, head, records, stamps, start_us, cycles, head_at: 0, at };
        for frame in frames() {
            cycle.push(&frame);
        }
        cycle.stamp();
        cycle
    }

    fn push(&mut self, frame: &[u8]) {
        let (records, length) = (&mut self.records, frame.len() as u32);
        match self.format {
            Format::Pcap => {
                self.stamps.push(records.len());
                records.extend([0; 8]);
                records.extend([length.to_le_bytes(); 2].concat());
                records.extend(frame);
            }
            Format::Pcapng => {
                let padded = frame.len().next_multiple_of(4);
                let block = (padded as u32 + 32).to_le_bytes();
                records.extend([6_u32.to_le_bytes(), block, [0; 4]].concat());
                self.stamps.push(records.len());
                records.extend([0; 8]);
                records.extend([length.to_le_bytes(); 2].concat());
                records.extend(frame);
                records.extend(&[0; 4][..padded - frame.len()]);
                records.extend(block);
            }
        }
    }

    /// Writes the times of the cycle that begins.
    fn stamp(&mut self) {
        for (number, &at) in self.stamps.iter().enumerate() {
            let time_us = self.start_us + number as u64 * 1_000_000 / PACKETS;
            let (first, second) = match self.format {
                Format::Pcap => (time_us / 1_000_000, time_us % 1_000_000),
                Format::Pcapng => (time_us >> 32, time_us & 0xffff_ffff),
            };
            self.records[at..at + 4].copy_from_slice(&(first as u32).to_le_bytes());
            self.records[at + 4..at + 8].copy_from_slice(&(second as u32).to_le_bytes());
        }
    }
}

impl Read for Cycle {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let mut head = &self.head[self.head_at..];
        if !head.is_empty() {
            let read = head.read(out)?;
            self.head_at += read;
            return Ok(read);
        }
        if self.cycles == 0 {
            return Ok(0);
        }
        let read = (&self.records[self.at..]).read(out)?;
        self.at += read;
        if self.at == self.records.len() {
            self.at = 0;
            self.cycles -= 1;
            self.start_us += 1_000_000;
            self.stamp();
        }
        Ok(read)
    }
}

fn head(format: Format) -> Vec<u8> {
    let words: &[u32] = match format {
        Format::Pcap => &[0xa1b2_c3d4, 0x0004_0002, 0, 0, 262_144, 1],
        Format::Pcapng => {
            &[0x0a0d_0d0a, 28, 0x1a2b_3c4d, 1, u32::MAX, u32::MAX, 28, 1, 20, 1, 262_144, 20]
        }
    };
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// The frames of a cycle: IPv4 and IPv6, some in a VXLAN tunnel, ARP, and cut ones.
fn frames() -> Vec<Vec<u8>> {
    let config = synthetic::Config {
        profile: Profile::Zipf { flows: 500, skew: 1.0 },
        packets: PACKETS,
        size: "imix".parse().unwrap(),
        ipv6: 0.3,
        ..synthetic::Config::default()
    };
    println!("seed {}", config.seed);
    let mut bytes = vec![0; Packet::MAX_WIRE];
    let frames = Traffic::new(config).unwrap().enumerate().map(|(number, packet)| {
        let frame = packet.frame(&mut bytes);
        let frame = &bytes[..frame];
        match number % 50 {
            0 => [&[0xff; 12], &[8, 6][..], &[0; 46]].concat(),
            1 => frame[..30].to_vec(),
            tunnelled if tunnelled % 3 == 0 => vxlan(frame),
            _ => frame.to_vec(),
        }
    });
    frames.collect()
}

/// The frame in a tunnel between two hosts.
fn vxlan(frame: &[u8]) -> Vec<u8> {
    let length = |headers: usize| ((frame.len() + headers) as u16).to_be_bytes();
    let mut outer = vec![2; 12];
    outer.extend([8, 0, 0x45, 0]);
    outer.extend(length(36));
    outer.extend([0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0xc0, 0, 0x12, 0xb5]);
    outer.extend(length(16));
    outer.extend([0, 0, 8, 0, 0, 0, 0, 0, 7, 0]);
    outer.extend(frame);
    outer
}
