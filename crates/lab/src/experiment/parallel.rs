//! Runs several threads at once, each with its own packets and runner.

use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;

use flowgauge_core::batch::Batch;
use flowgauge_core::key::FlowKey;
use flowgauge_engine::Cores;
use flowgauge_kernel::{Digester, Isa, Seed, cycles};

use super::latency::{Histogram, Latency, Runner, pass};
use super::stream::Stream;
use crate::keys::Keys;
use crate::machine::ns_per_cycle;
use crate::machine::thread_seconds;

/// The result of several threads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Together {
    /// Nanoseconds from the first start to the last end.
    pub(crate) wall_ns: f64,
    /// Time per packet on its thread.
    pub(crate) latency: Latency,
    /// The lowest share of its time that any thread had a core.
    share: f64,
}

/// The share of a core that every thread must have had, and the number of attempts.
const ENOUGH: f64 = 0.97;
const TRIES: usize = 24;

impl Together {
    /// A run in which every thread had a core, or `None` if other processes interfered in every
    /// attempt.
    pub(crate) fn undisturbed(mut run: impl FnMut() -> Self) -> Option<Self> {
        (0..TRIES).map(|_| run()).find(Self::had_cores)
    }

    /// Whether every thread had a core, according to the operating system.
    pub(crate) fn had_cores(&self) -> bool {
        self.share >= ENOUGH
    }
}

impl<K: Keys> Stream<K> {
    /// Packets split by flow among this many workers, by the digest bits reserved for that.
    pub(crate) fn split(&self, workers: usize) -> Vec<Self> {
        let digester = Digester::new(Seed::number(1), Isa::best()).for_keys(K::BYTES);
        let mut parts = vec![Self { keys: Vec::new(), elements: Vec::new() }; workers];
        for (key, element) in self.keys.iter().zip(&self.elements) {
            let part = &mut parts[(key.digest(&digester) >> 48) as usize % workers];
            part.keys.push(*key);
            part.elements.push(*element);
        }
        parts
    }

    /// Packets dealt to this many workers in turn, `batch_packets` at a time.
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

/// A barrier without sleeping: a sleeping thread wakes up late, and possibly on another's core.
struct Start(AtomicUsize);

impl Start {
    /// A barrier for this many threads.
    fn of(threads: usize) -> Self {
        Self(AtomicUsize::new(threads))
    }

    /// Signals that one thread is ready, or will never be.
    fn arrive(&self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }

    /// Waits for all threads.
    fn wait(&self) {
        self.arrive();
        while self.0.load(Ordering::Acquire) > 0 {
            spin_loop();
        }
    }
}

/// The result of one thread.
struct Turn {
    begun: u64,
    ended: u64,
    /// Seconds of CPU time.
    ran: f64,
    histogram: Histogram,
}

impl Turn {
    /// Waits for all threads, then runs a runner over its stream `passes` times.
    fn take<K: Keys>(
        start: &Start,
        runner: &mut dyn Runner<K>,
        stream: &Stream<K>,
        batch_packets: usize,
        passes: usize,
    ) -> Self {
        let (mut batch, mut histogram) = (Batch::new(), Histogram::new());
        let mut timed = |packets, cycles| histogram.take(packets, cycles);
        start.wait();
        let (begun, ran) = (cycles(), thread_seconds());
        for _ in 0..passes {
            pass(runner, stream, batch_packets, &mut batch, Some(&mut timed));
        }
        Self { begun, ended: cycles(), ran: thread_seconds() - ran, histogram }
    }

    fn share(&self) -> f64 {
        self.ran * 1e9 / ((self.ended - self.begun) as f64 * ns_per_cycle())
    }
}

impl Together {
    fn of(turns: &[Turn]) -> Self {
        let mut all = Histogram::new();
        for turn in turns {
            all.merge(&turn.histogram);
        }
        let first = turns.iter().map(|turn| turn.begun).min().unwrap_or(0);
        let last = turns.iter().map(|turn| turn.ended).max().unwrap_or(0);
        Self {
            wall_ns: (last - first) as f64 * ns_per_cycle(),
            latency: all.latency(),
            share: turns.iter().map(Turn::share).fold(1.0, f64::min),
        }
    }
}

/// Each runner processes its stream `passes` times on its own thread, all at the same time and
/// without starting an epoch.
pub(crate) fn together<'a, K: Keys>(
    pairs: impl ExactSizeIterator<Item = (&'a mut dyn Runner<K>, &'a Stream<K>)>,
    batch_packets: usize,
    passes: usize,
) -> Together {
    let start = Start::of(pairs.len());
    let turns = thread::scope(|scope| {
        let threads: Vec<_> = pairs
            .map(|(runner, stream)| {
                let start = &start;
                scope.spawn(move || Turn::take(start, runner, stream, batch_packets, passes))
            })
            .collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect::<Vec<Turn>>()
    });
    Together::of(&turns)
}

