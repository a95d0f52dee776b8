//! Figure 4: superspreaders.

use flowgauge_core::key::{Key4, KeyKind};

use super::{CUCKOO_1, CUCKOO_4, Contender, LINEAR, OVERWRITING, STATEFUL};
use crate::experiment::part::Part;
use crate::experiment::setting::{Mix, Setting};
use crate::experiment::stream::Stream;
use crate::experiment::structure::Exam;
use crate::experiment::table::Table;
use crate::experiment::verdict::{Claim, Verdict};
use crate::experiment::{Experiment, Outcome, Preset};
use crate::failure::Failure;
use crate::traffic::Scene;

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
    measure,
    judge,
    missing: &[],
    charts: &[super::BY_SIZE, super::PRECISION, super::RECALL],
};

/// The smallest size of a structure in bytes.
const LEAST: usize = 1 << 20;

fn measure(setting: &Setting) -> Result<Outcome, Failure> {
    let packets = setting.epochs(Mix::Trace, Scene::Spread)?;
    let exam = Exam::<Key4>::new(setting, Mix::Trace, Scene::Spread, KeyKind::SOURCE, &packets)?;
    let stream = Stream::of(&packets[0], KeyKind::SOURCE, setting.seed);
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

fn judge(table: &Table) -> Verdict {
    let of = |name: &str, column: &str| table.numbers("structure", name, column);
    let last = |name: &str, column: &str| of(name, column).last().copied().unwrap_or(f64::NAN);
    let both = [("mean", "mean_ns"), ("tail", "p99_ns")];
    let less = |(what, column): (&str, &str), one: &str, other: &str, tables: &[&str]| {
        let of = |name: &str| super::roomy(table, tables, name, column);
        Part::less(&format!("{what} of the {one} over {other}"), &of(one), &of(other))
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
                "Filters of 128 bytes take two lines of memory wherever they are.",
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
