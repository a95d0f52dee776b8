//! Streams of random keys with Zipf's frequencies, and sketches of them.

use std::collections::HashMap;

use flowgauge_core::batch::Batch;
use flowgauge_core::catalog;
use flowgauge_core::key::{FlowKey, Key8};
use flowgauge_core::summary::{Options, Summary};
use flowgauge_core::terms::Measure;

use crate::zipf::Zipf;

/// Sketches whose cells are linear, and all of them.
pub(crate) const LINEAR: [&str; 3] = ["count-min", "count-sketch", "k-ary"];
pub(crate) const ALL: [&str; 4] = ["count-min", "conservative-count-min", "count-sketch", "k-ary"];

/// The key of a flow, all of its bits random.
pub(crate) fn key(flow: u32) -> Key8 {
    let bits = fastrand::Rng::with_seed(u64::from(flow)).u64(..);
    Key8::from_canonical(&bits.to_ne_bytes()).unwrap()
}

/// Packets of a Zipf-distributed stream by their flows.
pub(crate) fn stream(packets: usize, flows: usize, skew: f64, seed: u64) -> Vec<u32> {
    Zipf::new(flows, skew, seed).take(packets).collect()
}

pub(crate) fn sizes(packets: &[u32]) -> HashMap<u32, u64> {
    let mut sizes = HashMap::new();
    for flow in packets {
        *sizes.entry(*flow).or_insert(0) += 1;
    }
    sizes
}

/// The bytes of a packet, by its flow: all packets of a flow are of one length.
pub(crate) fn bytes(flow: u32) -> u32 {
    64 + flow % 1000
}

pub(crate) fn options(rows: usize, columns: usize, seed: u64) -> Options {
    Options::new(1 << 20, seed).with([("rows", rows), ("columns", columns), ("candidates", 1024)])
}

pub(crate) fn build(name: &str, options: &Options) -> Box<dyn Summary<Key8>> {
    catalog::build(name, options).unwrap()
}

pub(crate) fn feed(sketch: &mut dyn Summary<Key8>, packets: &[u32], batch: usize) {
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
pub(crate) fn sketch(name: &str, options: &Options, packets: &[u32]) -> Box<dyn Summary<Key8>> {
    let mut sketch = build(name, options);
    feed(&mut *sketch, packets, 256);
    sketch
}

/// The cells of a linear sketch, sealed.
pub(crate) fn cells(sketch: &dyn Summary<Key8>) -> Vec<f64> {
    let source = sketch.answers().cells().unwrap();
    let mut cells = vec![0.0; source.len()];
    source.read(&mut cells);
    source.seal(&mut cells);
    cells
}

/// The estimated packets, or bytes, of a flow with the bounds.
pub(crate) fn estimate(
    sketch: &dyn Summary<Key8>,
    by: Measure,
    flow: u32,
) -> flowgauge_core::summary::Estimate {
    sketch.answers().size().unwrap().estimate(key(flow).canonical(Key8::BYTES)).by(by).unwrap()
}

/// Seeds of the tests of accuracy.
pub(crate) fn seeds() -> std::ops::Range<u64> {
    if std::env::var_os("FLOWGAUGE_LONG").is_some() {
        0..256
    } else {
        println!("32 seeds; FLOWGAUGE_LONG=1 takes 256");
        0..32
    }
}
