//! What a summary is built from: options, parameters and a memory limit; and why it cannot be
//! built.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytemuck::Zeroable;
use flowgauge_kernel::{Blank, Digester, Isa, Seed, Zeroed};

use super::Parameter;
use crate::key::FlowKey;
use crate::terms::{Hierarchy, Measure, Threshold};
use crate::unknown::{Unknown, nearest};

/// The options of a summary, common to all algorithms, and its parameters.
///
/// ```
/// use flowgauge_core::catalog;
/// use flowgauge_core::key::Key16;
/// use flowgauge_core::summary::{Options, Setting};
///
/// let options = Options::new(1 << 20, 1).with([("rows", 4), ("columns", 1024)]).for_keys(13);
/// let sketch = catalog::build::<Key16>("count-min", &options)?;
/// assert_eq!(sketch.parameters()[0], ("rows", Setting::Integer(4)));
/// assert!(sketch.memory_bytes() <= 1 << 20);
/// # Ok::<(), flowgauge_core::summary::BuildError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    /// The algorithm's parameters.
    pub parameters: Parameters,
    /// The memory in bytes that the summary is sized for, unless parameters set its size.
    pub memory_bytes: usize,
    /// The limit that it reserves memory from.
    pub memory: Memory,
    /// Bytes per flow, of `memory_bytes`, that tasks need if the summary lists flows.
    pub task_bytes_per_flow: usize,
    /// Bytes per cell, of `memory_bytes`, that tasks need if the summary hands out its cells.
    pub task_bytes_per_cell: usize,
    /// Canonical bytes of a key, if fewer than the longest key of its type has.
    pub key_bytes: Option<usize>,
    /// The digest function and its seed. [`Self::for_keys`] and the catalog set the length of the
    /// keys.
    pub digester: Digester,
    /// The measure of a summary that counts only one.
    pub by: Measure,
    /// The heavy-hitter threshold, for summaries that decide while the epoch runs.
    pub threshold: Threshold,
    /// The distinct-peer threshold of a superspreader, likewise.
    pub spread: u64,
    /// The prefixes that a hierarchical summary counts.
    pub hierarchy: Hierarchy,
    /// Whether no flow is both in this summary and in one that will be merged into it. A flow that
    /// is heavy in the sum is then heavy in one of them, whatever the threshold.
    pub apart: bool,
}

impl Options {
    /// The defaults of the command line, for a summary of about `memory_bytes` bytes.
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

    /// Sets the length of keys to `key_bytes` canonical bytes.
    #[must_use]
    pub fn for_keys(self, key_bytes: usize) -> Self {
        let digester = self.digester.for_keys(key_bytes);
        Self { key_bytes: Some(key_bytes), digester, ..self }
    }

    /// The digester for keys of type `K`.
    ///
    /// # Panics
    /// When no key of that type has `key_bytes` bytes.
    pub(crate) fn digester_for<K: FlowKey>(&self) -> Digester {
        let key_bytes = self.key_bytes.unwrap_or(K::BYTES);
        assert!(K::holds(key_bytes), "no key of {key_bytes} bytes is stored in such words");
        self.digester.for_keys(key_bytes)
    }

    /// Sets the digester to keys of type `K`.
    ///
    /// # Panics
    /// As [`Self::digester_for`].
    pub(crate) fn digesting<K: FlowKey>(&self) -> Self {
        Self { digester: self.digester_for::<K>(), ..self.clone() }
    }

    /// Replaces the parameters.
    #[must_use]
    pub fn with(
        mut self,
        pairs: impl IntoIterator<Item = (impl Into<String>, impl ToString)>,
    ) -> Self {
        self.parameters = Parameters::new(pairs);
        self
    }
}

/// A memory limit: the bytes that summaries may still reserve. It also bounds decoders, whatever
/// their input says.
///
/// ```
/// use flowgauge_core::summary::Memory;
///
/// let memory = Memory::limited(1000);
/// let counters = memory.zeroed::<u32>(200)?;
/// assert!(counters.iter().all(|counter| *counter == 0));
/// assert!(memory.zeroed::<u32>(51).is_err(), "only 200 bytes are left");
/// # Ok::<(), flowgauge_core::summary::BuildError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Memory {
    left: Cell<usize>,
    /// If memory is to be locked: the bytes that the operating system refused to lock.
    unlocked: Option<Arc<AtomicUsize>>,
}

impl Memory {
    /// No limit but that of the operating system.
    pub fn unlimited() -> Self {
        Self::limited(usize::MAX)
    }

    /// A limit of `bytes`.
    pub fn limited(bytes: usize) -> Self {
        Self { left: Cell::new(bytes), unlocked: None }
    }

    /// The same limit for memory that is faulted in and locked as it is reserved. Bytes that the
    /// operating system refuses to lock are added to `unlocked`, and faulted in anyway.
    #[must_use]
    pub fn locked(self, unlocked: &Arc<AtomicUsize>) -> Self {
        Self { unlocked: Some(Arc::clone(unlocked)), ..self }
    }

    /// Reserves `len` zeroed items.
    ///
    /// # Errors
    /// When they exceed what is left of the limit, or the operating system refuses them.
    pub fn zeroed<T: Zeroable>(&self, len: usize) -> Result<Zeroed<T>, BuildError> {
        Ok(Zeroed::of(self.reserve(len.saturating_mul(size_of::<T>()))?, len))
    }

