//! Heavy hitters in a bounded number of counters, each for one key or for several.

mod csm;
mod misra_gries;
mod netflow;
mod sketch_visor;
mod space_saving;
mod stream_summary;

pub use csm::Csm;
pub use misra_gries::MisraGries;
pub use netflow::NetFlow;
pub use sketch_visor::SketchVisor;
pub use space_saving::SpaceSaving;
pub use stream_summary::StreamSummary;

use crate::summary::{
    BuildError, BuildErrorKind, Counter, Estimate, Options, Parameter, Parameters, SizeEstimate,
};
use crate::terms::{Measure, Size};
pub(super) use space_saving::{Monitor, Monitored};

/// The index of a Space-Saving has a few places per counter, and numbers its places with 31 bits.
const MOST_COUNTERS: u64 = 1 << 29;

/// Default number of counters if the memory allows: an error of 0.01 % of the total weight.
const COUNTERS: usize = 10_000;

/// The parameters that [`counters`] reads.
pub(super) const PARAMETERS: [Parameter; 2] = [
    Parameter {
        name: "counters",
        help: "number of counters (default: 10000, or what fits into the memory)",
    },
    Parameter {
        name: "epsilon",
        help: "instead of counters: the error as a share of the total weight; counters = 1 / \
               epsilon",
    },
];

/// The number of counters to use: as given, as the given error needs, or the default as far as it
/// fits into the memory. `bytes` is the memory that a number of counters needs.
pub(super) fn counters(
    options: &Options,
    bytes: &dyn Fn(usize) -> usize,
) -> Result<usize, BuildError> {
    if let Some(counters) = asked(&options.parameters)? {
        return Ok(counters);
    }
    let (mut fits, mut too_many) = (0, COUNTERS + 1);
    while too_many - fits > 1 {
        let middle = fits.midpoint(too_many);
        if bytes(middle) <= options.memory_bytes {
            fits = middle;
        } else {
            too_many = middle;
        }
    }
    if fits == 0 {
        return Err(BuildErrorKind::TooLittleMemory {
            needed: bytes(1),
            given: options.memory_bytes,
        }
        .into());
    }
    Ok(fits)
}

/// The number of counters as given, or as the given error needs.
fn asked(parameters: &Parameters) -> Result<Option<usize>, BuildError> {
    parameters.exclusive("counters", &["epsilon"])?;
    if let Some(counters) = parameters.integer("counters", 1..=MOST_COUNTERS)? {
        return Ok(Some(counters as usize));
    }
    let Some(epsilon) = parameters.fraction("epsilon")? else { return Ok(None) };
    let counters = (1.0 / epsilon).ceil();
    if counters > MOST_COUNTERS as f64 {
        return Err(BuildErrorKind::OutOfRange {
            name: "epsilon",
            value: parameters.get("epsilon").unwrap_or_default().to_owned(),
            range: format!("large enough for {MOST_COUNTERS} counters"),
        }
        .into());
    }
    Ok(Some(counters as usize))
}

/// The estimate of a weight in the measure that `C` counts.
pub(super) fn size<C: Counter>(weight: Estimate) -> SizeEstimate {
    match C::MEASURE {
        Measure::Packets => SizeEstimate { packets: Some(weight), bytes: None },
        Measure::Bytes => SizeEstimate { packets: None, bytes: Some(weight) },
    }
}

/// An exact weight in the measure that `C` counts.
pub(super) fn exact_size<C: Counter>(weight: u64) -> Size {
    match C::MEASURE {
        Measure::Packets => Size { packets: weight, bytes: 0 },
        Measure::Bytes => Size { packets: 0, bytes: weight },
    }
}
