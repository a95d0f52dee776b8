//! Memory: threads that occupy it, its performance, and a simulation of caches and a controller.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use flowgauge_kernel::Zeroed;

use crate::machine::zeroed;

/// What an antagonist does with its memory.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Antagonist {
    /// Increments random words: it occupies the caches.
    Random,
    /// Reads and writes consecutive words: it occupies the memory controller.
    Stream,
}

/// Words processed between checks of the stop flag.
const PIECE: usize = 1 << 14;

/// Runs `work` beside this many antagonists, each with its own memory of `bytes` bytes.
pub(crate) fn beside<T>(
    count: usize,
    antagonist: Antagonist,
    bytes: usize,
    work: impl FnOnce() -> T,
) -> T {
    let stop = AtomicBool::new(false);
    let ready = Barrier::new(count + 1);
    thread::scope(|scope| {
        for number in 0..count {
            let (stop, ready) = (&stop, &ready);
            scope.spawn(move || {
                let mut words = vec![number as u64 | 1; bytes.div_ceil(8).next_power_of_two()];
                ready.wait();
                let mut at = 0;
                while !stop.load(Ordering::Relaxed) {
                    at = antagonist.work(&mut words, at);
                }
                black_box(words);
            });
        }
        ready.wait();
        let done = work();
        stop.store(true, Ordering::Relaxed);
        done
    })
}

impl Antagonist {
    /// Bytes processed between checks.
    pub(super) const PIECE_BYTES: usize = 8 * PIECE;

    /// Processes one piece of `words` (a power of two) starting at `at`.
    pub(super) fn work(self, words: &mut [u64], at: u64) -> u64 {
        let mask = words.len() - 1;
        let mut place = at;
        for _ in 0..PIECE {
            place = match self {
                Self::Random => place.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1),
                Self::Stream => place + 1,
            };
            // The high bits of `at` are the random ones.
            let word = match self {
                Self::Random => (place >> 20) as usize & mask,
                Self::Stream => place as usize & mask,
            };
            words[word] = words[word].wrapping_add(1);
        }
        place
    }
}

/// Reads per measurement, and repetitions.
const READS: usize = 1 << 20;
const TIMES: usize = 5;

/// A cache line; its first number is the index of the next one.
type Line = [u64; LINE_BYTES / 8];

/// A random cycle through all lines of this many bytes (Sattolo's algorithm).
fn ring(bytes: usize) -> Zeroed<Line> {
    let mut random = fastrand::Rng::with_seed(1);
    let mut lines: Zeroed<Line> = zeroed(bytes / LINE_BYTES);
    (0..lines.len()).for_each(|at| lines[at][0] = at as u64);
    for at in (1..lines.len()).rev() {
        let other = random.usize(0..at);
        let (one, two) = (lines[at][0], lines[other][0]);
        (lines[at][0], lines[other][0]) = (two, one);
    }
    lines
}

/// The minimum time in nanoseconds: interference only makes it longer.
fn least_ns(mut work: impl FnMut()) -> f64 {
    let times = (0..TIMES).map(|_| {
        let start = Instant::now();
        work();
        start.elapsed().as_nanos() as f64
    });
    times.fold(f64::INFINITY, f64::min)
}

/// Nanoseconds of a read of a random line among this many bytes: for dependent and for independent
/// reads.
pub(super) fn read_ns(bytes: usize) -> [f64; 2] {
    let lines = ring(bytes);
    let mut at = 0;
    let waiting = least_ns(|| {
        at = (0..READS).fold(at, |at, _| lines[at as usize][0]);
        black_box(at);
    });
    let (mask, mut random) = (lines.len().next_power_of_two() - 1, 1_u64);
    let at_once = least_ns(|| {
        let mut sum = 0;
        for _ in 0..READS {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            sum += lines.get((random >> 20) as usize & mask).map_or(0, |line| line[0]);
        }
        black_box(sum);
    });
    [waiting, at_once].map(|ns| ns / READS as f64)
}

/// Bytes per nanosecond that this many threads read and write together, each as
/// [`Antagonist::Stream`] in its own memory of `bytes` bytes.
pub(super) fn stream_rate(threads: usize, bytes: usize) -> f64 {
    let pieces = 4 * bytes / Antagonist::PIECE_BYTES;
    let mut memories = vec![vec![1_u64; bytes / 8]; threads];
    let ns = least_ns(|| {
        thread::scope(|scope| {
            for words in &mut memories {
                scope.spawn(|| {
                    (0..pieces).fold(0, |at, _| Antagonist::Stream.work(words, at));
                });
            }
        });
    });
    // Each word is read and written.
    (2 * threads * pieces * Antagonist::PIECE_BYTES) as f64 / ns
}

/// Simulated batches; the first half is warm-up.
const BATCHES: u64 = 2_000;

