//! What stands before a summary and makes it cheaper: itself a [`Summary`], batch by batch.

mod agg_evict;
mod flow_regulator;
mod headers;
mod nitro;
mod sampler;

use crate::key::FlowKey;
use crate::summary::{Ability, BuildError, Laws, Options, Parameter, Parameters, Summary};

pub use agg_evict::AggEvict;
pub use flow_regulator::FlowRegulator;
pub(crate) use headers::check_order;
pub use headers::{HeaderRate, HeaderSampler, is_before_headers};
pub use nitro::NitroSketch;
pub use sampler::{Skipper, Uniform};

/// A type of accelerator, as the list has it.
pub trait Accelerate {
    /// Name, paper and parameters.
    const INFO: AcceleratorInfo;

    /// Whether it is sound, with these parameters, before a summary with these laws.
    ///
    /// # Errors
    /// When it is not, with the reason.
    fn fits(parameters: &Parameters, laws: &Laws) -> Result<(), &'static str>;

    /// What holds behind it of a summary with these laws: what other accelerators before it see.
    fn laws(summary: Laws) -> Laws {
        summary
    }

    /// What is left behind it of something that a summary with these laws answers.
    fn answers(parameters: &Parameters, laws: &Laws, ability: Ability) -> Option<Ability> {
        let _ = (parameters, laws);
        Some(ability)
    }

    /// Bytes that it reserves at most, before whatever summary.
    ///
    /// # Errors
    /// When a parameter is out of range.
    fn memory_bytes<K: FlowKey>(options: &Options) -> Result<usize, BuildError>;

    /// Puts it before a summary; the options' parameters are its own.
    ///
    /// # Errors
    /// When a parameter is out of range, or the memory does not suffice.
    fn build<K: FlowKey>(
        options: &Options,
        inner: Box<dyn Summary<K>>,
    ) -> Result<Box<dyn Summary<K>>, BuildError>;

    /// The weight that it passes on, at most, as a multiple of the weight that it takes: the summary
    /// behind it keeps its error within a share of the latter.
    ///
    /// # Errors
    /// When a parameter is out of range.
    fn inflation(parameters: &Parameters) -> Result<f64, BuildError> {
        let _ = parameters;
        Ok(1.0)
    }

    /// What sizes are worth behind it, in a sentence; `None` where they stay what they are.
    ///
    /// # Errors
    /// When a parameter is out of range.
    fn promise(parameters: &Parameters) -> Result<Option<String>, BuildError> {
        let _ = parameters;
        Ok(None)
    }
}

/// What the list says of an accelerator.
#[derive(Clone, Copy, Debug)]
pub struct AcceleratorInfo {
    /// The name on the command line.
    pub name: &'static str,
    /// One line: what it does.
    pub idea: &'static str,
    /// The paper and its section.
    pub paper: &'static str,
    /// Its parameters.
    pub parameters: &'static [Parameter],
    /// Memory in bytes, as a formula.
    pub memory: &'static str,
    /// Whether it passes on a sample of the packets: a summary behind it is another than one of all,
    /// and is stored as such; and it goes before no other of its kind.
    pub samples: bool,
}
