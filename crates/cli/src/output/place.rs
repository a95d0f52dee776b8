//! The files that outputs are: which is which, and how each is opened.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use flowgauge_kernel::stdout_was_closed;

use crate::failure::Failure;

/// Where an output goes.
pub(crate) enum Place {
    /// Standard output.
    Standard,
    /// A regular file that is there as a whole or not at all: written beside the path, and renamed at
    /// the end.
    Replaced(Replacement),
    /// A regular file to whose end reports are added.
    Added(PathBuf),
    /// A pipe or a device.
    Special(PathBuf),
}

/// A file that takes the place of another one when it is complete.
pub(crate) struct Replacement {
    path: PathBuf,
    beside: PathBuf,
}

impl Place {
    /// Where the output `path` of a run over `inputs` leads; `added` says what becomes of a regular
    /// file.
    pub(crate) fn new(
        path: Option<&Path>,
        inputs: &[PathBuf],
        added: bool,
    ) -> Result<Self, Failure> {
        let Some(path) = path.filter(|path| *path != Path::new("-")) else {
            if stdout_was_closed() {
                return Err(Failure::Failed("standard output is closed".to_owned()));
            }
            let standard = standard(io::stdout()).and_then(|file| file.metadata()).ok();
            return match standard.and_then(|metadata| among(&metadata, inputs)) {
                Some(input) => Err(Failure::Usage(format!(
                    "standard output is the input {}; write to another file",
                    input.display()
                ))),
                None => Ok(Self::Standard),
            };
        };
        let cannot = |reason: &dyn std::fmt::Display| {
            Failure::Failed(format!("cannot write {}: {reason}", path.display()))
        };
        // Of a link, where it leads: the link stays.
        let metadata = match fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => return Err(cannot(&"it is a directory")),
            Ok(metadata) => metadata,
            Err(_) if added => return Ok(Self::Added(path.to_owned())),
            Err(_) => return Ok(Self::Replaced(Replacement::new(path.to_owned()))),
        };
        refuse_input("output", path, inputs)?;
        if !metadata.is_file() {
            Ok(Self::Special(path.to_owned()))
        } else if added {
            Ok(Self::Added(path.to_owned()))
        } else {
            let path = fs::canonicalize(path).map_err(|error| cannot(&error))?;
            Ok(Self::Replaced(Replacement::new(path)))
        }
    }

    /// What to call it.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Standard => "standard output".to_owned(),
            Self::Replaced(Replacement { path, .. }) | Self::Added(path) | Self::Special(path) => {
                path.display().to_string()
            }
        }
    }

    /// Whether opening it may wait for a reader.
    pub(crate) fn waits(&self) -> bool {
        let pipe = |path| fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_fifo());
        matches!(self, Self::Special(path) if pipe(path))
    }

    /// Opens it to write.
    pub(crate) fn open(&self) -> io::Result<File> {
        match self {
            Self::Standard => standard(io::stdout()),
            Self::Replaced(replacement) => replacement.open(),
            Self::Added(path) => OpenOptions::new().append(true).create(true).open(path),
            Self::Special(path) => OpenOptions::new().write(true).open(path),
        }
    }
}

impl Replacement {
    /// A file beside `path`.
    pub(crate) fn new(path: PathBuf) -> Self {
        let mut name = std::ffi::OsString::from(".");
        name.push(path.file_name().unwrap_or_default());
        name.push(format!(".{}", std::process::id()));
        let beside = path.with_file_name(name);
        Self { path, beside }
    }

    /// Creates the file, with the permissions of the one in its place.
    pub(crate) fn open(&self) -> io::Result<File> {
        // A file that must not be written is not replaced either.
        let old = match OpenOptions::new().write(true).open(&self.path) {
            Ok(old) => Some(old.metadata()?.permissions()),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let file = File::create_new(&self.beside)?;
        if let Some(permissions) = old {
            file.set_permissions(permissions)?;
        }
        Ok(file)
    }

    /// Puts the file, which is complete and synced, in its place.
    pub(crate) fn complete(&self) -> io::Result<()> {
        fs::rename(&self.beside, &self.path)?;
        let folder = self.path.parent().filter(|folder| *folder != Path::new(""));
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        // It is there only where the run did not come to its end.
        let _ = fs::remove_file(&self.beside);
    }
}

/// A standard stream as a file of its own.
fn standard(stream: impl AsFd) -> io::Result<File> {
    Ok(stream.as_fd().try_clone_to_owned()?.into())
}

/// Refuses the output that `option` names if it is one of the inputs, by whatever name.
pub(crate) fn refuse_input(option: &str, path: &Path, inputs: &[PathBuf]) -> Result<(), Failure> {
    match fs::metadata(path).ok().and_then(|metadata| among(&metadata, inputs)) {
        Some(_) => Err(Failure::Usage(format!(
            "{option} '{}' is also an input; name another file",
            path.display()
        ))),
        None => Ok(()),
    }
}

/// The input that is this regular file, by whatever name.
fn among<'a>(output: &Metadata, inputs: &'a [PathBuf]) -> Option<&'a PathBuf> {
    let identity = |metadata: &Metadata| (metadata.dev(), metadata.ino());
    let is_output = |input: &&PathBuf| {
        let metadata = match input.as_path() {
            path if path == Path::new("-") => standard(io::stdin()).and_then(|f| f.metadata()),
            path => fs::metadata(path),
        };
        metadata.is_ok_and(|metadata| identity(&metadata) == identity(output))
    };
    output.is_file().then(|| inputs.iter().find(is_output)).flatten()
}
