//! An agent that exports to an IPFIX collector.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::net::UdpSocket;
use std::time::Duration;

use flowgauge_agent::{Origin, run};
use flowgauge_synthetic::{Config, Traffic, to_pcap_bytes};

#[test]
fn every_epoch_reaches_the_collector_that_the_file_names() {
    let folder = std::env::temp_dir().join(format!("flowgauge-agent-ipfix-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir(&folder).unwrap();
    let config = Config { packets: 2000, rate: 2000, ..Config::default() };
    let capture = to_pcap_bytes(Traffic::new(config).unwrap());
    fs::write(folder.join("one.pcap"), capture).unwrap();
    let collector = UdpSocket::bind("127.0.0.1:0").unwrap();
    let path = folder.join("agent.yaml");
    let text = format!(
        "agent: {{ data: {0}/data }}\n\
         sources: [{{ replay: {0}/one.pcap, times: 1 }}]\n\
         measurements:\n\
         \x20 flows: {{ epoch: 250ms, tasks: [top], memory: 4MiB }}\n\
         sinks:\n\
         \x20 ipfix: {{ to: 'udp://{1}', domain: 9 }}\n",
        folder.display(),
        collector.local_addr().unwrap()
    );
    fs::write(&path, text).unwrap();
    run(&Origin { path, sets: Vec::new() }, &Vec::new, None).unwrap();
    collector.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let mut message = [0; 1500];
    let mut messages = 0;
    while let Ok(len) = collector.recv(&mut message) {
        assert_eq!(message[..2], [0, 10]);
        assert_eq!(usize::from(u16::from_be_bytes([message[2], message[3]])), len);
        assert_eq!(message[12..16], [0, 0, 0, 9]);
        messages += 1;
    }
    // At least one per epoch.
    assert!(messages >= 4, "{messages}");
    fs::remove_dir_all(folder).unwrap();
}
