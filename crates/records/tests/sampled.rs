//! Reports of sampled records: bounds hold, and values that a sample cannot give are left out.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "formats/datagrams.rs"]
mod datagrams;

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use datagrams::{Bytes, FIELDS4, Flow, flow4, ipfix, records, template};
use flowgauge_core::summary::Estimate;
use flowgauge_core::task::Report;
use flowgauge_core::terms::Threshold;
use flowgauge_engine::report::{EpochReport, TotalReport};
use flowgauge_engine::sink::layout::Look;
use flowgauge_engine::sink::{Format, Item, Json, Sink, SinkError, Text};
use flowgauge_engine::snapshot::{Saved, Snapshot};
use flowgauge_engine::source::{Burst, Source, SourceError};
use flowgauge_engine::{Config, EpochLength, Plan, run};
use flowgauge_filter::Filter;
use flowgauge_records::Collector;

const ROUTER: SocketAddr =
    SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 254)), 2055);
const SECOND_NS: i64 = 1_000_000_000;
const START_NS: i64 = 1_700_000_000 * SECOND_NS;

/// Datagrams with their times.
struct Received {
    collector: Collector,
    datagrams: VecDeque<(i64, Vec<u8>)>,
    time_ns: i64,
}

impl Received {
    fn new(sampling: Option<u64>, datagrams: Vec<(i64, Vec<u8>)>) -> Self {
        Self { collector: Collector::new(sampling), datagrams: datagrams.into(), time_ns: 0 }
    }
}

impl Source for Received {
    fn poll<'a>(&'a mut self, burst: &mut Burst<'a>) -> Result<bool, SourceError> {
        if self.collector.is_done() {
            let Some((time_ns, datagram)) = self.datagrams.pop_front() else { return Ok(false) };
            self.time_ns = time_ns;
            self.collector.take(ROUTER, &datagram);
        }
        self.collector.lend(burst, self.time_ns);
        Ok(true)
    }
}

/// The output of a run.
#[derive(Default)]
struct Kept {
    epochs: Vec<Arc<EpochReport>>,
    saved: Vec<Arc<Saved>>,
    total: Option<Arc<TotalReport>>,
}

impl Sink for Kept {
    fn deliver(&mut self, item: &Item) -> Result<(), SinkError> {
        match item {
            Item::Epoch(report) => self.epochs.push(Arc::clone(report)),
            Item::Snapshot(saved) => self.saved.push(Arc::clone(saved)),
            Item::Total(total) => self.total = Some(Arc::clone(total)),
            Item::Gap(_) => {}
        }
        Ok(())
    }
}

/// A template, and messages with the records of these flows, each as large as a datagram.
fn messages(flows: &[Flow]) -> Vec<Vec<u8>> {
    let known = ipfix(0, 1, &Bytes::default().set(2, &template(256, &FIELDS4)));
    let data = |flows: &[Flow]| ipfix(0, 1, &Bytes::default().set(256, &records(flows)));
    std::iter::once(known).chain(flows.chunks(40).map(data)).collect()
}

fn measure(config: Config, source: &mut dyn Source) -> Kept {
    let mut kept = Kept::default();
    run(Plan::new(config).unwrap(), source, &mut kept, &mut |_| {}).unwrap();
    kept
}

fn tasks(names: &[&str]) -> Vec<String> {
    names.iter().copied().map(str::to_owned).collect()
}

/// A flow of `packets` packets of 100 to 1,499 bytes. Each packet is sampled independently, one in
/// `one_in`. Returns the sampled flow and the whole flow.
fn sample(random: &mut fastrand::Rng, number: u32, one_in: u32, packets: u32) -> (Flow, [f64; 2]) {
    let mut flow = Flow { packets: 0, bytes: 0, ..flow4(number) };
    let mut bytes = 0.0;
    for _ in 0..packets {
        let len = random.u32(100..1500);
        bytes += f64::from(len);
        if random.u32(0..one_in) == 0 {
            flow.packets += 1;
            flow.bytes += len;
        }
    }
    (flow, [f64::from(packets), bytes])
}

