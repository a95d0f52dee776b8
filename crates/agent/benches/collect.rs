//! Benchmark of a collector, fed from memory or through the brokers that `bench/collect.sh` starts.
//!
//! `collect` feeds a collector from memory. `collect BROKERS TOPIC REPORTS AGENTS EPOCH SECONDS`
//! sends snapshots from AGENTS agents, with epochs of EPOCH milliseconds, for SECONDS seconds, and
//! waits for the reports in the file REPORTS.

#![expect(clippy::unwrap_used, reason = "a benchmark may panic")]
#![expect(dead_code, reason = "tests use more of the network")]

#[path = "../tests/collect/network.rs"]
mod network;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use fastrand::Rng;
use flowgauge_agent::collect::{Ask, Collector, Message, Outcome};
use flowgauge_core::summary::Parameters;
use flowgauge_engine::sink::parse_rfc3339;
use flowgauge_engine::{Config, EpochLength};
use rdkafka::ClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseRecord, DeliveryResult, Producer, ProducerContext, ThreadedProducer};
use serde_json::Value;

use network::{LIMITS, Sent, flows, listed, measure, seed};

const MIB: f64 = 1_048_576.0;

const MEASUREMENTS: [&str; 3] = ["talkers", "hosts", "services"];

/// Packets per agent and epoch, each from a different address.
const PACKETS: i64 = 3000;

/// A snapshot with its measurement and epoch number.
struct Timed {
    epoch: usize,
    measurement: &'static str,
    sent: Sent,
}

/// Snapshots of all agents, in epoch order. Counters of so few packets take a byte each, so that a snapshot
/// has 256 KiB, half of them for IPv6.
fn network_of(agents: &[String], start_ns: i64, length_ns: i64, epochs: u32) -> Vec<Timed> {
    let mut all = Vec::new();
    let mut random = Rng::with_seed(1);
    for agent in agents {
        for measurement in MEASUREMENTS {
            let config = Config {
                name: measurement.to_owned(),
                algorithm: "count-min".to_owned(),
                parameters: Parameters::new([("rows", 4), ("columns", 32_768)]),
                memory_bytes: 4 << 20,
                epoch: EpochLength::Time(length_ns),
                ..flows()
            };
            // The extra packet ends the last epoch.
            let packets: Vec<_> = (0..=i64::from(epochs) * PACKETS)
                .map(|slot| (start_ns + slot * length_ns / PACKETS, random.u16(..)))
                .collect();
            for (epoch, saved) in
                measure(&config, &packets).iter().enumerate().take(epochs as usize)
            {
                all.push(Timed { epoch, measurement, sent: Sent::new(agent, saved) });
            }
        }
    }
    all.sort_by_key(|timed| timed.epoch);
    all
}

fn names(agents: u32) -> Vec<String> {
    (0..agents).map(|agent| format!("edge-{agent:04}")).collect()
}

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).filter(|one| one != "--bench").collect();
    match &arguments[..] {
        [brokers, topic, reports, agents, epoch, seconds] => {
            let numbers = [agents, epoch, seconds].map(|number| number.parse::<u32>().unwrap());
            through_brokers(brokers, topic, reports, numbers);
        }
        _ => from_memory(),
    }
}

/// Feeds a collector as fast as it takes messages.
fn from_memory() {
    let agents = names(100);
    let all = network_of(&agents, network::START, network::LENGTH, 10);
    let bytes: usize = all.iter().map(|timed| timed.sent.bytes.len()).sum();
    let asks = MEASUREMENTS.map(|name| (name.to_owned(), Ask::default()));
    let known = listed(&agents.iter().map(String::as_str).collect::<Vec<_>>());
    let mut collector = Collector::new(LIMITS, Some(seed()), asks, known);
    let (mut reports, begun) = (0, Instant::now());
    for (offset, Timed { measurement, sent, .. }) in (0..).zip(&all) {
        let Sent { agent, id, start_ns, bytes } = sent;
        let of = Some((*measurement, *start_ns));
        let message = Message { partition: 0, offset, agent, id, of, bytes };
        let now_ns = start_ns + network::LENGTH;
        assert_eq!(collector.feed(&message, now_ns).outcome, Outcome::Merged);
        collector.close_complete(now_ns, &mut |_, _| reports += 1).unwrap();
    }
    let seconds = begun.elapsed().as_secs_f64();
    let each = seconds / all.len() as f64;
    println!(
        "{} snapshots of {:.0} KiB in {seconds:.2} s, {reports} reports: {:.2} ms each, {:.0} MiB/s",
        all.len(),
        bytes as f64 / all.len() as f64 / 1024.0,
        each * 1e3,
        bytes as f64 / seconds / MIB
    );
    println!("100 agents with 3 measurements every 10 s: {:.1} % of a core", each * 30.0 * 100.0);
}

