//! How a summary is described and built, so that the catalog is a list of types.

use std::collections::BTreeMap;
use std::io;

use flowgauge_kernel::Digester;

use super::{Ingest, Measure};
use crate::key::FlowKey;
use crate::task::Threshold;

/// A type of summary, as the catalog lists it.
pub trait Describe {
    /// Name, paper, parameters and laws.
    const INFO: Info;

    /// Reserves the memory and builds the summary for keys of type `K`.
    ///
    /// # Errors
    /// When a parameter is out of range, or the memory does not suffice.
    fn build<K: FlowKey>(options: &Options) -> Result<Box<dyn Ingest<K>>, BuildError>;
}

/// What the catalog says of a summary.
#[derive(Clone, Copy, Debug)]
pub struct Info {
    /// The name on the command line.
    pub name: &'static str,
    /// One line: what it is.
    pub idea: &'static str,
    /// The paper and its section.
    pub paper: &'static str,
    /// Its parameters.
    pub parameters: &'static [Parameter],
    /// Memory in bytes, as a formula of the parameters and of the key's size in memory.
    pub memory: &'static str,
    /// What holds of it.
    pub laws: Laws,
}

/// A parameter of a summary.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// The name on the command line.
    pub name: &'static str,
    /// What it is, with its unit and default.
    pub help: &'static str,
}

/// What accelerators, workers and readers may rely on.
#[derive(Clone, Copy, Debug)]
pub struct Laws {
    /// The order of updates does not matter.
    pub commutable: bool,
    /// Updates of one key may be summed to one weighted update.
    pub aggregatable: bool,
    /// How the sum of two summaries relates to the summary of the sum.
    pub merge: Merge,
}

/// What a merge gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merge {
    /// The same numbers as one summary of all packets would give, unless one of them was full.
    Equal,
    /// Numbers within the bounds.
    WithinBounds,
}

/// What a summary is built from.
#[derive(Clone, Debug)]
pub struct Options {
    /// Its parameters.
    pub parameters: Parameters,
    /// Bytes that it may reserve, unless its parameters say more precisely.
    pub memory_bytes: usize,
    /// Bytes that tasks need for each flow that the summary can list, within `memory_bytes`.
    pub task_bytes_per_flow: usize,
    /// The digest function, with its seed.
    pub digester: Digester,
    /// What a summary of one measure counts.
    pub by: Measure,
    /// What makes a key heavy, for summaries that decide while the epoch runs.
    pub threshold: Threshold,
}

/// Parameters by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parameters(BTreeMap<String, u64>);

impl Parameters {
    /// Parameters from names and values.
    pub fn new(pairs: impl IntoIterator<Item = (String, u64)>) -> Self {
        Self(pairs.into_iter().collect())
    }

    /// The value of `name`, where it is given.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.0.get(name).copied()
    }

    /// Fails on the first name that `info` does not list.
    ///
    /// # Errors
    /// When a name is unknown.
    pub fn check(&self, info: &Info) -> Result<(), BuildError> {
        let known = |name: &str| info.parameters.iter().any(|parameter| parameter.name == name);
        match self.0.keys().find(|name| !known(name)) {
            None => Ok(()),
            Some(name) => Err(BuildError::UnknownParameter {
                algorithm: info.name,
                name: name.clone(),
                known: info.parameters.iter().map(|p| p.name).collect::<Vec<_>>().join(", "),
            }),
        }
    }

    /// The power of two that `name` gives, or else the largest whose items of `item_bytes` bytes
    /// fit into `memory_bytes`.
    pub(super) fn power_of_two(
        &self,
        name: &'static str,
        memory_bytes: usize,
        item_bytes: usize,
    ) -> Result<usize, BuildError> {
        match self.get(name) {
            Some(value) if value.is_power_of_two() && (2..=MOST_ITEMS).contains(&value) => {
                Ok(value as usize)
            }
            Some(value) => Err(BuildError::NotPowerOfTwo { name, value }),
            None if memory_bytes / item_bytes < 2 => {
                Err(BuildError::TooLittleMemory { needed: 2 * item_bytes, given: memory_bytes })
            }
            None => Ok(1 << (memory_bytes / item_bytes).min(MOST_ITEMS as usize).ilog2()),
        }
    }
}

/// Indexes are 32 bits wide, and so are the column bits of the digest.
const MOST_ITEMS: u64 = 1 << 32;

/// Why a summary cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// No algorithm has this name.
    #[error("no algorithm is called '{name}'; there are {known}")]
    UnknownAlgorithm {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// The algorithm has no such parameter.
    #[error("{algorithm} has no parameter '{name}'; it has {known}")]
    UnknownParameter {
        /// The algorithm.
        algorithm: &'static str,
        /// What was given.
        name: String,
        /// What there is.
        known: String,
    },
    /// A size that must be a power of two is not.
    #[error("{name}={value} is no power of two from 2 to 4294967296")]
    NotPowerOfTwo {
        /// The parameter.
        name: &'static str,
        /// Its value.
        value: u64,
    },
    /// The memory does not hold the smallest structure.
    #[error("{given} bytes of memory are too few, {needed} are needed; raise --memory")]
    TooLittleMemory {
        /// Bytes needed.
        needed: usize,
        /// Bytes given.
        given: usize,
    },
    /// The operating system refused the memory.
    #[error("the operating system refused {bytes} bytes of memory: {error}; ask for less")]
    Refused {
        /// Bytes asked for.
        bytes: usize,
        /// Its answer.
        error: io::Error,
    },
}
