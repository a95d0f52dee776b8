//! Figures 5 and 8: nine solutions, and the eviction policy and search of the aggregator.

use flowgauge_core::key::KeyKind;
use flowgauge_kernel::Isa;

use super::paper::{
    Counters, FlowRadar, Fm, LinearCounting, Policy, Reversible, Search, SpaceSaving, TwoLevel,
    UnivMon,
};
use super::{
    ALONE, BEHIND, BOTH_THEIRS, OURS, THEIRS, THEIRS_BEHIND, TWO_LEVEL, Theirs, WAYS, Way, less,
    theirs,
};
use crate::experiment::chart::Chart;
use crate::experiment::part::{Part, median};
use crate::experiment::setting::{LINE_RATE, Mix, Setting};
use crate::experiment::stream::Stream;
use crate::experiment::structure::Structure;
use crate::experiment::table::Table;
use crate::experiment::verdict::{Claim, Gain, Verdict};
use crate::experiment::{Experiment, Outcome, Preset};
use crate::failure::Failure;
use crate::keys::{Keys, Pairs, Sources};

/// Figure 5: nine solutions with and without the aggregator.
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
            TWO_LEVEL,
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
    measure: measure_solutions,
    judge: judge_solutions,
    missing: &[],
    charts: &[
        Chart { x: "solution", ..super::THROUGHPUT },
        Chart { x: "solution", ..super::LATENCY },
    ],
};

/// The paper's solution of this name, run in these ways; TwoLevel only by pair.
fn of_paper<K: Keys>(name: &str, ways: impl IntoIterator<Item = Way>) -> Vec<Theirs<K>> {
    match name {
        "Count-Min" | "MRAC" => theirs(Counters::new, ways),
        "FlowRadar" => theirs(FlowRadar::<4>::new, ways),
        "Space-Saving" => theirs(SpaceSaving::new, ways),
        "UnivMon" => theirs(UnivMon::new, ways),
        "RevSketch" => theirs(Reversible::new, ways),
        "FM" => theirs(Fm::new, ways),
        "LC" => theirs(LinearCounting::new, ways),
        TWO_LEVEL if K::KIND == KeyKind::PAIR => theirs(TwoLevel::new, ways),
        _ => Vec::new(),
    }
}

/// Measures structures of the engine, and the paper's solution of this name in these ways, by
/// source. The paper's TwoLevel uses both addresses.
fn measure_solution(
    table: &mut Table,
    name: &str,
    ours: &[Structure],
    ways: &[Way],
    setting: &Setting,
    (sources, pairs): (&Stream<Sources>, &Stream<Pairs>),
) -> Result<(), Failure> {
    let (at, ways) = ([name.into()], ways.iter().copied());
    super::measure(table, &at, ours, of_paper(name, ways.clone()), setting, sources)?;
    if name == TWO_LEVEL {
        super::measure(table, &at, &[], of_paper(name, ways), setting, pairs)?;
    }
    Ok(())
}

fn measure_solutions(setting: &Setting) -> Result<Outcome, Failure> {
    let stream = Stream::<Sources>::draw(setting, Mix::Trace)?;
    let pairs = Stream::<Pairs>::draw(setting, Mix::Trace)?;
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

fn judge_solutions(table: &Table) -> Verdict {
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
                "A faster solution gains less from skipped work.",
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
                "A faster structure gains less from skipped work.",
            )
            .on_baseline([two_level_latency(THEIRS_BEHIND, THEIRS)], faster),
        ],
    )
}

/// Figure 8a: the eviction policy.
pub(crate) const FIG8A: Experiment = Experiment {
    name: "agg-evict/fig8a",
    title: "eviction in turn, or of the least recently used",
    paper: "Agg-Evict (CCR 2018), Fig. 8a",
    presets: &[
        super::TRAFFIC,
        super::EPOCH,
        super::BATCHES,
        super::SOURCES,
        super::AGGREGATOR,
        super::HASHES,
        Preset::same("solutions", "those of figure 5"),
    ],
    measure: measure_policies,
    judge: judge_policies,
    missing: &[],
    charts: &[Chart {
        x: "solution",
        only: &[IN_TURN, LEAST_RECENT, THEIRS_IN_TURN, THEIRS_LEAST_RECENT],
        ..super::LATENCY
    }],
};

/// Figures 8b and 8c: the search within a row.
pub(crate) const FIG8B: Experiment = Experiment {
    name: "agg-evict/fig8b",
    title: "the aggregator with and without vector instructions",
    paper: "Agg-Evict (CCR 2018), Fig. 8b and 8c",
    presets: &[
        super::TRAFFIC,
        super::EPOCH,
        super::BATCHES,
        super::SOURCES,
        super::AGGREGATOR,
        super::HASHES,
        super::RADAR,
        Preset::other(
            "instructions",
            "SSE2, or linear search",
            "the same in the paper's aggregator; every instruction set of the processor in the engine's",
            "the engine takes the best there is",
        ),
    ],
    measure: measure_isas,
    judge: judge_isas,
    missing: &[],
    charts: &[
        Chart { x: "instructions", ..super::THROUGHPUT },
        Chart { x: "instructions", ..super::LATENCY },
    ],
};

const IN_TURN: &str = "in turn";
const LEAST_RECENT: &str = "least recent";

/// The same for the paper's aggregator.
const THEIRS_IN_TURN: &str = "the paper's, in turn";
const THEIRS_LEAST_RECENT: &str = "the paper's, least recent";

/// Both policies of the paper's aggregator.
const POLICIES: [Way; 2] = [
    (THEIRS_IN_TURN, Some((Policy::RoundRobin, Search::Vector))),
    (THEIRS_LEAST_RECENT, Some((Policy::LeastRecent, Search::Vector))),
];

