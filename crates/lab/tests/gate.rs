//! Tests of the gate: it accepts its own table, and rejects a doctored one.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A fast table, an estimate with errors, and a summary with confidence bounds.
const SELECTED: [&str; 4] =
    ["--algorithm", "linear-table,count-array,hyperloglog", "--profile", "zipf-1.1"];

fn lab(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowgauge-lab"));
    command.args(arguments).output().unwrap()
}

fn scratch(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

fn gate(baseline: &Path) -> (Option<i32>, String) {
    let baseline = baseline.to_str().unwrap();
    let output = lab(&[&["gate", "--baseline", baseline][..], &SELECTED].concat());
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

/// The first row of this algorithm and task, with the cell of a column replaced.
fn doctored(table: &str, row: &str, column: &str, cell: &str) -> String {
    let at = table.lines().next().unwrap().split('\t').position(|name| name == column).unwrap();
    let line = table.lines().find(|line| line.starts_with(row)).unwrap();
    let mut cells: Vec<&str> = line.split('\t').collect();
    cells[at] = cell;
    table.replace(line, &cells.join("\t"))
}

#[test]
fn a_gate_passes_its_own_table_and_fails_a_doctored_one() {
    let path = scratch("accuracy.tsv");
    let written =
        lab(&[&["accuracy", "--small", "-o", path.to_str().unwrap()][..], &SELECTED].concat());
    assert!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));
    let table = std::fs::read_to_string(&path).unwrap();
    let rows = table.lines().count() - 1;
    assert!(rows > 20, "{rows} rows");
    let (code, told) = gate(&path);
    assert_eq!((code, told), (Some(0), format!("{rows} rows, 0 findings\n")));

    let doctored_path = scratch("doctored.tsv");
    let array = "count-array\tstate=distinct\tflow-size\t";
    for (row, column, cell, finding) in [
        (array, "rms", "0.000010", "flow-size, zipf-1.1: rms was 0.000010, is 0."),
        (array, "memory_bytes", "1", "memory_bytes was 1, is "),
        (
            array,
            "asked",
            "memory=1",
            "count-array (memory=1), flow-size, zipf-1.1: row was there, is missing",
        ),
        (
            "count-array\tstate=distinct\tsuperspreaders\t",
            "precision",
            "0.999",
            "precision was 0.999000, is 0.",
        ),
    ] {
        std::fs::write(&doctored_path, doctored(&table, row, column, cell)).unwrap();
        let (code, told) = gate(&doctored_path);
        assert_eq!(code, Some(1), "{column}: {told}");
        assert!(told.contains(finding), "{told}");
    }

    // One algorithm fewer: its rows are new.
    let fewer: Vec<&str> = table.lines().filter(|line| !line.starts_with("hyperloglog")).collect();
    std::fs::write(&doctored_path, fewer.join("\n")).unwrap();
    let (code, told) = gate(&doctored_path);
    assert!(
        code == Some(1) && told.contains("hyperloglog (memory=1048576), cardinality"),
        "{told}"
    );
}

#[test]
fn what_is_no_table_is_refused() {
    let path = scratch("none.tsv");
    std::fs::write(&path, "algorithm\ttask\n").unwrap();
    let refused = lab(&["gate", "--baseline", path.to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(2));
    let told = String::from_utf8(refused.stderr).unwrap();
    assert!(told.contains("line 1: the columns have other names"), "{told}");
    assert_eq!(lab(&["gate", "--baseline", "nowhere.tsv"]).status.code(), Some(2));
    assert_eq!(lab(&["accuracy", "--algorithm", "nothing"]).status.code(), Some(2));
}
