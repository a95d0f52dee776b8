//! InstaMeasure and RCC: a regulator before a flow table, decoded at saturation.
//!
//! Paper: Jang et al., "InstaMeasure: instant per-flow detection using large in-DRAM working set of
//! active flows" (ICDCS 2019), §3. A packet that the [`Regulator`] lets through adds what it stands
//! for to its flow in the table, `UNIT` packets and as many times its own length; all others leave
//! marks only. A flow is thus in the table as soon as it is of some size, without any decoding
//! afterwards. What stays behind, about 50 packets (RCC: 5) of a flow that is alone in its words, is
//! read from the marks when a flow of the table is asked for, in proportion to the share of them that
//! is likely its own. What other flows' saturations erase nothing makes up for: with 100 million
//! packets in 128 KB 0.1 % of flows over 100,000 packets, and 0.6 % of those from 10,000 on.

use std::any::Any;

use flowgauge_kernel::Digester;

use super::super::basis::{Basis, twin};
use super::super::codec::{DecodeError, Reader, Writer};
use super::super::{
    Answers, BuildError, Candidates, Counter, Describe, Incompatible, Info, Ingest, Laws, Merge,
    Options, Parameter, Setting, Size, SizeEstimate, SizeQuery, sum_and_largest,
};
use super::bounds::Flow;
use super::regulator::Regulator;
use super::word::Word;
use super::working_set::{Entry, WorkingSet};
use crate::batch::{BATCH_PACKETS, Batch};
use crate::key::{CanonicalKey, FlowKey};

/// Bytes of the regulator, unless asked otherwise or the memory is small.
const SKETCH_BYTES: usize = 128 << 10;

/// The smallest regulator: four arrays of two words of 64 bits.
const LEAST_SKETCH_BYTES: usize = 64;

/// Entries that are probed for a flow. Longer paths cost more where the table is full, shorter
/// ones evict before it is.
const PROBES: u64 = 16;

/// Seconds without a saturation after which a flow may go before others.
const TIMEOUT_SECONDS: u64 = 15;

const SKETCH: Parameter = Parameter {
    name: "sketch",
    help: "bytes of all counter arrays, a power of two \
           (default: 131072, or what a quarter of the memory holds)",
};
const WORD: Parameter =
    Parameter { name: "word", help: "bits of a word of the arrays, 32 or 64 (default: 32)" };
const LEVELS: Parameter = Parameter {
    name: "levels",
    help: "arrays of the second layer: 3, one for each noise level, or 1 (default: 3)",
};
const ENTRIES: Parameter = Parameter {
    name: "entries",
    help: "entries of the flow table, a power of two (default: what fits into the memory)",
};
const PROBE_LIMIT: Parameter = Parameter {
    name: "probes",
    help: "entries that a flow may have, before one of them is evicted (default: 16)",
};
const TIMEOUT: Parameter = Parameter {
    name: "timeout",
    help: "seconds after which a silent flow is evicted before any other (default: 15)",
};

/// A regulator of `LAYERS` layers of words `W` before a flow table.
///
/// Cost: one word a packet, mostly in cache; for the packets that are let through (1 % with two
/// layers, 10 % with one) an access to the table. Memory in bytes: `sketch + entries ×
/// (size_of::<K>() + 24, rounded up to 8) + 4 × entries`: 44 for each IPv4 five-tuple, 68 for
/// IPv6.
pub struct InstaMeasure<K, W, const LAYERS: usize> {
    digester: Digester,
    regulator: Regulator<W, LAYERS>,
    flows: WorkingSet<K>,
    total: Size,
    longest: u64,
    /// Regulators whose flows the table has: more than one after merges.
    regulators: u64,
}

impl Describe for InstaMeasure<(), (), 1> {
    const INFO: Info = Info {
        name: "rcc",
        idea: "eight shared bits a flow, decoded into a flow table when they saturate",
        paper: "InstaMeasure (ICDCS 2019), section 3.A",
        parameters: &[SKETCH, WORD, ENTRIES, PROBE_LIMIT, TIMEOUT],
        memory: "sketch + entries x (key + 24, rounded up to 8) + 4 x entries",
        laws: Laws {
            commutable: false,
            aggregatable: false,
            sizes: true,
            rows: false,
            merge: Merge::WithinBounds,
        },
    };

    fn build<K: FlowKey>(options: &Options) -> Result<Box<dyn Ingest<K>>, BuildError> {
        build::<K, 1>(options)
    }
}

