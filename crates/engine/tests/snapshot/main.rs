//! Snapshots: the stored form of closed epochs, and the answers of the stored bytes.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod answers;
#[allow(dead_code, reason = "what is shared serves whole runs too")]
#[path = "../run/capture.rs"]
mod capture;
mod golden;
mod hostile;
mod merge;
#[allow(unreachable_pub, reason = "it serves the fuzz target too")]
#[path = "../../../../fuzz/src/snapshots.rs"]
mod snapshots;
mod stored;

use std::sync::Arc;

use flowgauge_engine::sink::{Item, Json, Sink, SinkError, Written};
use flowgauge_engine::snapshot::{Saved, Snapshot};
use flowgauge_engine::{Config, Plan};
use flowgauge_kernel::counting::Counting;
use serde_json::Value;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const LIMIT: usize = 64 << 20;

/// A sink that keeps stored epochs.
#[derive(Default)]
struct Keep(Vec<Arc<Saved>>);

impl Sink for Keep {
    fn deliver(&mut self, item: &Item) -> Result<(), SinkError> {
        if let Item::Snapshot(saved) = item {
            self.0.push(Arc::clone(saved));
        }
        Ok(())
    }
}

/// The snapshots of a run over a capture.
fn saved(config: Config, bytes: &[u8]) -> Vec<Arc<Saved>> {
    let plan = Plan::new(Config { save: true, ..config }).unwrap();
    let mut source = flowgauge_capture::Captures::from_bytes("test.pcap", bytes.to_vec());
    let mut keep = Keep::default();
    flowgauge_engine::run(plan, &mut source, &mut keep, &mut |_| {}).unwrap();
    keep.0
}

fn snapshot(config: Config, bytes: &[u8]) -> Snapshot {
    let saved = saved(config, bytes);
    assert_eq!(saved.len(), 1);
    Snapshot::decode(&saved[0].bytes, LIMIT, None).unwrap()
}

/// The report of the only epoch of a run.
fn only_epoch(config: Config, bytes: &[u8]) -> Value {
    let mut out = Vec::new();
    let mut source = flowgauge_capture::Captures::from_bytes("test.pcap", bytes.to_vec());
    let mut sink = Written::new(Json, &mut out);
    flowgauge_engine::run(Plan::new(config).unwrap(), &mut source, &mut sink, &mut |_| {}).unwrap();
    let text = String::from_utf8(out).unwrap();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 2, "one epoch and the total");
    serde_json::from_str(lines[0]).unwrap()
}

/// A small configuration with the tasks named.
fn asking(tasks: &[&str]) -> Config {
    Config {
        tasks: Some(tasks.iter().map(|task| (*task).to_owned()).collect()),
        memory_bytes: 16 << 20,
        ..Config::seeded(0)
    }
}
