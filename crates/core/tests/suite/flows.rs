//! Keys of numbered flows, and summaries that take their packets.

use flowgauge_core::batch::Batch;
use flowgauge_core::key::{FlowKey, Key8};
use flowgauge_core::summary::Summary;

/// The key of a flow.
pub(crate) fn key(flow: u32) -> Key8 {
    Key8::from_canonical(&flow.to_be_bytes()).unwrap()
}

/// Feeds packets, each a flow and its bytes, to a summary, and settles it.
pub(crate) fn feed<K: FlowKey, F: Copy>(
    summary: &mut dyn Summary<K>,
    key: impl Fn(F) -> K,
    packets: &[(F, u32)],
) {
    let mut batch = Batch::new();
    for chunk in packets.chunks(256) {
        batch.clear();
        for &(flow, bytes) in chunk {
            batch.push(key(flow), bytes, 0);
        }
        summary.ingest(&mut batch);
    }
    summary.settle();
}
