//! Concurrent summaries: several workers fill one summary at once, without a lock.
//!
//! Paper: Alipourfard et al., "A comparison of performance and accuracy of measurement algorithms
//! in software" (SOSR 2018), §5. Workers add to counters atomically, and claim a bucket of a table
//! by a compare-and-swap. An addition costs more than in a summary for each worker, since it waits
//! until its cache line belongs to this core alone; the copies and their merge are saved.
//!
//! At the close of an epoch the counts move to an ordinary summary of the same shape, which
//! answers, merges and is stored like any other. It holds what one worker would have counted: the
//! same cells to the bit where their sums fit (unsigned cells also where they do not), and the same
//! flows and sizes in a table with room.
//!
//! Counters have 64 bits here, while an ordinary summary counts packets in 32. The excess is cut
//! off at the close and counted as saturated, as always. No 64-bit counter wraps: a batch is added
//! only if the sum of all weights stays within 64 bits. Otherwise its weight is counted as
//! saturated, and in a table as untracked.

mod sums;
mod table;

pub(super) use sums::{AtomicSums, CELL_BYTES, Sums};

use std::sync::atomic::Ordering::Relaxed;

use self::atomic::AtomicU64;
use crate::batch::Batch;
use crate::key::FlowKey;
use crate::summary::{BuildError, BuildErrorKind, Describe, Options, Summary};

/// The write side of a summary that several workers fill.
///
/// ```
/// use flowgauge_core::key::{FlowKey, Key8};
/// use flowgauge_core::{batch::Batch, catalog, summary::Options};
///
/// let options = Options::new(1 << 20, 1).for_keys(4);
/// let mut table = catalog::build_concurrent::<Key8>("linear-table", &options)?;
/// std::thread::scope(|scope| {
///     for _ in 0..2 {
///         scope.spawn(|| {
///             let mut batch = Batch::new();
///             batch.push(Key8::from_canonical(&[10, 0, 0, 1]).unwrap(), 1500, 0);
///             table.ingest(&mut batch);
///         });
///     }
/// });
/// assert_eq!(table.collect().answers().flows().unwrap().get(0).1.packets, 2);
/// # Ok::<(), flowgauge_core::summary::BuildError>(())
/// ```
pub trait ConcurrentIngest<K: FlowKey>: Send + Sync {
    /// Takes a batch, and digests it if that was not done before. Any number of threads may call it
    /// at once.
    fn ingest(&self, batch: &mut Batch<K>);
    /// Moves the counts since the last call into the ordinary summary, and removes its earlier
    /// counts. Does not allocate.
    fn collect(&mut self) -> &mut dyn Summary<K>;
    /// The ordinary summary, with what was collected last.
    fn ordinary(&self) -> &dyn Summary<K>;
    /// Bytes of memory reserved, the ordinary summary included.
    fn memory_bytes(&self) -> usize;
}

/// A type of summary that several workers can fill.
pub trait Concurrent: Describe {
    /// Reserves the memory and builds the concurrent summary for keys of type `K`.
    ///
    /// # Errors
    /// As [`Describe::build`], and when the parameters do not allow a concurrent summary.
    fn build_concurrent<K: FlowKey>(
        options: &Options,
    ) -> Result<Box<dyn ConcurrentIngest<K>>, BuildError>;
}

/// The same options with `candidates=0`: which keys are heavy depends on the order of all packets,
/// which a concurrent summary does not know.
pub(crate) fn without_candidates(options: &Options) -> Result<Options, BuildError> {
    match options.parameters.get("candidates") {
        None | Some("0") => {}
        Some(value) => {
            return Err(BuildErrorKind::OutOfRange {
                name: "candidates",
                value: value.to_owned(),
                range: "supported in a concurrent summary: use candidates=0".to_owned(),
            }
            .into());
        }
    }
    Ok(Options { parameters: options.parameters.and("candidates", "0"), ..options.clone() })
}

/// The sum of all weights, which stays within a limit, so that no counter wraps.
struct Total {
    most: u64,
    weight: AtomicU64,
}

impl Total {
    fn new(most: u64) -> Self {
        Self { most, weight: AtomicU64::new(0) }
    }

    /// Adds `weight` unless the total would exceed the limit; returns whether it was added.
    fn takes(&self, weight: u64) -> bool {
        let sum = |sum: u64| sum.checked_add(weight).filter(|sum| *sum <= self.most);
        self.weight.fetch_update(Relaxed, Relaxed, sum).is_ok()
    }

    /// Returns the sum, and sets it to 0.
    fn reset(&mut self) -> u64 {
        self.weight.swap(0, Relaxed)
    }
}

/// Adds up to the largest number.
fn add_saturating(number: &AtomicU64, other: u64) {
    if other > 0 {
        // The closure never refuses, so the result is always Ok.
        let _ = number.fetch_update(Relaxed, Relaxed, |sum| Some(sum.saturating_add(other)));
    }
}

/// Atomic numbers and arrays of them.
#[cfg(not(all(loom, test)))]
mod atomic {
    use bytemuck::Zeroable;
    use flowgauge_kernel::Zeroed;
    pub(super) use std::sync::atomic::{AtomicU32, AtomicU64};

    use super::super::{BuildError, Memory};

    /// An array of fixed length, all zero at first.
    pub(super) type Column<T> = Zeroed<T>;

    /// Reserves `len` zeros.
    pub(super) fn column<T: Zeroable>(
        len: usize,
        memory: &Memory,
    ) -> Result<Column<T>, BuildError> {
        memory.zeroed(len)
    }
}

/// The same in types that the model checker loom instruments.
#[cfg(all(loom, test))]
mod atomic {
    pub(super) use loom::sync::atomic::{AtomicU32, AtomicU64};

    use super::super::{BuildError, Memory};

    pub(super) type Column<T> = Box<[T]>;

    pub(super) fn column<T: Default>(len: usize, _: &Memory) -> Result<Column<T>, BuildError> {
        Ok((0..len).map(|_| T::default()).collect())
    }
}
