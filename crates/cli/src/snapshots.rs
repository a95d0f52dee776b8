//! Stored epochs: written by `--save`, queried by `flowgauge query`, merged by `flowgauge merge`.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use flowgauge_core::unknown::suggestion;
use flowgauge_engine::sink::{Item, Outlets, Sink, SinkError, Takes, Text};
use flowgauge_engine::snapshot::{Saved, Snapshot, SnapshotError};
use flowgauge_engine::{Config, EngineError, EpochLength, Pace, seed};
use flowgauge_kernel::Seed;

use crate::args::{Merging, Query, Selection, SnapshotReading};
use crate::failure::{Failure, complain};
use crate::output::{self, Flags, Place};
use crate::values::BINARY;

/// Writes the snapshot of each closed epoch to a file.
pub(crate) struct Save {
    path: PathBuf,
    /// Whether each epoch gets its own file in the directory `path`.
    directory: bool,
}

impl Save {
    /// Stores the epochs of these measurements in a directory, which is created if missing, or a
    /// single epoch in a file.
    pub(crate) fn new(path: &Path, configs: &[Config]) -> Result<Self, Failure> {
        check_named(path)?;
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
        let path = if self.directory { self.path.join(name(saved)) } else { self.path.clone() };
        store(&path, &saved.bytes)
            .map_err(|error| SinkError::new(&path.display().to_string(), error))
    }
}

/// The name of a stored epoch in a directory. It sorts by measurement and time, and no other run
/// uses it, also one that restarts within the epoch. After the measurement it is like the names in
/// a journal, but for zeros before the start.
fn name(saved: &Saved) -> String {
    let Saved { measurement, run, epoch, bounds_ns: (start_ns, end_ns), .. } = saved;
    let length_ns = end_ns.abs_diff(*start_ns);
    format!("{measurement}-{start_ns:0START_WIDTH$}-{length_ns}-{run:016x}-{epoch}.fgs")
}

/// Refuses standard output as the place of a snapshot.
fn check_named(path: &Path) -> Result<(), Failure> {
    if path == Path::new("-") {
        return Err(Failure::Usage(BINARY.to_owned()));
    }
    Ok(())
}

/// Writes a snapshot. Only the owner of a regular file may read it, since a snapshot may contain
/// the seed.
fn store(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let place = Place::new(Some(path), &[], false);
    let mut place = place.map_err(|failure| io::Error::other(failure.message()))?.private();
    let mut file = place.open()?;
    file.write_all(bytes)?;
    place.complete(&file)
}

/// Runs `flowgauge query`.
pub(crate) fn query(query: &Query) -> Result<(), Failure> {
    flowgauge_options::check_flows(query.task.as_deref(), &query.flow).map_err(Failure::Usage)?;
    let mut files = stored_files(&query.snapshots, &query.selection)?;
    let place = (query.output.format.unwrap_or_default(), query.output.path.as_deref());
    let text = Text { rows: query.top, look: query.output.look(place.1) };
    let mut inputs = inputs(&files, &query.reading);
    let found = seed_file(&query.snapshots);
    let seed_file = query.reading.seed_file.clone().or(found);
    inputs.extend(seed_file.clone());
    let tasks = query.task.as_deref();
    let sink = output::reports(place, (text, tasks), &inputs, Pace::Replay, Flags::default())?;
    let mut outlets = output::outlets(Pace::Replay, vec![sink])?;
    let seed = read_seed(seed_file.as_deref())?;
    let (memory, seed) = (query.reading.memory, seed.as_ref());
    let mut reader = SnapshotReader { memory, seed, bytes: Vec::new(), spare: None };
    if query.selection.step.is_some() && files.len() > 1 {
        files = reader.sorted(files)?;
    }
    let mut sum: Option<Sum> = None;
    let mut asked = 0;
    let mut passed = BTreeSet::new();
    for path in files {
        let snapshot = reader.read(&path)?;
        if !query.selection.has(&snapshot) {
            passed.insert(snapshot.config().name.clone());
            continue;
        }
        let step = query.selection.step_of(&snapshot);
        match &mut sum {
            Some(sum) if sum.step == step && sum.snapshot.adds_up() => {
                sum.add(path, &snapshot)?;
                reader.spare = Some(snapshot);
            }
            _ => {
                let next = Sum { paths: vec![path], snapshot, step };
                if let Some(sum) = sum.replace(next) {
                    sum.ask(query, &mut outlets, false)?;
                    asked += 1;
                }
            }
        }
    }
    match sum {
        Some(sum) => {
            sum.ask(query, &mut outlets, asked == 0 && query.selection.step.is_none())?;
        }
        None if asked == 0 => return Err(nothing(query, &passed)),
        None => {}
    }
    output::end(outlets)
}

