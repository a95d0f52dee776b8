//! The memory behind a meter's handle.
//!
//! A handle is the address of a slot. Slots are never freed, so even a handle that was closed long
//! ago finds a slot that says so. A slot is reused once [`RESTING`] others were closed after it.

use std::any::Any;
use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::ffi::CStr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;

use flowgauge_core::packet::LinkType;
use flowgauge_engine::Meter;
use flowgauge_engine::source::{Ahead, Skipped};

use crate::error::{self, Problem, c_text};
use crate::report::check_outside;
use crate::{FG_EBUSY, FG_ECLOSED, FG_EDEAD, fg_meter};

/// Number of closed slots kept before the oldest is reused.
const RESTING: usize = 4096;

static CLOSED: Mutex<VecDeque<&'static Slot>> = Mutex::new(VecDeque::new());

/// Whether a group is alive, and why not.
#[derive(Default)]
pub(crate) struct Health {
    dead: AtomicBool,
    why: OnceLock<&'static CStr>,
}

impl Health {
    /// Ends the group. The first reason counts.
    pub(crate) fn die(&self, why: String) {
        // Leaked, since any thread may be reading it. Defects are rare.
        self.why.get_or_init(|| Box::leak(c_text(why).into_boxed_c_str()));
        self.dead.store(true, Ordering::Release);
    }

    #[inline]
    pub(crate) fn check(&self) -> Result<(), Problem> {
        if !self.dead.load(Ordering::Acquire) {
            return Ok(());
        }
        Err(Problem::fixed(FG_EDEAD, self.why.get().copied().unwrap_or(c"the group is dead")))
    }
}

/// The contents of a slot while its meter is open.
pub(crate) struct Held {
    /// `None` after a panic.
    meter: Option<Box<dyn Meter>>,
    link: LinkType,
    health: Arc<Health>,
    /// Whether its calls may wait for reports to be taken.
    waits: bool,
    /// The packets that the header's inline test may skip.
    granted: Ahead,
}

/// A meter's slot is open, in use by a thread, or closed.
const OPEN: u32 = 0;
const BUSY: u32 = 1;
const SHUT: u32 = 2;

/// The words that the header's inline test uses, in the order of [`fg_meter`].
#[repr(C)]
struct Words {
    ahead: AtomicU64,
    last_ns: AtomicI64,
    until_ns: AtomicI64,
    skipped_bytes: AtomicU64,
    samples: AtomicU32,
}

#[repr(C, align(128))]
pub(crate) struct Slot {
    words: Words,
    state: AtomicU32,
    /// Whether a thread wants to close it. No other thread may enter then.
    closing: AtomicBool,
    /// Packets that were pushed but could not be measured.
    dropped: AtomicU64,
    held: UnsafeCell<Option<Held>>,
}

const _: () = {
    assert!(size_of::<Words>() == size_of::<fg_meter>());
    assert!(std::mem::offset_of!(Words, ahead) == std::mem::offset_of!(fg_meter, ahead));
    assert!(std::mem::offset_of!(Words, last_ns) == std::mem::offset_of!(fg_meter, last_ns));
    assert!(std::mem::offset_of!(Words, until_ns) == std::mem::offset_of!(fg_meter, until_ns));
    assert!(
        std::mem::offset_of!(Words, skipped_bytes) == std::mem::offset_of!(fg_meter, skipped_bytes)
    );
    assert!(std::mem::offset_of!(Words, samples) == std::mem::offset_of!(fg_meter, samples));
    assert!(std::mem::offset_of!(Slot, words) == 0);
    assert!(size_of::<Slot>() == 128);
};

// SAFETY: `held`, which may be sent, is reached only by the one thread that changed `state` from `OPEN` to
// `BUSY`, or that opens a slot nothing else was given; all else is atomic.
unsafe impl Sync for Slot {}

