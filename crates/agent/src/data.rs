//! The folder of an agent or a collector, and files with secrets.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::Failure;

/// Bytes of a seed that the agent generates.
const SEED_BYTES: usize = 64;

/// The data folder, locked for this process.
pub(crate) struct Data {
    pub(crate) folder: PathBuf,
    /// Holds the lock while open.
    _lock: File,
}

impl Data {
    /// Locks the folder, creating it if needed.
    pub(crate) fn open(folder: &Path) -> Result<Self, Failure> {
        let folder = folder.to_owned();
        let name = folder.display().to_string();
        let failed =
            |error: &dyn std::fmt::Display| Failure::Output(format!("cannot use {name}: {error}"));
        fs::create_dir_all(&folder).map_err(|error| failed(&error))?;
        let mut private = OpenOptions::new();
        private.write(true).create(true).truncate(false).mode(0o600);
        let lock = private.open(folder.join("lock")).map_err(|error| failed(&error))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { folder, _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(failed(&"another process uses it")),
            Err(TryLockError::Error(error)) => Err(failed(&error)),
        }
    }

    /// The file with the seed of all epochs, created if needed. Epochs of several runs merge
    /// because they share it.
    pub(crate) fn seed(&self) -> Result<PathBuf, Failure> {
        let path = self.folder.join("seed");
        let draw = || {
            let mut secret = [0; SEED_BYTES];
            File::open("/dev/urandom")?.read_exact(&mut secret)?;
            let beside = self.folder.join("seed.part");
            let mut file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&beside)?;
            file.write_all(&secret)?;
            file.sync_all()?;
            fs::rename(&beside, &path)
        };
        if !path.exists() {
            draw().map_err(|error| {
                Failure::Output(format!("cannot write the seed {}: {error}", path.display()))
            })?;
        }
        Ok(path)
    }
}

/// The secret in a file that only its owner may read, trimmed.
pub(crate) fn read_secret(path: &Path) -> Result<String, String> {
    let name = path.display();
    let metadata = fs::metadata(path).map_err(|error| format!("cannot read {name}: {error}"))?;
    if metadata.mode() & 0o077 != 0 {
        return Err(format!("{name} is accessible to other users; run 'chmod 600 {name}'"));
    }
    let text = fs::read_to_string(path).map_err(|error| format!("cannot read {name}: {error}"))?;
    Ok(text.trim().to_owned())
}
