//! Count-Min with conservative update: counters above a key's new estimate stay as they are.
//!
//! Paper: Estan and Varghese, "New directions in traffic measurement and accounting" (SIGCOMM
//! 2002), §3.3.2. An estimate is never below the truth and never above Count-Min's. But the order
//! of packets matters, so no accelerator may hold packets back, and the sum of two sketches is an
//! upper bound of what one sketch of all packets would hold.

use std::marker::PhantomData;

use super::count_min::{all_exceed, excess, least, most_keys, sums};
use super::rows::{Grid, MEMORY, Rule, TOTAL_PARAMETERS, Targets, Unsigned, build};
use crate::key::FlowKey;
use crate::summary::describe::form;
use crate::summary::{BuildError, Counted, Describe, Estimate, Info, Laws, Options, Summary};

/// A Count-Min sketch with conservative update, of `u32` counters for packets or `u64` counters for
/// bytes.
///
/// Cost: a cache line per row and packet, and one more in the set of heavy keys while the key is
/// heavy. Memory in bytes: `rows × columns × 4 (or 8) + candidates × (3 × size_of::<K>() + 8)`.
///
/// ```
/// use flowgauge_core::batch::Batch;
/// use flowgauge_core::catalog;
/// use flowgauge_core::key::{FlowKey, Key8};
/// use flowgauge_core::summary::Options;
///
/// let options = Options::new(1 << 20, 1).for_keys(4);
/// let mut sketch = catalog::build::<Key8>("conservative-count-min", &options).unwrap();
/// let mut batch = Batch::new();
/// for host in 0..200 {
///     batch.push(Key8::from_canonical(&[10, 0, 0, host]).unwrap(), 64, 0);
/// }
/// sketch.ingest(&mut batch);
/// let size = sketch.answers().size().unwrap().estimate(&[10, 0, 0, 7]).packets.unwrap();
/// assert!(size.value >= 1.0 && size.low <= 1.0);
/// ```
pub struct ConservativeCountMin;

impl Describe for ConservativeCountMin {
    const INFO: Info = Info {
        name: "conservative-count-min",
        idea: "Count-Min that raises a key's counters only as far as its estimate requires",
        paper: "Estan, Varghese (SIGCOMM 2002), section 3.3.2",
        parameters: TOTAL_PARAMETERS,
        memory: MEMORY,
        forms: &[
            form![Size(Counted::Asked), Candidates],
            form![candidates = "0"; Size(Counted::Asked)],
        ],
        laws: Laws { sizes: true, ..Laws::NONE },
    };

    fn build<K: FlowKey>(options: &Options) -> Result<Box<dyn Summary<K>>, BuildError> {
        build::<K, Raise<u32>, Raise<u64>>(options)
    }
}

/// The rule of conservative update: the smallest counter of a key takes its weight, and the others
/// rise to that sum at least.
pub(crate) struct Raise<C>(PhantomData<C>);

impl<C: Unsigned> Rule for Raise<C> {
    type Cell = C;
    const TARGETS: Targets = Targets::Least;

    #[inline(always)]
    fn add<const FULL: bool>(
        cells: &mut [C],
        places: &[usize],
        _: u64,
        weight: C,
        limit: u64,
    ) -> (u64, bool) {
        let mut raised = cells[places[0]];
        for &place in &places[1..] {
            if cells[place].get() < raised.get() {
                raised = cells[place];
            }
        }
        let lost = raised.raise::<FULL>(weight);
        for &place in places {
            let cell = &mut cells[place];
            *cell = if cell.get() < raised.get() { raised } else { *cell };
        }
        (lost, raised.get() > limit)
    }

    #[inline]
    fn estimate(grid: &Grid<Self>, digest: u64) -> f64 {
        least(grid.rows, &grid.cells, digest).get() as f64
    }

    /// Count-Min's margin holds here, too. Without the key's own packets no cell would be larger
    /// than it is, and each of its packets raises a cell by at most its weight. So an estimate's
    /// excess is at most what the key's cells would hold without it, and those are random cells.
    fn margin(grid: &Grid<Self>) -> f64 {
        excess(grid)
    }

    fn bounds(grid: &Grid<Self>, value: f64, margin: f64) -> Estimate {
        sums(grid, value, margin)
    }

    fn overestimates(rows: usize, share: f64) -> f64 {
        all_exceed(rows, share)
    }

    fn most_keys(grid: &Grid<Self>, free: f64) -> f64 {
        most_keys(grid, free)
    }

    fn listed_low(_: &Grid<Self>, value: f64, _: f64, over: f64) -> f64 {
        value - over
    }

    fn shortfall(_: &Grid<Self>) -> f64 {
        0.0
    }

    /// A packet raises a counter of each row by at most its weight.
    fn is_possible(_: u128, _: u64) -> bool {
        true
    }
}
