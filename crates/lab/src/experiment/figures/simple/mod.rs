//! Alipourfard et al., "A comparison of performance and accuracy of measurement algorithms in
//! software" (SOSR 2018).

mod by_size;
mod cores;
mod entries;
mod memory;
mod padded;
mod paper;
mod workloads;
mod zero_loss;

pub(super) use by_size::{ARRAY_SIZE, FIG1, FIG2, HIERARCHICAL};
pub(super) use cores::{FIG8, MERGE};
pub(super) use entries::{FIG6, FIG7};
pub(super) use memory::{CACHE, FIG9A, FIG9B};
pub(super) use workloads::{FIG3, FIG3C, FIG4, FIG5};
pub(super) use zero_loss::ZERO_LOSS;

use crate::experiment::chart::{Chart, linear, log};
use crate::experiment::latency::{self, BARE, Bare, COLUMNS, Runner};
use crate::experiment::papers::Heap;
use crate::experiment::part::median;
use crate::experiment::setting::{Mix, Setting};
use crate::experiment::stream::Stream;
use crate::experiment::structure::{Exam, Structure};
use crate::experiment::table::Table;
use crate::experiment::verdict::Gain;
use crate::experiment::{Preset, epoch};
use crate::failure::Failure;
use crate::keys::{Keys, Pairs};
use crate::traffic::Scene;
use padded::Engine;
use paper::{Apart, Inline, Rows, Rule};

/// Packets per batch.
const BATCH: usize = 64;

/// Bytes of structures whose size is not varied: twice the last-level cache here.
const LARGE: usize = 64 << 20;

/// Names of the structures in tables. The count array counts keys of heavy columns separately, but
/// not alone. The overwriting array keeps the last key of a slot, as the paper's does.
const ARRAY: &str = "count array";
const OVERWRITING: &str = "overwriting array";
const PLAIN: &str = "array alone";
const COUNT_MIN: &str = "Count-Min";
const LINEAR: &str = "linear table";
const CUCKOO_1: &str = "cuckoo-1";
const CUCKOO_4: &str = "cuckoo-4";
const SPACE_SAVING: &str = "Space-Saving";
const HEAP: &str = "binary heap";

/// The paper's structures: keys next to values, or a hash per row and a set of heavy keys.
const INLINE: &str = "linear table, inline";
const INLINE_ARRAY: &str = "overwriting array, inline";
const INLINE_CUCKOO_1: &str = "cuckoo-1, inline";
const INLINE_CUCKOO_4: &str = "cuckoo-4, inline";
const SET_ARRAY: &str = "count array, set";
const SET_COUNT_MIN: &str = "Count-Min, 3 hashes, set";

/// The structures that keep more per flow than a counter, and their names in the catalog.
const STATEFUL: [(&str, &str); 5] = [
    (ARRAY, "count-array"),
    (OVERWRITING, "replacing-array"),
    (LINEAR, "linear-table"),
    (CUCKOO_1, "cuckoo-1"),
    (CUCKOO_4, "cuckoo-4"),
];

const TRAFFIC: Preset = Preset::other(
    "traffic",
    "a minute of CAIDA: 27 million packets, a million flows, skew 1.1",
    "generated like a backbone's, or `--keys FILE`",
    "the trace is not free to hand on",
);
const EPOCH: Preset = Preset::of("epoch", "2 million packets", epoch, "`--quick` is for every day");
const BATCHES: Preset = Preset::same("batch", "64 packets of 64 bytes");
const KEY: Preset = Preset::same("key, counter", "both addresses, 12 bytes");
const HEAVY: Preset = Preset::same("threshold", "0.1 % of the packets");
const SIZES: Preset = Preset::of(
    "sizes",
    "0.05 to 200 MB",
    |setting| format!("{} to {} MB", megabytes(LEAST), setting.most_bytes >> 20),
    "powers of two",
);
const ENTRIES: Preset = Preset::other(
    "tables and arrays",
    "key and value inline, one item a bucket; a hash for each row of Count-Min",
    "both the paper's, written in the lab, and the engine's: an index before records, one digest for all rows",
    "the claims are about the former, users have the latter",
);
const CUCKOO: Preset = Preset::same("cuckoo tables", "1 and 4 slots a bucket");
const ROWS_3: Preset = Preset::same("Count-Min", "3 rows");
const SIZE: Preset = Preset::other(
    "size",
    "32 MB, which is more than a last-level cache of 25 MB",
    "64 MB",
    "last-level caches of 32 MB are common now; entries are 24 bytes",
);
const SKEWED: Preset = Preset::of(
    "skewed traffic",
    "pairs of the trace, drawn by Zipf's law",
    |_| "a million pairs, drawn by Zipf's law".to_owned(),
    "as many as the trace has flows",
);

/// The smallest size of a sweep in bytes.
const LEAST: usize = 1 << 16;

