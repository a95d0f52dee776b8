//! Numbers of distinct flows, from bits that any flow may set.

mod bitmaps;
mod fm;
mod hyperloglog;
mod linear_counting;

pub use fm::Fm;
pub use hyperloglog::{HllRegisters, HyperLogLog};
pub use linear_counting::LinearCounting;

use super::{BuildError, BuildErrorKind, Estimate, Parameters};

/// Two standard errors either way: a normal error stays within them with this chance.
const CONFIDENCE: f64 = 0.954;

/// An estimate with two standard errors either way, within `least` and `most`.
fn two_sigma(value: f64, sigma: f64, least: f64, most: f64) -> Estimate {
    let value = value.clamp(least, most.max(least));
    let (low, high) = ((value - 2.0 * sigma).max(least), (value + 2.0 * sigma).min(most));
    Estimate { value, low, high: high.max(value), confidence: Some(CONFIDENCE) }
}

/// The number of flows that are in `used` of so many cells, of which each flow uses one: no fewer than
/// these, and `most` at most. Not all cells are in use.
pub(crate) fn counted_linearly(cells: f64, used: f64, most: f64) -> Estimate {
    let load = (cells / (cells - used)).ln();
    two_sigma(cells * load, cells * load * counting_error(cells, load), used, most)
}

/// The standard error of linear counting, as a share of the flows, of so many cells with a mean of
/// `load` flows (Whang et al., TODS 1990, §5.1); 0 without a flow.
fn counting_error(cells: f64, load: f64) -> f64 {
    if load <= 0.0 {
        return 0.0;
    }
    // Of one flow among many cells the difference below is lost in rounding, and next to nothing.
    (load.exp() - load - 1.0).max(0.0).sqrt() / (cells.sqrt() * load)
}

/// The items, a power of two, whose standard error `error ÷ √items` is not above `epsilon`; from
/// `least` to `most`.
fn items_for(
    epsilon: f64,
    error: f64,
    (least, most): (usize, usize),
    parameters: &Parameters,
) -> Result<usize, BuildError> {
    let items = (error / epsilon).powi(2).ceil();
    if items > most as f64 {
        return Err(BuildErrorKind::OutOfRange {
            name: "epsilon",
            value: parameters.get("epsilon").unwrap_or_default().to_owned(),
            range: format!("large enough for {most} items"),
        }
        .into());
    }
    Ok((items as usize).next_power_of_two().max(least))
}
