//! Randomized hierarchical heavy hitters: a packet counts at one node, drawn at random.
//!
//! Paper: Ben Basat, Einziger, Friedman, Luizelli, Waisbard, "Constant time updates in hierarchical
//! heavy hitters" (SIGCOMM 2017), §4. A die of V sides is thrown for each packet; each of the H nodes
//! has one side, and with the other sides nothing is counted. Counts are multiplied by V. A weight f is
//! then off by Z √(V f) at most, with the probability that the quantile Z stands for; the paper takes
//! all packets N for f, so that from Z² V / ε² packets on no prefix is off by more than ε N. Where
//! packets have weights of up to w, so have what the counters miss: Z √(V f w).

use super::super::codec::{DecodeError, Reader, Writer};
use super::super::counter::{CONFIDENCE, Monitored, PARAMETERS, Sampler, Z};
use super::super::ingest::{Basis, twin};
use super::super::{
    Answers, BuildError, Candidates, Describe, Estimate, Incompatible, Info, Ingest, Laws, Options,
    Parameter, Prefixes, Sampling, Setting, SizeEstimate, SizeQuery, Summary,
};
use super::levels::Levels;
use super::nodes::{MOST_NODES, fits, ipv4_nodes};
use crate::batch::{BATCH_PACKETS, Batch};
use crate::key::{CanonicalKey, FlowKey};
use crate::summary::Counted;
use crate::summary::describe::form;
use crate::terms::{Hierarchy, Measure, Size};

/// A Space-Saving for each node, each counting a sample of the packets.
///
/// Cost: that of one Space-Saving times H / V; packets that no node counts are passed over at once.
/// Memory: as of `mst`.
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
            Measure::Packets => Box::new(Drawn::<K, u32>::new(options)?),
            Measure::Bytes => Box::new(Drawn::<K, u64>::new(options)?),
        })
    }
}

/// All levels, of the measure that `C` counts, and the die.
struct Drawn<K: FlowKey, C: Monitored> {
    levels: Levels<K, C>,
    sides: u64,
    sampler: Sampler,
    total: u64,
    /// The largest weight that came at once.
    largest: u64,
}

impl<K: FlowKey, C: Monitored> Drawn<K, C> {
    fn new(options: &Options) -> Result<Self, BuildError> {
        let levels = Levels::new("rhhh", options)?;
        let nodes = levels.len() as u64;
        // IPv6 has more nodes, each of which needs a side: the same number is asked for both.
        let fewest = ipv4_nodes(options.hierarchy) as u64;
        let sides = options.parameters.integer("v", fewest..=1 << 32)?.unwrap_or(nodes).max(nodes);
        let probability = nodes as f64 / sides as f64;
        let sampler = Sampler::new(options.digester.seed().draws(), probability);
        Ok(Self { levels, sides, sampler, total: 0, largest: 0 })
    }

    fn sample(&self) -> Sampling {
        let unit = Z * Z * self.sides as f64 * self.largest as f64;
        Sampling { unit, confidence: CONFIDENCE }
    }

    /// The weight of all packets, from that of the sample.
    fn scaled(&self, counted: Estimate) -> Estimate {
        let sides = self.sides as f64;
        let (low, high) = (counted.low * sides, counted.high * sides);
        Estimate::between(low, counted.value * sides, high).within(self.total)
    }

    /// The same, with what the sample may miss.
    fn widened(&self, counted: Estimate) -> Estimate {
        let all = self.scaled(counted);
        let error = self.sample().error(all.high);
        let low = (all.low - error).max(counted.low).min(all.value);
        let high = all.high + error;
        Estimate { value: all.value, low, high, confidence: Some(CONFIDENCE) }.within(self.total)
    }
}