impl Describe for InstaMeasure<(), (), 2> {
    const INFO: Info = Info {
        name: "insta-measure",
        idea: "two layers of shared bits that let 1 % of the packets through to a flow table",
        paper: "InstaMeasure (ICDCS 2019), section 3",
        parameters: &[SKETCH, WORD, LEVELS, ENTRIES, PROBE_LIMIT, TIMEOUT],
        memory: "sketch + entries x (key + 24, rounded up to 8) + 4 x entries",
        laws: Laws {
            commutable: false,
            aggregatable: false,
            sizes: true,
            rows: false,
            merge: Merge::WithinBounds,
        },
    };

    fn build<K: FlowKey>(options: &Options) -> Result<Box<dyn Ingest<K>>, BuildError> {
        build::<K, 2>(options)
    }
}

fn build<K: FlowKey, const LAYERS: usize>(
    options: &Options,
) -> Result<Box<dyn Ingest<K>>, BuildError> {
    Ok(match options.parameters.word("word", &[u32::NAME, u64::NAME])? {
        u32::NAME => Box::new(InstaMeasure::<K, u32, LAYERS>::from_options(options)?),
        _ => Box::new(InstaMeasure::<K, u64, LAYERS>::from_options(options)?),
    })
}

impl<K: FlowKey, W: Word, const LAYERS: usize> InstaMeasure<K, W, LAYERS> {
    fn from_options(options: &Options) -> Result<Self, BuildError> {
        let (parameters, memory) = (&options.parameters, options.memory_bytes);
        let levels = match parameters.word("levels", &["3", "1"])? {
            _ if LAYERS == 1 => 0,
            "1" => 1,
            _ => 3,
        };
        let sketch = parameters.power_of_two("sketch", SKETCH_BYTES.min(memory / 4), 1)?;
        if sketch < LEAST_SKETCH_BYTES {
            return Err(BuildError::OutOfRange {
                name: "sketch",
                value: sketch.to_string(),
                range: format!("a power of two from {LEAST_SKETCH_BYTES}"),
            });
        }
        let words = sketch / (1 + levels) / size_of::<W>();
        let regulator = Regulator::new(words, levels, options.digester.seed(), &options.memory)?;
        let rest = memory.saturating_sub(sketch);
        let entries = parameters.power_of_two("entries", rest, WorkingSet::<K>::ENTRY_BYTES)?;
        let probes = parameters.integer("probes", 1..=1024)?.unwrap_or(PROBES) as u32;
        let timeout = parameters.integer("timeout", 1..=u64::from(u32::MAX))?;
        let timeout_ns = timeout.unwrap_or(TIMEOUT_SECONDS).saturating_mul(1_000_000_000);
        Ok(Self {
            digester: options.digester,
            regulator,
            flows: WorkingSet::new(entries, probes, timeout_ns, &options.memory)?,
            total: Size::default(),
            longest: 0,
            regulators: 1,
        })
    }

    /// Packets of a flow as decoded at this very packet: what was let through, and what is behind
    /// in the regulator. Costs a random access or two to each array; other flows' marks count as
    /// this one's.
    pub fn decode(&self, key: K) -> f64 {
        let digest = key.digest(&self.digester);
        let count = self.flows.get(key, digest).map_or(0, |entry| entry.size().packets);
        Regulator::<W, LAYERS>::UNIT * count as f64 + self.regulator.residual(digest)
    }

    /// Adds one packet of each of these rows.
    fn add_rows(flows: &mut WorkingSet<K>, batch: &Batch<K>, rows: &[u8]) {
        for i in rows.iter().map(|&i| usize::from(i)) {
            let bytes = batch.bytes()[i] / u64::from(batch.packets()[i]);
            flows.add(batch.keys()[i], batch.digests()[i], 1, bytes, batch.times_ns()[i]);
        }
    }

    /// What `size` packets that reached the table stand for.
    fn decoded(&self, size: Size) -> Size {
        let unit = Regulator::<W, LAYERS>::UNIT;
        let all = |size: u64, total: u64| ((unit * size as f64).round() as u64).min(total);
        Size {
            packets: all(size.packets, self.total.packets),
            bytes: all(size.bytes, self.total.bytes),
        }
    }

    /// What is known of a flow beside what of it reached the table; `whole` says that no part of that
    /// was evicted, and `behind` is what it may have left behind.
    fn flow(&self, whole: bool, behind: f64) -> Flow {
        let mut lost = self.flows.saturated();
        if !whole {
            lost += self.flows.evicted();
        }
        Flow {
            unit: Regulator::<W, LAYERS>::UNIT,
            variance: Regulator::<W, LAYERS>::VARIANCE,
            total: self.total,
            behind,
            marks: self.total.packets as f64 * self.regulator.vector_share(),
            regulators: self.regulators as f64,
            longest: self.longest as f64,
            lost: (lost.packets as f64, lost.bytes as f64),
        }
    }

    fn flow_of_entry(&self, entry: &Entry<K>, digest: u64) -> Flow {
        self.flow(entry.is_whole(), self.regulator.residual(digest))
    }
}

