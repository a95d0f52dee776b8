//! This machine's memory: threads that occupy it during a measurement, and its performance.

use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use flowgauge_kernel::Zeroed;

use super::simulation::LINE_BYTES;
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
}
