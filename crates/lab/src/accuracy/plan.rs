//! The plan of a measurement: algorithms with parameters, and their tasks, traffic and keys.

use flowgauge_core::catalog::{self, ALGORITHMS};
use flowgauge_core::key::{FlowKey, KeyKind};
use flowgauge_core::summary::{BuildError, Info, Options, Parameters, Summary};
use flowgauge_core::task::{TASKS, TaskEntry};
use flowgauge_core::terms::Threshold;
use flowgauge_synthetic as synthetic;

use super::table::Row;
use crate::args::Selection;
use crate::failure::Failure;
use crate::keys::{Destinations, FiveTuples, Keys, Pairs, Sources};
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
                KeyKind::PAIR => probe.build::<Pairs>(subject),
                KeyKind::FIVE_TUPLE => probe.build::<FiveTuples>(subject),
                KeyKind::SOURCE => probe.build::<Sources>(subject),
                _ => probe.build::<Destinations>(subject),
            };
            // Some parameters are valid for some keys only.
            refusal = refusal.or(built.err());
        }
        match refusal {
            Some(refusal) if probe.parameters.is_empty() => Err(refusal),
            _ => Ok(probe),
        }
    }

    fn build<K: Keys>(&mut self, subject: &Subject) -> Result<(), Failure> {
        let trial = Trial::<K>::new(subject, &TASKS, &[], 1)?;
        self.is_table |= trial.is_table();
        self.answers.extend(trial.answerable().into_iter().map(|task| (K::KIND, task)));
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

/// The memory of every algorithm, unless its parameters are more precise.
const MEMORY: usize = 1 << 20;

/// A second memory size for tables, with room for every flow.
const ROOMY: usize = 128 << 20;

/// Parameters measured besides the defaults, for the algorithm of this name or for any that knows
/// them all.
struct Preset(Option<&'static str>, &'static [(&'static str, &'static str)]);

const PRESETS: &[Preset] = &[
    // Variants that tasks need, of algorithms that can keep one of several things.
    Preset(None, &[("of", "size")]),
    Preset(None, &[("state", "distinct")]),
    Preset(None, &[("state", "ewma")]),
    // The papers' sizes, and their linear table.
    Preset(Some("linear-table"), &[("layout", "inline")]),
    Preset(Some("count-min"), &[("rows", "3")]),
    Preset(Some("count-min"), &[("rows", "4"), ("columns", "65536")]),
    Preset(Some("count-min"), &[("rows", "5")]),
    Preset(Some("count-sketch"), &[("rows", "5")]),
    Preset(Some("reversible-sketch"), &[("rows", "4"), ("columns", "65536")]),
    Preset(Some("mrac"), &[("columns", "262144")]),
    Preset(Some("flow-radar"), &[("cells", "262144"), ("hashes", "4")]),
    Preset(Some("univmon"), &[("levels", "4"), ("columns", "65536"), ("top", "128")]),
    Preset(
        Some("univmon"),
        &[("levels", "14"), ("columns", "16384"), ("top", "1024"), ("sizes", "equal")],
    ),
    Preset(Some("space-saving"), &[("counters", "128")]),
    Preset(Some("stream-summary"), &[("counters", "128")]),
    Preset(Some("fm"), &[("bitmaps", "4")]),
    Preset(Some("linear-counting"), &[("bits", "8388608")]),
];

/// An accelerator with its parameters.
type Accelerator = (&'static str, &'static [(&'static str, &'static str)]);

/// The accelerators before which every algorithm that allows it is measured too.
const BEHIND: &[Accelerator] = &[
    ("agg-evict", &[("memory", "262144")]),
    ("skipper", &[]),
    ("uniform", &[]),
    ("flow-regulator", &[]),
    ("nitro", &[]),
];

/// An algorithm with its parameters and memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject {
    /// The accelerator before it, with its own memory.
    pub(crate) behind: Option<Accelerator>,
    /// Its description in the catalog.
    pub(crate) info: &'static Info,
    /// Its parameters.
    pub(crate) parameters: &'static [(&'static str, &'static str)],
    /// Its memory in bytes, unless the parameters are more precise.
    pub(crate) memory_bytes: usize,
}

