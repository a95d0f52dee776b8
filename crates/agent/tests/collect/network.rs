//! A network of agents, and the snapshots they send.

use std::collections::BTreeMap;
use std::sync::Arc;

use flowgauge_agent::collect::{Ask, Collector, Fed, Known, Limits, Message};
use flowgauge_capture::Captures;
use flowgauge_core::key::KeyKind;
use flowgauge_core::task::Report;
use flowgauge_engine::report::{EpochReport, Network};
use flowgauge_engine::sink::{Item, Sink, SinkError};
use flowgauge_engine::snapshot::{Saved, Snapshot};
use flowgauge_engine::{Config, EpochLength, Plan, run};
use flowgauge_kernel::Seed;

pub(crate) const SECOND: i64 = 1_000_000_000;

/// The length of epochs.
pub(crate) const LENGTH: i64 = 10 * SECOND;

/// Start of the first epoch.
pub(crate) const START: i64 = 1_700_000_000 * SECOND;

pub(crate) const LIMITS: Limits =
    Limits { delay_ns: 30 * SECOND, keep_ns: 300 * SECOND, memory_bytes: 1 << 30 };

/// The seed in the file that all agents share.
pub(crate) fn seed() -> Seed {
    Seed::file(&[7; 64]).unwrap()
}

/// The measurement of all agents.
pub(crate) fn flows() -> Config {
    Config {
        name: "flows".to_owned(),
        key: KeyKind::SOURCE.into(),
        memory_bytes: 256 << 10,
        tasks: Some(vec!["top".to_owned()]),
        epoch: EpochLength::Time(LENGTH),
        seed: Some(seed()),
        save: true,
        ..Config::default()
    }
}

/// A packet: its time, and the last part of its source address.
pub(crate) type Packet = (i64, u16);

/// A capture of these packets.
pub(crate) fn capture(packets: &[Packet]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for field in [0xa1b2_3c4d_u32, 0x0004_0002, 0, 0, 65535, 1] {
        bytes.extend(field.to_le_bytes());
    }
    for (time_ns, source) in packets {
        let mut frame = [0; 42];
        frame[12] = 8;
        frame[14] = 0x45;
        frame[17] = 28;
        (frame[22], frame[23]) = (64, 17);
        frame[26..30].copy_from_slice(&address(*source));
        frame[30..34].copy_from_slice(&[10, 9, 9, 9]);
        frame[39] = 8;
        let (seconds, ns) = (time_ns.div_euclid(SECOND), time_ns.rem_euclid(SECOND));
        for field in [u32::try_from(seconds).unwrap(), u32::try_from(ns).unwrap(), 42, 42] {
            bytes.extend(field.to_le_bytes());
        }
        bytes.extend(frame);
    }
    bytes
}

fn address(source: u16) -> [u8; 4] {
    let [high, low] = source.to_be_bytes();
    [10, 0, high, low]
}

/// A sink that keeps snapshots.
#[derive(Default)]
struct Keep(Vec<Arc<Saved>>);

impl Sink for Keep {
    fn deliver(&mut self, item: &Item) -> Result<(), SinkError> {
        if let Item::Snapshot(saved) = item {
            self.0.push(Arc::clone(saved));
        }
        Ok(())
    }
}

/// The snapshots of a run on these packets.
pub(crate) fn measure(config: &Config, packets: &[Packet]) -> Vec<Arc<Saved>> {
    let mut source = Captures::from_bytes("test.pcap", capture(packets));
    let mut keep = Keep::default();
    run(Plan::new(config.clone()).unwrap(), &mut source, &mut keep, &mut |_| {}).unwrap();
    keep.0
}

/// A message of an agent.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) agent: String,
    pub(crate) id: String,
    pub(crate) start_ns: i64,
    pub(crate) bytes: Vec<u8>,
}

impl Sent {
    pub(crate) fn new(agent: &str, saved: &Saved) -> Self {
        let Saved { measurement, run, epoch, bounds_ns, bytes, .. } = saved;
        Self {
            agent: agent.to_owned(),
            id: format!("snapshot/{measurement}/{run:016x}/{epoch}"),
            start_ns: bounds_ns.0,
            bytes: bytes.clone(),
        }
    }

    pub(crate) fn message(&self, offset: i64) -> Message<'_> {
        let Self { agent, id, start_ns, bytes } = self;
        Message { partition: 0, offset, agent, id, of: Some(("flows", *start_ns)), bytes }
    }
}

