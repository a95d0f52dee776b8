//! Figure 1: one hash function against several.

use super::{ARRAY, COUNT_MIN, CUCKOO_1, CUCKOO_4, LINEAR, OVERWRITING, PLAIN};
use crate::experiment::chart::Chart;
use crate::experiment::latency::BARE;
use crate::experiment::setting::Setting;
use crate::experiment::table::Table;
use crate::experiment::verdict::{Part, Verdict};
use crate::experiment::{Experiment, Outcome};
use crate::failure::Failure;

pub(crate) const FIG1: Experiment = Experiment {
    name: "simple/fig1",
    title: "one hash function against several",
    paper: "Simple (SOSR 2018), Fig. 1",
    claim: "A linear table has a lower mean and tail latency than cuckoo tables of one and of four slots \
            a bucket, at every size (that has room for all flows, here). A count array has lower ones than Count-Min with three rows at \
            every size, and reaches a given accuracy (98 % here) at a lower tail.",
    measure,
    judge,
    charts: &[
        Chart { title: "Tables", only: &[BARE, LINEAR, CUCKOO_1, CUCKOO_4], ..super::BY_SIZE },
        Chart {
            title: "Arrays",
            only: &[BARE, PLAIN, ARRAY, OVERWRITING, COUNT_MIN],
            ..super::BY_SIZE
        },
        Chart { only: &[ARRAY, OVERWRITING, COUNT_MIN], ..super::PRECISION },
        Chart { only: &[ARRAY, OVERWRITING, COUNT_MIN], ..super::RECALL },
    ],
};

fn measure(setting: &Setting) -> Result<Outcome, Failure> {
    let names = [LINEAR, CUCKOO_1, CUCKOO_4, PLAIN, ARRAY, OVERWRITING, COUNT_MIN];
    let table = super::heavy_pairs_by_size(&names, setting)?;
    let limit = super::limit(&table);
    let notes = "The count array counts the keys of heavy columns apart, so that it names them all; a \
                 small one, of which every column is heavy, pays for that, and alone it names nobody. The \
                 overwriting array, which keeps the last key of a slot, is the paper's rule."
        .to_owned();
    Ok(Outcome { table, limit, notes })
}

fn judge(table: &Table) -> Verdict {
    let of = |name: &str, column: &str| table.numbers("structure", name, column);
    let less = |what: &str, other: &str, column: &str| {
        let of = |name: &str| super::roomy(table, &[LINEAR, CUCKOO_1, CUCKOO_4], name, column);
        Part::less(&format!("{what} of the linear table over {other}"), &of(LINEAR), &of(other))
    };
    // The lowest tail at which a structure is as precise as that, and misses as little.
    let tail = |name: &str| {
        let good = |number: f64| number >= 0.98;
        let rows = table.of("structure", name);
        let rows = rows.filter(|row| good(row.number("precision")) && good(row.number("recall")));
        rows.map(|row| row.number("p99_ns")).fold(f64::NAN, f64::min)
    };
    let mut parts = Vec::new();
    for (what, column) in [("mean", "mean_ns"), ("tail", "p99_ns")] {
        parts.push(less(what, CUCKOO_1, column));
        parts.push(less(what, CUCKOO_4, column));
        let what = format!("{what} of the count array over Count-Min");
        parts.push(Part::less(&what, &of(ARRAY, column), &of(COUNT_MIN, column)));
    }
    parts.push(Part::less(
        "least tail of the count array over Count-Min where precision and recall reach 98 %",
        &[tail(ARRAY)],
        &[tail(COUNT_MIN)],
    ));
    Verdict::of(parts)
}