/// A measured runner, and a structure with the same answers, if any.
struct Contender<K: Keys> {
    label: String,
    runner: Box<dyn Runner<K>>,
    answers: Option<Structure>,
}

impl<K: Keys> Contender<K> {
    fn of(structure: Structure, setting: &Setting) -> Result<Self, Failure> {
        let runner = Box::new(structure.build::<K>(setting)?);
        Ok(Self { label: structure.label.clone(), runner, answers: Some(structure) })
    }

    /// An algorithm in `bytes` bytes, with this name in tables.
    fn new(
        label: &str,
        algorithm: &'static str,
        parameters: &[(&str, &str)],
        bytes: usize,
        setting: &Setting,
    ) -> Result<Self, Failure> {
        let structure = Structure::new(label, algorithm).in_bytes(bytes);
        Self::of(structure.with(parameters.iter().copied()), setting)
    }

    /// A structure of most figures, by name.
    fn named(label: &str, bytes: usize, setting: &Setting) -> Result<Self, Failure> {
        let (algorithm, parameters): (_, &[_]) = match label {
            ARRAY => ("count-array", &[]),
            OVERWRITING => ("replacing-array", &[("candidates", "0")]),
            PLAIN => ("count-array", &[("candidates", "0")]),
            COUNT_MIN => ("count-min", &[("rows", "3")]),
            CUCKOO_1 => ("cuckoo-1", &[]),
            CUCKOO_4 => ("cuckoo-4", &[]),
            SPACE_SAVING => ("space-saving", &[]),
            HEAP => return Ok(Self::heap::<0>(bytes)),
            INLINE => return Ok(Self::inline::<0>(INLINE, Rule::Linear, bytes)),
            INLINE_ARRAY => return Ok(Self::inline::<0>(INLINE_ARRAY, Rule::Overwriting, bytes)),
            INLINE_CUCKOO_1 => return Ok(Self::inline::<0>(label, Rule::Cuckoo(1), bytes)),
            INLINE_CUCKOO_4 => return Ok(Self::inline::<0>(label, Rule::Cuckoo(4), bytes)),
            SET_ARRAY => return Ok(Self::rows::<1>(label, bytes, setting)),
            SET_COUNT_MIN => return Ok(Self::rows::<3>(label, bytes, setting)),
            _ => ("linear-table", &[]),
        };
        Self::new(label, algorithm, parameters, bytes, setting)
    }

    /// A structure of the paper; its accuracy is not measured.
    fn of_paper(label: &str, runner: impl Runner<K> + 'static) -> Self {
        Self { label: label.to_owned(), runner: Box::new(runner), answers: None }
    }

    /// Keys next to values, with `PAYLOAD` more bytes per entry.
    fn inline<const PAYLOAD: usize>(label: &str, rule: Rule, bytes: usize) -> Self {
        Self::of_paper(label, Inline::<K, PAYLOAD>::new(rule, bytes))
    }

    /// The same number of keys, with pointers to values that have `PAYLOAD` more bytes.
    fn apart<const PAYLOAD: usize>(label: &str, bytes: usize) -> Self {
        let buckets = Inline::<K, PAYLOAD>::buckets(bytes);
        Self::of_paper(label, Apart::<K, PAYLOAD>::new(buckets))
    }

    /// Rows of counters with a hash each.
    fn rows<const ROWS: usize>(label: &str, bytes: usize, setting: &Setting) -> Self {
        Self::of_paper(label, Rows::<K, ROWS>::new(bytes, setting.packets))
    }

    /// The paper's heap, with `PAYLOAD` more bytes per entry.
    fn heap<const PAYLOAD: usize>(bytes: usize) -> Self {
        let heap = Heap::<K, PAYLOAD>::new(bytes);
        let counters = [("counters", heap.counters())];
        let answers = Structure::new(HEAP, "space-saving").with(counters);
        Self { answers: Some(answers), ..Self::of_paper(HEAP, heap) }
    }
}

impl Contender<Pairs> {
    /// A table of the engine in `bytes` bytes, with `padding` bytes for each flow. Its accuracy is
    /// not measured.
    fn padded(
        label: &str,
        engine: Engine,
        padding: usize,
        bytes: usize,
        setting: &Setting,
    ) -> Result<Self, Failure> {
        let structure = Structure::new(label, engine.name()).in_bytes(bytes);
        let table =
            structure.build_by::<Pairs>(setting, |options| engine.padded(padding, options))?;
        Ok(Self { label: label.to_owned(), runner: Box::new(table), answers: None })
    }
}

/// An empty table of latency and accuracy, with these columns first.
fn table(by: impl IntoIterator<Item = &'static str>) -> Table {
    let by = std::iter::once("structure").chain(by);
    Table::new(by.chain(COLUMNS).chain(["held_percent", "precision", "recall"]))
}

