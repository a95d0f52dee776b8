//! Real captures of all kinds: each run comes to its end, and accounts for every packet.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use flowgauge_capture::Captures;
use flowgauge_core::summary::Parameters;
use flowgauge_engine::sink::{Json, Written};
use flowgauge_engine::{Config, Plan};
use serde_json::Value;

use super::asking;

/// Every file below the folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let below = |path: PathBuf| if path.is_dir() { files(&path) } else { vec![path] };
    entries.flat_map(below).collect()
}

/// Gaps of months stand beside those of nanoseconds here.
fn gaps() -> Config {
    Config {
        algorithm: "kll".to_owned(),
        parameters: Parameters::new([("of", "gap")]),
        ..asking(&["quantiles"])
    }
}

#[test]
fn every_capture_is_reported_on() {
    let named = env::var_os("FLOWGAUGE_CAPTURES").map(PathBuf::from);
    if named.is_none() {
        println!("FLOWGAUGE_CAPTURES names no folder of captures: those of the tests alone");
    }
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/captures");
    let folder = named.unwrap_or(own);
    let every = ["top", "heavy-hitters", "changes", "quantiles", "hierarchical"];
    for file in files(&folder) {
        for config in [asking(&every), gaps()] {
            let mut out = Vec::new();
            let mut source = Captures::open([&file]);
            let plan = Plan::new(config).unwrap();
            flowgauge_engine::run(
                plan,
                &mut source,
                &mut Written::new(Json, &mut out),
                &mut |_| {},
            )
            .unwrap();
            let lines = String::from_utf8(out).unwrap();
            let total: Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
            let count = |name: &str| total["account"][name].as_u64().unwrap();
            let sum = ["skipped", "filtered", "malformed", "no_key", "keyed"]
                .map(count)
                .iter()
                .sum::<u64>();
            assert_eq!(count("read"), sum, "{}", file.display());
        }
    }
}
