//! Committed snapshots: what was stored once can be read forever.
//!
//! `FLOWGAUGE_GOLDEN=write` rewrites them after an intended change of the format.

use std::path::PathBuf;
use std::{env, fs};

use flowgauge_core::packet::Tunnels;
use flowgauge_core::summary::Parameters;
use flowgauge_core::terms::{Measure, SpreadOf};
use flowgauge_engine::snapshot::Snapshot;
use flowgauge_engine::{Config, EpochLength};
use flowgauge_kernel::Seed;

use crate::capture::mixed;
use crate::snapshots::seed_file;
use crate::stored::measured_by;
use crate::{LIMIT, asking, saved};

/// The measurements of the committed snapshots, by file name.
pub(crate) fn measurements() -> Vec<(&'static str, Config)> {
    let spread_of = SpreadOf::Endpoint;
    let small = Config { memory_bytes: 64 << 10, spread_of, ..asking(&["top"]) };
    let of = |key: &str, algorithm: &str, parameters: &[(&'static str, u32)]| Config {
        key: key.parse().unwrap(),
        algorithm: algorithm.to_owned(),
        parameters: Parameters::new(parameters.iter().copied()),
        ..small.clone()
    };
    let sketch = [("columns", 16), ("rows", 2), ("candidates", 4)];
    vec![
        // Two lanes, a filter and epochs by time; the seed is a number.
        (
            "table",
            Config {
                name: "web".to_owned(),
                filter: Some(flowgauge_filter::Filter::new("udp and portrange 1-100").unwrap()),
                epoch: EpochLength::Time(i64::MAX),
                ..of("five-tuple", "linear-table", &[("buckets", 64)])
            },
        ),
        // A sketch, under a seed file.
        (
            "count-min",
            Config {
                seed: Some(seed_file()),
                by: Measure::Bytes,
                ..of("source/24,64", "count-min", &sketch)
            },
        ),
        // An audit beside each of two lanes.
        (
            "audited",
            Config { audit: Some(2), memory_bytes: 4 << 10, ..of("source", "count-min", &sketch) },
        ),
        // What a sampler passed on, under a random seed.
        (
            "sampled",
            Config {
                seed: Some(Seed::random([7; 32])),
                accelerators: vec![("uniform".to_owned(), Parameters::new([("sample", 4)]))],
                ..of("destination", "count-sketch", &sketch)
            },
        ),
        // A sample that was drawn before headers were read.
        (
            "before-headers",
            Config {
                accelerators: vec![("uniform".to_owned(), before_headers("2"))],
                ..of("source", "linear-table", &[("buckets", 64)])
            },
        ),
        // One lane for IPv4 and IPv6, and an accelerator that leaves no trace.
        (
            "aggregated",
            Config {
                spread_of: SpreadOf::Address,
                accelerators: vec![("agg-evict".to_owned(), Parameters::default())],
                tunnels: Tunnels::Inner,
                ..of("destination-port", "space-saving", &[("counters", 16)])
            },
        ),
    ]
}

/// The parameters of `uniform` that decides before headers are read.
pub(crate) fn before_headers(sample: &str) -> Parameters {
    Parameters::new([("sample", sample), ("before", "headers")])
}

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.fgs"))
}

/// The bytes that are kept.
pub(crate) fn golden(name: &str) -> Vec<u8> {
    let path = path(name);
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// What the measurement stores today for a fixed capture on a fixed host.
fn stored(config: Config) -> Vec<u8> {
    let saved = saved(config, &mixed(61, 30));
    assert_eq!(saved.len(), 1);
    measured_by(&saved[0].bytes, "host", 7)
}

#[test]
fn golden_files_are_read_and_stored_again() {
    println!("seed 61");
    for (name, config) in measurements() {
        let stored = stored(config);
        assert!(stored.len() <= 4 << 10, "{name}: {} bytes", stored.len());
        if env::var("FLOWGAUGE_GOLDEN").is_ok_and(|what| what == "write") {
            fs::write(path(name), &stored).unwrap();
        }
        let kept = golden(name);
        assert!(stored == kept, "{name} is stored otherwise than it was");
        let snapshot = Snapshot::decode(&kept, LIMIT, Some(&seed_file())).unwrap();
        assert!(snapshot.encode() == kept, "{name} comes back otherwise than it was stored");
        let coverage = snapshot.coverage();
        assert_eq!((coverage.len(), coverage[0].host.as_str(), coverage[0].run), (1, "host", 7));
        assert_eq!(snapshot.account().read, 30);
        let again = Snapshot::decode_again(&kept, LIMIT, Some(&seed_file()), snapshot).unwrap();
        assert!(again.encode() == kept, "{name} comes back otherwise in used memory");
    }
}

/// Version 6 has only the threshold of the lanes, and version 5 also lacks audits.
#[test]
fn snapshots_of_earlier_versions_are_read() {
    for (name, config) in measurements() {
        for version in [5, 6] {
            if version == 5 && config.audit.is_some() {
                continue;
            }
            let old = golden(&format!("version-{version}/{name}"));
            assert_eq!(old[4..6], [version, 0]);
            let snapshot = Snapshot::decode(&old, LIMIT, Some(&seed_file())).unwrap();
            assert!(snapshot.encode() == golden(name), "{name}");
        }
    }
}

/// Version 4 also lacks the observed times: its epochs count as observed whole, and are stored as such.
#[test]
fn snapshots_without_observed_times_are_read() {
    for (name, config) in measurements().into_iter().filter(|(_, config)| config.audit.is_none()) {
        let old = golden(&format!("version-4/{name}"));
        assert_eq!(old[4..6], [4, 0]);
        let snapshot = Snapshot::decode(&old, LIMIT, Some(&seed_file())).unwrap();
        let coverage = &snapshot.coverage()[0];
        assert_eq!(coverage.observed_ns, coverage.bounds_ns, "{name}");
        let again = Snapshot::decode(&snapshot.encode(), LIMIT, Some(&seed_file())).unwrap();
        assert_eq!(again.coverage(), snapshot.coverage(), "{name}");
        // Other epochs than those by time are observed from their first packet to their last.
        let timed = matches!(config.epoch, EpochLength::Time(_));
        assert_eq!(snapshot.encode() == golden(name), !timed, "{name}");
    }
}

#[test]
fn each_file_is_of_a_measurement() {
    let files = fs::read_dir(path("").parent().unwrap()).unwrap();
    let kept = files.filter(|file| {
        file.as_ref().unwrap().path().extension().is_some_and(|extension| extension == "fgs")
    });
    assert_eq!(kept.count(), measurements().len());
}