/// FlowRadar in each way of figures 8b and 8c.
const SEARCHES: [Way; 3] = [
    (THEIRS, None),
    (THEIRS_BEHIND, Some((Policy::RoundRobin, Search::Vector))),
    (THEIRS_LINEAR, Some((Policy::RoundRobin, Search::Linear))),
];

/// The paper's aggregator without vector instructions.
const THEIRS_LINEAR: &str = "the paper's, behind, linear search";

/// The solutions with heaps.
const HEAPS: [&str; 2] = ["Space-Saving", "UnivMon"];

fn measure_policies(setting: &Setting) -> Result<Outcome, Failure> {
    let stream = Stream::<Sources>::draw(setting, Mix::Trace)?;
    let pairs = Stream::<Pairs>::draw(setting, Mix::Trace)?;
    let mut table = super::table(["solution"]);
    let rows = super::ROWS.to_string();
    for structure in super::nine() {
        let by = [(IN_TURN, "round-robin"), (LEAST_RECENT, "lru")].map(|(label, policy)| {
            let behind =
                structure.clone().behind("agg-evict", [("rows", &*rows), ("policy", policy)]);
            behind.named(label)
        });
        let streams = (&stream, &pairs);
        measure_solution(&mut table, &structure.label, &by, &POLICIES, setting, streams)?;
    }
    let limit = super::limit(&table);
    Ok(Outcome { table, limit, notes: String::new() })
}

fn judge_policies(table: &Table) -> Verdict {
    let of = |how: &str, heaps: bool| -> Vec<f64> {
        let rows = table.of("how", how);
        let rows = rows.filter(|row| HEAPS.contains(&row.text("solution")) == heaps);
        rows.map(|row| row.number("mean_ns")).collect()
    };
    let hashing = |[in_turn, recent]: [&str; 2]| {
        let what = "mean in turn over least recent, before what hashes";
        Part::less(what, &of(in_turn, false), &of(recent, false))
    };
    let heaps = |[in_turn, recent]: [&str; 2]| {
        let what = "mean least recent over in turn, before what keeps a heap";
        Part::less(what, &of(recent, true), &of(in_turn, true))
    };
    let (ours, theirs) = ([IN_TURN, LEAST_RECENT], [THEIRS_IN_TURN, THEIRS_LEAST_RECENT]);
    let ratios = |heaps: bool| {
        let both = of(THEIRS_IN_TURN, heaps).into_iter().zip(of(IN_TURN, heaps));
        both.map(|(theirs, ours)| theirs / ours)
    };
    let faster = Gain::Faster(median(&ratios(false).chain(ratios(true)).collect::<Vec<_>>()));
    Verdict::of(
        table,
        [
            Claim::new(
                "Eviction in turn (global round robin) is faster than that of the least recently used \
                 before what hashes.",
                [hashing(ours)],
                "Where an update costs much, the fewer evictions of the other policy pay.",
            )
            .on_baseline([hashing(theirs)], faster),
            Claim::new(
                "Eviction in turn is a little slower before what keeps a heap (Space-Saving, UnivMon).",
                [heaps(ours)],
                "The time of an update of a sum does not grow with it where the heap is searched by a \
                 digest; then the policy that costs less wins here as well.",
            )
            .on_baseline([heaps(theirs)], faster),
        ],
    )
}

fn measure_isas(setting: &Setting) -> Result<Outcome, Failure> {
    let stream = Stream::<Sources>::draw(setting, Mix::Trace)?;
    let mut table = super::table(["instructions"]);
    for isa in Isa::available() {
        let both =
            super::both(&super::flow_radar(), super::ROWS).map(|structure| structure.on(isa));
        super::measure(&mut table, &[isa.name().into()], &both, Vec::new(), setting, &stream)?;
    }
    let theirs = theirs(FlowRadar::<4>::new, SEARCHES);
    super::measure(&mut table, &["the paper's".into()], &[], theirs, setting, &stream)?;
    let limit = super::limit(&table);
    let notes = "The instruction set is that of the whole run, the digest's too.".to_owned();
    Ok(Outcome { table, limit, notes })
}

fn judge_isas(table: &Table) -> Verdict {
    let mean = |how: &str| table.numbers("how", how, "mean_ns");
    let last = |how: &str| mean(how).last().copied().unwrap_or(f64::NAN);
    let gain = |behind: &str, alone: &str| {
        let what = "times that FlowRadar is faster behind the aggregator";
        Part::at_least(what, last(alone) / last(behind), 2.92).timed()
    };
    // The paper's is one.
    let vectors = if table.texts("instructions").len() > 2 {
        let what = "mean behind the aggregator (ns), by instruction set";
        Part::moves(what, &mean(BEHIND), false)
    } else {
        Part::open("this processor has no vector instructions that are used")
    };
    let what = "mean of the search with vector instructions over the linear one";
    let searches = Part::less(what, &mean(THEIRS_BEHIND), &mean(THEIRS_LINEAR));
    let faster = Gain::Faster(last(THEIRS) / last(ALONE));
    Verdict::of(
        table,
        [
            Claim::new(
                "FlowRadar behind the aggregator takes 2.92 times less than alone.",
                [gain(BEHIND, ALONE)],
                "A faster solution gains less from skipped work.",
            )
            .on_baseline([gain(THEIRS_BEHIND, THEIRS)], faster),
            Claim::new(
                "Comparing all pairs of a row at once is faster than one after another.",
                [vectors],
                "The engine's rows are found by a digest that costs more than the search.",
            )
            .on_baseline([searches], faster),
        ],
    )
}