/// The failure if no stored epoch is selected. `passed` names the measurements of epochs that were
/// read but not selected; epochs of a journal are not read, as their file names show their
/// measurement.
fn nothing(query: &Query, passed: &BTreeSet<String>) -> Failure {
    let measurement = query.selection.measurement.as_ref();
    let left_out = |name: &&String| !passed.is_empty() && !passed.contains(*name);
    if let Some(name) = measurement.filter(left_out) {
        let known = suggestion(name, passed.iter().map(String::as_str));
        return Failure::Failed(format!("unknown measurement '{name}'; {known}"));
    }
    let places = query.snapshots.iter().map(|path| path.display().to_string());
    let places = places.collect::<Vec<_>>().join(", ");
    Failure::Failed(format!("no epoch in {places} matches --measurement, --from and --to"))
}

/// A sum of stored epochs.
struct Sum {
    paths: Vec<PathBuf>,
    snapshot: Snapshot,
    /// The time step to which all of them belong.
    step: Option<i64>,
}

impl Sum {
    /// Adds another snapshot.
    fn add(&mut self, path: PathBuf, other: &Snapshot) -> Result<(), Failure> {
        let (own, name) = (&self.snapshot.config().name, &other.config().name);
        if own != name {
            return Err(Failure::Usage(format!(
                "{}: it belongs to measurement '{name}', the ones before to '{own}'; choose one with \
                 --measurement",
                path.display()
            )));
        }
        let merged = self.snapshot.merge(other);
        merged.map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))?;
        self.paths.push(path);
        Ok(())
    }

    /// Answers the query. The only answer of a run has a total.
    fn ask(mut self, query: &Query, outlets: &mut Outlets, only: bool) -> Result<(), Failure> {
        let aligned = self.snapshot.check_aligned(query.reading.align);
        aligned.map_err(|error| Failure::Usage(error.to_string()))?;
        let key = query.key.unwrap_or(self.snapshot.config().key);
        let flows = query.flow.iter().map(|flow| key.parse_flow(flow)).collect::<Result<_, _>>();
        let flows = flows.map_err(|error| Failure::Usage(error.to_string()))?;
        let ask = |config: &mut Config| {
            config.tasks.clone_from(&query.task);
            config.top = query.top;
            config.key = key;
            config.flows = flows;
        };
        let mut total = self.snapshot.query(ask, outlets)?;
        if only {
            total.files = self.paths.iter().map(|path| path.display().to_string()).collect();
            outlets.deliver(&Item::Total(total.into())).map_err(EngineError::from)?;
        }
        Ok(())
    }
}

