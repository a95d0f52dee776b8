//! Bytes that are not a snapshot, or not the stored one: they are refused, or decoded within the
//! memory limit.

use std::fs;
use std::path::Path;
use std::thread;

use flowgauge_core::catalog::{self, ALGORITHMS};
use flowgauge_core::summary::Parameters;
use flowgauge_engine::snapshot::{Snapshot, SnapshotError};
use flowgauge_engine::{Config, Plan};
use flowgauge_kernel::counting::peak_of;

use crate::capture::{Pcap, mixed, udp, udp6};
use crate::golden::{golden, measurements};
use crate::merge::config;
use crate::snapshot;
use crate::snapshots::{bears_all_use, seed_file};
use crate::stored::{lanes, measured_by, mended, mended_whole};

/// Bytes that the summaries of a snapshot may take.
const LIMIT: usize = 1 << 20;

/// Bytes of the heap beside these, for each byte that is read and in all. A filter is compiled from its
/// text, and a coverage holds more than its bytes.
const HEAP_PER_BYTE: u64 = 64;
const HEAP: u64 = 64 << 10;

/// Reads bytes, within the memory that they may take.
fn decode(bytes: &[u8]) -> Result<Snapshot, SnapshotError> {
    let (decoded, taken) = peak_of(|| Snapshot::decode(bytes, LIMIT, Some(&seed_file())));
    let most = HEAP + HEAP_PER_BYTE * bytes.len() as u64;
    assert!(taken <= most, "{taken} bytes of the heap to read {}", bytes.len());
    decoded
}

/// Why damaged bytes are refused.
fn refusal(bytes: &[u8], what: &str) -> SnapshotError {
    match decode(bytes) {
        Ok(_) => panic!("{what} is taken for a snapshot"),
        Err(error) => error,
    }
}

#[test]
fn every_flipped_bit_is_refused() {
    for (name, _) in measurements() {
        let bytes = golden(name);
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << bit;
                let error =
                    refusal(&damaged, &format!("{name} with bit {bit} of byte {at} flipped"));
                assert_eq!(error.is_damage(), at >= 4, "{name}: byte {at}: {error}");
            }
        }
    }
}

#[test]
fn every_cut_is_refused() {
    for (name, _) in measurements() {
        let bytes = golden(name);
        for end in 0..bytes.len() {
            let what = format!("{name} cut to {end} bytes");
            assert!(refusal(&bytes[..end], &what).is_damage(), "{what}");
            // With a matching checksum, missing fields are still noticed.
            if end >= 4 {
                refusal(&mended(bytes[..end].to_vec()), &what);
            }
        }
        let longer = [&bytes[..], &[0]].concat();
        assert!(refusal(&longer, name).is_damage());
        refusal(&mended([&bytes[..], &[0; 4]].concat()), name);
    }
}

/// Decodes the bytes with matching checksums: to an error, or to a snapshot that can be stored,
/// queried and merged. Returns whether they are a snapshot.
fn does_no_harm(bytes: &[u8], original: &[u8], what: &str) -> bool {
    let bytes = mended_whole(bytes.to_vec(), &lanes(original).unwrap());
    let Ok(mut snapshot) = decode(&bytes) else { return false };
    bears_all_use(&mut snapshot);
    // Packets that were counted are never counted again.
    assert!(snapshot.merge(&decode(&bytes).unwrap()).is_err(), "{what} is merged with itself");
    let mut sum = decode(&measured_by(original, "other", 8)).unwrap();
    if sum.merge(&snapshot).is_ok() {
        bears_all_use(&mut sum);
    }
    true
}

/// Flips bits behind checksums that fit, and sets runs of 8 bytes to their most: at each bit and byte
/// before the lanes, and at some in them, whose contents have tests of their own; in the long form at all.
#[test]
fn forged_fields_do_no_harm() {
    thread::scope(|scope| {
        for (name, _) in measurements() {
            scope.spawn(move || forge(name));
        }
    });
}

