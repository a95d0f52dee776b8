//! Randomized hierarchical heavy hitters (RHHH): a packet updates one node at random, or none.
//!
//! Paper: Ben Basat, Einziger, Friedman, Luizelli, Waisbard, "Constant time updates in hierarchical
//! heavy hitters" (SIGCOMM 2017), §4. Each packet rolls a die of V sides. Each of the H nodes has
//! one side; the other sides update nothing. Counts are multiplied by V. The sampling error of a
//! weight f is at most Z √(V f), with the confidence of the normal quantile Z. The paper uses N,
//! the number of all packets, for f: after Z² V / ε² packets the error of every prefix is at most ε
//! N. If packets weigh up to w, the error is Z √(V f w).

use super::{Lattice, MOST_NODES, fits, ipv4_nodes};
use crate::batch::{BATCH_PACKETS, Batch};
use crate::key::{CanonicalKey, FlowKey};
use crate::summary::codec::{DecodeError, Reader, Writer};
use crate::summary::counter::{Monitored, PARAMETERS};
use crate::summary::describe::form;
use crate::summary::ingest::{Basis, twin};
use crate::summary::sampling::{CONFIDENCE, Sampler, Z};
use crate::summary::{
    Answers, BuildError, Candidates, Counted, Describe, Estimate, Incompatible, Info, Ingest, Laws,
    Options, Parameter, Prefixes, Reads, Sampling, Setting, SizeEstimate, SizeQuery, Summary,
};
use crate::terms::{Hierarchy, Measure, Size};

/// Hierarchical heavy hitters from a sample of the packets for each node, in the catalog as `rhhh`.
///
/// Cost per packet: that of one Space-Saving times H / V; packets that update no node are skipped
/// in bulk. Memory: as [`Mst`](super::Mst).
///
/// ```
/// use flowgauge_core::batch::Batch;
/// use flowgauge_core::catalog;
/// use flowgauge_core::key::{FlowKey, Key8};
/// use flowgauge_core::summary::Options;
///
/// let options = Options::new(1 << 20, 1).for_keys(4);
/// let mut summary = catalog::build::<Key8>("rhhh", &options).unwrap();
/// let mut batch = Batch::new();
/// for host in 0..200 {
///     batch.push(Key8::from_canonical(&[192, 0, 2, host]).unwrap(), 64, 0);
/// }
/// summary.ingest(&mut batch);
/// let prefixes = summary.answers().prefixes().unwrap();
/// let node = prefixes.nodes().iter().position(|node| *node == (24, 0)).unwrap();
/// let estimate = prefixes.estimate(node, &[192, 0, 2, 0]);
/// assert!((estimate.value - 200.0).abs() <= prefixes.sampling().unwrap().error(200.0));
/// ```
pub struct Rhhh;

impl Describe for Rhhh {
    const INFO: Info = Info {
        name: "rhhh",
        idea: "one Space-Saving summary for each prefix length; a packet updates one of them, at \
               random",
        paper: "RHHH (SIGCOMM 2017), section 4",
        parameters: &[
            PARAMETERS[0],
            PARAMETERS[1],
            Parameter {
                name: "v",
                help: "sides of the die, at least the number of prefix lengths of IPv4 (default: \
                       the number of prefix lengths, which is also the minimum for IPv6); ten \
                       times as many count a tenth of the packets",
            },
        ],
        memory: "as mst",
        forms: &[form![Size(Counted::Asked), Candidates, Prefixes { sampled: true }]],
        laws: Laws {
            commutable: true,
            aggregatable: true,
            sizes: true,
            samples: true,
            ..Laws::NONE
        },
    };

    fn fits(options: &Options) -> Result<(), BuildError> {
        fits(Self::INFO.name, options)
    }

    fn build<K: FlowKey>(options: &Options) -> Result<Box<dyn Summary<K>>, BuildError> {
        Ok(match options.by {
            Measure::Packets => Box::new(SampledNodes::<K, u32>::new(options)?),
            Measure::Bytes => Box::new(SampledNodes::<K, u64>::new(options)?),
        })
    }
}

/// The nodes, for the measure that `C` counts, and the die.
struct SampledNodes<K: FlowKey, C: Monitored> {
    lattice: Lattice<K, C>,
    sides: u64,
    sampler: Sampler,
    total: u64,
    /// The largest weight of a row.
    largest: u64,
}

impl<K: FlowKey, C: Monitored> SampledNodes<K, C> {
    fn new(options: &Options) -> Result<Self, BuildError> {
        let lattice = Lattice::new("rhhh", options)?;
        let nodes = lattice.len() as u64;
        // One parameter serves both IP versions. IPv6 has more nodes, and each needs a side.
        let fewest = ipv4_nodes(options.hierarchy) as u64;
        let sides = options.parameters.integer("v", fewest..=1 << 32)?.unwrap_or(nodes).max(nodes);
        let probability = nodes as f64 / sides as f64;
        let sampler = Sampler::new(options.digester.seed().draws(), probability);
        Ok(Self { lattice, sides, sampler, total: 0, largest: 0 })
    }

    fn sampling_error(&self) -> Sampling {
        let unit = Z * Z * self.sides as f64 * self.largest as f64;
        Sampling { unit, confidence: CONFIDENCE }
    }

    /// The weight of all packets, from that of the sample, without the sampling error.
    fn scaled(&self, counted: Estimate) -> Estimate {
        let sides = self.sides as f64;
        let (low, high) = (counted.low * sides, counted.high * sides);
        Estimate::between(low, counted.value * sides, high).within(self.total)
    }

    /// The same, with the sampling error.
    fn widened(&self, counted: Estimate) -> Estimate {
        let all = self.scaled(counted);
        let error = self.sampling_error().error(all.high);
        let low = (all.low - error).max(counted.low).min(all.value);
        let high = all.high + error;
        Estimate { value: all.value, low, high, confidence: Some(CONFIDENCE) }.within(self.total)
    }
}

