//! Sketches of levels, each of which may be a sample of its own.

use crate::batch::{BATCH_PACKETS, Batch};
use crate::key::FlowKey;

/// Levels at most.
pub const MOST_LEVELS: usize = 16;

/// The levels from this one on have one in 256 of the flows. Samplers take all of their packets: sums over
/// all flows begin where every flow is known, however long the stream is and however large a flow.
pub(crate) const FIRST_WHOLE: usize = 8;

/// A summary whose packets fall into levels by their keys. Deep levels get few of the packets, so that
/// each level is sampled at a rate of its own.
pub trait LevelIngest<K: FlowKey> {
    /// Number of levels, at most [`MOST_LEVELS`].
    fn levels(&self) -> usize;

    /// Digests a batch, and writes the level of each of its packets.
    fn levels_of(&self, batch: &mut Batch<K>, levels: &mut [u8; BATCH_PACKETS]);

    /// Number of cells of a level, all of which [`Self::level_squared_l2`] reads.
    fn level_cells(&self, level: usize) -> usize;

    /// The sum of the squares of the sizes of a level's flows. Sampling adds its own variance.
    fn level_squared_l2(&self, level: usize) -> f64;

    /// Tells what the levels are samples of, in place of what was told before: packets that weigh
    /// `total` in all. `delta` is the chance that the error of a sample of whole packets is larger
    /// than bounds say; `None` where each row has a sample of its own.
    fn levels_sampled_from(&mut self, total: u64, levels: &[LevelSample], delta: Option<f64>);
}

/// How the packets of a level were sampled.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LevelSample {
    /// The variance of a flow's sampled weight over that weight, at most; 0 where every packet counts.
    pub most: u64,
    /// The same for a flow that came as the packets of the level did, some of which were sampled at
    /// higher rates.
    pub mean: f64,
}

impl LevelSample {
    /// One whose variance is the same all the time.
    pub(crate) fn steady(unit: u64) -> Self {
        Self { most: unit, mean: unit as f64 }
    }
}
