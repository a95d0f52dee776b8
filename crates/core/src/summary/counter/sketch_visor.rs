//! SketchVisor: a sketch, and a fast path for the packets that exceed its rate.
//!
//! Paper: Huang et al., "SketchVisor: robust network measurement for software packet processing"
//! (SIGCOMM 2017), §3 and §4. Packets queue for the normal path, a Count-Min sketch; packets that
//! find the queue full take the fast path, Misra-Gries. The speed of the normal path is not
//! measured but given: it serves `rate` packets per second, and the queue fills and drains by
//! packet timestamps. So the packets of a capture take the same paths on any machine.
//!
//! The answer for a key is the sum of both paths: estimates and bounds are added. The recovery step
//! of the paper (§5), which corrects the sum by compressive sensing, is omitted because its result
//! has no bounds.

use std::collections::BTreeSet;

use super::misra_gries::KeyCounters;
use super::{exact_size, size};
use crate::batch::{BATCH_PACKETS, Batch};
use crate::key::{CanonicalKey, FlowKey};
use crate::summary::codec::{DecodeError, Reader, Writer};
use crate::summary::describe::form;
use crate::summary::ingest::{Basis, twin};
use crate::summary::sketch::{Least, RowSketch, Unsigned};
use crate::summary::{
    Answers, BuildError, Candidates, Counted, Describe, Estimate, Incompatible, Info, Ingest, Laws,
    Options, Parameter, Reads, Setting, SizeEstimate, SizeQuery, Summary,
};
use crate::terms::{Measure, Size};

/// Default number of keys in the fast path, if the memory allows.
const MOST_COUNTERS: usize = 1024;
/// Default rate of the normal path in packets per second: that of a sketch of many rows on one core
/// of a busy switch.
const RATE: u64 = 2_000_000;
/// The maximum rate: beyond it, the service time in picoseconds is too coarse.
const MOST_RATE: u64 = 1_000_000_000;
/// Default length of the queue in packets.
const QUEUE: u64 = 1024;

/// A Count-Min sketch with a Misra-Gries fast path, in the catalog as `sketch-visor`.
///
/// Cost per packet: that of the path it takes. Memory in bytes: the sum of both paths.
///
/// ```
/// use flowgauge_core::batch::Batch;
/// use flowgauge_core::catalog;
/// use flowgauge_core::key::{FlowKey, Key8};
/// use flowgauge_core::summary::Options;
///
/// // A packet per microsecond is twice the rate of the sketch: half of them take the fast path.
/// let options = Options::new(1 << 20, 1).for_keys(4).with([("rate", 500_000), ("queue", 10)]);
/// let mut summary = catalog::build::<Key8>("sketch-visor", &options).unwrap();
/// let key = Key8::from_canonical(&[192, 0, 2, 1]).unwrap();
/// let mut batch = Batch::new();
/// (0..200).for_each(|packet| batch.push(key, 64, packet * 1000));
/// summary.ingest(&mut batch);
/// let size = summary.answers().size().unwrap().estimate(&[192, 0, 2, 1]);
/// assert_eq!(size.packets.map(|found| found.value), Some(200.0));
/// ```
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
        // The path of a packet depends on its timestamp.
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

/// The normal path with its queue, and the fast path.
struct TwoPaths<K, C: Unsigned> {
    rate: u64,
    length: u64,
    queue: Queue,
    fast: KeyCounters<K>,
    normal: RowSketch<K, Least<C>>,
}

impl<K: FlowKey, C: Unsigned> TwoPaths<K, C> {
    fn new(options: &Options) -> Result<Self, BuildError> {
        let parameters = &options.parameters;
        let rate = parameters.integer("rate", 1..=MOST_RATE)?.unwrap_or(RATE);
        let length = parameters.integer("queue", 1..=1 << 20)?.unwrap_or(QUEUE);
        let fit = options.memory_bytes / 8 / KeyCounters::<K>::bytes(1);
        let counters = match parameters.integer("counters", 1..=1 << 29)? {
            Some(counters) => counters as usize,
            None => fit.clamp(1, MOST_COUNTERS),
        };
        let fast = KeyCounters::new(counters, options.digester, &options.memory)?;
        let rest = options.memory_bytes.saturating_sub(fast.memory_bytes());
        // The copied options account for memory separately, starting with what is left here.
        let normal = RowSketch::new(&Options { memory_bytes: rest, ..options.clone() })?;
        options.memory.take(normal.memory_bytes())?;
        Ok(Self { rate, length, queue: Queue::new(rate, length), fast, normal })
    }

