//! Ports of virtual devices, as any user and without huge pages. DPDK starts once in a process, so
//! this is one test.
#![cfg(feature = "dpdk")]
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::{env, fs};

use flowgauge_dpdk::{Dpdk, PortOptions, open};
use flowgauge_engine::source::{Burst, Columns, CounterKind, Source};

/// A capture of so many packets of 60 bytes.
fn pcap(packets: usize) -> Vec<u8> {
    let words =
        |words: &[u32]| -> Vec<u8> { words.iter().flat_map(|word| word.to_le_bytes()).collect() };
    let packet = [words(&[0, 0, 60, 60]), vec![0; 60]].concat();
    [words(&[0xa1b2_c3d4, 2 | 4 << 16, 0, 0, 65535, 1]), packet.repeat(packets)].concat()
}

#[test]
fn a_port_has_the_buffers_that_it_needs_and_tells_losses_from_failed_allocations() {
    let capture = env::temp_dir().join(format!("flowgauge-ports-{}.pcap", std::process::id()));
    fs::write(&capture, pcap(5_000)).unwrap();
    let arguments = format!(
        "--no-huge -m 160 -n 1 --no-pci --no-telemetry --no-shconf --vdev=net_pcap0,rx_pcap={} \
         --vdev=net_null0",
        capture.display()
    );
    let arguments: Vec<_> = arguments.split(' ').map(str::to_owned).collect();
    let dpdk = Dpdk::start(&arguments).unwrap();
    // 64 KiB hold 28 packets, fewer than the cache of the pool allows.
    let options = PortOptions { queues: 1, ring_bytes: 64 << 10, promiscuous: false };
    let open = |name: &str| {
        let (ports, stop) = ([(name.to_owned(), None)], Arc::<AtomicBool>::default());
        open(&dpdk, &ports, &options, &stop).unwrap().pop().unwrap()
    };
    let (mut pcap, null) = (open("net_pcap0"), open("net_null0"));
    let mut read = 0;
    for _ in 0..1_000 {
        let mut columns = Columns::default();
        let mut burst = Burst::new(&mut columns);
        assert!(pcap.poll(&mut burst).unwrap());
        read += burst.len();
    }
    fs::remove_file(&capture).unwrap();
    assert_eq!(read, 5_000);
    let kind = |port: &dyn Source| {
        let counters = port.counters();
        counters.iter().find(|counter| counter.name == "no_buffers").unwrap().kind
    };
    assert!(matches!(kind(&pcap), CounterKind::Lost));
    assert!(matches!(kind(&null), CounterKind::Other));
}
