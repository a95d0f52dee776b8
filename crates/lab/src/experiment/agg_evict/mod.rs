//! Zhou et al., "Accelerating network measurement in software" (CCR 2018).

mod fig2;
mod fig4;
mod fig5;
mod fig6;
mod fig7;
mod fig8;

pub(super) use fig2::FIG2;
pub(super) use fig4::FIG4;
pub(super) use fig5::FIG5;
pub(super) use fig6::{FIG6, FIG6C};
pub(super) use fig7::{FIG7, FIG7C};
pub(super) use fig8::{FIG8A, FIG8B};

use flowgauge_core::key::FlowKey;

use super::chart::{Chart, linear};
use super::latency::{self, BARE};
use super::setting::Setting;
use super::stream::Stream;
use super::structure::Structure;
use super::table::{Cell, Table};
use crate::failure::Failure;

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

/// The structure that most figures are about.
fn flow_radar() -> Structure {
    Structure::new("FlowRadar", "flow-radar").with([("cells", "262144"), ("hashes", "4")])
}

/// The paper's nine solutions at its sizes.
fn nine() -> [Structure; 9] {
    let array = [("rows", "4"), ("columns", "65536"), ("candidates", "0")];
    let reversible = [("rows", "4"), ("columns", "65536")];
    let levels = [("levels", "4"), ("columns", "65536"), ("top", "128")];
    let two = [("rows", "4"), ("columns", "65536"), ("bitmaps", "4096")];
    [
        Structure::new("Count-Min", "count-min").with(array),
        flow_radar(),
        Structure::new("Space-Saving", "space-saving").with([("counters", "128")]),
        Structure::new("UnivMon", "univmon").with(levels),
        Structure::new("RevSketch", "reversible-sketch").with(reversible),
        Structure::new("TwoLevel", "two-level").with(two),
        Structure::new("MRAC", "mrac").with([("columns", "262144")]),
        Structure::new("FM", "fm").with([("bitmaps", "4")]),
        Structure::new("LC", "linear-counting").with([("bits", "8388608")]),
    ]
}

/// The columns behind a table's own.
const MEASURED: [&str; 4] = ["how", "mean_ns", "p99_ns", "mpps"];

/// A table by these columns.
fn table(by: impl IntoIterator<Item = &'static str>) -> Table {
    Table::new(by.into_iter().chain(MEASURED))
}

/// Measures structures in batches of so many: a row for the bare loop and one for each, `at` first.
fn measure<K: FlowKey>(
    table: &mut Table,
    at: &[Cell],
    structures: &[Structure],
    setting: &Setting,
    stream: &Stream<K>,
    batch_packets: usize,
) -> Result<(), Failure> {
    let (bare, times) = latency::of_structures(structures, setting, stream, batch_packets)?;
    let labels = std::iter::once(BARE).chain(structures.iter().map(|one| one.label.as_str()));
    for (label, time) in labels.zip(std::iter::once(bare).chain(times)) {
        let numbers = [time.mean_ns, time.p99_ns, 1e3 / time.mean_ns].map(Cell::from);
        table.push(at.iter().cloned().chain([Cell::from(label)]).chain(numbers));
    }
    Ok(())
}

/// A structure alone, and behind an aggregator of so many rows.
fn both(structure: &Structure, rows: usize) -> [Structure; 2] {
    [structure.clone().named(ALONE), behind(structure, rows).named(BEHIND)]
}

/// What the bare loop says.
fn limit(table: &Table) -> String {
    latency::limit(&table.numbers("how", BARE, "mean_ns"), BATCH)
}

/// Mean and tail; the column across is left to the figure.
const LATENCY: Chart = Chart {
    title: "Latency (bars: mean, lines above: 99th percentile)",
    x: "",
    x_axis: linear(""),
    y: &[("mean_ns", " mean"), ("p99_ns", " p99")],
    y_axis: linear("latency (ns a packet)"),
    series: "how",
    only: &[ALONE, BEHIND],
};

/// Packets a second, likewise.
const THROUGHPUT: Chart = Chart {
    title: "Throughput",
    y: &[("mpps", "")],
    y_axis: linear("million packets a second"),
    ..LATENCY
};
