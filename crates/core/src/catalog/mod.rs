//! The lists of algorithms and of accelerators. Adding one takes a file and a line here.
//!
//! ```
//! use flowgauge_core::batch::Batch;
//! use flowgauge_core::catalog;
//! use flowgauge_core::key::{FlowKey, Key8};
//! use flowgauge_core::summary::Options;
//!
//! let options = Options::new(1 << 16, 1).for_keys(4);
//! let mut summary = catalog::build::<Key8>("count-min", &options).unwrap();
//! let key = Key8::from_canonical(&[10, 0, 0, 1]).unwrap();
//! let mut batch = Batch::new();
//! batch.push(key, 60, 0);
//! summary.ingest(&mut batch);
//! let size = summary.answers().size().unwrap().estimate(key.canonical(4));
//! assert_eq!(size.packets.unwrap().value, 1.0);
//! ```

mod outline;
pub mod stored;

pub use outline::Outline;

use crate::accelerator::{
    self, Accelerate, AcceleratorInfo, AggEvict, FlowRegulator, NitroSketch, Skipper, Uniform,
};
use crate::key::FlowKey;
use crate::summary::array::{CountArray, Mrac, ReplacingArray};
use crate::summary::concurrent::{Concurrent, ConcurrentIngest};
use crate::summary::counter::{Csm, MisraGries, NetFlow, SketchVisor, SpaceSaving, StreamSummary};
use crate::summary::distinct::{Fm, HyperLogLog, LinearCounting};
use crate::summary::hierarchy::{Mst, Rhhh};
use crate::summary::instant::{InstaMeasure, Rcc};
use crate::summary::quantile::Kll;
use crate::summary::sketch::{
    ConservativeCountMin, CountMin, CountSketch, ElasticSketch, FlowRadar, KAry, ReversibleSketch,
    TwoLevel, UnivMon,
};
use crate::summary::table::{Cuckoo1, Cuckoo4, IndirectTable, LinearTable};
use crate::summary::{
    Ability, BuildError, BuildErrorKind, Describe, Info, Laws, Options, Parameters, Summary,
};
use crate::unknown::Unknown;

macro_rules! catalog {
    ($($summary:ty),* $(,)?) => {
        /// Every algorithm, in the order of `flowgauge list`.
        pub const ALGORITHMS: &[Info] = &[$(<$summary as Describe>::INFO),*];

        /// Builds the algorithm called `name` for keys of type `K`.
        ///
        /// # Errors
        /// When there is no such algorithm, or it cannot be built from these options.
        pub fn build<K: FlowKey>(
            name: &str,
            options: &Options,
        ) -> Result<Box<dyn Summary<K>>, BuildError> {
            let info = info(name)?;
            options.parameters.check(info.name, info.parameters)?;
            let options = options.digesting::<K>();
            $(if name == <$summary as Describe>::INFO.name {
                return <$summary as Describe>::build::<K>(&options);
            })*
            Err(unknown(name))
        }

        /// Checks that the algorithm called `name` can measure what the options ask for.
        ///
        /// # Errors
        /// When it cannot, or there is no such algorithm, or it has no such parameter.
        fn fits_options(name: &str, options: &Options) -> Result<(), BuildError> {
            let info = info(name)?;
            options.parameters.check(info.name, info.parameters)?;
            $(if name == <$summary as Describe>::INFO.name {
                return <$summary as Describe>::fits(options);
            })*
            Err(unknown(name))
        }

        /// The laws of the algorithm called `name` with these parameters.
        ///
        /// # Errors
        /// When there is no such algorithm, or it has no such parameter.
        pub fn laws(name: &str, parameters: &Parameters) -> Result<Laws, BuildError> {
            let info = info(name)?;
            parameters.check(info.name, info.parameters)?;
            $(if name == <$summary as Describe>::INFO.name {
                return Ok(<$summary as Describe>::laws(parameters));
            })*
            Err(unknown(name))
        }
    };
}

catalog![
    LinearTable,
    IndirectTable,
    Cuckoo1,
    Cuckoo4,
    CountArray,
    ReplacingArray,
    Mrac,
    LinearCounting,
    Fm,
    HyperLogLog,
    CountMin,
    ConservativeCountMin,
    CountSketch,
    KAry,
    ReversibleSketch,
    TwoLevel,
    UnivMon,
    FlowRadar,
    ElasticSketch,
    SpaceSaving,
    StreamSummary,
    MisraGries,
    SketchVisor,
    Csm,
    NetFlow,
    Rcc,
    InstaMeasure,
    Mst,
    Rhhh,
    Kll,
];