/// A machine's memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Memory {
    /// Unloaded latency of a line, in nanoseconds.
    pub(super) latency_ns: f64,
    /// Latency of a line in the last-level cache.
    pub(super) cached_ns: f64,
    /// Maximum throughput of the controller in bytes per nanosecond.
    pub(super) capacity: f64,
    /// Throughput of one antagonist thread alone, in bytes per nanosecond.
    pub(super) thread: f64,
    /// Outstanding lines of the measured core.
    pub(super) window: f64,
}

/// A loop over batches of packets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    /// Packets per batch.
    pub(super) packets: usize,
    /// Lines per packet that miss the core's private caches.
    pub(super) lines: f64,
    /// Nanoseconds per packet without antagonists, when these lines hit the last-level cache.
    pub(super) alone_ns: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A batch begins.
    Batch,
    /// A line of the batch arrives.
    Line,
    /// A line of an antagonist arrives.
    Beside,
}

/// The controller and the event queue. All times are in picoseconds.
struct Controller {
    serve: u64,
    rest: u64,
    /// Time at which all requests so far are served.
    free: u64,
    events: BinaryHeap<Reverse<(u64, Event)>>,
}

impl Controller {
    /// Requests a line; `event` is its arrival.
    fn ask(&mut self, now: u64, event: Event) {
        self.free = self.free.max(now) + self.serve;
        self.events.push(Reverse((self.free + self.rest, event)));
    }
}

impl Memory {
    /// Nanoseconds per packet beside this many threads. They evict everything from the last-level
    /// cache, so all lines come from memory.
    ///
    /// A batch prefetches its lines, as many at once as the window allows, and computes when all
    /// have arrived. A thread has a fixed number of outstanding lines, derived from its rate alone
    /// by Little's law, and requests the next line when one arrives. The controller serves requests
    /// in order of arrival.
    pub(super) fn packet_ns(&self, work: &Work, threads: usize) -> f64 {
        if threads == 0 {
            return work.alone_ns;
        }
        let line = LINE_BYTES as f64;
        let serve = picoseconds(line / self.capacity);
        let rest = picoseconds(self.latency_ns).saturating_sub(serve);
        let mut controller = Controller { serve, rest, free: 0, events: BinaryHeap::new() };
        let under_way = (self.thread * self.latency_ns / line).round().max(1.0) as usize;
        for _ in 0..threads * under_way {
            controller.ask(0, Event::Beside);
        }
        let window = (self.window.round() as usize).max(1);
        let waits = work.lines * self.cached_ns / window as f64;
        let compute = picoseconds((work.alone_ns - waits).max(0.0) * work.packets as f64);
        // Lines of the batch not yet requested, outstanding lines, and the fraction of a line
        // carried over to later batches.
        let (mut left, mut waiting, mut owed) = (0, 0, 0.0);
        let (mut begun, mut half) = (0, 0);
        controller.events.push(Reverse((0, Event::Batch)));
        while let Some(Reverse((now, event))) = controller.events.pop() {
            match event {
                Event::Beside => controller.ask(now, Event::Beside),
                Event::Line if left > 0 => {
                    left -= 1;
                    controller.ask(now, Event::Line);
                }
                Event::Line => waiting -= 1,
                Event::Batch => {
                    match begun {
                        _ if begun == BATCHES / 2 => half = now,
                        BATCHES => {
                            let packets = BATCHES / 2 * work.packets as u64;
                            return (now - half) as f64 / 1e3 / packets as f64;
                        }
                        _ => {}
                    }
                    begun += 1;
                    owed += work.lines * work.packets as f64;
                    left = owed as usize;
                    owed -= left as f64;
                    waiting = window.min(left);
                    left -= waiting;
                    (0..waiting).for_each(|_| controller.ask(now, Event::Line));
                }
            }
            if event != Event::Beside && waiting == 0 {
                controller.events.push(Reverse((now + compute, Event::Batch)));
            }
        }
        f64::NAN
    }
}

fn picoseconds(nanoseconds: f64) -> u64 {
    (nanoseconds * 1e3) as u64
}

/// Bytes per cache line.
pub(super) const LINE_BYTES: usize = 64;

/// Bytes and ways of each cache level of the paper's Xeon E5-2650 v3. The paper gives the sizes of
/// the second and last level; the first level and the ways are those of the processor.
pub(super) const XEON: [(usize, usize); 3] = [(32 << 10, 8), (256 << 10, 8), (25 << 20, 20)];

/// Levels of set-associative caches with least-recently-used replacement.
pub(super) struct Caches(Vec<Level>);

struct Level {
    ways: usize,
    /// The lines of each set, most recently used first; stored as line number plus one, 0 if free.
    lines: Vec<u64>,
}