impl Subject {
    /// The name in the table.
    pub(crate) fn name(&self) -> String {
        match self.behind {
            Some((accelerator, _)) => format!("{} behind {accelerator}", self.info.name),
            None => self.info.name.to_owned(),
        }
    }

    /// Its accelerators in the catalog's form.
    pub(crate) fn accelerators(&self) -> Vec<(String, Parameters)> {
        let accelerator = |(name, parameters): Accelerator| {
            (name.to_owned(), Parameters::new(parameters.iter().copied()))
        };
        self.behind.map(accelerator).into_iter().collect()
    }

    /// The parameters, otherwise the memory, as in the table.
    pub(crate) fn asked(&self) -> String {
        match self.parameters {
            [] => format!("memory={}", self.memory_bytes),
            some => some
                .iter()
                .map(|(name, value)| format!("{name}={value}"))
                .collect::<Vec<_>>()
                .join(","),
        }
    }

    /// The options to build it from.
    ///
    /// # Errors
    /// When the accelerator is invalid.
    pub(crate) fn options<K: Keys>(
        &self,
        threshold: Threshold,
        seed: u64,
    ) -> Result<Options, BuildError> {
        let options = Options::new(self.memory_bytes, seed).for_keys(K::BYTES);
        let options = Options { threshold, ..options };
        let before = catalog::accelerator_bytes::<K::Key>(&self.accelerators(), &options)?;
        let options = Options { memory_bytes: options.memory_bytes + before, ..options };
        Ok(options.with(self.parameters.iter().copied()))
    }

    /// Whether both are the same.
    pub(crate) fn is(&self, other: &Self) -> bool {
        let what = |subject: &Self| {
            let before = subject.behind.map(|(name, _)| name);
            (before, subject.info.name, subject.parameters, subject.memory_bytes)
        };
        what(self) == what(other)
    }

    /// The same subject with room for every flow.
    pub(crate) fn roomy(self) -> Self {
        Self { memory_bytes: ROOMY, ..self }
    }
}

/// The effective parameters of a summary and of its accelerators.
pub(crate) fn parameters<K: FlowKey>(summary: &dyn Summary<K>) -> String {
    let own = summary.parameters().into_iter().map(|(name, value)| format!("{name}={value}"));
    let before = summary.accelerators().into_iter().flat_map(|(accelerator, parameters)| {
        let named = move |(name, value)| format!("{accelerator}.{name}={value}");
        parameters.into_iter().map(named)
    });
    own.chain(before).collect::<Vec<_>>().join(",")
}

/// All selected subjects of the catalog.
pub(crate) fn all(selection: &Selection) -> Vec<Subject> {
    let names = &selection.algorithms;
    let among = |info: &&Info| names.is_empty() || names.iter().any(|name| name == info.name);
    ALGORITHMS.iter().filter(among).flat_map(of).collect()
}

fn of(info: &'static Info) -> impl Iterator<Item = Subject> {
    let knows = |name: &str| info.parameters.iter().any(|parameter| parameter.name == name);
    let presets = PRESETS.iter().filter(move |Preset(name, parameters)| {
        name.is_none_or(|name| name == info.name) && parameters.iter().all(|(name, _)| knows(name))
    });
    let default: &[(&str, &str)] = &[];
    let parameters = std::iter::once(default).chain(presets.map(|preset| preset.1));
    let able = |accelerator: &Accelerator| catalog::able(accelerator.0).contains(&info.name);
    let alone = parameters.map(|parameters| (None, parameters));
    let behind = BEHIND.iter().filter(move |accelerator| able(accelerator));
    let behind = behind.map(move |accelerator| (Some(*accelerator), default));
    alone.chain(behind).map(move |(behind, parameters)| Subject {
        behind,
        info,
        parameters,
        memory_bytes: MEMORY,
    })
}
