//! SketchVisor: a sketch, and a fast path for the packets that it is too slow for.
//!
//! Paper: Huang et al., "SketchVisor: robust network measurement for software packet processing"
//! (SIGCOMM 2017), §3 and §4. Packets queue for the normal path, here a Count-Min sketch; those that
//! find the queue full take the fast path, Misra-Gries. What is slow is a matter of the machine, so it
//! is said and not measured: the normal path serves `rate` packets a second, and the queue fills and
//! drains by the packets' own times. A capture that is read faster than it was taken has the same
//! packets in the fast path, whatever reads it.
//!
//! The answer for a key is the sum of both paths: the estimates are added, and so are the bounds. The
//! paper's recovery step (§5), which corrects that sum by compressive sensing, is left out: its result has
//! no bounds.

use std::collections::BTreeSet;

use super::super::codec::{DecodeError, Reader, Writer};
use super::super::ingest::{Basis, twin};
use super::super::sketch::{Least, RowSketch, Unsigned};
use super::super::{
    Answers, BuildError, Candidates, Describe, Estimate, Incompatible, Info, Ingest, Laws, Options,
    Parameter, Setting, SizeEstimate, SizeQuery, Summary,
};
use super::fast_path::FastPath;
use super::monitor::{excess, size};
use super::queue::Queue;
use crate::batch::{BATCH_PACKETS, Batch};
use crate::key::{CanonicalKey, FlowKey};
use crate::summary::Counted;
use crate::summary::describe::form;
use crate::terms::{Measure, Size};

/// Keys of the fast path, unless asked otherwise or the memory is small.
const MOST_COUNTERS: usize = 1024;
/// Packets a second of the normal path: what sketches of many rows reach on a core of a busy switch.
const RATE: u64 = 2_000_000;
/// The fastest normal path: beyond, what one packet takes is too few picoseconds to be told.
const MOST_RATE: u64 = 1_000_000_000;
/// Packets that may wait for the normal path.
const QUEUE: u64 = 1024;

/// A Count-Min sketch, and Misra-Gries beside it.
///
/// Cost: that of the path which a packet takes. Memory in bytes: that of both.
pub struct SketchVisor;

impl Describe for SketchVisor {
    const INFO: Info = Info {
        name: "sketch-visor",
        idea: "Count-Min behind a queue, and Misra-Gries for packets that find the queue full; \
               sizes are their sums",
        paper: "SketchVisor (SIGCOMM 2017), sections 3 and 4, without the recovery of section 5",
        parameters: &[
            Parameter {
                name: "rate",
                help: "packets per second that the sketch takes, by packet timestamps, up to \
                       1000000000 (default: 2000000)",
            },
            Parameter {
                name: "queue",
                help: "maximum packets in the queue of the sketch \
                                              (default: 1024)",
            },
            Parameter {
                name: "counters",
                help: "keys of the fast path (default: 1024, or what an eighth of the memory holds)",
            },
            Parameter { name: "rows", help: "rows of the sketch, 1 to 16 (default 4)" },
            Parameter {
                name: "columns",
                help: "counters in a row, a power of two (default: 32768, or what fits into the memory)",
            },
            Parameter {
                name: "candidates",
                help: "heavy keys of the sketch to keep, a power of two (default: 16384, or what \
                       a quarter of the memory holds), or 0 to list no keys",
            },
        ],
        memory: "as misra-gries and count-min together",
        // Which path a packet takes is a matter of its time.
        forms: &[
            form![Size(Counted::Asked), Candidates],
            form![candidates = "0"; Size(Counted::Asked)],
        ],
        laws: Laws { sizes: true, ..Laws::NONE },
    };

    fn build<K: FlowKey>(options: &Options) -> Result<Box<dyn Summary<K>>, BuildError> {
        Ok(match options.by {
            Measure::Packets => Box::new(TwoPaths::<K, u32>::new(options)?),
            Measure::Bytes => Box::new(TwoPaths::<K, u64>::new(options)?),
        })
    }
}

struct TwoPaths<K, C: Unsigned> {
    rate: u64,
    length: u64,
    queue: Queue,
    fast: FastPath<K>,
    normal: RowSketch<K, Least<C>>,
}

impl<K: FlowKey, C: Unsigned> TwoPaths<K, C> {
    fn new(options: &Options) -> Result<Self, BuildError> {
        let parameters = &options.parameters;
        let rate = parameters.integer("rate", 1..=MOST_RATE)?.unwrap_or(RATE);
        let length = parameters.integer("queue", 1..=1 << 20)?.unwrap_or(QUEUE);
        let fit = options.memory_bytes / 8 / FastPath::<K>::bytes(1);
        let counters = match parameters.integer("counters", 1..=1 << 29)? {
            Some(counters) => counters as usize,
            None => fit.clamp(1, MOST_COUNTERS),
        };
        let fast = FastPath::new(counters, options.digester, &options.memory)?;
        let rest = options.memory_bytes.saturating_sub(fast.memory_bytes());
        // A copy of the options has an account of its own, which begins with what is left here.
        let normal = RowSketch::new(&Options { memory_bytes: rest, ..options.clone() })?;
        options.memory.take(normal.memory_bytes())?;
        Ok(Self { rate, length, queue: Queue::new(rate, length), fast, normal })
    }

