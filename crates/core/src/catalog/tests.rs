//! Concurrent summaries count what one worker counts, up to the last bit of their counters.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use super::stored::encode;
use super::{CONCURRENT, build, build_concurrent, info};
use crate::batch::Batch;
use crate::key::{FlowKey, Key4};
use crate::summary::Options;
use crate::terms::Measure;

/// The stored form of what these rows make, one worker's and the concurrent summary's.
fn both(name: &str, by: Measure, rows: &[(u32, u32, u64)]) -> [Vec<u8>; 2] {
    let info = info(name).unwrap();
    let alone = Options { by, ..Options::new(64 << 10, 1) };
    let alone = match name {
        "linear-table" => alone.with([("buckets", "64")]),
        "count-array" => alone.with([("columns", "64"), ("candidates", "0")]),
        _ => alone.with([("columns", "64"), ("candidates", "0"), ("rows", "3")]),
    };
    let mut ordinary = build::<Key4>(name, &alone).unwrap();
    let mut concurrent = build_concurrent::<Key4>(name, &alone).unwrap();
    let mut batch = Batch::new();
    for &(flow, packets, bytes) in rows {
        let key = Key4::from_canonical(&flow.to_be_bytes()).unwrap();
        batch.push_sum(key, packets, bytes, 0, 0);
        concurrent.ingest(&mut batch);
        ordinary.ingest(&mut batch);
        batch.clear();
    }
    [&*ordinary, concurrent.collect()].map(|summary| encode(info, &alone, summary))
}

/// Packets that are more than 32 bits hold, which only counters of unsigned numbers cut off in any
/// order.
#[test]
fn full_counters_are_those_of_one_worker() {
    let rows = [(1, u32::MAX, 1 << 40), (2, 7, 1), (1, u32::MAX, 1), (3, 1 << 31, 1), (1, 9, 1)];
    for name in CONCURRENT {
        let rows = if *name == "count-sketch" { &rows[1..3] } else { &rows[..] };
        let [ordinary, concurrent] = both(name, Measure::Packets, rows);
        assert!(ordinary == concurrent, "{name}");
    }
}

/// Bytes that are more than 64 bits hold are saturated, whatever flow they are of.
#[test]
fn nothing_wraps() {
    let rows = [(1, 1, u64::MAX - 10), (2, 1, 11), (2, 1, 5)];
    for name in CONCURRENT {
        let options = Options { by: Measure::Bytes, ..Options::new(64 << 10, 1) };
        let mut concurrent = build_concurrent::<Key4>(name, &options).unwrap();
        let mut batch = Batch::new();
        for (flow, packets, bytes) in rows {
            let key = Key4::from_canonical(&u32::to_be_bytes(flow)).unwrap();
            batch.push_sum(key, packets, bytes, 0, 0);
            concurrent.ingest(&mut batch);
            batch.clear();
        }
        let answers = concurrent.collect().answers();
        let size = |flow: u32| {
            let estimate = answers.size().unwrap().estimate(&flow.to_be_bytes());
            estimate.bytes.unwrap().value
        };
        let signed = *name == "count-sketch";
        let kept = if signed { 0.0 } else { (u64::MAX - 10) as f64 };
        assert!(size(1) >= kept * (1.0 - 1e-9), "{name}");
        let lost = if signed { u64::MAX - 10 } else { 11 };
        let refused = answers.saturated().bytes.max(answers.untracked().bytes);
        assert!(refused >= lost, "{name}");
        // The bounds contain the truth, counted or not.
        let second = answers.size().unwrap().estimate(&2u32.to_be_bytes()).bytes.unwrap();
        assert!(signed || second.high >= 16.0, "{name}: {second:?}");
    }
}
