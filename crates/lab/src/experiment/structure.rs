//! A structure to measure (an algorithm of the catalog with its parameters), and its accuracy.

use flowgauge_core::catalog;
use flowgauge_core::summary::concurrent::ConcurrentIngest;
use flowgauge_core::summary::{BuildError, Options, Parameters, Summary};
use flowgauge_core::task::{EpochContext, Lists, find};
use flowgauge_core::terms::{Measure, Size, Threshold};
use flowgauge_kernel::{Digester, Isa, Seed};

use super::setting::{Mix, Setting};
use crate::failure::Failure;
use crate::keys::Keys;
use crate::score::{Score, Truth, judge};
use crate::traffic::{Keyed, Packet, Scene, keyed};
use crate::trial::{THRESHOLD, Trial};

/// An algorithm of the catalog with its parameters.
#[derive(Clone, Debug)]
pub(crate) struct Structure {
    /// Its name in tables.
    pub(crate) label: String,
    algorithm: &'static str,
    memory_bytes: usize,
    parameters: Parameters,
    accelerators: Vec<(String, Parameters)>,
    by: Measure,
    isa: Isa,
}

impl Structure {
    /// An algorithm with the memory that its parameters need.
    pub(crate) fn new(label: impl Into<String>, algorithm: &'static str) -> Self {
        Self {
            label: label.into(),
            algorithm,
            memory_bytes: 1 << 20,
            parameters: Parameters::default(),
            accelerators: Vec::new(),
            by: Measure::Packets,
            isa: Isa::best(),
        }
    }

    /// The structure under another name.
    pub(crate) fn named(self, label: &str) -> Self {
        Self { label: label.to_owned(), ..self }
    }

    /// The structure with this much memory, unless its parameters are more precise.
    pub(crate) fn in_bytes(self, memory_bytes: usize) -> Self {
        Self { memory_bytes, ..self }
    }

    /// The structure with these parameters.
    pub(crate) fn with(
        self,
        parameters: impl IntoIterator<Item = (impl Into<String>, impl ToString)>,
    ) -> Self {
        Self { parameters: Parameters::new(parameters), ..self }
    }

    /// The structure behind an accelerator, which has its own memory.
    pub(crate) fn behind(
        mut self,
        name: &str,
        parameters: impl IntoIterator<Item = (impl Into<String>, impl ToString)>,
    ) -> Self {
        self.accelerators.push((name.to_owned(), Parameters::new(parameters)));
        self
    }

    /// The structure for this measure.
    pub(crate) fn by(self, by: Measure) -> Self {
        Self { by, ..self }
    }

    /// The structure on this instruction set.
    pub(crate) fn on(self, isa: Isa) -> Self {
        Self { isa, ..self }
    }

    /// The options to build it from.
    ///
    /// # Errors
    /// When an accelerator is invalid.
    pub(crate) fn options<K: Keys>(&self, setting: &Setting) -> Result<Options, Failure> {
        let mut options = Options {
            parameters: self.parameters.clone(),
            key_bytes: Some(K::BYTES),
            digester: Digester::new(Seed::number(setting.seed), self.isa),
            by: self.by,
            ..Options::new(self.memory_bytes, setting.seed)
        };
        let before = catalog::accelerator_bytes::<K::Key>(&self.accelerators, &options);
        options.memory_bytes += before.map_err(|error| self.failed(error))?;
        Ok(options)
    }

    /// Builds the summary.
    ///
    /// # Errors
    /// When it cannot be built for such keys.
    pub(crate) fn build<K: Keys>(
        &self,
        setting: &Setting,
    ) -> Result<Box<dyn Summary<K::Key>>, Failure> {
        self.build_by::<K>(setting, |options| {
            catalog::build_accelerated::<K::Key>(&self.accelerators, self.algorithm, options)
        })
    }

