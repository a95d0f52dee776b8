//! A core for each worker.

use crate::error::EngineError;

#[cfg(target_os = "linux")]
mod linux {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    use super::{EngineError, refused};

    /// The cores that this process may use, in their order, of which each worker gets one.
    #[derive(Clone, Debug)]
    pub struct Cores {
        allowed: CpuSet,
        numbers: Vec<usize>,
    }

    /// The calling thread stays on its core until this is dropped.
    #[derive(Debug)]
    pub struct Pinned {
        before: CpuSet,
    }

    impl Cores {
        /// Cores for so many workers.
        ///
        /// # Errors
        /// When there are not as many.
        pub fn new(workers: usize) -> Result<Self, EngineError> {
            let allowed = sched_getaffinity(None).map_err(thread)?;
            let numbers: Vec<_> =
                (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect();
            if numbers.len() < workers {
                return Err(refused(numbers.len(), workers));
            }
            Ok(Self { allowed, numbers })
        }

        /// Keeps the calling thread on the core of this worker, counted from 0.
        ///
        /// # Errors
        /// When the operating system refuses, or there is no such worker.
        pub fn pin(&self, worker: usize) -> Result<Pinned, EngineError> {
            let mut core = CpuSet::new();
            let number = self.numbers.get(worker);
            core.set(*number.ok_or_else(|| refused(self.numbers.len(), worker + 1))?);
            sched_setaffinity(None, &core).map_err(thread)?;
            Ok(Pinned { before: self.allowed })
        }
    }

    impl Drop for Pinned {
        fn drop(&mut self) {
            // A thread that cannot leave its core stays there.
            let _ = sched_setaffinity(None, &self.before);
        }
    }

    fn thread(error: rustix::io::Errno) -> EngineError {
        EngineError::Thread(error.into())
    }
}

#[cfg(not(target_os = "linux"))]
mod linux {
    use super::{EngineError, refused};

    /// No cores: workers are pinned on Linux only.
    #[derive(Clone, Debug)]
    pub enum Cores {}

    impl Cores {
        /// Refuses.
        ///
        /// # Errors
        /// Always.
        pub fn new(workers: usize) -> Result<Self, EngineError> {
            Err(refused(0, workers))
        }

        /// Never called.
        ///
        /// # Errors
        /// Never.
        pub fn pin(&self, _: usize) -> Result<(), EngineError> {
            match *self {}
        }
    }
}

pub use linux::Cores;

fn refused(cores: usize, workers: usize) -> EngineError {
    EngineError::Workers(format!(
        "--pin needs a core for each of {workers} workers, but only {cores} are available; lower \
         --workers"
    ))
}
