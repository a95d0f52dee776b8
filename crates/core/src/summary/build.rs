//! How a summary is described and built, so that the catalog is a list of types.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::ops::RangeInclusive;

use flowgauge_kernel::{Digester, Isa, Seed};

use super::{Form, Memory, Summary};
use crate::key::FlowKey;
use crate::terms::{Hierarchy, Measure, Threshold};
use crate::unknown::{Unknown, nearest};

/// A type of summary, as the catalog lists it.
pub trait Describe {
    /// Name, paper, parameters and laws.
    const INFO: Info;

    /// What holds of it with these parameters: no more than [`Info::laws`] says.
    fn laws(parameters: &Parameters) -> Laws {
        let _ = parameters;
        Self::INFO.laws
    }

    /// Whether it can measure what the options say, with keys of the digester's length, whatever the
    /// memory.
    ///
    /// # Errors
    /// When it cannot, with what could.
    fn fits(options: &Options) -> Result<(), BuildError> {
        let _ = options;
        Ok(())
    }

    /// Reserves the memory and builds the summary for keys of type `K`.
    ///
    /// # Errors
    /// As [`Self::fits`], when a parameter is out of range, or the memory does not suffice.
    fn build<K: FlowKey>(options: &Options) -> Result<Box<dyn Summary<K>>, BuildError>;
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
    /// What it answers, by its parameters; the default comes first. [`Self::form`] chooses.
    pub forms: &'static [Form],
    /// What holds of it, unless its parameters say otherwise: [`Describe::laws`].
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
#[expect(clippy::struct_excessive_bools, reason = "each is a law of its own")]
#[derive(Clone, Copy, Debug)]
pub struct Laws {
    /// Each flow has a counter of its own, unless the summary is full.
    pub flows: bool,
    /// The order of updates does not matter: where sums are [`Merge::Equal`] the numbers are the
    /// same, elsewhere the bounds hold.
    pub commutable: bool,
    /// Updates of one key may be summed to one weighted update.
    pub aggregatable: bool,
    /// What it is for are the sizes of flows, which a weighted sample of the packets keeps.
    pub sizes: bool,
    /// It draws a sample, so that the errors of parts, which are drawn alike, add up.
    pub samples: bool,
    /// It is rows of counters, into single ones of which packets may go: [`Summary::rows`].
    pub rows: bool,
    /// It is levels, each of which may be a sample of its own: [`Summary::levels`].
    pub levels: bool,
    /// How the sum of two summaries relates to the summary of the sum.
    pub merge: Merge,
}

impl Laws {
    /// Nothing holds but bounds.
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

/// What a merge gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merge {
    /// The same sizes as one summary of all packets would give, unless one of them was full. Of
    /// keys that are over a fixed weight, or spread, in the sum alone, some may not be named: the
    /// overflow of the candidates says so, unless the parts were built [`Options::apart`].
    Equal,
    /// Numbers within the bounds.
    WithinBounds,
    /// The same numbers, where no flow is in both of them.
    Disjoint,
}

/// What a summary is built from.
#[derive(Clone, Debug)]
pub struct Options {
    /// Its parameters.
    pub parameters: Parameters,
    /// Bytes that it is sized to fill, unless its parameters say more precisely.
    pub memory_bytes: usize,
    /// Where it reserves them.
    pub memory: Memory,
    /// Bytes that tasks need for each flow that the summary can list, within `memory_bytes`.
    pub task_bytes_per_flow: usize,
    /// Bytes that tasks need for each cell of a summary that gives them its cells, likewise.
    pub task_bytes_per_cell: usize,
    /// Canonical bytes of a key, where they are fewer than the longest key of its type has.
    pub key_bytes: Option<usize>,
    /// The digest function, with its seed. The catalog tells it the length of the keys.
    pub digester: Digester,
    /// What a summary of one measure counts.
    pub by: Measure,
    /// What makes a key heavy, for summaries that decide while the epoch runs.
    pub threshold: Threshold,
    /// What makes an address spread, likewise.
    pub spread: u64,
    /// The prefixes that a hierarchical summary counts.
    pub hierarchy: Hierarchy,
    /// Whether no flow is both in it and in what will be merged into it: what is heavy in the sum is
    /// then heavy in one of them, whatever the threshold.
    pub apart: bool,
}

impl Options {
    /// The defaults of the command line, for a summary of some `memory_bytes` bytes.
    pub fn new(memory_bytes: usize, seed: impl Into<Seed>) -> Self {
        Self {
            parameters: Parameters::default(),
            memory_bytes,
            memory: Memory::unlimited(),
            task_bytes_per_flow: 0,
            task_bytes_per_cell: 0,
            key_bytes: None,
            digester: Digester::new(seed.into(), Isa::best()),
            by: Measure::Packets,
            threshold: Threshold::Share(0.001),
            spread: 128,
            hierarchy: Hierarchy::Bytes,
            apart: false,
        }
    }

