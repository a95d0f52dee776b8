//! Figure 4: how many packets flows have.

use flowgauge_core::key::{FlowKey, Key4, KeyKind};

use crate::exact::{Exact, number};
use crate::experiment::chart::{Chart, linear, log};
use crate::experiment::part::Part;
use crate::experiment::setting::{Mix, Setting};
use crate::experiment::stream::Stream;
use crate::experiment::table::{Table, row};
use crate::experiment::verdict::{Claim, Verdict};
use crate::experiment::{Experiment, Outcome, Preset};
use crate::failure::Failure;

pub(crate) const FIG4: Experiment = Experiment {
    name: "agg-evict/fig4",
    title: "how many packets flows have",
    paper: "Agg-Evict (CCR 2018), Fig. 4",
    presets: &[super::TRAFFIC, super::EPOCH, Preset::same("key", "the source")],
    measure,
    judge,
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

fn measure(setting: &Setting) -> Result<Outcome, Failure> {
    let mut table =
        Table::new(["traffic", "packets_at_most", "flows_percent", "packets_percent", "flows"]);
    for (name, mix) in [(TRACE, Mix::Trace), ("Zipf 1.1", Mix::Zipf(1.1))] {
        let stream = Stream::<Key4>::draw(setting, mix, KeyKind::SOURCE)?;
        let keys = stream.keys.iter().map(|key| number(key.canonical(Key4::BYTES))).collect();
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

fn judge(table: &Table) -> Verdict {
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