    /// The sum of what both paths know of a key.
    fn sum(&self, key: K, normal: &SizeEstimate) -> SizeEstimate {
        let (fast, none) = (self.fast.weight(key), Estimate::exact(0));
        let normal = normal.by(C::MEASURE).unwrap_or(none);
        size::<C>(Estimate {
            value: normal.value + fast.value,
            low: normal.low + fast.low,
            high: normal.high + fast.high,
            confidence: normal.confidence,
        })
    }
}

impl<K: FlowKey, C: Unsigned> Ingest<K> for TwoPaths<K, C> {
    fn ingest(&mut self, batch: &mut Batch<K>) {
        batch.digest(&self.normal.digester);
        let (keys, digests, weights) = (batch.keys(), batch.digests(), C::column(batch));
        let (packets, times_ns) = (batch.packets(), batch.times_ns());
        // The sketch takes what it is given together.
        let mut queued_keys = [K::zeroed(); BATCH_PACKETS];
        let mut queued_digests = [0; BATCH_PACKETS];
        let mut queued_weights = [C::zeroed(); BATCH_PACKETS];
        let mut queued = 0;
        for i in 0..keys.len() {
            if self.queue.takes(times_ns[i], packets[i].into()) {
                queued_keys[queued] = keys[i];
                queued_digests[queued] = digests[i];
                queued_weights[queued] = weights[i];
                queued += 1;
            } else {
                self.fast.add(keys[i], digests[i], weights[i].get());
            }
        }
        self.normal.take(
            &queued_keys[..queued],
            &queued_digests[..queued],
            &queued_weights[..queued],
        );
    }
}

impl<K: FlowKey, C: Unsigned> Summary<K> for TwoPaths<K, C> {
    fn answers(&self) -> &dyn Answers {
        self
    }

    fn merge(&mut self, other: &dyn Summary<K>) -> Result<(), Incompatible> {
        let other = twin(self, other, |summary| Basis::of(&summary.normal.digester))?;
        self.normal.merge(&other.normal)?;
        self.fast.merge(&other.fast);
        Ok(())
    }

    fn save(&self, out: &mut Writer) {
        self.queue.save(out);
        self.fast.save(out);
        self.normal.save(out);
    }

    fn load(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.queue.load(from)?;
        self.fast.load(from)?;
        self.normal.load(from)
    }

    fn clear(&mut self) {
        self.queue.clear();
        self.fast.clear();
        self.normal.clear();
    }

    fn parameters(&self) -> Vec<(&'static str, Setting)> {
        let mut parameters = self.normal.parameters();
        parameters.push(("counters", Setting::Integer(self.fast.most() as u64)));
        parameters.push(("rate", Setting::Integer(self.rate)));
        parameters.push(("queue", Setting::Integer(self.length)));
        parameters
    }

    fn memory_bytes(&self) -> usize {
        self.fast.memory_bytes() + self.normal.memory_bytes()
    }
}

impl<K: FlowKey, C: Unsigned> Answers for TwoPaths<K, C> {
    fn untracked(&self) -> Size {
        excess::<C>(self.fast.refused())
    }
    fn saturated(&self) -> Size {
        self.normal.saturated()
    }
    fn size(&self) -> Option<&dyn SizeQuery> {
        Some(self)
    }
    fn candidates(&self) -> Option<&dyn Candidates> {
        if self.normal.candidates().is_some() { Some(self) } else { None }
    }
}

impl<K: FlowKey, C: Unsigned> SizeQuery for TwoPaths<K, C> {
    fn estimate(&self, key: &[u8]) -> SizeEstimate {
        let normal = SizeQuery::estimate(&self.normal, key);
        K::matching(key, &self.normal.digester).map_or(normal, |key| self.sum(key, &normal))
    }
}

impl<K: FlowKey, C: Unsigned> Candidates for TwoPaths<K, C> {
    fn for_each(&self, visit: &mut dyn FnMut(CanonicalKey, SizeEstimate)) {
        let digester = &self.normal.digester;
        let mut named = BTreeSet::new();
        Candidates::for_each(&self.normal, &mut |key, _| {
            named.insert(key);
        });
        named.extend(self.fast.iter().map(|(key, _)| key.to_canonical(digester)));
        let key = |key: &CanonicalKey| K::matching(key.as_bytes(), digester);
        let each = |visit: &mut dyn FnMut(K)| named.iter().filter_map(key).for_each(visit);
        self.normal.list(&each, &mut |key, normal| {
            visit(key.to_canonical(digester), self.sum(key, &normal));
        });
    }

    fn overflow(&self) -> u64 {
        Candidates::overflow(&self.normal)
    }

    fn unnamed(&self, by: Measure) -> Option<f64> {
        Some(self.normal.unnamed(by)? + self.fast.unheld().high)
    }
}
