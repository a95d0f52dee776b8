//! An agent with a mock Kafka broker.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use flowgauge_agent::{Origin, run};
use flowgauge_synthetic::{Config, Traffic, to_pcap_bytes};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Headers, Message};
use rdkafka::mocking::MockCluster;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

/// A generous time limit.
const LONG: Duration = Duration::from_secs(20);

/// The snapshots below a folder.
fn snapshots(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { snapshots(&path, found) } else { found.push(path) }
    }
}

#[test]
fn every_report_and_snapshot_reaches_the_topic() {
    let folder = std::env::temp_dir().join(format!("flowgauge-agent-kafka-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir(&folder).unwrap();
    let config = Config { packets: 2000, rate: 2000, ..Config::default() };
    let capture = to_pcap_bytes(Traffic::new(config).unwrap());
    fs::write(folder.join("one.pcap"), capture).unwrap();
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic("flows", 1, 1).unwrap();
    let path = folder.join("agent.yaml");
    let text = format!(
        "agent: {{ name: edge, data: {0}/data }}\n\
         sources: [{{ replay: {0}/one.pcap, times: 1 }}]\n\
         measurements:\n\
         \x20 flows: {{ epoch: 250ms, tasks: [top], memory: 4MiB }}\n\
         \x20 hosts: {{ key: source, epoch: 500ms, tasks: [top], memory: 4MiB }}\n\
         sinks:\n\
         \x20 files: {{ path: {0}/reports.jsonl }}\n\
         \x20 kafka: {{ brokers: ['{1}'], topic: flows, what: [report, snapshot] }}\n",
        folder.display(),
        cluster.bootstrap_servers()
    );
    fs::write(&path, text).unwrap();
    run(&Origin { path, sets: Vec::new() }, &Vec::new, None).unwrap();
    let lines = fs::read_to_string(folder.join("reports.jsonl")).unwrap();
    let mut kept = Vec::new();
    snapshots(&folder.join("data/journal"), &mut kept);
    assert!(kept.len() >= 6, "{}", kept.len());

    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", cluster.bootstrap_servers()).set("group.id", "test");
    let consumer: BaseConsumer = config.create().unwrap();
    let mut partitions = TopicPartitionList::new();
    partitions.add_partition_offset("flows", 0, Offset::Beginning).unwrap();
    consumer.assign(&partitions).unwrap();
    let (mut reports, mut bytes) = (Vec::new(), BTreeMap::new());
    let begun = Instant::now();
    while reports.len() < lines.lines().count() || bytes.len() < kept.len() {
        assert!(begun.elapsed() < LONG, "{} reports, {} snapshots", reports.len(), bytes.len());
        let Some(Ok(message)) = consumer.poll(Duration::from_millis(100)) else { continue };
        let payload = message.payload().unwrap().to_vec();
        let headers = message.headers().unwrap().iter().map(|header| {
            let value = String::from_utf8(header.value.unwrap().to_vec()).unwrap();
            (header.key, value)
        });
        let headers: BTreeMap<_, _> = headers.collect();
        if headers["type"] == "snapshot" {
            let name = format!("{}-{}", headers["run"], headers["epoch"]);
            bytes.insert((headers["measurement"].clone(), name), payload);
        } else {
            reports.push((headers["id"].clone(), String::from_utf8(payload).unwrap()));
        }
    }
    let sent: Vec<_> = reports.iter().map(|(_, report)| &**report).collect();
    assert_eq!(sent, lines.lines().collect::<Vec<_>>());
    let ids: BTreeSet<_> = reports.iter().map(|(id, _)| id).collect();
    assert_eq!(ids.len(), reports.len(), "two reports have one id");
    // Journal files are named ...-RUN-EPOCH.fgs.
    for path in kept {
        let folders: Vec<_> = path.iter().rev().map(|name| name.to_string_lossy()).collect();
        let name = folders[0].strip_suffix(".fgs").unwrap().splitn(3, '-').nth(2).unwrap();
        let sent = &bytes[&(folders[2].clone().into_owned(), name.to_owned())];
        assert_eq!(*sent, fs::read(&path).unwrap());
        let run_and_epoch = name.replacen('-', "/", 1);
        let id = format!("epoch/{}/{run_and_epoch}", folders[2]);
        assert!(ids.contains(&id), "no report of the snapshot {id}");
    }
    fs::remove_dir_all(folder).unwrap();
}
