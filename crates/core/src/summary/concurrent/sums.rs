//! Concurrent rows of cells that are sums: Count-Min, Count Sketch, K-ary and the additive array.

use std::marker::PhantomData;
use std::sync::atomic::Ordering::Relaxed;

use flowgauge_kernel::{Digester, prefetch};

use super::atomic::{AtomicU64, Column, column};
use super::{ConcurrentIngest, Total, add_saturating};
use crate::batch::{BATCH_PACKETS, Batch};
use crate::key::FlowKey;
use crate::summary::sketch::rows::{Rows, ask_first, signs, with_rows};
use crate::summary::{BuildError, Counter, Options, Summary};

/// Packets ahead of the current one whose cells are prefetched.
const PREFETCH_AHEAD: usize = 16;

/// Bytes per cell, in addition to the ordinary summary's.
pub(in crate::summary) const CELL_BYTES: usize = size_of::<AtomicU64>();

/// An ordinary summary whose cells are sums of weights, without candidates.
pub(in crate::summary) trait Sums<K: FlowKey>:
    Summary<K> + Sync + 'static
{
    /// The type of the weights, which says what is counted.
    type Weight: Counter;
    /// Whether rows subtract the weight of a key where its [`signs`] say so.
    const SIGNED: bool;
    /// The shape of the rows.
    fn shape(&self) -> Rows;
    /// Replaces its cells by `sums`, which lack a weight of `lost` in all rows together, and its
    /// total by `total`.
    fn replace(&mut self, total: u64, lost: u64, sums: impl Iterator<Item = u64>);
}

/// The cells, and the ordinary summary that they move to.
///
/// Cost: an atomic addition per row and packet, and a compare-and-swap per batch. Memory in bytes:
/// `rows × columns × 8`, and the ordinary summary's.
pub(in crate::summary) struct AtomicSums<K, S> {
    digester: Digester,
    rows: Rows,
    cells: Column<AtomicU64>,
    total: Total,
    /// Weight of the batches that the total did not take.
    refused: AtomicU64,
    ordinary: S,
    keys: PhantomData<fn(K)>,
}

impl<K: FlowKey, S: Sums<K>> AtomicSums<K, S> {
    /// Builds it beside the `ordinary` summary of the same options.
    pub(in crate::summary) fn build(
        options: &Options,
        ordinary: S,
    ) -> Result<Box<dyn ConcurrentIngest<K>>, BuildError> {
        let rows = ordinary.shape();
        // A cell holds any sum of these weights, of either sign.
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

/// Adds packets to the cells of `D` rows; if `SIGNED`, rows may subtract them.
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
            // In two's complement, a final sum that fits is right even if partial sums wrap.
            cells[places[i] as usize].fetch_add(weight, Relaxed);
        }
    }
}

impl<K: FlowKey, S: Sums<K>> ConcurrentIngest<K> for AtomicSums<K, S> {
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
