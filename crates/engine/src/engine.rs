//! The run: packets in, reports out.

use std::path::PathBuf;

use flowgauge_capture::{CaptureError, Captures, FileCounts};
use flowgauge_core::batch::Batch;
use flowgauge_core::key::FlowKey;

use crate::close::Closer;
use crate::config::Config;
use crate::crew::{self, Sharing};
use crate::error::EngineError;
use crate::lanes::{Lanes, Take};
use crate::parts;
use crate::reader::{Crew, Ended, Packets, Reader};
use crate::report::{Gap, TotalReport};
use crate::sink::Sink;
use crate::summaries::{Sets, Summaries, View, hand_out};
use crate::swaps::Swaps;

/// A run whose key types are known at compile time.
pub(crate) struct Engine<L: Lanes> {
    pub(crate) config: Config,
    pub(crate) lanes: L,
    pub(crate) sets: Sets<L::First, L::Second>,
    pub(crate) sharing: Sharing,
    pub(crate) closer: Closer,
}

/// What a run came to, beside its reports.
#[derive(Debug)]
pub struct Outcome {
    /// What was wrong with the inputs, in the order of their reading.
    pub problems: Vec<CaptureError>,
    /// The last report.
    pub total: TotalReport,
    /// How long workers were stopped at the end of epochs and by updates, where there are several.
    pub swaps: Swaps,
}

impl<L: Lanes> Engine<L> {
    /// What the tasks will see of the summaries.
    pub(crate) fn view(&self) -> View<'_> {
        self.sharing.view(self.config.key, &self.sets.workers)
    }

    /// Reads `source` to its end, or to the limit, and reports to `sink`.
    pub(crate) fn run(
        mut self,
        source: &mut Packets<'_>,
        sink: &mut dyn Sink,
        progress: &mut dyn FnMut(&Packets<'_>),
    ) -> Result<Outcome, EngineError> {
        let mut reader = Reader::new(&self.config, self.lanes);
        let closer = &mut self.closer;
        let (problems, swaps) = if self.config.workers == 1 {
            let mut alone = Alone { summaries: &mut self.sets.workers[0][0], closer, sink };
            let pinned = self.sharing.cores.as_ref().map(|cores| cores.pin(0)).transpose();
            let problems = pinned.and_then(|_pinned| reader.read(source, &mut alone, progress))?;
            (problems, Swaps::default())
        } else {
            // This thread reads, and has no use of a set.
            let workers = self.config.workers - 1;
            self.sets.workers.truncate(workers);
            hand_out(&mut self.sets.workers, workers, |sets| {
                sets.iter().map(Summaries::another).collect()
            });
            let read = |crew: &mut _| reader.read(source, crew, progress);
            crew::run(&self.config, &self.sharing, self.sets, closer, sink, read)?
        };
        total(self.closer.total, source.files(), problems, swaps, sink)
    }

    /// Reads files, side by side where that is as good.
    pub(crate) fn run_files(
        mut self,
        files: &[PathBuf],
        sink: &mut dyn Sink,
        progress: &mut dyn FnMut(&Packets<'_>),
    ) -> Result<Outcome, EngineError> {
        if self.sharing.parts
            && let Some(parts) = parts::cut(files, self.config.workers)
        {
            let mut sets: Vec<_> = self.sets.workers.into_iter().flatten().collect();
            hand_out(&mut sets, self.config.workers, Summaries::another);
            let cores = self.sharing.cores.as_ref();
            let read = parts::read(&self.config, cores, &self.lanes, &mut sets, parts, progress)?;
            if let Some((ended, files)) = read {
                let (summaries, closer) = (&sets[0], &mut self.closer);
                let view = View::new(closer.key, std::iter::once(summaries));
                closer.close(ended, &view.lanes(), sink)?;
                return total(self.closer.total, &files, Vec::new(), Swaps::default(), sink);
            }
            sets.iter_mut().for_each(Summaries::next_epoch);
            self.sets.workers = sets.into_iter().map(|set| vec![set]).collect();
        }
        self.run(&mut Captures::open(files), sink, progress)
    }
}

/// Reports the end of a run.
fn total(
    mut total: TotalReport,
    files: &[FileCounts],
    problems: Vec<CaptureError>,
    swaps: Swaps,
    sink: &mut dyn Sink,
) -> Result<Outcome, EngineError> {
    total.files = files.iter().map(|file| file.file.clone()).collect();
    total.irregular = files.iter().map(|file| file.irregular).sum();
    total.problems = problems.iter().map(ToString::to_string).collect();
    total.notes.extend(swaps.note());
    sink.total(&total)?;
    Ok(Outcome { problems, total, swaps })
}

/// One thread that reads, measures and closes.
struct Alone<'a, A, B> {
    summaries: &'a mut Summaries<A, B>,
    closer: &'a mut Closer,
    sink: &'a mut dyn Sink,
}

impl<A: FlowKey, B: FlowKey> Take<A, B> for Alone<'_, A, B> {
    #[inline(always)]
    fn first(&mut self, batch: &mut Batch<A>) {
        self.summaries.first(batch);
    }

    #[inline(always)]
    fn second(&mut self, batch: &mut Batch<B>) {
        self.summaries.second(batch);
    }
}

impl<A: FlowKey, B: FlowKey> Crew<A, B> for Alone<'_, A, B> {
    fn end(&mut self, ended: Ended) -> Result<(), EngineError> {
        self.summaries.settle();
        let view = View::new(self.closer.key, std::iter::once(&*self.summaries));
        let goes_on = ended.update;
        self.closer.close(ended, &view.lanes(), self.sink)?;
        if !goes_on {
            self.summaries.next_epoch();
        }
        Ok(())
    }

    fn gap(&mut self, gap: &Gap) -> Result<(), EngineError> {
        self.closer.gap(gap, self.sink)
    }
}
