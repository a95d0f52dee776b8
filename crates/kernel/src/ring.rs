//! A bounded ring from one thread to another. It takes no lock while values pass, and allocates
//! only when it is created.
//!
//! The slots always hold values, which both ends change in place. If both ends swap, emptied
//! batches return to the producer, so one ring is enough to reuse batches. Each end caches the
//! other end's position and reads it again only when the ring seems full or empty.
//!
//! An end that must wait spins for some microseconds and then sleeps. The other end pays one fence
//! per value for this, and a system call when the waiting end sleeps.

use std::hint;
use std::ops::Deref;
use std::sync::PoisonError;
use std::thread;

use sync::{Arc, AtomicBool, AtomicUsize, Cell, Condvar, Mutex, Ordering, fence};

#[cfg(not(all(loom, test)))]
mod sync {
    pub(super) use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
    pub(super) use std::sync::{Arc, Condvar, Mutex};

    /// The cell of the standard library with the interface of the model checker's.
    pub(super) struct Cell<T>(std::cell::UnsafeCell<T>);

    impl<T> Cell<T> {
        pub(super) fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }

        #[inline(always)]
        pub(super) fn with_mut<R>(&self, change: impl FnOnce(*mut T) -> R) -> R {
            change(self.0.get())
        }
    }
}

#[cfg(all(loom, test))]
mod sync {
    pub(super) use loom::cell::UnsafeCell as Cell;
    pub(super) use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
    pub(super) use loom::sync::{Arc, Condvar, Mutex};
}

/// How often a waiting end looks at the other end before it sleeps. The first [`SPINS`] looks are a
/// few nanoseconds apart; between the others it yields to other threads. They take some 20 µs in
/// all, several times the cost of waking a sleeping end.
const LOOKS: usize = if cfg!(all(loom, test)) { 0 } else { 128 };
const SPINS: usize = 64;

/// The other end was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Gone;

/// Aligned to two cache lines, because the processor fetches lines in pairs.
#[repr(align(128))]
struct Padded<T>(T);

impl<T> Deref for Padded<T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0
    }
}

struct Shared<T> {
    slots: Box<[Cell<T>]>,
    /// Number of values taken out so far.
    taken: Padded<AtomicUsize>,
    /// Number of values put in so far.
    put: Padded<AtomicUsize>,
    /// Wakes the consumer.
    filled: Padded<Bell>,
    /// Wakes the producer.
    emptied: Padded<Bell>,
    producer_gone: AtomicBool,
    consumer_gone: AtomicBool,
}

// SAFETY: only the producer touches a free slot, and only the consumer a filled one (see
// `Producer::try_push` and `Consumer::try_pop`). So values only move between threads, which `Send`
// allows.
unsafe impl<T: Send> Sync for Shared<T> {}

/// The end of a [`ring`] that fills slots.
///
/// ```
/// let (mut producer, mut consumer) = flowgauge_kernel::ring(1, || 0);
/// assert!(producer.try_push(|slot| *slot = 7));
/// assert!(!producer.try_push(|slot| *slot = 8), "the ring is full");
/// assert_eq!(consumer.try_pop(|slot| *slot), Some(7));
/// ```
pub struct Producer<T> {
    shared: Arc<Shared<T>>,
    put: usize,
    /// [`Shared::taken`] when last read.
    taken: usize,
}

/// The end of a [`ring`] that empties slots.
///
/// ```
/// let (producer, mut consumer) = flowgauge_kernel::ring(1, || 0);
/// assert_eq!(consumer.try_pop(|slot| *slot), None);
/// drop(producer);
/// assert!(consumer.pop(|slot| *slot).is_err(), "no value will come");
/// ```
pub struct Consumer<T> {
    shared: Arc<Shared<T>>,
    taken: usize,
    /// [`Shared::put`] when last read.
    put: usize,
}

/// The two ends of a ring of `capacity` slots, rounded up to a power of two. `make` creates the
/// values in the slots.
///
/// ```
/// use std::mem::swap;
///
/// let (mut producer, mut consumer) = flowgauge_kernel::ring(2, Vec::new);
/// let reader = std::thread::spawn(move || {
///     let (mut batch, mut sum) = (Vec::new(), 0);
///     while consumer.pop(|slot| swap(slot, &mut batch)).is_ok() {
///         sum += batch.drain(..).sum::<u32>();
///     }
///     sum
/// });
/// assert!(producer.push(|slot| slot.extend([1, 2, 3])).is_ok());
/// assert!(producer.push(|slot| slot.push(4)).is_ok());
/// drop(producer);
/// assert_eq!(reader.join().ok(), Some(10));
/// ```
pub fn ring<T: Send>(capacity: usize, mut make: impl FnMut() -> T) -> (Producer<T>, Consumer<T>) {
    let capacity = capacity.max(1).next_power_of_two();
    let shared = Arc::new(Shared {
        slots: (0..capacity).map(|_| Cell::new(make())).collect(),
        taken: Padded(AtomicUsize::new(0)),
        put: Padded(AtomicUsize::new(0)),
        filled: Padded(Bell::new()),
        emptied: Padded(Bell::new()),
        producer_gone: AtomicBool::new(false),
        consumer_gone: AtomicBool::new(false),
    });
    let producer = Producer { shared: Arc::clone(&shared), put: 0, taken: 0 };
    (producer, Consumer { shared, taken: 0, put: 0 })
}

