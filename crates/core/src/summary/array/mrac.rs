//! MRAC: one array of packet counters, from whose values the sizes of flows are recovered.
//!
//! Paper: Kumar, Sung, Xu, Wang, "Data streaming algorithms for efficient and accurate estimation
//! of flow size distribution" (SIGMETRICS 2004), §3 and §4. It counts as an additive CountArray
//! does; expectation maximization at the close of the epoch undoes the collisions.

use std::cell::OnceCell;
use std::marker::PhantomData;

use flowgauge_kernel::{Digester, Zeroed, prefetch};

use crate::batch::Batch;
use crate::key::FlowKey;
use crate::summary::codec::{DecodeError, Reader, Writer};
use crate::summary::decompound::{decompound, recovered};
use crate::summary::describe::form;
use crate::summary::distinct::counted_linearly;
use crate::summary::ingest::{Basis, twin};
use crate::summary::{
    Answers, BuildError, CACHED_BYTES, Counted, Counter, Describe, Estimate, Incompatible, Info,
    Ingest, Laws, Merge, Options, Parameter, Reads, Setting, SizeEstimate, SizeQuery, Summary,
};
use crate::terms::{Measure, Size};

/// An MRAC array of packets.
///
/// Cost: one cache line per packet; at the close of an epoch, some 0.1 s for the distribution.
/// Memory in bytes: `4 × columns`, and some 100 KiB from the first request for the distribution
/// until the next packet.
///
/// ```
/// use flowgauge_core::batch::Batch;
/// use flowgauge_core::catalog;
/// use flowgauge_core::key::{FlowKey, Key8};
/// use flowgauge_core::summary::Options;
///
/// let mut mrac = catalog::build::<Key8>("mrac", &Options::new(1 << 20, 1).for_keys(4)).unwrap();
/// let mut batch = Batch::new();
/// for packet in 0..200 {
///     batch.push(Key8::from_canonical(&[10, 0, 0, packet % 50]).unwrap(), 64, 0);
/// }
/// mrac.ingest(&mut batch);
/// let distribution = mrac.answers().distribution().unwrap();
/// let (size, flows) = distribution[0];
/// assert!(size == 4 && (flows.value - 50.0).abs() < 1.0);
/// ```
pub struct Mrac;

impl Describe for Mrac {
    const INFO: Info = Info {
        name: "mrac",
        idea: "one array of packet counters, from which the distribution of flow sizes is estimated",
        paper: "Kumar et al. (SIGMETRICS 2004), sections 3 and 4",
        parameters: &[
            Parameter {
                name: "columns",
                help: "number of counters, a power of two, preferably at least one for each flow \
                       (default: what fits into the memory)",
            },
            Parameter {
                name: "flows",
                help: "instead of columns: the maximum number of flows; one counter for each",
            },
        ],
        memory: "4 x columns",
        forms: &[form![
            Size(Counted::Packets),
            Cardinality,
            WeightLogs(Counted::Packets),
            Distribution(Counted::Packets)
        ]],
        laws: Laws { commutable: true, aggregatable: true, merge: Merge::Equal, ..Laws::NONE },
    };

    fn build<K: FlowKey>(options: &Options) -> Result<Box<dyn Summary<K>>, BuildError> {
        let parameters = &options.parameters;
        parameters.exclusive("columns", &["flows"])?;
        let columns = match parameters.integer("flows", 1..=1 << 32)? {
            Some(flows) => (flows as usize).next_power_of_two().max(2),
            None => parameters.power_of_two("columns", options.memory_bytes, size_of::<u32>())?,
        };
        Ok(Box::new(PacketCounts::<K> {
            digester: options.digester,
            counters: options.memory.zeroed(columns)?,
            total: 0,
            saturated: 0,
            flows: OnceCell::new(),
            key: PhantomData,
        }))
    }
}

/// An array of packet counters.
pub(super) struct PacketCounts<K> {
    digester: Digester,
    counters: Zeroed<u32>,
    total: u64,
    saturated: u64,
    /// Expected number of flows of each size, computed on demand after the last packet.
    flows: OnceCell<Vec<(u64, f64)>>,
    key: PhantomData<K>,
}

impl<K: FlowKey> Ingest<K> for PacketCounts<K> {
    fn ingest(&mut self, batch: &mut Batch<K>) {
        batch.digest(&self.digester);
        if self.flows.get().is_some() {
            self.forget_flows();
        }
        let (digests, packets) = (batch.digests(), batch.packets());
        let counters = &mut *self.counters;
        let mask = counters.len() - 1;
        if size_of_val(counters) > CACHED_BYTES {
            for &digest in digests {
                prefetch(counters, digest as usize & mask);
            }
        }
        let mut saturated = 0;
        for (&digest, &packets) in digests.iter().zip(packets) {
            saturated += counters[digest as usize & mask].add(packets);
        }
        self.total = self.total.saturating_add(u32::sum(packets));
        self.saturated = self.saturated.saturating_add(saturated);
    }

