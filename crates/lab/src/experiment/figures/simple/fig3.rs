//! Figure 3: the skew of the traffic.

use flowgauge_core::key::{Key8, KeyKind};

use super::{
    ARRAY, COUNT_MIN, Contender, HEAP, INLINE, INLINE_ARRAY, LINEAR, SET_ARRAY, SET_COUNT_MIN,
    SPACE_SAVING,
};
use crate::experiment::chart::{Chart, linear};
use crate::experiment::latency::{BARE, COLUMNS};
use crate::experiment::part::Part;
use crate::experiment::setting::{Mix, Setting};
use crate::experiment::stream::Stream;
use crate::experiment::table::Table;
use crate::experiment::verdict::{Claim, Verdict};
use crate::experiment::{Experiment, Outcome};
use crate::failure::Failure;

pub(crate) const FIG3: Experiment = Experiment {
    name: "simple/fig3",
    title: "the skew of the traffic",
    paper: "Simple (SOSR 2018), Fig. 3a and 3b",
    presets: &[
        super::SKEWED,
        super::EPOCH,
        super::BATCHES,
        super::KEY,
        super::SIZE,
        super::ENTRIES,
    ],
    measure,
    judge,
    missing: &[],
    charts: &[
        Chart { title: "Array and sketch", only: &[BARE, ARRAY, COUNT_MIN], ..BY_SKEW },
        Chart {
            title: "Array, table and heap",
            only: &[ARRAY, LINEAR, HEAP, SPACE_SAVING],
            ..BY_SKEW
        },
        Chart {
            title: "The paper's array, table and heap",
            only: &[INLINE_ARRAY, INLINE, HEAP],
            ..BY_SKEW
        },
        Chart {
            title: "The paper's array and sketch",
            only: &[SET_ARRAY, SET_COUNT_MIN],
            ..BY_SKEW
        },
    ],
};

const BY_SKEW: Chart = Chart { x: "skew", x_axis: linear("skew"), ..super::BY_SIZE };

pub(crate) const FIG3C: Experiment = Experiment {
    name: "simple/fig3c",
    title: "skew and size of a count array",
    paper: "Simple (SOSR 2018), Fig. 3c",
    presets: &[super::SKEWED, super::EPOCH, super::BATCHES, super::KEY, super::SIZES],
    measure: measure_sizes,
    judge: judge_sizes,
    missing: &[],
    charts: &[Chart { title: "Array alone", series: "traffic", ..super::BY_SIZE }],
};

const SKEWS: [f64; 5] = [0.75, 1.1, 1.25, 1.5, 1.75];

fn measure(setting: &Setting) -> Result<Outcome, Failure> {
    let mut table = super::table(["skew"]);
    for skew in SKEWS {
        let stream = Stream::<Key8>::draw(setting, Mix::Zipf(skew), KeyKind::PAIR)?;
        let names = [
            ARRAY,
            COUNT_MIN,
            LINEAR,
            HEAP,
            SPACE_SAVING,
            INLINE_ARRAY,
            INLINE,
            SET_ARRAY,
            SET_COUNT_MIN,
        ];
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
    let falls =
        |name: &str| Part::moves(&format!("tail of the {name} (ns), by skew"), &tails(name), false);
    let loses = |one: &str, other: &str| {
        let what = format!("ns that the {other} loses more than the {one}, from 1.1 to 0.75");
        Part::at_least(&what, rise(other) - rise(one), 0.0)
    };
    let over = |table: &str, array: &str| {
        let ratios = tails(table).into_iter().zip(tails(array)).map(|(table, array)| table / array);
        let most = ratios.fold(f64::NAN, f64::max);
        Part::at_most(
            &format!("tail of the {table} over that of the {array}, at worst"),
            most,
            1.28,
        )
        .timed()
    };
    let means = |name: &str| table.numbers("structure", name, "mean_ns");
    Verdict::of(
        table,
        [
            Claim::new(
                "A linear table costs only slightly more than the array at each skew: less than the 28 % of \
                 smaller ones (Fig. 2), in the tail.",
                [over(LINEAR, ARRAY)],
                "The engine's table reads an index and then a record, two lines of memory for a packet of a \
                 small flow, where an array of bare counters reads one.",
            )
            .on_baseline(
                [over(INLINE, INLINE_ARRAY)],
                super::faster(&means(ARRAY), &means(INLINE_ARRAY)),
            ),
            Claim::new(
                "Tails fall with the skew.",
                [ARRAY, COUNT_MIN, LINEAR, HEAP].map(falls),
                "Additions to one counter wait for each other: the more skewed the traffic, the more often \
                 its packets come one after another, and the less there is to wait for in memory.",
            )
            .on_baseline(
                [SET_ARRAY, SET_COUNT_MIN, INLINE, HEAP].map(falls),
                super::faster(&means(COUNT_MIN), &means(SET_COUNT_MIN)),
            ),
            Claim::new(
                "Count-Min, with three accesses a packet, loses more from 1.1 to 0.75 than a count array \
                 does, and the heap more than the table.",
                [loses(ARRAY, COUNT_MIN), loses(LINEAR, HEAP)],
                "Accesses of a batch wait for memory together.",
            )
            .on_baseline(
                [loses(SET_ARRAY, SET_COUNT_MIN), loses(INLINE, HEAP)],
                super::faster(&means(COUNT_MIN), &means(SET_COUNT_MIN)),
            ),
        ],
    )
}

fn measure_sizes(setting: &Setting) -> Result<Outcome, Failure> {
    let mut all = Table::new(["traffic", "size_mb"].into_iter().chain(COLUMNS));
    for skew in SKEWS {
        let stream = Stream::<Key8>::draw(setting, Mix::Zipf(skew), KeyKind::PAIR)?;
        let mut table = super::table(["size_mb"]);
        for bytes in setting.sizes(1 << 14) {
            let contenders = vec![Contender::named(super::PLAIN, bytes, setting)?];
            let at = [super::megabytes(bytes)];
            super::measure(&mut table, &at, contenders, setting, &stream, None)?;
        }
        all.add_noise(table.noise());
        let name = format!("skew {skew}");
        for row in table.rows() {
            let name = if row.text("structure") == BARE { BARE } else { &name };
            let cells = std::iter::once("size_mb").chain(COLUMNS);
            let cells = cells.map(|column| row.number(column).into());
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
    Verdict::of(
        table,
        [
            Claim::new(
                "An array that fits the second-level cache takes the same time whatever the skew (within \
                 20 %).",
                [Part::within(
                    "mean of the smallest array at skew 0.75 over 1.75",
                    first,
                    1.0,
                    0.2,
                )
                .timed()],
                "Packets of one flow in a row add to the same counter, each waiting for the one before: more \
                 skew costs time in an array that is in the cache.",
            ),
            Claim::new(
                "The larger the array, the more a low skew costs.",
                [Part::moves(
                    "mean at skew 0.75 over 1.75, from the smallest array to the largest",
                    &ratio,
                    true,
                )],
                "Counters that are fetched ahead wait for no memory.",
            ),
        ],
    )
}
