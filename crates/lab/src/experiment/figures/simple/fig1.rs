//! Figure 1: one hash function against several.

use super::{
    ARRAY, COUNT_MIN, CUCKOO_1, CUCKOO_4, INLINE, INLINE_CUCKOO_1, INLINE_CUCKOO_4, LINEAR,
    OVERWRITING, PLAIN, SET_ARRAY, SET_COUNT_MIN,
};
use crate::experiment::chart::Chart;
use crate::experiment::latency::BARE;
use crate::experiment::part::Part;
use crate::experiment::setting::Setting;
use crate::experiment::table::Table;
use crate::experiment::verdict::{Claim, Verdict};
use crate::experiment::{Experiment, Outcome};
use crate::failure::Failure;

pub(crate) const FIG1: Experiment = Experiment {
    name: "simple/fig1",
    title: "one hash function against several",
    paper: "Simple (SOSR 2018), Fig. 1",
    presets: &[
        super::TRAFFIC,
        super::EPOCH,
        super::BATCHES,
        super::KEY,
        super::HEAVY,
        super::SIZES,
        super::ENTRIES,
        super::CUCKOO,
        super::ROWS_3,
    ],
    measure,
    judge,
    missing: &[],
    charts: &[
        Chart { title: "Tables", only: &[BARE, LINEAR, CUCKOO_1, CUCKOO_4], ..super::BY_SIZE },
        Chart {
            title: "The paper's tables",
            only: &[INLINE, INLINE_CUCKOO_1, INLINE_CUCKOO_4],
            ..super::BY_SIZE
        },
        Chart { title: "Arrays", only: &[PLAIN, ARRAY, OVERWRITING, COUNT_MIN], ..super::BY_SIZE },
        Chart { title: "The paper's arrays", only: &[SET_ARRAY, SET_COUNT_MIN], ..super::BY_SIZE },
        Chart { only: &[ARRAY, OVERWRITING, COUNT_MIN], ..super::PRECISION },
        Chart { only: &[ARRAY, OVERWRITING, COUNT_MIN], ..super::RECALL },
    ],
};

fn measure(setting: &Setting) -> Result<Outcome, Failure> {
    let names = [
        LINEAR,
        CUCKOO_1,
        CUCKOO_4,
        INLINE,
        INLINE_CUCKOO_1,
        INLINE_CUCKOO_4,
        PLAIN,
        ARRAY,
        OVERWRITING,
        COUNT_MIN,
        SET_ARRAY,
        SET_COUNT_MIN,
    ];
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
    // Mean and tail of one structure over another, where all these tables have room for every flow.
    let less = |one: &str, other: &str, tables: &[&str]| {
        [("mean", "mean_ns"), ("tail", "p99_ns")].map(|(what, column)| {
            let of = |name: &str| super::roomy(table, tables, name, column);
            Part::less(&format!("{what} of the {one} over {other}"), &of(one), &of(other))
        })
    };
    // The lowest tail at which a structure is as precise as this, and misses as little.
    let tail = |name: &str| {
        let good = |number: f64| number >= 0.98;
        let rows = table.of("structure", name);
        let rows = rows.filter(|row| good(row.number("precision")) && good(row.number("recall")));
        rows.map(|row| row.number("p99_ns")).fold(f64::NAN, f64::min)
    };
    let ours = [LINEAR, CUCKOO_1, CUCKOO_4];
    let theirs = [INLINE, INLINE_CUCKOO_1, INLINE_CUCKOO_4];
    let faster = |one: &str, other: &str| super::faster(&of(one, "mean_ns"), &of(other, "mean_ns"));
    let tables = |[linear, one, four]: [&str; 3]| {
        [less(linear, one, &[linear, one, four]), less(linear, four, &[linear, one, four])].concat()
    };
    Verdict::of(
        table,
        [
            Claim::new(
                "A linear table has a lower mean and tail latency than cuckoo tables of one and of four \
                 slots a bucket, at every size that has room for all flows.",
                tables(ours),
                "Keys of a batch are looked for together, so that the second place of a cuckoo table is on \
                 its way while the first is looked at; its second hash costs nothing, as one digest has both.",
            )
            .on_baseline(tables(theirs), faster(LINEAR, INLINE)),
            Claim::new(
                "A count array has a lower mean and tail latency than Count-Min with three rows, at every \
                 size.",
                less(ARRAY, COUNT_MIN, &[]),
                "The count array counts the keys of heavy columns apart; where every column of a small one \
                 is heavy it does so for every packet.",
            )
            .on_baseline(less(SET_ARRAY, SET_COUNT_MIN, &[]), faster(COUNT_MIN, SET_COUNT_MIN)),
            Claim::new(
                "A count array reaches a precision (and recall) of 98 % at a lower tail than Count-Min: 45 \
                 against 64 ns.",
                [Part::less(
                    "least tail of the count array over Count-Min where both reach 98 %",
                    &[tail(ARRAY)],
                    &[tail(COUNT_MIN)],
                )],
                "Rows that are cut from one digest and fetched ahead cost less than the paper's three \
                 hashes, so that a smaller Count-Min may be as fast.",
            ),
        ],
    )
}
