//! Alternatives that users of the switch have today.

use super::ovs::{self, Contender, EMC, FEW, Kind, figure};
use crate::experiment::chart::{Chart, linear};
use crate::experiment::part::Part;
use crate::experiment::setting::Setting;
use crate::experiment::table::Table;
use crate::experiment::verdict::{Claim, Verdict};
use crate::experiment::{Experiment, Outcome};
use crate::failure::Failure;

pub(crate) const TODAY: Experiment = Experiment {
    name: "switch/today",
    title: "the switch's own sFlow and IPFIX and a mirror, against measuring inside",
    paper: "This project",
    presets: &[],
    measure,
    judge,
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

fn measure(setting: &Setting) -> Result<Outcome, Failure> {
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

fn judge(table: &Table) -> Verdict {
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

    fn verdict(ours: f64, sflow: f64, ipfix: f64, mirror: f64) -> &'static str {
        let mut table = Table::new(["measurement", "variant", "lost_percent"]);
        for (name, lost) in [(OURS, ours), (SFLOW, sflow), (IPFIX, ipfix)] {
            for (_, packets) in SAMPLES {
                row!(table, name, packets, lost);
            }
        }
        row!(table, MIRROR, ALL, mirror);
        judge(&table).worst()
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
