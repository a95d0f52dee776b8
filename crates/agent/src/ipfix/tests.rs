//! Tests with a strict IPFIX reader on loopback.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::HashMap;
use std::io::{ErrorKind, Read};
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use flowgauge_capture::Captures;
use flowgauge_core::key::{Field, KeyKind, KeySpec};
use flowgauge_core::summary::Estimate;
use flowgauge_core::task::Report;
use flowgauge_engine::report::EpochReport;
use flowgauge_engine::sink::{Each, Item, Sink, SinkError};
use flowgauge_engine::{Config, EpochLength, Plan, capable};
use flowgauge_synthetic::{Traffic, to_pcap_bytes};
use rustix::net::sockopt;

use super::{Exporter, Session};
use crate::config::IpfixOptions;

const ENTERPRISE: u32 = 65_000;

/// An element: enterprise (0 for IANA) and number.
type Id = (u32, u16);

const PACKETS: Id = (0, 2);
const BYTES: Id = (0, 1);

/// A template: number of scope elements, and all elements with lengths.
type Template = (u16, Vec<(Id, u16)>);

/// A data record.
#[derive(Clone, Debug, PartialEq)]
struct Record {
    /// Whether it is an option.
    is_option: bool,
    values: Vec<(Id, Vec<u8>)>,
}

impl Record {
    fn bytes(&self, id: Id) -> Option<&[u8]> {
        self.values.iter().find(|(of, _)| *of == id).map(|(_, value)| &value[..])
    }

