//! Checks a configuration against the catalog before anything is built.

use flowgauge_core::catalog::{self, Outline};
use flowgauge_core::key::{KeyKind, KeySpec};
use flowgauge_core::summary::{
    Ability, BuildError, BuildErrorKind, Form, Info, Options, Parameters,
};
use flowgauge_core::task::{HistoryShape, Lane, TASKS, TaskEntry, USE_TABLE, Unsupported};
use flowgauge_core::terms::{Hierarchy, Measure};
use flowgauge_kernel::Seed;

use crate::builder::{build_tasks, entries};
use crate::config::Config;
use crate::crew::Division;
use crate::error::{Able, EngineError};
use crate::plan::check_values;

/// The outlines of the summaries of all measured lanes.
pub(crate) struct Outlines {
    key: KeySpec,
    lanes: Vec<(usize, Outline)>,
    /// The note on what is not measured, and why.
    pub(crate) note: Option<String>,
}

impl Outlines {
    /// The outlines of the key's lanes. An algorithm whose keys only fit IPv4 measures IPv4 alone:
    /// an operator would rather have that and the number of IPv6 packets than nothing.
    ///
    /// # Errors
    /// When the algorithm or an accelerator does not exist, or cannot measure this.
    fn new(config: &Config) -> Result<Self, BuildError> {
        check_addresses(config)?;
        let options = Options {
            parameters: config.parameters.clone(),
            by: config.by,
            spread: config.spread,
            hierarchy: config.hierarchy,
            // The answers do not depend on the seed.
            ..Options::new(0, ANY_SEED)
        };
        let lane = |&key_bytes: &usize| {
            let outline = if config.shared {
                Outline::concurrent(key_bytes, &config.algorithm, &options)
            } else {
                Outline::new(key_bytes, &config.accelerators, &config.algorithm, &options)
            };
            Ok::<_, BuildError>((key_bytes, outline?))
        };
        let (lanes, note) = match config.key.lanes() {
            [v4, v6] => match lane(v6) {
                Err::<_, BuildError>(unfit)
                    if matches!(unfit.kind(), BuildErrorKind::Unfit { .. }) =>
                {
                    let note = format!("IPv6 packets are counted as untracked: {unfit}");
                    (vec![lane(v4)?], Some(note))
                }
                fit => (vec![lane(v4)?, fit?], None),
            },
            lanes => (lanes.iter().map(lane).collect::<Result<_, _>>()?, None),
        };
        Ok(Self { key: config.key, lanes, note })
    }

    /// The lanes as the tasks would see them.
    pub(crate) fn lanes(&self) -> Vec<Lane<'_>> {
        let (key, lanes) = (self.key, self.lanes.iter());
        lanes.map(|(key_bytes, answers)| Lane { key, key_bytes: *key_bytes, answers }).collect()
    }
}

/// Refuses to count prefixes of a key that is not an address. The summary cannot check this, as it
/// only knows the width of keys.
fn check_addresses(config: &Config) -> Result<(), BuildError> {
    let info = catalog::info(&config.algorithm)?;
    let mut abilities = info.forms.iter().flat_map(|form| form.answers);
    // Concurrent summaries count no prefixes.
    let counts_prefixes =
        !config.shared && abilities.any(|ability| matches!(ability, Ability::Prefixes { .. }));
    let (key, kind) = (config.key, config.key.kind());
    let (kinds, of, keys) = match config.hierarchy {
        Hierarchy::Bytes | Hierarchy::Bits => (
            &[KeyKind::SOURCE, KeyKind::DESTINATION][..],
            "one address",
            if kind == KeyKind::PAIR {
                "--hierarchy pair, --key source or destination"
            } else {
                "--key source or destination"
            },
        ),
        Hierarchy::Pair => (&[KeyKind::PAIR][..], "source and destination", "--key pair"),
    };
    if !counts_prefixes || kinds.contains(&kind) {
        return Ok(());
    }
    // A table has the prefixes of each address of its keys.
    let has_them = !kind.is_in_order() && kinds.iter().any(|part| kind.has_all(*part));
    let table = if has_them { ", or --algorithm linear-table" } else { "" };
    let reason = format!("this hierarchy is over {of}, and the key is {key}; use {keys}{table}");
    Err(BuildErrorKind::Unfit { algorithm: info.name, reason }.into())
}

