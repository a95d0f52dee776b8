//! The accuracy of a structure on a stream: precision and recall of a task's items.

use flowgauge_core::key::{Extract, FlowKey, KeyKind};
use flowgauge_core::task::{EpochContext, Lists, find};
use flowgauge_core::terms::{Measure, Size, Threshold};
use flowgauge_kernel::{Digester, Isa, Seed};

use super::setting::{Mix, Setting};
use super::structure::Structure;
use crate::failure::Failure;
use crate::score::{Score, Truth, judge};
use crate::traffic::{Keyed, Packet, Scene, keyed};
use crate::trial::{THRESHOLD, Trial};

/// Maximum number of items that a task lists: more than exist.
const MOST: usize = 10_000;

/// Epochs, the ground truth of the last one, and the task settings.
pub(crate) struct Exam<'a, K> {
    setting: &'a Setting,
    kind: KeyKind,
    epochs: Vec<Vec<Keyed<K>>>,
    contexts: Vec<EpochContext<'static>>,
    truth: Truth<'a>,
}

impl<'a, K: FlowKey + Extract<8>> Exam<'a, K> {
    /// Counts the ground truth of packets drawn for this scene.
    ///
    /// # Errors
    /// The trace lacks such keys.
    pub(crate) fn new(
        setting: &'a Setting,
        mix: Mix,
        scene: Scene,
        kind: KeyKind,
        packets: &'a [Vec<Packet>],
    ) -> Result<Self, Failure> {
        // Peers are endpoints.
        setting.needs(mix, if scene == Scene::Spread { 13 } else { K::SHORTEST })?;
        let digester = Digester::new(Seed::number(setting.seed), Isa::best());
        let epochs: Vec<_> = packets.iter().map(|epoch| keyed(epoch, kind, &digester)).collect();
        let truth = Truth::count(scene, packets, &epochs, THRESHOLD);
        let context = |epoch: &Vec<Keyed<K>>| EpochContext {
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
        Ok(Self { setting, kind, epochs, contexts, truth })
    }

    /// The score of a structure's answer to this task after the last epoch, or `None` if it cannot
    /// answer.
    ///
    /// # Errors
    /// It cannot be built.
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
        let mut trial = Trial::of(summary, self.kind, &[entry], &asked, &options, seed)?;
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