impl Caches {
    /// Empty caches, nearest level first.
    pub(super) fn new(levels: &[(usize, usize)]) -> Self {
        let level = |(bytes, ways): &(usize, usize)| {
            let sets = bytes / LINE_BYTES / ways;
            Level { ways: *ways, lines: vec![0; sets * ways] }
        };
        Self(levels.iter().map(level).collect())
    }

    /// Reads a line. Returns the level that held it, or the number of levels if none did.
    /// Afterwards all nearer levels hold it.
    pub(super) fn read(&mut self, line: u64) -> usize {
        let levels = self.0.len();
        (0..levels).find(|level| self.0[*level].read(line)).unwrap_or(levels)
    }
}

impl Level {
    /// Whether the line was there. It is afterwards.
    fn read(&mut self, line: u64) -> bool {
        let sets = self.lines.len() / self.ways;
        let first = (line % sets as u64) as usize * self.ways;
        let set = &mut self.lines[first..first + self.ways];
        let place = set.iter().position(|have| *have == line + 1);
        set[..=place.unwrap_or(self.ways - 1)].rotate_right(1);
        set[0] = line + 1;
        place.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn antagonists_touch_their_memory_and_stop() {
        for antagonist in [Antagonist::Random, Antagonist::Stream] {
            let mut words = vec![0; 1 << 10];
            let mut at = 0;
            for _ in 0..4 {
                at = antagonist.work(&mut words, at);
            }
            assert_eq!(words.iter().sum::<u64>(), 4 * PIECE as u64);
            assert!(words.iter().all(|word| *word > 0), "{antagonist:?} leaves words alone");
            assert_eq!(beside(2, antagonist, 1 << 13, || 7), 7);
        }
    }

    #[test]
    fn a_ring_goes_through_every_line() {
        let lines = ring(1 << 14);
        let steps = std::iter::successors(Some(lines[0][0]), |at| Some(lines[*at as usize][0]));
        assert_eq!(steps.take_while(|at| *at != 0).count() + 1, lines.len());
        let [waiting, at_once] = read_ns(1 << 14);
        assert!(waiting > 0.0 && at_once > 0.0 && stream_rate(1, 1 << 17) > 0.0);
    }

    const MEMORY: Memory =
        Memory { latency_ns: 64.0, cached_ns: 16.0, capacity: 16.0, thread: 8.0, window: 8.0 };
    const WORK: Work = Work { packets: 64, lines: 0.5, alone_ns: 20.0 };

    /// 32 lines of a batch in a window of 8 take four latencies, of memory instead of the cache: 4
    /// * (64 - 16) / 64 packets are 3 ns more.
    #[test]
    fn an_idle_controller_delays_nothing() {
        let idle = Memory { thread: 1.0, capacity: 1e6, ..MEMORY };
        assert!((idle.packet_ns(&WORK, 1) - 23.0).abs() < 0.05, "{}", idle.packet_ns(&WORK, 1));
        assert!((idle.packet_ns(&WORK, 0) - 20.0).abs() < 1e-9);
        let nothing = Work { lines: 0.0, ..WORK };
        assert!((MEMORY.packet_ns(&nothing, 7) - 20.0).abs() < 1e-6);
    }

    /// With threads that request more than the controller serves, a line waits for all outstanding
    /// ones: 7 threads with 8 each plus the window's 8, at 4 ns, are 256 ns, four times per batch.
    #[test]
    fn a_busy_controller_serves_in_turn() {
        let wanted = 19.0 + 4.0 * 256.0 / 64.0;
        let busy = MEMORY.packet_ns(&WORK, 7);
        assert!((busy / wanted - 1.0).abs() < 0.05, "{busy} instead of {wanted}");
        let times: Vec<f64> = (0..8).map(|threads| MEMORY.packet_ns(&WORK, threads)).collect();
        assert!(times.is_sorted(), "{times:?}");
    }

    #[test]
    fn each_set_keeps_the_lines_used_last() {
        // Two sets of two lines, then one set of four lines.
        let mut caches = Caches::new(&[(4 * LINE_BYTES, 2), (4 * LINE_BYTES, 4)]);
        let mut levels = |lines: &[u64]| lines.iter().map(|l| caches.read(*l)).collect::<Vec<_>>();
        assert_eq!(levels(&[0, 1, 0, 2]), [2, 2, 0, 2]);
        // 4 evicts 0, which the second level still has; 6 evicts 2.
        assert_eq!(levels(&[4, 0, 1, 0, 4]), [2, 1, 0, 0, 0]);
        // Five lines do not fit.
        assert_eq!(levels(&[6, 8, 10, 12]), [2, 2, 2, 2]);
        assert_eq!(levels(&[1]), [0]);
        assert_eq!(levels(&[12, 0]), [0, 2]);
    }
}
