//! A bounded ring from one thread to another: no lock on the way, and nothing allocated after the
//! start.
//!
//! The slots hold values from the start on, which the ends change in place: where both swap, what
//! was emptied at one end comes back to the other, and one ring is enough for batches that are used
//! again and again. Each end keeps the other's position as it last saw it, and reads it anew only
//! when the ring seems full, or empty.
//!
//! An end that has to wait spins for some microseconds and then sleeps. The other end pays for that
//! with a fence for each value, and with a call of the system where somebody does sleep.

use std::hint;
use std::ops::Deref;
use std::sync::PoisonError;
use std::thread;

use sync::{Arc, AtomicBool, AtomicUsize, Cell, Condvar, Mutex, Ordering, fence};

#[cfg(not(all(loom, test)))]
mod sync {
    pub(super) use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
    pub(super) use std::sync::{Arc, Condvar, Mutex};

    /// The cell of the standard library, as the model checker has it.
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

/// Looks at the other end before an end sleeps, of which the first ones are a few nanoseconds apart
/// and the others let another thread run in between: some 20 µs in all, several times what it costs
/// the other end to wake this one.
const LOOKS: usize = if cfg!(all(loom, test)) { 0 } else { 128 };
const SPINS: usize = 64;

/// The other end is no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Gone;

/// On a cache line of its own, and on that which is fetched with it.
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
    /// Values that were taken out, and that were put in, since the start.
    taken: Padded<AtomicUsize>,
    put: Padded<AtomicUsize>,
    /// What the consumer waits for, and the producer.
    filled: Padded<Bell>,
    emptied: Padded<Bell>,
    producer_gone: AtomicBool,
    consumer_gone: AtomicBool,
}

// SAFETY: a slot is touched by the producer alone while it is free and by the consumer alone while
// it is not (see `Producer::try_push` and `Consumer::try_pop`), so that values only ever move
// between threads, which `Send` allows.
unsafe impl<T: Send> Sync for Shared<T> {}

/// The end that fills.
pub struct Producer<T> {
    shared: Arc<Shared<T>>,
    put: usize,
    /// Values taken out when last looked.
    taken: usize,
}

/// The end that empties.
pub struct Consumer<T> {
    shared: Arc<Shared<T>>,
    taken: usize,
    /// Values put in when last looked.
    put: usize,
}

/// The two ends of a ring of at least `capacity` slots, rounded up to a power of two, that hold what
/// `make` gives.
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
    /// Lets `fill` change the next slot and hands it over; `false` where there is no room.
    #[inline]
    pub fn try_push(&mut self, fill: impl FnOnce(&mut T)) -> bool {
        if !self.has_room() {
            return false;
        }
        // SAFETY: slot `put` is free: `put - taken` is less than the number of slots, and the acquire
        // load of `taken` makes the consumer's last access to this slot happen before. The consumer
        // does not touch it again before `put` says that it may. There is one producer, borrowed
        // exclusively.
        self.shared.slot(self.put).with_mut(|slot| fill(unsafe { &mut *slot }));
        self.put = self.put.wrapping_add(1);
        self.shared.put.store(self.put, Ordering::Release);
        self.shared.filled.ring();
        true
    }

    /// The same, but waits for room.
    ///
    /// # Errors
    /// When the consumer is gone.
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

    /// Whether the consumer is gone, so that nobody will take what is pushed.
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
    /// Whether the producer is gone: what it put in before is still there.
    #[inline]
    pub fn is_gone(&self) -> bool {
        self.shared.producer_gone.load(Ordering::Acquire)
    }

    /// Lets `take` change the oldest slot that is filled, and frees it; `None` where there is none.
    #[inline]
    pub fn try_pop<R>(&mut self, take: impl FnOnce(&mut T) -> R) -> Option<R> {
        if self.taken == self.put {
            self.put = self.shared.put.load(Ordering::Acquire);
            if self.taken == self.put {
                return None;
            }
        }
        // SAFETY: slot `taken` is filled: it is before `put`, and the acquire load of `put` makes the
        // producer's writes to this slot happen before. The producer does not touch it again before
        // `taken` says that it may. There is one consumer, borrowed exclusively.
        let result = self.shared.slot(self.taken).with_mut(|slot| take(unsafe { &mut *slot }));
        self.taken = self.taken.wrapping_add(1);
        self.shared.taken.store(self.taken, Ordering::Release);
        self.shared.emptied.ring();
        Some(result)
    }

    /// The same, but waits for a filled slot.
    ///
    /// # Errors
    /// When there is none and the producer is gone.
    #[inline]
    pub fn pop<R>(&mut self, take: impl FnOnce(&mut T) -> R) -> Result<R, Gone> {
        if self.taken == self.put {
            let (shared, taken) = (&*self.shared, self.taken);
            shared.filled.wait(|| {
                shared.put.load(Ordering::Acquire) != taken
                    || shared.producer_gone.load(Ordering::Acquire)
            });
        }
        // What was put in before the producer went is there after all.
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

/// What one thread sleeps by until another has something for it.
struct Bell {
    asleep: AtomicBool,
    lock: Mutex<()>,
    rung: Condvar,
}

impl Bell {
    fn new() -> Self {
        Self { asleep: AtomicBool::new(false), lock: Mutex::new(()), rung: Condvar::new() }
    }

    /// Returns when `ready` is true; looks again whenever the bell rings.
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
            // Of this fence and that of `ring` one is first: either this thread sees what the other
            // one did before it rang, or that one sees that this is asleep.
            fence(Ordering::SeqCst);
            if ready() {
                break;
            }
            guard = self.rung.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        self.asleep.store(false, Ordering::Relaxed);
    }

    /// Wakes whoever sleeps; what it waits for is done already.
    #[inline(always)]
    fn ring(&self) {
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        // With the lock, the other one is not between its look and its sleep.
        let _guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.asleep.store(false, Ordering::Relaxed);
        self.rung.notify_one();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn values_come_in_their_order_across_threads_and_slots_are_used_again() {
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
    fn a_full_ring_takes_no_more_and_an_empty_one_gives_nothing() {
        let (mut producer, mut consumer) = ring(3, || 0);
        assert_eq!(consumer.try_pop(|slot| *slot), None);
        let pushed = (0..6).take_while(|value| producer.try_push(|slot| *slot = *value)).count();
        assert_eq!(pushed, 4, "3 slots are 4");
        assert_eq!(consumer.try_pop(|slot| *slot), Some(0));
        assert!(producer.try_push(|slot| *slot = 7) && !producer.try_push(|slot| *slot = 8));
    }

    #[test]
    fn what_is_left_is_taken_after_the_producer_went_and_dropped_with_the_ring() {
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
    fn whoever_waits_for_an_end_that_goes_is_told() {
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

/// Small cases in every interleaving that preempts threads three times at most.
#[cfg(all(test, loom))]
pub(crate) mod model {
    use loom::thread;

    use super::*;

    /// Runs `case` in all of them; without a bound they are too many.
    pub(crate) fn check(case: impl Fn() + Send + Sync + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(case);
    }

    /// Values arrive in order and whole, around the end of the slots and over it.
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

    /// A value that nobody takes is dropped once, and who waits for a consumer that goes is told.
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