    /// The same for keys of `key_bytes` canonical bytes.
    #[must_use]
    pub fn for_keys(self, key_bytes: usize) -> Self {
        Self { key_bytes: Some(key_bytes), ..self }
    }

    /// The same with a digester for keys of type `K`.
    ///
    /// # Panics
    /// When no key of that type has as many bytes.
    pub(crate) fn digesting<K: FlowKey>(&self) -> Self {
        let key_bytes = self.key_bytes.unwrap_or(K::BYTES);
        assert!(K::holds(key_bytes), "no key of {key_bytes} bytes is stored in such words");
        Self { digester: self.digester.for_keys(key_bytes), ..self.clone() }
    }

    /// The same with these parameters.
    #[must_use]
    pub fn with(
        mut self,
        pairs: impl IntoIterator<Item = (impl Into<String>, impl ToString)>,
    ) -> Self {
        self.parameters = Parameters::new(pairs);
        self
    }
}

/// The value of a parameter in force.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Setting {
    /// A size or a count.
    Integer(u64),
    /// An error or a probability.
    Fraction(f64),
    /// One of the words that the parameter knows.
    Word(&'static str),
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(value) => value.fmt(f),
            Self::Fraction(value) => value.fmt(f),
            Self::Word(word) => word.fmt(f),
        }
    }
}

/// Parameters by name, as people write them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parameters(BTreeMap<String, String>);

impl Parameters {
    /// Parameters from names and values.
    pub fn new(pairs: impl IntoIterator<Item = (impl Into<String>, impl ToString)>) -> Self {
        // One by one: collected at once, they would be sorted first, by a sort of their own.
        let mut all = BTreeMap::new();
        all.extend(pairs.into_iter().map(|(name, value)| (name.into(), value.to_string())));
        Self(all)
    }

    /// The text of `name`, where it is given.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// The same, and `name` with this value.
    #[must_use]
    pub(crate) fn and(&self, name: &str, value: &str) -> Self {
        let mut all = self.0.clone();
        all.insert(name.to_owned(), value.to_owned());
        Self(all)
    }

    /// The whole number that `name` gives, within `range`.
    pub(crate) fn integer(
        &self,
        name: &'static str,
        range: RangeInclusive<u64>,
    ) -> Result<Option<u64>, BuildError> {
        let Some(text) = self.get(name) else { return Ok(None) };
        match text.parse() {
            Ok(value) if range.contains(&value) => Ok(Some(value)),
            _ => Err(BuildErrorKind::OutOfRange {
                name,
                value: text.to_owned(),
                range: format!("a whole number from {} to {}", range.start(), range.end()),
            }
            .into()),
        }
    }

    /// The number strictly between 0 and 1 that `name` gives: an error or a probability.
    pub(crate) fn fraction(&self, name: &'static str) -> Result<Option<f64>, BuildError> {
        let Some(text) = self.get(name) else { return Ok(None) };
        match text.parse::<f64>() {
            Ok(value) if value > 0.0 && value < 1.0 => Ok(Some(value)),
            _ => Err(BuildErrorKind::OutOfRange {
                name,
                value: text.to_owned(),
                range: "a number between 0 and 1, such as 0.001".to_owned(),
            }
            .into()),
        }
    }

    /// Divides the number that [`Self::fraction`] gives for `name`, where there is one.
    pub(crate) fn divide(&mut self, name: &'static str, by: f64) -> Result<(), BuildError> {
        if let Some(value) = self.fraction(name)? {
            self.0.insert(name.to_owned(), (value / by).to_string());
        }
        Ok(())
    }

    /// The one of `words` that `name` gives, or the first.
    pub(crate) fn word(
        &self,
        name: &'static str,
        words: &[&'static str],
    ) -> Result<&'static str, BuildError> {
        let Some(text) = self.get(name) else { return Ok(words[0]) };
        words.iter().copied().find(|word| *word == text).ok_or_else(|| {
            let meant = nearest(text, words.iter().copied())
                .map_or(String::new(), |meant| format!("; did you mean '{meant}'?"));
            let range = format!("one of {}{meant}", words.join(", "));
            BuildErrorKind::OutOfRange { name, value: text.to_owned(), range }.into()
        })
    }