impl<T> Shared<T> {
    #[inline(always)]
    fn slot(&self, position: usize) -> &Cell<T> {
        &self.slots[position & (self.slots.len() - 1)]
    }
}

impl<T: Send> Producer<T> {
    /// Lets `fill` change the next slot and hands it over. Returns `false` if the ring is full.
    #[inline]
    pub fn try_push(&mut self, fill: impl FnOnce(&mut T)) -> bool {
        if !self.has_room() {
            return false;
        }
        // SAFETY: slot `put` is free: `put - taken` is less than the number of slots, and the
        // acquire load of `taken` makes the consumer's last access to this slot happen before. The
        // consumer does not touch it again before `put` passes it. There is one producer, borrowed
        // exclusively.
        self.shared.slot(self.put).with_mut(|slot| fill(unsafe { &mut *slot }));
        self.put = self.put.wrapping_add(1);
        self.shared.put.store(self.put, Ordering::Release);
        self.shared.filled.ring();
        true
    }

    /// As [`Self::try_push`], but waits for room.
    ///
    /// # Errors
    /// When the consumer was dropped.
    #[inline]
    pub fn push(&mut self, fill: impl FnOnce(&mut T)) -> Result<(), Gone> {
        if !self.has_room() {
            let (shared, put) = (&*self.shared, self.put);
            shared.emptied.wait(|| {
                let full = put.wrapping_sub(shared.taken.load(Ordering::Acquire));
                full < shared.slots.len() || shared.consumer_gone.load(Ordering::Acquire)
            });
        }
        if self.is_gone() || !self.try_push(fill) { Err(Gone) } else { Ok(()) }
    }

    /// Whether the consumer was dropped, so that pushed values are lost.
    #[inline]
    pub fn is_gone(&self) -> bool {
        self.shared.consumer_gone.load(Ordering::Acquire)
    }

    #[inline(always)]
    fn has_room(&mut self) -> bool {
        let slots = self.shared.slots.len();
        if self.put.wrapping_sub(self.taken) == slots {
            self.taken = self.shared.taken.load(Ordering::Acquire);
        }
        self.put.wrapping_sub(self.taken) < slots
    }
}

impl<T: Send> Consumer<T> {
    /// Whether the producer was dropped. The values that it pushed before are still in the ring.
    #[inline]
    pub fn is_gone(&self) -> bool {
        self.shared.producer_gone.load(Ordering::Acquire)
    }

    /// Lets `take` change the oldest filled slot and frees it. Returns `None` if the ring is empty.
    #[inline]
    pub fn try_pop<R>(&mut self, take: impl FnOnce(&mut T) -> R) -> Option<R> {
        if self.taken == self.put {
            self.put = self.shared.put.load(Ordering::Acquire);
            if self.taken == self.put {
                return None;
            }
        }
        // SAFETY: slot `taken` is filled: it is before `put`, and the acquire load of `put` makes
        // the producer's writes to this slot happen before. The producer does not touch it again
        // before `taken` passes it. There is one consumer, borrowed exclusively.
        let result = self.shared.slot(self.taken).with_mut(|slot| take(unsafe { &mut *slot }));
        self.taken = self.taken.wrapping_add(1);
        self.shared.taken.store(self.taken, Ordering::Release);
        self.shared.emptied.ring();
        Some(result)
    }

    /// As [`Self::try_pop`], but waits for a filled slot.
    ///
    /// # Errors
    /// When the ring is empty and the producer was dropped.
    #[inline]
    pub fn pop<R>(&mut self, take: impl FnOnce(&mut T) -> R) -> Result<R, Gone> {
        if self.taken == self.put {
            let (shared, taken) = (&*self.shared, self.taken);
            shared.filled.wait(|| {
                shared.put.load(Ordering::Acquire) != taken
                    || shared.producer_gone.load(Ordering::Acquire)
            });
        }
        // The producer may have pushed a last value before it was dropped.
        self.try_pop(take).ok_or(Gone)
    }
}

impl<T> Drop for Producer<T> {
    fn drop(&mut self) {
        self.shared.producer_gone.store(true, Ordering::Release);
        self.shared.filled.ring();
    }
}

impl<T> Drop for Consumer<T> {
    fn drop(&mut self) {
        self.shared.consumer_gone.store(true, Ordering::Release);
        self.shared.emptied.ring();
    }
}

/// Lets one thread sleep until another one wakes it.
struct Bell {
    asleep: AtomicBool,
    lock: Mutex<()>,
    rung: Condvar,
}

impl Bell {
    fn new() -> Self {
        Self { asleep: AtomicBool::new(false), lock: Mutex::new(()), rung: Condvar::new() }
    }

