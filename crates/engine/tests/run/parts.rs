//! Files that several workers read side by side.

use std::fs;
use std::path::PathBuf;
use std::slice;

use flowgauge_core::key::KeyKind;
use flowgauge_core::summary::Parameters;
use flowgauge_engine::sink::{Json, Written};
use flowgauge_engine::source::SourceError;
use flowgauge_engine::{Config, Dispatch, EpochLength, Plan};
use serde_json::Value;

use crate::asking;
use crate::capture::mixed;

/// Files that are removed again.
pub(crate) struct Files(PathBuf);

impl Files {
    pub(crate) fn new(name: &str) -> Self {
        let folder = format!("flowgauge-parts-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, bytes).unwrap();
        path
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The reports but for memory and parameters, the largest number of bytes that the first worker read,
/// and what was wrong.
pub(crate) fn reports(config: Config, files: &[PathBuf]) -> (Vec<Value>, u64, Vec<SourceError>) {
    let (mut out, mut read) = (Vec::new(), 0);
    let outcome = flowgauge_engine::run_inputs(
        Plan::new(config).unwrap(),
        &flowgauge_capture::Files::new(files.to_vec()),
        &mut Written::new(Json, &mut out),
        &mut |source| {
            read = read.max(source.progress().read);
        },
    );
    let lines = String::from_utf8(out).unwrap();
    let mut lines: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    lines[0]["summary"].take();
    (lines, read, outcome.unwrap().problems)
}

fn by(workers: usize, config: &Config) -> Config {
    Config { workers, ..config.clone() }
}

#[test]
fn parts_and_files_make_up_the_same_report() {
    let files = Files::new("same");
    let large = mixed(21, 60_000);
    let bytes = large.len() as u64;
    let large = files.write("large.pcap", &large);
    let small = files.write("small.pcap", &mixed(22, 500));
    let other = files.write("other.pcap", &mixed(23, 50_000));
    let table = Parameters::new([("buckets", 1 << 17)]);
    let table = Config { parameters: table, memory_bytes: 64 << 20, ..Config::seeded(0) };
    let sketch = Config {
        algorithm: "count-min".to_owned(),
        parameters: Parameters::new([("rows", 4), ("columns", 4096), ("candidates", 1024)]),
        key: KeyKind::SOURCE.into(),
        ..table.clone()
    };
    for config in [table, sketch] {
        for files in [
            &[large.clone()][..],
            &[large.clone(), small.clone(), other.clone()],
            &[small.clone(), other.clone()],
        ] {
            let (alone, ..) = reports(config.clone(), files);
            for workers in [2, 3] {
                let (several, read, _) = reports(by(workers, &config), files);
                assert_eq!(several, alone, "{workers} {}", config.algorithm);
                assert!(files.len() > 1 || read < bytes * 2 / 3, "{read} of {bytes}");
            }
        }
        // Who asks for a dispatch, or for epochs, gets one reader.
        let dispatch = Some(Dispatch::Digest);
        for config in [
            Config { dispatch, ..by(2, &config) },
            Config { epoch: EpochLength::Packets(30_000), ..by(2, &config) },
        ] {
            assert!(reports(config, slice::from_ref(&large)).1 > bytes * 9 / 10);
        }
    }
}

#[test]
fn a_damaged_part_and_a_full_table_make_one_reader_begin_anew() {
    let files = Files::new("anew");
    let mut bytes = mixed(24, 60_000);
    let whole = files.write("whole.pcap", &bytes);
    // A length in the middle of the file, far from where it is cut.
    let at = bytes.len() / 4;
    let record = (at..bytes.len()).find(|&at| bytes[at..].starts_with(&[0xff; 12])).unwrap();
    bytes[record - 8..record - 4].copy_from_slice(&[0xff; 4]);
    let damaged = files.write("damaged.pcap", &bytes);
    let config = asking(&["top", "cardinality"]);
    let (alone, _, problems) = reports(config.clone(), slice::from_ref(&damaged));
    let (several, _, same) = reports(by(2, &config), slice::from_ref(&damaged));
    assert_eq!(several, alone);
    assert_eq!((problems.len(), same.len()), (1, 1));

    let full = Config { parameters: Parameters::new([("buckets", 1024)]), ..config };
    let dispatched = Config { dispatch: Some(Dispatch::Digest), ..by(2, &full) };
    let (dispatched, ..) = reports(dispatched, slice::from_ref(&whole));
    assert!(dispatched[0]["account"]["untracked"].as_u64().unwrap() > 0);
    assert_eq!(reports(by(2, &full), slice::from_ref(&whole)).0, dispatched);
}
