//! What must hold for datagrams of flow records, whatever they say. Inputs are datagrams one after
//! another: the exporter and its port (a byte), the length (two bytes), the bytes.

use std::net::SocketAddr;

use flowgauge_core::packet::parse;
use flowgauge_engine::source::{Burst, Columns};
use flowgauge_records::{Collector, Count, MOST_PACKETS};

/// Packets of a datagram that are lent out one by one.
const FEW: u64 = 10_000;

/// Datagrams for a collector.
pub fn records(mut bytes: &[u8]) {
    let (mut collector, mut again) = (Collector::new(None), Collector::new(None));
    while let [exporter, high, low, rest @ ..] = bytes {
        let len = usize::from(u16::from_be_bytes([*high, *low])).min(rest.len());
        let (datagram, rest) = rest.split_at(len);
        bytes = rest;
        let from = SocketAddr::from(([192, 0, 2, exporter % 16], 2048 + u16::from(exporter / 16)));
        let before = collector.total().clone();
        collector.take(from, datagram);
        again.take(from, datagram);
        assert!(collector.lent().eq(again.lent()), "chance decides");
        let more = |count| collector.total().get(count) - before.get(count);
        let (mut records, mut packets, mut bytes) = (0, 0, 0);
        for lent in collector.lent() {
            assert!((1..=MOST_PACKETS).contains(&lent.packets) && lent.longer < lent.packets);
            let _ = parse(lent.link, lent.frame);
            records += 1;
            packets += lent.packets;
            bytes += lent.packets * u64::from(lent.wire) + lent.longer;
        }
        assert_eq!((records, packets), (more(Count::Records), more(Count::Packets)));
        if packets <= FEW {
            lend(&mut collector, packets, bytes);
        }
    }
    let sum: u64 = collector.accounts().map(|(_, account)| account.get(Count::Datagrams)).sum();
    assert_eq!(sum, collector.total().get(Count::Datagrams));
}

/// Bursts have so many packets and bytes, and end.
fn lend(collector: &mut Collector, mut packets: u64, mut bytes: u64) {
    let mut columns = Columns::default();
    while !collector.is_done() {
        let mut burst = Burst::new(&mut columns);
        collector.lend(&mut burst, 0);
        assert!(!burst.is_empty());
        packets -= burst.len() as u64;
        bytes -= burst.frames().wires().iter().map(|wire| u64::from(*wire)).sum::<u64>();
    }
    assert_eq!((packets, bytes), (0, 0));
}