/// Runs `flowgauge merge`.
pub(crate) fn merge(merging: &Merging) -> Result<(), Failure> {
    let Merging { snapshots, output: path, reading } = merging;
    check_named(path)?;
    output::refuse_input("-o", path, &inputs(snapshots, reading))?;
    let seed = read_seed(reading.seed_file.as_deref())?;
    let mut reader = SnapshotReader {
        memory: reading.memory,
        seed: seed.as_ref(),
        bytes: Vec::new(),
        spare: None,
    };
    let mut sum: Option<Snapshot> = None;
    for path in snapshots {
        let next = reader.read(path)?;
        let Some(sum) = &mut sum else {
            sum = Some(next);
            continue;
        };
        let merged = sum.merge(&next);
        merged.map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))?;
        reader.spare = Some(next);
    }
    let Some(sum) = sum else { return Ok(()) };
    sum.check_aligned(reading.align).map_err(|error| Failure::Usage(error.to_string()))?;
    store(path, &sum.encode())
        .map_err(|error| Failure::Failed(format!("cannot write {}: {error}", path.display())))
}

/// The files that are read.
fn inputs(snapshots: &[PathBuf], reading: &SnapshotReading) -> Vec<PathBuf> {
    snapshots.iter().chain(&reading.seed_file).cloned().collect()
}

/// The seed in a file.
fn read_seed(path: Option<&Path>) -> Result<Option<Seed>, Failure> {
    let seed = path.map(seed::from_file).transpose();
    seed.map_err(|error| Failure::Usage(error.to_string()))
}

/// Reads snapshots one after another into the same memory. New pages for each would take as long as
/// everything else.
struct SnapshotReader<'a> {
    /// Most bytes of a snapshot in memory.
    memory: usize,
    seed: Option<&'a Seed>,
    bytes: Vec<u8>,
    /// A snapshot that is no longer needed.
    spare: Option<Snapshot>,
}

impl SnapshotReader<'_> {
    /// Sorts files by the starts of their epochs, so that the epochs of a time step are neighbors,
    /// whatever their hosts. Reads regular files whose names do not show the start.
    fn sorted(&mut self, files: Vec<PathBuf>) -> Result<Vec<PathBuf>, Failure> {
        let mut found = Vec::new();
        for path in files {
            let mut start_ns = named(&path).map(|(start_ns, _)| start_ns);
            if start_ns.is_none() && path.is_file() {
                let snapshot = self.read(&path)?;
                start_ns = start(&snapshot);
                self.spare = Some(snapshot);
            }
            found.push((start_ns, path));
        }
        found.sort_by_key(|(start_ns, _)| *start_ns);
        Ok(found.into_iter().map(|(_, path)| path).collect())
    }

    fn read(&mut self, path: &Path) -> Result<Snapshot, Failure> {
        let failed = |problem: String| Failure::Failed(format!("{}: {problem}", path.display()));
        let cannot = |error: io::Error| failed(format!("cannot be read: {error}"));
        let (memory, seed) = (self.memory, self.seed);
        self.bytes.clear();
        let file = File::open(path).map_err(cannot)?;
        // A file that begins in another way may be large, or have no end.
        (&file).take(MAGIC_BYTES).read_to_end(&mut self.bytes).map_err(cannot)?;
        if let Err(error @ SnapshotError::Magic) = Snapshot::decode(&self.bytes, memory, seed) {
            return Err(failed(error.to_string()));
        }
        let (most, length) = (most_bytes(memory), file.metadata().map_err(cannot)?.len());
        if length <= most {
            file.take(most).read_to_end(&mut self.bytes).map_err(cannot)?;
        }
        if length.max(self.bytes.len() as u64) > most {
            return Err(failed(format!(
                "it is larger than any snapshot within --memory ({most} bytes); raise --memory"
            )));
        }
        let bytes = &self.bytes;
        let decoded = match self.spare.take() {
            Some(spare) => Snapshot::decode_again(bytes, memory, seed, spare),
            None => Snapshot::decode(bytes, memory, seed),
        };
        decoded.map_err(|error| {
            let damaged = error.is_damage().then(|| format!("{}: {error}", path.display()));
            damaged.map_or_else(|| failed(error.to_string()), Failure::Damaged)
        })
    }
}

/// Bytes by which a file shows that it is a snapshot.
const MAGIC_BYTES: u64 = 4;

