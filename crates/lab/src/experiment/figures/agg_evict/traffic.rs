//! Figures 4 and 7: the traffic's flow sizes and skew, and the size of the aggregator.

use flowgauge_core::key::FlowKey;
use flowgauge_synthetic::Profile;

use super::paper::FlowRadar;
use super::{ALONE, BEHIND, BOTH_THEIRS, OURS, THEIRS, THEIRS_BEHIND, WAYS, less, theirs};
use crate::exact::{Exact, number};
use crate::experiment::chart::{Chart, linear, log};
use crate::experiment::part::Part;
use crate::experiment::setting::{Mix, Setting};
use crate::experiment::stream::Stream;
use crate::experiment::table::{Table, row};
use crate::experiment::verdict::{Claim, Verdict};
use crate::experiment::{Experiment, Outcome, Preset};
use crate::failure::Failure;
use crate::keys::{Keys, Sources};
use crate::traffic::Scene;
use crate::trial::THRESHOLD;

/// Figure 4: how many packets flows have.
pub(crate) const FIG4: Experiment = Experiment {
    name: "agg-evict/fig4",
    title: "how many packets flows have",
    paper: "Agg-Evict (CCR 2018), Fig. 4",
    presets: &[super::TRAFFIC, super::EPOCH, Preset::same("key", "the source")],
    measure: measure_flows,
    judge: judge_flows,
    missing: &[],
    charts: &[
        Chart {
            title: "Flows",
            x: "packets_at_most",
            x_axis: log("packets of a flow, at most"),
            y: &[("flows_percent", "")],
            y_axis: linear("flows (%)"),
            series: "traffic",
            only: &[],
            paper: &[],
            see: "Most flows are small: the line is high at the left already.",
        },
        Chart {
            title: "Their packets",
            x: "packets_at_most",
            x_axis: log("packets of a flow, at most"),
            y: &[("packets_percent", "")],
            y_axis: linear("packets (%)"),
            series: "traffic",
            only: &[],
            paper: &[],
            see: "Few packets are in small flows: the line rises at the right only.",
        },
    ],
};

/// The traffic that the claim is about.
const TRACE: &str = "trace";

fn measure_flows(setting: &Setting) -> Result<Outcome, Failure> {
    let mut table =
        Table::new(["traffic", "packets_at_most", "flows_percent", "packets_percent", "flows"]);
    for (name, mix) in [(TRACE, Mix::Trace), ("Zipf 1.1", Mix::Zipf(1.1))] {
        let stream = Stream::<Sources>::draw(setting, mix)?;
        let keys = stream.keys.iter().map(|key| number(key.canonical(Sources::BYTES))).collect();
        let flows = Exact::count(keys);
        let (weights, total) = (flows.sorted_weights(), flows.total() as f64);
        for power in 0..=2 * total.log10().ceil() as i32 {
            let most = 10_f64.powf(f64::from(power) / 2.0).round();
            let within = weights.partition_point(|weight| *weight as f64 <= most);
            let packets: u64 = weights[..within].iter().sum();
            let percent = |share: f64| 100.0 * share;
            let flows = percent(within as f64 / weights.len() as f64);
            row!(table, name, most, flows, percent(packets as f64 / total), weights.len());
            if within == weights.len() {
                break;
            }
        }
    }
    let limit = "Flows are counted exactly; nothing is timed.".to_owned();
    Ok(Outcome { table, limit, notes: String::new() })
}

fn judge_flows(table: &Table) -> Verdict {
    let rows = table.of("traffic", TRACE).filter(|row| row.number("packets_at_most") <= 10.0);
    let (flows, packets) = rows.last().map_or((f64::NAN, f64::NAN), |row| {
        (row.number("flows_percent"), row.number("packets_percent"))
    });
    Verdict::of(
        table,
        [Claim::new(
            "Flows (by source) are many and small, and the packets are in few of them: more than half of the \
             flows have at most 10 packets, and together they have less than half of all packets.",
            [
                Part::at_least("percent of the flows with at most 10 packets", flows, 50.0),
                Part::at_most("percent of the packets in them", packets, 50.0),
            ],
            "The traffic is not a backbone's.",
        )],
    )
}

/// Figures 7a and 7b: the skew of the traffic.
pub(crate) const FIG7: Experiment = Experiment {
    name: "agg-evict/fig7",
    title: "the skew of the traffic, with and without the aggregator",
    paper: "Agg-Evict (CCR 2018), Fig. 7a and 7b",
    presets: &[
        super::EPOCH,
        super::BATCHES,
        super::SOURCES,
        super::AGGREGATOR,
        super::HASHES,
        super::RADAR,
        Preset::other(
            "skewed traffic",
            "five-tuples of the trace, drawn by Zipf's law",
            "590,000 sources, drawn by Zipf's law, skew 0.75 to 1.75",
            "as many as the trace has",
        ),
    ],
    measure: measure_skews,
    judge: judge_skews,
    missing: &[],
    charts: &[
        Chart { x: "skew", x_axis: linear("skew"), ..super::THROUGHPUT },
        Chart { title: "Latency", x: "skew", x_axis: linear("skew"), ..super::LATENCY },
    ],
};

