//! A tap on the packets that are read: `-s` truncates them, `-w` writes those that pass the filter.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use flowgauge_capture::Writer;
use flowgauge_core::packet::Frame;
use flowgauge_engine::Config;
use flowgauge_engine::source::{
    Ahead, Burst, Chunk, Chunks, Counter, Inputs, Piece, Progress, Skipped, Source, SourceError,
};
use flowgauge_filter::Filter;

use crate::args::Run;
use crate::failure::{Failure, complain};
use crate::output::{refuse_input, same};
use crate::values::Destination;

/// The tap of a run. Without `-s` and `-w` it does nothing.
#[derive(Clone, Default)]
pub(crate) struct Tap {
    snap: Option<usize>,
    recording: Option<Arc<Mutex<Recording>>>,
}

/// A file to which packets are written.
struct Recording {
    to: Output,
    name: String,
    /// The filters; a packet is written if it passes one of them. If there are none, every packet
    /// is.
    filters: Vec<Filter>,
    /// Packets left of the limit.
    left: u64,
    /// Whether writing a packet has failed. No packet is written after that.
    failed: bool,
}

/// Where packets are written.
enum Output {
    /// A capture that has begun.
    Begun(Writer<Box<dyn Write + Send>>),
    /// A file that stays as it is until there is a packet to write.
    Old(File),
}

impl Tap {
    /// The tap of a run of these measurements over `inputs`. Opens the file.
    pub(crate) fn new(run: &Run, configs: &[Config], inputs: &[PathBuf]) -> Result<Self, Failure> {
        let recording = match &run.write {
            None => None,
            Some(path) => {
                let (name, to) = open(run, path, inputs)?;
                let filters: Option<Vec<_>> =
                    configs.iter().map(|config| config.filter.clone()).collect();
                let (filters, left) =
                    (filters.unwrap_or_default(), run.running.count.unwrap_or(u64::MAX));
                let recording = Recording { to, name, filters, left, failed: false };
                Some(Arc::new(Mutex::new(recording)))
            }
        };
        Ok(Self { snap: run.snap, recording })
    }

    /// Puts the tap on inputs.
    pub(crate) fn on<I: Inputs>(&self, inputs: I) -> TappedInputs<I> {
        TappedInputs { inputs, tap: self.clone() }
    }

    /// Puts the tap on a source.
    pub(crate) fn on_source(&self, source: Box<dyn Source + Send>) -> Box<dyn Source + Send> {
        if self.snap.is_none() && self.recording.is_none() {
            return source;
        }
        Box::new(Tapped { source, tap: self.clone() })
    }

    /// Writes buffered packets; returns whether the file has all packets. Without a packet, an old
    /// file is emptied only if the inputs were `readable`.
    pub(crate) fn finish(self, readable: bool) -> bool {
        let Some(recording) = self.recording else { return true };
        let mut recording = recording.lock().unwrap_or_else(PoisonError::into_inner);
        if recording.failed {
            return false;
        }
        let flushed = match &recording.to {
            Output::Old(_) if !readable => Ok(()),
            _ => recording.to.write(Writer::flush),
        };
        if let Err(error) = flushed {
            recording.fail(&error);
        }
        !recording.failed
    }

    fn record<'a>(&self, frames: impl Iterator<Item = Frame<'a>>) {
        if let Some(recording) = &self.recording {
            recording.lock().unwrap_or_else(PoisonError::into_inner).add(frames);
        }
    }
}

impl Recording {
    fn add<'a>(&mut self, frames: impl Iterator<Item = Frame<'a>>) {
        for frame in frames {
            if self.left == 0 || self.failed {
                return;
            }
            let matches = |filter: &mut Filter| {
                filter.matches(frame.link, frame.bytes, frame.wire).is_ok_and(|is| is)
            };
            if self.filters.is_empty() || self.filters.iter_mut().any(matches) {
                self.left -= 1;
                let written = self.to.write(|writer| writer.write(&frame));
                if let Err(error) = written {
                    self.fail(&error);
                }
            }
        }
    }

    /// Abandons the file, and says so at once, since a live run may last long.
    fn fail(&mut self, error: &io::Error) {
        complain(&format!(
            "cannot write {}: {error}; packets after that are missing in it",
            self.name
        ));
        self.failed = true;
    }
}

impl Output {
    /// Begins a capture.
    fn begin(to: impl Write + Send + 'static) -> io::Result<Self> {
        Ok(Self::Begun(Writer::new(Box::new(BufWriter::new(to)) as _)?))
    }

