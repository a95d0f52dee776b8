//! What the processor and the operating system report: a clock, the state of standard output, and
//! the available memory; and the end of a process.

use std::fs;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

/// Ticks of the time-stamp counter, which runs at a constant rate; nanoseconds on processors
/// without one. Costs some 10 ns. It does not serialize: earlier instructions may finish after it.
#[inline(always)]
pub fn cycles() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: reading the counter has no preconditions on x86-64, which always has it.
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

static STDOUT_WAS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Runs before the start-up code of the standard library.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    // SAFETY: `F_GETFD` takes no argument and touches no memory.
    let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
    STDOUT_WAS_CLOSED.store(flags == -1, Ordering::Relaxed);
}

/// Whether standard output was closed when the process began, as by `>&-` in a shell.
///
/// The standard library opens `/dev/null` in its place before `main`, so reports would vanish
/// without an error.
pub fn stdout_was_closed() -> bool {
    STDOUT_WAS_CLOSED.load(Ordering::Relaxed)
}

/// Whether the machine has `bytes` of available memory.
///
/// The operating system refuses a mapping only if it is larger than all memory. A smaller mapping
/// that does not fit makes it kill this process or another one once the pages are touched.
pub fn is_available(bytes: usize) -> bool {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<usize>().ok());
    kilobytes.is_none_or(|kilobytes| bytes / 1024 < kilobytes)
}

/// Ends the process without running exit handlers.
///
/// Those of C libraries, such as OpenSSL's, free memory that threads which still run may use. Output
/// of this process is written first, as far as it can be.
pub fn exit_at_once(code: u8) -> ! {
    let _ = io::stdout().flush();
    // SAFETY: it takes a number and does not return.
    unsafe { libc::_exit(code.into()) }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use std::{env, process};

    use super::*;

    /// Set in the process that the test starts.
    const CHILD: &str = "FLOWGAUGE_EXITS";

    extern "C" fn abort() {
        process::abort();
    }

    #[test]
    fn exit_handlers_do_not_run() {
        if env::var_os(CHILD).is_some() {
            // SAFETY: the function has no preconditions.
            unsafe { libc::atexit(abort) };
            print!("written before the end");
            exit_at_once(3);
        }
        let mut child = process::Command::new(env::current_exe().unwrap());
        child.args(["--exact", "--nocapture", "system::tests::exit_handlers_do_not_run"]);
        let output = child.env(CHILD, "").output().unwrap();
        assert_eq!(output.status.code(), Some(3));
        assert!(String::from_utf8(output.stdout).unwrap().ends_with("written before the end"));
    }

    #[test]
    fn the_clock_runs() {
        let start = cycles();
        while cycles() == start {}
        assert!(cycles() > start);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_page_is_available_and_an_exabyte_is_not() {
        assert!(is_available(4096));
        assert!(!is_available(1 << 60));
    }
}
