//! Figure 4: superspreaders.

use flowgauge_core::key::{Key4, KeyKind};

use super::{ARRAY, CUCKOO_1, CUCKOO_4, Contender, LINEAR, OVERWRITING, STATEFUL};
use crate::experiment::exam::Exam;
use crate::experiment::setting::{Mix, Setting};
use crate::experiment::stream::Stream;
use crate::experiment::table::Table;
use crate::experiment::verdict::{Part, Verdict};
use crate::experiment::{Experiment, Outcome};
use crate::failure::Failure;
use crate::traffic::Scene;

pub(crate) const FIG4: Experiment = Experiment {
    name: "simple/fig4",
    title: "superspreaders: a Bloom filter for each source",
    paper: "Simple (SOSR 2018), Fig. 4",
    claim: "With a Bloom filter of 1024 bits for each source the order stays: the count array has the \
            lowest latency at 97 % precision; of the tables, 99 % precise with nothing missed, the \
            linear one is the fastest (where all have room for every source).",
    measure,
    judge,
    charts: &[super::BY_SIZE, super::PRECISION, super::RECALL],
};

/// The least bytes of a structure.
const LEAST: usize = 1 << 20;

fn measure(setting: &Setting) -> Result<Outcome, Failure> {
    let packets = setting.epochs(Mix::Trace, Scene::Spread)?;
    let exam = Exam::<Key4>::new(setting, Mix::Trace, Scene::Spread, KeyKind::Source, &packets)?;
    let stream = Stream::of(&packets[0], KeyKind::Source, setting.seed);
    let mut table = super::table(["size_mb"]);
    for bytes in setting.sizes(LEAST) {
        let state = [("state", "distinct")];
        let contenders =
            STATEFUL.map(|(label, name)| Contender::new(label, name, &state, bytes, setting));
        let contenders = contenders.into_iter().collect::<Result<Vec<_>, _>>()?;
        let at = [super::megabytes(bytes)];
        let exam = Some((&exam, "superspreaders"));
        super::measure(&mut table, &at, contenders, setting, &stream, exam)?;
    }
    let limit = super::limit(&table);
    let notes = "Among the sources are 32 that reach 64 to 940 endpoints.".to_owned();
    Ok(Outcome { table, limit, notes })
}

fn judge(table: &Table) -> Verdict {
    let of = |name: &str, column: &str| table.numbers("structure", name, column);
    let last = |name: &str, column: &str| of(name, column).last().copied().unwrap_or(f64::NAN);
    let mut parts = Vec::new();
    for (what, column) in [("mean", "mean_ns"), ("tail", "p99_ns")] {
        let array = super::better(&of(ARRAY, column), &of(OVERWRITING, column));
        let told = format!("{what} of the faster array over the linear table");
        parts.push(Part::less(&told, &array, &of(LINEAR, column)));
        for (one, other) in [(LINEAR, CUCKOO_1), (LINEAR, CUCKOO_4)] {
            let what = format!("{what} of the {one} over {other}");
            let of = |name: &str| super::roomy(table, &[LINEAR, CUCKOO_1, CUCKOO_4], name, column);
            parts.push(Part::less(&what, &of(one), &of(other)));
        }
    }
    let told = |what: &str, name: &str| format!("{what} of the largest {name}");
    parts.push(Part::at_least(&told("precision", ARRAY), last(ARRAY, "precision"), 0.97));
    parts.push(Part::at_least(
        &told("precision", OVERWRITING),
        last(OVERWRITING, "precision"),
        0.97,
    ));
    parts.push(Part::at_least(&told("precision", LINEAR), last(LINEAR, "precision"), 0.99));
    parts.push(Part::at_least(&told("recall", LINEAR), last(LINEAR, "recall"), 0.99));
    Verdict::of(parts)
}
