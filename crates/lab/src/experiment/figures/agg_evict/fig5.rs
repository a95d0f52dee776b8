//! Figure 5: nine solutions with and without the aggregator.

use flowgauge_core::key::{FlowKey, Key4, Key8, KeyKind};

use super::solutions::{
    Counters, FlowRadar, Fm, LinearCounting, Reversible, SpaceSaving, TwoLevel, UnivMon,
};
use super::{
    ALONE, BEHIND, BOTH_THEIRS, OURS, THEIRS, THEIRS_BEHIND, Theirs, WAYS, Way, less, theirs,
};
use crate::experiment::chart::Chart;
use crate::experiment::part::Part;
use crate::experiment::setting::{LINE_RATE, Mix, Setting};
use crate::experiment::stream::Stream;
use crate::experiment::structure::Structure;
use crate::experiment::table::Table;
use crate::experiment::verdict::{Claim, Verdict};
use crate::experiment::{Experiment, Outcome, Preset};
use crate::failure::Failure;

pub(crate) const FIG5: Experiment = Experiment {
    name: "agg-evict/fig5",
    title: "nine solutions with and without the aggregator",
    paper: "Agg-Evict (CCR 2018), Fig. 5",
    presets: &[
        super::TRAFFIC,
        super::EPOCH,
        super::BATCHES,
        super::SOURCES,
        super::AGGREGATOR,
        super::HASHES,
        super::RADAR,
        Preset::same("Count-Min, RevSketch", "4 arrays of 65536 counters of 32 bits"),
        Preset::other(
            "MRAC",
            "4 arrays of 65536 counters, each counted in",
            "that, and the engine's one array of as many counters",
            "MRAC has one array; four only cost time",
        ),
        Preset::same("Space-Saving", "128 flows"),
        Preset::other(
            "TwoLevel",
            "RevSketch, and 4 arrays of 4096 bitmaps of 12 bits",
            "that, and the engine's with 4 x 65536 counters and 4096 bitmaps",
            "the engine's bitmaps are longer, to tell thresholds of 128",
        ),
        Preset::same("UnivMon", "4 levels of 4 rows of 65536 to 8192 counters, 128 flows"),
        Preset::other(
            "FM, LC",
            "4 counters of 32 bits, 4 arrays of 2097152 bits, each updated",
            "that, and the engine's: stochastic averaging, one array of 8388608 bits",
            "one array tells as much by one update",
        ),
    ],
    measure,
    judge,
    missing: &[],
    charts: &[
        Chart { x: "solution", ..super::THROUGHPUT },
        Chart { x: "solution", ..super::LATENCY },
    ],
};

const TWO_LEVEL: &str = "TwoLevel";

/// The paper's solution of this name, run in these ways; TwoLevel only by pair.
fn of_paper<K: FlowKey>(name: &str, ways: impl IntoIterator<Item = Way>) -> Vec<Theirs<K>> {
    match name {
        "Count-Min" | "MRAC" => theirs(Counters::new, ways),
        "FlowRadar" => theirs(FlowRadar::<4>::new, ways),
        "Space-Saving" => theirs(SpaceSaving::new, ways),
        "UnivMon" => theirs(UnivMon::new, ways),
        "RevSketch" => theirs(Reversible::new, ways),
        "FM" => theirs(Fm::new, ways),
        "LC" => theirs(LinearCounting::new, ways),
        TWO_LEVEL if K::SHORTEST == Key8::SHORTEST => theirs(TwoLevel::new, ways),
        _ => Vec::new(),
    }
}

/// Measures structures of the engine, and the paper's solution of this name in these ways, by
/// source. The paper's TwoLevel uses both addresses.
pub(super) fn measure_solution(
    table: &mut Table,
    name: &str,
    ours: &[Structure],
    ways: &[Way],
    setting: &Setting,
    (sources, pairs): (&Stream<Key4>, &Stream<Key8>),
) -> Result<(), Failure> {
    let (at, ways) = ([name.into()], ways.iter().copied());
    super::measure(table, &at, ours, of_paper(name, ways.clone()), setting, sources)?;
    if name == TWO_LEVEL {
        super::measure(table, &at, &[], of_paper(name, ways), setting, pairs)?;
    }
    Ok(())
}

