//! Figures 3, 4 and 5: skewed traffic, superspreaders and changes.

use super::{
    ARRAY, COUNT_MIN, CUCKOO_1, CUCKOO_4, Contender, HEAP, INLINE, INLINE_ARRAY, LINEAR,
    OVERWRITING, SET_ARRAY, SET_COUNT_MIN, SPACE_SAVING, STATEFUL,
};
use crate::experiment::chart::{Chart, linear};
use crate::experiment::latency::{BARE, COLUMNS};
use crate::experiment::part::Part;
use crate::experiment::setting::{Mix, Setting};
use crate::experiment::stream::Stream;
use crate::experiment::structure::Exam;
use crate::experiment::table::Table;
use crate::experiment::verdict::{Claim, Verdict};
use crate::experiment::{Experiment, Outcome, Preset};
use crate::failure::Failure;
use crate::keys::{Pairs, Sources};
use crate::traffic::Scene;

/// Figures 3a and 3b: the skew of the traffic.
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
    measure: measure_skews,
    judge: judge_skews,
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

/// Figure 3c: the skew of the traffic and the size of a count array.
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

fn measure_skews(setting: &Setting) -> Result<Outcome, Failure> {
    let mut table = super::table(["skew"]);
    // Tails of tables that do not fit the cache differ from round to round.
    let setting = &Setting { rounds: 4 * setting.rounds, ..setting.clone() };
    for skew in SKEWS {
        let stream = Stream::<Pairs>::draw(setting, Mix::Zipf(skew))?;
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

fn judge_skews(table: &Table) -> Verdict {
    let tails = |name: &str| table.numbers("structure", name, "p99_ns");
    let rise = |name: &str| match tails(name)[..] {
        [low, next, ..] => low - next,
        _ => f64::NAN,
    };
    let falls = |name: &str| {
        Part::moves(&format!("tail of the {name} (ns), by skew"), &tails(name), false).tails()
    };
    let loses = |one: &str, other: &str| {
        let what = format!("ns that the {other} loses more than the {one}, from 1.1 to 0.75");
        Part::at_least(&what, rise(other) - rise(one), 0.0)
    };
    let over = |table: &str, array: &str| {
        let most: Vec<f64> = tails(array).into_iter().map(|tail| 1.28 * tail).collect();
        let what = format!("tail of the {table} over 1.28 times that of the {array}, by skew");
        Part::less(&what, &tails(table), &most).tails()
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
        let stream = Stream::<Pairs>::draw(setting, Mix::Zipf(skew))?;
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

/// Figure 4: superspreaders.
pub(crate) const FIG4: Experiment = Experiment {
    name: "simple/fig4",
    title: "superspreaders: a Bloom filter for each source",
    paper: "Simple (SOSR 2018), Fig. 4",
    presets: &[
        super::TRAFFIC,
        super::EPOCH,
        super::BATCHES,
        Preset::same("key, state", "source, a Bloom filter of 1024 bits and 3 hashes"),
        Preset::same("threshold", "more than 128 endpoints"),
        Preset::of(
            "sizes",
            "in a figure",
            |setting| format!("1 to {} MB", setting.most_bytes >> 20),
            "powers of two; all sources have room in the largest",
        ),
        Preset::other(
            "superspreaders",
            "those of the trace",
            "32 sources that reach 64 to 940 endpoints",
            "a backbone's second has too few to tell 97 % from 99 %",
        ),
    ],
    measure: measure_spreaders,
    judge: judge_spreaders,
    missing: &[],
    charts: &[super::BY_SIZE, super::PRECISION, super::RECALL],
};

/// The smallest size of a structure in bytes.
const LEAST: usize = 1 << 20;

fn measure_spreaders(setting: &Setting) -> Result<Outcome, Failure> {
    let packets = setting.epochs(Mix::Trace, Scene::Spread)?;
    let exam = Exam::<Sources>::new(setting, Mix::Trace, Scene::Spread, &packets)?;
    let stream = Stream::of(&packets[0], setting.seed);
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
    let notes = "Among the sources are 32 that reach 64 to 940 endpoints. The paper's count array is the \
                 overwriting one; the other adds up the filters of colliding sources, which names more of \
                 them wrongly."
        .to_owned();
    Ok(Outcome { table, limit, notes })
}

fn judge_spreaders(table: &Table) -> Verdict {
    let of = |name: &str, column: &str| table.numbers("structure", name, column);
    let last = |name: &str, column: &str| of(name, column).last().copied().unwrap_or(f64::NAN);
    let both = [("mean", "mean_ns"), ("tail", "p99_ns")];
    let less = |(what, column): (&str, &str), one: &str, other: &str, tables: &[&str]| {
        let of = |name: &str| super::roomy(table, tables, name, column);
        Part::less(&format!("{what} of the {one} over {other}"), &of(one), &of(other)).from(column)
    };
    let accuracy = |column: &str, name: &str, least: f64| {
        Part::at_least(&format!("{column} of the largest {name}"), last(name, column), least)
    };
    let tables = [LINEAR, CUCKOO_1, CUCKOO_4];
    Verdict::of(
        table,
        [
            Claim::new(
                "With a Bloom filter of 1024 bits for each source the count array has the lowest latency, \
                 at a precision of 97 %.",
                both.map(|what| less(what, OVERWRITING, LINEAR, &[]))
                    .into_iter()
                    .chain([accuracy("precision", OVERWRITING, 0.97)]),
                "In the largest memory the array's filters lie far apart, each in a page of its own, while the \
                 table's lie in the order of arrival, as many as there are sources.",
            ),
            Claim::new(
                "Of the tables the linear one is the fastest, where all have room for every source.",
                both.into_iter().flat_map(|what| {
                    [CUCKOO_1, CUCKOO_4].map(|other| less(what, LINEAR, other, &tables))
                }),
                "Keys of a batch are looked for together, so that a second place costs little.",
            ),
            Claim::new(
                "Tables are 99 % precise, with nothing missed: Bloom filters err a little.",
                [accuracy("precision", LINEAR, 0.99), accuracy("recall", LINEAR, 1.0)],
                "A source of 129 endpoints has a filter that tells 128 two times in three.",
            ),
        ],
    )
}

/// Figure 5: change detection.
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
    measure: measure_changes,
    judge: judge_changes,
    missing: &[],
    charts: &[super::BY_SIZE, super::PRECISION, super::RECALL],
};

fn measure_changes(setting: &Setting) -> Result<Outcome, Failure> {
    let packets = setting.epochs(Mix::Trace, Scene::Changes)?;
    let exam = Exam::<Pairs>::new(setting, Mix::Trace, Scene::Changes, &packets)?;
    let last = packets.last().map_or(&[][..], Vec::as_slice);
    let stream = Stream::of(last, setting.seed);
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

fn judge_changes(table: &Table) -> Verdict {
    let of = |name: &str, column: &str| table.numbers("structure", name, column);
    let last = |name: &str, column: &str| of(name, column).last().copied().unwrap_or(f64::NAN);
    let told = |what: &str, name: &str| format!("{what} of the largest {name}");
    let less = |what: &str, column: &str| {
        let what = format!("{what} of the faster array over the table");
        let array = super::better(&of(ARRAY, column), &of(OVERWRITING, column));
        Part::less(&what, &array, &of(LINEAR, column)).from(column)
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