impl Slot {
    /// Opens a slot for this meter. `samples` says whether a sampler decides before headers are
    /// read, `waits` whether calls may wait for reports to be taken.
    pub(crate) fn open(
        meter: Box<dyn Meter>,
        health: Arc<Health>,
        samples: bool,
        waits: bool,
    ) -> &'static Self {
        let mut closed = CLOSED.lock().unwrap_or_else(PoisonError::into_inner);
        let rested = if closed.len() > RESTING { closed.pop_front() } else { None };
        drop(closed);
        let slot = rested.unwrap_or_else(|| Box::leak(Box::new(Self::new())));
        slot.dropped.store(0, Ordering::Relaxed);
        slot.closing.store(false, Ordering::Relaxed);
        // The last meter's sampler may have left packets to skip, which would be counted here.
        slot.words.ahead.store(0, Ordering::Relaxed);
        slot.words.skipped_bytes.store(0, Ordering::Relaxed);
        slot.words.until_ns.store(i64::MIN, Ordering::Relaxed);
        slot.words.samples.store(samples.into(), Ordering::Relaxed);
        let held = Held {
            meter: Some(meter),
            link: LinkType::ETHERNET,
            health,
            waits,
            granted: Ahead::default(),
        };
        // SAFETY: the slot is shut, so that no thread enters it, and only this one took it from the closed.
        unsafe { *slot.held.get() = Some(held) };
        slot.state.store(OPEN, Ordering::Release);
        slot
    }

    fn new() -> Self {
        let words = Words {
            ahead: AtomicU64::new(0),
            last_ns: AtomicI64::new(0),
            until_ns: AtomicI64::new(0),
            skipped_bytes: AtomicU64::new(0),
            samples: AtomicU32::new(0),
        };
        let (state, closing) = (AtomicU32::new(SHUT), AtomicBool::new(false));
        let held = UnsafeCell::new(None);
        Self { words, state, closing, dropped: AtomicU64::new(0), held }
    }

    /// Its handle for C.
    pub(crate) fn handle(&'static self) -> *mut fg_meter {
        std::ptr::from_ref(self).cast_mut().cast()
    }

    /// The slot of a handle.
    ///
    /// # Safety
    /// The handle is null or came from [`Self::handle`].
    pub(crate) unsafe fn of(handle: *const fg_meter) -> Result<&'static Self, Problem> {
        #[expect(clippy::cast_ptr_alignment, reason = "a handle is the address of a slot")]
        // SAFETY: slots are never freed.
        let slot = unsafe { handle.cast::<Self>().as_ref() };
        slot.ok_or_else(|| Problem::argument(c"the meter is NULL"))
    }

    /// Whether a sampler decides before headers, or no packet is wanted after an error.
    #[inline]
    pub(crate) fn samples(&self) -> bool {
        self.words.samples.load(Ordering::Relaxed) != 0
    }

    /// Gives this thread exclusive use of the meter, for a call with `packets` packets.
    #[inline]
    pub(crate) fn with<T>(
        &self,
        packets: u32,
        run: impl FnOnce(&mut LinkType, &mut dyn Meter) -> T,
    ) -> Result<T, Problem> {
        let done = self.enter().and_then(|held| {
            let done = held.run(&self.words, run);
            self.state.store(OPEN, Ordering::Release);
            done
        });
        if done.is_err() {
            self.dropped.fetch_add(packets.into(), Ordering::Relaxed);
        }
        done
    }

    #[inline]
    #[expect(clippy::mut_from_ref, reason = "the state lets one thread in")]
    fn enter(&self) -> Result<&mut Held, Problem> {
        let closing = self.closing.load(Ordering::Relaxed);
        if closing
            || self
                .state
                .compare_exchange(OPEN, BUSY, Ordering::Acquire, Ordering::Relaxed)
                .is_err()
        {
            return Err(self.refusal());
        }
        // SAFETY: this thread made the slot busy, and is the only one until it makes it open again.
        let held = unsafe { &mut *self.held.get() };
        let held = held.as_mut().ok_or_else(|| self.refusal())?;
        if held.waits {
            check_outside().inspect_err(|_| self.state.store(OPEN, Ordering::Release))?;
        }
        Ok(held)
    }

    #[cold]
    fn refusal(&self) -> Problem {
        if !self.closing.load(Ordering::Relaxed) && self.state.load(Ordering::Relaxed) == BUSY {
            Problem::fixed(
                FG_EBUSY,
                c"another thread uses the meter: give each thread one of its own",
            )
        } else {
            Problem::fixed(FG_ECLOSED, c"the meter was closed")
        }
    }

    /// Closes the slots of a group, and ends their queues, each as soon as no call of another thread
    /// uses it: such a call may wait for another queue to end.
    pub(crate) fn close_all(slots: &[&'static Self]) {
        for slot in slots {
            slot.closing.store(true, Ordering::Relaxed);
        }
        let mut left = slots.to_vec();
        loop {
            left.retain(|slot| !slot.closes());
            if left.is_empty() {
                return;
            }
            thread::yield_now();
        }
    }

    /// Closes the slot unless another thread uses it. Returns whether it is closed. A failure belongs
    /// to the group.
    fn closes(&self) -> bool {
        match self.state.compare_exchange(OPEN, BUSY, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => {
                let _ = self.shut();
                true
            }
            Err(state) => state == SHUT,
        }
    }

    /// Closes the slot, and ends its queue.
    pub(crate) fn end(&self) -> Result<(), Problem> {
        self.enter()?;
        self.shut()
    }

    /// Ends the queue of a slot that this thread made busy.
    fn shut(&self) -> Result<(), Problem> {
        // SAFETY: this thread made the slot busy.
        let held = unsafe { &mut *self.held.get() }.take();
        self.words.samples.store(1, Ordering::Relaxed);
        let ended = held.map_or(Ok(()), |held| held.end(&self.words));
        self.state.store(SHUT, Ordering::Release);
        ended
    }

    /// Packets that were pushed but could not be measured.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Keeps a closed slot for reuse.
    pub(crate) fn rest(&'static self) {
        CLOSED.lock().unwrap_or_else(PoisonError::into_inner).push_back(self);
    }
}