fn measure(setting: &Setting) -> Result<Outcome, Failure> {
    let stream = Stream::<Key4>::draw(setting, Mix::Trace, KeyKind::SOURCE)?;
    let pairs = Stream::<Key8>::draw(setting, Mix::Trace, KeyKind::PAIR)?;
    let mut table = super::table(["solution"]);
    for structure in super::nine() {
        let both = super::both(&structure, super::ROWS);
        measure_solution(&mut table, &structure.label, &both, &WAYS, setting, (&stream, &pairs))?;
    }
    let limit = super::limit(&table);
    let notes = "The engine's aggregator hands on what it evicts in half batches of 128 sums, so that one \
                 batch of 32 packets in some pays for many: that is its tail. The paper's solutions are \
                 written in the lab, with a hash for each row, behind its aggregator, which hands on each \
                 flow at once."
        .to_owned();
    Ok(Outcome { table, limit, notes })
}

fn judge(table: &Table) -> Verdict {
    let mpps = |how: &str, two_level: bool| {
        let rows = table.of("how", how);
        let rows = rows.filter(|row| (row.text("solution") == TWO_LEVEL) == two_level);
        rows.map(|row| row.number("mpps")).fold(f64::NAN, f64::min)
    };
    // Mean alone divided by mean behind, for one solution, or for the one that gains most.
    let gain = |[behind, alone]: [&str; 2]| {
        let of = |how: &str| table.numbers("how", how, "mean_ns");
        let gains = of(alone).into_iter().zip(of(behind)).map(|(alone, behind)| alone / behind);
        let most = gains.fold(f64::NAN, f64::max);
        Part::at_least("times that the mean is lower, at best", most, 5.7).timed()
    };
    let two_level = |behind: &str, alone: &str| {
        let times = mpps(behind, true) / mpps(alone, true);
        Part::at_least("times that TwoLevel's throughput is higher", times, 2.5).timed()
    };
    let two_level_latency = |behind: &str, alone: &str| {
        let mean = |how: &str| {
            let mut rows = table.of("how", how).filter(|row| row.text("solution") == TWO_LEVEL);
            rows.next().map_or(f64::NAN, |row| row.number("mean_ns"))
        };
        let times = mean(alone) / mean(behind);
        Part::at_least("times that TwoLevel's mean is lower", times, 3.5).timed()
    };
    let faster = super::faster(table);
    Verdict::of(
        table,
        [
            Claim::new(
                "All nine are faster behind the aggregator, in the mean.",
                [less(table, "mean", "mean_ns", OURS)],
                "A solution that takes less than the aggregator gains nothing from it.",
            )
            .on_baseline([less(table, "mean", "mean_ns", BOTH_THEIRS)], faster),
            Claim::new(
                "All nine are faster behind it in the tail, too.",
                [less(table, "tail", "p99_ns", OURS)],
                "Sums that are handed on together make some batches long. Of the paper's structures FM takes \
                 the same time for every packet, so that its tail is its mean, and behind the aggregator \
                 the batches with more evictions take longer.",
            )
            .on_baseline([less(table, "tail", "p99_ns", BOTH_THEIRS)], faster),
            Claim::new(
                "The mean latency is up to 5.7 times lower.",
                [gain(OURS)],
                "A faster solution gains less from what is not done.",
            )
            .on_baseline([gain(BOTH_THEIRS)], faster),
            Claim::new(
                "All but TwoLevel reach the 14.88 million packets a second of a 10 Gbit/s link.",
                [Part::at_least(
                    "the slowest but TwoLevel, in million packets a second",
                    mpps(BEHIND, false),
                    LINE_RATE,
                )
                .timed()],
                "This core is slower than the paper's.",
            ),
            Claim::new(
                "TwoLevel gains a factor of 2.5 in throughput.",
                [two_level(BEHIND, ALONE)],
                "Pairs of addresses come again less often than sources.",
            )
            .on_baseline([two_level(THEIRS_BEHIND, THEIRS)], faster),
            Claim::new(
                "TwoLevel's mean latency is 3.5 times lower.",
                [two_level_latency(BEHIND, ALONE)],
                "A faster structure gains less from what is not done.",
            )
            .on_baseline([two_level_latency(THEIRS_BEHIND, THEIRS)], faster),
        ],
    )
}