    fn number(&self, id: Id) -> Option<u64> {
        Some(self.bytes(id)?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn real(&self, number: u16) -> f64 {
        f64::from_bits(self.number((0, number)).unwrap())
    }

    fn address(&self, ids: [u16; 2]) -> Option<IpAddr> {
        ids.iter().find_map(|number| match self.bytes((0, *number))?.len() {
            4 => <[u8; 4]>::try_from(self.bytes((0, *number))?).ok().map(IpAddr::from),
            _ => <[u8; 16]>::try_from(self.bytes((0, *number))?).ok().map(IpAddr::from),
        })
    }
}

/// A strict collector: decodes the messages of one session.
#[derive(Default)]
struct Decoder {
    templates: HashMap<u16, Template>,
    /// Number of templates read, counting repetitions.
    announced: usize,
    sequence: u32,
    records: Vec<Record>,
}

fn two(bytes: &mut &[u8]) -> u16 {
    let (first, rest) = bytes.split_first_chunk::<2>().unwrap();
    *bytes = rest;
    u16::from_be_bytes(*first)
}

fn four(bytes: &mut &[u8]) -> u32 {
    u32::from(two(bytes)) << 16 | u32::from(two(bytes))
}

impl Decoder {
    /// Decodes a complete message.
    fn message(&mut self, mut bytes: &[u8]) {
        assert!(bytes.len() <= 1400, "{}", bytes.len());
        let len = bytes.len();
        assert_eq!(two(&mut bytes), 10);
        assert_eq!(usize::from(two(&mut bytes)), len);
        assert!(four(&mut bytes) > 1_700_000_000);
        assert_eq!(four(&mut bytes), self.sequence);
        assert_eq!(four(&mut bytes), 7);
        assert!(!bytes.is_empty());
        while !bytes.is_empty() {
            let (id, len) = (two(&mut bytes), two(&mut bytes));
            let (set, rest) = bytes.split_at(usize::from(len) - 4);
            assert!(!set.is_empty());
            bytes = rest;
            self.set(id, set);
        }
    }

    fn set(&mut self, id: u16, mut set: &[u8]) {
        while !set.is_empty() {
            if let 2 | 3 = id {
                let number = two(&mut set);
                assert!(number >= 256);
                let count = two(&mut set);
                let scope = if id == 3 { two(&mut set) } else { 0 };
                assert!(scope < count && (id == 2 || scope > 0));
                let element = |_| {
                    let (number, len) = (two(&mut set), two(&mut set));
                    let enterprise = if number >> 15 == 1 { four(&mut set) } else { 0 };
                    ((enterprise, number & 0x7fff), len)
                };
                let template = (scope, (0..count).map(element).collect());
                // nfacctd reads only one template per set.
                assert!(id == 2 || set.is_empty());
                let before = self.templates.insert(number, template.clone());
                assert!(before.is_none_or(|before| before == template));
                self.announced += 1;
            } else {
                let (scope, elements) = self.templates.get(&id).expect("a template comes first");
                let mut values = Vec::new();
                for (id, len) in elements {
                    let (value, rest) = set.split_at(usize::from(*len));
                    values.push((*id, value.to_vec()));
                    set = rest;
                }
                self.records.push(Record { is_option: *scope > 0, values });
                self.sequence += 1;
            }
        }
    }

    /// Reads all datagrams that have arrived.
    fn datagrams(&mut self, socket: &UdpSocket) {
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let mut buffer = [0; 1500];
        while let Ok(len) = socket.recv(&mut buffer) {
            self.message(&buffer[..len]);
        }
    }

    /// Reads from a stream until this many records arrived.
    fn stream(&mut self, mut stream: &TcpStream, records: usize) {
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        while self.records.len() < records {
            let mut message = vec![0; 4];
            stream.read_exact(&mut message).unwrap();
            message.resize(usize::from(u16::from_be_bytes([message[2], message[3]])), 0);
            stream.read_exact(&mut message[4..]).unwrap();
            self.message(&message);
        }
    }

    /// Records of flows, and the limits of their sizes.
    fn flows(&self) -> impl Iterator<Item = &Record> {
        self.records.iter().filter(|record| !record.is_option && record.bytes(PACKETS).is_some())
    }

    fn sum(&self, id: Id) -> u64 {
        self.flows().map(|record| record.number(id).unwrap()).sum()
    }
}

/// Reports of 20,000 packets in two epochs, half of them IPv6.
fn reports(name: &str, config: Config) -> Vec<Arc<EpochReport>> {
    let traffic = flowgauge_synthetic::Config {
        packets: 20_000,
        rate: 10_000,
        ipv6: 0.5,
        plants: ["scan:destinations=200,packets=500", "flood:sources=200,packets=500"]
            .map(|plant| plant.parse().unwrap())
            .to_vec(),
        ..flowgauge_synthetic::Config::default()
    };
    let name = format!("flowgauge-ipfix-{name}-{}.pcap", std::process::id());
    let path = std::env::temp_dir().join(name);
    std::fs::write(&path, to_pcap_bytes(Traffic::new(traffic).unwrap())).unwrap();
    let config =
        Config { epoch: EpochLength::Time(1_000_000_000), top: 1000, list_limit: 2000, ..config };
    let config = capable(&config).map_or(config, |(instead, _)| instead);
    let mut reports = Vec::new();
    let mut keep = Each(|report: &EpochReport| {
        reports.push(Arc::new(report.clone()));
        Ok(())
    });
    let mut source = Captures::open([Path::new(&path)]);
    let plan = Plan::new(config).unwrap();
    flowgauge_engine::run(plan, &mut source, &mut keep, &mut |_| {}).unwrap();
    std::fs::remove_file(path).unwrap();
    reports
}

fn asked(key: &str, tasks: &[&str]) -> Config {
    let tasks = Some(tasks.iter().map(|task| (*task).to_owned()).collect());
    Config { key: key.parse().unwrap(), tasks, memory_bytes: 8 << 20, ..Config::seeded(1) }
}

fn exporter(to: &str, enterprise: u32) -> Exporter {
    let options = IpfixOptions {
        to: to.parse().unwrap(),
        domain: 7,
        enterprise: enterprise.try_into().ok(),
        anonymize: None,
    };
    Exporter::new(&options, vec![Config::seeded(1).name])
}

fn collector() -> (UdpSocket, String) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = format!("udp://{}", socket.local_addr().unwrap());
    (socket, to)
}

/// What a collector receives for these reports.
fn exported(reports: &[Arc<EpochReport>], enterprise: u32) -> Decoder {
    let (socket, to) = collector();
    let mut exporter = exporter(&to, enterprise);
    let mut decoder = Decoder::default();
    for report in reports {
        exporter.deliver(&Item::Epoch(Arc::clone(report))).unwrap();
        decoder.datagrams(&socket);
    }
    decoder
}

/// Total packets and bytes of the flows in the first list of each report.
fn listed(reports: &[Arc<EpochReport>]) -> (u64, u64) {
    let mut sums = (0, 0);
    for report in reports {
        let Report::Sizes { items, .. } = &report.tasks[0].1 else { panic!("no sizes") };
        for item in items {
            sums.0 += item.size.packets.unwrap().value as u64;
            sums.1 += item.size.bytes.unwrap().value as u64;
        }
    }
    sums
}

#[test]
fn flows_of_every_key_reach_the_collector_with_their_sizes() {
    for (key, numbers) in [
        ("five-tuple", vec![8, 27, 12, 28, 7, 11, 4]),
        ("source", vec![8, 27]),
        ("pair", vec![8, 27, 12, 28]),
        ("destination-port", vec![11]),
        ("source/24", vec![44, 9, 27]),
        ("source/24,48", vec![44, 9, 170, 29]),
        ("destination/16,32+protocol", vec![45, 13, 169, 30, 4]),
        ("vlan", vec![58]),
        ("tcp-flags", vec![6]),
        ("source-mac+destination-mac", vec![56, 80]),
    ] {
        // Heavy hitters are among the largest flows: they are exported once.
        let reports = reports(&key.replace('/', "-"), asked(key, &["top", "heavy-hitters"]));
        assert_eq!(reports.len(), 2);
        let decoder = exported(&reports, 0);
        let (packets, bytes) = listed(&reports);
        assert!(packets > 5000);
        assert_eq!(decoder.sum(PACKETS), packets, "{key}");
        assert_eq!(decoder.sum(BYTES), bytes, "{key}");
        assert_eq!(
            decoder.records.len(),
            decoder.flows().count(),
            "{key}: exact sizes have no limits"
        );
        // The key, sizes and the epoch, and nothing else.
        let mut found: Vec<_> =
            decoder.templates.values().flat_map(|(_, all)| all.clone()).collect();
        found.sort_unstable();
        found.dedup();
        let mut found: Vec<_> = found.into_iter().map(|((_, number), _)| number).collect();
        found.retain(|number| ![1, 2, 143, 152, 153].contains(number));
        let mut numbers = numbers;
        numbers.sort_unstable();
        assert_eq!(found, numbers, "{key}");
        for record in decoder.flows() {
            let start = record.number((0, 152)).unwrap();
            let starts = reports.iter().map(|report| report.start_ns.unwrap() as u64 / 1_000_000);
            assert!(starts.clone().any(|is| is == start), "{key}");
            assert_eq!(record.number((0, 153)).unwrap(), start + 1000);
            assert_eq!(record.number((0, 143)), Some(1));
        }
    }
}

#[test]
fn each_flow_has_the_values_of_the_report() {
    let reports = reports("values", asked("five-tuple", &["top"]));
    let decoder = exported(&reports[..1], 0);
    let Report::Sizes { items, .. } = &reports[0].tasks[0].1 else { panic!("no sizes") };
    assert_eq!(items.len(), decoder.records.len());
    let mut versions = [0, 0];
    for item in items {
        let fields = reports[0].key.fields(item.key.as_bytes());
        let is_it = |record: &&Record| {
            record.address([8, 27]) == fields.source
                && record.address([12, 28]) == fields.destination
                && record.number((0, 7)) == fields.source_port.map(u64::from)
                && record.number((0, 11)) == fields.destination_port.map(u64::from)
                && record.number((0, 4)) == fields.protocol.map(u64::from)
        };
        let record = decoder.flows().find(is_it).unwrap();
        assert_eq!(record.number(PACKETS), item.size.packets.map(|packets| packets.value as u64));
        versions[usize::from(fields.source.unwrap().is_ipv6())] += 1;
    }
    assert!(versions[0] > 100 && versions[1] > 100, "{versions:?}");
}

/// The option about an element of the flow with this source, for a collector with one epoch.
fn limits(decoder: &Decoder, source: Option<IpAddr>, element: u16) -> Option<&Record> {
    let is_it = |record: &&Record| {
        record.number((0, 303)) == Some(element.into()) && record.address([8, 27]) == source
    };
    let mut found = decoder.records.iter().filter(is_it);
    let first = found.next();
    assert_eq!(found.next(), None);
    first
}

#[test]
fn estimates_come_with_their_limits() {
    for (algorithm, is_sure) in [("space-saving", true), ("count-min", false)] {
        let config = Config {
            algorithm: algorithm.to_owned(),
            memory_bytes: 64 << 10,
            ..asked("source", &["top"])
        };
        let mut reports = reports(algorithm, config);
        let report = Arc::get_mut(&mut reports[0]).unwrap();
        let Report::Sizes { items, .. } = &mut report.tasks[0].1 else { panic!("no sizes") };
        // A fraction, and asymmetric bounds.
        let confidence = (!is_sure).then_some(0.95);
        let odd = Estimate { value: 70.4, low: 60.0, high: 75.0, confidence };
        items[0].size.packets = Some(odd);
        items[1].size.packets = Some(Estimate::exact(9));
        let decoder = exported(&reports[..1], 0);
        let Report::Sizes { items, .. } = &reports[0].tasks[0].1 else { panic!("no sizes") };
        let mut inexact = 0;
        for item in items {
            let source = reports[0].key.fields(item.key.as_bytes()).source;
            let flow = decoder.flows().find(|record| record.address([8, 27]) == source).unwrap();
            for (element, estimate) in [(2, item.size.packets), (1, item.size.bytes)] {
                let Some(estimate) = estimate else { continue };
                let Estimate { value, low, high, confidence } = estimate;
                assert_eq!(flow.number((0, element)), Some(value.round() as u64));
                let option = limits(&decoder, source, element);
                assert_eq!(option.is_some(), low < value || value < high, "{estimate:?}");
                let Some(option) = option else { continue };
                inexact += 1;
                assert_eq!(option.number((0, 152)), flow.number((0, 152)));
                let told = (option.real(337), option.real(336), option.real(338));
                assert_eq!(told, (low, high, confidence.unwrap_or(1.0)));
                let absolute = option.bytes((0, 320)).map(|_| option.real(320));
                let largest = confidence.is_none().then(|| (value - low).max(high - value));
                assert_eq!(absolute, largest);
            }
        }
        assert!(inexact > 100, "{algorithm}: {inexact}");
    }
}

#[test]
fn distinct_counts_have_elements_of_their_own() {
    for (task, end, peers) in [("superspreaders", [8, 27], 379), ("victims", [12, 28], 378)] {
        let config = Config { spread: 20, ..asked("pair", &[task]) };
        let reports = reports(task, config);
        let decoder = exported(&reports[..1], 0);
        let Report::Spread { items, .. } = &reports[0].tasks[0].1 else { panic!("no spread") };
        assert!(!items.is_empty(), "{task}");
        for item in items {
            let address = KeySpec::from(KeyKind::SOURCE).fields(item.address.as_bytes()).source;
            let is_it = |record: &&Record| record.address(end) == address && !record.is_option;
            let record = decoder.records.iter().find(is_it).unwrap();
            assert_eq!(record.number((0, peers)), Some(item.distinct.value.round() as u64));
            assert!(record.bytes(PACKETS).is_none());
        }
    }
}

#[test]
fn numbers_about_an_epoch_are_options() {
    for (key, element) in
        [("five-tuple", 375), ("source", 378), ("destination", 379), ("source/24", 375)]
    {
        let reports = reports(
            &format!("all-{}", key.replace('/', "-")),
            asked(key, &["cardinality", "entropy"]),
        );
        let tasks = &reports[0].tasks;
        let flows = tasks.iter().find_map(|(_, task)| match task {
            Report::Cardinality { flows } => Some(flows.value.round() as u64),
            _ => None,
        });
        let entropy = tasks.iter().find_map(|(_, task)| match task {
            Report::Entropy { bits, .. } => Some(bits.value),
            _ => None,
        });
        let decoder = exported(&reports[..1], ENTERPRISE);
        assert!(decoder.records.iter().all(|record| record.is_option));
        let value = |id: Id| decoder.records.iter().find_map(|record| record.number(id));
        assert_eq!(value((0, element)), flows, "{key}");
        assert_eq!(value((ENTERPRISE, 1)).map(f64::from_bits), entropy);
        assert!(value((ENTERPRISE, 2)).is_some());
        // Without an enterprise, there is no element for it.
        let decoder = exported(&reports[..1], 0);
        assert!(decoder.templates.values().all(|(_, all)| all.iter().all(|((of, _), _)| *of == 0)));
        assert!(!decoder.records.is_empty());
    }
}

#[test]
fn heavy_prefixes_are_of_the_enterprise() {
    let reports = reports("prefixes", asked("source", &["hierarchical"]));
    let Report::Hierarchical { items, .. } = &reports[0].tasks[0].1 else { panic!("no prefixes") };
    assert!(!items.is_empty());
    let decoder = exported(&reports[..1], ENTERPRISE);
    let prefixes: Vec<_> = decoder.records.iter().filter(|record| !record.is_option).collect();
    assert_eq!(prefixes.len(), items.len());
    let sum: u64 = items.iter().map(|item| item.discounted.value.round() as u64).sum();
    let numbers = prefixes.iter().map(|record| record.number((ENTERPRISE, 6)).unwrap());
    assert_eq!(numbers.sum::<u64>(), sum);
    for (item, record) in items.iter().zip(&prefixes) {
        // Records are ordered by template; each has the bits of one item.
        assert!(record.bytes((0, 44)).or(record.bytes((0, 170))).is_some(), "{item:?}");
    }
    assert!(exported(&reports[..1], 0).records.is_empty());
}

#[test]
fn an_address_of_either_end_is_not_exported() {
    let reports = reports("host", asked("host", &["top"]));
    assert!(reports[0].key.kind().has(Field::Host));
    assert!(exported(&reports, 0).records.is_empty());
}

#[test]
fn templates_come_again_after_a_minute_over_udp() {
    let reports = reports("again", asked("five-tuple", &["top"]));
    let (socket, to) = collector();
    let mut exporter = exporter(&to, 0);
    let mut decoder = Decoder::default();
    let start = Instant::now();
    for (seconds, announced) in [(0, 2), (10, 2), (59, 2), (60, 4), (70, 4), (119, 4), (121, 6)] {
        exporter.export(&reports[0], start + Duration::from_secs(seconds)).unwrap();
        decoder.datagrams(&socket);
        assert_eq!(decoder.announced, announced, "{seconds}");
    }
    assert_eq!(decoder.sequence as usize, decoder.records.len());
}

/// Number of records of a report.
fn records(report: &EpochReport) -> usize {
    let Report::Sizes { items, .. } = &report.tasks[0].1 else { panic!("no sizes") };
    items.len()
}

#[test]
fn a_collector_of_tcp_goes_away_and_comes_back() {
    let reports = reports("stream", asked("five-tuple", &["top"]));
    let number = records(&reports[0]);
    let item = Item::Epoch(Arc::clone(&reports[0]));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut exporter = exporter(&format!("tcp://{address}"), 0);
    exporter.deliver(&item).unwrap();
    let Some(Session::Tcp(own)) = &exporter.session else { panic!("no session") };
    assert_eq!(sockopt::tcp_user_timeout(own).unwrap(), 30_000, "its host may die silently");
    let (stream, _) = listener.accept().unwrap();
    let mut decoder = Decoder::default();
    decoder.stream(&stream, number);
    exporter.deliver(&item).unwrap();
    decoder.stream(&stream, 2 * number);
    assert_eq!(decoder.announced, 2, "a stream loses no template");
    drop((stream, listener));
    for _ in 0..2 {
        let error = exporter.deliver(&item).unwrap_err();
        assert!(matches!(error, SinkError::Write { .. }), "{error}");
    }
    let listener = TcpListener::bind(address).unwrap();
    exporter.deliver(&item).unwrap();
    let (stream, _) = listener.accept().unwrap();
    // A new session: numbers start at 0, and all templates are sent.
    let mut decoder = Decoder::default();
    decoder.stream(&stream, number);
    assert_eq!((decoder.announced, decoder.records.len()), (2, number));
    // It closes but keeps listening: the next epoch arrives whole over a new connection.
    drop(stream);
    exporter.deliver(&item).unwrap();
    let (stream, _) = listener.accept().unwrap();
    let mut decoder = Decoder::default();
    decoder.stream(&stream, number);
    assert_eq!(decoder.records.len(), number);
}

#[test]
fn a_collector_that_reads_nothing_is_left_after_the_limit() {
    let reports = reports("slow", asked("five-tuple", &["top"]));
    let number = records(&reports[0]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut exporter = exporter(&format!("tcp://{}", listener.local_addr().unwrap()), 0);
    let start = Instant::now();
    let mut taken = 0;
    let error = loop {
        assert!(taken < 100_000, "no socket has a buffer for so many");
        let before = Instant::now();
        match exporter.export(&reports[0], start) {
            Ok(()) => taken += 1,
            Err(error) => {
                assert!(before.elapsed() < Duration::from_secs(7));
                break error;
            }
        }
    };
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    // Its stream is complete except for the last message. The rest arrives on a new connection.
    let (stream, _) = listener.accept().unwrap();
    let mut decoder = Decoder::default();
    decoder.stream(&stream, taken * number);
    exporter.export(&reports[0], start).unwrap();
    let (stream, _) = listener.accept().unwrap();
    let mut decoder = Decoder::default();
    decoder.stream(&stream, number);
    assert_eq!(decoder.records.len(), number);
}

#[test]
fn a_collector_of_udp_comes_late() {
    let reports = reports("late", asked("five-tuple", &["top"]));
    let item = Item::Epoch(Arc::clone(&reports[0]));
    let (socket, to) = collector();
    let address = socket.local_addr().unwrap();
    drop(socket);
    let mut exporter = exporter(&to, 0);
    let error = exporter.deliver(&item).unwrap_err();
    assert!(matches!(error, SinkError::Write { .. }), "{error}");
    let socket = UdpSocket::bind(address).unwrap();
    exporter.deliver(&item).unwrap();
    let mut decoder = Decoder::default();
    decoder.datagrams(&socket);
    assert_eq!(decoder.records.len(), records(&reports[0]));
}

#[test]
fn a_name_without_an_address_is_tried_again() {
    let reports = reports("name", asked("source", &["top"]));
    for to in ["udp://no.such.host.invalid:4739", "tcp://no.such.host.invalid:4739"] {
        let error = exporter(to, 0).deliver(&Item::Epoch(Arc::clone(&reports[0]))).unwrap_err();
        assert!(matches!(error, SinkError::Write { .. }), "{error}");
        assert!(
            error.to_string().starts_with(&format!("cannot write to the IPFIX collector {to}: "))
        );
    }
}

#[test]
fn a_collector_is_a_transport_a_host_and_a_port() {
    let read = |text: &str| serde_saphyr::from_str::<IpfixOptions>(text);
    for to in ["udp://127.0.0.1:4739", "tcp://[::1]:1", "tcp://collector.example:65535"] {
        let options = read(&format!("{{ to: '{to}' }}")).unwrap();
        assert_eq!(
            (options.to.to_string(), options.domain, options.enterprise),
            (to.to_owned(), 1, None)
        );
    }
    for to in [
        "127.0.0.1:4739",
        "http://a:1",
        "udp://a",
        "udp://:1",
        "udp://::1:4739",
        "tcp://a:0",
        "udp://a/b:1",
    ] {
        let error = read(&format!("{{ to: '{to}' }}")).unwrap_err().to_string();
        assert!(error.contains("write udp://HOST:PORT or tcp://HOST:PORT"), "{error}");
    }
    for text in
        ["{ to: 'udp://a:1', port: 1 }", "{ to: 'udp://a:1', enterprise: 0 }", "{ domain: 1 }"]
    {
        assert!(read(text).is_err(), "{text}");
    }
}