macro_rules! concurrent {
    ($($summary:ty),* $(,)?) => {
        /// The names of the algorithms that can be concurrent: several workers fill one summary.
        pub const CONCURRENT: &[&str] = &[$(<$summary as Describe>::INFO.name),*];

        /// Builds a concurrent summary of the algorithm called `name` for keys of type `K`. The
        /// memory limit includes the ordinary summary that its counts move to.
        ///
        /// # Errors
        /// When there is no such algorithm, when it cannot be concurrent, or not with these
        /// parameters, and as [`build`].
        pub fn build_concurrent<K: FlowKey>(
            name: &str,
            options: &Options,
        ) -> Result<Box<dyn ConcurrentIngest<K>>, BuildError> {
            let known = info(name)?;
            options.parameters.check(known.name, known.parameters)?;
            let options = options.digesting::<K>();
            $(if name == <$summary as Describe>::INFO.name {
                return <$summary as Concurrent>::build_concurrent::<K>(&options);
            })*
            Err(not_concurrent(known))
        }
    };
}

concurrent![LinearTable, CountArray, CountMin, CountSketch, KAry];

macro_rules! accelerators {
    ($($accelerator:ty),* $(,)?) => {
        /// Every accelerator, in the order of `flowgauge list`.
        pub const ACCELERATORS: &[AcceleratorInfo] = &[$(<$accelerator as Accelerate>::INFO),*];

        /// Checks that the accelerator called `name` with these parameters is sound before a
        /// summary with these laws.
        ///
        /// # Errors
        /// The reason why it is not.
        fn fits(name: &str, parameters: &Parameters, laws: &Laws) -> Result<(), &'static str> {
            $(if name == <$accelerator as Accelerate>::INFO.name {
                return <$accelerator as Accelerate>::fits(parameters, laws);
            })*
            Err("there is no such accelerator")
        }

        /// The laws of a summary with these laws behind the accelerator called `name`. Rows and
        /// levels are visible only to the accelerator right before the summary.
        fn laws_behind(name: &str, laws: Laws) -> Laws {
            $(if name == <$accelerator as Accelerate>::INFO.name {
                return Laws { rows: false, levels: false, ..<$accelerator as Accelerate>::laws(laws) };
            })*
            laws
        }

        /// The answers of a summary with these laws behind the accelerator called `name`.
        fn answers_behind(
            name: &str,
            parameters: &Parameters,
            laws: &Laws,
            mut answers: Vec<Ability>,
        ) -> Vec<Ability> {
            $(if name == <$accelerator as Accelerate>::INFO.name {
                let behind =
                    |ability| <$accelerator as Accelerate>::answers(parameters, laws, ability);
                answers = answers.into_iter().filter_map(behind).collect();
            })*
            answers
        }

        /// Upper bound of the memory that the accelerator itself reserves, in bytes.
        fn own_bytes<K: FlowKey>(
            name: &str,
            options: &Options,
        ) -> Result<usize, BuildError> {
            check_accelerator(name, &options.parameters)?;
            $(if name == <$accelerator as Accelerate>::INFO.name {
                return <$accelerator as Accelerate>::memory_bytes::<K>(options);
            })*
            Err(unknown_accelerator(name))
        }

        /// The error that the accelerator called `name` adds to sizes with these parameters, in a
        /// sentence; `None` where it adds none.
        ///
        /// # Errors
        /// When there is no such accelerator, or a parameter is out of range.
        pub fn promise(
            name: &str,
            parameters: &Parameters,
        ) -> Result<Option<String>, BuildError> {
            $(if name == <$accelerator as Accelerate>::INFO.name {
                return <$accelerator as Accelerate>::promise(parameters);
            })*
            Err(unknown_accelerator(name))
        }

        fn inflation(name: &str, parameters: &Parameters) -> Result<f64, BuildError> {
            $(if name == <$accelerator as Accelerate>::INFO.name {
                return <$accelerator as Accelerate>::inflation(parameters);
            })*
            Err(unknown_accelerator(name))
        }

        fn put_before<K: FlowKey>(
            name: &str,
            options: &Options,
            inner: Box<dyn Summary<K>>,
        ) -> Result<Box<dyn Summary<K>>, BuildError> {
            $(if name == <$accelerator as Accelerate>::INFO.name {
                return <$accelerator as Accelerate>::build(options, inner);
            })*
            Err(unknown_accelerator(name))
        }
    };
}

accelerators![AggEvict, NitroSketch, Skipper, Uniform, FlowRegulator];