impl Held {
    /// Lets the meter measure, after counting what the inline test skipped. A panic kills the
    /// group.
    #[inline]
    fn run<T>(
        &mut self,
        words: &Words,
        run: impl FnOnce(&mut LinkType, &mut dyn Meter) -> T,
    ) -> Result<T, Problem> {
        // After an error, the inline test must ask here.
        self.health.check().inspect_err(|_| words.samples.store(1, Ordering::Relaxed))?;
        let Self { meter: Some(meter), link, granted, .. } = self else {
            return Err(Problem::fixed(FG_EDEAD, c"the group is dead"));
        };
        let meter = &mut **meter;
        let ran = catch_unwind(AssertUnwindSafe(|| {
            settle(granted, words, meter);
            let done = run(link, meter);
            grant(granted, words, meter);
            done
        }));
        ran.map_err(|panic| {
            words.samples.store(1, Ordering::Relaxed);
            self.fail(&*panic)
        })
    }

    #[cold]
    fn fail(&mut self, panic: &(dyn Any + Send)) -> Problem {
        self.health.die(error::words(panic));
        let meter = self.meter.take();
        let _ = catch_unwind(AssertUnwindSafe(|| drop(meter)));
        self.health.check().err().unwrap_or(Problem::fixed(FG_EDEAD, c"the group is dead"))
    }

    /// Ends the queue: its open epoch closes with the packets so far.
    fn end(mut self, words: &Words) -> Result<(), Problem> {
        if let Some(mut meter) = self.meter.take() {
            let ended = catch_unwind(AssertUnwindSafe(|| {
                settle(&mut self.granted, words, &mut *meter);
                words.ahead.store(0, Ordering::Relaxed);
                meter.finish();
            }));
            if let Err(panic) = ended {
                self.health.die(error::words(&*panic));
            }
        }
        self.health.check()
    }
}

/// Counts what the inline test skipped since the last call.
#[inline]
fn settle(granted: &mut Ahead, words: &Words, meter: &mut dyn Meter) {
    if granted.packets == 0 {
        return;
    }
    // Threads that misuse a meter may have written any value.
    let left = words.ahead.load(Ordering::Relaxed).min(granted.packets);
    let bytes = words.skipped_bytes.load(Ordering::Relaxed);
    let last_ns = words.last_ns.load(Ordering::Relaxed);
    let last_ns = last_ns.max(granted.from_ns).min(granted.until_ns);
    let packets = granted.packets - left;
    granted.packets = 0;
    meter.skip(&Skipped { packets, picked: 0, bytes, last_ns });
}

