//! Tests of both sinks with librdkafka's mock brokers.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use flowgauge_engine::Pace;
use flowgauge_engine::report::{Gap, TotalReport};
use flowgauge_engine::sink::{Item, Outlets, Sink, SinkError, rfc3339};
use flowgauge_engine::snapshot::Saved;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Headers, Message};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};

use super::producer::Producer;
use super::sinks::{Positions, Reports, Snapshots};
use super::{Options, What};
use crate::lines::Lines;

/// A generous time limit.
const LONG: Duration = Duration::from_secs(20);

type Cluster = MockCluster<'static, DefaultProducerContext>;

/// A broker with a topic of several partitions.
fn cluster() -> Cluster {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic("flows", 3, 1).unwrap();
    cluster
}

fn producer(cluster: &Cluster) -> Producer {
    let options = Options {
        brokers: cluster.bootstrap_servers().split(',').map(str::to_owned).collect(),
        topic: "flows".to_owned(),
        what: vec![What::Report, What::Snapshot],
        anonymize: None,
        tls: None,
        sasl: None,
    };
    Producer::new(&options, "test", "edge").unwrap()
}

fn reports(cluster: &Cluster) -> Reports {
    Reports::new(producer(cluster), Lines::new("edge", "c0de", None), "c0de")
}

/// An agent's folder, removed at the end.
struct Data(PathBuf);

