//! Stored epochs: written by `--save`, asked by `flowgauge query`, added up by `flowgauge merge`.

use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use flowgauge_engine::seed;
use flowgauge_engine::sink::{Item, Sink, SinkError, Takes, Text};
use flowgauge_engine::snapshot::Snapshot;
use flowgauge_engine::{Config, EpochLength, Pace};

use crate::args::{Merging, Query, SnapshotReading};
use crate::failure::{Failure, complain};
use crate::output::{self, Flags, Replacement};

/// Writes the snapshot of each closed epoch to a file.
pub(crate) struct Save {
    path: PathBuf,
    /// Whether each epoch gets a file of its own in the directory `path`.
    directory: bool,
}

impl Save {
    /// Stores the epochs of these measurements below a directory, which is created where there is none,
    /// or the only one in a file.
    pub(crate) fn new(path: &Path, configs: &[Config]) -> Result<Self, Failure> {
        let single = matches!(configs, [only] if only.epoch == EpochLength::Whole);
        let directory = path.is_dir() || !single;
        if directory && path.exists() && !path.is_dir() {
            return Err(Failure::Usage(format!(
                "cannot store snapshots in {}: several epochs need a directory, and this is a \
                 file; name a directory",
                path.display()
            )));
        }
        let folder = path.parent().filter(|folder| *folder != Path::new(""));
        if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
            return Err(Failure::Usage(format!(
                "cannot store snapshots in {}: no directory {}; create it",
                path.display(),
                folder.display()
            )));
        }
        if directory && !path.is_dir() {
            fs::create_dir(path)
                .map_err(|error| Failure::output(&path.display().to_string(), &error))?;
        }
        Ok(Self { path: path.to_owned(), directory })
    }
}

impl Sink for Save {
    fn takes(&self) -> Takes {
        Takes::Snapshots
    }

    fn deliver(&mut self, item: &Item) -> Result<(), SinkError> {
        let Item::Snapshot(saved) = item else { return Ok(()) };
        let path = if self.directory {
            self.path.join(format!("{}-{:010}.fgs", saved.measurement, saved.epoch))
        } else {
            self.path.clone()
        };
        replace(&path, &saved.bytes)
            .map_err(|error| SinkError::new(&path.display().to_string(), error))
    }
}

/// Writes a file that takes its place when it is complete. Only its owner may read it, since a snapshot
/// may hold the seed.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let replacement = Replacement::new(path.to_owned());
    let mut file = replacement.open()?;
    file.set_permissions(Permissions::from_mode(0o600))?;
    file.write_all(bytes)?;
    file.sync_all()?;
    replacement.complete()
}

/// Runs `flowgauge query`.
pub(crate) fn query(query: &Query) -> Result<(), Failure> {
    flowgauge_options::check_flows(query.task.as_deref(), &query.flow).map_err(Failure::Usage)?;
    let snapshots = read(&query.snapshots, &query.reading)?;
    let inputs = inputs(&query.snapshots, &query.reading);
    let mut asked: Vec<(Vec<PathBuf>, Snapshot)> = Vec::new();
    if snapshots.iter().all(|(_, snapshot)| snapshot.adds_up()) {
        asked.extend(sum(snapshots, &query.reading)?.map(|sum| (query.snapshots.clone(), sum)));
    } else {
        asked.extend(snapshots.into_iter().map(|(path, snapshot)| (vec![path], snapshot)));
    }
    let place = (query.output.format.unwrap_or_default(), query.output.path.as_deref());
    let text = Text { rows: query.top, look: query.output.look(place.1) };
    let sink = output::reports(
        place,
        (text, query.task.as_deref()),
        &inputs,
        Pace::Replay,
        Flags::default(),
    )?;
    let mut outlets = output::outlets(Pace::Replay, vec![sink])?;
    for (paths, snapshot) in &mut asked {
        let key = query.key.unwrap_or(snapshot.config().key);
        let flows = query.flow.iter().map(|flow| key.parse_flow(flow)).collect::<Result<_, _>>();
        let flows = flows.map_err(|error| Failure::Usage(error.to_string()))?;
        let ask = |config: &mut Config| {
            config.tasks.clone_from(&query.task);
            config.top = query.top;
            config.key = key;
            config.flows = flows;
        };
        let mut total = snapshot.query(ask, &mut outlets)?;
        total.files = paths.iter().map(|path| path.display().to_string()).collect();
        outlets.deliver(&Item::Total(total.into())).map_err(flowgauge_engine::EngineError::from)?;
    }
    output::end(outlets)
}

/// Runs `flowgauge merge`.
pub(crate) fn merge(merging: &Merging) -> Result<(), Failure> {
    output::refuse_input("-o", &merging.output, &inputs(&merging.snapshots, &merging.reading))?;
    let snapshots = read(&merging.snapshots, &merging.reading)?;
    let Some(sum) = sum(snapshots, &merging.reading)? else { return Ok(()) };
    let path = &merging.output;
    replace(path, &sum.encode())
        .map_err(|error| Failure::Failed(format!("cannot write {}: {error}", path.display())))
}

/// Adds snapshots up; `None` without any.
fn sum(
    snapshots: Vec<(PathBuf, Snapshot)>,
    reading: &SnapshotReading,
) -> Result<Option<Snapshot>, Failure> {
    let mut snapshots = snapshots.into_iter();
    let Some((_, mut sum)) = snapshots.next() else { return Ok(None) };
    for (path, other) in snapshots {
        let merged = sum.merge(&other);
        merged.map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))?;
    }
    sum.check_aligned(reading.align).map_err(|error| Failure::Usage(error.to_string()))?;
    Ok(Some(sum))
}

/// The files that are read.
fn inputs(snapshots: &[PathBuf], reading: &SnapshotReading) -> Vec<PathBuf> {
    snapshots.iter().chain(&reading.seed_file).cloned().collect()
}

/// Reads snapshots.
fn read(paths: &[PathBuf], reading: &SnapshotReading) -> Result<Vec<(PathBuf, Snapshot)>, Failure> {
    let file = reading.seed_file.as_deref().map(seed::from_file).transpose();
    let file = file.map_err(|error| Failure::Usage(error.to_string()))?;
    let mut snapshots = Vec::new();
    for path in paths {
        let failed = |problem: String| Failure::Failed(format!("{}: {problem}", path.display()));
        let bytes = fs::read(path).map_err(|error| failed(format!("cannot be read: {error}")))?;
        let snapshot = Snapshot::decode(&bytes, reading.memory, file.as_ref());
        let snapshot = snapshot.map_err(|error| {
            let damaged = error.is_damage().then(|| format!("{}: {error}", path.display()));
            damaged.map_or_else(|| failed(error.to_string()), Failure::Damaged)
        })?;
        snapshots.push((path.clone(), snapshot));
    }
    Ok(snapshots)
}

/// Tells that what is stored holds the seed.
pub(crate) fn warn(configs: &[Config]) {
    if configs.iter().any(|config| config.seed.is_none()) {
        complain(
            "the snapshots contain the random seed of this run: keep them secret, and use \
             --seed-file to merge snapshots of several runs",
        );
    }
}
