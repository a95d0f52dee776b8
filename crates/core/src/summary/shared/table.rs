//! LinearTable, shared.

use flowgauge_kernel::Digester;

use super::super::state::Kind;
use super::super::table::{Counts, LAYOUTS, LinearTable, MOST_BUCKETS};
use super::super::{BuildError, BuildErrorKind, Counter, Describe, Options, Summary};
use super::atomic::{AtomicU64, Relaxed, add_saturating};
use super::flows::Flows;
use super::{Share, SharedIngest, Total};
use crate::batch::Batch;
use crate::key::FlowKey;
use crate::terms::Size;

/// The flows, and the ordinary table that they move to.
///
/// Once all entries are taken, packets of other flows are untracked. Workers that find one taken that
/// another is about to leave may then miss a flow that has room in the end, so that bounds reach as
/// far as what is untracked.
///
/// Cost: a line of the buckets and one or two of the entries a packet, all asked for ahead, and two
/// atomic additions; two compare-and-swaps a batch, and two a flow. Memory in bytes: that of
/// [`Flows`], and the ordinary table's.
pub(in crate::summary) struct AtomicTable<K: FlowKey> {
    digester: Digester,
    flows: Flows<K>,
    packets: Total,
    bytes: Total,
    untracked: AtomicSize,
    /// What found no room in the totals.
    refused: AtomicSize,
    ordinary: Counts<K>,
}

impl Share for LinearTable {
    fn share<K: FlowKey>(options: &Options) -> Result<Box<dyn SharedIngest<K>>, BuildError> {
        let counters = &Kind::OF_TABLES[..1];
        Kind::from_options(Self::INFO.name, counters, options)?;
        if options.parameters.word("layout", &LAYOUTS)? != LAYOUTS[0] {
            return Err(BuildErrorKind::OutOfRange {
                name: "layout",
                value: LAYOUTS[1].to_owned(),
                range: format!("supported in a concurrent table: use layout={}", LAYOUTS[0]),
            }
            .into());
        }
        // The entries here are as large a part of the memory as the tasks' own.
        let task_bytes_per_flow = options.task_bytes_per_flow + Flows::<K>::bytes_per_flow();
        let options = Options { task_bytes_per_flow, ..options.clone() };
        let ordinary = Counts::<K>::new(&options, MOST_BUCKETS)?;
        let (buckets, most) = (ordinary.buckets(), ordinary.most());
        Ok(Box::new(AtomicTable {
            digester: options.digester,
            flows: Flows::new(buckets, most, &options.memory)?,
            packets: Total::new(u64::MAX),
            bytes: Total::new(u64::MAX),
            untracked: AtomicSize::default(),
            refused: AtomicSize::default(),
            ordinary,
        }))
    }
}

impl<K: FlowKey> SharedIngest<K> for AtomicTable<K> {
    fn ingest(&self, batch: &mut Batch<K>) {
        batch.digest(&self.digester);
        let (keys, digests) = (batch.keys(), batch.digests());
        let (packets, bytes) = (batch.packets(), batch.bytes());
        let all = Size { packets: u32::sum(packets), bytes: u64::sum(bytes) };
        if !(self.packets.takes(all.packets) && self.bytes.takes(all.bytes)) {
            return self.refused.add(all);
        }
        for &digest in digests {
            self.flows.prefetch_bucket(digest);
        }
        for &digest in digests {
            self.flows.prefetch_entry(digest);
        }
        let (mut spare, mut untracked) = (None, Size::default());
        for (i, (&key, &digest)) in keys.iter().zip(digests).enumerate() {
            let size = Size { packets: packets[i].into(), bytes: bytes[i] };
            if !self.flows.add(key, digest, size, &mut spare) {
                untracked += size;
            }
        }
        self.flows.leave(spare);
        self.untracked.add(untracked);
    }

    fn collect(&mut self) -> &mut dyn Summary<K> {
        let ordinary = &mut self.ordinary;
        ordinary.clear();
        let digester = &self.digester;
        self.flows.drain(|key, size| ordinary.add_flow(key, key.digest(digester), size));
        // Whose packets those were is not known any more.
        ordinary.lose(self.untracked.take() + self.refused.take(), Size::default());
        self.packets.reset();
        self.bytes.reset();
        ordinary
    }

    fn ordinary(&self) -> &dyn Summary<K> {
        &self.ordinary
    }

    fn memory_bytes(&self) -> usize {
        self.flows.memory_bytes() + self.ordinary.memory_bytes()
    }
}

/// A size that stays at the largest numbers.
#[derive(Default)]
struct AtomicSize {
    packets: AtomicU64,
    bytes: AtomicU64,
}

impl AtomicSize {
    fn add(&self, size: Size) {
        add_saturating(&self.packets, size.packets);
        add_saturating(&self.bytes, size.bytes);
    }

    /// The size, which is nothing from then on.
    fn take(&mut self) -> Size {
        Size { packets: self.packets.swap(0, Relaxed), bytes: self.bytes.swap(0, Relaxed) }
    }
}
