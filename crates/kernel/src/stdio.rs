//! Whether standard output was closed when the process began.
//!
//! The standard library opens `/dev/null` in its place before `main`, so that reports would vanish
//! without an error.

use std::sync::atomic::{AtomicBool, Ordering};

static CLOSED: AtomicBool = AtomicBool::new(false);

/// Runs before the standard library's own start.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    // SAFETY: `F_GETFD` takes no argument and touches no memory.
    let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
    CLOSED.store(flags == -1, Ordering::Relaxed);
}

/// Whether standard output was closed when the process began, as by `>&-` in a shell.
pub fn stdout_was_closed() -> bool {
    CLOSED.load(Ordering::Relaxed)
}
