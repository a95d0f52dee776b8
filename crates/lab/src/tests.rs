//! Tests of the commands: they list, run and reject experiments, and the gate rejects a doctored
//! table.
//!
//! They run in this process: a second build of the lab takes as long as all of its tests.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::path::{Path, PathBuf};
use std::process::{self, ExitCode};
use std::{env, fs};

use clap::Parser;

use crate::args::Cli;

/// The exit code of a command, and what it writes.
struct Done {
    code: ExitCode,
    out: String,
    err: String,
}

fn lab(arguments: &[&str]) -> Done {
    let cli = match Cli::try_parse_from([&["flowgauge-lab"], arguments].concat()) {
        Ok(cli) => cli,
        Err(error) => {
            let code = ExitCode::from(u8::try_from(error.exit_code()).unwrap());
            return Done { code, out: String::new(), err: error.to_string() };
        }
    };
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let code = crate::answer(&cli.command, &mut out, &mut err);
    let [out, err] = [out, err].map(|bytes| String::from_utf8(bytes).unwrap());
    Done { code, out, err }
}

/// The error of arguments that are refused.
fn refusal(arguments: &[&str]) -> String {
    let done = lab(arguments);
    assert_eq!(done.code, ExitCode::from(2), "{arguments:?}");
    done.err
}

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = env::temp_dir().join(format!("flowgauge-lab-{name}-{}", process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn experiments_are_named_and_unknown_ones_refused() {
    let named = lab(&["list"]).out;
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
        assert!(refusal(arguments).contains(reason), "{arguments:?}");
    }
}

/// The keys of a file are counted: two flows of equal size.
#[test]
fn a_file_of_keys_is_measured_and_written_about() {
    let scratch = Folder::new("run");
    let folder = scratch.0.join("experiments");
    fs::create_dir_all(&folder).unwrap();
    let keys = folder.join("keys");
    fs::write(&keys, [[10, 0, 0, 1], [10, 0, 0, 2]].concat().repeat(500_000)).unwrap();
    let (keys, output) = (keys.to_str().unwrap(), folder.to_str().unwrap());
    let run = ["run", "agg-evict/fig4", "--keys", keys, "--key-bytes", "4", "-o", output];
    let done = lab(&run);
    assert_eq!(done.code, ExitCode::SUCCESS, "{}", done.err);
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
    let refused =
        refusal(&["run", "simple/fig2", "--keys", keys, "--key-bytes", "4", "-o", output]);
    assert!(refused.contains("keys of 4 bytes, where 8 are needed"));
}

/// A fast table, an estimate with errors, and a summary with confidence bounds.
const SELECTED: [&str; 4] =
    ["--algorithm", "linear-table,count-array,hyperloglog", "--profile", "zipf-1.1"];

fn gate(baseline: &Path) -> (ExitCode, String) {
    let baseline = baseline.to_str().unwrap();
    let done = lab(&[&["gate", "--baseline", baseline][..], &SELECTED].concat());
    (done.code, done.out)
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
    let scratch = Folder::new("gate");
    let path = scratch.0.join("accuracy.tsv");
    let written =
        lab(&[&["accuracy", "--small", "-o", path.to_str().unwrap()][..], &SELECTED].concat());
    assert_eq!(written.code, ExitCode::SUCCESS, "{}", written.err);
    let table = fs::read_to_string(&path).unwrap();
    let rows = table.lines().count() - 1;
    assert!(rows > 20, "{rows} rows");
    let (code, told) = gate(&path);
    assert_eq!((code, told), (ExitCode::SUCCESS, format!("{rows} rows, 0 findings\n")));

    // One algorithm fewer, whose rows are new; and four cells are others.
    let fewer = table.lines().filter(|line| !line.starts_with("hyperloglog"));
    let mut other = fewer.collect::<Vec<_>>().join("\n");
    let array = "count-array\tstate=distinct\t";
    for (task, column, cell) in [
        ("flow-size", "rms", "0.000010"),
        ("flow-size", "memory_bytes", "1"),
        ("superspreaders", "precision", "0.999"),
        ("victims", "asked", "memory=1"),
    ] {
        other = doctored(&other, &format!("{array}{task}\t"), column, cell);
    }
    let doctored_path = scratch.0.join("doctored.tsv");
    fs::write(&doctored_path, other).unwrap();
    let (code, told) = gate(&doctored_path);
    assert_eq!(code, ExitCode::FAILURE, "{told}");
    // The other algorithm behind an accelerator, and the doctored row under its own name, are new, too.
    assert!(told.ends_with(", 7 findings\n"), "{told}");
    for finding in [
        "flow-size, zipf-1.1: rms was 0.000010, is 0.",
        "memory_bytes was 1, is ",
        "precision was 0.999000, is 0.",
        "count-array (memory=1), victims, zipf-1.1: row was there, is missing",
        "hyperloglog (memory=1048576), cardinality",
    ] {
        assert!(told.contains(finding), "{finding}: {told}");
    }
}

/// No algorithm is less accurate than its committed row.
#[test]
fn the_committed_table_holds() {
    let table = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/accuracy.tsv");
    let done = lab(&["gate", "--baseline", table.to_str().unwrap()]);
    assert_eq!(done.code, ExitCode::SUCCESS, "{}{}", done.out, done.err);
}

#[test]
fn a_file_that_is_no_table_is_refused() {
    let scratch = Folder::new("table");
    let path = scratch.0.join("none.tsv");
    fs::write(&path, "algorithm\ttask\n").unwrap();
    let told = refusal(&["gate", "--baseline", path.to_str().unwrap()]);
    assert!(told.contains("line 1: the columns have other names"), "{told}");
    let told = refusal(&["gate", "--baseline", "nowhere.tsv"]);
    assert!(told.contains("nowhere.tsv"), "{told}");
    let told = refusal(&["accuracy", "--algorithm", "nothing"]);
    assert!(told.contains("nothing"), "{told}");
}
