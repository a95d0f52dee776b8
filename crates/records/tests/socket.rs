//! The source behind a UDP port of the loopback interface.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "formats/datagrams.rs"]
mod datagrams;

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use datagrams::{Bytes, FIELDS4, flow4, ipfix, netflow5, records, template};
use flowgauge_engine::source::{Burst, Columns, Source};
use flowgauge_records::{KeptPorts, Records};

/// A free port.
fn free() -> std::net::SocketAddr {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// Polls until the source ends, or has lent out so many packets. Returns how many it has.
fn read(source: &mut Records, most: u64) -> u64 {
    let (mut packets, mut columns) = (0, Columns::default());
    while packets < most {
        let mut burst = Burst::new(&mut columns);
        if !source.poll(&mut burst).unwrap() {
            break;
        }
        packets += burst.len() as u64;
    }
    packets
}

fn counter(source: &Records, name: &str) -> u64 {
    source.counters().iter().find(|counter| counter.name == name).unwrap().count
}

/// All packets count that came before the stop flag was set.
#[test]
fn what_has_come_counts_at_the_end() {
    let (at, stop) = (free(), Arc::new(AtomicBool::new(false)));
    let mut source = Records::bind(at, None, |_| {}, &stop, &KeptPorts::default()).unwrap();
    let exporter = UdpSocket::bind("127.0.0.1:0").unwrap();
    let flows: Vec<_> = (0..20).map(flow4).collect();
    for number in 0..10 {
        exporter.send_to(&netflow5(20 * number, 100, &flows), at).unwrap();
    }
    assert_eq!(read(&mut source, 256), 256);
    stop.store(true, Ordering::Relaxed);
    let one = flows.iter().map(|flow| u64::from(flow.packets) * 100).sum::<u64>();
    assert_eq!(256 + read(&mut source, u64::MAX), 10 * one);
    assert_eq!(counter(&source, "record_packets_lost"), 0);
}

/// Packets for which there is no time at the end are counted as lost.
#[test]
fn what_takes_too_long_at_the_end_is_lost() {
    let (at, stop) = (free(), Arc::new(AtomicBool::new(false)));
    let mut source = Records::bind(at, Some(10_000_000), |_| {}, &stop, &KeptPorts::default());
    let source = source.as_mut().unwrap();
    UdpSocket::bind("127.0.0.1:0")
        .and_then(|exporter| exporter.send_to(&netflow5(0, 0, &[flow4(0)]), at))
        .unwrap();
    let mut read_packets = read(source, 256);
    stop.store(true, Ordering::Relaxed);
    read_packets += read(source, 256);
    // A slow summary.
    std::thread::sleep(std::time::Duration::from_millis(1100));
    read_packets += read(source, u64::MAX);
    assert_eq!(read_packets, 512);
    let all = u64::from(flow4(0).packets) * 10_000_000;
    assert_eq!(counter(source, "record_packets"), all);
    assert_eq!(counter(source, "record_packets_lost"), all - read_packets);
}

/// The next source at an address goes on where the one before has ended.
#[test]
fn a_port_is_kept_with_its_templates() {
    let (at, kept) = (free(), KeptPorts::default());
    let bind = |sampling| {
        Records::bind(at, sampling, |_| {}, &Arc::<AtomicBool>::default(), &kept).unwrap()
    };
    let exporter = UdpSocket::bind("127.0.0.1:0").unwrap();
    let packets = u64::from(flow4(4).packets);
    let sets = |sets: Bytes| sets.set(256, &records(&[flow4(4)]));
    let (first, data) = (Bytes::default().set(2, &template(256, &FIELDS4)), Bytes::default());
    let mut source = bind(None);
    exporter.send_to(&ipfix(0, 1, &sets(first)), at).unwrap();
    assert_eq!(read(&mut source, packets), packets);
    // Arrives between the two sources.
    exporter.send_to(&ipfix(1, 1, &sets(data.clone())), at).unwrap();
    drop(source);
    let mut source = bind(None);
    assert_eq!(read(&mut source, packets), packets);
    let counts = ["records", "records_unknown_template", "records_lost"];
    assert_eq!(counts.map(|name| counter(&source, name)), [1, 0, 0]);
    drop(source);
    kept.keep(&[at]);
    let mut source = bind(Some(2));
    exporter.send_to(&ipfix(2, 1, &sets(data.clone())), at).unwrap();
    assert_eq!(read(&mut source, 2 * packets), 2 * packets);
    drop(source);
    kept.keep(&[]);
    let mut source = bind(None);
    exporter.send_to(&ipfix(3, 1, &sets(data)), at).unwrap();
    let mut columns = Columns::default();
    while counter(&source, "record_datagrams") == 0 {
        assert!(source.poll(&mut Burst::new(&mut columns)).unwrap());
    }
    assert_eq!(counter(&source, "records_unknown_template"), 1);
}

/// What the kernel drops is counted, also where sequence numbers say nothing of it.
#[test]
fn datagrams_that_the_kernel_drops_are_counted() {
    const SENT: u64 = 60_000;
    let (at, kept) = (free(), KeptPorts::default());
    let bind = || Records::bind(at, None, |_| {}, &Arc::<AtomicBool>::default(), &kept).unwrap();
    let exporter = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut source = bind();
    let flood = |source: &mut Records| {
        // Always the same number: a repetition, but no gap.
        (0..SENT).for_each(|_| {
            exporter.send_to(&netflow5(0, 0, &[]), at).unwrap();
        });
        let arrived = |source: &Records| counter(source, "record_datagrams");
        let (mut columns, mut last) = (Columns::default(), u64::MAX);
        while last != arrived(source) {
            last = arrived(source);
            for _ in 0..3 {
                assert!(source.poll(&mut Burst::new(&mut columns)).unwrap());
            }
        }
        // The kernel tells its count with the next datagram.
        exporter.send_to(&netflow5(0, 0, &[]), at).unwrap();
        while last == arrived(source) {
            assert!(source.poll(&mut Burst::new(&mut columns)).unwrap());
        }
        let (arrived, dropped) =
            (counter(source, "record_datagrams"), counter(source, "records_dropped_datagrams"));
        assert!(dropped > 0, "{arrived} datagrams arrived");
        assert_eq!(arrived + dropped, SENT + 1);
        assert_eq!(counter(source, "records_lost"), 0);
    };
    flood(&mut source);
    // The next source of the port counts from zero.
    drop(source);
    flood(&mut bind());
}
