//! Figure 6: the size of an entry.

use flowgauge_core::key::{Key8, KeyKind};

use super::{Contender, HEAP, INLINE, INLINE_ARRAY, LINEAR, Rule};
use crate::experiment::chart::{Chart, linear};
use crate::experiment::part::Part;
use crate::experiment::setting::{Mix, Setting};
use crate::experiment::stream::Stream;
use crate::experiment::table::Table;
use crate::experiment::verdict::{Claim, Verdict};
use crate::experiment::{Experiment, Outcome, Preset};
use crate::failure::Failure;

pub(crate) const FIG6: Experiment = Experiment {
    name: "simple/fig6",
    title: "the size of an entry",
    paper: "Simple (SOSR 2018), Fig. 6",
    presets: &[
        super::TRAFFIC,
        super::EPOCH,
        super::BATCHES,
        super::SIZE,
        super::ENTRIES,
        Preset::same("entries", "a key of 8 bytes, a counter of 12, and 0, 12, 28 or 60 more"),
    ],
    measure,
    judge,
    missing: &[],
    charts: &[Chart {
        x: "entry_bytes",
        x_axis: linear("key and value (bytes)"),
        ..super::BY_SIZE
    }],
};

/// Bytes beyond a key of 8 bytes and a counter of 12.
pub(super) const PADDINGS: [&str; 4] = ["", "12", "28", "60"];

/// The parameter for this padding.
pub(super) fn state(padding: &str) -> Vec<(&str, &str)> {
    if padding.is_empty() { Vec::new() } else { vec![("state", "padded"), ("padding", padding)] }
}

/// Bytes of key and value.
pub(super) fn entry_bytes(padding: &str) -> f64 {
    20.0 + padding.parse::<f64>().unwrap_or(0.0)
}

fn measure(setting: &Setting) -> Result<Outcome, Failure> {
    let stream = Stream::<Key8>::draw(setting, Mix::Trace, KeyKind::PAIR)?;
    let mut table = super::table(["entry_bytes"]);
    for padding in PADDINGS {
        let (state, bytes) = (state(padding), super::LARGE);
        let mut contenders = match padding {
            "12" => of_paper::<12>(bytes),
            "28" => of_paper::<28>(bytes),
            "60" => of_paper::<60>(bytes),
            _ => of_paper::<0>(bytes),
        };
        contenders.push(Contender::new(LINEAR, "linear-table", &state, bytes, setting)?);
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

/// The paper's array, table and heap with `PAYLOAD` more bytes per entry.
fn of_paper<const PAYLOAD: usize>(bytes: usize) -> Vec<Contender<Key8>> {
    vec![
        Contender::inline::<PAYLOAD>(INLINE_ARRAY, Rule::Overwriting, bytes),
        Contender::inline::<PAYLOAD>(INLINE, Rule::Linear, bytes),
        Contender::heap::<PAYLOAD>(bytes),
    ]
}

fn judge(table: &Table) -> Verdict {
    let grows = |name: &str| {
        let tails = table.numbers("structure", name, "p99_ns");
        Part::moves(&format!("tail of the {name} (ns), by entry size"), &tails, true)
    };
    Verdict::of(
        table,
        [
            Claim::new(
                "In 64 MB, the tail latency of array, table and heap grows with the size of an entry.",
                [INLINE_ARRAY, INLINE, HEAP].map(grows),
                "Entries are fetched ahead of their use, all lines of one at once.",
            ),
            Claim::new(
                "The tail of the engine's table grows, too, whose entries are in the order of arrival.",
                [grows(LINEAR)],
                "Large flows come first and share lines, whatever the size of the table.",
            ),
        ],
    )
}
