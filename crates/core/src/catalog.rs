//! The one list of algorithms: a new one is a file and a line here.

use crate::key::FlowKey;
#[cfg(all(debug_assertions, not(test)))]
use crate::key::{Key4, Key8, Key13, Key16, Key32, Key37};
use crate::summary::array::{CountArray, Mrac, ReplacingArray};
use crate::summary::counter::{
    MisraGries, NetFlow, SharedCounters, SketchVisor, SpaceSaving, StreamSummary,
};
use crate::summary::distinct::{Fm, HyperLogLog, LinearCounting};
use crate::summary::hierarchy::{Mst, Rhhh};
use crate::summary::instant::InstaMeasure;
use crate::summary::quantile::Kll;
use crate::summary::sketch::{
    ConservativeCountMin, CountMin, CountSketch, ElasticSketch, FlowRadar, KAry, ReversibleSketch,
    TwoLevel, UnivMon,
};
use crate::summary::table::{Cuckoo1, Cuckoo4, IndirectTable, LinearTable};
use crate::summary::{BuildError, Describe, Info, Ingest, Laws, Options, Parameters};

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
        ) -> Result<Box<dyn Ingest<K>>, BuildError> {
            $(if name == <$summary as Describe>::INFO.name {
                options.parameters.check(&<$summary as Describe>::INFO)?;
                return <$summary as Describe>::build::<K>(options);
            })*
            Err(unknown(name))
        }

        /// What holds of the algorithm called `name` with these parameters.
        ///
        /// # Errors
        /// When there is no such algorithm, or it has no such parameter.
        pub fn laws(name: &str, parameters: &Parameters) -> Result<Laws, BuildError> {
            $(if name == <$summary as Describe>::INFO.name {
                parameters.check(&<$summary as Describe>::INFO)?;
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
    CountArray<(), ()>,
    ReplacingArray,
    Mrac<()>,
    LinearCounting,
    Fm,
    HyperLogLog,
    CountMin,
    ConservativeCountMin,
    CountSketch,
    KAry,
    ReversibleSketch<(), ()>,
    TwoLevel<()>,
    UnivMon<(), ()>,
    FlowRadar<()>,
    ElasticSketch<(), u32>,
    SpaceSaving,
    StreamSummary,
    MisraGries<(), ()>,
    SketchVisor,
    SharedCounters<(), ()>,
    NetFlow<()>,
    InstaMeasure<(), (), 1>,
    InstaMeasure<(), (), 2>,
    Mst,
    Rhhh,
    Kll<()>,
];

/// What the catalog says of the algorithm called `name`.
///
/// # Errors
/// When there is no such algorithm.
pub fn info(name: &str) -> Result<&'static Info, BuildError> {
    ALGORITHMS.iter().find(|info| info.name == name).ok_or_else(|| unknown(name))
}

fn unknown(name: &str) -> BuildError {
    let known = ALGORITHMS.iter().map(|info| info.name).collect::<Vec<_>>().join(", ");
    BuildError::UnknownAlgorithm { name: name.to_owned(), known }
}

/// [`build`] for every key: compiled here, once, what each test would otherwise compile anew.
/// Optimised builds share nothing between crates, and so go without.
#[cfg(all(debug_assertions, not(test)))]
pub static BUILDERS: Builders = (build, build, build, build, build, build);

#[cfg(all(debug_assertions, not(test)))]
type Builder<K> = fn(&str, &Options) -> Result<Box<dyn Ingest<K>>, BuildError>;
#[cfg(all(debug_assertions, not(test)))]
type Builders =
    (Builder<Key4>, Builder<Key8>, Builder<Key13>, Builder<Key16>, Builder<Key32>, Builder<Key37>);