    /// Refuses two ways of saying the same: a size beside a target.
    pub(crate) fn exclusive(
        &self,
        name: &'static str,
        others: &[&'static str],
    ) -> Result<(), BuildError> {
        match others.iter().find(|other| self.get(name).is_some() && self.get(other).is_some()) {
            Some(other) => Err(BuildErrorKind::Contradiction { name, other }.into()),
            None => Ok(()),
        }
    }

    /// Fails on the first name that is not among these.
    ///
    /// # Errors
    /// When a name is unknown; `of` is whom it was given to.
    pub fn check(&self, of: &'static str, known: &[Parameter]) -> Result<(), BuildError> {
        let unknown = |name: &&String| known.iter().all(|parameter| parameter.name != **name);
        match self.0.keys().find(unknown) {
            None => Ok(()),
            Some(name) => {
                let known = known.iter().map(|parameter| parameter.name);
                Err(Unknown { of: Some(of), ..Unknown::new("parameter", name, known) }.into())
            }
        }
    }

    /// The words of `word` items that `name` items fill, a power of two of them, or else the largest
    /// power of two of words of `word_bytes` bytes that fits into `memory_bytes`.
    pub(crate) fn words(
        &self,
        name: &'static str,
        word: usize,
        memory_bytes: usize,
        word_bytes: usize,
    ) -> Result<usize, BuildError> {
        let items = self.power_of_two(name, memory_bytes * (word / word_bytes), 1)?;
        match items / word {
            0 => Err(BuildErrorKind::OutOfRange {
                name,
                value: items.to_string(),
                range: format!("a power of two from {word}"),
            }
            .into()),
            words => Ok(words),
        }
    }

    /// The power of two that `name` gives, or else the largest whose items of `item_bytes` bytes
    /// fit into `memory_bytes`.
    pub(crate) fn power_of_two(
        &self,
        name: &'static str,
        memory_bytes: usize,
        item_bytes: usize,
    ) -> Result<usize, BuildError> {
        match self.get(name) {
            Some(text) => match text.parse::<u64>() {
                Ok(value) if value.is_power_of_two() && (2..=MOST_ITEMS).contains(&value) => {
                    Ok(value as usize)
                }
                _ => Err(BuildErrorKind::OutOfRange {
                    name,
                    value: text.to_owned(),
                    range: format!("a power of two from 2 to {MOST_ITEMS}"),
                }
                .into()),
            },
            None if memory_bytes / item_bytes < 2 => {
                Err(BuildErrorKind::TooLittleMemory { needed: 2 * item_bytes, given: memory_bytes }
                    .into())
            }
            None => Ok(1 << (memory_bytes / item_bytes).min(MOST_ITEMS as usize).ilog2()),
        }
    }
}

/// Indexes are 32 bits wide, and so are the column bits of the digest.
const MOST_ITEMS: u64 = 1 << 32;

/// Why a summary cannot be built: one word, since most code that meets it only hands it on.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct BuildError(Box<BuildErrorKind>);

impl BuildError {
    /// What is wrong.
    pub fn kind(&self) -> &BuildErrorKind {
        &self.0
    }
}

impl From<BuildErrorKind> for BuildError {
    #[cold]
    #[inline(never)]
    fn from(kind: BuildErrorKind) -> Self {
        Self(Box::new(kind))
    }
}

impl From<Unknown> for BuildError {
    fn from(unknown: Unknown) -> Self {
        BuildErrorKind::from(unknown).into()
    }
}

/// What is wrong with what a summary should be built from.
#[derive(Debug, thiserror::Error)]
pub enum BuildErrorKind {
    /// No algorithm, accelerator or parameter has this name.
    #[error(transparent)]
    Unknown(#[from] Unknown),
    /// A parameter has a value that it cannot have.
    #[error("'{name}={value}' is not {range}")]
    OutOfRange {
        /// The parameter.
        name: &'static str,
        /// Its value.
        value: String,
        /// What it may be.
        range: String,
    },
    /// Two parameters decide the same thing.
    #[error("{name} and {other} set the same value; give one of them")]
    Contradiction {
        /// One parameter.
        name: &'static str,
        /// The other.
        other: &'static str,
    },
    /// The algorithm cannot be concurrent.
    #[error(
        "{algorithm} cannot be concurrent: its updates do more than add to counters; leave out \
         --shared, or use {able}"
    )]
    NotConcurrent {
        /// The algorithm.
        algorithm: &'static str,
        /// The algorithms that can.
        able: String,
    },
    /// The structure cannot hold what it is asked to.
    #[error("{algorithm} cannot measure this: {reason}")]
    Unfit {
        /// The algorithm.
        algorithm: &'static str,
        /// Why not, and what could.
        reason: String,
    },
    /// The accelerator would change what the algorithm counts.
    #[error(
        "{accelerator} cannot stand before {algorithm}: {reason}; it supports {able}, with their \
         default parameters"
    )]
    Unsound {
        /// The accelerator.
        accelerator: &'static str,
        /// The algorithm.
        algorithm: &'static str,
        /// Why not.
        reason: &'static str,
        /// What it goes before.
        able: String,
    },
    /// The memory does not hold the smallest structure.
    #[error(
        "the memory limit of {given} bytes is too small: {needed} bytes are needed; raise \
             --memory"
    )]
    TooLittleMemory {
        /// Bytes needed.
        needed: usize,
        /// Bytes given.
        given: usize,
    },
    /// The operating system refused the memory.
    #[error("the operating system refused {bytes} bytes of memory: {error}; lower --memory")]
    Refused {
        /// Bytes asked for.
        bytes: usize,
        /// Its answer.
        error: io::Error,
    },
}
