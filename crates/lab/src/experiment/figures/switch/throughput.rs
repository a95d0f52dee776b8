//! The switch's throughput while measuring, on each path, with few and many flows.

use super::ovs::{self, Contender, EMC, FEW, Kind, MANY, MEGAFLOW, SIMPLE, Traffic, figure};
use crate::experiment::chart::{Chart, linear};
use crate::experiment::part::Part;
use crate::experiment::setting::Setting;
use crate::experiment::table::Table;
use crate::experiment::verdict::{Claim, Verdict};
use crate::experiment::{Experiment, Outcome};
use crate::failure::Failure;

const PAPER: &str =
    "Agg-Evict (CCR 2018), section 4.1; NitroSketch (SIGCOMM 2019), Fig. 2; Skipper, Fig. 5";

const CHART: Chart = Chart {
    title: "Throughput lost",
    x: "measurement",
    x_axis: linear(""),
    y: &[("lost_percent", "")],
    y_axis: linear("lost (%)"),
    series: "variant",
    only: &[],
    paper: &[],
    see: "Bars nearer to that without measurement cost the switch less; samplers before headers should reach it.",
};

pub(crate) const EMC_FEW: Experiment = Experiment {
    name: "switch/emc",
    title: "throughput of Open vSwitch, packets found in its exact-match cache",
    paper: PAPER,
    presets: &[],
    measure: |setting| measure(setting, FEW, EMC, &all(setting)),
    judge: judge_limits,
    missing: &[],
    charts: &[CHART],
};

pub(crate) const EMC_MANY: Experiment = Experiment {
    name: "switch/emc-many",
    title: "throughput of Open vSwitch with more flows than its cache holds",
    measure: |setting| measure(setting, MANY, EMC, &some(setting)),
    judge: judge_behind,
    ..EMC_FEW
};

pub(crate) const MEGAFLOW_FEW: Experiment = Experiment {
    name: "switch/megaflow",
    title: "throughput of Open vSwitch without its exact-match cache",
    measure: |setting| measure(setting, FEW, MEGAFLOW, &some(setting)),
    ..EMC_MANY
};

pub(crate) const MEGAFLOW_MANY: Experiment = Experiment {
    name: "switch/megaflow-many",
    title: "throughput of Open vSwitch without its exact-match cache, with many flows",
    measure: |setting| measure(setting, MANY, MEGAFLOW, &some(setting)),
    ..EMC_MANY
};

pub(crate) const SIMPLE_FEW: Experiment = Experiment {
    name: "switch/port-to-port",
    title: "throughput of Open vSwitch from port to port, which parses nothing",
    measure: |setting| measure(setting, FEW, SIMPLE, &some(setting)),
    ..EMC_MANY
};

pub(crate) const SIMPLE_MANY: Experiment = Experiment {
    name: "switch/port-to-port-many",
    title: "throughput of Open vSwitch from port to port, with many flows",
    measure: |setting| measure(setting, MANY, SIMPLE, &some(setting)),
    ..EMC_MANY
};

/// Summaries with the papers' or default sizes.
const SUMMARIES: [(&str, &str); 8] = [
    ("count-min", "algorithm=count-min:rows=4,columns=65536"),
    ("count-sketch", "algorithm=count-sketch:rows=4,columns=65536"),
    ("univmon", "algorithm=univmon"),
    ("space-saving", "algorithm=space-saving"),
    ("linear-table", "algorithm=linear-table:buckets=131072"),
    ("flow-radar", "algorithm=flow-radar:cells=262144"),
    ("insta-measure", "algorithm=insta-measure:entries=65536"),
    ("mst", "algorithm=mst"),
];

/// Those in Agg-Evict's paper.
const AGGREGATED: [&str; 4] = ["count-min", "univmon", "space-saving", "flow-radar"];

