//! Agents and collectors with a mock Kafka broker.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]
#![expect(dead_code, reason = "other tests use more of the network")]

#[path = "collect/network.rs"]
mod network;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use flowgauge_agent::{Failure, Origin, collect, run};
use flowgauge_synthetic::{Config, Traffic, to_pcap_bytes};
use network::{Sent, flows, snapshots};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Header, Headers, Message, OwnedHeaders};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{BaseProducer, BaseRecord, DefaultProducerContext, Producer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rusty_fork::rusty_fork_test;
use serde_json::Value;
use signal_hook::consts::{SIGHUP, SIGTERM};
use signal_hook::low_level::raise;

/// A generous time limit.
const LONG: Duration = Duration::from_secs(30);

/// The snapshots below a folder.
fn snapshot_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { snapshot_files(&path, found) } else { found.push(path) }
    }
}

fn send_every_report_and_snapshot() {
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
    snapshot_files(&folder.join("data/journal"), &mut kept);
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

// Tests of collectors with a mock Kafka broker.

type Cluster = MockCluster<'static, DefaultProducerContext>;

/// A broker, and the folder of collectors.
struct Setting {
    cluster: Cluster,
    folder: PathBuf,
}

impl Setting {
    fn new(name: &str) -> Self {
        let name = format!("flowgauge-collect-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        let seed = folder.join("seed");
        fs::write(&seed, [7; 64]).unwrap();
        fs::set_permissions(&seed, Permissions::from_mode(0o600)).unwrap();
        let cluster = MockCluster::new(1).unwrap();
        cluster.create_topic("flows", 4, 1).unwrap();
        Self { cluster, folder }
    }

    /// Sends these messages to the topic, each epoch to one partition.
    fn send(&self, all: &[Sent]) {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", self.cluster.bootstrap_servers());
        let producer: BaseProducer = config.create().unwrap();
        for Sent { agent, id, start_ns, bytes } in all {
            let start = start_ns.to_string();
            let texts = [
                ("type", "snapshot"),
                ("agent", agent),
                ("id", id),
                ("measurement", "flows"),
                ("start", &start),
            ];
            let headers = texts.iter().fold(OwnedHeaders::new(), |headers, (key, value)| {
                headers.insert(Header { key, value: Some(*value) })
            });
            let key = format!("flows/{start_ns}");
            let record = BaseRecord::to("flows").key(&key).payload(bytes).headers(headers);
            producer.send(record).map_err(|(error, _)| error).unwrap();
        }
        producer.flush(LONG).unwrap();
    }

    /// Starts a collector with this name.
    fn collector(&self, name: &str, more: &str) -> Collector {
        let (folder, brokers) = (self.folder.display(), self.cluster.bootstrap_servers());
        let text = format!(
            "collect: {{ name: {name}, data: {folder}/{name}, seed: {folder}/seed, delay: 2s{more} }}\n\
             kafka: {{ brokers: ['{brokers}'], topic: flows }}\n\
             measurements: {{ flows: {{ tasks: [top], top: 1000 }} }}\n\
             sinks: {{ files: {{ path: {folder}/{name}.jsonl }} }}\n"
        );
        let path = self.folder.join(format!("{name}.yaml"));
        fs::write(&path, text).unwrap();
        let origin = Origin { path, sets: Vec::new() };
        let run = move || collect::run(&origin, &Vec::new, None);
        let reports = self.folder.join(format!("{name}.jsonl"));
        Collector { reports, thread: thread::spawn(run) }
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A running collector.
struct Collector {
    reports: PathBuf,
    thread: JoinHandle<Result<(), Failure>>,
}

impl Collector {
    /// Its reports, once they satisfy `is_so`.
    fn wait(&self, what: &str, is_so: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        let begun = Instant::now();
        loop {
            let reports = reports(&self.reports);
            if is_so(&reports) {
                return reports;
            }
            assert!(begun.elapsed() < LONG && !self.thread.is_finished(), "{what}: {reports:?}");
            thread::sleep(Duration::from_millis(50));
        }
    }

    fn end(self) {
        raise(SIGTERM).unwrap();
        self.thread.join().unwrap().unwrap();
    }
}

fn reports(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let whole = &text[..text.rfind('\n').map_or(0, |end| end + 1)];
    whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The number of reports by id.
fn ids(reports: &[Value]) -> BTreeMap<String, usize> {
    let mut ids = BTreeMap::new();
    for report in reports {
        *ids.entry(report["network"]["id"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    ids
}

/// The snapshots of agents over these epochs.
fn network_of(agents: &[&str], epochs: u32) -> Vec<Sent> {
    let mut all: Vec<_> =
        agents.iter().flat_map(|agent| snapshots(agent, &flows(), epochs, &[1, 2])).collect();
    all.sort_by_key(|sent| sent.start_ns);
    all
}

fn correct_and_restart() {
    let setting = Setting::new("restart");
    let sent = network_of(&["a", "b", "c"], 6);
    setting.send(&sent[..17]);
    // Sent again, as if the broker had not acknowledged it.
    setting.send(&sent[..3]);
    setting.send(&[Sent { bytes: b"garbage".to_vec(), agent: "d".to_owned(), ..sent[17].clone() }]);
    let listed = ", agents: [a, b, c]";
    let collector = setting.collector("one", listed);
    let first = collector.wait("six epochs", |reports| reports.len() >= 6);
    assert_eq!(first.len(), 6);
    for report in &first {
        let is_last = report["start"] == "2023-11-14T22:14:10.000000000Z";
        let network = &report["network"];
        assert_eq!(network["reported"], if is_last { 2 } else { 3 }, "{network}");
        assert_eq!(network["revision"], network["reported"]);
        assert_eq!(network["left_out"].as_array().unwrap().len(), usize::from(is_last));
        assert_eq!(report["agent"], "one");
        let packets = if is_last { 8 } else { 12 };
        assert_eq!(report["account"]["keyed"], packets);
    }
    // A late snapshot corrects its epoch.
    setting.send(&sent[17..]);
    let corrected = collector.wait("the correction", |reports| reports.len() >= 7);
    assert_eq!(corrected[6]["network"]["revision"], 3);
    collector.end();

    // All epochs are kept, so all are reported again under their ids.
    let collector = setting.collector("one", listed);
    let again = collector.wait("the same epochs", |reports| reports.len() >= 13);
    // A run with another configuration does the same.
    let path = setting.folder.join("one.yaml");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("delay: 2s", "delay: 3s")).unwrap();
    raise(SIGHUP).unwrap();
    let reloaded = collector.wait("a run after HUP", |reports| reports.len() >= 19);
    assert_ne!(reloaded[18]["configuration"], reloaded[0]["configuration"]);
    assert_eq!(ids(&reloaded).len(), 7);
    collector.end();
    let again = &again[..13];
    let before: BTreeSet<_> = ids(&corrected).into_keys().collect();
    assert_eq!(ids(again).into_keys().collect::<BTreeSet<_>>(), before);
    for report in &again[7..] {
        let is_copy = |one: &&Value| one["network"]["id"] == report["network"]["id"];
        let mut copy = corrected.iter().find(is_copy).unwrap().clone();
        copy["network"]["late"] = report["network"]["late"].clone();
        assert_eq!(copy, *report);
    }

    // Epochs that are not kept are not read again.
    let briefly = format!("{listed}, keep: 1s");
    let collector = setting.collector("one", &briefly);
    collector.wait("the same epochs", |reports| reports.len() >= 25);
    thread::sleep(Duration::from_secs(3));
    collector.end();
    let collector = setting.collector("one", &briefly);
    thread::sleep(Duration::from_secs(4));
    let next: Vec<_> =
        snapshots("a", &flows(), 7, &[1]).into_iter().skip(6).chain([sent[0].clone()]).collect();
    setting.send(&next);
    let all = collector.wait("the next epoch", |reports| reports.len() >= 26);
    thread::sleep(Duration::from_secs(3));
    assert_eq!(reports(&collector.reports).len(), 26, "an epoch came again");
    assert_eq!(all[25]["network"]["missing"], serde_json::json!(["b", "c"]));
    collector.end();
}

fn share_and_take_over() {
    let setting = Setting::new("two");
    let sent = network_of(&["a", "b"], 20);
    let listed = ", agents: [a, b]";
    let (one, two) = (setting.collector("one", listed), setting.collector("two", listed));
    thread::sleep(Duration::from_secs(6));
    setting.send(&sent);
    let begun = Instant::now();
    let all = loop {
        let mut all = reports(&one.reports);
        all.extend(reports(&two.reports));
        let starts: BTreeSet<_> = all.iter().map(|report| report["start"].to_string()).collect();
        if starts.len() == 20 {
            break all;
        }
        assert!(begun.elapsed() < LONG, "{} epochs", starts.len());
        thread::sleep(Duration::from_millis(100));
    };
    assert!(all.iter().all(|report| report["network"]["reported"] == 2), "an epoch is divided");
    assert!(!reports(&one.reports).is_empty() && !reports(&two.reports).is_empty());
    one.end();
    two.thread.join().unwrap().unwrap();
    // Another collector gets all partitions, and continues where the two stopped.
    let three = setting.collector("three", listed);
    let again = three.wait("all epochs", |reports| reports.len() >= 20);
    assert_eq!(ids(&again).len(), 20);
    assert_eq!(ids(&again).into_keys().collect::<BTreeSet<_>>(), ids(&all).into_keys().collect());
    three.end();
}

fn wait_for_a_folder() {
    let setting = Setting::new("folder");
    setting.send(&network_of(&["a"], 3));
    let collector = setting.collector("one", ", agents: [a]");
    collector.wait("three epochs", |reports| reports.len() >= 3);
    // The folder cannot be opened, neither by the file that is read again nor by the old one.
    let folder = setting.folder.join("one");
    fs::remove_dir_all(&folder).unwrap();
    fs::write(&folder, "").unwrap();
    raise(SIGHUP).unwrap();
    thread::sleep(Duration::from_secs(2));
    raise(SIGHUP).unwrap();
    fs::remove_file(&folder).unwrap();
    collector.wait("all epochs again", |reports| reports.len() >= 6);
    collector.end();
}

fn wait_for_a_broker() {
    let setting = Setting::new("away");
    let sent = network_of(&["a", "b"], 2);
    let collector = setting.collector("one", ", agents: [a, b]");
    setting.send(&sent[..3]);
    collector.wait("the first epoch", |reports| !reports.is_empty());
    setting.cluster.broker_down(1).unwrap();
    thread::sleep(Duration::from_secs(4));
    let before = reports(&collector.reports).len();
    setting.cluster.broker_up(1).unwrap();
    setting.send(&sent[3..]);
    let all = collector.wait("the second epoch", |reports| {
        reports.iter().any(|report| {
            report["start"] == "2023-11-14T22:13:30.000000000Z"
                && report["network"]["reported"] == 2
        })
    });
    println!("{before} reports while it was away, {} in all", all.len());
    collector.end();
}

// Each in a process of its own, since a signal ends all collectors of one.
rusty_fork_test! {
    #[test]
    fn every_report_and_snapshot_reaches_the_topic() {
        send_every_report_and_snapshot();
    }

    #[test]
    fn reports_reach_the_sinks_and_a_restart_repeats_those_that_may_be_corrected() {
        correct_and_restart();
    }

    #[test]
    fn two_collectors_share_the_epochs_and_one_takes_over() {
        share_and_take_over();
    }

    #[test]
    fn a_folder_that_cannot_be_opened_at_a_reload_is_waited_for() {
        wait_for_a_folder();
    }

    #[test]
    fn a_broker_that_is_away_is_waited_for() {
        wait_for_a_broker();
    }
}
