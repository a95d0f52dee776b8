//! Structures of the catalog.

use flowgauge_core::batch::{BATCH_PACKETS, Batch};
use flowgauge_core::key::Key8;
use flowgauge_core::summary::Summary;
use flowgauge_core::terms::Measure;

use super::{Contender, Peer};
use crate::experiment::{FRAME_BYTES, Setting, Structure};
use crate::failure::Failure;
use crate::keys::Pairs;

pub(super) const PROJECT: &str = "flowgauge";

/// Like other implementations: without heavy keys.
const SKETCH: [(&str, &str); 3] = [("rows", "4"), ("columns", "65536"), ("candidates", "0")];

/// Rows of the aggregator.
const AGG_EVICT: [(&str, &str); 1] = [("rows", "8192")];

/// A summary, and the batch for it.
struct Ours {
    summary: Box<dyn Summary<Key8>>,
    batch: Batch<Key8>,
}

impl Peer for Ours {
    fn begin(&mut self) {
        self.summary.clear();
    }

    fn take(&mut self, keys: &[u64]) {
        for keys in bytemuck::cast_slice(keys).chunks(BATCH_PACKETS) {
            self.batch.fill(keys, FRAME_BYTES);
            self.summary.ingest(&mut self.batch);
        }
        self.summary.settle();
    }

    fn memory_bytes(&self) -> usize {
        self.summary.memory_bytes()
    }

    fn size(&self, key: u64) -> Option<f64> {
        let estimate = self.summary.answers().size()?.estimate(&key.to_ne_bytes());
        Some(estimate.by(Measure::Packets)?.value)
    }

    fn flows(&self) -> Option<f64> {
        // Tables are judged by sizes.
        let answers = self.summary.answers();
        if answers.size().is_some() { None } else { Some(answers.cardinality()?.value) }
    }
}

fn of(structure: &Structure, name: &'static str, setting: &Setting) -> Result<Contender, Failure> {
    let summary = structure.build::<Pairs>(setting)?;
    let peer = Box::new(Ours { summary, batch: Batch::new() });
    Ok(Contender { project: PROJECT, name, peer })
}

/// Count-Min, alone and behind the accelerators that keep every packet.
pub(super) fn count_min(setting: &Setting) -> Result<Vec<Contender>, Failure> {
    let plain = Structure::new("", "count-min").with(SKETCH);
    let conservative = Structure::new("", "conservative-count-min").with(SKETCH);
    let behind = plain.clone().behind("agg-evict", AGG_EVICT);
    Ok(vec![
        of(&plain, "count-min", setting)?,
        of(&conservative, "conservative-count-min", setting)?,
        of(&behind, "count-min behind Agg-Evict", setting)?,
    ])
}

/// Count-Min behind NitroSketch.
pub(super) fn nitro_count_min(setting: &Setting) -> Result<Contender, Failure> {
    let sketch = Structure::new("", "count-min").with(SKETCH).behind("nitro", [("p", "0.01")]);
    of(&sketch, "count-min behind NitroSketch", setting)
}

/// Count Sketch.
pub(super) fn count_sketch(setting: &Setting) -> Result<Contender, Failure> {
    of(&Structure::new("", "count-sketch").with(SKETCH), "count-sketch", setting)
}

/// Count Sketch behind NitroSketch.
pub(super) fn nitro_count_sketch(setting: &Setting) -> Result<Contender, Failure> {
    let sketch = Structure::new("", "count-sketch").with(SKETCH).behind("nitro", [("p", "0.01")]);
    of(&sketch, "count-sketch behind NitroSketch", setting)
}

/// Space-Saving in this many bytes.
pub(super) fn space_saving(setting: &Setting, bytes: usize) -> Result<Contender, Failure> {
    of(&Structure::new("", "space-saving").in_bytes(bytes), "space-saving", setting)
}

/// The exact table with room for this many flows: it is full at three quarters.
pub(super) fn linear_table(setting: &Setting, flows: usize) -> Result<Contender, Failure> {
    let buckets = (4 * flows).div_ceil(3).next_power_of_two();
    of(&Structure::new("", "linear-table").with([("buckets", buckets)]), "linear-table", setting)
}

/// HyperLogLog.
pub(super) fn hyperloglog(setting: &Setting) -> Result<Contender, Failure> {
    let registers = [("registers", "16384")];
    of(&Structure::new("", "hyperloglog").with(registers), "hyperloglog", setting)
}

/// Linear Counting in the same memory.
pub(super) fn linear_counting(setting: &Setting) -> Result<Contender, Failure> {
    let bits = [("bits", "131072")];
    of(&Structure::new("", "linear-counting").with(bits), "linear-counting", setting)
}