/// Upper bound of the bytes of a snapshot whose summaries have at most `memory` bytes each: two
/// summaries, two audits, and a million epochs before them.
fn most_bytes(memory: usize) -> u64 {
    (memory as u64).saturating_mul(4).saturating_add(128 << 20)
}

/// Warns that stored epochs contain the seed.
pub(crate) fn warn(configs: &[Config]) {
    if configs.iter().any(|config| config.seed.is_none()) {
        complain(
            "the snapshots contain the random seed of this run: keep them secret, and use \
             --seed-file to merge snapshots of several runs",
        );
    }
}

/// Characters of the start in the names that `--save` gives: those of the earliest one.
const START_WIDTH: usize = 20;

/// The file name extension of snapshots.
const EXTENSION: &str = "fgs";

/// The seed file that an agent keeps in its folder.
const SEED: &str = "seed";

/// The files that these paths name and the snapshots in folders, except those ruled out by their
/// names.
fn stored_files(paths: &[PathBuf], selection: &Selection) -> Result<Vec<PathBuf>, Failure> {
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
fn seed_file(paths: &[PathBuf]) -> Option<PathBuf> {
    paths.iter().map(|path| path.join(SEED)).find(|seed| seed.is_file())
}

/// Adds the snapshots below a folder, each with the start in its name.
fn collect(folder: &Path, found: &mut Vec<(Option<i64>, PathBuf)>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let (entry, path) = entry.map(|entry| (entry.file_type(), entry.path()))?;
        if entry?.is_dir() {
            collect(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == EXTENSION) {
            found.push((named(&path).map(|(start_ns, _)| start_ns), path));
        }
    }
    Ok(())
}

/// The start of the epoch of a file named `START-LENGTH-RUN-EPOCH.fgs`, with a run of 16 digits, in
/// an agent's journal, with the folder that is its measurement; or of a file that `--save` named.
fn named(file: &Path) -> Option<(i64, Option<&OsStr>)> {
    let parts: Vec<_> = file.file_stem()?.to_str()?.rsplitn(4, '-').collect();
    let [_, run, _, start] = <[&str; 4]>::try_from(parts).ok()?;
    if run.len() != 16 {
        return None;
    }
    if let Ok(start_ns) = start.parse() {
        let measurement = file.parent().and_then(Path::parent).and_then(Path::file_name);
        return Some((start_ns, measurement));
    }
    let (_, start) = start.split_at_checked(start.len().checked_sub(START_WIDTH)?)?;
    Some((start.parse().ok()?, None))
}

impl Selection {
    /// Whether a file may be selected, judging by its name.
    fn may_be(&self, file: &Path) -> bool {
        let Some((start_ns, measurement)) = named(file) else { return true };
        let is_named = |name: &String| measurement.is_none_or(|folder| *folder == **name);
        self.measurement.as_ref().is_none_or(is_named) && self.is_at(start_ns)
    }

    /// Whether epochs that begin at this time are selected.
    fn is_at(&self, start_ns: i64) -> bool {
        self.from.is_none_or(|from| start_ns >= from) && self.to.is_none_or(|to| start_ns < to)
    }

    /// Whether a snapshot is selected.
    fn has(&self, snapshot: &Snapshot) -> bool {
        self.measurement.as_ref().is_none_or(|name| snapshot.config().name == *name)
            && start(snapshot).is_none_or(|start_ns| self.is_at(start_ns))
    }

    /// The number of the time step of a snapshot.
    fn step_of(&self, snapshot: &Snapshot) -> Option<i64> {
        let step_ns = i64::try_from(self.step?).ok()?;
        Some(start(snapshot)?.div_euclid(step_ns))
    }
}

/// The start of the first epoch of a snapshot, if it has a packet.
fn start(snapshot: &Snapshot) -> Option<i64> {
    let bounds = snapshot.coverage().iter().map(|one| one.bounds_ns);
    bounds.filter(|bounds_ns| *bounds_ns != (0, 0)).map(|(start_ns, _)| start_ns).min()
}