/// In each of 20 rounds, the lower bounds of all listed flows hold together with a probability of
/// 99 % for packets and 99 % for bytes; each upper bound holds with 99 %. The seeds are fixed.
/// Correct bounds would give 5 or more rounds with a wrong lower bound for one in 30,000 choices of
/// seeds, and more than 2 % wrong ones of some 12,000 upper bounds for one in many millions.
#[test]
fn bounds_of_sampled_records_hold_at_their_confidence() {
    const ONE_IN: u32 = 100;
    let (mut wrong_rounds, mut wrong_highs, mut highs, mut off) = (0, [0, 0], 0, 0);
    for seed in 0..20 {
        let mut random = fastrand::Rng::with_seed(seed);
        let flows: Vec<_> = (0..600u32)
            .map(|number| sample(&mut random, number, ONE_IN, 300_000 / (1 + number)))
            .collect();
        let truth: HashMap<_, _> = flows.iter().map(|(flow, all)| (flow.source, *all)).collect();
        let sampled: Vec<_> =
            flows.iter().map(|(flow, _)| *flow).filter(|f| f.packets > 0).collect();
        let sent = messages(&sampled).into_iter().map(|message| (START_NS, message)).collect();
        let mut source = Received::new(Some(u64::from(ONE_IN)), sent);
        let config = Config {
            epoch: EpochLength::Whole,
            tasks: Some(tasks(&["top"])),
            top: 1000,
            memory_bytes: 16 << 20,
            ..Config::seeded(seed)
        };
        let kept = measure(config, &mut source);
        let Report::Sizes { items, .. } = &kept.epochs[0].tasks[0].1 else { panic!() };
        assert_eq!(items.len(), sampled.len());
        let mut wrong_low = false;
        for item in items {
            let source = <[u8; 4]>::try_from(&item.key.as_bytes()[..4]).unwrap();
            let truth = truth[&IpAddr::from(source)];
            highs += 1;
            let sizes = [item.size.packets, item.size.bytes].into_iter().zip(truth);
            for ((size, truth), wrong_highs) in sizes.zip(&mut wrong_highs) {
                let Estimate { value, low, high, confidence } = size.unwrap();
                assert_eq!(confidence, Some(0.99));
                assert!(low <= value && value <= high);
                wrong_low |= truth < low;
                *wrong_highs += u32::from(truth > high);
                off += u32::from((value - truth).abs() > truth / 100.0);
            }
        }
        // The bounds are useful: the largest flow is known within a third.
        let Estimate { value, low, high, .. } = items[0].size.packets.unwrap();
        assert!(high - low < value / 1.5 && high - value < value / 3.0, "{low} {value} {high}");
        wrong_rounds += u32::from(wrong_low);
    }
    assert!(wrong_rounds < 5, "{wrong_rounds} rounds");
    for wrong in wrong_highs {
        assert!(f64::from(wrong) < 0.02 * f64::from(highs), "{wrong} of {highs}");
    }
    // Without bounds, most sizes would be wrong.
    assert!(off > highs, "{off} of {highs}");
}

/// Three epochs of one second: not sampled, sampled 1 in 50, and not sampled.
fn three_epochs() -> Received {
    let one = IpAddr::from([192, 0, 2, 1]);
    let flows = (0..200).map(|number| Flow { destination: one, ..flow4(number) });
    let flows: Vec<_> = flows.collect();
    let plain = messages(&flows);
    let field = (34, 4);
    let fields: Vec<_> = FIELDS4.into_iter().chain([field]).collect();
    let rated = flows[..40]
        .iter()
        .fold(Bytes::default(), |bytes, flow| bytes.put(&records(&[*flow]).0).u32(50));
    let sets = Bytes::default().set(2, &template(300, &fields)).set(300, &rated);
    let sampled = ipfix(0, 1, &sets);
    let at = |second: i64, message: &Vec<u8>| (START_NS + second * SECOND_NS, message.clone());
    let sent = plain.iter().map(|message| at(0, message));
    let sent = sent.chain([at(1, &sampled)]).chain(plain.iter().map(|message| at(2, message)));
    Received::new(None, sent.collect())
}

fn config(names: &[&str]) -> Config {
    Config {
        epoch: EpochLength::Time(SECOND_NS),
        tasks: Some(tasks(names)),
        memory_bytes: 16 << 20,
        threshold: Threshold::Share(0.005),
        spread: 1,
        ..Config::seeded(1)
    }
}

const ALL: [&str; 9] = [
    "top",
    "heavy-hitters",
    "top-destinations",
    "victims",
    "hierarchical",
    "cardinality",
    "entropy",
    "size-distribution",
    "quantiles",
];

