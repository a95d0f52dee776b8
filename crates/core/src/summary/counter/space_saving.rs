//! Space-Saving, with a heap: the heaviest keys in a fixed number of counters, for any weights.
//!
//! Paper: Metwally, Agrawal, El Abbadi, "Efficient computation of frequent and top-k elements in
//! data streams" (ICDT 2005), §3; with a heap, as "SSH" of Cormode, Hadjieleftheriou, "Finding
//! frequent items in data streams" (VLDB 2008), §3; for packets a sweep is in place of the heap, and
//! for bytes the heap is a tournament. A key without a counter
//! takes over the one of the least count, and that count is its error. With m counters and total
//! weight N, estimates lie within f and f + N/m, and every key over N/m has a counter.

use super::super::{BuildError, Describe, Info, Laws, Options, Summary};
use super::capacity::{PARAMETERS, counters};
use super::monitor::{Monitor, Monitored};
use super::tracked::Tracked;
use crate::key::FlowKey;
use crate::summary::Counted;
use crate::summary::describe::form;
use crate::terms::Measure;

/// Space-Saving with a heap.
///
/// Cost: a line of the index and an entry a packet, and by packets another one passed by a sweep; by
/// bytes, for keys without a counter, a match of four for each factor of four in the counters. Memory
/// in bytes: `counters × (size_of::<K>() + 17)` by packets, `counters × (size_of::<K>() + 30.2)` by
/// bytes, and up to 3 KiB more for fewer than 448 counters.
pub struct SpaceSaving;

impl Describe for SpaceSaving {
    const INFO: Info = Info {
        name: "space-saving",
        idea: "a new key takes over the smallest counter (heap, any weights)",
        paper: "Metwally et al. (ICDT 2005), section 3",
        parameters: &PARAMETERS,
        memory: "counters x (key + 17 by packets, key + 30.2 by bytes, rounded up to 4 or 8); up \
                 to 3 KiB more below 448 counters",
        // The bounds hold in any order and for any sums; the entries near the least count differ.
        forms: &[form![Size(Counted::Asked), Candidates]],
        laws: Laws { commutable: true, aggregatable: true, sizes: true, ..Laws::NONE },
    };

    fn build<K: FlowKey>(options: &Options) -> Result<Box<dyn Summary<K>>, BuildError> {
        fn tracked<K: FlowKey, C: Monitored>(
            options: &Options,
        ) -> Result<Box<dyn Summary<K>>, BuildError> {
            let entries = counters(options, C::Monitor::<K>::bytes)?;
            let monitor = C::Monitor::<K>::new(entries, options.digester, &options.memory)?;
            Ok(Box::new(Tracked::<K, C, _>::new(monitor)))
        }
        match options.by {
            Measure::Packets => tracked::<K, u32>(options),
            Measure::Bytes => tracked::<K, u64>(options),
        }
    }
}