    /// The estimate of a key, summed over both paths.
    fn sum(&self, key: K, normal: &SizeEstimate) -> SizeEstimate {
        let (fast, none) = (self.fast.estimate(key), Estimate::exact(0));
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
        // The sketch is faster with all its rows at once.
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

    fn reads(&self) -> Reads {
        Reads { times: true, ..Reads::sizes(C::MEASURE) }
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
        parameters.push(("counters", Setting::Integer(self.fast.capacity() as u64)));
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
        exact_size::<C>(self.fast.untracked())
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
        Some(self.normal.unnamed(by)? + self.fast.absent().high)
    }
}

const PICOSECONDS: u64 = 1_000_000_000_000;

/// A bounded queue before a server of constant rate. Its clock is the packet timestamps, so that
/// nothing depends on the machine.
struct Queue {
    /// Time to serve one packet.
    service_ps: u64,
    bound_ps: u64,
    /// Time to serve all queued packets.
    backlog_ps: u64,
    last_ns: i64,
}

impl Queue {
    /// A server of `rate` packets per second, at most 10⁹, and a queue of `length` packets, at most
    /// 2²⁰.
    fn new(rate: u64, length: u64) -> Self {
        let service_ps = PICOSECONDS / rate;
        Self { service_ps, bound_ps: service_ps * length, backlog_ps: 0, last_ns: i64::MIN }
    }

    /// Queues packets that arrive at `time_ns` if there is room for all of them; returns whether
    /// there was. A packet older than an earlier one counts as arriving with it.
    #[inline(always)]
    fn takes(&mut self, time_ns: i64, packets: u64) -> bool {
        if time_ns > self.last_ns {
            let idle_ps = time_ns.abs_diff(self.last_ns).saturating_mul(1000);
            self.backlog_ps = self.backlog_ps.saturating_sub(idle_ps);
            self.last_ns = time_ns;
        }
        let backlog = self.backlog_ps.saturating_add(self.service_ps.saturating_mul(packets));
        let room = backlog <= self.bound_ps;
        self.backlog_ps = if room { backlog } else { self.backlog_ps };
        room
    }

    fn clear(&mut self) {
        (self.backlog_ps, self.last_ns) = (0, i64::MIN);
    }

    fn save(&self, out: &mut Writer) {
        out.number(self.backlog_ps);
        out.number(self.last_ns);
    }

    fn load(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.backlog_ps = from.number("backlog")?;
        if self.backlog_ps > self.bound_ps {
            return Err(from.invalid("backlog", size_of::<u64>(), "the queue is shorter"));
        }
        self.last_ns = from.number("time of the last packet")?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_takes_its_length_at_once_and_then_its_rate() {
        // Five packets at once, then one every 100 ns, the service time.
        let mut queue = Queue::new(10_000_000, 5);
        let taken = |queue: &mut Queue, time, offered| {
            (0..offered).filter(|_| queue.takes(time, 1)).count()
        };
        assert_eq!(taken(&mut queue, 0, 20), 5);
        assert_eq!(taken(&mut queue, 100, 20), 1);
        assert_eq!(taken(&mut queue, 350, 20), 2);
        assert_eq!(taken(&mut queue, 50, 20), 0);
        assert_eq!(taken(&mut queue, 1_000_000, 20), 5);
        queue.clear();
        assert_eq!(taken(&mut queue, i64::MIN, 20), 5);
        assert!(queue.takes(i64::MAX, 5) && !queue.takes(i64::MAX, 1));
    }
}
