//! The places of outputs: what kind of file each is, and how it is opened.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use flowgauge_engine::sink::SinkError;
use flowgauge_kernel::stdout_was_closed;

use crate::failure::Failure;

/// The place of an output.
pub(crate) enum Place {
    /// Standard output.
    Standard,
    /// A regular file that appears complete or not at all: it is written beside the path and
    /// renamed at the end.
    Replaced(Replacement),
    /// A regular file to which reports are appended.
    Added(PathBuf),
    /// A pipe or a device.
    Special(PathBuf),
}

/// A file that replaces another one when it is complete.
pub(crate) struct Replacement {
    path: PathBuf,
    /// The file beside `path`, from its creation until it is complete.
    beside: Option<PathBuf>,
    /// Whether only its owner may read it.
    private: bool,
}

impl Place {
    /// The place of the output `path` of a run over `inputs`. With `added`, a regular file is
    /// appended to, otherwise replaced.
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
        // Follow links, so that a link is kept.
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

    /// Lets only the owner read a regular file that is replaced, from its creation on.
    pub(crate) fn private(mut self) -> Self {
        if let Self::Replaced(replacement) = &mut self {
            replacement.private = true;
        }
        self
    }

    /// Its name in messages.
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
    pub(crate) fn open(&mut self) -> io::Result<File> {
        match self {
            Self::Standard => standard(io::stdout()),
            Self::Replaced(replacement) => replacement.open(),
            Self::Added(path) => OpenOptions::new().append(true).create(true).open(path),
            Self::Special(path) => OpenOptions::new().write(true).open(path),
        }
    }

    /// Puts a file that is replaced in place, once its data are on storage. `file` is complete.
    pub(crate) fn complete(&mut self, file: &File) -> io::Result<()> {
        match self {
            Self::Replaced(replacement) => replacement.complete(file),
            Self::Standard | Self::Added(_) | Self::Special(_) => Ok(()),
        }
    }
}

impl Replacement {
    fn new(path: PathBuf) -> Self {
        Self { path, beside: None, private: false }
    }

    /// Creates the file, with the permissions of the one in its place unless it is private.
    fn open(&mut self) -> io::Result<File> {
        // Do not replace a file that may not be written.
        let old = match OpenOptions::new().write(true).open(&self.path) {
            Ok(old) => Some(old.metadata()?.permissions()),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let old = old.filter(|_| !self.private);
        let mode = if self.private || old.is_some() { 0o600 } else { 0o666 };
        let (file, beside) = create_beside(&self.path, mode)?;
        self.beside = Some(beside);
        if let Some(permissions) = old {
            file.set_permissions(permissions)?;
        }
        Ok(file)
    }

    /// Syncs the file and renames it to its path.
    fn complete(&mut self, file: &File) -> io::Result<()> {
        let Some(beside) = &self.beside else { return Ok(()) };
        file.sync_all()?;
        fs::rename(beside, &self.path)?;
        // Another process may use its name from now on.
        self.beside = None;
        let folder = self.path.parent().filter(|folder| *folder != Path::new(""));
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        if let Some(beside) = &self.beside {
            let _ = fs::remove_file(beside);
        }
    }
}

/// Creates a hidden file beside `path`; returns its path, too. A killed process may have left one,
/// and a process in another container may have the same number.
fn create_beside(path: &Path, mode: u32) -> io::Result<(File, PathBuf)> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(mode);
    let mut number = 0_u32;
    loop {
        let mut name = std::ffi::OsString::from(".");
        name.push(path.file_name().unwrap_or_default());
        name.push(format!(".{}-{number}", std::process::id()));
        let beside = path.with_file_name(name);
        match options.open(&beside) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => number += 1,
            opened => return Ok((opened?, beside)),
        }
    }
}

/// A duplicate of a standard stream as a file.
fn standard(stream: impl AsFd) -> io::Result<File> {
    Ok(stream.as_fd().try_clone_to_owned()?.into())
}

/// Refuses the output that `option` names if it is one of the inputs, also under another name.
pub(crate) fn refuse_input(option: &str, path: &Path, inputs: &[PathBuf]) -> Result<(), Failure> {
    match fs::metadata(path).ok().and_then(|metadata| among(&metadata, inputs)) {
        Some(_) => Err(Failure::Usage(format!(
            "{option} '{}' is also an input; name another file",
            path.display()
        ))),
        None => Ok(()),
    }
}

/// The input that is this regular file, also under another name.
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

/// The places of tables.
pub(crate) enum To {
    /// To files in this folder, named after the tables.
    Folder(PathBuf),
    /// The table with this name to a place; other tables are left out.
    One(String, Option<PathBuf>),
}

impl To {
    /// The places of tables for the output `path` and these tasks; `None` for the default tasks.
    pub(crate) fn new(
        path: Option<&Path>,
        tasks: Option<&[String]>,
        inputs: &[PathBuf],
    ) -> Result<Self, Failure> {
        if let Some(path) = path {
            refuse_input("output", path, inputs)?;
        }
        let one = match tasks {
            Some([task]) => Some(task.clone()),
            Some(_) | None => None,
        };
        let is_folder =
            |path: &Path| path.is_dir() || path.as_os_str().as_encoded_bytes().ends_with(b"/");
        match (path.filter(|path| *path != Path::new("-")), one) {
            (Some(path), _) if is_folder(path) => Ok(Self::Folder(path.to_owned())),
            (path, Some(task)) => Ok(Self::One(task, path.map(Path::to_owned))),
            (Some(path), None) if !path.exists() && path.extension().is_none() => {
                Ok(Self::Folder(path.to_owned()))
            }
            _ => Err(Failure::Usage(
                "csv and parquet write a file for each task; name a directory with -o DIR/, or \
                 one task with --task"
                    .to_owned(),
            )),
        }
    }

    /// The path of a table, if it is written. The path of standard output is empty.
    pub(super) fn path(&self, measurement: &str, table: &str, extension: &str) -> Option<PathBuf> {
        match self {
            Self::Folder(folder) if measurement == "main" => {
                Some(folder.join(format!("{table}.{extension}")))
            }
            Self::Folder(folder) => Some(folder.join(format!("{measurement}.{table}.{extension}"))),
            Self::One(name, path) => (name == table).then(|| path.clone().unwrap_or_default()),
        }
    }
}

/// Creates a folder unless it exists. Fails if no file can be created in it.
pub(super) fn make(folder: &Path) -> Result<(), Failure> {
    let made = fs::create_dir_all(folder);
    let probed = made.and_then(|()| create_beside(&folder.join("flowgauge"), 0o600));
    probed
        .and_then(|(_, probe)| fs::remove_file(probe))
        .map_err(|error| Failure::Failed(format!("cannot write {}: {error}", folder.display())))
}

pub(super) fn sink_error(path: &Path, error: io::Error) -> SinkError {
    let name = if path == Path::new("") { Path::new("standard output") } else { path };
    SinkError::new(&name.to_string_lossy(), error)
}
