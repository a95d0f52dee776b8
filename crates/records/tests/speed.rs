//! How many records a second one core takes: `cargo test --release -p flowgauge-records --test
//! speed -- --ignored --nocapture`.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "formats/datagrams.rs"]
mod datagrams;

use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use datagrams::{
    Bytes, FIELDS4, Sample, flow4, ipfix, netflow5, netflow9, records, sflow, template,
};
use flowgauge_engine::sink::{Item, Sink, SinkError, Takes};
use flowgauge_engine::source::{Burst, Source, SourceError};
use flowgauge_engine::{Config, EpochLength, Plan, run};
use flowgauge_records::{Collector, Count};

const ROUTER: SocketAddr =
    SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 254)), 2055);

/// Datagrams, repeated.
struct Again {
    collector: Collector,
    datagrams: Vec<Vec<u8>>,
    /// Of the next one; and how many are left.
    next: usize,
    left: usize,
}

impl Source for Again {
    fn poll<'a>(&'a mut self, burst: &mut Burst<'a>) -> Result<bool, SourceError> {
        if self.collector.is_done() {
            if self.left == 0 {
                return Ok(false);
            }
            self.left -= 1;
            self.collector.take(ROUTER, &self.datagrams[self.next]);
            self.next = (self.next + 1) % self.datagrams.len();
        }
        self.collector.lend(burst, 1_700_000_000_000_000_000);
        Ok(true)
    }
}

struct Nowhere;

impl Sink for Nowhere {
    fn takes(&self) -> Takes {
        Takes::Reports
    }
    fn deliver(&mut self, _: &Item) -> Result<(), SinkError> {
        Ok(())
    }
}

/// Datagrams with 24 records each of 100,000 flows.
fn of_format(format: &str, one_in: u16) -> Vec<Vec<u8>> {
    let udp = [0, 53, 0, 54, 0, 8, 0, 0];
    let datagram = |first: u32| {
        let flows: Vec<_> = (first..first + 24).map(flow4).collect();
        let set = Bytes::default().set(256, &records(&flows));
        let frames = flows.iter().map(|flow| {
            let ip = Bytes::default().put(&[0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0]);
            let ip = ip.address(flow.source).address(flow.destination).put(&udp);
            Bytes::default().put(&[0; 12]).put(&[8, 0]).put(&ip.0).put(&[0; 86]).0
        });
        let frames: Vec<_> = frames.collect();
        let samples = frames.iter().map(|header| Sample {
            expanded: false,
            one_in: u32::from(one_in),
            kind: 1,
            wire: 1000,
            header,
        });
        match format {
            "NetFlow 5" => netflow5(first, one_in, &flows),
            "NetFlow 9" => netflow9(first / 24, 1, &set),
            "IPFIX" => ipfix(first, 1, &set),
            _ => sflow(first / 24, &samples.collect::<Vec<_>>()),
        }
    };
    (0..100_000 / 24).map(|at| datagram(at * 24)).collect()
}

#[test]
#[ignore = "measures time: make bench runs it"]
fn records_per_second() {
    let collector = || {
        let mut collector = Collector::new(None);
        let templates = template(256, &FIELDS4);
        collector.take(ROUTER, &netflow9(0, 1, &Bytes::default().set(0, &templates)));
        collector.take(ROUTER, &ipfix(0, 1, &Bytes::default().set(2, &templates)));
        collector
    };
    for format in ["NetFlow 5", "NetFlow 9", "IPFIX", "sFlow 5"] {
        let (mut reader, datagrams) = (collector(), of_format(format, 1));
        let begin = Instant::now();
        for datagram in datagrams.iter().cycle().take(50 * datagrams.len()) {
            reader.take(ROUTER, datagram);
        }
        let read = reader.total().get(Count::Records) as f64 / begin.elapsed().as_secs_f64();
        print!("{format}: {:.2} million records/s read", read / 1e6);
        for (one_in, times) in [(1, 20), (100, 2), (1000, 1)] {
            let datagrams = of_format(format, one_in);
            let left = datagrams.len() * times;
            let mut source = Again { collector: collector(), datagrams, next: 0, left };
            let config = Config {
                epoch: EpochLength::Whole,
                tasks: Some(vec!["top".to_owned()]),
                memory_bytes: 256 << 20,
                ..Config::seeded(1)
            };
            let begin = Instant::now();
            run(Plan::new(config).unwrap(), &mut source, &mut Nowhere, &mut |_| {}).unwrap();
            let seconds = begin.elapsed().as_secs_f64();
            let [records, packets] = [Count::Records, Count::Packets]
                .map(|count| source.collector.total().get(count) as f64 / seconds / 1e6);
            print!(", measured 1 in {one_in}: {records:.3} ({packets:.0} million packets/s)");
        }
        println!();
    }
}
