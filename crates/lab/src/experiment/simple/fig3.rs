//! Figure 3: the skew of the traffic.

use flowgauge_core::key::{Key8, KeyKind};

use super::{ARRAY, COUNT_MIN, Contender, HEAP, LINEAR, SPACE_SAVING};
use crate::experiment::chart::{Chart, linear};
use crate::experiment::latency::BARE;
use crate::experiment::setting::{Mix, Setting};
use crate::experiment::stream::Stream;
use crate::experiment::table::Table;
use crate::experiment::verdict::{Part, Verdict};
use crate::experiment::{Experiment, Outcome};
use crate::failure::Failure;

pub(crate) const FIG3: Experiment = Experiment {
    name: "simple/fig3",
    title: "the skew of the traffic",
    paper: "Simple (SOSR 2018), Fig. 3a and 3b",
    claim: "In 32 MB, tails fall with the skew. Count-Min, with three accesses a packet, loses more from \
            1.1 to 0.75 than a count array does, and the heap more than the table. A linear table costs \
            hardly more than the array (within 15 % here) at each skew.",
    measure,
    judge,
    charts: &[
        Chart { title: "Array and sketch", only: &[BARE, ARRAY, COUNT_MIN], ..BY_SKEW },
        Chart {
            title: "Array, table and heap",
            only: &[ARRAY, LINEAR, HEAP, SPACE_SAVING],
            ..BY_SKEW
        },
    ],
};

const BY_SKEW: Chart = Chart { x: "skew", x_axis: linear("skew"), ..super::BY_SIZE };

pub(crate) const FIG3C: Experiment = Experiment {
    name: "simple/fig3c",
    title: "skew and size of a count array",
    paper: "Simple (SOSR 2018), Fig. 3c",
    claim: "An array that fits the second-level cache takes the same time whatever the skew (within 10 % \
            here); the larger it is, the more a low skew costs.",
    measure: measure_sizes,
    judge: judge_sizes,
    charts: &[Chart { title: "Array alone", series: "traffic", ..super::BY_SIZE }],
};

const SKEWS: [f64; 5] = [0.75, 1.1, 1.25, 1.5, 1.75];

fn measure(setting: &Setting) -> Result<Outcome, Failure> {
    let mut table = super::table(["skew"]);
    for skew in SKEWS {
        let stream = Stream::<Key8>::draw(setting, Mix::Zipf(skew), KeyKind::Pair)?;
        let names = [ARRAY, COUNT_MIN, LINEAR, HEAP, SPACE_SAVING];
        let contenders = names.iter().map(|name| Contender::named(name, super::LARGE, setting));
        let contenders = contenders.collect::<Result<Vec<_>, _>>()?;
        super::measure(&mut table, &[skew], contenders, setting, &stream, None)?;
    }
    let limit = super::limit(&table);
    Ok(Outcome { table, limit, notes: String::new() })
}

fn judge(table: &Table) -> Verdict {
    let tails = |name: &str| table.numbers("structure", name, "p99_ns");
    let rise = |name: &str| match tails(name)[..] {
        [low, next, ..] => low - next,
        _ => f64::NAN,
    };
    let most = |numbers: Vec<f64>| numbers.into_iter().fold(f64::NAN, f64::max);
    let over: Vec<f64> = tails(LINEAR).iter().zip(tails(ARRAY)).map(|(l, a)| l / a).collect();
    let mut parts = Vec::new();
    for name in [ARRAY, COUNT_MIN, LINEAR, HEAP] {
        parts.push(Part::moves(&format!("tail of the {name} (ns), by skew"), &tails(name), false));
    }
    for (one, other) in [(ARRAY, COUNT_MIN), (LINEAR, HEAP)] {
        let what = format!("ns that the {other} loses more than the {one} from 1.1 to 0.75");
        parts.push(Part::at_least(&what, rise(other) - rise(one), 0.0));
    }
    parts.push(Part::at_most("tail of the table over the array's, at worst", most(over), 1.15));
    Verdict::of(parts)
}

fn measure_sizes(setting: &Setting) -> Result<Outcome, Failure> {
    let mut all = Table::new(["traffic", "size_mb", "mean_ns", "p99_ns"]);
    for skew in SKEWS {
        let stream = Stream::<Key8>::draw(setting, Mix::Zipf(skew), KeyKind::Pair)?;
        let mut table = super::table(["size_mb"]);
        for bytes in setting.sizes(1 << 14) {
            let contenders = vec![Contender::named(super::PLAIN, bytes, setting)?];
            let at = [super::megabytes(bytes)];
            super::measure(&mut table, &at, contenders, setting, &stream, None)?;
        }
        let name = format!("skew {skew}");
        for row in table.rows() {
            let name = if row.text("structure") == BARE { BARE } else { &name };
            let cells = ["size_mb", "mean_ns", "p99_ns"].map(|column| row.number(column).into());
            all.push(std::iter::once(name.into()).chain(cells));
        }
    }
    let limit = super::latency::limit(&all.numbers("traffic", BARE, "mean_ns"), super::BATCH);
    Ok(Outcome { table: all, limit, notes: String::new() })
}

fn judge_sizes(table: &Table) -> Verdict {
    let at = |name: String| table.numbers("traffic", &name, "mean_ns");
    let (low, high) = (at(format!("skew {}", SKEWS[0])), at(format!("skew {}", SKEWS[4])));
    let ratio: Vec<f64> = low.iter().zip(&high).map(|(low, high)| low / high).collect();
    let first = ratio.first().copied().unwrap_or(f64::NAN);
    Verdict::of([
        Part::at_most("mean of the smallest array at skew 0.75 over 1.75", first, 1.1),
        Part::moves("the same, from the smallest array to the largest", &ratio, true),
    ])
}