/// Persistent threads, like the engine's workers: allocations of a runner on one of them come from
/// the same memory in each run. Each is pinned to a core if there are enough; freshly woken threads
/// would share one for a while.
pub(crate) struct Crew(Vec<Sender<Job>>);

type Job = Box<dyn FnOnce() + Send>;

impl Crew {
    /// Starts this many threads, which end when it is dropped.
    pub(crate) fn new(threads: usize) -> Self {
        let cores = Cores::new(threads).ok();
        let thread = |number| {
            let (sender, jobs) = channel::<Job>();
            let cores = cores.clone();
            thread::spawn(move || {
                let _pinned = cores.map(|cores| cores.pin(number));
                for job in jobs {
                    job();
                }
            });
            sender
        };
        Self((0..threads).map(thread).collect())
    }

    /// Like [`together`], on these threads; the first runner runs on the first thread.
    pub(crate) fn together<K: Keys>(
        &self,
        runners: &mut Vec<Box<dyn Runner<K>>>,
        streams: &[Arc<Stream<K>>],
        batch_packets: usize,
        passes: usize,
    ) -> Together {
        let start = Arc::new(Start::of(runners.len()));
        let begin = |((mut runner, stream), thread): ((Box<dyn Runner<K>>, _), &Sender<Job>)| {
            let (sender, done) = channel();
            let (ready, stream) = (Arc::clone(&start), Arc::clone(stream));
            let job = Box::new(move || {
                let turn = Turn::take(&ready, &mut *runner, &stream, batch_packets, passes);
                // The caller waits for it.
                let _ = sender.send((runner, turn));
            });
            if thread.send(job).is_err() {
                start.arrive();
            }
            done
        };
        let pairs = runners.drain(..).zip(streams);
        let begun: Vec<_> = pairs.zip(&self.0).map(begin).collect();
        let done = begun.into_iter().filter_map(|done| done.recv().ok());
        let turns = done.map(|(runner, turn)| {
            runners.push(runner);
            turn
        });
        Together::of(&turns.collect::<Vec<Turn>>())
    }
}

#[cfg(test)]
mod tests {
    use flowgauge_core::key::{FlowKey, Key8};

    use super::*;
    use crate::experiment::latency::Bare;
    use crate::keys::Sources;

    #[test]
    fn flows_stay_whole_and_threads_take_all() {
        let keys = (0..10_000_u32).filter_map(|i| Key8::from_canonical(&(i % 700).to_be_bytes()));
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
        let pairs = runners.iter_mut().map(|runner| runner as &mut dyn Runner<Sources>).zip(&parts);
        let done = together(pairs, 64, 2);
        assert!(done.wall_ns > 0.0 && done.latency.mean_ns > 0.0);
    }

    /// Reports the thread that ran it.
    struct Named(Sender<thread::ThreadId>);

    impl Runner<Sources> for Named {
        fn begin(&mut self) {}

        fn take(&mut self, _: &mut Batch<Key8>) {
            assert!(self.0.send(thread::current().id()).is_ok());
        }
    }

    #[test]
    fn a_crew_keeps_its_threads() {
        let key = Key8::from_canonical(&[1; 4]);
        let stream = Arc::new(Stream { keys: key.into_iter().collect(), elements: vec![0] });
        let (sender, named) = channel();
        let named_runner = || Box::new(Named(sender.clone())) as Box<dyn Runner<Sources>>;
        let mut both = vec![named_runner(), named_runner()];
        let mut alone = vec![named_runner()];
        let streams = [Arc::clone(&stream), stream];
        let crew = Crew::new(2);
        let run = |runners: &mut Vec<_>| {
            crew.together(runners, &streams, 64, 1);
            let mut ids: Vec<_> = named.try_iter().map(|id| format!("{id:?}")).collect();
            ids.sort_unstable();
            (runners.len(), ids)
        };
        let (first, one) = (run(&mut both), run(&mut alone));
        assert_eq!((first.0, first.1.len(), one.0, one.1.len()), (2, 2, 1, 1));
        assert!(first.1[0] != first.1[1] && first.1.contains(&one.1[0]));
        assert_eq!((run(&mut both), run(&mut alone)), (first, one));
    }
}
