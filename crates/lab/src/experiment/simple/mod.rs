//! Alipourfard et al., "A comparison of performance and accuracy of measurement algorithms in
//! software" (SOSR 2018).

mod fig1;
mod fig2;
mod fig3;

use flowgauge_core::key::{Extract, FlowKey};

pub(super) use fig1::FIG1;
pub(super) use fig2::FIG2;
pub(super) use fig3::{FIG3, FIG3C};

use super::exam::Exam;
use super::latency::{self, BARE};
use super::setting::Setting;
use super::stream::Stream;
use super::structure::Structure;
use super::table::{Table, row};
use crate::failure::Failure;

/// Packets of a batch.
const BATCH: usize = 64;

/// Bytes of structures whose size is not what is varied: more than a last-level cache had.
const LARGE: usize = 32 << 20;

/// The structures of the figures, in so much memory.
fn count_array(bytes: usize) -> Structure {
    Structure::new("count array", "count-array").in_bytes(bytes)
}

/// The array in which the last key stays.
fn overwriting_array(bytes: usize) -> Structure {
    let paper = [("candidates", "0")];
    Structure::new("overwriting array", "replacing-array").with(paper).in_bytes(bytes)
}

fn count_min(bytes: usize) -> Structure {
    Structure::new("Count-Min", "count-min").with([("rows", "3")]).in_bytes(bytes)
}

fn linear_table(bytes: usize) -> Structure {
    Structure::new("linear table", "linear-table").in_bytes(bytes)
}

fn heap(bytes: usize) -> Structure {
    Structure::new("Space-Saving", "space-saving").in_bytes(bytes)
}

/// An empty table of latency and accuracy.
fn table() -> Table {
    Table::new(["structure", "size_mb", "skew", "mean_ns", "p99_ns", "precision", "recall"])
}

/// Measures these structures of so many bytes on traffic of this skew (of none where it is the trace),
/// and how well they answer where a task is asked: a row for each, and one for the bare loop.
fn measure<K: FlowKey + Extract<8>>(
    table: &mut Table,
    structures: &[Structure],
    (bytes, skew): (usize, Option<f64>),
    setting: &Setting,
    stream: &Stream<K>,
    exam: Option<(&Exam<'_, K>, &str)>,
) -> Result<(), Failure> {
    let mb = bytes as f64 / f64::from(1 << 20);
    let (bare, times) = latency::of_structures(structures, setting, stream, BATCH)?;
    row!(table, BARE, mb, skew, bare.mean_ns, bare.p99_ns);
    for (structure, time) in structures.iter().zip(times) {
        let score = match exam {
            Some((exam, task)) => exam.score(structure, task)?,
            None => None,
        };
        let (precision, recall) =
            score.map_or((None, None), |score| (score.precision(), score.recall()));
        let label = structure.label.as_str();
        row!(table, label, mb, skew, time.mean_ns, time.p99_ns, precision, recall);
    }
    Ok(())
}

/// What the bare loop says.
fn limit(table: &Table) -> String {
    latency::limit(&table.numbers("structure", BARE, "mean_ns"), BATCH)
}