    /// Builds the summary by another function than the catalog's.
    ///
    /// # Errors
    /// When that function fails.
    pub(crate) fn build_by<K: Keys>(
        &self,
        setting: &Setting,
        build: impl FnOnce(&Options) -> Result<Box<dyn Summary<K::Key>>, BuildError>,
    ) -> Result<Box<dyn Summary<K::Key>>, Failure> {
        build(&self.options::<K>(setting)?).map_err(|error| self.failed(error))
    }

    /// Builds a concurrent summary, which several workers fill at once.
    ///
    /// # Errors
    /// When it cannot be concurrent, or cannot be built for such keys.
    pub(crate) fn concurrent<K: Keys>(
        &self,
        setting: &Setting,
    ) -> Result<Box<dyn ConcurrentIngest<K::Key>>, Failure> {
        let built =
            catalog::build_concurrent::<K::Key>(self.algorithm, &self.options::<K>(setting)?);
        built.map_err(|error| self.failed(error))
    }

    fn failed(&self, error: BuildError) -> Failure {
        Failure::Build {
            algorithm: self.algorithm,
            asked: format!("{:?}, {} bytes", self.parameters, self.memory_bytes),
            error,
        }
    }
}

/// Maximum number of items that a task lists: more than exist.
const MOST: usize = 10_000;

/// Epochs, the ground truth of the last one, and the task settings.
pub(crate) struct Exam<'a, K: Keys> {
    setting: &'a Setting,
    epochs: Vec<Vec<Keyed<K::Key>>>,
    contexts: Vec<EpochContext<'static>>,
    truth: Truth<'a>,
}

impl<'a, K: Keys> Exam<'a, K> {
    /// Counts the ground truth of packets drawn for this scene.
    ///
    /// # Errors
    /// When the trace lacks such keys.
    pub(crate) fn new(
        setting: &'a Setting,
        mix: Mix,
        scene: Scene,
        packets: &'a [Vec<Packet>],
    ) -> Result<Self, Failure> {
        // Peers are endpoints.
        setting.needs(mix, if scene == Scene::Spread { 13 } else { K::BYTES })?;
        let digester = Digester::new(Seed::number(setting.seed), Isa::best());
        let epochs: Vec<_> = packets.iter().map(|epoch| keyed::<K>(epoch, &digester)).collect();
        let truth = Truth::count::<K>(scene, packets, &epochs, THRESHOLD);
        let context = |epoch: &Vec<Keyed<K::Key>>| EpochContext {
            by: Measure::Packets,
            keyed: Size {
                packets: epoch.len() as u64,
                bytes: epoch.iter().map(|packet| u64::from(packet.wire)).sum(),
            },
            threshold: Threshold::Share(THRESHOLD),
            lists: Lists::unlimited(MOST),
            timeline: None,
        };
        let contexts = epochs.iter().map(context).collect();
        Ok(Self { setting, epochs, contexts, truth })
    }

    /// The score of a structure's answer to this task after the last epoch, or `None` if it cannot
    /// answer.
    ///
    /// # Errors
    /// When it cannot be built.
    pub(crate) fn score(
        &self,
        structure: &Structure,
        task: &str,
    ) -> Result<Option<Score>, Failure> {
        let Ok(entry) = find(task) else { return Ok(None) };
        let summary = structure.build::<K>(self.setting)?;
        let options = structure.options::<K>(self.setting)?;
        let asked = self.truth.asked();
        let seed = self.setting.seed;
        let mut trial = Trial::<K>::of(summary, &[entry], &asked, &options, seed)?;
        let mut score = Score::default();
        for (at, (epoch, context)) in self.epochs.iter().zip(&self.contexts).enumerate() {
            let report = trial.epoch(epoch, context).pop();
            if at + 1 < self.epochs.len() {
                continue;
            }
            let Some(Ok(report)) = report else { return Ok(None) };
            judge(&mut score, &report, context, &self.truth);
        }
        Ok(Some(score))
    }
}
