//! Packets that a sample takes, on their way to the summary behind.

use crate::batch::{BATCH_PACKETS, Batch};
use crate::key::FlowKey;
use crate::summary::Ingest;
use crate::terms::Measure;

/// A batch of packets with the weights of those that they stand for. Memory: one batch.
pub(super) struct Taken<K> {
    rows: Batch<K>,
    units: Measure,
    /// Whether the summary behind reads their bytes.
    reads_bytes: bool,
}

impl<K: FlowKey> Taken<K> {
    pub(super) const BYTES: usize = Batch::<K>::BYTES;

    pub(super) fn new(units: Measure, reads_bytes: bool) -> Self {
        Self { rows: Batch::new(), units, reads_bytes }
    }

    /// Whether there may be no room for another packet.
    #[inline(always)]
    pub(super) fn is_full(&self) -> bool {
        self.rows.len() + 2 > BATCH_PACKETS
    }

    /// Takes a row of a batch, which stands for so many units. A summary of sizes has no use for elements.
    #[inline]
    pub(super) fn push(&mut self, batch: &Batch<K>, row: usize, units: u64) {
        let (key, time_ns) = (batch.keys()[row], batch.times_ns()[row]);
        // Lines of the batch that nobody asks for stay where they are.
        let packets = if batch.is_plain() { 1 } else { batch.packets()[row] };
        let bytes = if self.reads_bytes { batch.bytes()[row] } else { 0 };
        if self.units == Measure::Bytes {
            return self.rows.push_sum(key, packets, units, time_ns, 0);
        }
        let bytes = u128::from(bytes) * u128::from(units) / u128::from(packets.max(1));
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        // Both terms of n + w - G are below 2^32, and so two rows hold them.
        let first = u32::try_from(units).unwrap_or(u32::MAX);
        self.rows.push_sum(key, first, bytes, time_ns, 0);
        if let Ok(rest @ 1..) = u32::try_from(units - u64::from(first)) {
            self.rows.push_sum(key, rest, 0, time_ns, 0);
        }
    }

    /// Passes on what was taken.
    pub(super) fn pass_on(&mut self, to: &mut (impl Ingest<K> + ?Sized)) {
        if !self.rows.is_empty() {
            to.ingest(&mut self.rows);
            self.rows.clear();
        }
    }

    pub(super) fn clear(&mut self) {
        self.rows.clear();
    }
}
