//! Figure 6: the size of an entry.

use flowgauge_core::key::{Key8, KeyKind};

use super::{CUCKOO_1, Contender, HEAP, LINEAR};
use crate::experiment::chart::{Chart, linear};
use crate::experiment::setting::{Mix, Setting};
use crate::experiment::stream::Stream;
use crate::experiment::table::Table;
use crate::experiment::verdict::{Part, Verdict};
use crate::experiment::{Experiment, Outcome};
use crate::failure::Failure;

pub(crate) const FIG6: Experiment = Experiment {
    name: "simple/fig6",
    title: "the size of an entry",
    paper: "Simple (SOSR 2018), Fig. 6",
    claim: "In 32 MB, the tail latency of table and heap grows with the size of an entry.",
    measure,
    judge,
    charts: &[Chart {
        x: "entry_bytes",
        x_axis: linear("key and value (bytes)"),
        ..super::BY_SIZE
    }],
};

/// Bytes beyond a key of 8 and a counter of 12.
pub(super) const PADDINGS: [&str; 4] = ["", "12", "28", "60"];

/// The state of so much padding.
pub(super) fn state(padding: &str) -> Vec<(&str, &str)> {
    if padding.is_empty() { Vec::new() } else { vec![("state", "padded"), ("padding", padding)] }
}

/// Bytes of key and value.
pub(super) fn entry_bytes(padding: &str) -> f64 {
    20.0 + padding.parse::<f64>().unwrap_or(0.0)
}

fn measure(setting: &Setting) -> Result<Outcome, Failure> {
    let stream = Stream::<Key8>::draw(setting, Mix::Trace, KeyKind::Pair)?;
    let mut table = super::table(["entry_bytes"]);
    for padding in PADDINGS {
        let (state, bytes) = (state(padding), super::LARGE);
        let heap = match padding {
            "12" => Contender::heap::<12>(bytes),
            "28" => Contender::heap::<28>(bytes),
            "60" => Contender::heap::<60>(bytes),
            _ => Contender::heap::<0>(bytes),
        };
        let contenders = vec![
            Contender::new(LINEAR, "linear-table", &state, bytes, setting)?,
            Contender::new(CUCKOO_1, "cuckoo-1", &state, bytes, setting)?,
            heap,
        ];
        let at = [entry_bytes(padding)];
        super::measure(&mut table, &at, contenders, setting, &stream, None)?;
    }
    let limit = super::limit(&table);
    let notes =
        "The arrays of this project have no padding. Its tables keep entries in the order of \
                 arrival, so that large flows share cache lines whatever the size of the table."
            .to_owned();
    Ok(Outcome { table, limit, notes })
}

fn judge(table: &Table) -> Verdict {
    let tails = |name: &str| table.numbers("structure", name, "p99_ns");
    let grows = |name: &str| {
        Part::moves(&format!("tail of the {name} (ns), by entry size"), &tails(name), true)
    };
    Verdict::of([LINEAR, CUCKOO_1, HEAP].map(grows))
}
