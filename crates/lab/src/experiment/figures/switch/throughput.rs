//! The switch's throughput while measuring, and with the alternatives of today.

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
    measure: |setting| measure_paths(setting, FEW, EMC, &all(setting)),
    judge: judge_limits,
    missing: &[],
    charts: &[CHART],
};

pub(crate) const EMC_MANY: Experiment = Experiment {
    name: "switch/emc-many",
    title: "throughput of Open vSwitch with more flows than its cache holds",
    measure: |setting| measure_paths(setting, MANY, EMC, &some(setting)),
    judge: judge_behind,
    ..EMC_FEW
};

pub(crate) const MEGAFLOW_FEW: Experiment = Experiment {
    name: "switch/megaflow",
    title: "throughput of Open vSwitch without its exact-match cache",
    measure: |setting| measure_paths(setting, FEW, MEGAFLOW, &some(setting)),
    ..EMC_MANY
};

pub(crate) const MEGAFLOW_MANY: Experiment = Experiment {
    name: "switch/megaflow-many",
    title: "throughput of Open vSwitch without its exact-match cache, with many flows",
    measure: |setting| measure_paths(setting, MANY, MEGAFLOW, &some(setting)),
    ..EMC_MANY
};

pub(crate) const SIMPLE_FEW: Experiment = Experiment {
    name: "switch/port-to-port",
    title: "throughput of Open vSwitch from port to port, which parses nothing",
    measure: |setting| measure_paths(setting, FEW, SIMPLE, &some(setting)),
    ..EMC_MANY
};

pub(crate) const SIMPLE_MANY: Experiment = Experiment {
    name: "switch/port-to-port-many",
    title: "throughput of Open vSwitch from port to port, with many flows",
    measure: |setting| measure_paths(setting, MANY, SIMPLE, &some(setting)),
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

fn measure_paths(
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

/// Alternatives that users of the switch have today.
pub(crate) const TODAY: Experiment = Experiment {
    name: "switch/today",
    title: "the switch's own sFlow and IPFIX and a mirror, against measuring inside",
    paper: "This project",
    presets: &[],
    measure: measure_alternatives,
    judge: judge_alternatives,
    missing: &[],
    charts: &[Chart {
        title: "Throughput",
        x: "variant",
        x_axis: linear(""),
        y: &[("mpps", "")],
        y_axis: linear("million packets a second"),
        series: "measurement",
        only: &[],
        paper: &[],
        see: "Bars nearer to that without measurement cost the switch less: compare measuring inside with sFlow, IPFIX and a mirror.",
    }],
};

const SFLOW: &str = "sFlow";
const IPFIX: &str = "IPFIX";
const MIRROR: &str = "mirror";
const OURS: &str = "linear-table";

/// One packet in this many, and its name in the table.
const SAMPLES: [(u32, &str); 3] = [(1000, "1 in 1000"), (100, "1 in 100"), (1, ALL)];
const ALL: &str = "all";

fn measure_alternatives(setting: &Setting) -> Result<Outcome, Failure> {
    let mut contenders = Vec::new();
    for (sample, packets) in SAMPLES {
        let before = match sample {
            1 => String::new(),
            _ => format!("accelerator=uniform:sample={sample},before=headers"),
        };
        let ours = Kind::Sizes(format!("algorithm=linear-table:buckets=131072 {before}"));
        let kinds = [(OURS, ours), (SFLOW, Kind::SFlow(sample)), (IPFIX, Kind::Ipfix(sample))];
        contenders.extend(kinds.map(|(name, kind)| Contender::new(name, packets, kind)));
    }
    contenders.push(Contender::new(MIRROR, ALL, Kind::Mirror));
    let mut table = ovs::table();
    let compared = ovs::compare(setting, FEW, EMC, &contenders, &mut table)?;
    let notes = format!(
        "{} Records of sFlow and IPFIX go to a socket on loopback that nobody reads, so that their errors are \
         not known. A mirror copies every packet to a vhost-user port, which a flowgauge with DPDK reads on the \
         other core; its `read_percent` is what the port took, the rest was dropped by the switch.",
        compared.notes(setting, FEW)
    );
    Ok(Outcome { table, limit: compared.limit(), notes })
}

fn judge_alternatives(table: &Table) -> Verdict {
    let lost = |name, packets| figure(table, name, packets, "lost_percent");
    let all = |name| SAMPLES.map(|(_, packets)| lost(name, packets));
    Verdict::of(
        table,
        [
            Claim::new(
                "One in a hundred before headers, and one in a thousand, lose less than sFlow or IPFIX of as many \
                 packets; a table of every packet loses less than either of them of every packet.",
                [
                    Part::less(
                        "lost inside over sFlow of as many packets",
                        &all(OURS),
                        &all(SFLOW),
                    ),
                    Part::less(
                        "lost inside over IPFIX of as many packets",
                        &all(OURS),
                        &all(IPFIX),
                    ),
                ],
                "A sample of few packets costs little wherever it is taken.",
            ),
            Claim::new(
                "A table of every packet loses less than a mirror.",
                [Part::less(
                    "lost inside over the mirror",
                    &[lost(OURS, ALL)],
                    &[lost(MIRROR, ALL)],
                )],
                "A copy that nobody reads costs little.",
            ),
            Claim::new(
                "IPFIX of one packet in a hundred loses over half of the throughput of Open vSwitch, and so does \
                 a mirror.",
                [
                    Part::at_least("IPFIX of 1 in 100: lost %", lost(IPFIX, "1 in 100"), 50.0),
                    Part::at_least("mirror: lost %", lost(MIRROR, ALL), 50.0),
                ],
                "The switch was slower for other reasons.",
            ),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::table::row;

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
    fn more_losses_contradict() {
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

    fn verdict(ours: f64, sflow: f64, ipfix: f64, mirror: f64) -> &'static str {
        let mut table = Table::new(["measurement", "variant", "lost_percent"]);
        for (name, lost) in [(OURS, ours), (SFLOW, sflow), (IPFIX, ipfix)] {
            for (_, packets) in SAMPLES {
                row!(table, name, packets, lost);
            }
        }
        row!(table, MIRROR, ALL, mirror);
        judge_alternatives(&table).worst()
    }

    #[test]
    fn every_part_can_fail() {
        assert_eq!(verdict(15.0, 30.0, 60.0, 70.0), "Reproduced");
        assert_eq!(verdict(35.0, 30.0, 60.0, 70.0), "Contradicted");
        assert_eq!(verdict(15.0, 30.0, 45.0, 70.0), "Contradicted");
        assert_eq!(verdict(15.0, 30.0, 60.0, 45.0), "Contradicted");
        assert_eq!(verdict(60.0, 70.0, 65.0, 55.0), "Contradicted");
        assert_eq!(verdict(15.0, 30.0, 60.0, f64::NAN), "Cannot be told");
    }
}
