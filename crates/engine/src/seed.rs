//! The seed of a run: random, or from a file.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use flowgauge_kernel::{LEAST_SEED_BYTES, Seed};
use rustix::rand::{GetRandomFlags, getrandom};

/// Largest size of a seed file in bytes. A larger file was named by mistake.
const MOST_BYTES: u64 = 1 << 20;

/// Why a seed file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SeedError {
    /// It cannot be read.
    #[error("cannot read the seed file '{}': {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        error: io::Error,
    },
    /// Others than its owner may open it.
    #[error(
        "the seed file '{}' is accessible to other users (mode {mode:04o}); run 'chmod 600 {}'",
        path.display(),
        path.display()
    )]
    Open {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// It has too few or too many bytes.
    #[error(
        "the seed file '{}' has {bytes} bytes; use a file of {LEAST_SEED_BYTES} to {MOST_BYTES} \
         bytes",
        path.display()
    )]
    Size {
        /// The file.
        path: PathBuf,
        /// Its bytes, or one more than the limit.
        bytes: usize,
    },
}

/// A seed of 256 random bits.
///
/// # Errors
/// When the operating system provides none.
pub fn random() -> io::Result<Seed> {
    let mut bits = [0; 32];
    let mut filled = 0;
    while filled < bits.len() {
        filled += getrandom(&mut bits[filled..], GetRandomFlags::empty())?;
    }
    Ok(Seed::random(bits))
}

/// The seed made of all bytes of a file that only its owner may read. Its random draws differ in each
/// process, so that the samples of hosts and of runs are independent, as merging them assumes.
///
/// ```
/// use std::fs::{self, OpenOptions};
/// use std::os::unix::fs::OpenOptionsExt;
///
/// use flowgauge_engine::seed;
///
/// let path = std::env::temp_dir().join(format!("flowgauge-seed-{}", std::process::id()));
/// let mut file = OpenOptions::new().write(true).create(true).mode(0o600).open(&path)?;
/// std::io::Write::write_all(&mut file, &[7; 32])?;
/// let seed = seed::from_file(&path)?;
/// fs::remove_file(&path)?;
/// assert_eq!(seed.id().kind(), "file");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// When the file cannot be read, is open to others, or has too few or too many bytes.
pub fn from_file(path: &Path) -> Result<Seed, SeedError> {
    let unreadable = |error| SeedError::Unreadable { path: path.to_owned(), error };
    let file = File::open(path).map_err(unreadable)?;
    let mode = file.metadata().map_err(unreadable)?.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(SeedError::Open { path: path.to_owned(), mode });
    }
    let mut bytes = Vec::new();
    file.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    let few = || SeedError::Size { path: path.to_owned(), bytes: bytes.len() };
    if bytes.len() as u64 > MOST_BYTES {
        return Err(few());
    }
    let draws = random().map_err(unreadable)?.draws();
    Ok(Seed::file(&bytes).ok_or_else(few)?.drawing(draws))
}
