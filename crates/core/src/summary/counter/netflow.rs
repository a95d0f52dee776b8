//! Sampled NetFlow: an exact table of a random sample of the packets.
//!
//! Routers export it: Claise, "Cisco Systems NetFlow services export version 9" (RFC 3954), with
//! the random sampling of Duffield, Lund, Thorup, "Estimating flow distributions from sampled flow
//! statistics" (SIGCOMM 2003), §2. Each packet is sampled with probability 1/n, and counts are
//! multiplied by n. Estimates are unbiased, but inaccurate for small flows, many of which are
//! missed.

use flowgauge_kernel::Digester;

use crate::batch::Batch;
use crate::key::{CanonicalKey, FlowKey};
use crate::summary::codec::{DecodeError, Reader, Writer};
use crate::summary::describe::form;
use crate::summary::estimate::least_mean;
use crate::summary::ingest::{Basis, twin};
use crate::summary::sampling::{CONFIDENCE, Sampler, scaled};
use crate::summary::table::{Counts, MOST_BUCKETS};
use crate::summary::{
    Answers, BuildError, Candidates, Counted, Counter, Describe, Estimate, Incompatible, Info,
    Ingest, Laws, Options, Parameter, Reads, Setting, SizeEstimate, SizeQuery, Summary,
    sum_and_largest,
};
use crate::terms::{Measure, Size};

/// Default of `sample`: a common rate of routers on fast links.
const SAMPLE: u64 = 100;

/// Sampled NetFlow, in the catalog as `netflow`.
///
/// Cost per packet: one comparison for a packet that is not sampled, whose key is not digested; one
/// update of the linear table for a sampled one. Memory: that of the linear table.
///
/// ```
/// use flowgauge_core::batch::Batch;
/// use flowgauge_core::catalog;
/// use flowgauge_core::key::{FlowKey, Key8};
/// use flowgauge_core::summary::Options;
///
/// let options = Options::new(1 << 20, 1).for_keys(4).with([("sample", 10)]);
/// let mut summary = catalog::build::<Key8>("netflow", &options).unwrap();
/// let key = Key8::from_canonical(&[192, 0, 2, 1]).unwrap();
/// let mut batch = Batch::new();
/// (0..200).for_each(|time_ns| batch.push(key, 64, time_ns));
/// summary.ingest(&mut batch);
/// let size = summary.answers().size().unwrap().estimate(&[192, 0, 2, 1]);
/// assert!(size.packets.is_some_and(|found| found.low <= 200.0 && 200.0 <= found.high));
/// ```
pub struct NetFlow;

impl Describe for NetFlow {
    const INFO: Info = Info {
        name: "netflow",
        idea: "exact table of one in N packets, chosen at random",
        paper: "Duffield et al. (SIGCOMM 2003), section 2",
        parameters: &[
            Parameter { name: "sample", help: "N, to count one in N packets (default: 100)" },
            Parameter {
                name: "buckets",
                help: "number of buckets, a power of two, of which three quarters can hold a \
                       flow (default: what fits into the memory)",
            },
        ],
        memory: "as linear-table",
        forms: &[form![Size(Counted::Both), Candidates]],
        laws: Laws {
            commutable: true,
            aggregatable: true,
            sizes: true,
            samples: true,
            ..Laws::NONE
        },
    };

    fn build<K: FlowKey>(options: &Options) -> Result<Box<dyn Summary<K>>, BuildError> {
        let parameters = &options.parameters;
        let sample = parameters.integer("sample", 1..=1 << 32)?.unwrap_or(SAMPLE);
        Ok(Box::new(SampledTable::<K> {
            digester: options.digester,
            table: Counts::new(options, MOST_BUCKETS)?,
            sample,
            sampler: Sampler::new(options.digester.seed().draws(), 1.0 / sample as f64),
            total: Size::default(),
            largest: 0,
        }))
    }
}

/// A linear table of one in `sample` packets.
struct SampledTable<K> {
    digester: Digester,
    table: Counts<K>,
    sample: u64,
    sampler: Sampler,
    /// Size of all packets, sampled or not.
    total: Size,
    /// Bytes of the largest packet.
    largest: u64,
}

impl<K: FlowKey> SampledTable<K> {
    /// The size of a flow from the size in the table.
    fn scaled(&self, sampled: &SizeEstimate) -> SizeEstimate {
        let probability = 1.0 / self.sample as f64;
        let scale = |by: Measure| {
            let largest = if by == Measure::Packets { 1 } else { self.largest };
            let of = |sampled: f64| scaled(sampled as u64, probability, largest);
            sampled.by(by).map(|sampled| {
                let (low, high) = (of(sampled.low).low, of(sampled.high).high);
                Estimate { low, high, ..of(sampled.value) }.within(self.total.by(by))
            })
        };
        SizeEstimate { packets: scale(Measure::Packets), bytes: scale(Measure::Bytes) }
    }

