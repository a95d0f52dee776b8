//! An allocator that counts what each thread asks of it, for tests that prove how often memory is
//! allocated.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, counted: to be a test's `#[global_allocator]`.
#[derive(Debug)]
pub struct Counting;

thread_local! {
    // Neither allocates when it is first used nor has anything to drop, so that an allocator may
    // use it at any time.
    static HEAP: Cell<Heap> = const { Cell::new(Heap { allocations: 0, bytes: 0 }) };
    static PEAK: Cell<i64> = const { Cell::new(0) };
}

/// What a thread has asked for so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heap {
    /// How often it has allocated or grown memory.
    pub allocations: u64,
    /// Bytes that it holds; what another thread frees counts there.
    pub bytes: i64,
}

/// What this thread has asked for so far.
pub fn heap() -> Heap {
    HEAP.get()
}

/// What `run` gives, and the most bytes that this thread held in it beyond those before.
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

/// Layouts have at most `isize::MAX` bytes.
fn signed(bytes: usize) -> i64 {
    bytes.cast_signed() as i64
}

// SAFETY: every call is handed on unchanged to the system's allocator, which keeps the contract;
// counting touches a number of the thread only, and neither allocates nor unwinds.
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
        // SAFETY: `memory` came from `System`, by one of the calls above; the rest the caller
        // keeps.
        unsafe { System.realloc(memory, layout, bytes) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(0, -signed(layout.size()));
        // SAFETY: `memory` came from `System`, by one of the calls above, with this layout.
        unsafe { System.dealloc(memory, layout) }
    }
}
