//! Simulated memory: caches with LRU sets, and a controller that serves one line at a time beside
//! threads that keep it busy, for a loop over batches that waits for its lines.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

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
