//! An allocator that counts the allocations of each thread, for tests.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator with counters, for use as a test's `#[global_allocator]`.
#[derive(Debug)]
pub struct Counting;

thread_local! {
    // Constant initial values need no allocation and no drop, so an allocator may use them any
    // time.
    static HEAP: Cell<Heap> = const { Cell::new(Heap { allocations: 0, bytes: 0 }) };
    static PEAK: Cell<i64> = const { Cell::new(0) };
}

/// The memory that a thread has allocated so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heap {
    /// Number of allocations and reallocations.
    pub allocations: u64,
    /// Bytes held. A thread that frees another one's memory subtracts it from its own count.
    pub bytes: i64,
}

/// The memory that this thread has allocated so far.
pub fn heap() -> Heap {
    HEAP.get()
}

/// Runs `run`. Returns its result and the peak of the bytes that this thread held on top of those
/// before.
pub fn peak_of<T>(run: impl FnOnce() -> T) -> (T, u64) {
    let before = HEAP.get().bytes;
    PEAK.set(before);
    let result = run();
    (result, (PEAK.get() - before).unsigned_abs())
}

fn count(allocations: u64, bytes: i64) {
    let heap = HEAP.get();
    let (allocations, bytes) = (heap.allocations + allocations, heap.bytes + bytes);
    HEAP.set(Heap { allocations, bytes });
    PEAK.set(PEAK.get().max(bytes));
}

/// A layout has at most `isize::MAX` bytes.
fn signed(bytes: usize) -> i64 {
    bytes.cast_signed() as i64
}

// SAFETY: every call passes unchanged to the system's allocator, which keeps the contract; counting
// touches only thread-local numbers, and neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(1, signed(layout.size()));
        // SAFETY: the caller keeps the contract of `alloc`, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(1, signed(layout.size()));
        // SAFETY: the caller keeps the contract of `alloc_zeroed`, which is the same.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count(1, signed(bytes) - signed(layout.size()));
        // SAFETY: `memory` came from `System`, by one of the calls above; the caller keeps the rest
        // of the contract.
        unsafe { System.realloc(memory, layout, bytes) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(0, -signed(layout.size()));
        // SAFETY: `memory` came from `System`, by one of the calls above, with this layout.
        unsafe { System.dealloc(memory, layout) }
    }
}
