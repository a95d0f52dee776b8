//! Queries over folders of stored epochs.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use serde_json::Value;

use crate::analyze::valid;
use crate::run::{file, flowgauge, pcap, traffic};

/// Five seconds of traffic from 2026-01-01 on, stored second by second as two measurements in a folder with
/// its seed; returns the folder.
fn stored(name: &str) -> String {
    let capture = file(&format!("{name}.pcap"), b"");
    let packets = ["--packets", "50000", "--rate", "10000", "--flows", "500", "-o", &capture];
    assert_eq!(flowgauge(&[&["generate"][..], &packets].concat()).code, 0);
    let folder = format!("{capture}.d");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir(&folder).unwrap();
    let seed = format!("{folder}/seed");
    fs::write(&seed, [7; 32]).unwrap();
    fs::set_permissions(&seed, fs::Permissions::from_mode(0o600)).unwrap();
    let flows = "flows: epoch=1s task=top,cardinality";
    let sources = "sources: epoch=1s key=source task=top";
    let options = ["--seed-file", &seed, "--measure", flows, "--measure", sources];
    let saved = flowgauge(&[&["analyze", "--save", &folder][..], &options, &[&capture]].concat());
    assert_eq!((saved.code, saved.err.as_str()), (0, ""));
    folder
}

/// The stored epochs of a measurement, ordered by name.
fn named(folder: &str, measurement: &str) -> Vec<PathBuf> {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let begins = |path: &PathBuf| {
        path.file_name().unwrap().to_str().unwrap().starts_with(&format!("{measurement}-"))
    };
    let mut paths: Vec<_> = paths.filter(begins).collect();
    paths.sort();
    paths
}

/// Starts and packets of the epochs that a query reports.
fn epochs(options: &[&str]) -> Vec<(String, u64)> {
    let answer = flowgauge(&[&["query", "--format", "json"][..], options].concat());
    assert_eq!((answer.code, answer.err.as_str()), (0, ""), "{options:?}");
    let lines = answer.lines();
    let of = |line: &Value| {
        let start = line["start"].as_str().unwrap()[17..19].to_owned();
        (start, line["account"]["keyed"].as_u64().unwrap())
    };
    lines.iter().filter(|line| line["type"] == "epoch").map(of).collect()
}

#[test]
fn epochs_of_a_folder_are_chosen_by_measurement_and_time_and_added_up_in_steps() {
    let folder = stored("stored-steps");
    let of = |options: &[&str]| {
        epochs(&[&[&folder, "--measurement", "flows", "--task", "top"][..], options].concat())
    };
    let at = |second: &str, packets: u64| (second.to_owned(), packets);
    assert_eq!(of(&[]), [at("00", 50_000)]);
    let second = |number: u32| format!("2026-01-01T00:00:0{number}Z");
    assert_eq!(of(&["--from", &second(1), "--to", &second(4)]), [at("01", 30_000)]);
    assert_eq!(of(&["--from", &second(4)]), [at("04", 10_000)]);
    assert_eq!(of(&["--step", "2s"]), [at("00", 20_000), at("02", 20_000), at("04", 10_000)]);
    let both = [&folder[..], "--measurement", "sources", "--from", &second(1), "--step", "1s"];
    assert_eq!(epochs(&both).len(), 4);
}

#[test]
fn a_query_in_steps_has_no_total() {
    let folder = stored("stored-total");
    let totals = |options: &[&str]| {
        let query = ["query", "--format", "json", &folder, "--measurement", "flows"];
        let answer = flowgauge(&[&query[..], options].concat());
        assert_eq!((answer.code, answer.err.as_str()), (0, ""), "{options:?}");
        answer.lines().iter().filter(|line| line["type"] == "total").count()
    };
    assert_eq!(totals(&[]), 1);
    assert_eq!([totals(&["--step", "1s"]), totals(&["--step", "1h"])], [0, 0]);
}

