//! One algorithm on one stream, driven like a run of the engine: batches, settle, tasks.

use flowgauge_core::batch::{BATCH_PACKETS, Batch};
use flowgauge_core::catalog;
use flowgauge_core::key::CanonicalKey;
use flowgauge_core::summary::{Cells, Flows, Options, Summary};
use flowgauge_core::task::{
    EpochContext, HistoryShape, Lane, Report, Task, TaskEntry, TaskOptions, Unsupported,
};
use flowgauge_core::terms::{Measure, Threshold};
use flowgauge_kernel::Seed;

use crate::accuracy::plan::{self, Subject};
use crate::failure::Failure;
use crate::keys::Keys;
use crate::traffic::Keyed;

/// A flow is heavy above this share of the traffic.
pub(crate) const THRESHOLD: f64 = 0.001;

/// A summary with the tasks that read it.
pub(crate) struct Trial<K: Keys> {
    summary: Box<dyn Summary<K::Key>>,
    tasks: Vec<Box<dyn Task>>,
    scratch: Vec<u64>,
    batch: Batch<K::Key>,
}

impl<K: Keys> Trial<K> {
    /// Builds the summary and its tasks.
    ///
    /// # Errors
    /// When the summary cannot be built for such keys, or memory is refused.
    pub(crate) fn new(
        subject: &Subject,
        entries: &[&'static TaskEntry],
        flows: &[CanonicalKey],
        seed: u64,
    ) -> Result<Self, Failure> {
        let failed = |error| {
            let (algorithm, asked) = (subject.info.name, subject.asked());
            Failure::Build { algorithm, asked, error }
        };
        let options = subject.options::<K>(Threshold::Share(THRESHOLD), seed).map_err(failed)?;
        let accelerators = subject.accelerators();
        let summary =
            catalog::build_accelerated::<K::Key>(&accelerators, subject.info.name, &options)
                .map_err(failed)?;
        Self::of(summary, entries, flows, &options, seed)
    }

    /// Builds tasks for this summary, which was built from these options.
    ///
    /// # Errors
    /// When memory is refused.
    pub(crate) fn of(
        summary: Box<dyn Summary<K::Key>>,
        entries: &[&'static TaskEntry],
        flows: &[CanonicalKey],
        options: &Options,
        seed: u64,
    ) -> Result<Self, Failure> {
        let most = summary.answers().flows().map_or(0, Flows::most);
        let cells = match summary.answers().flows() {
            Some(_) => None,
            None => summary.answers().cells(),
        };
        let cells = cells.map_or(0, Cells::len);
        let tasks = TaskOptions {
            flows: flows.to_vec(),
            history: vec![HistoryShape { key_bytes: K::BYTES, flows: most, cells }],
            spread: options.spread,
            hierarchy: options.hierarchy,
            ..TaskOptions::new(Seed::number(seed))
        };
        let build = |entry: &&'static TaskEntry| {
            entry.build(&tasks).map_err(|error| Failure::Task { task: entry.name, error })
        };
        let tasks = entries.iter().map(build).collect::<Result<Vec<_>, _>>()?;
        let scratch = tasks.iter().map(|task| task.scratch_bytes(most)).max().unwrap_or(0);
        let (scratch, batch) = (vec![0; scratch.div_ceil(8)], Batch::new());
        Ok(Self { summary, tasks, scratch, batch })
    }

    fn lane(&self) -> Lane<'_> {
        let answers = self.summary.answers();
        Lane { key: K::KIND.into(), key_bytes: K::BYTES, answers }
    }

    /// Whether the summary lists every flow.
    pub(crate) fn is_table(&self) -> bool {
        self.summary.answers().flows().is_some()
    }

    /// The tasks that it can answer.
    pub(crate) fn answerable(&self) -> Vec<&'static str> {
        let lanes = [self.lane()];
        let answered =
            self.tasks.iter().filter(|task| task.check(Measure::Packets, &lanes).is_ok());
        answered.map(|task| task.name()).collect()
    }

    /// The effective parameters.
    pub(crate) fn parameters(&self) -> String {
        plan::parameters(&*self.summary)
    }

    /// Memory of the summary in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.summary.memory_bytes()
    }

    /// Measures an epoch, answers the tasks, and starts the next epoch.
    pub(crate) fn epoch(
        &mut self,
        packets: &[Keyed<K::Key>],
        epoch: &EpochContext<'_>,
    ) -> Vec<Result<Report, Unsupported>> {
        for chunk in packets.chunks(BATCH_PACKETS) {
            self.batch.clear();
            for packet in chunk {
                let Keyed { key, element, wire, time_ns } = *packet;
                self.batch.push_with_element(key, wire, time_ns, element);
            }
            self.summary.ingest(&mut self.batch);
        }
        self.summary.settle();
        let lanes =
            [Lane { key: K::KIND.into(), key_bytes: K::BYTES, answers: self.summary.answers() }];
        let scratch = &mut self.scratch;
        let reports = self.tasks.iter_mut().map(|task| task.run(epoch, &lanes, scratch)).collect();
        self.summary.next_epoch();
        reports
    }
}