fn forge(name: &str) {
    let long = std::env::var_os("FLOWGAUGE_LONG").is_some();
    let bytes = golden(name);
    let (mut refused, mut taken) = (0, 0);
    let mut check = |forged: Vec<u8>, what: &str| {
        println!("{what}");
        let made = does_no_harm(&forged, &bytes, what);
        taken += usize::from(made);
        refused += usize::from(!made);
    };
    for at in 0..bytes.len() - 4 {
        let in_lane = lanes(&bytes).unwrap().iter().any(|lane| lane.contains(&at));
        if in_lane && !long && at % 11 > 0 {
            continue;
        }
        let bit = at as u32 * 3 % 8;
        for bit in if in_lane && !long { bit..bit + 1 } else { 0..8 } {
            let mut forged = bytes.clone();
            forged[at] ^= 1 << bit;
            check(forged, &format!("{name}: bit {bit} of byte {at}"));
        }
        let mut forged = bytes.clone();
        let end = (at + 8).min(bytes.len() - 4);
        forged[at..end].fill(0xff);
        check(forged, &format!("{name}: bytes {at} to {end}"));
    }
    println!("{name}: {refused} refused, {taken} taken");
    assert!(refused > 100 && taken > 100, "{name}: {refused} refused, {taken} taken");
}

/// The inputs that are kept for the fuzz target, and the golden files, which are its seeds.
#[test]
fn inputs_found_by_fuzzing_do_no_harm() {
    let inputs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/snapshot");
    let found = fs::read_dir(inputs).unwrap().map(|entry| fs::read(entry.unwrap().path()).unwrap());
    let golden = measurements().into_iter().flat_map(|(name, config)| {
        // Versions 4 and 5 had no audits.
        let first = if config.audit.is_some() { 6 } else { 4 };
        let old = (first..7).map(move |version| golden(&format!("version-{version}/{name}")));
        old.chain([golden(name)])
    });
    for input in golden.chain(found) {
        for length in (0..input.len()).rev().step_by(input.len() / 8 + 1) {
            crate::snapshots::snapshot(&input[..=length]);
        }
    }
}

/// Bytes of the snapshots that wait for a sink, which explain counts beside the one that is written.
const WAITING: u64 = 16 << 20;

#[test]
fn storing_takes_no_more_memory_than_explained() {
    println!("seed 83");
    let bytes = mixed(83, 20_000);
    for info in ALGORITHMS {
        let config = Config { save: true, ..config(info) };
        let explained = Plan::new(config.clone()).unwrap().explain();
        let most = explained.saving_bytes as u64 - WAITING;
        let snapshot = snapshot(config, &bytes);
        let (stored, taken) = peak_of(|| snapshot.encode());
        assert!(
            taken <= most,
            "{}: {taken} bytes to write {}, not {most}",
            info.name,
            stored.len()
        );
        assert!(explained.total_bytes() > explained.saving_bytes);
    }
    // A full table of short keys.
    let mut capture = Pcap::new();
    for flow in 0..20_000 {
        capture.frame(1_700_000_000_000_000_000, &udp((flow, 1), (2, 3)));
        capture.frame(1_700_000_000_000_000_000, &udp6((flow, 1), (2, 3)));
    }
    let table = catalog::info("linear-table").unwrap();
    let full = Config {
        key: "source".parse().unwrap(),
        parameters: Parameters::new([("buckets", 1 << 14)]),
        ..config(table)
    };
    let explained = Plan::new(full.clone()).unwrap().explain();
    let snapshot = snapshot(full, &capture.0);
    let (stored, taken) = peak_of(|| snapshot.encode());
    let most = explained.saving_bytes as u64 - WAITING;
    // Packets and bytes take two bytes at least, and three quarters of the buckets hold a flow.
    assert!(stored.len() > (3 << 12) * (4 + 2 + 16 + 2), "the tables are not full");
    assert!(taken <= most, "{taken} bytes to write {}, not {most}", stored.len());
    let without = Config { save: false, ..config(&ALGORITHMS[0]) };
    let without = Plan::new(without).unwrap().explain();
    assert_eq!(without.saving_bytes, 0);
}