/// The epochs of several hosts are added up in each step, whether the names of their files show the
/// start or not.
#[test]
fn a_step_adds_up_several_hosts() {
    let (one, other) = (stored("stored-host-1"), stored("stored-host-2"));
    let options = ["--measurement", "flows", "--task", "top", "--step", "2s"];
    let of = |paths: &[&str]| epochs(&[paths, &options].concat());
    let at = |second: &str, packets: u64| (second.to_owned(), packets);
    let sums = [at("00", 40_000), at("02", 40_000), at("04", 20_000)];
    assert_eq!(of(&[&one, &other]), sums);
    let (mut paths, reversed) = (Vec::new(), ["d", "b", "a", "e", "c"]);
    for (path, name) in named(&other, "flows").iter().zip(reversed) {
        let to = format!("{other}/{name}.fgs");
        fs::rename(path, &to).unwrap();
        paths.push(to);
    }
    paths.sort();
    assert_eq!(of(&[&one, &other]), sums);
    let seed = format!("{one}/seed");
    let paths: Vec<&str> =
        ["--seed-file", &seed].into_iter().chain(paths.iter().map(String::as_str)).collect();
    assert_eq!(of(&paths), [at("00", 20_000), at("02", 20_000), at("04", 10_000)]);
}

/// A later run into the same folder leaves the files of an earlier one, also one that began at the
/// same time. Their names sort by time.
#[test]
fn epochs_of_several_runs_stay() {
    let folder = stored("stored-runs");
    let read = |path: &PathBuf| fs::read(path).unwrap();
    let before: Vec<_> =
        named(&folder, "flows").iter().map(|path| (path.clone(), read(path))).collect();
    let (seed, capture) = (format!("{folder}/seed"), folder.strip_suffix(".d").unwrap().to_owned());
    let flows = "flows: epoch=1s task=top,cardinality";
    let options =
        ["-q", "-c", "15000", "--seed-file", &seed, "--save", &folder, "--measure", flows];
    let saved = flowgauge(&[&["analyze"][..], &options, &[&capture]].concat());
    assert_eq!((saved.code, saved.err.as_str()), (0, ""));
    let after = named(&folder, "flows");
    assert_eq!((before.len(), after.len()), (5, 7));
    assert!(before.iter().all(|(path, bytes)| after.contains(path) && read(path) == *bytes));
    let second = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        let start_ns: i64 = name.split('-').nth(1).unwrap().parse().unwrap();
        (start_ns - 1_767_225_600_000_000_000) / 1_000_000_000
    };
    assert_eq!(after.iter().map(second).collect::<Vec<_>>(), [0, 0, 1, 1, 2, 3, 4]);
}

/// An agent's journal names its files by measurement and time: those that are not chosen are not read.
#[test]
fn names_in_a_journal_spare_reading() {
    let folder = stored("stored-names");
    let journal = format!("{folder}/journal");
    let day = |measurement: &str| {
        let day = format!("{journal}/{measurement}/2026-01-01");
        fs::create_dir_all(&day).unwrap();
        day
    };
    let start_ns = 1_767_225_600_000_000_000_i64;
    let name = |epoch: i64| {
        format!("{}-1000000000-00000000000000ff-{epoch}.fgs", start_ns + epoch * 1_000_000_000)
    };
    for (epoch, from) in (0..5).zip(named(&folder, "flows")) {
        fs::rename(from, format!("{}/{}", day("flows"), name(epoch))).unwrap();
    }
    for path in named(&folder, "sources") {
        fs::remove_file(path).unwrap();
    }
    fs::write(format!("{}/{}", day("flows"), name(2)), "damaged").unwrap();
    fs::write(format!("{}/{}", day("sources"), name(0)), "damaged").unwrap();
    let flows = [&folder[..], "--measurement", "flows", "--to", "2026-01-01T00:00:02Z"];
    assert_eq!(epochs(&flows), [("00".to_owned(), 20_000)]);
    let all = flowgauge(&["query", &folder, "--measurement", "flows"]);
    assert_eq!(all.code, 1, "{}", all.err);
}

