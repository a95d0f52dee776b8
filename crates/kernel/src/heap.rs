//! The heap of a process that runs for years.

/// Takes `bytes` of memory for the heap at once and never returns them, so that resident memory
/// stays the same while queues fill and drain within them. All threads share this memory.
///
/// Call it before the process has threads. Only glibc has such a heap; elsewhere it has no effect.
pub fn reserve_heap(bytes: usize) {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        const BLOCK: usize = 1 << 20;
        for (option, value) in [
            // Each thread would have a heap of its own, whose free memory serves no other thread.
            (libc::M_ARENA_MAX, 1),
            // Larger blocks are mapped, and unmapped when they are freed.
            (libc::M_MMAP_THRESHOLD, 4 << 20),
            (libc::M_TRIM_THRESHOLD, libc::c_int::MAX),
        ] {
            // SAFETY: `mallopt` takes two numbers, and refuses those that it does not know.
            unsafe { libc::mallopt(option, value) };
        }
        // Writing faults the pages in.
        let blocks: Vec<_> = (0..bytes.div_ceil(BLOCK)).map(|_| vec![1u8; BLOCK]).collect();
        drop(std::hint::black_box(blocks));
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    let _ = bytes;
}