/// The first of the tasks that these lanes cannot answer, with the reason.
fn unanswered(
    config: &Config,
    lanes: &[Lane<'_>],
    entries: &[&'static TaskEntry],
) -> Result<Option<(&'static str, Unsupported)>, EngineError> {
    let shape = |lane: &Lane<'_>| HistoryShape { key_bytes: lane.key_bytes, flows: 0, cells: 0 };
    let history = lanes.iter().map(shape).collect();
    let tasks = build_tasks(config, Seed::number(ANY_SEED), entries, history)?;
    let refused =
        tasks.iter().find_map(|task| Some((task.name(), task.check(config.by, lanes).err()?)));
    Ok(refused)
}

/// A seed for code whose result does not depend on it.
const ANY_SEED: u64 = 0;

/// Checks a configuration: names, ranges, the order of accelerators, and whether its tasks can be
/// answered. Memory and the values of parameters are checked when the summaries are built.
///
/// # Errors
/// When something in the configuration does not exist or cannot be answered. The error names
/// alternatives.
pub(crate) fn check(config: &mut Config, seed: Seed) -> Result<(Outlines, Division), EngineError> {
    let (outlines, division) = measured(config, seed)?;
    if config.tasks.is_none() {
        choose(config, &outlines.lanes(), TASKS)?;
    } else if let Some((task, reason)) = unanswered(config, &outlines.lanes(), &entries(config)?)? {
        let able = able(config, task);
        let reason = advised(config, task, reason, &able);
        return Err(EngineError::Task { task, reason, able });
    }
    Ok((outlines, division))
}

/// Sets the task `quantiles` if these lanes answer it but none of the default tasks. A run without
/// answers is refused with the tasks of `entries` that can be answered, unless the measurement is
/// saved.
pub(crate) fn choose(
    config: &mut Config,
    lanes: &[Lane<'_>],
    entries: impl IntoIterator<Item = &'static TaskEntry>,
) -> Result<(), EngineError> {
    let mut answered = Vec::new();
    for entry in entries {
        if unanswered(config, lanes, &[entry])?.is_none() {
            answered.push(entry);
        }
    }
    if answered.iter().any(|entry| entry.by_default) {
        return Ok(());
    }
    let able: Vec<&str> = answered.iter().map(|entry| entry.name).collect();
    if able.contains(&QUANTILES) {
        config.tasks = Some(vec![QUANTILES.to_owned()]);
    } else if !config.save {
        return Err(EngineError::Nothing {
            algorithm: config.algorithm.clone(),
            able: able.join(" or "),
        });
    }
    Ok(())
}

/// A task that needs only packets.
const QUANTILES: &str = "quantiles";

/// A task that, like an audit, needs the sizes of given flows.
const FLOW_SIZE: &str = "flow-size";

/// Checks everything except whether the tasks can be answered.
fn measured(config: &Config, seed: Seed) -> Result<(Outlines, Division), EngineError> {
    check_values(config)?;
    entries(config)?;
    let outlines = Outlines::new(config)?;
    if config.audit.is_some() && outlines.lanes().iter().any(|lane| lane.answers.size().is_none()) {
        let algorithm = catalog::info(&config.algorithm)?.name;
        let able = able(&Config { audit: None, ..config.clone() }, FLOW_SIZE);
        return Err(EngineError::Audit { algorithm, able });
    }
    let division = Division::new(config, seed, &outlines.lanes())?;
    Ok((outlines, division))
}

/// The tasks that `algorithm` with its default parameters answers for this key and measure.
///
/// ```
/// use flowgauge_core::key::KeyKind;
/// use flowgauge_core::terms::Measure;
/// use flowgauge_engine::answered;
///
/// let tasks = answered(KeyKind::SOURCE.into(), Measure::Packets, "hyperloglog");
/// assert!(tasks.contains(&"cardinality") && !tasks.contains(&"top"));
/// ```
pub fn answered(key: KeySpec, by: Measure, algorithm: &str) -> Vec<&'static str> {
    let config = Config { key, by, algorithm: algorithm.to_owned(), ..Config::default() };
    let Ok(outlines) = Outlines::new(&config) else { return Vec::new() };
    let answers = |entry: &&'static TaskEntry| {
        unanswered(&config, &outlines.lanes(), &[*entry]).is_ok_and(|refused| refused.is_none())
    };
    TASKS.into_iter().filter(answers).map(|entry| entry.name).collect()
}

/// The configuration with the first algorithm that answers its tasks, and that algorithm in the
/// form of `--algorithm`. `None` if its own algorithm answers them, or if no other does.
///
/// ```
/// use flowgauge_engine::{Config, capable};
///
/// let config = Config {
///     algorithm: "hyperloglog".to_owned(),
///     tasks: Some(vec!["heavy-hitters".to_owned()]),
///     ..Config::default()
/// };
/// let (instead, algorithm) = capable(&config).expect("some algorithm lists heavy hitters");
/// assert!(algorithm.starts_with(&instead.algorithm));
/// assert!(capable(&instead).is_none());
/// ```
pub fn capable(config: &Config) -> Option<(Config, String)> {
    let check = |config: &Config| check(&mut config.clone(), Seed::number(ANY_SEED)).map(drop);
    let Err(EngineError::Task { able: Able { algorithms, alone: false }, .. }) = check(config)
    else {
        return None;
    };
    let instead = |spec: String| {
        let (algorithm, list) = spec.split_once(':').unwrap_or((&spec, ""));
        let parameters = list.split(',').filter_map(|pair| pair.split_once('='));
        let config = Config {
            algorithm: algorithm.to_owned(),
            parameters: Parameters::new(parameters),
            ..config.clone()
        };
        (config, spec)
    };
    algorithms.into_iter().map(instead).find(|(config, _)| check(config).is_ok())
}

/// The reason why `task` is not answered, with advice that a run otherwise like `config` can follow.
pub(crate) fn advised(
    config: &Config,
    task: &str,
    Unsupported(reason): Unsupported,
    able: &Able,
) -> Unsupported {
    let alone = || {
        let tasks = Some(vec![task.to_owned()]);
        let config = Config { accelerators: Vec::new(), tasks, ..config.clone() };
        check(&mut { config }, Seed::number(ANY_SEED)).is_ok()
    };
    let advice = match able.algorithms.first() {
        _ if !reason.contains(USE_TABLE) => return Unsupported(reason),
        _ if !config.accelerators.is_empty() && alone() => "leave out --accelerator".to_owned(),
        Some(first) if able.alone => format!("use --algorithm {first} without --accelerator"),
        Some(first) => format!("use --algorithm {first}"),
        None => return Unsupported(reason),
    };
    Unsupported(reason.replace(USE_TABLE, &advice))
}

/// The algorithms that answer `task` in a run otherwise like `config`, each with the parameters
/// that it needs.
pub(crate) fn able(config: &Config, task: &str) -> Able {
    let behind = able_among(config, task);
    if !behind.is_empty() || config.accelerators.is_empty() {
        return Able { algorithms: behind, alone: false };
    }
    let alone = Config { accelerators: Vec::new(), ..config.clone() };
    Able { algorithms: able_among(&alone, task), alone: true }
}

fn able_among(config: &Config, task: &str) -> Vec<String> {
    let named = |form: &Form, name: &str| {
        let parameters = form.parameters.iter().map(|(name, value)| format!("{name}={value}"));
        let parameters = parameters.collect::<Vec<_>>().join(",");
        if parameters.is_empty() { name.to_owned() } else { format!("{name}:{parameters}") }
    };
    let first = |info: &Info| {
        // Concurrent summaries only count; they have no optional forms.
        let forms = info.forms.iter().filter(|form| !config.shared || form.parameters.is_empty());
        let mut forms = forms.filter(|form| can(config, info.name, form, task));
        forms.next().map(|form| named(form, info.name))
    };
    catalog::ALGORITHMS.iter().filter_map(first).collect()
}

/// Whether a form of this algorithm answers the task in a run otherwise like `config`.
fn can(config: &Config, algorithm: &str, form: &Form, task: &str) -> bool {
    let config = Config {
        algorithm: algorithm.to_owned(),
        parameters: Parameters::new(form.parameters.iter().copied()),
        tasks: Some(vec![task.to_owned()]),
        ..config.clone()
    };
    let answers = |(outlines, _): (Outlines, Division)| {
        let refused = unanswered(&config, &outlines.lanes(), &entries(&config)?)?;
        Ok::<_, EngineError>(refused.is_none())
    };
    measured(&config, Seed::number(ANY_SEED)).and_then(answers).unwrap_or(false)
}
