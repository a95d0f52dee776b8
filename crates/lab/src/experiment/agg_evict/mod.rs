//! Zhou et al., "Accelerating network measurement in software" (CCR 2018).

mod fig5;

pub(super) use fig5::FIG5;

use super::structure::Structure;

/// Packets of a batch.
const BATCH: usize = 32;

/// What tables call a structure without and with the aggregator.
const ALONE: &str = "alone";
const BEHIND: &str = "behind Agg-Evict";

/// The paper's 2,000 rows of 16 pairs, as the next power of two.
const ROWS: usize = 2048;

/// The same structure behind the aggregator.
fn behind(structure: &Structure, rows: usize) -> Structure {
    structure.clone().behind("agg-evict", [("rows", rows)])
}

/// The paper's nine solutions at its sizes.
fn nine() -> [Structure; 9] {
    let array = [("rows", "4"), ("columns", "65536"), ("candidates", "0")];
    [
        Structure::new("Count-Min", "count-min").with(array),
        Structure::new("FlowRadar", "flow-radar").with([("cells", "262144"), ("hashes", "4")]),
        Structure::new("Space-Saving", "space-saving").with([("counters", "128")]),
        Structure::new("UnivMon", "univmon").with([
            ("levels", "4"),
            ("columns", "65536"),
            ("top", "128"),
        ]),
        Structure::new("RevSketch", "reversible-sketch")
            .with([("rows", "4"), ("columns", "65536")]),
        Structure::new("TwoLevel", "two-level").with([
            ("rows", "4"),
            ("columns", "65536"),
            ("bitmaps", "4096"),
        ]),
        Structure::new("MRAC", "mrac").with([("columns", "262144")]),
        Structure::new("FM", "fm").with([("bitmaps", "4")]),
        Structure::new("LC", "linear-counting").with([("bits", "8388608")]),
    ]
}