const ALONE: &str = "alone";
const AGG_EVICT: &str = "agg-evict";
const NITRO: &str = "nitro";
const SKIPPER: &str = "skipper";
const SAMPLE: &str = "1 % before headers";
const NITRO_BEFORE: &str = "nitro before headers";
const SKIPPER_BEFORE: &str = "skipper before headers";

const BEFORE_THEM: [(&str, &str); 5] = [
    (ALONE, ""),
    (AGG_EVICT, "accelerator=agg-evict"),
    (NITRO, "accelerator=nitro:p=0.01"),
    (SKIPPER, "accelerator=skipper:epsilon=0.03"),
    (SAMPLE, "accelerator=uniform:sample=100,before=headers"),
];

/// The work of every measurement before its summary.
const PARSING: &str = "headers, key, digest";
const NO_CANDIDATES: &str = "count-min, no candidates";

/// Every summary behind every accelerator, and the other contenders of the claims.
fn all(_: &Setting) -> Vec<Contender> {
    let mut contenders = vec![
        Contender::new(PARSING, ALONE, Kind::Measure(super::DIGESTS.to_owned())),
        Contender::new(NO_CANDIDATES, ALONE, sizes(SUMMARIES[0].1, ",candidates=0")),
    ];
    for (behind, accelerator) in [
        (NITRO_BEFORE, " accelerator=nitro:p=0.01,before=headers"),
        (SKIPPER_BEFORE, " accelerator=skipper:epsilon=0.03,before=headers"),
    ] {
        contenders.push(Contender::new("count-min", behind, sizes(SUMMARIES[0].1, accelerator)));
    }
    for summary in SUMMARIES {
        contenders.extend(BEFORE_THEM.iter().map(|before| contender(summary, *before)));
    }
    contenders
}

/// In the quick form, two summaries; one accepts all accelerators.
fn some(setting: &Setting) -> Vec<Contender> {
    if setting.rounds >= Setting::full().rounds {
        return all(setting);
    }
    let some = [SUMMARIES[0], SUMMARIES[2], SUMMARIES[4]];
    let contenders =
        some.into_iter().flat_map(|summary| BEFORE_THEM.map(|it| contender(summary, it)));
    contenders.collect()
}

fn contender((name, options): (&str, &str), (behind, accelerator): (&str, &str)) -> Contender {
    Contender::new(name, behind, sizes(options, &format!(" {accelerator}")))
}

fn sizes(options: &str, more: &str) -> Kind {
    Kind::Sizes(format!("{options}{more}"))
}

fn measure(
    setting: &Setting,
    traffic: Traffic,
    path: &'static str,
    contenders: &[Contender],
) -> Result<Outcome, Failure> {
    let mut table = ovs::table();
    let compared = ovs::compare(setting, traffic, path, contenders, &mut table)?;
    let (limit, notes) = (compared.limit(), compared.notes(setting, traffic));
    Ok(Outcome { table, limit, notes })
}

/// Maximum loss of throughput in percent.
const LIMITS: [(&str, &str, f64); 7] = [
    (PARSING, ALONE, 5.0),
    ("count-min", ALONE, 14.0),
    (NO_CANDIDATES, ALONE, 11.0),
    ("linear-table", ALONE, 10.0),
    ("univmon", AGG_EVICT, 9.0),
    ("linear-table", SAMPLE, 2.0),
    ("count-min", NITRO_BEFORE, 4.0),
];

fn judge_limits(table: &Table) -> Verdict {
    let limits = LIMITS.map(|(name, behind, most)| {
        let lost = figure(table, name, behind, "lost_percent");
        Part::at_most(&format!("{name}, {behind}: lost %"), lost, most)
    });
    Verdict::of(
        table,
        [
            behind_agg_evict(table),
            Claim::new(
                "Reading headers, key and digest loses at most 5 % of the throughput, Count-Min of 4 x 65,536 14 % \
                 with candidates and 11 without, an exact table 10, UnivMon behind Agg-Evict 9; before the \
                 headers a sample of 1 % loses 2, and NitroSketch with p = 0.01 4.",
                limits,
                "The machine had other work, or the switch takes less of a packet's time than it did where \
                 the limits are from.",
            ),
        ],
    )
}

