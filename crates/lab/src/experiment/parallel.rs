//! Several threads at once, each with packets and a runner of its own.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use flowgauge_core::batch::Batch;
use flowgauge_core::key::FlowKey;
use flowgauge_kernel::{Digester, Isa, Seed, cycles};

use super::latency::{Histogram, Latency, Runner, pass};
use super::stream::Stream;
use crate::machine::ns_per_cycle;
use crate::speed::clock::thread_seconds;

/// What threads took together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Together {
    /// Nanoseconds from the start of the first to the end of the last.
    pub(crate) wall_ns: f64,
    /// The time of a packet on its thread.
    pub(crate) latency: Latency,
    /// The share of its time that the thread which had least of a core was running.
    share: f64,
}

/// What a thread must have had of a core, and how often others may be in the way before it is given up.
const ENOUGH: f64 = 0.97;
const TRIES: usize = 24;

impl Together {
    /// A run in which every thread had a core; `None` where something else had one again and again.
    pub(crate) fn undisturbed(mut run: impl FnMut() -> Self) -> Option<Self> {
        (0..TRIES).map(|_| run()).find(|run| run.share >= ENOUGH)
    }
}

impl<K: FlowKey> Stream<K> {
    /// The packets of so many workers: those of a flow go to one of them, by the bits of the digest
    /// that are for that.
    pub(crate) fn split(&self, workers: usize) -> Vec<Self> {
        let digester = Digester::new(Seed::new(1), Isa::best());
        let mut parts = vec![Self { keys: Vec::new(), elements: Vec::new() }; workers];
        for (key, element) in self.keys.iter().zip(&self.elements) {
            let part = &mut parts[(key.digest(&digester) >> 48) as usize % workers];
            part.keys.push(*key);
            part.elements.push(*element);
        }
        parts
    }

    /// The packets of so many workers, `batch_packets` at a time by turns.
    pub(crate) fn deal(&self, workers: usize, batch_packets: usize) -> Vec<Self> {
        let of = |worker| {
            let turns =
                || (worker * batch_packets..self.keys.len()).step_by(workers * batch_packets);
            let batch = |from: usize| from..self.keys.len().min(from + batch_packets);
            Self {
                keys: turns().flat_map(|from| &self.keys[batch(from)]).copied().collect(),
                elements: turns().flat_map(|from| &self.elements[batch(from)]).copied().collect(),
            }
        };
        (0..workers).map(of).collect()
    }
}

/// Where threads wait for each other without sleeping: one that sleeps is woken late, and maybe on the
/// core of another.
struct Start(AtomicUsize);

impl Start {
    /// For so many threads.
    fn of(threads: usize) -> Self {
        Self(AtomicUsize::new(threads))
    }

    /// Waits for all.
    fn wait(&self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
        while self.0.load(Ordering::Acquire) > 0 {
            spin_loop();
        }
    }
}

/// Each runner takes its stream so many times on a thread of its own, all at the same time. Nothing is
/// begun before.
pub(crate) fn together<'a, K: FlowKey>(
    pairs: impl ExactSizeIterator<Item = (&'a mut dyn Runner<K>, &'a Stream<K>)>,
    batch_packets: usize,
    passes: usize,
) -> Together {
    let start = Start::of(pairs.len());
    let done = thread::scope(|scope| {
        let threads: Vec<_> = pairs
            .map(|(runner, stream)| {
                let start = &start;
                scope.spawn(move || {
                    let (mut batch, mut histogram) = (Batch::new(), Histogram::new());
                    let mut timed = |packets, cycles| histogram.take(packets, cycles);
                    start.wait();
                    let (begun, ran) = (cycles(), thread_seconds());
                    for _ in 0..passes {
                        pass(runner, stream, batch_packets, &mut batch, Some(&mut timed));
                    }
                    (begun, cycles(), thread_seconds() - ran, histogram)
                })
            })
            .collect();
        let done = threads.into_iter().filter_map(|thread| thread.join().ok());
        done.collect::<Vec<(u64, u64, f64, Histogram)>>()
    });
    let mut all = Histogram::new();
    for (_, _, _, histogram) in &done {
        all.merge(histogram);
    }
    let first = done.iter().map(|(begun, ..)| *begun).min().unwrap_or(0);
    let last = done.iter().map(|(_, ended, ..)| *ended).max().unwrap_or(0);
    let share = |(begun, ended, ran, _): &(u64, u64, f64, Histogram)| {
        ran * 1e9 / ((ended - begun) as f64 * ns_per_cycle())
    };
    Together {
        wall_ns: (last - first) as f64 * ns_per_cycle(),
        latency: all.latency(),
        share: done.iter().map(share).fold(1.0, f64::min),
    }
}

#[cfg(test)]
mod tests {
    use flowgauge_core::key::{FlowKey, Key4};

    use super::*;
    use crate::experiment::latency::Bare;

    #[test]
    fn flows_stay_whole_and_threads_take_all() {
        let keys = (0..10_000_u32).filter_map(|i| Key4::from_canonical(&(i % 700).to_be_bytes()));
        let stream = Stream { keys: keys.collect(), elements: vec![0; 10_000] };
        let parts = stream.split(2);
        assert_eq!(parts[0].keys.len() + parts[1].keys.len(), 10_000);
        assert!(parts.iter().all(|part| part.keys.len() > 4000));
        assert!(parts[0].keys.iter().take(300).all(|key| !parts[1].keys.contains(key)));
        let dealt = stream.deal(3, 64);
        assert_eq!(dealt.iter().map(|part| part.keys.len()).sum::<usize>(), 10_000);
        assert_eq!(dealt[2].keys[..65], [&stream.keys[128..192], &stream.keys[320..321]].concat());
        assert!(dealt.iter().all(|part| part.elements.len() == part.keys.len()));
        let mut runners = [Bare::new(), Bare::new()];
        let pairs = runners.iter_mut().map(|runner| runner as &mut dyn Runner<Key4>).zip(&parts);
        let done = together(pairs, 64, 2);
        assert!(done.wall_ns > 0.0 && done.latency.mean_ns > 0.0);
    }
}
