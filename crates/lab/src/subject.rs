//! The measured subjects: each algorithm with one or more sets of parameters, and behind
//! accelerators.

use flowgauge_core::catalog::{self, ALGORITHMS};
use flowgauge_core::key::FlowKey;
use flowgauge_core::summary::{BuildError, Info, Options, Parameters, Summary};
use flowgauge_core::terms::Threshold;

use crate::args::Selection;

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
    pub(crate) fn options<K: FlowKey>(
        &self,
        threshold: Threshold,
        seed: u64,
    ) -> Result<Options, BuildError> {
        // Of IPv4 packets.
        let options = Options::new(self.memory_bytes, seed).for_keys(K::SHORTEST);
        let options = Options { threshold, ..options };
        let before = catalog::accelerator_bytes::<K>(&self.accelerators(), &options)?;
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