impl<K: FlowKey, W: Word, const LAYERS: usize> Ingest<K> for InstaMeasure<K, W, LAYERS> {
    /// A row that stands for several packets counts as so many of equal length.
    fn ingest(&mut self, batch: &mut Batch<K>) {
        batch.digest(&self.digester);
        let (digests, packets) = (batch.digests(), batch.packets());
        // Entries lie anywhere in memory: they are asked for at once, and updated afterwards.
        let mut rows = [0; BATCH_PACKETS];
        let mut count = 0;
        let flows = &mut self.flows;
        self.regulator.regulate(digests, packets, |i| {
            if count == BATCH_PACKETS {
                Self::add_rows(flows, batch, &rows);
                count = 0;
            }
            flows.prefetch(digests[i]);
            rows[count] = i as u8;
            count += 1;
        });
        Self::add_rows(flows, batch, &rows[..count]);
        let (bytes, longest) = sum_and_largest(self.longest, batch.bytes());
        self.total += Size { packets: u32::sum(packets), bytes };
        self.longest = longest;
    }

    fn answers(&self) -> &dyn Answers {
        self
    }

    /// The tables are united. The marks of `other` are not: what they stood for is within the
    /// upper bounds.
    fn merge(&mut self, other: &dyn Ingest<K>) -> Result<(), Incompatible> {
        let other = twin(self, other, |summary| Basis::of(&summary.digester))?;
        self.flows.merge(&other.flows, &self.digester);
        self.total += other.total;
        self.longest = self.longest.max(other.longest);
        self.regulators = self.regulators.saturating_add(other.regulators);
        Ok(())
    }

    fn save(&self, out: &mut Writer) {
        out.size(self.total);
        out.numbers(&[self.longest, self.regulators]);
        self.regulator.save(out);
        self.flows.save(out);
    }

    fn load(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.total = from.size("all packets")?;
        self.longest = from.number("longest packet")?;
        self.regulators = from.number("number of regulators")?;
        self.regulator.load(from)?;
        self.flows.load(from, &self.digester)
    }

    fn clear(&mut self) {
        self.regulator.clear();
        self.flows.clear();
        self.total = Size::default();
        self.longest = 0;
        self.regulators = 1;
    }

    fn parameters(&self) -> Vec<(&'static str, Setting)> {
        let (entries, probes, timeout_ns) = self.flows.shape();
        let mut parameters = vec![
            ("sketch", Setting::Integer(self.regulator.memory_bytes() as u64)),
            ("word", Setting::Word(W::NAME)),
        ];
        match self.regulator.levels() {
            0 => {}
            1 => parameters.push(("levels", Setting::Word("1"))),
            _ => parameters.push(("levels", Setting::Word("3"))),
        }
        parameters.extend([
            ("entries", Setting::Integer(entries as u64)),
            ("probes", Setting::Integer(probes.into())),
            ("timeout", Setting::Integer(timeout_ns / 1_000_000_000)),
        ]);
        parameters
    }

    fn memory_bytes(&self) -> usize {
        self.regulator.memory_bytes() + self.flows.memory_bytes()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl<K: FlowKey, W: Word, const LAYERS: usize> Answers for InstaMeasure<K, W, LAYERS> {
    fn untracked(&self) -> Size {
        self.decoded(self.flows.evicted())
    }
    fn saturated(&self) -> Size {
        self.decoded(self.flows.saturated())
    }
    fn size(&self) -> Option<&dyn SizeQuery> {
        Some(self)
    }
    fn candidates(&self) -> Option<&dyn Candidates> {
        Some(self)
    }
}

impl<K: FlowKey, W: Word, const LAYERS: usize> SizeQuery for InstaMeasure<K, W, LAYERS> {
    fn estimate(&self, key: &[u8]) -> SizeEstimate {
        let Some(key) = K::from_canonical(key) else { return SizeEstimate::exact(Size::default()) };
        let digest = key.digest(&self.digester);
        let (flow, size) = match self.flows.get(key, digest) {
            Some(entry) => (self.flow_of_entry(entry, digest), entry.size()),
            None => (self.flow(self.flows.evictions() == 0, 0.0), Size::default()),
        };
        flow.size(size)
    }
}

impl<K: FlowKey, W: Word, const LAYERS: usize> Candidates for InstaMeasure<K, W, LAYERS> {
    fn for_each(&self, visit: &mut dyn FnMut(CanonicalKey, SizeEstimate)) {
        for entry in self.flows.iter() {
            let flow = self.flow_of_entry(entry, entry.key.digest(&self.digester));
            visit(CanonicalKey::new(entry.key.canonical()), flow.listed(entry.size()));
        }
    }

    fn overflow(&self) -> u64 {
        self.flows.evictions()
    }
}
