//! Sketches that take packets into single rows.

use flowgauge_core::batch::Batch;
use flowgauge_core::catalog;
use flowgauge_core::catalog::stored::encode;
use flowgauge_core::key::Key16;
use flowgauge_core::summary::{Options, Summary};
use flowgauge_core::terms::Measure;

use super::build;
use super::stream::{Packet, feed, key, packets};

const FLOWS: u32 = 300;

/// Takes each packet into each row on its own.
fn feed_rows(summary: &mut dyn Summary<Key16>, by: Measure, packets: &[Packet]) {
    let rows = summary.rows().unwrap();
    let (mut batch, mut of, mut total) = (Batch::new(), Vec::new(), 0);
    for packet in packets {
        total += if by == Measure::Packets { 1 } else { u64::from(packet.bytes) };
        for row in 0..rows.rows() {
            batch.push(key(packet.flow), packet.bytes, 0);
            of.push(row as u8);
        }
        if batch.len() + rows.rows() > 256 {
            rows.ingest_rows(&mut batch, &of);
            batch.clear();
            of.clear();
        }
    }
    rows.ingest_rows(&mut batch, &of);
    rows.sampled_from(total, 0);
}

fn sketches() -> [(&'static str, Vec<(&'static str, &'static str)>); 8] {
    let wide = vec![("rows", "4"), ("columns", "65536"), ("candidates", "0")];
    // Columns of several words of the digest.
    let deep = vec![("rows", "11"), ("columns", "1024"), ("candidates", "0")];
    [
        ("count-min", wide.clone()),
        ("count-min", deep.clone()),
        ("count-sketch", wide.clone()),
        ("count-sketch", deep.clone()),
        ("k-ary", wide),
        ("k-ary", deep),
        ("univmon", vec![("levels", "4"), ("rows", "4"), ("columns", "1024"), ("top", "512")]),
        ("univmon", vec![("levels", "3"), ("rows", "9"), ("columns", "512"), ("top", "512")]),
    ]
}

/// Packets that go into all rows one by one are as packets that go into all at once.
#[test]
fn all_rows_are_the_whole() {
    let stream = packets(10_000, FLOWS, 3);
    for by in [Measure::Packets, Measure::Bytes] {
        for (name, parameters) in sketches() {
            let options = Options { by, ..Options::new(1 << 20, 1).with(parameters) };
            let info = catalog::info(name).unwrap();
            let mut plain = build::<Key16>(None, name, &options).unwrap();
            feed(&mut *plain, &stream, 256);
            let mut summary = build::<Key16>(None, name, &options).unwrap();
            feed_rows(&mut *summary, by, &stream);
            if name == "univmon" {
                // What its heaps remember of an estimate is as old as the key's place there.
                let cells = |summary: &dyn Summary<Key16>| {
                    let cells = summary.answers().cells().unwrap();
                    let mut numbers = vec![0.0; cells.len()];
                    cells.read(&mut numbers);
                    numbers
                };
                assert!(cells(&*plain) == cells(&*summary));
                assert_eq!(plain.answers().cardinality(), summary.answers().cardinality());
            } else {
                let [plain, summary] = [&plain, &summary].map(|s| encode(info, &options, &**s));
                assert!(plain == summary, "{name} {by:?}");
            }
        }
    }
}

/// L2² is known within the error of so many columns: √(8/1024) in half of the rows at most.
#[test]
fn the_squares_are_known() {
    let stream = packets(10_000, FLOWS, 3);
    for (name, parameters) in sketches() {
        let options = Options::new(1 << 20, 1).with(parameters);
        let mut summary = build::<Key16>(None, name, &options).unwrap();
        feed(&mut *summary, &stream, 256);
        let mut sizes = vec![0.0f64; FLOWS as usize];
        for packet in &stream {
            sizes[packet.flow as usize] += 1.0;
        }
        let truth: f64 = sizes.iter().map(|size| size * size).sum();
        let found = summary.rows().unwrap().squared_l2();
        assert!((found / truth - 1.0).abs() < 0.1, "{name}: {found} {truth}");
    }
}

/// Only rows of independent counters are sampled one by one.
#[test]
fn other_summaries_have_no_such_rows() {
    for info in catalog::ALGORITHMS {
        let Some(mut summary) = build::<Key16>(None, info.name, &Options::new(1 << 20, 1)) else {
            continue;
        };
        assert_eq!(summary.rows().is_some(), info.laws.rows, "{}", info.name);
    }
}