    /// The size of a listed flow. Its lower bound accounts for the selection of flows by the
    /// sample.
    fn listed(&self, sampled: &SizeEstimate) -> SizeEstimate {
        let flows = self.total.packets as f64;
        let lower = |by: Measure, estimate: Option<Estimate>| {
            let unit = if by == Measure::Packets { 1.0 } else { self.largest.max(1) as f64 };
            let seen = sampled.by(by)?.low;
            let sure = unit * self.sample as f64 * least_mean(seen / unit, 1.0, flows, CONFIDENCE);
            estimate.map(|estimate| Estimate { low: sure.max(seen).min(estimate.low), ..estimate })
        };
        let SizeEstimate { packets, bytes } = self.scaled(sampled);
        SizeEstimate {
            packets: lower(Measure::Packets, packets),
            bytes: lower(Measure::Bytes, bytes),
        }
    }

    fn scaled_size(&self, sampled: Size) -> Size {
        let all = |sampled: u64, total: u64| sampled.saturating_mul(self.sample).min(total);
        Size {
            packets: all(sampled.packets, self.total.packets),
            bytes: all(sampled.bytes, self.total.bytes),
        }
    }
}

impl<K: FlowKey> Ingest<K> for SampledTable<K> {
    fn ingest(&mut self, batch: &mut Batch<K>) {
        let (keys, packets, bytes) = (batch.keys(), batch.packets(), batch.bytes());
        let (all_bytes, largest) = sum_and_largest(self.largest, bytes);
        let all = u32::sum(packets);
        self.total += Size { packets: all, bytes: all_bytes };
        self.largest = largest;
        let (mut left, mut next, mut rest) = (all, 0, all);
        while self.sampler.choose(&mut left) {
            // The row of the packet that `left` packets follow; direct if rows are single packets.
            let i = if all == keys.len() as u64 {
                keys.len() - 1 - left as usize
            } else {
                while rest - u64::from(packets[next]) > left {
                    rest -= u64::from(packets[next]);
                    next += 1;
                }
                next
            };
            let digest = keys[i].digest(&self.digester);
            // Each packet of a weighted row has an equal part of its bytes.
            self.table.add(keys[i], digest, 1, bytes[i] / u64::from(packets[i]), (0, 0));
        }
    }

    fn reads(&self) -> Reads {
        Reads::BYTES
    }
}

impl<K: FlowKey> Summary<K> for SampledTable<K> {
    fn answers(&self) -> &dyn Answers {
        self
    }

    fn merge(&mut self, other: &dyn Summary<K>) -> Result<(), Incompatible> {
        let other = twin(self, other, |summary| Basis::of(&summary.digester))?;
        self.table.merge(&other.table)?;
        self.total += other.total;
        self.largest = self.largest.max(other.largest);
        Ok(())
    }

    fn save(&self, out: &mut Writer) {
        self.sampler.save(out);
        out.size(self.total);
        out.number(self.largest);
        self.table.save(out);
    }

    fn load(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.sampler.load(from)?;
        self.total = from.size("all packets")?;
        self.largest = from.number("largest packet")?;
        self.table.load(from)
    }

    fn clear(&mut self) {
        self.next_epoch();
        self.sampler.reset();
    }

    /// Goes on drawing, so that the samples of epochs are independent.
    fn next_epoch(&mut self) {
        self.total = Size::default();
        self.largest = 0;
        self.table.clear();
    }

    fn parameters(&self) -> Vec<(&'static str, Setting)> {
        let mut parameters = self.table.parameters();
        parameters.push(("sample", Setting::Integer(self.sample)));
        parameters
    }

    fn memory_bytes(&self) -> usize {
        self.table.memory_bytes()
    }
}

impl<K: FlowKey> Answers for SampledTable<K> {
    fn untracked(&self) -> Size {
        self.scaled_size(self.table.untracked())
    }
    fn saturated(&self) -> Size {
        self.scaled_size(self.table.saturated())
    }
    fn size(&self) -> Option<&dyn SizeQuery> {
        Some(self)
    }
    fn candidates(&self) -> Option<&dyn Candidates> {
        Some(self)
    }
}

impl<K: FlowKey> SizeQuery for SampledTable<K> {
    fn estimate(&self, key: &[u8]) -> SizeEstimate {
        self.scaled(&SizeQuery::estimate(&self.table, key))
    }
}

impl<K: FlowKey> Candidates for SampledTable<K> {
    fn for_each(&self, visit: &mut dyn FnMut(CanonicalKey, SizeEstimate)) {
        Candidates::for_each(&self.table, &mut |key, sampled| visit(key, self.listed(&sampled)));
    }

    fn overflow(&self) -> u64 {
        0
    }
}
