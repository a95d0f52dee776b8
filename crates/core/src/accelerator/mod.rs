//! Accelerators: stages before a summary that make it cheaper. Each is itself a [`Summary`] that
//! takes batches and passes batches on.

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

/// An accelerator type in the catalog.
///
/// ```
/// use flowgauge_core::accelerator::{Accelerate, Skipper};
/// use flowgauge_core::catalog;
/// use flowgauge_core::summary::Parameters;
///
/// // A weighted sample of the packets preserves sizes, but not the number of flows.
/// let fits = |name| Skipper::fits(&Parameters::default(), &catalog::info(name).unwrap().laws);
/// assert!(fits("count-min").is_ok());
/// assert!(fits("hyperloglog").is_err());
/// ```
pub trait Accelerate {
    /// Name, paper and parameters.
    const INFO: AcceleratorInfo;

    /// Checks that the accelerator with these parameters is sound before a summary with these laws.
    ///
    /// # Errors
    /// The reason why it is not.
    fn fits(parameters: &Parameters, laws: &Laws) -> Result<(), &'static str>;

    /// The laws of a summary with these laws behind this accelerator, as other accelerators before
    /// it see them.
    fn laws(summary: Laws) -> Laws {
        summary
    }

    /// The ability that remains of `ability` behind this accelerator; `None` if none remains.
    fn answers(parameters: &Parameters, laws: &Laws, ability: Ability) -> Option<Ability> {
        let _ = (parameters, laws);
        Some(ability)
    }

    /// Upper bound of the memory that it reserves before any summary, in bytes.
    ///
    /// # Errors
    /// When a parameter is out of range.
    fn memory_bytes<K: FlowKey>(options: &Options) -> Result<usize, BuildError>;

    /// Builds it before the summary `inner`; the parameters of the options are its own.
    ///
    /// # Errors
    /// When a parameter is out of range, or the memory does not suffice.
    fn build<K: FlowKey>(
        options: &Options,
        inner: Box<dyn Summary<K>>,
    ) -> Result<Box<dyn Summary<K>>, BuildError>;

    /// The maximum ratio of the weight that it passes on to the weight that it takes. The summary
    /// behind it needs a smaller error by this factor.
    ///
    /// # Errors
    /// When a parameter is out of range.
    fn inflation(parameters: &Parameters) -> Result<f64, BuildError> {
        let _ = parameters;
        Ok(1.0)
    }

    /// The error that it adds to sizes, in a sentence; `None` where it adds none.
    ///
    /// # Errors
    /// When a parameter is out of range.
    fn promise(parameters: &Parameters) -> Result<Option<String>, BuildError> {
        let _ = parameters;
        Ok(None)
    }
}

/// The catalog entry of an accelerator.
///
/// ```
/// use flowgauge_core::catalog;
///
/// let uniform = catalog::accelerator_info("uniform").unwrap();
/// assert!(uniform.samples);
/// assert!(catalog::able("uniform").contains(&"count-min"));
/// ```
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
    /// The formula of its memory in bytes.
    pub memory: &'static str,
    /// Whether it passes on a sample of the packets. A summary of a sample is stored with the name
    /// of its sampler, and two samplers cannot be combined.
    pub samples: bool,
}
