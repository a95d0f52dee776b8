//! What stands before a summary and makes it cheaper: itself an [`Ingest`], batch by batch.

mod agg_evict;

use crate::key::FlowKey;
use crate::summary::{BuildError, Ingest, Laws, Options, Parameter};

pub use agg_evict::AggEvict;

/// A type of accelerator, as the list has it.
pub trait Accelerate {
    /// Name, paper and parameters.
    const INFO: AcceleratorInfo;

    /// Whether it is sound before a summary with these laws.
    ///
    /// # Errors
    /// When it is not, with the reason.
    fn fits(laws: &Laws) -> Result<(), &'static str>;

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
        inner: Box<dyn Ingest<K>>,
    ) -> Result<Box<dyn Ingest<K>>, BuildError>;
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
}