/// Measures these contenders, and their accuracy if a task is given. Adds a row for each and one
/// for the bare loop; `at` fills the table's own columns.
fn measure<K: Keys>(
    table: &mut Table,
    at: &[f64],
    mut contenders: Vec<Contender<K>>,
    setting: &Setting,
    stream: &Stream<K>,
    exam: Option<(&Exam<'_, K>, &str)>,
) -> Result<(), Failure> {
    let mut bare = Bare::new();
    let mut runners: Vec<&mut dyn Runner<K>> = vec![&mut bare];
    runners.extend(contenders.iter_mut().map(|one| &mut *one.runner as &mut dyn Runner<K>));
    let times = latency::race(&mut runners, stream, BATCH, setting.rounds);
    table.add_noise(latency::noise(&times, setting.rounds));
    let labels = std::iter::once(BARE).chain(contenders.iter().map(|one| one.label.as_str()));
    for (number, (label, time)) in labels.zip(times).enumerate() {
        let answers = number.checked_sub(1).and_then(|at| contenders[at].answers.as_ref());
        let score = match (exam, answers) {
            (Some((exam, task)), Some(answers)) => exam.score(answers, task)?,
            _ => None,
        };
        let accuracy = score.map_or([None, None], |score| [score.precision(), score.recall()]);
        let at = at.iter().map(|number| (*number).into());
        let held = number.checked_sub(1).map(|number| {
            let untracked = contenders[number].runner.untracked() as f64;
            100.0 * (1.0 - untracked / stream.keys.len() as f64)
        });
        let accuracy = [held, accuracy[0], accuracy[1]].map(Into::into);
        table.push(std::iter::once(label.into()).chain(at).chain(time.cells()).chain(accuracy));
    }
    Ok(())
}

/// Measures structures of each size over the pairs of a trace, and how well they find heavy ones.
fn heavy_pairs_by_size(names: &[&str], setting: &Setting) -> Result<Table, Failure> {
    let packets = setting.epochs(Mix::Trace, Scene::Plain)?;
    let exam = Exam::<Pairs>::new(setting, Mix::Trace, Scene::Plain, &packets)?;
    let stream = Stream::of(&packets[0], setting.seed);
    let mut table = table(["size_mb"]);
    for bytes in setting.sizes(LEAST) {
        let contenders = names.iter().map(|name| Contender::named(name, bytes, setting));
        let contenders = contenders.collect::<Result<Vec<_>, _>>()?;
        let exam = Some((&exam, "heavy-hitters"));
        measure(&mut table, &[megabytes(bytes)], contenders, setting, &stream, exam)?;
    }
    Ok(table)
}

/// How many times faster the first means are than the second, in the median.
fn faster(ours: &[f64], theirs: &[f64]) -> Gain {
    let ratios: Vec<f64> = theirs.iter().zip(ours).map(|(theirs, ours)| theirs / ours).collect();
    Gain::Faster(median(&ratios))
}

/// The smaller of two columns, row by row: of two forms of one structure the better counts.
fn better(one: &[f64], other: &[f64]) -> Vec<f64> {
    one.iter().zip(other).map(|(one, other)| one.min(*other)).collect()
}

/// The numbers of a structure at the points where each of these tables has room for every flow.
fn roomy(table: &Table, tables: &[&str], name: &str, column: &str) -> Vec<f64> {
    let held = tables.iter().map(|name| table.numbers("structure", name, "held_percent"));
    let held: Vec<Vec<f64>> = held.collect();
    let fits = |at: usize| held.iter().all(|held| held.get(at).is_some_and(|h| *h >= 100.0));
    let numbers = table.numbers("structure", name, column).into_iter().enumerate();
    numbers.filter(|(at, _)| fits(*at)).map(|(_, number)| number).collect()
}

/// Bytes in units of 2²⁰.
fn megabytes(bytes: usize) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// What the bare loop shows.
fn limit(table: &Table) -> String {
    latency::limit(&table.numbers("structure", BARE, "mean_ns"), BATCH)
}

/// Mean and tail by size.
const BY_SIZE: Chart = Chart {
    title: "Latency",
    x: "size_mb",
    x_axis: log("size (MB)"),
    y: &[("mean_ns", " mean"), ("p99_ns", " p99")],
    y_axis: linear("latency (ns a packet)"),
    series: "structure",
    only: &[],
    paper: &[],
    see: "Follow each line over the sizes: where it turns up, the structure has left a cache, and where it is high at the left, it is too full.",
};

/// Precision by tail.
const PRECISION: Chart = Chart {
    title: "Precision against tail latency",
    x: "p99_ns",
    x_axis: linear("99th percentile of latency (ns a packet)"),
    y: &[("precision", "")],
    y_axis: linear("precision"),
    series: "structure",
    only: &[],
    paper: &[],
    see: "The best structures stand at the top left: few ns in the tail, and everything named rightly.",
};

/// Recall by tail.
const RECALL: Chart = Chart {
    title: "Recall against tail latency",
    y: &[("recall", "")],
    y_axis: linear("recall"),
    ..PRECISION
};