/// Builds the algorithm called `name` for keys of type `K` behind accelerators with their
/// parameters, outermost first. The memory of the options is for all of them together.
///
/// # Errors
/// Those of [`build`], and when an accelerator does not exist, cannot be built, or is not sound at
/// its place.
pub fn build_accelerated<K: FlowKey>(
    accelerators: &[(String, Parameters)],
    name: &str,
    options: &Options,
) -> Result<Box<dyn Summary<K>>, BuildError> {
    if accelerators.is_empty() {
        return build(name, options);
    }
    sound(accelerators, name, &options.parameters)?;
    let options = options.digesting::<K>();
    let mut inner = options.clone();
    let mut own: Vec<(&str, Options)> = Vec::new();
    for (accelerator, parameters) in accelerators {
        inner.parameters.divide("epsilon", inflation(accelerator, parameters)?)?;
        let options = Options { parameters: parameters.clone(), ..options.clone() };
        let bytes = own_bytes::<K>(accelerator, &options)?;
        inner.memory_bytes = inner.memory_bytes.saturating_sub(bytes);
        own.push((accelerator, options));
    }
    let mut summary = build::<K>(name, &inner)?;
    let mut memory = inner.memory;
    for (accelerator, mut options) in own.into_iter().rev() {
        options.memory = memory;
        summary = put_before(accelerator, &options, summary)?;
        memory = options.memory;
    }
    Ok(summary)
}

/// Upper bound of the memory that these accelerators reserve of that of the options, in bytes.
///
/// # Errors
/// When one of them does not exist, or a parameter is out of range.
pub fn accelerator_bytes<K: FlowKey>(
    accelerators: &[(String, Parameters)],
    options: &Options,
) -> Result<usize, BuildError> {
    let bytes = |(name, parameters): &(String, Parameters)| {
        own_bytes::<K>(name, &Options { parameters: parameters.clone(), ..options.clone() })
    };
    accelerators.iter().map(bytes).sum()
}

/// The laws of the algorithm called `name` with these parameters behind these accelerators.
///
/// # Errors
/// When there is no such algorithm, or it has no such parameter.
pub fn accelerated_laws(
    accelerators: &[(String, Parameters)],
    name: &str,
    parameters: &Parameters,
) -> Result<Laws, BuildError> {
    let behind = |laws, (accelerator, _): &(String, _)| laws_behind(accelerator, laws);
    Ok(accelerators.iter().rev().fold(laws(name, parameters)?, behind))
}

/// Checks that each accelerator is sound before the ones behind it and before the algorithm.
fn sound(
    accelerators: &[(String, Parameters)],
    name: &str,
    parameters: &Parameters,
) -> Result<(), BuildError> {
    accelerator::check_order(accelerators)?;
    let (mut next, mut laws, mut sampler) = (info(name)?.name, laws(name, parameters)?, None);
    for (accelerator, parameters) in accelerators.iter().rev() {
        let known = accelerator_info(accelerator)?;
        let refused = |algorithm, reason| {
            BuildErrorKind::Unsound {
                accelerator: known.name,
                algorithm,
                reason,
                able: able_with(known.name, parameters).join(", "),
            }
            .into()
        };
        if let Some(other) = sampler.filter(|_| known.samples) {
            return Err(refused(other, "one sample is enough"));
        }
        fits(accelerator, parameters, &laws).map_err(|reason| refused(next, reason))?;
        if !known.samples
            && accelerators.iter().filter(|(other, _)| other == accelerator).count() > 1
        {
            return Err(refused(known.name, "once is enough"));
        }
        (next, laws) = (known.name, laws_behind(accelerator, laws));
        sampler = sampler.or(known.samples.then_some(known.name));
    }
    Ok(())
}

/// The algorithms that an accelerator can precede, with default parameters.
pub fn able(accelerator: &str) -> Vec<&'static str> {
    able_with(accelerator, &Parameters::default())
}

/// The algorithms that an accelerator with these parameters can precede.
fn able_with(accelerator: &str, parameters: &Parameters) -> Vec<&'static str> {
    let fit = |info: &&Info| fits(accelerator, parameters, &info.laws).is_ok();
    ALGORITHMS.iter().filter(fit).map(|info| info.name).collect()
}

/// The catalog entry of the accelerator called `name`.
///
/// # Errors
/// When there is no such accelerator.
pub fn accelerator_info(name: &str) -> Result<&'static AcceleratorInfo, BuildError> {
    let found = ACCELERATORS.iter().find(|info| info.name == name);
    found.ok_or_else(|| unknown_accelerator(name))
}

/// Checks that the algorithm can be concurrent.
fn check_concurrent(info: &Info) -> Result<(), BuildError> {
    if CONCURRENT.contains(&info.name) { Ok(()) } else { Err(not_concurrent(info)) }
}

fn not_concurrent(info: &Info) -> BuildError {
    BuildErrorKind::NotConcurrent { algorithm: info.name, able: CONCURRENT.join(", ") }.into()
}

/// Checks the name and the parameters of an accelerator.
fn check_accelerator(name: &str, parameters: &Parameters) -> Result<(), BuildError> {
    let info = accelerator_info(name)?;
    parameters.check(info.name, info.parameters)
}

