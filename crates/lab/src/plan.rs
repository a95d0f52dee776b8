//! Which tasks to run for which algorithm, on which traffic and by which key.

use flowgauge_core::key::{FlowKey, Key4, Key8, Key16, KeyKind};
use flowgauge_core::task::{TASKS, TaskEntry};

use crate::failure::Failure;
use crate::subject::Subject;
use crate::traffic::Scene;
use crate::trial::Trial;

/// The kinds of key to measure.
pub(crate) const KINDS: [KeyKind; 4] =
    [KeyKind::SOURCE, KeyKind::DESTINATION, KeyKind::PAIR, KeyKind::FIVE_TUPLE];

/// One task for one algorithm.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    /// The algorithm.
    pub(crate) subject: Subject,
    /// The task.
    pub(crate) entry: &'static TaskEntry,
    /// The traffic.
    pub(crate) scene: Scene,
    /// The key.
    pub(crate) kind: KeyKind,
}

/// The traffic for a task, and candidate keys: the first one that an algorithm answers is used.
fn question(entry: &TaskEntry) -> (Scene, &'static [KeyKind]) {
    match entry.name {
        "superspreaders" => (Scene::Spread, &[KeyKind::SOURCE, KeyKind::FIVE_TUPLE]),
        "victims" => (Scene::Spread, &[KeyKind::DESTINATION, KeyKind::FIVE_TUPLE]),
        "changes" => (Scene::Changes, &[KeyKind::PAIR, KeyKind::SOURCE]),
        // They sum the exact flows of a table, and have no error of their own.
        "findings" | "top-sources" | "top-destinations" => (Scene::Plain, &[]),
        "hierarchical" => (Scene::Plain, &[KeyKind::SOURCE, KeyKind::PAIR]),
        _ => (Scene::Plain, &[KeyKind::PAIR, KeyKind::SOURCE]),
    }
}

/// Every task that these algorithms answer; tables also with room for every flow. Cases that repeat
/// earlier parameters are left out.
///
/// # Errors
/// An algorithm cannot be built.
pub(crate) fn cases(subjects: &[Subject]) -> Result<Vec<Case>, Failure> {
    let mut cases = Vec::new();
    let mut planned: Vec<(String, Vec<String>)> = Vec::new();
    let mut plan = |subject: Subject| {
        let probe = Probe::of(&subject)?;
        let shape = (subject.name(), probe.parameters);
        if planned.contains(&shape) {
            return Ok(false);
        }
        planned.push(shape);
        for entry in TASKS {
            let (scene, kinds) = question(entry);
            let kind = kinds.iter().find(|kind| probe.answers.contains(&(**kind, entry.name)));
            cases.extend(kind.map(|&kind| Case { subject, entry, scene, kind }));
        }
        Ok::<_, Failure>(probe.is_table)
    };
    for &subject in subjects {
        if plan(subject)? && subject.parameters.is_empty() && subject.behind.is_none() {
            plan(subject.roomy())?;
        }
    }
    Ok(cases)
}

/// The capabilities of an algorithm.
#[derive(Default)]
struct Probe {
    is_table: bool,
    /// Tasks that it answers, by key.
    answers: Vec<(KeyKind, &'static str)>,
    /// Its effective parameters for each key that it accepts.
    parameters: Vec<String>,
}

impl Probe {
    /// # Errors
    /// When the algorithm can be built for no key.
    fn of(subject: &Subject) -> Result<Self, Failure> {
        let mut probe = Self::default();
        let mut refusal = None;
        for kind in KINDS {
            let built = match kind {
                KeyKind::PAIR => probe.build::<Key8>(subject, kind),
                KeyKind::FIVE_TUPLE => probe.build::<Key16>(subject, kind),
                _ => probe.build::<Key4>(subject, kind),
            };
            // Some parameters are valid for some keys only.
            refusal = refusal.or(built.err());
        }
        match refusal {
            Some(refusal) if probe.parameters.is_empty() => Err(refusal),
            _ => Ok(probe),
        }
    }

    fn build<K: FlowKey>(&mut self, subject: &Subject, kind: KeyKind) -> Result<(), Failure> {
        let trial = Trial::<K>::new(subject, kind, &TASKS, &[], 1)?;
        self.is_table |= trial.is_table();
        self.answers.extend(trial.answerable().into_iter().map(|task| (kind, task)));
        self.parameters.push(trial.parameters());
        Ok(())
    }
}