#[test]
fn a_choice_without_an_epoch_is_refused() {
    let folder = stored("stored-none");
    let refused = |options: &[&str], code: u8, message: &str| {
        let answer = flowgauge(&[&["query", &folder][..], options].concat());
        assert_eq!((answer.code, answer.out.as_str()), (code.into(), ""), "{}", answer.err);
        assert!(answer.err.contains(message) && answer.err.lines().count() == 1, "{}", answer.err);
    };
    refused(&["--measurement", "flow"], 1, "'flow'; did you mean 'flows'?");
    refused(&["--from", "1h"], 1, "matches --measurement, --from and --to");
    refused(&["--from", "yesterday"], 2, "write a time such as 2026-11-25T06:30:00Z");
    refused(&["--step", "0s"], 2, "a step must be longer than 0");
    refused(&[], 2, "choose one with --measurement");
    let empty = format!("{folder}/empty");
    fs::create_dir(&empty).unwrap();
    let answer = flowgauge(&["query", &empty]);
    assert!(answer.code == 1 && answer.err.contains("has no snapshot (*.fgs)"), "{}", answer.err);
}

/// Queries of stored epochs repeat the reports. Parts under one seed file are merged; other
/// snapshots are refused.
#[test]
fn stored_epochs_are_asked_and_added_up() {
    use std::os::unix::fs::PermissionsExt;

    let frames = traffic();
    let (first, second) = frames.split_at(frames.len() / 2);
    let captures = [
        file("snapshot-1.pcap", &pcap(first)),
        file("snapshot-2.pcap", &pcap(second)),
        file("snapshot.pcap", &pcap(&frames)),
    ];
    let seed = file("snapshot.seed", &[7; 32]);
    std::fs::set_permissions(&seed, std::fs::Permissions::from_mode(0o600)).unwrap();
    let stored: Vec<_> = captures.iter().map(|capture| format!("{capture}.fgs")).collect();
    let analyze = |at: usize| {
        let options =
            ["--preset", "flows", "--seed-file", &seed, "--save", &stored[at], "--format", "json"];
        let answer = flowgauge(&[&["analyze", &captures[at]][..], &options].concat());
        assert_eq!((answer.code, answer.err.as_str()), (0, ""));
        assert_eq!(std::fs::metadata(&stored[at]).unwrap().permissions().mode() & 0o777, 0o600);
        answer.lines().remove(0)
    };
    let reports: Vec<_> = (0..3).map(analyze).collect();
    let query = |path: &str| {
        let answer = flowgauge(&["query", "--seed-file", &seed, "--format", "json", path]);
        assert_eq!((answer.code, answer.err.as_str()), (0, ""));
        let lines = answer.lines();
        valid(&lines);
        lines[0].clone()
    };
    for (path, report) in stored.iter().zip(&reports) {
        assert_eq!(query(path)["tasks"], report["tasks"]);
    }
    let sum = file("snapshot-sum.fgs", b"");
    let merge = |paths: &[&str]| {
        flowgauge(&[&["merge", "--seed-file", &seed, "-o", &sum][..], paths].concat())
    };
    assert_eq!(merge(&[&stored[0], &stored[1]]).code, 0);
    assert_eq!(query(&sum)["tasks"], reports[2]["tasks"]);
    let both = ["query", "--seed-file", &seed, "--format", "json", &stored[0], &stored[1]];
    let both = flowgauge(&both);
    assert_eq!((both.code, both.lines().len()), (0, 2), "one epoch and the total: {}", both.err);
    assert_eq!(both.lines()[0]["tasks"], reports[2]["tasks"]);
    assert_eq!(both.lines()[1]["files"], serde_json::json!([stored[0], stored[1]]));
    let coarse = ["query", "--seed-file", &seed, "--key", "protocol", &stored[0]];
    let coarse = flowgauge(&coarse);
    assert!(coarse.code == 0 && coarse.out.contains("protocol by packets"), "{}", coarse.out);
    let finer = flowgauge(&["query", "--seed-file", &seed, "--key", "pair/33", &stored[0]]);
    assert_eq!((finer.code, finer.err.lines().count()), (2, 1), "{}", finer.err);
    let twice = merge(&[&stored[0], &stored[0]]);
    assert_eq!(twice.code, 2);
    assert!(twice.err.contains("both snapshots cover epoch 0"), "{}", twice.err);
    let without = flowgauge(&["query", &stored[0]]);
    assert_eq!((without.code, without.err.lines().count()), (1, 1));
    assert!(without.err.contains("seed file"), "{}", without.err);
    let capture = flowgauge(&["query", &captures[0]]);
    assert!(capture.code == 1 && capture.err.contains("not a snapshot"), "{}", capture.err);
    let bytes = std::fs::read(&stored[0]).unwrap();
    for damaged in [&bytes[..bytes.len() / 2], &[&bytes[..], &[7]].concat()] {
        let damaged = file("snapshot-damaged.fgs", damaged);
        for command in [&["query"][..], &["merge", "-o", &sum]] {
            let answer = flowgauge(&[command, &["--seed-file", &seed, &damaged]].concat());
            assert_eq!((answer.code, answer.out.as_str(), answer.err.lines().count()), (3, "", 1));
            assert!(answer.err.contains("the bytes were damaged"), "{}", answer.err);
        }
    }
    let several = flowgauge(&["analyze", "--epoch", "10s", "--save", &stored[0], &captures[0]]);
    assert_eq!(several.code, 2);
    assert!(several.err.contains("several epochs need a directory"), "{}", several.err);
    let nowhere = flowgauge(&["analyze", "--save", &(seed + "-none/a.fgs"), &captures[0]]);
    assert_eq!((nowhere.code, nowhere.out.as_str(), nowhere.err.lines().count()), (2, "", 1));
    assert!(nowhere.err.contains("no directory"), "{}", nowhere.err);
}

