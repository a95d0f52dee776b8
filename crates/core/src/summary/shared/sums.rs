//! Cells that are sums of weights: Count-Min, Count Sketch, K-ary and the additive array, shared.

use std::marker::PhantomData;

use flowgauge_kernel::{Digester, prefetch};

use super::super::sketch::rows::{Rows, ask_first, signs, with_rows};
use super::super::{BuildError, Counter, Options, Summary};
use super::atomic::{AtomicU64, Column, Relaxed, add_saturating, column};
use super::{SharedIngest, Total};
use crate::batch::{BATCH_PACKETS, Batch};
use crate::key::FlowKey;

/// Packets whose cells are asked for ahead of the one in hand.
const PREFETCH_AHEAD: usize = 16;

/// Bytes of a cell, beside those of the ordinary summary.
pub(in crate::summary) const CELL_BYTES: usize = size_of::<AtomicU64>();

/// An ordinary summary of such cells, without candidates.
pub(in crate::summary) trait Sums<K: FlowKey>:
    Summary<K> + Sync + 'static
{
    /// The weights.
    type Weight: Counter;
    /// Whether some rows subtract them: those that [`signs`] tell.
    const SIGNED: bool;
    /// The rows of cells.
    fn shape(&self) -> Rows;
    /// Takes over the sums of cells instead of its own; `lost` is what these lack of the total, over
    /// all rows.
    fn replace(&mut self, total: u64, lost: u64, sums: impl Iterator<Item = u64>);
}

/// The cells, and the ordinary summary that they move to.
///
/// Cost: an atomic addition for each row a packet, and one compare-and-swap a batch. Memory in bytes:
/// `rows × columns × 8`, and the ordinary summary's.
pub(in crate::summary) struct AtomicSums<K, S> {
    digester: Digester,
    rows: Rows,
    cells: Column<AtomicU64>,
    total: Total,
    /// Weight that found no room in the total.
    refused: AtomicU64,
    ordinary: S,
    keys: PhantomData<fn(K)>,
}

impl<K: FlowKey, S: Sums<K>> AtomicSums<K, S> {
    /// Boxes it, with the `ordinary` summary that was built from the same options.
    pub(in crate::summary) fn build(
        options: &Options,
        ordinary: S,
    ) -> Result<Box<dyn SharedIngest<K>>, BuildError> {
        let rows = ordinary.shape();
        // No sum of these is over what a cell holds of either sign.
        let most = if S::SIGNED { i64::MAX.unsigned_abs() } else { u64::MAX };
        Ok(Box::new(Self {
            digester: options.digester,
            rows,
            cells: column(rows.cells(), &options.memory)?,
            total: Total::new(most),
            refused: AtomicU64::new(0),
            ordinary,
            keys: PhantomData,
        }))
    }
}

/// Adds packets to the cells of `D` rows, some of which subtract them where they are `SIGNED`.
#[inline(never)]
fn add<W: Counter, const D: usize, const SIGNED: bool>(
    rows: Rows,
    cells: &[AtomicU64],
    digests: &[u64],
    weights: &[W],
) {
    let mut places = [[0; BATCH_PACKETS]; D];
    let places = &mut places[..rows.count::<D>()];
    rows.place_batch(digests, places);
    ask_first(cells, places, PREFETCH_AHEAD);
    for (i, (&digest, weight)) in digests.iter().zip(weights).enumerate() {
        if i + PREFETCH_AHEAD < BATCH_PACKETS {
            for row in places.iter() {
                prefetch(cells, row[i + PREFETCH_AHEAD] as usize);
            }
        }
        let signs = if SIGNED { signs(digest) } else { 0 };
        for (row, places) in places.iter().enumerate() {
            let sign = 1 - 2 * (signs >> row & 1).cast_signed();
            let weight = weight.get().wrapping_mul(sign.cast_unsigned());
            // In two's complement a sum that fits wraps on the way to it as often as back.
            cells[places[i] as usize].fetch_add(weight, Relaxed);
        }
    }
}

impl<K: FlowKey, S: Sums<K>> SharedIngest<K> for AtomicSums<K, S> {
    fn ingest(&self, batch: &mut Batch<K>) {
        batch.digest(&self.digester);
        let (digests, weights) = (batch.digests(), S::Weight::column(batch));
        let weight = S::Weight::sum(weights);
        if self.total.takes(weight) {
            let cells = &*self.cells;
            with_rows!(self.rows.rows(), D => if S::SIGNED {
                add::<_, D, true>(self.rows, cells, digests, weights);
            } else {
                add::<_, D, false>(self.rows, cells, digests, weights);
            });
        } else {
            add_saturating(&self.refused, weight);
        }
    }

    fn collect(&mut self) -> &mut dyn Summary<K> {
        let (refused, ordinary) = (self.refused.swap(0, Relaxed), &mut self.ordinary);
        let total = self.total.reset().saturating_add(refused);
        let lost = refused.saturating_mul(self.rows.rows() as u64);
        ordinary.replace(total, lost, self.cells.iter().map(|cell| cell.swap(0, Relaxed)));
        ordinary
    }

    fn ordinary(&self) -> &dyn Summary<K> {
        &self.ordinary
    }

    fn memory_bytes(&self) -> usize {
        self.cells.len() * CELL_BYTES + self.ordinary.memory_bytes()
    }
}
