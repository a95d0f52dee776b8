//! How many counters: as asked for, as an error needs, or as the default error needs.

use super::super::{BuildError, BuildErrorKind, Options, Parameter};

/// A quarter of the places of an index of 31-bit numbers, which has two or a few more for each.
const MOST_COUNTERS: u64 = 1 << 29;

/// Counters unless asked otherwise or the memory is small: an error of 0.01 % of the weight.
const COUNTERS: usize = 10_000;

/// The parameters that [`counters`] reads.
pub(in crate::summary) const PARAMETERS: [Parameter; 2] = [
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

/// The number of counters that the options ask for, `bytes` telling the memory that some need.
pub(in crate::summary) fn counters(
    options: &Options,
    bytes: impl Fn(usize) -> usize,
) -> Result<usize, BuildError> {
    let parameters = &options.parameters;
    parameters.exclusive("counters", &["epsilon"])?;
    if let Some(counters) = parameters.integer("counters", 1..=MOST_COUNTERS)? {
        return Ok(counters as usize);
    }
    if let Some(epsilon) = parameters.fraction("epsilon")? {
        return Ok((1.0 / epsilon).ceil().min(MOST_COUNTERS as f64) as usize);
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