/// An epoch: its measurement and its start.
type Epoch = (String, i64);

/// When the last snapshot of each epoch was acknowledged.
type Acknowledged = Arc<Mutex<BTreeMap<Epoch, SystemTime>>>;

struct Context(Acknowledged);

impl ClientContext for Context {}

impl ProducerContext for Context {
    type DeliveryOpaque = Box<Epoch>;

    fn delivery(&self, result: &DeliveryResult<'_>, of: Self::DeliveryOpaque) {
        assert!(result.is_ok(), "not delivered");
        self.0.lock().unwrap().insert(*of, SystemTime::now());
    }
}

/// Sends snapshots as agents would, each epoch's at its end.
fn through_brokers(
    brokers: &str,
    topic: &str,
    reports: &str,
    [agents, epoch_ms, seconds]: [u32; 3],
) {
    let length_ns = i64::from(epoch_ms) * 1_000_000;
    let epochs = seconds * 1000 / epoch_ms;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    // Epochs begin while the snapshots are still being built, but never further ahead than a
    // collector accepts.
    let start_ns = i64::try_from(now.as_nanos()).unwrap().div_euclid(length_ns) * length_ns;
    let names = names(agents);
    let all = network_of(&names, start_ns, length_ns, epochs);
    let bytes: usize = all.iter().map(|timed| timed.sent.bytes.len()).sum();
    let (path, wanted) = (reports.to_owned(), epochs as usize * MEASUREMENTS.len());
    let watcher = thread::spawn(move || watch(&path, wanted, agents));
    let acknowledged = Acknowledged::default();
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", brokers).set("compression.codec", "lz4").set("linger.ms", "5");
    config.set("queue.buffering.max.kbytes", "1000000");
    let producer: ThreadedProducer<Context> =
        config.create_with_context(Context(Arc::clone(&acknowledged))).unwrap();
    let begun = Instant::now();
    for Timed { epoch, measurement, sent } in &all {
        let due = Duration::from_nanos(length_ns.unsigned_abs() * (*epoch as u64 + 1));
        thread::sleep(due.saturating_sub(begun.elapsed()));
        let start = sent.start_ns.to_string();
        let texts = [
            ("type", "snapshot"),
            ("agent", &sent.agent),
            ("id", &sent.id),
            ("measurement", measurement),
            ("start", &start),
        ];
        let headers = texts.iter().fold(OwnedHeaders::new(), |headers, (key, value)| {
            headers.insert(Header { key, value: Some(*value) })
        });
        let key = format!("{measurement}/{start}");
        let of = Box::new(((*measurement).to_owned(), sent.start_ns));
        let record = BaseRecord::with_opaque_to(topic, of).key(&key).payload(&sent.bytes);
        producer.send(record.headers(headers)).map_err(|(error, _)| error).unwrap();
    }
    producer.flush(Duration::from_secs(60)).unwrap();
    let seconds = begun.elapsed().as_secs_f64();
    let reported = watcher.join().unwrap();
    let acknowledged = acknowledged.lock().unwrap();
    let delay = |(epoch, at): (&Epoch, &SystemTime)| {
        at.duration_since(acknowledged[epoch]).unwrap_or_default()
    };
    let mut delays: Vec<_> = reported.iter().map(delay).collect();
    delays.sort_unstable();
    println!(
        "{} snapshots of {epochs} epochs in {seconds:.0} s, {:.1} MiB/s; {} of {wanted} reports of all agents, behind \
         the last snapshot by {:.2?}, the latest by {:.2?}",
        all.len(),
        bytes as f64 / MIB / seconds,
        delays.len(),
        delays.get(delays.len() / 2).copied().unwrap_or_default(),
        delays.last().copied().unwrap_or_default()
    );
}

/// The time at which each epoch's report of all agents appeared in the file.
fn watch(path: &str, wanted: usize, agents: u32) -> BTreeMap<Epoch, SystemTime> {
    let (mut seen, mut bytes, mut begun) = (BTreeMap::new(), Vec::new(), Instant::now());
    let mut at = 0;
    while seen.len() < wanted && begun.elapsed() < Duration::from_secs(60) {
        thread::sleep(Duration::from_millis(10));
        let Ok(mut file) = File::open(path) else { continue };
        file.seek(SeekFrom::Start(at)).unwrap();
        at += file.read_to_end(&mut bytes).unwrap() as u64;
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = bytes.drain(..=end).collect();
            let report: Value = serde_json::from_slice(&line).unwrap();
            if report["network"]["reported"] == agents {
                let start_ns = parse_rfc3339(report["start"].as_str().unwrap()).unwrap();
                let measurement = report["measurement"].as_str().unwrap().to_owned();
                seen.entry((measurement, start_ns)).or_insert_with(SystemTime::now);
                begun = Instant::now();
            }
        }
    }
    seen
}