impl Data {
    fn new(name: &str) -> Self {
        let name = format!("flowgauge-kafka-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    /// Stores an epoch in the journal.
    fn keep(&self, item: &Item) {
        let Item::Snapshot(saved) = item else { panic!("no snapshot") };
        let (start_ns, end_ns) = saved.bounds_ns;
        let day = self.0.join("journal").join(&saved.measurement).join(&rfc3339(start_ns)[..10]);
        fs::create_dir_all(&day).unwrap();
        let (length_ns, run, epoch) = (end_ns - start_ns, saved.run, saved.epoch);
        let name = format!("{start_ns}-{length_ns}-{run:016x}-{epoch}.fgs");
        fs::write(day.join(name), &saved.bytes).unwrap();
    }

    fn sink(&self, cluster: &Cluster, stop: &Arc<AtomicBool>) -> Snapshots {
        let positions = Positions::open(&self.0).unwrap();
        Snapshots::new(producer(cluster), positions, self.0.join("journal"), "c0de", stop)
    }
}

impl Drop for Data {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn gap(epoch: u64) -> Item {
    let (measurement, run) = ("main".into(), Some(0xab));
    Item::Gap(Gap { measurement, run, epoch, epochs: 2, start_ns: 0, end_ns: 1_000_000_000 })
}

/// An epoch of one second, after all epochs of the previous run.
fn snapshot(run: u64, epoch: u64, bytes: usize) -> Item {
    let start_ns = (100 * run + epoch).cast_signed() * 1_000_000_000;
    Item::Snapshot(Arc::new(Saved {
        measurement: "main".to_owned(),
        run,
        epoch,
        bounds_ns: (start_ns, start_ns + 1_000_000_000),
        is_secret: false,
        bytes: vec![epoch as u8; bytes],
    }))
}

#[derive(Debug)]
struct Read {
    key: Vec<u8>,
    partition: i32,
    headers: BTreeMap<String, String>,
    payload: Vec<u8>,
}

/// The records of the topic, once there are at least `wanted`.
fn read(cluster: &Cluster, wanted: usize) -> Vec<Read> {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", cluster.bootstrap_servers()).set("group.id", "test");
    let consumer: BaseConsumer = config.create().unwrap();
    let mut partitions = TopicPartitionList::new();
    for partition in 0..3 {
        partitions.add_partition_offset("flows", partition, Offset::Beginning).unwrap();
    }
    consumer.assign(&partitions).unwrap();
    let (mut records, begun) = (Vec::new(), Instant::now());
    while records.len() < wanted {
        assert!(begun.elapsed() < LONG, "{} of {wanted} records", records.len());
        let Some(Ok(message)) = consumer.poll(Duration::from_millis(100)) else { continue };
        let headers = message.headers().unwrap().iter().map(|header| {
            let value = String::from_utf8(header.value.unwrap().to_vec()).unwrap();
            (header.key.to_owned(), value)
        });
        records.push(Read {
            key: message.key().unwrap().to_vec(),
            partition: message.partition(),
            headers: headers.collect(),
            payload: message.payload().unwrap().to_vec(),
        });
    }
    records
}

/// The distinct ids of records, in order of first appearance.
fn ids(records: &[Read]) -> Vec<&str> {
    let mut ids: Vec<&str> = Vec::new();
    for record in records {
        let id = &*record.headers["id"];
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    ids
}

/// Delivers an item repeatedly until it is acknowledged.
fn insist(sink: &mut dyn Sink, item: &Item) {
    let begun = Instant::now();
    while let Err(error) = sink.deliver(item) {
        assert!(begun.elapsed() < LONG, "{error}");
    }
}

#[test]
fn records_carry_the_name_of_the_agent_and_an_id() {
    let (cluster, data) = (cluster(), Data::new("id"));
    let mut sink = reports(&cluster);
    sink.deliver(&gap(5)).unwrap();
    let total = TotalReport { run: Some(0xab), ..TotalReport::new("main".into()) };
    sink.deliver(&Item::Total(Arc::new(total))).unwrap();
    let mut sink = data.sink(&cluster, &Arc::default());
    sink.deliver(&snapshot(0xab, 7, 3)).unwrap();
    // Snapshots of one epoch share a key, and thus a partition, whatever the agent.
    let mut records = read(&cluster, 3);
    let keys =
        BTreeMap::from([("gap", "edge"), ("total", "edge"), ("snapshot", "main/17107000000000")]);
    for record in &records {
        assert_eq!(record.key, keys[&*record.headers["type"]].as_bytes());
        assert_eq!(record.headers["agent"], "edge");
    }
    records.sort_by_key(|record| record.headers["type"] == "snapshot");
    assert_eq!(records[0].partition, records[1].partition);
    let headers: Vec<Vec<_>> = records
        .iter()
        .map(|record| {
            let others = record.headers.iter().filter(|(key, _)| *key != "agent");
            others.map(|(key, value)| format!("{key}={value}")).collect()
        })
        .collect();
    let run = "run=00000000000000ab";
    let json = ["configuration=c0de", "content-type=application/json"];
    assert_eq!(
        headers[0],
        [json[0], json[1], "epoch=5", "id=gap/main/00000000000000ab/5", "measurement=main", run]
            .iter()
            .chain(["type=gap"].iter())
            .copied()
            .collect::<Vec<_>>()
    );
    assert_eq!(
        headers[1],
        [json[0], json[1], "id=total/main/00000000000000ab", "measurement=main", run, "type=total"]
    );
    assert_eq!(headers[2][1], "content-type=application/octet-stream");
    assert_eq!(headers[2][4], "id=snapshot/main/00000000000000ab/7");
    assert_eq!(records[2].payload, [7; 3]);
    let object: serde_json::Value = serde_json::from_slice(&records[0].payload).unwrap();
    assert_eq!((&object["type"], &object["configuration"]), (&"gap".into(), &"c0de".into()));
    assert_eq!(records[0].payload.last(), Some(&b'}'));
}

#[test]
fn unacknowledged_messages_are_errors_until_brokers_come_back() {
    let cluster = cluster();
    let mut sink = reports(&cluster);
    sink.deliver(&gap(0)).unwrap();
    cluster.broker_down(1).unwrap();
    let begun = Instant::now();
    let error = sink.deliver(&gap(1)).unwrap_err();
    assert!(matches!(error, SinkError::Write { .. }), "{error}");
    assert!(error.to_string().contains("the Kafka topic flows at 127.0.0.1:"), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(9), "{:?}", begun.elapsed());
    cluster.broker_up(1).unwrap();
    insist(&mut sink, &gap(1));
    sink.deliver(&gap(2)).unwrap();
    let records = read(&cluster, 3);
    let expected: Vec<_> =
        (0..3).map(|epoch| format!("gap/main/00000000000000ab/{epoch}")).collect();
    assert_eq!(ids(&records), expected);
}

#[test]
fn a_topic_that_is_not_there_is_named() {
    let cluster = MockCluster::new(1).unwrap();
    let missing = RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART;
    cluster.topic_error("flows", missing).unwrap();
    let mut sink = reports(&cluster);
    let error = sink.deliver(&gap(0)).unwrap_err().to_string();
    assert!(error.ends_with("(test): Broker: Unknown topic or partition"), "{error}");
    cluster.topic_error("flows", RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR).unwrap();
    insist(&mut sink, &gap(0));
}

/// As when a user may not write.
#[test]
fn a_client_that_cannot_go_on_is_replaced() {
    let cluster = cluster();
    cluster.request_errors(
        RDKafkaApiKey::InitProducerId,
        &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED],
    );
    let mut sink = reports(&cluster);
    let error = sink.deliver(&gap(0)).unwrap_err();
    assert!(matches!(error, SinkError::Write { .. }), "{error}");
    insist(&mut sink, &gap(0));
    assert_eq!(ids(&read(&cluster, 1)).len(), 1);
}

#[test]
fn a_record_that_is_too_large_is_left_out_and_counted() {
    let cluster = cluster();
    let mut outlets = Outlets::new(Pace::Live, vec![Box::new(reports(&cluster))]).unwrap();
    outlets.deliver(&gap(0)).unwrap();
    read(&cluster, 1);
    cluster.request_errors(
        RDKafkaApiKey::Produce,
        &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE],
    );
    outlets.deliver(&gap(1)).unwrap();
    outlets.deliver(&gap(2)).unwrap();
    let endings = outlets.finish(LONG);
    assert!(endings[0].error.is_none(), "{:?}", endings[0].error);
    assert_eq!(endings[0].undelivered, 1);
    assert_eq!(ids(&read(&cluster, 2)).last(), Some(&"gap/main/00000000000000ab/2"));
}

#[test]
fn nothing_waits_for_a_broker_that_is_slow_or_away_and_losses_are_counted() {
    let (slow, away, data) = (cluster(), cluster(), Data::new("slow"));
    slow.broker_round_trip_time(1, Duration::from_millis(200)).unwrap();
    away.broker_down(1).unwrap();
    let stop = Arc::default();
    let sinks: Vec<Box<dyn Sink>> =
        vec![Box::new(reports(&slow)), Box::new(data.sink(&away, &stop))];
    let mut outlets = Outlets::new(Pace::Live, sinks).unwrap();
    let begun = Instant::now();
    for epoch in 0..5 {
        outlets.deliver(&gap(epoch)).unwrap();
    }
    // Twice what a queue holds.
    for epoch in 0..32 {
        outlets.deliver(&snapshot(1, epoch, 1 << 20)).unwrap();
    }
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    let begun = Instant::now();
    let endings = outlets.finish(Duration::from_secs(5));
    assert!(begun.elapsed() < Duration::from_secs(6), "{:?}", begun.elapsed());
    assert_eq!(endings[0].undelivered, 0);
    assert_eq!(endings[1].undelivered, 32);
    assert_eq!(ids(&read(&slow, 5)).len(), 5);
}

#[test]
fn snapshots_that_were_missed_come_from_the_journal_also_after_a_restart() {
    let (cluster, data) = (cluster(), Data::new("resume"));
    let stop = Arc::<AtomicBool>::default();
    // Epochs before the first one are not sent.
    data.keep(&snapshot(1, 0, 10));
    let mut sink = data.sink(&cluster, &stop);
    for epoch in 1..3 {
        data.keep(&snapshot(1, epoch, 10));
        sink.deliver(&snapshot(1, epoch, 10)).unwrap();
    }
    // The queue had no room for epochs 3 and 4.
    for epoch in 3..9 {
        data.keep(&snapshot(1, epoch, 10));
    }
    sink.deliver(&snapshot(1, 5, 10)).unwrap();
    // Epochs 6 to 8 were queued when the agent was killed.
    drop(sink);
    let mut sink = data.sink(&cluster, &stop);
    stop.store(true, Ordering::Relaxed);
    let error = sink.deliver(&snapshot(2, 0, 10)).unwrap_err();
    assert!(error.to_string().contains("the next run sends them"), "{error}");
    stop.store(false, Ordering::Relaxed);
    sink.deliver(&snapshot(2, 0, 10)).unwrap();
    let mut records = read(&cluster, 9);
    records.sort_by_key(|record| record.headers["start"].parse::<i64>().unwrap());
    let expected: Vec<_> = (1..9)
        .map(|epoch| format!("snapshot/main/0000000000000001/{epoch}"))
        .chain(["snapshot/main/0000000000000002/0".to_owned()])
        .collect();
    let ids: Vec<_> = records.iter().map(|record| &*record.headers["id"]).collect();
    assert_eq!(ids, expected);
    // Records from the journal also carry the end of their epoch.
    for record in &records {
        let [start_ns, end_ns]: [i64; 2] =
            ["start", "end"].map(|of| record.headers[of].parse().unwrap());
        assert_eq!(end_ns, start_ns + 1_000_000_000);
    }
    // The configuration of an earlier run is not known.
    let of_known = records.iter().filter(|record| record.headers.contains_key("configuration"));
    assert_eq!(of_known.count(), 4);
}
