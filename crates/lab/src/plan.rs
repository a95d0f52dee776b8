//! Which tasks to run for which algorithm, on which traffic and by which key, and how much.

use flowgauge_core::key::{FlowKey, Key4, Key8, Key16, KeyKind};
use flowgauge_core::task::{TASKS, TaskEntry};
use flowgauge_synthetic as synthetic;

use crate::args::Selection;
use crate::failure::Failure;
use crate::subject::Subject;
use crate::table::Row;
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
/// When an algorithm cannot be built.
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

/// A kind of traffic.
#[derive(Debug)]
pub(crate) struct Profile {
    /// Its name in tables and on the command line.
    pub(crate) name: &'static str,
    /// The order in which flows send.
    pub(crate) order: synthetic::Profile,
    /// Whether the small form includes it.
    small: bool,
}

const fn zipf(name: &'static str, flows: u64, skew: f64, small: bool) -> Profile {
    Profile { name, order: synthetic::Profile::Zipf { flows, skew }, small }
}

/// Every profile.
pub(crate) static PROFILES: [Profile; 5] = [
    zipf("zipf-0.75", 1_000_000, 0.75, false),
    zipf("zipf-1.1", 1_000_000, 1.1, true),
    zipf("zipf-1.5", 1_000_000, 1.5, false),
    zipf("uniform", 10_000_000, 0.0, false),
    Profile { name: "backbone", order: synthetic::Profile::Backbone { flows: None }, small: true },
];

/// One size of the measurement.
#[derive(Debug)]
pub(crate) struct Form {
    /// Packets of an epoch.
    pub(crate) packets: u64,
    /// Streams per profile, with the seeds 1, 2, …; more if these give too few bounds to judge.
    pub(crate) seeds: u64,
    /// The profiles.
    pub(crate) profiles: Vec<&'static Profile>,
}

impl Form {
    /// The form of the published numbers.
    pub(crate) fn full(selection: &Selection) -> Self {
        Self { packets: 2_500_000, seeds: 3, profiles: select(selection, |_| true) }
    }

    /// The form of the gate.
    pub(crate) fn small(selection: &Selection) -> Self {
        Self { packets: 200_000, seeds: 1, profiles: select(selection, |profile| profile.small) }
    }

    /// Whether this row was measured in this form.
    pub(crate) fn has(&self, row: &Row) -> bool {
        row.packets == self.packets
            && row.seeds >= self.seeds
            && self.profiles.iter().any(|profile| profile.name == row.profile)
    }
}

fn select(selection: &Selection, has: impl Fn(&Profile) -> bool) -> Vec<&'static Profile> {
    let names = &selection.profiles;
    let among = |profile: &Profile| names.is_empty() || names.iter().any(|n| n == profile.name);
    PROFILES.iter().filter(|profile| has(profile) && among(profile)).collect()
}
