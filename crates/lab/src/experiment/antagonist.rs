//! Antagonist threads that occupy caches and memory during a measurement.

use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

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
}
