//! Which task is asked of which algorithm, of what traffic and by which key.

use flowgauge_core::key::{Key4, Key8, Key13, KeyKind};
use flowgauge_core::task::{TASKS, TaskEntry};

use crate::failure::Failure;
use crate::subject::Subject;
use crate::traffic::Scene;
use crate::trial::Trial;

/// Keys that are measured.
pub(crate) const KINDS: [KeyKind; 4] =
    [KeyKind::Source, KeyKind::Destination, KeyKind::Pair, KeyKind::FiveTuple];

/// One task, asked of one algorithm.
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

/// The traffic that a task is asked of, and keys to ask it by: the first that an algorithm answers
/// for.
fn question(entry: &TaskEntry) -> (Scene, &'static [KeyKind]) {
    match entry.name {
        "superspreaders" => (Scene::Spread, &[KeyKind::Source, KeyKind::FiveTuple]),
        "victims" => (Scene::Spread, &[KeyKind::Destination, KeyKind::FiveTuple]),
        "changes" => (Scene::Changes, &[KeyKind::Pair, KeyKind::Source]),
        "hierarchical" => (Scene::Plain, &[KeyKind::Source, KeyKind::Pair]),
        _ => (Scene::Plain, &[KeyKind::Pair, KeyKind::Source]),
    }
}

/// Every task that these algorithms answer; tables also with room for every flow.
///
/// # Errors
/// When an algorithm cannot be built as asked.
pub(crate) fn cases(subjects: &[Subject]) -> Result<Vec<Case>, Failure> {
    let mut cases = Vec::new();
    for subject in subjects {
        let is_table = plan(*subject, &mut cases)?;
        if is_table && subject.parameters.is_empty() {
            plan(subject.roomy(), &mut cases)?;
        }
    }
    Ok(cases)
}

/// Plans the tasks of one algorithm, and says whether it is a table.
fn plan(subject: Subject, cases: &mut Vec<Case>) -> Result<bool, Failure> {
    let mut answers = Vec::new();
    let mut is_table = false;
    for kind in KINDS {
        let probe = match kind {
            KeyKind::Pair => probe::<Key8>(&subject, kind)?,
            KeyKind::FiveTuple => probe::<Key13>(&subject, kind)?,
            _ => probe::<Key4>(&subject, kind)?,
        };
        is_table |= probe.is_table;
        answers.extend(probe.tasks.into_iter().map(|name| (kind, name)));
    }
    for entry in TASKS {
        let (scene, kinds) = question(entry);
        let kind = kinds.iter().find(|kind| answers.contains(&(**kind, entry.name)));
        cases.extend(kind.map(|&kind| Case { subject, entry, scene, kind }));
    }
    Ok(is_table)
}

/// What an algorithm can do with a key.
#[derive(Default)]
struct Probe {
    is_table: bool,
    tasks: Vec<&'static str>,
}

fn probe<K: flowgauge_core::key::FlowKey>(
    subject: &Subject,
    kind: KeyKind,
) -> Result<Probe, Failure> {
    let Some(trial) = Trial::<K>::new(subject, kind, &TASKS, &[], 1)? else {
        return Ok(Probe::default());
    };
    Ok(Probe { is_table: trial.is_table(), tasks: trial.answerable() })
}
