//! Sketches whose rows take packets one by one.

use crate::batch::Batch;
use crate::key::FlowKey;

/// A sketch of rows, each of which tells sizes on its own: a packet may go into any of them, and the
/// others are right on average nevertheless if each takes its own sample of the packets.
pub trait RowIngest<K: FlowKey> {
    /// Number of rows.
    fn rows(&self) -> usize;

    /// Number of cells, all of which [`Self::squared_l2`] reads.
    fn cells(&self) -> usize;

    /// Takes packets into single rows: the weight of packet `i` of the batch goes to row `rows[i]` of
    /// its key and to no other, in each sketch that the key is in. It is the weight of all the packets
    /// that this one stands for.
    ///
    /// What is heavy is judged by the total that [`Self::sampled_from`] told last.
    fn ingest_rows(&mut self, batch: &mut Batch<K>, rows: &[u8]);

    /// Tells what the rows were sampled from, in place of what was told before: packets that weigh
    /// `total` so far, in such a way that in each row the variance of a flow's weight is at most
    /// `unit` times that weight. A `unit` of 0 is no sample at all.
    fn sampled_from(&mut self, total: u64, unit: u64);

    /// The sum of the squares of all flows' sizes, L2², as the median row has it. Sampling adds its
    /// own variance.
    fn squared_l2(&self) -> f64;
}