#[test]
fn only_epochs_with_sampled_packets_are_widened() {
    let kept = measure(config(&ALL), &mut three_epochs());
    assert_eq!(kept.epochs.len(), 3);
    for (epoch, report) in kept.epochs.iter().enumerate() {
        let is_sampled = epoch == 1;
        let answered: Vec<_> = report.tasks.iter().map(|(name, _)| *name).collect();
        let left_out =
            report.notes.iter().filter(|note| note.contains("from a sample of packets")).count();
        assert_eq!((answered.len(), left_out), if is_sampled { (5, 4) } else { (9, 0) });
        let says = |note: &String| note.contains("sampled before they came here, up to 1 in 50");
        assert_eq!(report.notes.iter().any(says), is_sampled, "{:?}", report.notes);
        assert_eq!(report.breakdown.is_none(), is_sampled);
        for (name, report) in &report.tasks {
            let estimates: Vec<_> = match report {
                Report::Sizes { items, complete_to, .. } => {
                    assert_eq!(*complete_to == 0, is_sampled, "{name}");
                    items.iter().flat_map(|item| [item.size.packets, item.size.bytes]).collect()
                }
                Report::Addresses { items, .. } => {
                    items.iter().flat_map(|item| [item.size.packets, item.size.bytes]).collect()
                }
                Report::Hierarchical { items, .. } => {
                    items.iter().map(|item| Some(item.total)).collect()
                }
                Report::Spread { items, .. } => {
                    assert!(!items.is_empty());
                    for item in items {
                        assert!(item.distinct.low > 1.0);
                        assert_eq!(item.distinct.high.is_infinite(), is_sampled);
                    }
                    continue;
                }
                _ => continue,
            };
            assert!(!estimates.is_empty(), "{name}");
            for estimate in estimates.into_iter().map(Option::unwrap) {
                let Estimate { value, low, high, confidence } = estimate;
                assert_eq!(confidence.is_some(), is_sampled, "{name}");
                assert_eq!(low < value && value < high, is_sampled, "{name} {estimate:?}");
            }
        }
        let mut json = Vec::new();
        Json.epoch(report, &mut json).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
        assert_eq!(json["traffic"].is_object(), is_sampled);
        if is_sampled {
            let traffic = &json["traffic"];
            assert_eq!(traffic["value"], json["account"]["keyed"]);
            assert!(traffic["low"].as_f64() < traffic["value"].as_f64());
            assert!(json["tasks"]["victims"]["items"][0]["distinct"]["high"].is_null());
        }
        let mut text = Vec::new();
        Text { rows: 10, look: Look::default() }.epoch(report, &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(!text.contains("inf") && !text.contains("NaN"), "{text}");
    }
    // A total that includes a sample is an estimate.
    assert!(kept.total.unwrap().traffic.is_some());
}

/// With any number of measurements and workers.
#[test]
fn meters_of_several_measurements_and_workers_widen_the_same_epochs() {
    let named = |name: &str| Config { name: name.to_owned(), ..config(&["top"]) };
    let filtered = Config { filter: Some(Filter::new("tcp").unwrap()), ..named("tcp") };
    let several = Plan::several(vec![named("all"), filtered]).unwrap();
    let workers = Plan::new(Config { workers: 2, ..config(&["top"]) }).unwrap();
    for (plan, measurements) in [(several, 2), (workers, 1)] {
        let mut kept = Kept::default();
        run(plan, &mut three_epochs(), &mut kept, &mut |_| {}).unwrap();
        assert_eq!(kept.epochs.len(), 3 * measurements);
        for report in kept.epochs {
            assert_eq!(report.traffic.is_some(), report.epoch == 1, "{}", report.measurement);
        }
    }
}

#[test]
fn snapshots_record_that_packets_were_sampled() {
    let kept = measure(Config { save: true, ..config(&["top"]) }, &mut three_epochs());
    let reports = |mut snapshot: Snapshot, ask: fn(&mut Config)| {
        let mut kept = Kept::default();
        snapshot.query(ask, &mut kept).unwrap();
        Arc::clone(&kept.epochs[0])
    };
    let decode = |epoch: usize| Snapshot::decode(&kept.saved[epoch].bytes, 64 << 20, None).unwrap();
    let first = |report: &EpochReport| {
        let Report::Sizes { items, .. } = &report.tasks[0].1 else { panic!() };
        items[0].size.packets.unwrap()
    };
    for (epoch, report) in kept.epochs.iter().enumerate() {
        let snapshot = decode(epoch);
        assert_eq!(snapshot.encode(), kept.saved[epoch].bytes);
        let again = reports(snapshot, |config| config.tasks = Some(tasks(&["top", "cardinality"])));
        assert_eq!(first(&again), first(report));
        assert_eq!(again.traffic, report.traffic);
        assert_eq!(again.tasks.len(), if epoch == 1 { 1 } else { 2 });
    }
    let mut all = decode(0);
    all.merge(&decode(1)).unwrap();
    let both = reports(all, |config| config.tasks = Some(tasks(&["top"])));
    assert!(first(&both).confidence.is_some());
    let coarse = reports(decode(1), |config| {
        config.key = "destination".parse().unwrap();
        config.tasks = Some(tasks(&["top"]));
    });
    assert!(first(&coarse).confidence.is_some());
}