    fn reads(&self) -> Reads {
        Reads::NOTHING
    }
}

impl<K: FlowKey> Summary<K> for PacketCounts<K> {
    fn answers(&self) -> &dyn Answers {
        self
    }

    fn merge(&mut self, other: &dyn Summary<K>) -> Result<(), Incompatible> {
        let other = twin(self, other, |summary| Basis::of(&summary.digester))?;
        self.forget_flows();
        for (counter, other) in self.counters.iter_mut().zip(other.counters.iter()) {
            self.saturated = self.saturated.saturating_add(counter.add(*other));
        }
        self.saturated = self.saturated.saturating_add(other.saturated);
        self.total = self.total.saturating_add(other.total);
        Ok(())
    }

    fn save(&self, out: &mut Writer) {
        out.number(self.total);
        out.number(self.saturated);
        out.numbers(&self.counters);
    }

    fn load(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.total = from.number("total")?;
        self.saturated = from.number("saturated")?;
        from.numbers("counters", &mut self.counters)?;
        let counted = self.counters.iter().map(|&counter| u64::from(counter)).sum::<u64>();
        if counted.saturating_add(self.saturated) != self.total {
            return Err(from.invalid("total", 8, "it is not the sum of the counters"));
        }
        Ok(())
    }

    fn clear(&mut self) {
        self.forget_flows();
        self.counters.fill(0);
        self.total = 0;
        self.saturated = 0;
    }

    fn parameters(&self) -> Vec<(&'static str, Setting)> {
        vec![("columns", Setting::Integer(self.counters.len() as u64))]
    }

    fn memory_bytes(&self) -> usize {
        self.counters.memory_bytes()
    }
}

impl<K: FlowKey> PacketCounts<K> {
    #[cold]
    fn forget_flows(&mut self) {
        self.flows = OnceCell::new();
    }

    /// Expected number of flows of each size, by size.
    fn flows(&self) -> &[(u64, f64)] {
        self.flows.get_or_init(|| decompound(self.counters.iter().copied()))
    }
}

impl<K: FlowKey> Answers for PacketCounts<K> {
    fn saturated(&self) -> Size {
        Size { packets: self.saturated, bytes: 0 }
    }

    fn size(&self) -> Option<&dyn SizeQuery> {
        Some(self)
    }

    fn cardinality(&self) -> Option<Estimate> {
        let value: f64 = self.flows().iter().map(|(_, flows)| flows).sum();
        let used = self.counters.iter().filter(|&&counter| counter > 0).count();
        let is_full = used == self.counters.len();
        let (used, total, columns) = (used as f64, self.total as f64, self.counters.len() as f64);
        if is_full {
            return Some(recovered(value, used, total));
        }
        // The number of columns that flows use is random, whatever their sizes.
        let counted = counted_linearly(columns, used, total);
        let (low, high) = (counted.low.min(value).max(used), counted.high.max(value).min(total));
        Some(Estimate { value: value.clamp(low, high), low, high, ..counted })
    }

    fn weight_logs(&self, by: Measure) -> Option<Estimate> {
        if by == Measure::Bytes {
            return None;
        }
        let of = |size: u64| (size as f64) * (size as f64).log2();
        let value = self.flows().iter().map(|(size, flows)| flows * of(*size)).sum();
        // Smallest if every packet were a flow of its own, largest if every counter held one flow.
        let most = self.counters.iter().filter(|&&c| c > 0).map(|&c| of(u64::from(c))).sum();
        Some(recovered(value, 0.0, most))
    }

    fn distribution(&self) -> Option<Vec<(u64, Estimate)>> {
        let bins = self.flows().iter().map(|&(size, flows)| {
            (size, recovered(flows, 0.0, (self.total as f64 / size as f64).floor().max(flows)))
        });
        Some(bins.collect())
    }
}

impl<K: FlowKey> SizeQuery for PacketCounts<K> {
    /// The key's counter, which is never below the truth unless it is full.
    fn estimate(&self, key: &[u8]) -> SizeEstimate {
        let mask = self.counters.len() - 1;
        let count = K::matching(key, &self.digester)
            .map_or(0, |key| self.counters[key.digest(&self.digester) as usize & mask].get());
        let high =
            count.saturating_add(if count == u64::from(u32::MAX) { self.saturated } else { 0 });
        let packets = Estimate::between(0.0, count as f64, high as f64);
        SizeEstimate { packets: Some(packets), bytes: None }
    }
}
