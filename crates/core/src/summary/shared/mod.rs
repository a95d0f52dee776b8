//! Summaries that several workers fill at once, without a lock.
//!
//! Paper: Alipourfard et al., "A comparison of performance and accuracy of measurement algorithms
//! in software" (SOSR 2018), §5. Counters are added to atomically, and a table's bucket is claimed by
//! a compare-and-swap. That costs more than a summary for each worker, since every addition waits
//! until its cache line is this core's alone; what it saves are the copies and their merge.
//!
//! At the close of an epoch what was counted moves to an ordinary summary of the same shape, whose
//! answers, merges and stored form are those of any other. It is what one worker would have counted:
//! to the bit where cells are sums that fit (unsigned ones also where they do not), the same flows and
//! sizes in a table with room.
//!
//! Numbers have 64 bits here, where an ordinary summary's packets have 32: the excess is cut off at
//! the close, and counted as saturated as it always is. That no number of 64 bits wraps is seen to
//! once a batch: what would take the sum of all weights beyond them is not added, but counted as
//! saturated, and in a table as untracked.

mod atomic;
mod flows;
#[cfg(all(loom, test))]
mod model;
mod sums;
mod table;

pub(super) use sums::{AtomicSums, CELL_BYTES, Sums};

use self::atomic::{AtomicU64, Relaxed};
use super::{BuildError, BuildErrorKind, Describe, Options, Summary};
use crate::batch::Batch;
use crate::key::FlowKey;

/// The write side of a summary that several workers fill.
pub trait SharedIngest<K: FlowKey>: Send + Sync {
    /// Takes a batch, digesting it where that was not done before; in any number of threads at once.
    fn ingest(&self, batch: &mut Batch<K>);
    /// Moves what was counted since the last time into an ordinary summary of the same shape, which
    /// holds nothing else, and forgets it here. Without allocation.
    fn collect(&mut self) -> &mut dyn Summary<K>;
    /// The ordinary summary, with what was collected last.
    fn ordinary(&self) -> &dyn Summary<K>;
    /// Bytes of memory reserved, those of the ordinary summary included.
    fn memory_bytes(&self) -> usize;
}

/// A type of summary that workers can share.
pub trait Share: Describe {
    /// Reserves the memory and builds the summary for keys of type `K`.
    ///
    /// # Errors
    /// As [`Describe::build`], and when the parameters ask for what cannot be shared.
    fn share<K: FlowKey>(options: &Options) -> Result<Box<dyn SharedIngest<K>>, BuildError>;
}

/// The parameters of a summary that keeps no keys beside its cells: which of them are heavy depends on
/// the order of all packets.
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

/// The sum of all weights, which no sum of some of them is over.
struct Total {
    most: u64,
    weight: AtomicU64,
}

impl Total {
    fn new(most: u64) -> Self {
        Self { most, weight: AtomicU64::new(0) }
    }

    /// Whether so much more is no more than the most; it is then part of the sum.
    fn takes(&self, weight: u64) -> bool {
        let sum = |sum: u64| sum.checked_add(weight).filter(|sum| *sum <= self.most);
        self.weight.fetch_update(Relaxed, Relaxed, sum).is_ok()
    }

    /// The sum, which is 0 from then on.
    fn reset(&mut self) -> u64 {
        self.weight.swap(0, Relaxed)
    }
}
