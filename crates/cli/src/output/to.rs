//! Where tables go: each to a file of its own, or one alone.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use flowgauge_engine::sink::SinkError;

use super::place::refuse_input;
use crate::failure::Failure;

/// Where tables go.
pub(crate) enum To {
    /// To files in this folder, by their names.
    Folder(PathBuf),
    /// The table of this name to a place; others are left out.
    One(String, Option<PathBuf>),
}

impl To {
    /// Where the output `path` leads if these tasks are asked; `None` stands for default ones.
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

    /// The path of a table, where it is written; that of standard output is empty.
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

/// Makes a folder, unless it is there; fails where no file can be made in it.
pub(super) fn make(folder: &Path) -> Result<(), Failure> {
    let probe = folder.join(format!(".flowgauge.{}", std::process::id()));
    let made = fs::create_dir_all(folder).and_then(|()| File::create_new(&probe));
    made.and_then(|_| fs::remove_file(probe))
        .map_err(|error| Failure::Failed(format!("cannot write {}: {error}", folder.display())))
}

pub(super) fn sink_error(path: &Path, error: io::Error) -> SinkError {
    let name = if path == Path::new("") { Path::new("standard output") } else { path };
    SinkError::new(&name.to_string_lossy(), error)
}