/// Figure 7c: the size of the aggregator.
pub(crate) const FIG7C: Experiment = Experiment {
    name: "agg-evict/fig7c",
    title: "the size of the aggregator",
    paper: "Agg-Evict (CCR 2018), Fig. 7c",
    presets: &[
        super::TRAFFIC,
        super::EPOCH,
        super::BATCHES,
        super::SOURCES,
        super::RADAR,
        Preset::other("rows", "in a figure", "256 to 16384", "powers of two"),
    ],
    measure: measure_sizes,
    judge: judge_sizes,
    missing: &[],
    charts: &[Chart {
        title: "Latency of FlowRadar",
        x: "rows",
        x_axis: log("rows of 16 pairs"),
        ..super::LATENCY
    }],
};

/// Sources of the paper's trace.
const SOURCES: u64 = 590_000;

const SKEWS: [f64; 6] = [0.75, 1.0, 1.1, 1.25, 1.5, 1.75];
const ROWS: [usize; 7] = [256, 512, 1024, 2048, 4096, 8192, 16384];

fn measure_skews(setting: &Setting) -> Result<Outcome, Failure> {
    let both = super::both(&super::flow_radar(), super::ROWS);
    let mut table = super::table(["skew"]);
    for skew in SKEWS {
        let profile = Profile::Zipf { flows: SOURCES, skew };
        let epochs = Scene::Plain.draw(profile, setting.packets as u64, THRESHOLD, setting.seed)?;
        let stream = Stream::<Sources>::of(&epochs[0], setting.seed);
        let theirs = theirs(FlowRadar::<4>::new, WAYS);
        super::measure(&mut table, &[skew.into()], &both, theirs, setting, &stream)?;
    }
    let limit = super::limit(&table);
    let notes =
        "590,000 sources in random order: flows of few packets come back late. Where FlowRadar \
                 has too few cells for all flows it still counts them."
            .to_owned();
    Ok(Outcome { table, limit, notes })
}

fn judge_skews(table: &Table) -> Verdict {
    let mean = |how: &str| table.numbers("how", how, "mean_ns");
    let fall = |how: &str| match (mean(how).first(), mean(how).last()) {
        (Some(first), Some(last)) => [first / last],
        _ => [f64::NAN],
    };
    let falls = |hows: [&str; 2]| {
        hows.map(|how| Part::moves(&format!("mean {how} (ns), by skew"), &mean(how), false))
    };
    let faster = super::faster(table);
    Verdict::of(
        table,
        [
            Claim::new(
                "FlowRadar is faster behind the aggregator at every skew.",
                [less(table, "mean", "mean_ns", OURS)],
                "Flows of few packets in random order come again after their pair was evicted: the \
                 aggregator then adds its time to one update a packet.",
            )
            .on_baseline([less(table, "mean", "mean_ns", BOTH_THEIRS)], faster),
            Claim::new(
                "More skew makes FlowRadar a little faster alone and much faster behind the aggregator.",
                falls(OURS).into_iter().chain([Part::less(
                    "factor between skews alone over behind",
                    &fall(ALONE),
                    &fall(BEHIND),
                )]),
                "Memory that is fetched ahead hides where flows are.",
            )
            .on_baseline(
                falls(BOTH_THEIRS).into_iter().chain([Part::less(
                    "factor between skews alone over behind",
                    &fall(THEIRS),
                    &fall(THEIRS_BEHIND),
                )]),
                faster,
            ),
        ],
    )
}

fn measure_sizes(setting: &Setting) -> Result<Outcome, Failure> {
    let stream = Stream::<Sources>::draw(setting, Mix::Trace)?;
    let mut table = super::table(["rows"]);
    for rows in ROWS {
        let both = super::both(&super::flow_radar(), rows);
        super::measure(&mut table, &[rows.into()], &both, Vec::new(), setting, &stream)?;
    }
    let limit = super::limit(&table);
    Ok(Outcome { table, limit, notes: String::new() })
}

fn judge_sizes(table: &Table) -> Verdict {
    let of = |column: &str| table.numbers("how", BEHIND, column);
    let (mean, tail) = (of("mean_ns"), of("p99_ns"));
    let gap: Vec<f64> = tail.iter().zip(&mean).map(|(tail, mean)| tail - mean).collect();
    Verdict::of(
        table,
        [
            Claim::new(
                "A larger aggregator lowers mean and tail.",
                [
                    Part::moves("mean (ns), by rows", &mean, false),
                    Part::moves("tail (ns), by rows", &tail, false).tails(),
                ],
                "An aggregator that leaves the cache costs more than it saves.",
            ),
            Claim::new(
                "A larger aggregator brings mean and tail closer together.",
                [Part::moves("tail less mean (ns), by rows", &gap, false).tails()],
                "Sums that are handed on together make some batches long.",
            ),
        ],
    )
}
