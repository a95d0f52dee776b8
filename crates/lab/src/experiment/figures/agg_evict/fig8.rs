//! Figure 8: the eviction policy, and the search within a row.

use flowgauge_core::key::{Key4, Key8, KeyKind};
use flowgauge_kernel::Isa;

use super::fig5::measure_solution;
use super::paper::{Policy, Search};
use super::solutions::FlowRadar;
use super::{ALONE, BEHIND, THEIRS, THEIRS_BEHIND, Way, theirs};
use crate::experiment::chart::Chart;
use crate::experiment::part::{Part, median};
use crate::experiment::setting::{Mix, Setting};
use crate::experiment::stream::Stream;
use crate::experiment::table::Table;
use crate::experiment::verdict::{Claim, Gain, Verdict};
use crate::experiment::{Experiment, Outcome, Preset};
use crate::failure::Failure;

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
    measure,
    judge,
    missing: &[],
    charts: &[Chart {
        x: "solution",
        only: &[IN_TURN, LEAST_RECENT, THEIRS_IN_TURN, THEIRS_LEAST_RECENT],
        ..super::LATENCY
    }],
};

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

fn measure(setting: &Setting) -> Result<Outcome, Failure> {
    let stream = Stream::<Key4>::draw(setting, Mix::Trace, KeyKind::SOURCE)?;
    let pairs = Stream::<Key8>::draw(setting, Mix::Trace, KeyKind::PAIR)?;
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

fn judge(table: &Table) -> Verdict {
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
    let stream = Stream::<Key4>::draw(setting, Mix::Trace, KeyKind::SOURCE)?;
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
                "A faster solution gains less from what is not done.",
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