/// An agent's snapshots of the first epochs. In each, every address sends a packet at the start and
/// at the end. One more packet ends the last epoch; its own epoch is ignored.
pub(crate) fn snapshots(agent: &str, config: &Config, epochs: u32, sources: &[u16]) -> Vec<Sent> {
    let mut packets: Vec<Packet> = Vec::new();
    for epoch in 0..epochs {
        let start_ns = START + i64::from(epoch) * LENGTH;
        packets.extend(sources.iter().map(|source| (start_ns, *source)));
        packets.extend(sources.iter().map(|source| (start_ns + LENGTH - 1, *source)));
    }
    packets.push((START + i64::from(epochs) * LENGTH, 0));
    let mut sent: Vec<_> =
        measure(config, &packets).iter().map(|saved| Sent::new(agent, saved)).collect();
    assert_eq!(sent.len(), epochs as usize + 1);
    sent.pop();
    sent
}

/// A collector of `flows`, and the reports it has emitted.
pub(crate) struct Watched {
    pub(crate) collector: Collector,
    pub(crate) reports: Vec<EpochReport>,
    /// The merged snapshots, as reported.
    pub(crate) sums: Vec<Vec<u8>>,
    next: i64,
}

impl Watched {
    pub(crate) fn new(limits: Limits, known: Known) -> Self {
        let ask = Ask { tasks: Some(vec!["top".to_owned()]), top: Some(100_000) };
        let asks = [("flows".to_owned(), ask)];
        let mut collector = Collector::new(limits, Some(seed()), asks, known);
        collector.assign(0, "");
        Self { collector, reports: Vec::new(), sums: Vec::new(), next: 0 }
    }

    /// A collector that waits for these agents.
    pub(crate) fn of(agents: &[&str]) -> Self {
        Self::new(LIMITS, listed(agents))
    }

    /// Processes a message read at `now_ns`, and reports complete epochs.
    pub(crate) fn feed(&mut self, sent: &Sent, now_ns: i64) -> Fed {
        self.next += 1;
        let fed = self.collector.feed(&sent.message(self.next - 1), now_ns);
        let (reports, sums) = (&mut self.reports, &mut self.sums);
        let mut emit = |report: EpochReport, sum: &Snapshot| {
            reports.push(report);
            sums.push(sum.encode());
        };
        self.collector.close_complete(now_ns, &mut emit).unwrap();
        fed
    }

    /// Reports what is due at `now_ns`.
    pub(crate) fn advance(&mut self, now_ns: i64) {
        let (reports, sums) = (&mut self.reports, &mut self.sums);
        let mut emit = |report: EpochReport, sum: &Snapshot| {
            reports.push(report);
            sums.push(sum.encode());
        };
        self.collector.advance(now_ns, &mut emit).unwrap();
    }

    /// The completeness of the last report.
    pub(crate) fn last(&self) -> &Network {
        network(self.reports.last().unwrap())
    }

    /// Agents and fields of the snapshots left out of the last report.
    pub(crate) fn left_out(&self) -> Vec<(&str, &str)> {
        self.last().left_out.iter().map(|one| (&*one.agent, one.field)).collect()
    }
}

pub(crate) fn listed(agents: &[&str]) -> Known {
    Known::Listed(agents.iter().map(|agent| (*agent).into()).collect())
}

pub(crate) fn network(report: &EpochReport) -> &Network {
    report.network.as_ref().unwrap()
}

/// Packets by address in a report.
pub(crate) fn sizes(report: &EpochReport) -> BTreeMap<Vec<u8>, u64> {
    let (_, Report::Sizes { items, truncated, .. }) = &report.tasks[0] else { panic!("no top") };
    assert_eq!(*truncated, 0);
    let size = |item: &flowgauge_core::task::SizeItem| {
        let packets = item.size.packets.unwrap();
        assert!(packets.low >= packets.value && packets.high <= packets.value, "exact");
        (item.key.as_bytes().to_vec(), packets.value as u64)
    };
    items.iter().map(size).collect()
}

/// Packets by address in an epoch, counted one by one.
pub(crate) fn union(packets: impl IntoIterator<Item = u16>) -> BTreeMap<Vec<u8>, u64> {
    let mut union = BTreeMap::new();
    for source in packets {
        *union.entry(address(source).to_vec()).or_default() += 1;
    }
    union
}
