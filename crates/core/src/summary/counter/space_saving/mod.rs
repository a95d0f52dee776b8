//! Space-Saving: the heaviest keys in a fixed number of counters, for any weights.
//!
//! Paper: Metwally, Agrawal, El Abbadi, "Efficient computation of frequent and top-k elements in
//! data streams" (ICDT 2005), §3; with a heap, as "SSH" of Cormode, Hadjieleftheriou, "Finding
//! frequent items in data streams" (VLDB 2008), §3. A key without a counter replaces the key with
//! the minimum count, and that count becomes its error. With m counters and total weight N, the
//! estimate of a key of weight f is between f and f + N/m, and every key above N/m has a counter.
//!
//! A [`Monitor`] holds the counters and finds the minimum. By packets it is a [`sweep`], by bytes a
//! [`tournament`]; both replace the heap of the paper. [`StreamSummary`] uses the linked buckets of
//! the paper instead.

mod answers;
mod index;
mod monitor;
mod stream_summary;
mod sweep;
mod tournament;
mod weighted;

use std::marker::PhantomData;

use super::{PARAMETERS, counters};
use crate::batch::Batch;
use crate::key::FlowKey;
use crate::summary::codec::{DecodeError, Reader, Writer};
use crate::summary::describe::form;
use crate::summary::ingest::{Basis, twin};
use crate::summary::{
    Answers, BuildError, Counted, Counter, Describe, Incompatible, Info, Ingest, Laws, Options,
    Setting, Summary,
};
use crate::terms::Measure;
pub(super) use index::{BranchFree, Index};
pub(in crate::summary) use monitor::{Monitor, Monitored};
pub use stream_summary::StreamSummary;

/// Space-Saving for packets or bytes, in the catalog as `space-saving`.
///
/// Cost per packet: one line of the index and one entry. By packets the sweep passes at most
/// one more entry; by bytes a key without a counter replays log₄(counters) matches of the
/// tournament. Memory in bytes: `counters × (size_of::<K>() + 17)` by packets, `counters ×
/// (size_of::<K>() + 30.2)` by bytes, and up to 3 KiB more for fewer than 448 counters.
///
/// ```
/// use flowgauge_core::batch::Batch;
/// use flowgauge_core::catalog;
/// use flowgauge_core::key::{FlowKey, Key4};
/// use flowgauge_core::summary::Options;
///
/// let options = Options::new(64 << 10, 1).with([("counters", 3)]);
/// let mut summary = catalog::build::<Key4>("space-saving", &options).unwrap();
/// let mut batch = Batch::new();
/// for (time_ns, flow) in (0..).zip([1, 1, 1, 2, 2, 3, 4u32]) {
///     batch.push(Key4::from_canonical(&flow.to_be_bytes()).unwrap(), 64, time_ns);
/// }
/// summary.ingest(&mut batch);
/// // Flow 4 replaced flow 3, which had the minimum count of 1: it has 1 to 2 packets.
/// let size = summary.answers().size().unwrap().estimate(&4u32.to_be_bytes());
/// assert_eq!(size.packets.map(|found| (found.low, found.high)), Some((1.0, 2.0)));
/// ```
pub struct SpaceSaving;

impl Describe for SpaceSaving {
    const INFO: Info = Info {
        name: "space-saving",
        idea: "a new key takes over the smallest counter (any weights)",
        paper: "Metwally et al. (ICDT 2005), section 3",
        parameters: &PARAMETERS,
        memory: "counters x (key + 17 by packets, key + 30.2 by bytes, rounded up to 4 or 8); up \
                 to 3 KiB more below 448 counters",
        // The bounds hold in any order and for weighted updates; entries near the minimum count
        // differ.
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

/// A summary of the keys in the monitor `M`.
pub(super) struct Tracked<K, C, M> {
    monitor: M,
    types: PhantomData<fn(K) -> C>,
}

impl<K, C, M> Tracked<K, C, M> {
    pub(super) fn new(monitor: M) -> Self {
        Self { monitor, types: PhantomData }
    }
}

impl<K: FlowKey, C: Counter, M: Monitor<K, C>> Ingest<K> for Tracked<K, C, M> {
    fn ingest(&mut self, batch: &mut Batch<K>) {
        batch.digest(self.monitor.digester());
        let (keys, digests, weights) = (batch.keys(), batch.digests(), C::column(batch));
        if batch.is_plain() {
            self.monitor.add_packets(keys, digests, weights);
        } else {
            self.monitor.add_weighted(keys, digests, weights);
        }
    }

    fn wants_bytes(&self) -> bool {
        C::MEASURE == Measure::Bytes
    }
}

impl<K: FlowKey, C: Counter, M: Monitor<K, C>> Summary<K> for Tracked<K, C, M> {
    fn answers(&self) -> &dyn Answers {
        self
    }

    fn merge(&mut self, other: &dyn Summary<K>) -> Result<(), Incompatible> {
        let other = twin(self, other, |summary| Basis::of(summary.monitor.digester()))?;
        self.monitor.merge(&other.monitor);
        Ok(())
    }

    fn save(&self, out: &mut Writer) {
        self.monitor.save(out);
    }

    fn load(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.monitor.load(from)
    }

    fn clear(&mut self) {
        self.monitor.clear();
    }

    fn parameters(&self) -> Vec<(&'static str, Setting)> {
        vec![("counters", Setting::Integer(self.monitor.capacity() as u64))]
    }

    fn memory_bytes(&self) -> usize {
        self.monitor.memory_bytes()
    }
}