fn judge_behind(table: &Table) -> Verdict {
    let all = SUMMARIES.map(|(name, _)| name);
    let less = |one, other| less(table, &all, one, other);
    Verdict::of(
        table,
        [
            behind_agg_evict(table),
            Claim::new(
                "Behind NitroSketch and behind Skipper each summary adds less to a packet than alone.",
                [less(NITRO, ALONE), less(SKIPPER, ALONE)],
                "Samples of a short stream are large.",
            ),
            Claim::new(
                "Where the sample is drawn before the headers it adds least.",
                [less(SAMPLE, NITRO), less(SAMPLE, SKIPPER)],
                "The sample before the headers is larger than the others.",
            ),
        ],
    )
}

fn behind_agg_evict(table: &Table) -> Claim {
    Claim::new(
        "Count-Min, UnivMon, Space-Saving and FlowRadar add less to a packet behind Agg-Evict than alone.",
        [less(table, &AGGREGATED, AGG_EVICT, ALONE)],
        "A summary that takes less than the aggregator gains nothing from it.",
    )
}

/// Checks that each of these summaries adds less time behind one accelerator than behind the other.
fn less(table: &Table, summaries: &[&str], one: &str, other: &str) -> Part {
    let added = |behind| -> Vec<f64> {
        summaries.iter().map(|name| figure(table, name, behind, "added_ns")).collect()
    };
    Part::less(&format!("ns added by summaries, {one} over {other}"), &added(one), &added(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table in which every summary adds these times alone and behind accelerators.
    fn table(alone: f64, agg_evict: f64, sampled: f64, before: f64, lost: f64) -> Table {
        let mut table = ovs::table();
        let mut push = |name: &str, behind: &str, added: f64, most: f64| {
            let numbers = [1.0, added, lost * most];
            let cells = [name.into(), behind.into()].into_iter().chain(numbers.map(Into::into));
            table.push(cells);
        };
        for (name, _) in SUMMARIES {
            let costs = [alone, agg_evict, sampled, sampled, before];
            for ((behind, _), added) in BEFORE_THEM.iter().zip(costs) {
                let limit = LIMITS.iter().find(|(n, b, _)| n == &name && b == behind);
                push(name, behind, added, limit.map_or(1.0, |limit| limit.2));
            }
        }
        push(PARSING, ALONE, 1.0, 5.0);
        push(NO_CANDIDATES, ALONE, 1.0, 11.0);
        push("count-min", NITRO_BEFORE, 1.0, 4.0);
        table
    }

    #[test]
    fn what_loses_more_contradicts() {
        let limits =
            |lost, agg_evict| judge_limits(&table(10.0, agg_evict, 3.0, 1.0, lost)).worst();
        assert_eq!(limits(0.9, 8.0), "Reproduced");
        assert_eq!(limits(1.1, 8.0), "Contradicted");
        assert_eq!(limits(0.9, 12.0), "Contradicted");
        assert_eq!(limits(0.9, 10.0), "Cannot be told");
        assert_eq!(judge_limits(&ovs::table()).worst(), "Cannot be told");
    }

    #[test]
    fn an_accelerator_that_does_not_pay_contradicts() {
        let behind =
            |agg, sampled, before| judge_behind(&table(10.0, agg, sampled, before, 1.0)).worst();
        assert_eq!(behind(8.0, 3.0, 1.0), "Reproduced");
        assert_eq!(behind(11.0, 3.0, 1.0), "Contradicted");
        assert_eq!(behind(8.0, 11.0, 1.0), "Contradicted");
        assert_eq!(behind(8.0, 3.0, 4.0), "Contradicted");
        assert_eq!(behind(8.0, 3.0, 3.0), "Cannot be told");
        assert_eq!(judge_behind(&ovs::table()).worst(), "Cannot be told");
    }
}
