//! Figure 7: values beside their keys, or apart.

use flowgauge_core::key::{Key8, KeyKind};

use super::Contender;
use super::fig6::{PADDINGS, entry_bytes, state};
use crate::experiment::chart::{Chart, linear};
use crate::experiment::latency::{self, BARE};
use crate::experiment::setting::{Mix, Setting};
use crate::experiment::stream::Stream;
use crate::experiment::table::Table;
use crate::experiment::verdict::{Part, Verdict};
use crate::experiment::{Experiment, Outcome};
use crate::failure::Failure;

pub(crate) const FIG7: Experiment = Experiment {
    name: "simple/fig7",
    title: "values beside their keys, or apart",
    paper: "Simple (SOSR 2018), Fig. 7",
    claim: "At skew 0.75, keys apart from their values cost more with small values and less with large \
            ones (30 % less at 60 bytes); at skews 1.25 and 1.75 they cost next to nothing (5 ns).",
    measure,
    judge,
    charts: &[
        Chart { title: "Skew 0.75", only: &["beside, skew 0.75", "apart, skew 0.75"], ..BY_ENTRY },
        Chart { title: "Skew 1.25", only: &["beside, skew 1.25", "apart, skew 1.25"], ..BY_ENTRY },
        Chart { title: "Skew 1.75", only: &["beside, skew 1.75", "apart, skew 1.75"], ..BY_ENTRY },
    ],
};

const BY_ENTRY: Chart = Chart {
    x: "entry_bytes",
    x_axis: linear("key and value (bytes)"),
    series: "layout",
    ..super::BY_SIZE
};

const SKEWS: [f64; 3] = [0.75, 1.25, 1.75];
const LAYOUTS: [(&str, &str); 2] = [("beside", "linear-table"), ("apart", "indirect-table")];

fn measure(setting: &Setting) -> Result<Outcome, Failure> {
    let mut all = Table::new(["layout", "entry_bytes", "mean_ns", "p99_ns"]);
    for skew in SKEWS {
        let stream = Stream::<Key8>::draw(setting, Mix::Zipf(skew), KeyKind::Pair)?;
        let mut table = super::table(["entry_bytes"]);
        for padding in PADDINGS {
            let contenders = LAYOUTS.map(|(layout, name)| {
                let label = format!("{layout}, skew {skew}");
                Contender::new(&label, name, &state(padding), super::LARGE, setting)
            });
            let contenders = contenders.into_iter().collect::<Result<Vec<_>, _>>()?;
            let at = [entry_bytes(padding)];
            super::measure(&mut table, &at, contenders, setting, &stream, None)?;
        }
        for row in table.rows() {
            let cells = ["entry_bytes", "mean_ns", "p99_ns"].map(|name| row.number(name).into());
            all.push(std::iter::once(row.text("structure").into()).chain(cells));
        }
    }
    let limit = latency::limit(&all.numbers("layout", BARE, "mean_ns"), super::BATCH);
    let notes = "Beside is this project's linear table, an index before records of key and value in the \
                 order of arrival; apart is its indirect table, which probes keys and has values behind \
                 a number."
        .to_owned();
    Ok(Outcome { table: all, limit, notes })
}

fn judge(table: &Table) -> Verdict {
    let tails = |layout: &str, skew: f64| {
        table.numbers("layout", &format!("{layout}, skew {skew}"), "p99_ns")
    };
    let (beside, apart) = (tails("beside", SKEWS[0]), tails("apart", SKEWS[0]));
    let over = |at: usize| match (apart.get(at), beside.get(at)) {
        (Some(apart), Some(beside)) => apart / beside,
        _ => f64::NAN,
    };
    let mut parts = vec![
        Part::at_least("tail apart over beside at skew 0.75, entries of 20 bytes", over(0), 1.0),
        Part::at_most("tail apart over beside at skew 0.75, entries of 80 bytes", over(3), 0.7),
    ];
    for skew in &SKEWS[1..] {
        let (apart, beside) = (tails("apart", *skew), tails("beside", *skew));
        let more = apart.iter().zip(&beside).map(|(apart, beside)| apart - beside);
        let what = format!("nanoseconds more apart at skew {skew}, at worst");
        parts.push(Part::at_most(&what, more.fold(f64::NAN, f64::max), 5.0));
    }
    Verdict::of(parts)
}
