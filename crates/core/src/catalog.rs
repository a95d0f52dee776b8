//! The one list of algorithms: a new one is a file and a line here.

use crate::key::FlowKey;
use crate::summary::array::{CountArray, Mrac, ReplacingArray};
use crate::summary::distinct::{Fm, HyperLogLog, LinearCounting};
use crate::summary::quantile::Kll;
use crate::summary::array::{CountArray, ReplacingArray};
use crate::summary::instant::InstaMeasure;
use crate::summary::sketch::{ReversibleSketch, TwoLevel};
use crate::summary::sketch::{CountMin, ElasticSketch, FlowRadar, UnivMon};
use crate::summary::counter::{
    MisraGries, NetFlow, SharedCounters, SketchVisor, SpaceSaving, StreamSummary,
};
use crate::summary::hierarchy::{Mst, Rhhh};
use crate::summary::sketch::{ConservativeCountMin, CountMin, CountSketch, KAry};
use crate::summary::table::LinearTable;
use crate::summary::{BuildError, Describe, Info, Ingest, Options};

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
    };
}

catalog![
    LinearTable<()>,
    CountArray<(), ()>,
    ReplacingArray<()>,
    Mrac<()>,
    LinearCounting,
    Fm,
    HyperLogLog,
    Kll<()>,
    InstaMeasure<(), (), 1>,
    InstaMeasure<(), (), 2>,
    ReversibleSketch<(), ()>,
    TwoLevel<()>,
];
catalog![LinearTable<()>, CountArray<(), ()>, ReplacingArray<()>, CountMin, FlowRadar<()>, UnivMon<(), ()>, ElasticSketch<(), u32>];
catalog![LinearTable<()>, CountArray<(), ()>, ReplacingArray<()>, CountMin, ConservativeCountMin, CountSketch, KAry];
    SpaceSaving,
    StreamSummary,
    MisraGries<(), ()>,
    SketchVisor,
    SharedCounters<(), ()>,
    NetFlow<()>,
    Mst<(), ()>,
    Rhhh<(), ()>,
    CountMin,
    ConservativeCountMin,
    CountSketch,
    KAry,
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