    /// Calls `write` with the capture, which replaces an old file first.
    fn write(
        &mut self,
        write: impl FnOnce(&mut Writer<Box<dyn Write + Send>>) -> io::Result<()>,
    ) -> io::Result<()> {
        if let Self::Old(file) = self {
            file.set_len(0)?;
            *self = Self::begin(file.try_clone()?)?;
        }
        match self {
            Self::Begun(writer) => write(writer),
            Self::Old(_) => Ok(()),
        }
    }
}

fn cannot(name: &str, error: &io::Error) -> Failure {
    Failure::Failed(format!("cannot write {name}: {error}"))
}

/// Opens the file of `-w`.
fn open(run: &Run, path: &Path, inputs: &[PathBuf]) -> Result<(String, Output), Failure> {
    if path != Path::new("-") {
        refuse_input("capture", path, inputs)?;
        let report = |one: &Destination| one.path.as_deref().is_some_and(|other| same(path, other));
        if run.destinations().iter().any(report) {
            return Err(Failure::Usage(format!(
                "the capture and a report go to {}; name a different file for each",
                path.display()
            )));
        }
        let name = path.display().to_string();
        let open = || {
            let options = OpenOptions::new().write(true).create(true).truncate(false).open(path);
            let file = options?;
            let metadata = file.metadata()?;
            if metadata.is_file() && metadata.len() > 0 {
                Ok(Output::Old(file))
            } else {
                Output::begin(file)
            }
        };
        let opened = open().map_err(|error| cannot(&name, &error))?;
        return Ok((name, opened));
    }
    if run
        .destinations()
        .iter()
        .any(|one| one.path.as_deref().is_none_or(|path| path == Path::new("-")))
    {
        let message = "packets and reports cannot both go to standard output; name a file with \
                       -w or -o";
        return Err(Failure::Usage(message.to_owned()));
    }
    if io::stdout().is_terminal() {
        let message = "refusing to write a binary capture to a terminal; name a file with -w";
        return Err(Failure::Usage(message.to_owned()));
    }
    let name = "standard output".to_owned();
    let begun = Output::begin(io::stdout()).map_err(|error| cannot(&name, &error))?;
    Ok((name, begun))
}

/// A source with a tap.
struct Tapped<S: ?Sized> {
    tap: Tap,
    source: Box<S>,
}

impl<S: Source + ?Sized> Source for Tapped<S> {
    fn poll<'a>(&'a mut self, burst: &mut Burst<'a>) -> Result<bool, SourceError> {
        let more = self.source.poll(burst);
        if let Some(most) = self.tap.snap {
            burst.snap(most);
        }
        self.tap.record(burst.frames().iter());
        more
    }

    /// Packets to be written must be lent out.
    fn skip(&mut self, ahead: &Ahead) -> Skipped {
        match self.tap.recording {
            Some(_) => Skipped::none(ahead),
            None => self.source.skip(ahead),
        }
    }

    fn pick(&mut self, ahead: &Ahead, gaps: &[u64]) -> Skipped {
        match self.tap.recording {
            Some(_) => Skipped::none(ahead),
            None => self.source.pick(ahead, gaps),
        }
    }

    fn inputs(&self) -> &[String] {
        self.source.inputs()
    }

    fn counters(&self) -> &[Counter] {
        self.source.counters()
    }

    fn progress(&self) -> Progress {
        self.source.progress()
    }

    fn clock_ns(&self) -> Option<i64> {
        self.source.clock_ns()
    }

    fn outage(&self) -> Option<&str> {
        self.source.outage()
    }

    fn note(&mut self) -> Option<String> {
        self.source.note()
    }
}

impl<S: Chunks + ?Sized> Chunks for Tapped<S> {
    fn read(&mut self, chunk: &mut Chunk) -> Result<bool, SourceError> {
        let more = self.source.read(chunk);
        if let Some(most) = self.tap.snap {
            chunk.snap(most);
        }
        self.tap.record(chunk.frames());
        more
    }
}

/// Inputs with a tap.
pub(crate) struct TappedInputs<I> {
    inputs: I,
    tap: Tap,
}

impl<I: Inputs> Inputs for TappedInputs<I> {
    fn chain(&self) -> Box<dyn Chunks + Send> {
        let source = self.inputs.chain();
        if self.tap.snap.is_none() && self.tap.recording.is_none() {
            return source;
        }
        Box::new(Tapped { source, tap: self.tap.clone() })
    }

    /// One reader writes the packets in order.
    fn divide(&self, readers: usize) -> Option<Vec<Vec<Piece>>> {
        if self.tap.recording.is_some() {
            return None;
        }
        let behind = |Piece { input, source }| Piece { input, source: self.tap.on_source(source) };
        let shares = self.inputs.divide(readers)?.into_iter();
        Some(shares.map(|share| share.into_iter().map(behind).collect()).collect())
    }

    fn is_stopped(&self) -> bool {
        self.inputs.is_stopped()
    }
}