/// Files of a tebibyte, all holes: one is no snapshot, the other exceeds the memory limit. Neither
/// is read.
#[test]
fn large_files_are_refused_unread() {
    let (other, snapshot) = (file("large.pcap", b"\n\r\r\n"), file("large.fgs", b"FGSS\x06\0"));
    let sum = format!("{snapshot}.sum");
    for (path, message) in [(&other, "not a snapshot"), (&snapshot, "raise --memory")] {
        fs::OpenOptions::new().write(true).open(path).unwrap().set_len(1 << 40).unwrap();
        for command in [&["query"][..], &["merge", "-o", &sum]] {
            let answer = flowgauge(&[command, &["--memory", "1MiB", path]].concat());
            assert_eq!((answer.code, answer.err.lines().count()), (1, 1), "{}", answer.err);
            assert!(answer.err.contains(message), "{}", answer.err);
        }
        fs::remove_file(path).unwrap();
    }
}

/// A snapshot has no packet times, so it cannot answer findings.
#[test]
fn a_snapshot_refuses_findings() {
    let capture = file("no-findings.pcap", &pcap(&traffic()));
    let stored = format!("{capture}.fgs");
    assert_eq!(flowgauge(&["analyze", "--save", &stored, &capture]).code, 0);
    let answer = flowgauge(&["query", "--task", "findings", &stored]);
    assert_eq!((answer.code, answer.out.as_str()), (2, ""));
    assert!(answer.err.contains("snapshots do not store"), "{}", answer.err);
    let sources = flowgauge(&["query", "--task", "top-sources", "--format", "json", &stored]);
    assert_eq!(sources.lines()[0]["tasks"]["top-sources"]["items"][0]["packets"]["value"], 500);
}

/// If a summary answers none of the default tasks, a query names those that it answers.
#[test]
fn a_query_that_answers_nothing_names_tasks_that_do() {
    let capture = file("sizes-only.pcap", &pcap(&traffic()));
    let stored = format!("{capture}.fgs");
    let options = ["--algorithm", "csm", "--key", "destination-port", "--save", &stored];
    assert_eq!(flowgauge(&[&["analyze", &capture][..], &options].concat()).code, 0);
    for (options, hint) in [
        (&[][..], "use --task flow-size"),
        (&["--task", "flow-size"], "--flow"),
        (&["--flow", "destination_port=53"], "--task flow-size"),
        (&["--task", "flow-size", "--flow", "colour=red"], "unknown field 'colour'"),
    ] {
        let answer = flowgauge(&[&["query", &stored][..], options].concat());
        assert_eq!((answer.code, answer.out.as_str()), (2, ""), "{options:?}");
        assert!(answer.err.contains(hint), "{options:?}: {}", answer.err);
    }
    let sizes = ["--task", "flow-size", "--flow", "destination_port=53", "--format", "json"];
    let sizes = flowgauge(&[&["query", &stored][..], &sizes].concat());
    assert_eq!((sizes.code, sizes.err.as_str()), (0, ""));
    assert_eq!(sizes.lines()[0]["tasks"]["flow-size"]["items"].as_array().unwrap().len(), 1);
}
