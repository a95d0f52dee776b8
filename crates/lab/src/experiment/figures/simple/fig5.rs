//! Figure 5: change detection.

use flowgauge_core::key::{Key8, KeyKind};

use super::{ARRAY, Contender, LINEAR, OVERWRITING, STATEFUL};
use crate::experiment::part::Part;
use crate::experiment::setting::{Mix, Setting};
use crate::experiment::stream::Stream;
use crate::experiment::structure::Exam;
use crate::experiment::table::Table;
use crate::experiment::verdict::{Claim, Verdict};
use crate::experiment::{Experiment, Outcome, Preset};
use crate::failure::Failure;
use crate::traffic::Scene;

pub(crate) const FIG5: Experiment = Experiment {
    name: "simple/fig5",
    title: "changes: a forecast for each flow",
    paper: "Simple (SOSR 2018), Fig. 5",
    presets: &[
        super::TRAFFIC,
        super::EPOCH,
        super::BATCHES,
        Preset::same("key, state", "both addresses, a moving average"),
        Preset::other(
            "changes",
            "those of the trace",
            "16 flows appear and 16 vanish, with half to eight times the threshold",
            "flows of a generated trace do not change",
        ),
    ],
    measure,
    judge,
    missing: &[],
    charts: &[super::BY_SIZE, super::PRECISION, super::RECALL],
};

fn measure(setting: &Setting) -> Result<Outcome, Failure> {
    let packets = setting.epochs(Mix::Trace, Scene::Changes)?;
    let exam = Exam::<Key8>::new(setting, Mix::Trace, Scene::Changes, KeyKind::PAIR, &packets)?;
    let last = packets.last().map_or(&[][..], Vec::as_slice);
    let stream = Stream::of(last, KeyKind::PAIR, setting.seed);
    let mut table = super::table(["size_mb"]);
    for bytes in setting.sizes(1 << 18) {
        let state = [("state", "ewma")];
        let contenders =
            STATEFUL.map(|(label, name)| Contender::new(label, name, &state, bytes, setting));
        let contenders = contenders.into_iter().collect::<Result<Vec<_>, _>>()?;
        let at = [super::megabytes(bytes)];
        let exam = Some((&exam, "changes"));
        super::measure(&mut table, &at, contenders, setting, &stream, exam)?;
    }
    let limit = super::limit(&table);
    let notes =
        "Sixteen flows appear and sixteen vanish between two epochs, with half to eight times \
                 the threshold; accuracy is that of the second. The tables keep flows of the epoch \
                 before, so that times are of a table that knows most flows."
            .to_owned();
    Ok(Outcome { table, limit, notes })
}

fn judge(table: &Table) -> Verdict {
    let of = |name: &str, column: &str| table.numbers("structure", name, column);
    let last = |name: &str, column: &str| of(name, column).last().copied().unwrap_or(f64::NAN);
    let told = |what: &str, name: &str| format!("{what} of the largest {name}");
    let less = |what: &str, column: &str| {
        let what = format!("{what} of the faster array over the table");
        let array = super::better(&of(ARRAY, column), &of(OVERWRITING, column));
        Part::less(&what, &array, &of(LINEAR, column))
    };
    Verdict::of(
        table,
        [
            Claim::new(
                "With a moving average for each flow the count array has the lowest latency, at a precision \
                 of 99 %.",
                [
                    less("mean", "mean_ns"),
                    less("tail", "p99_ns"),
                    Part::at_least(&told("precision", ARRAY), last(ARRAY, "precision"), 0.99),
                ],
                "A moving average costs as much as finding its place.",
            ),
            Claim::new(
                "The linear table is exact.",
                ["precision", "recall"]
                    .map(|column| Part::at_least(&told(column, LINEAR), last(LINEAR, column), 1.0)),
                "The largest table has no room for all flows.",
            ),
        ],
    )
}
