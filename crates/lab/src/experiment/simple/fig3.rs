//! Figure 3: the skew of the traffic.

use flowgauge_core::key::{Key8, KeyKind};

use crate::experiment::chart::{Chart, linear, log};
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
            1.1 to 0.75 than a count array does; the heap loses most. A linear table costs hardly more \
            than the array (within 15 % here) at each skew.",
    measure,
    judge,
    charts: &[
        Chart { only: &["count array", "Count-Min"], title: "Array and sketch", ..CHART },
        Chart { title: "Array, table and heap", ..CHART },
    ],
};

const CHART: Chart = Chart {
    title: "",
    x: "skew",
    x_axis: linear("skew"),
    y: &[("mean_ns", " mean"), ("p99_ns", " p99")],
    y_axis: linear("latency (ns a packet)"),
    series: "structure",
    only: &["count array", "linear table", "Space-Saving"],
};

pub(crate) const FIG3C: Experiment = Experiment {
    name: "simple/fig3c",
    title: "skew and size of a count array",
    paper: "Simple (SOSR 2018), Fig. 3c",
    claim: "An array that fits the second-level cache takes the same time whatever the skew; the larger \
            it is, the more a low skew costs.",
    measure: measure_sizes,
    judge: judge_sizes,
    charts: &[Chart {
        title: "Count array",
        x: "size_mb",
        x_axis: log("size (MB)"),
        y: &[("mean_ns", " mean"), ("p99_ns", " p99")],
        y_axis: linear("latency (ns a packet)"),
        series: "traffic",
        only: &[],
    }],
};

const SKEWS: [f64; 5] = [0.75, 1.1, 1.25, 1.5, 1.75];

fn measure(setting: &Setting) -> Result<Outcome, Failure> {
    let mut table = super::table();
    for skew in SKEWS {
        let stream = Stream::<Key8>::draw(setting, Mix::Zipf(skew), KeyKind::Pair)?;
        let bytes = super::LARGE;
        let structures = [
            super::count_array(bytes),
            super::count_min(bytes),
            super::linear_table(bytes),
            super::heap(bytes),
        ];
        super::measure(&mut table, &structures, (bytes, Some(skew)), setting, &stream, None)?;
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
    let (array, linear, heap) = ("count array", "linear table", "Space-Saving");
    let over: Vec<f64> = tails(linear).iter().zip(tails(array)).map(|(l, a)| l / a).collect();
    let mut parts = Vec::new();
    for name in [array, "Count-Min", linear, heap] {
        parts.push(Part::moves(&format!("tail of {name} (ns) by skew"), &tails(name), false));
    }
    parts.push(Part::less(
        "rise of the array's tail over Count-Min's",
        &[rise(array)],
        &[rise("Count-Min")],
    ));
    parts.push(Part::less(
        "rise of the table's tail over the heap's",
        &[rise(linear)],
        &[rise(heap)],
    ));
    parts.push(Part::at_most("tail of the table over the array's, at most", most(over), 1.15));
    Verdict::of(parts)
}

fn measure_sizes(setting: &Setting) -> Result<Outcome, Failure> {
    let mut all = Table::new(["traffic", "structure", "size_mb", "mean_ns", "p99_ns"]);
    for skew in SKEWS {
        let stream = Stream::<Key8>::draw(setting, Mix::Zipf(skew), KeyKind::Pair)?;
        let mut table = super::table();
        for bytes in setting.sizes(1 << 16) {
            let structures = [super::count_array(bytes)];
            super::measure(&mut table, &structures, (bytes, Some(skew)), setting, &stream, None)?;
        }
        let name = format!("skew {skew}");
        for row in table.rows() {
            let name = if row.text("structure") == BARE { BARE } else { &name };
            let cells = ["structure", "size_mb", "mean_ns", "p99_ns"];
            let cells = cells.iter().filter_map(|column| row.cell(column).cloned());
            all.push(std::iter::once(name.into()).chain(cells));
        }
    }
    let limit = super::limit(&all);
    Ok(Outcome { table: all, limit, notes: String::new() })
}

fn judge_sizes(table: &Table) -> Verdict {
    let at = |name: String| table.numbers("traffic", &name, "mean_ns");
    let (low, high) = (at(format!("skew {}", SKEWS[0])), at(format!("skew {}", SKEWS[4])));
    let ratio: Vec<f64> = low.iter().zip(&high).map(|(low, high)| low / high).collect();
    let first = ratio.first().copied().unwrap_or(f64::NAN);
    Verdict::of([
        Part::at_most("the smallest array, skew 0.75 over 1.75", first, 1.1),
        Part::moves("skew 0.75 over 1.75, from the smallest array to the largest", &ratio, true),
    ])
}