    #[inline(never)]
    fn reserve(&self, bytes: usize) -> Result<Blank, BuildError> {
        self.take(bytes)?;
        let memory = Blank::new(bytes).map_err(|error| BuildErrorKind::Refused { bytes, error })?;
        let Some(unlocked) = &self.unlocked else { return Ok(memory) };
        let (memory, is_locked) = memory.locked();
        if !is_locked {
            unlocked.fetch_add(bytes, Ordering::Relaxed);
        }
        Ok(memory)
    }

    /// Counts `bytes` that are reserved elsewhere.
    ///
    /// # Errors
    /// When they exceed what is left of the limit.
    #[inline(never)]
    pub fn take(&self, bytes: usize) -> Result<(), BuildError> {
        let left = self.left.get();
        let rest = left
            .checked_sub(bytes)
            .ok_or(BuildErrorKind::TooLittleMemory { needed: bytes, given: left })?;
        self.left.set(rest);
        Ok(())
    }
}

/// The effective value of a parameter.
///
/// ```
/// use flowgauge_core::catalog;
/// use flowgauge_core::key::Key8;
/// use flowgauge_core::summary::{Options, Setting};
///
/// let options = Options::new(1 << 20, 1).for_keys(4).with([("epsilon", 0.01)]);
/// let summary = catalog::build::<Key8>("space-saving", &options)?;
/// assert_eq!(summary.parameters(), [("counters", Setting::Integer(100))]);
/// # Ok::<(), flowgauge_core::summary::BuildError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Setting {
    /// A size or a count.
    Integer(u64),
    /// An error or a probability.
    Fraction(f64),
    /// One of the parameter's words.
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

/// Parameters as text, by name.
///
/// ```
/// use flowgauge_core::catalog;
/// use flowgauge_core::summary::Parameters;
///
/// let parameters = Parameters::new([("rows", 4), ("depth", 1)]);
/// assert_eq!(parameters.get("rows"), Some("4"));
/// let known = catalog::info("count-min").unwrap().parameters;
/// assert!(parameters.check("count-min", known).is_err(), "it has no parameter 'depth'");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parameters(BTreeMap<String, String>);

impl Parameters {
    /// Parameters from names and values.
    pub fn new(pairs: impl IntoIterator<Item = (impl Into<String>, impl ToString)>) -> Self {
        // `collect` would first sort all pairs, and compile a sort of its own for it.
        let mut all = BTreeMap::new();
        all.extend(pairs.into_iter().map(|(name, value)| (name.into(), value.to_string())));
        Self(all)
    }

    /// The text of the parameter `name`, if it is given.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Adds or replaces the parameter `name`.
    #[must_use]
    pub(crate) fn and(&self, name: &str, value: &str) -> Self {
        let mut all = self.0.clone();
        all.insert(name.to_owned(), value.to_owned());
        Self(all)
    }

    /// The value of `name`, an integer within `range`.
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

    /// The value of `name`, a number strictly between 0 and 1: an error or a probability.
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

    /// Divides the fraction of `name`, if it is given.
    pub(crate) fn divide(&mut self, name: &'static str, by: f64) -> Result<(), BuildError> {
        if let Some(value) = self.fraction(name)? {
            self.0.insert(name.to_owned(), (value / by).to_string());
        }
        Ok(())
    }

    /// The value of `name`, one of `words`; the first one by default.
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

    /// Refuses parameters that set the same value, such as a size and an error target.
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

    /// Checks that all names are among the `known` parameters of the algorithm or accelerator `of`.
    ///
    /// # Errors
    /// When a name is unknown.
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

    /// The number of words, a power of two, for the `name` items, `word` of which fill a word; by
    /// default the largest number of words of `word_bytes` bytes that fits into `memory_bytes`.
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

    /// The value of `name`, a power of two; by default the largest number of items of `item_bytes`
    /// bytes that fit into `memory_bytes`.
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

/// Indexes have 32 bits, and so have the bits of the digest that choose a column.
const MOST_ITEMS: u64 = 1 << 32;

/// Why a summary cannot be built. Boxed to one word, since most code only passes it on.
///
/// ```
/// use flowgauge_core::key::Key8;
/// use flowgauge_core::{catalog, summary::BuildErrorKind, summary::Options};
///
/// let options = Options::new(1 << 20, 1).for_keys(4).with([("columns", 1000)]);
/// let error = catalog::build::<Key8>("count-array", &options).err().unwrap();
/// assert!(matches!(error.kind(), BuildErrorKind::OutOfRange { name: "columns", .. }));
/// ```
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

/// What is wrong with the options of a summary.
#[derive(Debug, thiserror::Error)]
pub enum BuildErrorKind {
    /// No algorithm, accelerator or parameter has this name.
    #[error(transparent)]
    Unknown(#[from] Unknown),
    /// A parameter has an invalid value.
    #[error("'{name}={value}' is not {range}")]
    OutOfRange {
        /// The parameter.
        name: &'static str,
        /// Its value.
        value: String,
        /// The valid values.
        range: String,
    },
    /// Two parameters set the same value.
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
    /// The algorithm cannot measure what is asked for.
    #[error("{algorithm} cannot measure this: {reason}")]
    Unfit {
        /// The algorithm.
        algorithm: &'static str,
        /// The reason and the remedy.
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
        /// The reason.
        reason: &'static str,
        /// The algorithms that it supports.
        able: String,
    },
    /// The memory limit is too small for the smallest structure.
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
        /// The operating system's error.
        error: io::Error,
    },
}
