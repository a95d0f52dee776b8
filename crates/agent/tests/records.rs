//! An agent that measures flow records.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../../records/tests/formats/datagrams.rs"]
mod datagrams;

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use datagrams::{
    Bytes, FIELDS4, FIELDS6, Flow, Sample, flow4, flow6, ipfix, netflow5, netflow9, records, sflow,
    template,
};
use flowgauge_agent::{Failure, Origin, run};
use rustix::process::{Signal, getpid, kill_process};
use serde_json::Value;

/// Longer than any step of the test.
const PATIENCE: Duration = Duration::from_secs(20);

/// An agent with flow records as its source.
struct Agent {
    folder: PathBuf,
    udp: u16,
    http: u16,
    thread: JoinHandle<Result<(), Failure>>,
}

impl Agent {
    fn start() -> Self {
        let folder = std::env::temp_dir().join(format!("flowgauge-records-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let http = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let path = folder.join("agent.yaml");
        let text = format!(
            "agent: {{ data: {0}/data }}\n\
             sources: [{{ records: 'udp://127.0.0.1:{udp}' }}]\n\
             measurements:\n\
             \x20 flows: {{ epoch: 1h, tasks: [top], memory: 64MiB, top: 10000 }}\n\
             sinks:\n\
             \x20 files: {{ path: '{0}/reports.jsonl' }}\n\
             \x20 prometheus: {{ listen: '127.0.0.1:{http}' }}\n",
            folder.display()
        );
        fs::write(&path, text).unwrap();
        let origin = Origin { path, sets: Vec::new() };
        let thread = thread::spawn(move || run(&origin, &Vec::new, None));
        let begin = Instant::now();
        // The agent has bound the port, and answers.
        while UdpSocket::bind(("127.0.0.1", udp)).is_ok()
            || TcpStream::connect(("127.0.0.1", http)).is_err()
        {
            assert!(begin.elapsed() < PATIENCE && !thread.is_finished());
            thread::sleep(Duration::from_millis(10));
        }
        Self { folder, udp, http, thread }
    }

    /// A counter of the only exporter.
    fn counter(&self, name: &str) -> u64 {
        let mut stream = TcpStream::connect(("127.0.0.1", self.http)).unwrap();
        let request = "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let series =
            format!("flowgauge_exporter_total{{exporter=\"127.0.0.1\",counter=\"{name}\"}} ");
        let value = text.lines().find_map(|line| line.strip_prefix(&series));
        value.map_or(0, |value| value.parse::<f64>().unwrap() as u64)
    }

    /// Waits until `datagrams` were read.
    fn wait(&self, datagrams: u64) {
        let begin = Instant::now();
        while self.counter("record_datagrams") < datagrams {
            assert!(begin.elapsed() < PATIENCE);
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Stops the agent; returns the lines it wrote.
    fn end(self) -> Vec<Value> {
        kill_process(getpid(), Signal::TERM).unwrap();
        self.thread.join().unwrap().unwrap();
        let text = fs::read_to_string(self.folder.join("reports.jsonl")).unwrap();
        fs::remove_dir_all(self.folder).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// A flow as reports name it.
type Key = (String, String, u64, u64, u64);

fn key(flow: &Flow) -> Key {
    let [source_port, destination_port] = flow.ports.map(u64::from);
    let protocol = u64::from(flow.protocol);
    (flow.source.to_string(), flow.destination.to_string(), source_port, destination_port, protocol)
}

#[test]
fn reports_have_the_flows_of_all_formats_exactly() {
    let agent = Agent::start();
    let mut expected = BTreeMap::<Key, (u64, u64)>::new();
    let mut expect = |flows: &[Flow], one_in: u64| {
        for flow in flows {
            let sum = expected.entry(key(flow)).or_default();
            sum.0 += u64::from(flow.packets) * one_in;
            sum.1 += u64::from(flow.bytes) * one_in;
        }
    };
    let flows = |numbers: std::ops::Range<u32>| -> (Vec<Flow>, Vec<Flow>) {
        numbers.map(|number| (flow4(number), flow6(number))).unzip()
    };
    let (v5, _) = flows(0..30);
    let (v9_4, v9_6) = flows(20..40);
    let (ipfix_4, ipfix_6) = flows(40..60);
    let templates = template(256, &FIELDS4).put(&template(257, &FIELDS6).0);
    // The options announce a sampling of one in 100.
    let options = Bytes::default().u16(300).u16(2).u16(1).u16(149).u16(4).u16(34).u16(4);
    let udp = [0, 53, 0, 54, 0, 8, 0, 0];
    let ip = [0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    let frame = [&[0; 12][..], &[8, 0], &ip, &udp].concat();
    let sample = Sample { expanded: false, one_in: 1024, kind: 1, wire: 1518, header: &frame };
    let sent = [
        netflow5(0, 10, &v5),
        netflow9(0, 1, &Bytes::default().set(0, &templates)),
        netflow9(1, 1, &Bytes::default().set(256, &records(&v9_4)).set(257, &records(&v9_6))),
        ipfix(0, 1, &Bytes::default().set(2, &templates).set(3, &options)),
        ipfix(0, 1, &Bytes::default().set(300, &Bytes::default().u32(0).u32(100))),
        ipfix(1, 1, &Bytes::default().set(256, &records(&ipfix_4)).set(257, &records(&ipfix_6))),
        sflow(0, &[sample, Sample { expanded: true, ..sample }]),
        // Two datagrams are missing here.
        sflow(3, &[sample]),
        b"neither".to_vec(),
    ];
    expect(&v5, 10);
    expect(&v9_4, 1);
    expect(&v9_6, 1);
    expect(&ipfix_4, 100);
    expect(&ipfix_6, 100);
    let sampled = Flow {
        source: [10, 0, 0, 1].into(),
        destination: [10, 0, 0, 2].into(),
        ports: [53, 54],
        protocol: 17,
        flags: 0,
        packets: 1,
        bytes: 1518,
    };
    expect(&[sampled; 3], 1024);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    for datagram in &sent {
        socket.send_to(datagram, ("127.0.0.1", agent.udp)).unwrap();
    }
    agent.wait(sent.len() as u64);
    assert_eq!(agent.counter("records"), 30 + 4 * 20 + 3);
    assert_eq!(agent.counter("records_unknown_version"), 1);
    assert_eq!(agent.counter("records_lost_datagrams"), 2);
    let packets: u64 = expected.values().map(|(packets, _)| packets).sum();
    assert_eq!(agent.counter("record_packets"), packets);
    let lines = agent.end();

    let mut found = BTreeMap::<Key, (u64, u64)>::new();
    let (mut keyed, mut lost) = (0, 0);
    for report in lines.iter().filter(|line| line["type"] == "epoch") {
        keyed += report["account"]["keyed"].as_u64().unwrap();
        lost += report["account"]["lost"].as_u64().unwrap();
        for item in report["tasks"]["top"]["items"].as_array().unwrap() {
            let text = |field: &str| item["key"][field].as_str().unwrap().to_owned();
            let number = |field: &str| item["key"][field].as_u64().unwrap();
            let key = (
                text("source"),
                text("destination"),
                number("source_port"),
                number("destination_port"),
                number("protocol"),
            );
            let sum = found.entry(key).or_default();
            sum.0 += item["packets"]["value"].as_f64().unwrap() as u64;
            sum.1 += item["bytes"]["value"].as_f64().unwrap() as u64;
        }
    }
    assert_eq!(found, expected);
    assert_eq!((keyed, lost), (packets, 2));
}