impl<K: FlowKey, C: Monitored> Ingest<K> for SampledNodes<K, C> {
    fn ingest(&mut self, batch: &mut Batch<K>) {
        let (keys, weights) = (batch.keys(), C::column(batch));
        for weight in weights {
            self.total = self.total.saturating_add(weight.get());
            self.largest = self.largest.max(weight.get());
        }
        // Rows are sorted by node, so that each node stays in the cache for all its rows.
        let (mut rows, mut nodes, mut ends) =
            ([0; BATCH_PACKETS], [0; BATCH_PACKETS], [0; MOST_NODES]);
        let (mut drawn, mut left) = (0, keys.len() as u64);
        while self.sampler.choose(&mut left) {
            rows[drawn] = keys.len() - 1 - left as usize;
            nodes[drawn] = self.sampler.below(self.lattice.len() as u32) as usize;
            ends[nodes[drawn]] += 1;
            drawn += 1;
        }
        let mut end = 0;
        for begin in &mut ends {
            (*begin, end) = (end, end + *begin);
        }
        let (mut sorted, mut sorted_weights) =
            ([K::zeroed(); BATCH_PACKETS], [C::zeroed(); BATCH_PACKETS]);
        for (&row, &node) in rows[..drawn].iter().zip(&nodes) {
            sorted[ends[node]] = keys[row];
            sorted_weights[ends[node]] = weights[row];
            ends[node] += 1;
        }
        let mut begin = 0;
        for (node, &end) in ends[..self.lattice.len()].iter().enumerate() {
            if begin < end {
                self.lattice.add(node, &sorted[begin..end], &sorted_weights[begin..end]);
            }
            begin = end;
        }
    }

    fn reads(&self) -> Reads {
        Reads::sizes(C::MEASURE)
    }
}

impl<K: FlowKey, C: Monitored> Summary<K> for SampledNodes<K, C> {
    fn answers(&self) -> &dyn Answers {
        self
    }

    fn merge(&mut self, other: &dyn Summary<K>) -> Result<(), Incompatible> {
        let other = twin(self, other, |summary| Basis::of(summary.lattice.digester()))?;
        self.lattice.matches(&other.lattice)?;
        self.lattice.merge(&other.lattice);
        self.total = self.total.saturating_add(other.total);
        self.largest = self.largest.max(other.largest);
        Ok(())
    }

    fn save(&self, out: &mut Writer) {
        out.numbers(&[self.total, self.largest]);
        self.sampler.save(out);
        self.lattice.save(out);
    }

    fn load(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.total = from.number("total")?;
        self.largest = from.number("largest weight")?;
        self.sampler.load(from)?;
        self.lattice.load(from)
    }

    fn clear(&mut self) {
        self.next_epoch();
        self.sampler.reset();
    }

    /// Goes on drawing, so that the samples of epochs are independent.
    fn next_epoch(&mut self) {
        self.lattice.clear();
        (self.total, self.largest) = (0, 0);
    }

    fn parameters(&self) -> Vec<(&'static str, Setting)> {
        vec![
            ("counters", Setting::Integer(self.lattice.counters() as u64)),
            ("v", Setting::Integer(self.sides)),
        ]
    }

    fn memory_bytes(&self) -> usize {
        self.lattice.memory_bytes()
    }
}

impl<K: FlowKey, C: Monitored> SampledNodes<K, C> {
    /// Scales a weight at one node to all packets.
    fn scaled_size(&self, Size { packets, bytes }: Size) -> Size {
        let all = |counted: u64| counted.saturating_mul(self.sides);
        Size { packets: all(packets), bytes: all(bytes) }
    }
}

impl<K: FlowKey, C: Monitored> Answers for SampledNodes<K, C> {
    fn untracked(&self) -> Size {
        self.scaled_size(self.lattice.untracked())
    }
    fn saturated(&self) -> Size {
        self.scaled_size(self.lattice.saturated())
    }
    fn size(&self) -> Option<&dyn SizeQuery> {
        Some(self)
    }
    fn candidates(&self) -> Option<&dyn Candidates> {
        Some(self)
    }
    fn prefixes(&self) -> Option<&dyn Prefixes> {
        Some(self)
    }
}

impl<K: FlowKey, C: Monitored> SizeQuery for SampledNodes<K, C> {
    fn estimate(&self, key: &[u8]) -> SizeEstimate {
        self.lattice.size(key, |counted| self.widened(counted))
    }
}

impl<K: FlowKey, C: Monitored> Candidates for SampledNodes<K, C> {
    fn for_each(&self, visit: &mut dyn FnMut(CanonicalKey, SizeEstimate)) {
        self.lattice.candidates(|counted| self.widened(counted), visit);
    }

    fn overflow(&self) -> u64 {
        0
    }
}

impl<K: FlowKey, C: Monitored> Prefixes for SampledNodes<K, C> {
    fn measure(&self) -> Measure {
        C::MEASURE
    }

    fn hierarchy(&self) -> Hierarchy {
        self.lattice.hierarchy()
    }

    fn nodes(&self) -> Vec<(u8, u8)> {
        self.lattice.nodes()
    }

    fn for_each(&self, node: usize, visit: &mut dyn FnMut(CanonicalKey, Estimate)) {
        self.lattice.for_each(node, &mut |key, counted| visit(key, self.scaled(counted)));
    }

    fn estimate(&self, node: usize, prefix: &[u8]) -> Estimate {
        self.scaled(self.lattice.estimate(node, prefix))
    }

    fn sampling(&self) -> Option<Sampling> {
        Some(self.sampling_error())
    }
}
