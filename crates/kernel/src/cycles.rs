//! The processor's clock.

/// Ticks of the time-stamp counter, which runs at one rate whatever the processor does; nanoseconds
/// where there is none. Costs some 10 ns, and waits for nothing: work of before may end after it.
#[inline(always)]
pub fn cycles() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: reading the counter has no preconditions on x86-64, where it is always there.
        unsafe { std::arch::x86_64::_rdtsc() }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        use std::sync::OnceLock;
        use std::time::Instant;
        static START: OnceLock<Instant> = OnceLock::new();
        START.get_or_init(Instant::now).elapsed().as_nanos() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_runs() {
        let start = cycles();
        while cycles() == start {}
        assert!(cycles() > start);
    }
}