impl<K: FlowKey, C: Monitored> Ingest<K> for Drawn<K, C> {
    fn ingest(&mut self, batch: &mut Batch<K>) {
        let (keys, weights) = (batch.keys(), C::column(batch));
        for weight in weights {
            self.total = self.total.saturating_add(weight.get());
            self.largest = self.largest.max(weight.get());
        }
        // The packets of each level one after the other, which are in a cache then.
        let (mut rows, mut levels, mut ends) =
            ([0; BATCH_PACKETS], [0; BATCH_PACKETS], [0; MOST_NODES]);
        let (mut drawn, mut left) = (0, keys.len() as u64);
        while self.sampler.choose(&mut left) {
            rows[drawn] = keys.len() - 1 - left as usize;
            levels[drawn] = self.sampler.below(self.levels.len() as u32) as usize;
            ends[levels[drawn]] += 1;
            drawn += 1;
        }
        let mut end = 0;
        for begin in &mut ends {
            (*begin, end) = (end, end + *begin);
        }
        let (mut sorted, mut theirs) = ([K::zeroed(); BATCH_PACKETS], [C::zeroed(); BATCH_PACKETS]);
        for (&row, &level) in rows[..drawn].iter().zip(&levels) {
            sorted[ends[level]] = keys[row];
            theirs[ends[level]] = weights[row];
            ends[level] += 1;
        }
        let mut begin = 0;
        for (level, &end) in ends[..self.levels.len()].iter().enumerate() {
            if begin < end {
                self.levels.add(level, &sorted[begin..end], &theirs[begin..end]);
            }
            begin = end;
        }
    }

    fn wants_bytes(&self) -> bool {
        C::MEASURE == Measure::Bytes
    }
}

impl<K: FlowKey, C: Monitored> Summary<K> for Drawn<K, C> {
    fn answers(&self) -> &dyn Answers {
        self
    }

    fn merge(&mut self, other: &dyn Summary<K>) -> Result<(), Incompatible> {
        let other = twin(self, other, |summary| Basis::of(summary.levels.digester()))?;
        self.levels.fits(&other.levels)?;
        self.levels.merge(&other.levels);
        self.total = self.total.saturating_add(other.total);
        self.largest = self.largest.max(other.largest);
        Ok(())
    }

    fn save(&self, out: &mut Writer) {
        out.numbers(&[self.total, self.largest]);
        self.sampler.save(out);
        self.levels.save(out);
    }

    fn load(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.total = from.number("total")?;
        self.largest = from.number("largest weight")?;
        self.sampler.load(from)?;
        self.levels.load(from)
    }

    fn clear(&mut self) {
        self.levels.clear();
        self.sampler.reset();
        (self.total, self.largest) = (0, 0);
    }

    fn parameters(&self) -> Vec<(&'static str, Setting)> {
        vec![
            ("counters", Setting::Integer(self.levels.counters() as u64)),
            ("v", Setting::Integer(self.sides)),
        ]
    }

    fn memory_bytes(&self) -> usize {
        self.levels.memory_bytes()
    }
}

impl<K: FlowKey, C: Monitored> Drawn<K, C> {
    /// Of all packets, what there is of those at one of the levels.
    fn in_all(&self, Size { packets, bytes }: Size) -> Size {
        let all = |counted: u64| counted.saturating_mul(self.sides);
        Size { packets: all(packets), bytes: all(bytes) }
    }
}

impl<K: FlowKey, C: Monitored> Answers for Drawn<K, C> {
    fn untracked(&self) -> Size {
        self.in_all(self.levels.untracked())
    }
    fn saturated(&self) -> Size {
        self.in_all(self.levels.saturated())
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

impl<K: FlowKey, C: Monitored> SizeQuery for Drawn<K, C> {
    fn estimate(&self, key: &[u8]) -> SizeEstimate {
        self.levels.size(key, |counted| self.widened(counted))
    }
}

impl<K: FlowKey, C: Monitored> Candidates for Drawn<K, C> {
    fn for_each(&self, visit: &mut dyn FnMut(CanonicalKey, SizeEstimate)) {
        self.levels.candidates(|counted| self.widened(counted), visit);
    }

    fn overflow(&self) -> u64 {
        0
    }
}

impl<K: FlowKey, C: Monitored> Prefixes for Drawn<K, C> {
    fn measure(&self) -> Measure {
        C::MEASURE
    }

    fn hierarchy(&self) -> Hierarchy {
        self.levels.hierarchy()
    }

    fn nodes(&self) -> Vec<(u8, u8)> {
        self.levels.nodes()
    }

    fn for_each(&self, node: usize, visit: &mut dyn FnMut(CanonicalKey, Estimate)) {
        self.levels.for_each(node, &mut |key, counted| visit(key, self.scaled(counted)));
    }

    fn estimate(&self, node: usize, prefix: &[u8]) -> Estimate {
        self.scaled(self.levels.estimate(node, prefix))
    }

    fn sampling(&self) -> Option<Sampling> {
        Some(self.sample())
    }
}
