//! Reading what may keep a reader waiting, such as a pipe, until it is told to stop.

use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// How soon a flag is seen that no signal to this thread announces.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// A file that ends when a flag is set, even while there is nothing to read.
pub(crate) struct Waiting {
    pub(crate) file: File,
    pub(crate) stop: Arc<AtomicBool>,
}

impl Read for Waiting {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while !self.stop.load(Ordering::Relaxed) {
            let mut file = [PollFd::new(&self.file, PollFlags::IN)];
            match poll(&mut file, Some(&LOOK)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return self.file.read(buffer),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(0)
    }
}
