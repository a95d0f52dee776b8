//! Skipper, Figure 5: Space-Saving in the data plane, with and without Skipper, and outside of it.

use super::ovs::{self, Contender, EMC, FEW, Kind, figure};
use crate::experiment::chart::{Chart, linear};
use crate::experiment::part::Part;
use crate::experiment::setting::Setting;
use crate::experiment::table::Table;
use crate::experiment::verdict::{Claim, Verdict};
use crate::experiment::{Experiment, Outcome, Preset};
use crate::failure::Failure;

pub(crate) const SKIPPER_FIG5: Experiment = Experiment {
    name: "switch/skipper-fig5",
    title: "Space-Saving in Open vSwitch, with and without Skipper",
    paper: "Skipper, Fig. 5",
    presets: &[
        super::VERSION,
        Preset::same("ε, δ", "1 %, 0.01 %"),
        Preset::other(
            "traffic",
            "a trace of San Jose, at 10 Gbit/s",
            "16,384 packets of 64 bytes, again and again",
            "there is no port; see docs/switch.md",
        ),
    ],
    measure,
    judge,
    missing: &[],
    charts: &[Chart {
        title: "Throughput",
        x: "measurement",
        x_axis: linear(""),
        y: &[("mpps", "")],
        y_axis: linear("million packets a second"),
        series: "variant",
        only: &[],
        paper: &[],
        see: "The paper has Space-Saving take a fifth of the switch's rate, and Skipper leave it 4 % below no measurement.",
    }],
};

const SPACE_SAVING: &str = "space-saving";
const ALONE: &str = "alone";
const AFTER: &str = "skipper";
const BEFORE: &str = "skipper before headers";
const MIRROR: &str = "mirror, outside";

fn measure(setting: &Setting) -> Result<Outcome, Failure> {
    let measured = |behind, accelerator: &str| {
        let kind = Kind::Sizes(format!("algorithm=space-saving {accelerator}"));
        Contender::new(SPACE_SAVING, behind, kind)
    };
    let contenders = [
        measured(ALONE, ""),
        measured(AFTER, "accelerator=skipper:epsilon=0.01,delta=0.0001"),
        measured(BEFORE, "accelerator=skipper:epsilon=0.01,delta=0.0001,before=headers"),
        Contender::new(MIRROR, "", Kind::Mirror),
    ];
    let mut table = ovs::table();
    let compared = ovs::compare(setting, FEW, EMC, &contenders, &mut table)?;
    let notes = format!(
        "{} The paper runs two virtual machines before the measured port, streams its trace for longer, so that \
         Skipper samples less of it, and forwards what Skipper samples to the third; the switch here \
         cannot mirror a sample.",
        compared.notes(setting, FEW)
    );
    Ok(Outcome { table, limit: compared.limit(), notes })
}

fn judge(table: &Table) -> Verdict {
    let lost = |name, behind| figure(table, name, behind, "lost_percent");
    let alone = lost(SPACE_SAVING, ALONE);
    Verdict::of(
        table,
        [
            Claim::new(
                "Behind Skipper, for an error of 1 %, Space-Saving loses 4 % of the throughput of Open vSwitch.",
                [
                    Part::at_most("behind Skipper: lost %", lost(SPACE_SAVING, AFTER), 4.0),
                    Part::at_most(
                        "behind Skipper before headers: lost %",
                        lost(SPACE_SAVING, BEFORE),
                        4.0,
                    ),
                ],
                "This switch takes less of a packet's time, so that reading it is a larger share.",
            ),
            Claim::new(
                "Alone Space-Saving loses over 20 %.",
                [Part::at_least("Space-Saving alone: lost %", alone, 20.0)],
                "This Space-Saving looks for the least counter without a heap.",
            ),
            Claim::new(
                "Outside the switch, where a copy of every packet goes to it, it loses more than inside.",
                [Part::less("lost inside over outside", &[alone], &[lost(MIRROR, "")])],
                "A copy costs less than Space-Saving.",
            ),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::table::row;

    fn verdict(alone: f64, behind: f64, mirror: f64) -> &'static str {
        let mut table = Table::new(["measurement", "variant", "lost_percent"]);
        for (behind, lost) in [(ALONE, alone), (AFTER, behind), (BEFORE, behind)] {
            row!(table, SPACE_SAVING, behind, lost);
        }
        row!(table, MIRROR, "", mirror);
        judge(&table).worst()
    }

    #[test]
    fn every_part_can_fail() {
        assert_eq!(verdict(21.0, 3.9, 50.0), "Reproduced");
        assert_eq!(verdict(19.0, 3.9, 50.0), "Contradicted");
        assert_eq!(verdict(21.0, 4.1, 50.0), "Contradicted");
        assert_eq!(verdict(21.0, 3.9, 15.0), "Contradicted");
        assert_eq!(verdict(21.0, 3.9, f64::NAN), "Cannot be told");
    }
}
