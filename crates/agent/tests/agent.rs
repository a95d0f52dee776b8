//! Agents that replay generated captures to their end: reports, journal, files, and IPFIX.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::net::UdpSocket;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use flowgauge_agent::{Failure, Origin, run};
use flowgauge_engine::seed;
use flowgauge_engine::snapshot::Snapshot;
use flowgauge_synthetic::{Config, Traffic, to_pcap_bytes};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use serde_json::Value;

/// A new folder with a two-second capture in it, and the path of an agent's file.
fn folder(name: &str) -> (PathBuf, PathBuf) {
    let folder =
        std::env::temp_dir().join(format!("flowgauge-agent-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir(&folder).unwrap();
    let config = Config { packets: 4000, rate: 2000, ..Config::default() };
    let capture = to_pcap_bytes(Traffic::new(config).unwrap());
    fs::write(folder.join("two.pcap"), capture).unwrap();
    let file = folder.join("agent.yaml");
    (folder, file)
}

/// The file of an agent that replays the capture `times` times in this folder.
fn text(folder: &Path, times: u64) -> String {
    let folder = folder.display();
    format!(
        "agent: {{ name: edge, data: {folder}/data }}\n\
         sources: [{{ replay: {folder}/two.pcap, times: {times} }}]\n\
         measurements:\n\
         \x20 flows: {{ epoch: 1s, tasks: [top, cardinality], memory: 4MiB }}\n\
         \x20 hosts: {{ key: source, epoch: 500ms, tasks: [top], memory: 4MiB }}\n\
         sinks:\n\
         \x20 files: {{ path: '{folder}/reports/%Y%m%d.jsonl' }}\n"
    )
}

/// Runs the agent of a file.
fn run_file(file: &Path, sets: &[&str]) -> Result<(), Failure> {
    let sets = sets.iter().copied().map(str::to_owned).collect();
    run(&Origin { path: file.to_owned(), sets }, &Vec::new, None)
}

/// All files below a folder with this suffix.
fn below(folder: &Path, end: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(below(&path, end));
        } else if path.to_string_lossy().ends_with(end) {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// The lines that the agent wrote.
fn lines(folder: &Path) -> Vec<Value> {
    let files = below(&folder.join("reports"), ".jsonl");
    let text: String = files.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Packets in all epochs of a measurement in these lines.
fn packets(lines: &[Value], measurement: &str) -> u64 {
    let of = |line: &&Value| line["type"] == "epoch" && line["measurement"] == measurement;
    lines.iter().filter(of).map(|line| line["account"]["keyed"].as_u64().unwrap()).sum()
}

/// Packets in all snapshots of a measurement. They can be merged, since they share a seed.
fn kept(folder: &Path, measurement: &str) -> u64 {
    let seed = seed::from_file(&folder.join("data/seed")).unwrap();
    let files = below(&folder.join("data/journal").join(measurement), ".fgs");
    let snapshots = files
        .iter()
        .map(|file| Snapshot::decode(&fs::read(file).unwrap(), 1 << 30, Some(&seed)).unwrap());
    let sum = snapshots.reduce(|mut sum, next| {
        sum.merge(&next).unwrap();
        sum
    });
    sum.unwrap().account().keyed
}

/// Packets of a measurement in the console's file of the last day: the last line of each minute
/// counts.
fn last_day(folder: &Path, measurement: &str) -> u64 {
    let text = fs::read_to_string(folder.join("data/console.jsonl")).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let own = lines.filter(|line| line["measurement"] == measurement);
    let minutes: BTreeMap<i64, u64> = own
        .map(|line| {
            let start_ns = line["point"]["start_ns"].as_i64().unwrap();
            (start_ns.div_euclid(60_000_000_000), line["point"]["packets"].as_u64().unwrap())
        })
        .collect();
    minutes.values().sum()
}

#[test]
fn every_packet_is_in_a_report_and_in_the_journal_also_of_a_second_run() {
    let (folder, file) = folder("twice");
    let console = "  console: { listen: '127.0.0.1:0' }\n";
    fs::write(&file, text(&folder, 1) + console).unwrap();
    for runs in 1..=2 {
        run_file(&file, &[]).unwrap();
        let lines = lines(&folder);
        for measurement in ["flows", "hosts"] {
            assert_eq!(packets(&lines, measurement), 4000 * runs, "{measurement}");
            assert_eq!(kept(&folder, measurement), 4000 * runs, "{measurement}");
            assert_eq!(last_day(&folder, measurement), 4000 * runs, "{measurement}");
        }
        let hash = &lines[0]["configuration"];
        assert_eq!(hash.as_str().unwrap().len(), 16);
        assert!(lines.iter().all(|line| line["agent"] == "edge" && line["configuration"] == *hash));
    }
    fs::remove_dir_all(folder).unwrap();
}

/// The rows of all Parquet files of a table, as epochs and packets. Each file must be readable.
fn rows(folder: &Path, table: &str) -> Vec<(u64, u64)> {
    let files = below(&folder.join(table), ".parquet");
    assert!(!files.is_empty());
    let mut rows = Vec::new();
    for file in files {
        let reader = SerializedFileReader::new(fs::File::open(file).unwrap()).unwrap();
        for row in reader.get_row_iter(None).unwrap() {
            let row = row.unwrap();
            let whole = |name: &str| match row.get_column_iter().find(|(own, _)| *own == name) {
                Some((_, Field::ULong(number))) => *number,
                other => panic!("{name}: {other:?}"),
            };
            rows.push((whole("epoch"), whole("keyed")));
        }
    }
    rows
}

#[test]
fn parquet_files_are_of_one_table_and_day_and_readable_when_they_are_there() {
    let (folder, file) = folder("parquet");
    let archive = folder.join("archive");
    let set = format!("sinks.parquet={{ path: '{}', rotate: 1s, keep: 3d }}", archive.display());
    let old = archive.join("top/measurement=flows/day=2026-01-01");
    fs::create_dir_all(&old).unwrap();
    fs::write(old.join("000000000.parquet"), "old").unwrap();
    fs::write(&file, text(&folder, 1)).unwrap();
    for runs in 1..=2 {
        // Leftovers of a killed agent, and files that are not the archive's.
        let day = archive.join("top/measurement=flows/day=2099-01-01");
        fs::create_dir_all(&day).unwrap();
        fs::write(day.join("torn.part"), "torn").unwrap();
        fs::create_dir_all(archive.join("mine/day=2000-01-01")).unwrap();
        fs::write(archive.join("mine/download.part"), "mine").unwrap();
        run_file(&file, &[&set]).unwrap();
        assert_eq!(below(&archive, ".part"), [archive.join("mine/download.part")]);
        assert!(archive.join("mine/day=2000-01-01").is_dir());
        assert!(!old.exists());
        let reported = lines(&folder);
        let epochs = reported.iter().filter(|line| line["type"] == "epoch").count();
        let rows = rows(&archive, "epochs");
        assert_eq!(rows.len(), epochs);
        let packets: u64 = rows.iter().map(|(_, packets)| packets).sum();
        assert_eq!(packets, 2 * 4000 * runs, "both measurements have all packets");
    }
    // Two seconds span two or three files per run.
    let files = below(&archive.join("epochs/measurement=flows"), ".parquet").len();
    assert!((4..=6).contains(&files), "{files}");
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn overrides_count_and_are_in_the_hash() {
    let (folder, file) = folder("set");
    fs::write(&file, text(&folder, 9)).unwrap();
    run_file(&file, &["sources.0.times=1", "agent.name=core", "measurements.hosts.epoch=250ms"])
        .unwrap();
    let lines = lines(&folder);
    assert_eq!(packets(&lines, "flows"), 4000);
    assert!(lines.iter().all(|line| line["agent"] == "core"));
    let hosts = lines.iter().filter(|line| line["measurement"] == "hosts").count();
    assert!(hosts >= 8, "{hosts}");
    let plain = Origin { path: file.clone(), sets: Vec::new() }.read().unwrap();
    assert_ne!(lines[0]["configuration"], plain.hash);
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_file_that_makes_no_sense_is_refused_with_the_line_and_the_code() {
    let (folder, file) = folder("refused");
    let sound = text(&folder, 1);
    let with = |old: &str, new: &str| {
        assert!(sound.contains(old), "{old}");
        sound.replace(old, new)
    };
    for (text, code, message) in [
        (with("name: edge", "nam: edge"), 2, "line 1: unknown field 'nam'; did you mean 'name'?"),
        (with("sinks:", "sink:"), 2, "line 6: unknown field 'sink'; did you mean 'sinks'?"),
        (with("epoch: 1s", "epoch: whole"), 2, "flows: an agent never ends, so 'epoch: whole'"),
        (with("tasks: [top]", "tasks: [tpo]"), 2, "unknown task 'tpo'"),
        (with("hosts:", "..:"), 2, "measurement '..': its folder in the journal would be hidden"),
        (with("%Y%m%d.jsonl", "%!.jsonl"), 2, "sinks.files.path: "),
        (with("two.pcap", "three.pcap"), 4, "three.pcap: No such file"),
        (with("/reports", "/two.pcap"), 5, "cannot write to "),
    ] {
        fs::write(&file, text).unwrap();
        let failure = run_file(&file, &[]).unwrap_err();
        assert!(failure.to_string().contains(message), "{failure}");
        assert_eq!(failure.code(), code, "{failure}");
    }
    fs::write(&file, &sound).unwrap();
    for (set, message) in [
        ("sources.0.times", "invalid --set 'sources.0.times'; write PATH=VALUE"),
        ("sources.1.times=1", "'sources.1.times': no item 1 in a list of 1"),
        ("agent.name.first=1", "'agent.name.first': 'first' would be a field of a single value"),
        ("sources.0={ interfce: eth0 }", "unknown field 'interfce'; did you mean 'interface'?"),
        ("sources.0={ interface: eth0, queues: many }", "invalid queues 'many'; write auto, or"),
        ("sources.0={ interface: eth0, times: 2 }", "'times' is for a source with 'replay'"),
        (
            "sources.0={ replay: a, ring: 1MiB }",
            "'ring' is for a source with 'interface'; leave it out",
        ),
        ("sources.0={}", "a source has either 'interface', 'replay' or 'records'; write one of"),
        ("sources.0={ interface: a, records: 'udp://[::]:1' }", "a source has either 'interface'"),
        ("sources.0={ replay: a, sampling: 2 }", "'sampling' is for a source with 'records'"),
        (
            "sources.0={ records: '127.0.0.1:2055' }",
            "invalid address '127.0.0.1:2055'; write udp://",
        ),
        (
            "sources.0={ records: 'udp://router:2055' }",
            "invalid address 'udp://router:2055'; write",
        ),
        (
            "sources.0={ records: 'udp://[::]:1', sampling: 0 }",
            "invalid sampling '0'; write N where",
        ),
        #[cfg(not(feature = "dpdk"))]
        (
            "sources.0={ interface: a, engine: dpdk }",
            "built without DPDK; build it with 'make agent",
        ),
        ("sinks.files.format=csv", "unknown value 'csv'; available: "),
        ("sinks.console={ listen: here }", "invalid address 'here'; write an address and a port"),
        (
            "sinks.prometheus={ listen: '0.0.0.0:1' }",
            "sinks.prometheus.listen: 0.0.0.0:1 is open to",
        ),
        ("agent.nam=a", "with agent.nam set: unknown field 'nam'; did you mean 'name'?"),
    ] {
        let failure = run_file(&file, &[set]).unwrap_err();
        assert!(failure.to_string().contains(message), "{failure}");
        assert_eq!(failure.code(), 2, "{failure}");
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_folder_is_of_one_agent() {
    let (folder, file) = folder("one");
    fs::write(&file, text(&folder, 1)).unwrap();
    fs::create_dir(folder.join("data")).unwrap();
    let lock = fs::File::create(folder.join("data/lock")).unwrap();
    lock.lock().unwrap();
    let failure = run_file(&file, &[]).unwrap_err();
    assert!(failure.to_string().ends_with("another process uses it"), "{failure}");
    assert_eq!(failure.code(), 5);
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn reports_add_known_facts_to_addresses() {
    let (folder, file) = folder("names");
    let names = folder.join("names.txt");
    fs::write(&names, "0.0.0.0/1 lower half\n128.0.0.0/1 upper half\n").unwrap();
    let more = format!("names: {{ prefixes: {} }}\n", names.display());
    fs::write(&file, text(&folder, 1) + &more).unwrap();
    run_file(&file, &[]).unwrap();
    let mut halves = [0, 0];
    for line in lines(&folder) {
        let items = line["tasks"]["top"]["items"].as_array().into_iter().flatten();
        for address in items.flat_map(|item| item["key"].as_object().unwrap().values()) {
            let Some(Ok(address)) = address.as_str().map(str::parse::<std::net::Ipv4Addr>) else {
                continue;
            };
            let upper = address.octets()[0] >= 128;
            let label = &line["labels"][address.to_string()];
            assert_eq!(label["name"], ["lower half", "upper half"][usize::from(upper)]);
            halves[usize::from(upper)] += 1;
        }
    }
    assert!(halves[0] > 10 && halves[1] > 10, "{halves:?}");
    fs::write(&names, "0.0.0.0/1\n").unwrap();
    let refused = run_file(&file, &[]).unwrap_err();
    assert_eq!(refused.code(), 2);
    let refused = refused.to_string();
    let names = names.display();
    let reason = format!(
        "names.prefixes: {names}: line 1: a prefix and its name are missing; write '192.0.2.0/24 office'"
    );
    assert_eq!(refused, reason);
    fs::remove_dir_all(folder).unwrap();
}

/// Packets by key over all epochs, from the lists of the largest flows.
fn by_key(folder: &Path) -> BTreeMap<String, u64> {
    let mut packets = BTreeMap::new();
    for line in lines(folder) {
        for item in line["tasks"]["top"]["items"].as_array().into_iter().flatten() {
            *packets.entry(item["key"].to_string()).or_default() +=
                item["packets"]["value"].as_u64().unwrap();
        }
    }
    packets
}

/// The addresses of keys.
fn addresses(packets: &BTreeMap<String, u64>) -> BTreeSet<String> {
    let keys = packets.keys().map(|key| serde_json::from_str::<Value>(key).unwrap());
    let of = |key: Value| [key["source"].to_string(), key["destination"].to_string()];
    keys.flat_map(of).filter(|address| address != "null").collect()
}

/// With a fixed seed, so that the outcome is fixed.
#[test]
fn anonymous_reports_have_the_same_numbers_and_no_address() {
    let (folder, file) = folder("anonymous");
    let more = "  flows: { epoch: 1s, tasks: [top], memory: 4MiB, top: 10000 }\n";
    let text = text(&folder, 1)
        .replace("  flows: { epoch: 1s, tasks: [top, cardinality], memory: 4MiB }\n", more);
    let names = folder.join("names.txt");
    fs::write(&names, "0.0.0.0/0 somewhere\n").unwrap();
    fs::write(&file, format!("{text}names: {{ prefixes: {} }}\n", names.display())).unwrap();
    fs::create_dir(folder.join("data")).unwrap();
    let seed =
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(folder.join("data/seed"));
    seed.unwrap().write_all(&[7; 64]).unwrap();
    run_file(&file, &["measurements.hosts.top=10000"]).unwrap();
    let plain = by_key(&folder);
    for set in ["sinks.files.anonymize=prefix", "sinks.anonymize=prefix"] {
        fs::remove_dir_all(folder.join("reports")).unwrap();
        run_file(&file, &["measurements.hosts.top=10000", set]).unwrap();
        let anonymous = by_key(&folder);
        let sorted = |packets: &BTreeMap<String, u64>| {
            let mut sorted: Vec<_> = packets.values().copied().collect();
            sorted.sort_unstable();
            sorted
        };
        assert!(sorted(&plain).len() > 100);
        assert!(sorted(&plain) == sorted(&anonymous), "other numbers");
        let (before, behind) = (addresses(&plain), addresses(&anonymous));
        assert_eq!(before.len(), behind.len());
        assert_eq!(before.intersection(&behind).count(), 0);
        // A label would reveal something about the address.
        assert!(lines(&folder).iter().all(|line| line["labels"].is_null()));
    }
    let refused = run_file(&file, &["sinks.anonymize=hash"]).unwrap_err().to_string();
    assert!(refused.ends_with("unknown value 'hash'; available: prefix"), "{refused}");
    fs::remove_dir_all(folder).unwrap();
}

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