fn unknown_accelerator(name: &str) -> BuildError {
    Unknown::new("accelerator", name, ACCELERATORS.iter().map(|info| info.name)).into()
}

/// The catalog entry of the algorithm called `name`.
///
/// # Errors
/// When there is no such algorithm.
pub fn info(name: &str) -> Result<&'static Info, BuildError> {
    ALGORITHMS.iter().find(|info| info.name == name).ok_or_else(|| unknown(name))
}

fn unknown(name: &str) -> BuildError {
    Unknown::new("algorithm", name, ALGORITHMS.iter().map(|info| info.name)).into()
}

#[cfg(all(test, not(loom)))]
#[expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
mod tests {
    //! Concurrent summaries count what ordinary ones count, up to the last bit of their counters.
    //! They are built by type: by name, all algorithms would be compiled again.

    use super::stored::encode;
    use super::{CONCURRENT, Concurrent, CountArray, CountMin, CountSketch, KAry, LinearTable};
    use crate::batch::Batch;
    use crate::key::{FlowKey, Key8};
    use crate::summary::Options;
    use crate::terms::Measure;

    /// Packets that overflow 32 bits. Only unsigned counters saturate to the same value in any
    /// order.
    #[test]
    fn full_counters_are_those_of_one_worker() {
        assert_full_counters_equal::<LinearTable>(&[("buckets", "64")]);
        assert_full_counters_equal::<CountArray>(&[("columns", "64"), ("candidates", "0")]);
        let rows = [("columns", "64"), ("candidates", "0"), ("rows", "3")];
        assert_full_counters_equal::<CountMin>(&rows);
        assert_full_counters_equal::<CountSketch>(&rows);
        assert_full_counters_equal::<KAry>(&rows);
        assert_eq!(CONCURRENT.len(), 5, "both tests name all concurrent summaries");
    }

    fn assert_full_counters_equal<S: Concurrent>(parameters: &[(&str, &str)]) {
        let rows =
            [(1, u32::MAX, 1 << 40), (2, 7, 1), (1, u32::MAX, 1), (3, 1 << 31, 1), (1, 9, 1)];
        let name = S::INFO.name;
        let rows = if name == "count-sketch" { &rows[1..3] } else { &rows[..] };
        let options = Options::new(64 << 10, 1).with(parameters.iter().copied());
        let options = options.digesting::<Key8>();
        let mut ordinary = S::build::<Key8>(&options).unwrap();
        let mut concurrent = S::build_concurrent::<Key8>(&options).unwrap();
        let mut batch = Batch::new();
        for &(flow, packets, bytes) in rows {
            batch.push_sum(key(flow), packets, bytes, 0, 0);
            concurrent.ingest(&mut batch);
            ordinary.ingest(&mut batch);
            batch.clear();
        }
        let [ordinary, concurrent] =
            [&*ordinary, concurrent.collect()].map(|summary| encode(&S::INFO, &options, summary));
        assert!(ordinary == concurrent, "{name}");
    }

    fn key(flow: u32) -> Key8 {
        Key8::from_canonical(&flow.to_be_bytes()).unwrap()
    }

    /// Bytes that overflow 64 bits saturate, for any flow.
    #[test]
    fn nothing_wraps() {
        assert_nothing_wraps::<LinearTable>();
        assert_nothing_wraps::<CountArray>();
        assert_nothing_wraps::<CountMin>();
        assert_nothing_wraps::<CountSketch>();
        assert_nothing_wraps::<KAry>();
    }

    fn assert_nothing_wraps<S: Concurrent>() {
        let options = Options { by: Measure::Bytes, ..Options::new(64 << 10, 1).for_keys(4) };
        let mut concurrent = S::build_concurrent::<Key8>(&options).unwrap();
        let mut batch = Batch::new();
        for (flow, packets, bytes) in [(1, 1, u64::MAX - 10), (2, 1, 11), (2, 1, 5)] {
            batch.push_sum(key(flow), packets, bytes, 0, 0);
            concurrent.ingest(&mut batch);
            batch.clear();
        }
        let answers = concurrent.collect().answers();
        let size = |flow: u32| answers.size().unwrap().estimate(&flow.to_be_bytes()).bytes.unwrap();
        let name = S::INFO.name;
        let signed = name == "count-sketch";
        let kept = if signed { 0.0 } else { (u64::MAX - 10) as f64 };
        assert!(size(1).value >= kept * (1.0 - 1e-9), "{name}");
        let lost = if signed { u64::MAX - 10 } else { 11 };
        let refused = answers.saturated().bytes.max(answers.untracked().bytes);
        assert!(refused >= lost, "{name}");
        // The bounds contain the true size, whether it was counted or not.
        let second = size(2);
        assert!(signed || second.high >= 16.0, "{name}: {second:?}");
    }
}