/// Tells the inline test how many packets it may skip.
#[inline]
fn grant(granted: &mut Ahead, words: &Words, meter: &dyn Meter) {
    if words.samples.load(Ordering::Relaxed) == 0 {
        return;
    }
    // Number by number: a copy of all in a vector would wait for the stores of each.
    let Ahead { packets, from_ns, until_ns } = meter.ahead();
    granted.packets = packets;
    words.ahead.store(packets, Ordering::Relaxed);
    granted.from_ns = from_ns;
    words.last_ns.store(from_ns, Ordering::Relaxed);
    granted.until_ns = until_ns;
    words.until_ns.store(until_ns, Ordering::Relaxed);
    words.skipped_bytes.store(0, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use flowgauge_core::block::{ParsedColumns, ParsedRow};
    use flowgauge_core::packet::Frames;
    use flowgauge_engine::Arrivals;
    use flowgauge_engine::source::Thinned;

    use super::*;

    /// A meter that skips a hundred packets at a time; its push panics.
    #[derive(Default)]
    struct Defective(Arc<AtomicU64>);

    impl Meter for Defective {
        fn want(&mut self, _: &Arrivals) -> u64 {
            1
        }
        fn ahead(&self) -> Ahead {
            Ahead { packets: 100, from_ns: 5, until_ns: 1000 }
        }
        fn skip(&mut self, skipped: &Skipped) {
            assert!(skipped.packets <= 100 && (5..=1000).contains(&skipped.last_ns), "{skipped:?}");
            self.0.fetch_add(skipped.packets, Ordering::Relaxed);
        }
        fn push(&mut self, _: Frames<'_>) {
            panic!("out of order");
        }
        fn push_headers(&mut self, _: &[ParsedRow]) {}
        fn push_columns(&mut self, _: ParsedColumns<'_>) {}
        fn lose(&mut self, _: u64) {}
        fn thin(&mut self, _: Option<Thinned>) {}
        fn outage(&mut self, _: Option<&str>) {}
        fn note(&mut self, _: &str) {}
        fn advance(&mut self, _: i64) {}
        fn is_done(&self) -> bool {
            false
        }
        fn finish(self: Box<Self>) {
            panic!("not even that");
        }
    }

    /// All tests share one list of closed slots.
    static ALONE: Mutex<()> = Mutex::new(());

    fn code<T>(result: Result<T, Problem>) -> i32 {
        result.map_or_else(Problem::keep, |_| crate::FG_OK)
    }

    fn last() -> &'static CStr {
        // SAFETY: texts of a dead group stay for good.
        unsafe { CStr::from_ptr(error::last()) }
    }

    #[test]
    fn a_panic_ends_the_group_and_later_packets_are_counted() {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let health = Arc::new(Health::default());
        let open = || Slot::open(Box::<Defective>::default(), Arc::clone(&health), false, false);
        let (one, other) = (open(), open());
        assert_eq!(code(one.with(8, |_, meter| meter.advance(0))), crate::FG_OK);
        for (slot, packets) in [(one, 32), (one, 1), (other, 7)] {
            assert_eq!(
                code(slot.with(packets, |_, meter| meter.push(Frames::default()))),
                FG_EDEAD
            );
            assert!(last().to_string_lossy().contains("out of order"), "{:?}", last());
        }
        assert_eq!((one.dropped(), other.dropped()), (33, 7));
        for slot in [one, other] {
            assert_eq!(slot.words.samples.load(Ordering::Relaxed), 1, "none may be wanted now");
        }
        assert_eq!(code(one.end()), FG_EDEAD);
        Slot::close_all(&[one, other]);
        assert_eq!((code(one.end()), code(other.with(2, |_, _| ()))), (FG_ECLOSED, FG_ECLOSED));
        assert_eq!(other.dropped(), 9);
    }

    #[test]
    fn the_inline_test_skips_granted_packets_for_any_output() {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let skipped = Arc::<AtomicU64>::default();
        let defective = Defective(Arc::clone(&skipped));
        let slot = Slot::open(Box::new(defective), Arc::default(), true, false);
        let call = || code(slot.with(0, |_, meter| meter.advance(0)));
        let mut sum = 0;
        assert_eq!(call(), crate::FG_OK);
        for (ahead, last_ns, packets) in
            [(70, 6, 30), (0, 2000, 100), (u64::MAX, 0, 0), (100, i64::MIN, 0), (99, i64::MAX, 1)]
        {
            slot.words.ahead.store(ahead, Ordering::Relaxed);
            slot.words.last_ns.store(last_ns, Ordering::Relaxed);
            assert_eq!(call(), crate::FG_OK);
            sum += packets;
            assert_eq!(skipped.load(Ordering::Relaxed), sum);
        }
    }

    #[test]
    fn a_closed_slot_is_used_again_after_many_others() {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let open = || Slot::open(Box::<Defective>::default(), Arc::default(), false, false);
        let first = open();
        let close = |slot: &'static Slot| {
            Slot::close_all(&[slot]);
            slot.rest();
        };
        // As the inline test leaves them in a dead group.
        first.words.ahead.store(70, Ordering::Relaxed);
        first.words.skipped_bytes.store(4200, Ordering::Relaxed);
        first.words.until_ns.store(1000, Ordering::Relaxed);
        close(first);
        for _ in 0..RESTING {
            let slot = open();
            assert!(!std::ptr::eq(slot, first));
            close(slot);
        }
        assert_eq!(code(first.with(1, |_, _| ())), FG_ECLOSED);
        assert!((0..=RESTING).any(|_| std::ptr::eq(open(), first)));
        let Words { ahead, skipped_bytes, until_ns, .. } = &first.words;
        assert_eq!((ahead.load(Ordering::Relaxed), skipped_bytes.load(Ordering::Relaxed)), (0, 0));
        assert_eq!(until_ns.load(Ordering::Relaxed), i64::MIN, "nothing is skipped");
    }
}
