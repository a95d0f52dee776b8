//! How an algorithm is described: a name, parameters, laws, and what it answers. With this and its
//! builder the catalog is a list of types.

use super::{BuildError, Options, Parameters, QuantileOf, Summary};
use crate::key::FlowKey;
use crate::terms::Measure;

/// An algorithm, as the catalog lists and builds it.
///
/// ```
/// use flowgauge_core::batch::Batch;
/// use flowgauge_core::key::{FlowKey, Key8};
/// use flowgauge_core::summary::{Describe, Options, sketch::CountMin};
///
/// let mut sketch = CountMin::build::<Key8>(&Options::new(1 << 20, 1).for_keys(4))?;
/// let mut batch = Batch::new();
/// batch.push(Key8::from_canonical(&[10, 0, 0, 1]).unwrap(), 1500, 0);
/// sketch.ingest(&mut batch);
/// let size = sketch.answers().size().unwrap().estimate(&[10, 0, 0, 1]);
/// assert!(size.packets.unwrap().value >= 1.0);
/// # Ok::<(), flowgauge_core::summary::BuildError>(())
/// ```
pub trait Describe {
    /// Name, paper, parameters and laws.
    const INFO: Info;

    /// The laws that hold with these parameters: at most those of [`Info::laws`].
    fn laws(parameters: &Parameters) -> Laws {
        let _ = parameters;
        Self::INFO.laws
    }

    /// Checks that it can measure what the options ask for, with keys of the digester's length,
    /// given enough memory.
    ///
    /// # Errors
    /// When it cannot, with the reason and the remedy.
    fn fits(options: &Options) -> Result<(), BuildError> {
        let _ = options;
        Ok(())
    }

    /// Reserves the memory and builds the summary for keys of type `K`.
    ///
    /// # Errors
    /// As [`Self::fits`], and when a parameter is out of range or the memory limit is too small.
    fn build<K: FlowKey>(options: &Options) -> Result<Box<dyn Summary<K>>, BuildError>;
}

/// The catalog's description of an algorithm.
///
/// ```
/// use flowgauge_core::catalog;
///
/// let info = catalog::info("count-min").unwrap();
/// assert!(info.parameters.iter().any(|parameter| parameter.name == "rows"));
/// assert!(!info.laws.flows, "a sketch has no counter for each flow");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Info {
    /// The name on the command line.
    pub name: &'static str,
    /// The idea, in one line.
    pub idea: &'static str,
    /// The paper and its section.
    pub paper: &'static str,
    /// Its parameters.
    pub parameters: &'static [Parameter],
    /// Memory in bytes: a formula of the parameters and of the key's size in memory.
    pub memory: &'static str,
    /// What it answers, depending on its parameters, the default first. [`Self::form`] chooses.
    pub forms: &'static [Form],
    /// The laws that hold, unless [`Describe::laws`] of its parameters says less.
    pub laws: Laws,
}

/// A parameter of a summary.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// The name on the command line.
    pub name: &'static str,
    /// Its meaning, unit and default.
    pub help: &'static str,
}

/// The properties of a summary that accelerators, workers and readers rely on.
///
/// ```
/// use flowgauge_core::catalog;
/// use flowgauge_core::summary::Parameters;
///
/// let laws = catalog::laws("linear-table", &Parameters::new([("state", "distinct")]))?;
/// assert!(laws.flows);
/// assert!(!laws.aggregatable, "a sum of packets has lost their peers");
/// # Ok::<(), flowgauge_core::summary::BuildError>(())
/// ```
#[expect(clippy::struct_excessive_bools, reason = "each is a law of its own")]
#[derive(Clone, Copy, Debug)]
pub struct Laws {
    /// Each flow has its own counter, unless the summary is full.
    pub flows: bool,
    /// The order of updates does not matter: numbers are the same if merges are [`Merge::Equal`],
    /// else the bounds hold.
    pub commutable: bool,
    /// Updates of one key may be summed up to one weighted update.
    pub aggregatable: bool,
    /// It estimates sizes of flows, which a weighted sample of the packets preserves.
    pub sizes: bool,
    /// It draws a sample. Parts draw alike, so their errors are correlated and add up.
    pub samples: bool,
    /// It consists of rows of counters, each of which may take its own sample: [`Summary::rows`].
    pub rows: bool,
    /// It consists of levels, each of which may have its own sampling rate: [`Summary::levels`].
    pub levels: bool,
    /// How a merged summary relates to one summary of all packets.
    pub merge: Merge,
}

