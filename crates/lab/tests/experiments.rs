//! Tests of the command: listing, running and rejecting experiments.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn lab(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowgauge-lab"));
    command.args(arguments).output().unwrap()
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

#[test]
fn experiments_are_named_and_unknown_ones_refused() {
    let named = text(lab(&["list"]).stdout);
    for name in ["simple/fig1", "agg-evict/fig5", "scaling/separate"] {
        assert!(named.lines().any(|line| line.starts_with(&format!("{name} "))), "{named}");
    }
    for (arguments, reason) in [
        (
            &["run", "simple/fig99"][..],
            "unknown experiment 'simple/fig99'; did you mean 'simple/fig9",
        ),
        (&["run", "agg-evict/fig4", "--keys", "nowhere.pcap"], "nowhere.pcap"),
        (&["run", "agg-evict/fig4", "--key-bytes", "8"], "--keys"),
        (&["run", "agg-evict/fig4", "--keys", "a", "--key-bytes", "5"], "4, 8 or 13"),
        (&["run"], "NAME"),
    ] {
        let refused = lab(arguments);
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}");
        assert!(text(refused.stderr).contains(reason), "{arguments:?}");
    }
}

/// The keys of a file are counted: two flows of equal size.
#[test]
fn a_file_of_keys_is_measured_and_written_about() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("experiments");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let keys = folder.join("keys");
    fs::write(&keys, [[10, 0, 0, 1], [10, 0, 0, 2]].concat().repeat(500_000)).unwrap();
    let (keys, output) = (keys.to_str().unwrap(), folder.to_str().unwrap());
    let run = ["run", "agg-evict/fig4", "--keys", keys, "--key-bytes", "4", "-o", output];
    let done = lab(&run);
    assert!(done.status.success(), "{}", text(done.stderr));
    let read = |ending: &str| fs::read_to_string(folder.join(format!("agg-evict-fig4.{ending}")));
    let table = read("tsv").unwrap();
    let row =
        |most: &str| table.lines().find(|l| l.starts_with(&format!("trace\t{most}\t"))).unwrap();
    assert_eq!(row("100"), "trace\t100\t0\t0\t2");
    assert_eq!(row("1000000"), "trace\t1000000\t100\t100\t2");
    assert!(read("svg").unwrap().starts_with("<svg "));
    let page = read("md").unwrap();
    assert!(page.contains("**Verdict.** Contradicted.\n\n1. **Contradicted.** "), "{page}");
    assert!(page.contains("   - **Why.** ") && page.contains("   - does not hold: "), "{page}");
    assert!(page.contains("--key-bytes 4"), "{page}");

    // The report has a row for each experiment, and a section for each existing page.
    let report = fs::read_to_string(folder.with_extension("md")).unwrap();
    assert!(report.contains("| [agg-evict/fig4](#agg-evictfig4-"), "{report}");
    assert!(
        report.contains("| Contradicted |") && report.contains("](experiments/agg-evict-fig4.svg)")
    );
    let none = "0 reproduced, 0 reproduced on the paper's baseline only, 0 not comparable here";
    assert!(report.contains(&format!("All claims: {none}, 1 contradicted, 0 cannot be told.")));
    assert!(report.contains("\n| agg-evict/fig2, agg-evict/fig4, "), "{report}");
    assert!(report.contains("| simple/fig1 | one hash function against several | not measured |"));
    assert_eq!(report.matches("\n## ").count(), 2, "{report}");

    // A pair is more than is known of these packets.
    let refused = lab(&["run", "simple/fig2", "--keys", keys, "--key-bytes", "4", "-o", output]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(refused.stderr).contains("keys of 4 bytes, where 8 are needed"));
}
