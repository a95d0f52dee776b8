//! The origin of the seed, and what reports show of it.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::run::{file, flowgauge_typed, pcap, traffic};

/// A file of this test run with these permissions.
fn secret(name: &str, bytes: &[u8], mode: u32) -> String {
    let path = file(name, bytes);
    fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    path
}

/// The epoch of a run of `analyze`. Each run writes a capture of its own, since tests run side by side.
fn epoch(arguments: &[&str]) -> Value {
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    let run = RUNS.fetch_add(1, Ordering::Relaxed);
    let capture = file(&format!("seed-{run}.pcap"), &pcap(&traffic()));
    let arguments = [&["analyze", "--format", "json", "--memory", "16MiB"], arguments, &[&capture]];
    let answer = flowgauge_typed(&arguments.concat(), &[]);
    assert_eq!((answer.code, answer.err.as_str()), (0, ""), "{arguments:?}");
    answer.lines()[0].clone()
}

/// Two runs have two seeds, and flows of the same sizes.
#[test]
fn each_run_draws_its_seed() {
    let [one, other] = [epoch(&[]), epoch(&[])];
    assert_eq!(
        (&one["seed"]["kind"], &other["seed"]["kind"]),
        (&json!("random"), &json!("random"))
    );
    assert_ne!(one["seed"]["id"], other["seed"]["id"]);
    assert_eq!(one["tasks"], other["tasks"]);
    let estimate = || {
        epoch(&["--algorithm", "hyperloglog:registers=16", "--task", "cardinality"])["tasks"]
            .clone()
    };
    assert!((0..8).any(|_| estimate() != estimate()));
}

#[test]
fn a_seed_file_gives_the_same_seed_again() {
    let path = secret("seed-16", b"sixteen bytes...", 0o600);
    let other = secret("seed-17", b"seventeen bytes..", 0o400);
    let run = |path: &str| epoch(&["--seed-file", path, "--algorithm", "count-min:columns=64"]);
    assert_eq!(run(&path), run(&path));
    assert_eq!(run(&path)["seed"]["kind"], "file");
    assert_ne!(run(&path)["seed"]["id"], run(&other)["seed"]["id"]);
    assert_ne!(run(&path)["tasks"], run(&other)["tasks"]);
    assert_eq!(epoch(&["--seed", "7"])["seed"], json!({ "kind": "number", "id": "7" }));
}

#[test]
fn text_names_the_seed_by_its_identity() {
    let capture = file("seed-text.pcap", &pcap(&traffic()));
    let text = flowgauge_typed(&["analyze", "--seed", "7", &capture], &[]).out;
    let line = "seed number 7, known: bounds hold unless senders craft colliding packets";
    assert_eq!(text.lines().nth(2), Some(line), "{text}");
}

#[test]
fn a_seed_file_that_others_may_read_is_refused() {
    let capture = file("seed-refused.pcap", &pcap(&traffic()));
    let missing = secret("seed-missing", b"", 0o600);
    fs::remove_file(&missing).unwrap();
    let endless = secret("seed-long", &vec![0; (1 << 20) + 1], 0o600);
    for (path, code, reason) in [
        (
            secret("seed-group", &[1; 32], 0o640),
            2,
            "is accessible to other users (mode 0640); run 'chmod 600",
        ),
        (secret("seed-others", &[1; 32], 0o604), 2, "is accessible to other users (mode 0604)"),
        (secret("seed-short", &[1; 15], 0o600), 2, "has 15 bytes; use a file of 16 to 1048576"),
        (endless, 2, "has 1048577 bytes"),
        (missing, 1, "cannot read the seed file"),
    ] {
        let answer = flowgauge_typed(&["analyze", "--seed-file", &path, &capture], &[]);
        assert_eq!((answer.code, answer.out.as_str()), (code, ""), "{path}");
        assert!(answer.err.contains(reason) && answer.err.lines().count() == 1, "{}", answer.err);
    }
    let both = ["analyze", "--seed", "1", "--seed-file", "x", &capture];
    let answer = flowgauge_typed(&both, &[]);
    assert_eq!(answer.code, 2);
    assert!(answer.err.contains("--seed-file"), "{}", answer.err);
}

/// Snapshots under a random seed hold it: only their owner may read them, and the command says so. Under a seed
/// file they hold a check value only, and are of no use without the file.
#[test]
fn snapshots_keep_the_seed() {
    let capture = file("seed-snapshot.pcap", &pcap(&traffic()));
    let key = secret("seed-snapshot", b"sixteen bytes...", 0o600);
    let path = file("seed-snapshot.fgs", b"");
    fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
    let save = |options: &[&str]| {
        let answer =
            flowgauge_typed(&[&["analyze", "--save", &path], options, &[&capture]].concat(), &[]);
        assert_eq!(answer.code, 0, "{}", answer.err);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        answer.err
    };
    // It is created so, which the umask shows.
    let script = "umask 0277; exec \"$0\" analyze --seed 1 -q --save \"$1\" \"$2\"";
    let created = path.clone() + ".created";
    let _ = fs::remove_file(&created);
    let arguments = [env!("CARGO_BIN_EXE_flowgauge"), &created, &capture];
    assert!(
        Command::new("sh").arg("-c").arg(script).args(arguments).output().unwrap().status.success()
    );
    assert_eq!(fs::metadata(&created).unwrap().permissions().mode() & 0o777, 0o400);
    let query = |options: &[&str]| flowgauge_typed(&[&["query", &path], options].concat(), &[]);
    let merge = |options: &[&str]| {
        flowgauge_typed(&[&["merge", "-o", &(path.clone() + ".sum"), &path], options].concat(), &[])
    };
    let note = save(&[]);
    assert!(note.contains("contain the random seed") && note.lines().count() == 1, "{note}");
    assert_eq!((query(&[]).code, merge(&[]).code), (0, 0));
    assert_eq!(save(&["--seed-file", &key]), "");
    let other = secret("seed-snapshot-other", b"another sixteen bytes", 0o600);
    for refused in [query(&[]), merge(&[]), query(&["--seed-file", &other])] {
        assert_eq!((refused.code, refused.out.as_str(), refused.err.lines().count()), (1, "", 1));
        assert!(refused.err.contains("made with the seed file"), "{}", refused.err);
    }
    assert_eq!((query(&["--seed-file", &key]).code, merge(&["--seed-file", &key]).code), (0, 0));
}
