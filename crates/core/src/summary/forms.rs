//! What an algorithm answers, as data: the catalog knows it without building a summary.

use super::{Info, Parameters, QuantileOf};
use crate::terms::Measure;

/// One way to build an algorithm, with what it then answers.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    /// The parameters that ask for it, with their values; none for the default.
    pub parameters: &'static [(&'static str, &'static str)],
    /// What it answers.
    pub answers: &'static [Ability],
}

/// Something that a summary answers: what [`Answers`] says "cannot" to unless it is listed.
///
/// [`Answers`]: super::Answers
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
    /// The number of flows of each size in packets, where these are counted.
    Distribution(Counted),
    /// Quantiles.
    Quantiles(QuantileOf),
    /// The number of distinct elements of each address, which it reads.
    Spread,
    /// When and how each flow was seen, in the details that it reads.
    Details,
    /// Forecasts from epoch to epoch.
    Forecasts,
    /// The counters of a linear sketch, in the measure of [`Options::by`].
    ///
    /// [`Options::by`]: super::Options::by
    Cells {
        /// Whether they are of a sample.
        sampled: bool,
    },
    /// Weights of prefixes, in the measure and of the hierarchy of the options.
    Prefixes {
        /// Whether they are of a sample.
        sampled: bool,
    },
}

/// The measures of a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// Packets alone.
    Packets,
    /// The measure of [`Options::by`] alone.
    ///
    /// [`Options::by`]: super::Options::by
    Asked,
    /// Packets and bytes.
    Both,
}

impl Counted {
    /// Whether a summary that was asked to count `by` also counts `measure`.
    pub fn has(self, measure: Measure, by: Measure) -> bool {
        match self {
            Self::Packets => measure == Measure::Packets,
            Self::Asked => measure == by,
            Self::Both => true,
        }
    }
}

impl Info {
    /// The form that these parameters ask for: of those that agree with them, the one that says most.
    pub fn form(&self, parameters: &Parameters) -> &'static Form {
        let asked = |form: &&Form| {
            form.parameters.iter().all(|(name, value)| parameters.get(name) == Some(*value))
        };
        let forms = self.forms.iter().filter(asked);
        forms.max_by_key(|form| form.parameters.len()).unwrap_or(&self.forms[0])
    }
}

/// A form: the parameters that ask for it, then what it answers.
macro_rules! form {
    ($($name:ident = $value:literal),+; $($answers:tt)*) => {
        $crate::summary::Form {
            parameters: &[$((stringify!($name), $value)),+],
            ..$crate::summary::forms::form![$($answers)*]
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
