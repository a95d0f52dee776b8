//! Which stored epochs a query is about: files, and those in folders.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use flowgauge_engine::snapshot::Snapshot;

use crate::args::Selection;
use crate::failure::Failure;

/// The end of the name of a snapshot.
const EXTENSION: &str = "fgs";

/// The seed that an agent keeps in its folder.
const SEED: &str = "seed";

/// The files that these paths name, and the snapshots in folders, without those that their names rule out:
/// in the journal of an agent, names tell the measurement and the start.
pub(crate) fn files(paths: &[PathBuf], selection: &Selection) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let mut found = Vec::new();
        collect(path, &mut found).map_err(|error| {
            Failure::Failed(format!("cannot read the folder {}: {error}", path.display()))
        })?;
        if found.is_empty() {
            return Err(Failure::Failed(format!("{} has no snapshot (*.fgs)", path.display())));
        }
        found.sort();
        files.extend(found.into_iter().map(|(_, file)| file).filter(|file| selection.may_be(file)));
    }
    Ok(files)
}

/// The seed file in one of the folders, if there is one.
pub(crate) fn seed_file(paths: &[PathBuf]) -> Option<PathBuf> {
    paths.iter().map(|path| path.join(SEED)).find(|seed| seed.is_file())
}

/// Adds the snapshots below a folder, each with the start that its name tells.
fn collect(folder: &Path, found: &mut Vec<(Option<i64>, PathBuf)>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let (entry, path) = entry.map(|entry| (entry.file_type(), entry.path()))?;
        if entry?.is_dir() {
            collect(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == EXTENSION) {
            found.push((start_ns(&path), path));
        }
    }
    Ok(())
}

/// The start of the epoch of a file named `START-LENGTH-RUN-EPOCH.fgs`, with a run of 16 digits.
fn start_ns(file: &Path) -> Option<i64> {
    let parts: Vec<_> = file.file_stem()?.to_str()?.rsplitn(4, '-').collect();
    let [_, run, _, start] = <[&str; 4]>::try_from(parts).ok()?;
    start.parse().ok().filter(|_| run.len() == 16)
}

impl Selection {
    /// Whether the name of a file leaves open that it is selected.
    fn may_be(&self, file: &Path) -> bool {
        let Some(start_ns) = start_ns(file) else { return true };
        let measurement = file.parent().and_then(Path::parent).and_then(Path::file_name);
        let is_named = |name: &String| measurement.is_none_or(|folder| *folder == **name);
        self.measurement.as_ref().is_none_or(is_named) && self.is_at(start_ns)
    }

    /// Whether epochs that begin at this time are selected.
    fn is_at(&self, start_ns: i64) -> bool {
        self.from.is_none_or(|from| start_ns >= from) && self.to.is_none_or(|to| start_ns < to)
    }

    /// Whether a snapshot is selected.
    pub(crate) fn has(&self, snapshot: &Snapshot) -> bool {
        self.measurement.as_ref().is_none_or(|name| snapshot.config().name == *name)
            && start(snapshot).is_none_or(|start_ns| self.is_at(start_ns))
    }

    /// The step that a snapshot belongs to, by number.
    pub(crate) fn step_of(&self, snapshot: &Snapshot) -> Option<i64> {
        let step_ns = i64::try_from(self.step?).ok()?;
        Some(start(snapshot)?.div_euclid(step_ns))
    }
}

/// When the first epoch of a snapshot began, if it has a packet.
fn start(snapshot: &Snapshot) -> Option<i64> {
    let bounds = snapshot.coverage().iter().map(|one| one.bounds_ns);
    bounds.filter(|bounds_ns| *bounds_ns != (0, 0)).map(|(start_ns, _)| start_ns).min()
}
