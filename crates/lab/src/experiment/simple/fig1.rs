//! Figure 1: one hash function against several.

use flowgauge_core::key::{Key8, KeyKind};

use crate::experiment::chart::{Chart, linear, log};
use crate::experiment::exam::Exam;
use crate::experiment::latency::BARE;
use crate::experiment::setting::{Mix, Setting};
use crate::experiment::stream::Stream;
use crate::experiment::structure::Structure;
use crate::experiment::table::Table;
use crate::experiment::verdict::{Part, Verdict};
use crate::experiment::{Experiment, Outcome};
use crate::failure::Failure;
use crate::traffic::Scene;

pub(crate) const FIG1: Experiment = Experiment {
    name: "simple/fig1",
    title: "one hash function against several",
    paper: "Simple (SOSR 2018), Fig. 1",
    claim: "A linear table has a lower mean and tail latency than cuckoo tables of one and of four slots \
            a bucket, at every size. A count array has lower ones than Count-Min with three rows at \
            every size, and reaches a given precision (98 %) at a lower tail.",
    measure,
    judge,
    charts: &[
        chart("Hash tables", &[BARE, "linear table", "cuckoo-1", "cuckoo-4"]),
        chart("Arrays", &[BARE, "count array", "overwriting array", "Count-Min"]),
        Chart {
            title: "Precision against tail latency",
            x: "p99_ns",
            x_axis: linear("99th percentile of latency (ns a packet)"),
            y: &[("precision", "")],
            y_axis: linear("precision"),
            series: "structure",
            only: &["count array", "overwriting array", "Count-Min"],
        },
    ],
};

const fn chart(title: &'static str, only: &'static [&'static str]) -> Chart {
    Chart {
        title,
        x: "size_mb",
        x_axis: log("size (MB)"),
        y: &[("mean_ns", " mean"), ("p99_ns", " p99")],
        y_axis: linear("latency (ns a packet)"),
        series: "structure",
        only,
    }
}

fn measure(setting: &Setting) -> Result<Outcome, Failure> {
    let packets = setting.epochs(Mix::Trace, Scene::Plain)?;
    let exam = Exam::<Key8>::new(setting, Mix::Trace, Scene::Plain, KeyKind::Pair, &packets)?;
    let stream = Stream::of(&packets[0], KeyKind::Pair, setting.seed);
    let mut table = super::table();
    for bytes in setting.sizes(1 << 16) {
        let structures = [
            super::linear_table(bytes),
            Structure::new("cuckoo-1", "cuckoo-1").in_bytes(bytes),
            Structure::new("cuckoo-4", "cuckoo-4").in_bytes(bytes),
            super::count_array(bytes),
            super::overwriting_array(bytes),
            super::count_min(bytes),
        ];
        let exam = Some((&exam, "heavy-hitters"));
        super::measure(&mut table, &structures, (bytes, None), setting, &stream, exam)?;
    }
    let limit = super::limit(&table);
    Ok(Outcome { table, limit, notes: String::new() })
}

fn judge(table: &Table) -> Verdict {
    let of = |name: &str, column: &str| table.numbers("structure", name, column);
    let less = |what: &str, one: &str, other: &str, column: &str| {
        Part::less(
            &format!("{what} of the {one} over {other}"),
            &of(one, column),
            &of(other, column),
        )
    };
    // The lowest tail at which a structure is as precise as that, and misses as little.
    let tail = |name: &str| {
        let good = |row: &f64| *row >= 0.98;
        let rows = table
            .of("structure", name)
            .filter(|row| good(&row.number("precision")) && good(&row.number("recall")));
        rows.map(|row| row.number("p99_ns")).fold(f64::NAN, f64::min)
    };
    let mut parts = Vec::new();
    for (what, column) in [("mean", "mean_ns"), ("tail", "p99_ns")] {
        parts.push(less(what, "linear table", "cuckoo-1", column));
        parts.push(less(what, "linear table", "cuckoo-4", column));
        parts.push(less(what, "count array", "Count-Min", column));
    }
    let tails = [[tail("count array")], [tail("Count-Min")]];
    parts.push(Part::less(
        "tail of the count array over Count-Min where precision and recall reach 98 %",
        &tails[0],
        &tails[1],
    ));
    Verdict::of(parts)
}
