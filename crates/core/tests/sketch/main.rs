//! Sketches of rows against plain models, and their errors over many seeds.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod changes;
mod error;
mod model;
#[path = "../support/zipf.rs"]
mod zipf;

use std::collections::HashMap;

use flowgauge_core::batch::Batch;
use flowgauge_core::catalog;
use flowgauge_core::key::{FlowKey, Key8};
use flowgauge_core::summary::{Estimate, Options, Summary};
use flowgauge_core::terms::Measure;

use zipf::Zipf;

/// Sketches with linear cells, and all sketches.
const LINEAR: [&str; 3] = ["count-min", "count-sketch", "k-ary"];
const ALL: [&str; 4] = ["count-min", "conservative-count-min", "count-sketch", "k-ary"];

/// The key of a flow, with random bits.
fn key(flow: u32) -> Key8 {
    let bits = fastrand::Rng::with_seed(u64::from(flow)).u64(..);
    Key8::from_canonical(&bits.to_ne_bytes()).unwrap()
}

/// The flows of the packets of a Zipf-distributed stream.
fn stream(packets: usize, flows: usize, skew: f64, seed: u64) -> Vec<u32> {
    Zipf::new(flows, skew, seed).take(packets).collect()
}

fn sizes(packets: &[u32]) -> HashMap<u32, u64> {
    let mut sizes = HashMap::new();
    for flow in packets {
        *sizes.entry(*flow).or_insert(0) += 1;
    }
    sizes
}

/// The bytes of a packet: all packets of a flow have the same length.
fn bytes(flow: u32) -> u32 {
    64 + flow % 1000
}

fn options(rows: usize, columns: usize, seed: u64) -> Options {
    Options::new(1 << 20, seed).with([("rows", rows), ("columns", columns), ("candidates", 1024)])
}

fn build(name: &str, options: &Options) -> Box<dyn Summary<Key8>> {
    catalog::build(name, options).unwrap()
}

fn feed(sketch: &mut dyn Summary<Key8>, packets: &[u32], batch: usize) {
    let mut columns = Batch::new();
    for chunk in packets.chunks(batch) {
        columns.clear();
        for flow in chunk {
            columns.push(key(*flow), bytes(*flow), 0);
        }
        sketch.ingest(&mut columns);
    }
}

/// A sketch of these packets.
fn sketch(name: &str, options: &Options, packets: &[u32]) -> Box<dyn Summary<Key8>> {
    let mut sketch = build(name, options);
    feed(&mut *sketch, packets, 256);
    sketch
}

/// The cells of a linear sketch, sealed.
fn cells(sketch: &dyn Summary<Key8>) -> Vec<f64> {
    let source = sketch.answers().cells().unwrap();
    let mut cells = vec![0.0; source.len()];
    source.read(&mut cells);
    source.seal(&mut cells);
    cells
}

/// The estimated packets or bytes of a flow, with bounds.
fn estimate(sketch: &dyn Summary<Key8>, by: Measure, flow: u32) -> Estimate {
    sketch.answers().size().unwrap().estimate(key(flow).canonical(Key8::BYTES)).by(by).unwrap()
}

/// The seeds of accuracy tests.
fn seeds() -> std::ops::Range<u64> {
    if std::env::var_os("FLOWGAUGE_LONG").is_some() {
        0..256
    } else {
        println!("32 seeds; FLOWGAUGE_LONG=1 takes 256");
        0..32
    }
}