    /// Returns once `ready` is true; checks it again whenever the bell rings.
    fn wait(&self, ready: impl Fn() -> bool) {
        for look in 0..LOOKS {
            if ready() {
                return;
            }
            if look < SPINS {
                hint::spin_loop();
            } else {
                thread::yield_now();
            }
        }
        let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            self.asleep.store(true, Ordering::Relaxed);
            // Either this fence or the one in `ring` is first. So either this thread sees what the
            // other one did before it rang, or the other one sees that this thread is asleep.
            fence(Ordering::SeqCst);
            if ready() {
                break;
            }
            guard = self.rung.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        self.asleep.store(false, Ordering::Relaxed);
    }

    /// Wakes the sleeping thread, if any. Its condition must be true already.
    #[inline(always)]
    fn ring(&self) {
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        // The lock ensures that the other thread is not between its check and its sleep.
        let _guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.asleep.store(false, Ordering::Relaxed);
        self.rung.notify_one();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn values_arrive_in_order_across_threads_and_slots_are_reused() {
        for capacity in [1, 2, 5] {
            let (mut producer, mut consumer) = ring(capacity, || 0u64);
            let sum = thread::scope(|scope| {
                scope.spawn(move || {
                    for value in 1..=10_000 {
                        assert_eq!(producer.push(|slot| *slot = value), Ok(()));
                    }
                });
                let mut before = 0;
                while let Ok(value) = consumer.pop(|slot| *slot) {
                    assert_eq!(value, before + 1);
                    before = value;
                }
                before
            });
            assert_eq!(sum, 10_000);
        }
    }

    #[test]
    fn a_full_ring_refuses_and_an_empty_one_returns_nothing() {
        let (mut producer, mut consumer) = ring(3, || 0);
        assert_eq!(consumer.try_pop(|slot| *slot), None);
        let pushed = (0..6).take_while(|value| producer.try_push(|slot| *slot = *value)).count();
        assert_eq!(pushed, 4, "3 slots are 4");
        assert_eq!(consumer.try_pop(|slot| *slot), Some(0));
        assert!(producer.try_push(|slot| *slot = 7) && !producer.try_push(|slot| *slot = 8));
    }

    #[test]
    fn values_outlive_the_producer_and_the_rest_is_dropped_with_the_ring() {
        let value = Arc::new(());
        let (mut producer, mut consumer) = ring(4, || None);
        for _ in 0..3 {
            assert!(producer.try_push(|slot| *slot = Some(Arc::clone(&value))));
        }
        drop(producer);
        assert!(consumer.pop(Option::take).is_ok_and(|value| value.is_some()));
        assert_eq!(Arc::strong_count(&value), 3);
        drop(consumer);
        assert_eq!(Arc::strong_count(&value), 1);
    }

    #[test]
    fn a_waiting_end_returns_when_the_other_end_is_dropped() {
        let (mut producer, consumer) = ring(1, || 0);
        assert!(producer.try_push(|slot| *slot = 1));
        let waiting = thread::spawn(move || producer.push(|slot| *slot = 2));
        drop(consumer);
        assert_eq!(waiting.join().ok(), Some(Err(Gone)));
        let (producer, mut consumer) = ring(1, || 0);
        let waiting = thread::spawn(move || consumer.pop(|slot| *slot));
        drop(producer);
        assert_eq!(waiting.join().ok(), Some(Err(Gone)));
    }
}

/// Small cases in every interleaving with at most three preemptions.
#[cfg(all(test, loom))]
pub(crate) mod model {
    use loom::thread;

    use super::*;

    /// Runs `case` in each interleaving; without the bound there are too many.
    pub(crate) fn check(case: impl Fn() + Send + Sync + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(case);
    }

    /// Values arrive in order and complete, also where positions wrap around.
    fn pass(slots: usize, values: usize) {
        check(move || {
            let (mut producer, mut consumer) = ring(slots, || [0; 2]);
            let filling = thread::spawn(move || {
                for value in 1..=values {
                    assert_eq!(producer.push(|slot| *slot = [value; 2]), Ok(()));
                }
            });
            for value in 1..=values {
                assert_eq!(consumer.pop(|slot| std::mem::take(slot)), Ok([value; 2]));
            }
            assert_eq!(consumer.pop(|_| ()), Err(Gone));
            let _ = filling.join();
        });
    }

    #[test]
    fn one_slot() {
        pass(1, 2);
    }

    #[test]
    fn two_slots_with_wrap_around() {
        pass(2, 3);
    }

    /// A value that is never taken is dropped once, and a producer that waits for a dropped
    /// consumer returns.
    #[test]
    fn leftovers_are_dropped() {
        check(|| {
            let (mut producer, mut consumer) = ring(1, || None);
            let value = loom::sync::Arc::new(());
            let (first, second) = (value.clone(), value.clone());
            let filling = thread::spawn(move || {
                let _ = producer.push(|slot| *slot = Some(first));
                let _ = producer.push(|slot| *slot = Some(second));
            });
            let _ = consumer.try_pop(Option::take);
            drop(consumer);
            let _ = filling.join();
            assert_eq!(loom::sync::Arc::strong_count(&value), 1);
        });
    }
}
