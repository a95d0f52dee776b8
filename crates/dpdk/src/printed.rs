//! Captures what DPDK prints on standard output and error while it starts.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Runs `work`, and captures everything that the process prints until it returns.
///
/// # Errors
/// When the system gives no place for it; the work is not done then.
pub(crate) fn during<T>(work: impl FnOnce() -> T) -> io::Result<(T, String)> {
    let mut place = place()?;
    io::stdout().flush()?;
    let redirected = [Redirected::new(1, &place)?, Redirected::new(2, &place)?];
    let done = work();
    // SAFETY: all streams of C are written out, and none is passed.
    unsafe { libc::fflush(std::ptr::null_mut()) };
    drop(redirected);
    let mut printed = Vec::new();
    place.rewind()?;
    place.read_to_end(&mut printed)?;
    Ok((done, String::from_utf8_lossy(&printed).into_owned()))
}

/// A file in memory.
fn place() -> io::Result<File> {
    // SAFETY: the name is a text that ends with zero.
    let file = unsafe { libc::memfd_create(c"printed".as_ptr(), libc::MFD_CLOEXEC) };
    if file < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it was opened just now, and nothing else has it.
    Ok(unsafe { File::from_raw_fd(file) })
}

/// A descriptor that leads elsewhere until this is dropped.
struct Redirected {
    number: i32,
    before: OwnedFd,
}

impl Redirected {
    fn new(number: i32, place: &File) -> io::Result<Self> {
        // SAFETY: descriptors are numbers; a wrong one is an error.
        let before = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 0) };
        if before < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: it was made just now, and nothing else has it.
        let before = unsafe { OwnedFd::from_raw_fd(before) };
        // SAFETY: as above.
        if unsafe { libc::dup2(place.as_raw_fd(), number) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { number, before })
    }
}

impl Drop for Redirected {
    fn drop(&mut self) {
        // SAFETY: both descriptors are open.
        unsafe { libc::dup2(self.before.as_raw_fd(), self.number) };
    }
}