impl Laws {
    /// Only bounds hold.
    pub const NONE: Self = Self {
        flows: false,
        commutable: false,
        aggregatable: false,
        sizes: false,
        samples: false,
        rows: false,
        levels: false,
        merge: Merge::WithinBounds,
    };
}

/// How a merged summary relates to one summary of all packets.
///
/// ```
/// use flowgauge_core::catalog;
/// use flowgauge_core::summary::Merge;
///
/// assert_eq!(catalog::info("count-min").unwrap().laws.merge, Merge::Equal);
/// assert_eq!(catalog::info("space-saving").unwrap().laws.merge, Merge::WithinBounds);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merge {
    /// It gives the same sizes, unless one of the parts was full. Keys that exceed a fixed weight
    /// or spread only in the sum may be missing; the candidates' overflow counts such merges,
    /// unless the parts were built with [`Options::apart`].
    Equal,
    /// Its numbers are within the bounds.
    WithinBounds,
    /// It gives the same numbers if no flow is in two parts.
    Disjoint,
}

/// What an algorithm answers with certain parameters. The catalog thus knows it without building
/// one.
///
/// ```
/// use flowgauge_core::catalog;
/// use flowgauge_core::summary::{Ability, Parameters};
///
/// let form = catalog::info("linear-table").unwrap().form(&Parameters::new([("state", "ewma")]));
/// assert!(form.answers.contains(&Ability::Forecasts));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Form {
    /// The parameters of this form, with their values; none for the default.
    pub parameters: &'static [(&'static str, &'static str)],
    /// What it then answers.
    pub answers: &'static [Ability],
}

/// One of the [`Answers`](super::Answers) that a summary gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ability {
    /// Every flow with its exact size.
    Flows,
    /// The size of a given flow.
    Size(Counted),
    /// Flows that it can name.
    Candidates,
    /// The number of flows.
    Cardinality,
    /// Σ f log₂ f over the flows, for entropy.
    WeightLogs(Counted),
    /// The number of flows of each size in packets, if it counts packets.
    Distribution(Counted),
    /// Quantiles.
    Quantiles(QuantileOf),
    /// The number of distinct elements of each address. It reads the elements of packets.
    Spread,
    /// When and how each flow was seen. It reads the details of packets.
    Details,
    /// Forecasts from epoch to epoch.
    Forecasts,
    /// The cells of a linear sketch, in the measure of [`Options::by`].
    Cells {
        /// Whether they are of a sample.
        sampled: bool,
    },
    /// Weights of prefixes, in the measure and hierarchy of the options.
    Prefixes {
        /// Whether they are of a sample.
        sampled: bool,
    },
}

/// The measures in which a summary counts.
///
/// ```
/// use flowgauge_core::summary::Counted;
/// use flowgauge_core::terms::Measure::{Bytes, Packets};
///
/// assert!(Counted::Both.has(Bytes, Packets));
/// assert!(!Counted::Asked.has(Bytes, Packets), "it counts only packets");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// Packets only.
    Packets,
    /// Only the measure of [`Options::by`].
    Asked,
    /// Packets and bytes.
    Both,
}

impl Counted {
    /// Whether a summary with the option `by` counts `measure`.
    pub fn has(self, measure: Measure, by: Measure) -> bool {
        match self {
            Self::Packets => measure == Measure::Packets,
            Self::Asked => measure == by,
            Self::Both => true,
        }
    }
}

impl Info {
    /// The form of these parameters: of those that agree with them, the one that sets most.
    pub fn form(&self, parameters: &Parameters) -> &'static Form {
        let asked = |form: &&Form| {
            form.parameters.iter().all(|(name, value)| parameters.get(name) == Some(*value))
        };
        let forms = self.forms.iter().filter(asked);
        forms.max_by_key(|form| form.parameters.len()).unwrap_or(&self.forms[0])
    }
}

/// Makes a [`Form`]: its parameters, a semicolon, and what it answers.
macro_rules! form {
    ($($name:ident = $value:literal),+; $($answers:tt)*) => {
        $crate::summary::Form {
            parameters: &[$((stringify!($name), $value)),+],
            ..$crate::summary::describe::form![$($answers)*]
        }
    };
    ($($ability:ident $(($of:expr))? $({$($part:tt)*})?),*) => {
        $crate::summary::Form {
            parameters: &[],
            answers: &[$($crate::summary::Ability::$ability $(($of))? $({$($part)*})?),*],
        }
    };
}
pub(crate) use form;
