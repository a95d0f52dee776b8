//! Figure 2: array, hash table and heap.

use flowgauge_core::key::{Key8, KeyKind};

use crate::experiment::chart::{Chart, linear, log};
use crate::experiment::exam::Exam;
use crate::experiment::setting::{Mix, Setting};
use crate::experiment::stream::Stream;
use crate::experiment::table::Table;
use crate::experiment::verdict::{Part, Verdict};
use crate::experiment::{Experiment, Outcome};
use crate::failure::Failure;
use crate::traffic::Scene;

pub(crate) const FIG2: Experiment = Experiment {
    name: "simple/fig2",
    title: "array, hash table and heap, by size",
    paper: "Simple (SOSR 2018), Fig. 2",
    claim: "The array has the lowest latency, the linear table comes next, and the heap is the slowest \
            at every size. From some size on the table is exact, in precision and recall, and a large \
            array nearly so.",
    measure,
    judge,
    charts: &[
        Chart {
            title: "Latency",
            x: "size_mb",
            x_axis: log("size (MB)"),
            y: &[("mean_ns", " mean"), ("p99_ns", " p99")],
            y_axis: linear("latency (ns a packet)"),
            series: "structure",
            only: &[],
        },
        accuracy("Precision against tail latency", "precision"),
        accuracy("Recall against tail latency", "recall"),
    ],
};

const fn accuracy(title: &'static str, column: &'static str) -> Chart {
    Chart {
        title,
        x: "p99_ns",
        x_axis: linear("99th percentile of latency (ns a packet)"),
        y: if matches!(column.as_bytes(), b"recall") {
            &[("recall", "")]
        } else {
            &[("precision", "")]
        },
        y_axis: linear(column),
        series: "structure",
        only: &["count array", "overwriting array", "linear table", "Space-Saving"],
    }
}

fn measure(setting: &Setting) -> Result<Outcome, Failure> {
    let packets = setting.epochs(Mix::Trace, Scene::Plain)?;
    let exam = Exam::<Key8>::new(setting, Mix::Trace, Scene::Plain, KeyKind::Pair, &packets)?;
    let stream = Stream::of(&packets[0], KeyKind::Pair, setting.seed);
    let mut table = super::table();
    for bytes in setting.sizes(1 << 16) {
        let structures = [
            super::count_array(bytes),
            super::overwriting_array(bytes),
            super::linear_table(bytes),
            super::heap(bytes),
        ];
        let exam = Some((&exam, "heavy-hitters"));
        super::measure(&mut table, &structures, (bytes, None), setting, &stream, exam)?;
    }
    let limit = super::limit(&table);
    Ok(Outcome { table, limit, notes: String::new() })
}

fn judge(table: &Table) -> Verdict {
    let of = |name: &str, column: &str| table.numbers("structure", name, column);
    let last = |name: &str, column: &str| of(name, column).last().copied().unwrap_or(f64::NAN);
    let (array, linear, heap) = ("count array", "linear table", "Space-Saving");
    let mut parts = Vec::new();
    for (what, column) in [("mean", "mean_ns"), ("tail", "p99_ns")] {
        let (array, linear, heap) = (of(array, column), of(linear, column), of(heap, column));
        parts.push(Part::less(&format!("{what} of the array over the table"), &array, &linear));
        parts.push(Part::less(&format!("{what} of the table over the heap"), &linear, &heap));
    }
    for column in ["precision", "recall"] {
        let told = |name: &str| format!("{column} of the largest {name}");
        parts.push(Part::at_least(&told(linear), last(linear, column), 1.0));
        parts.push(Part::at_least(&told(array), last(array, column), 0.96));
    }
    Verdict::of(parts)
}
