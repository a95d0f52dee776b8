//! Queries over folders of stored epochs.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::run::{file, flowgauge};

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
    for epoch in 0..5 {
        let from = format!("{folder}/flows-{epoch:010}.fgs");
        fs::rename(from, format!("{}/{}", day("flows"), name(epoch))).unwrap();
        fs::remove_file(format!("{folder}/sources-{epoch:010}.fgs")).unwrap();
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
