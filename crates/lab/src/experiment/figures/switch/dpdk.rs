//! Measuring while receiving, at a DPDK port.

use std::iter;

use crate::experiment::chart::{Chart, linear};
use crate::experiment::part::Part;
use crate::experiment::setting::Setting;
use crate::experiment::table::Table;
use crate::experiment::verdict::{Claim, Verdict};
use crate::experiment::{Experiment, Outcome};
use crate::failure::Failure;

pub(crate) const DPDK: Experiment = Experiment {
    name: "switch/dpdk",
    title: "what measuring adds to receiving a packet from DPDK",
    paper: "This project; the papers' testbeds: Simple, section 3; Agg-Evict, section 5; NitroSketch, section 6; \
            Skipper, section VIII",
    presets: &[],
    measure,
    judge,
    missing: &[],
    charts: &[Chart {
        title: "Added to receiving",
        x: "measurement",
        x_axis: linear(""),
        y: &[("added_ns", "")],
        y_axis: linear("ns a packet"),
        series: "behind",
        only: &[],
        paper: &[],
        see: "Each bar is what a measurement adds to receiving a packet, which has 67 ns at 10 Gbit/s and the smallest packets.",
    }],
};

/// A measurement, and the most nanoseconds it may add.
#[cfg_attr(not(feature = "dpdk"), expect(dead_code, reason = "nothing is measured then"))]
pub(super) struct Contender {
    pub(super) name: &'static str,
    pub(super) algorithm: &'static str,
    pub(super) parameters: &'static [(&'static str, &'static str)],
    pub(super) accelerator: Option<(&'static str, &'static [(&'static str, &'static str)])>,
    pub(super) most_ns: f64,
}

pub(super) const COUNT_MIN: &[(&str, &str)] = &[("rows", "4"), ("columns", "65536")];

/// The work of every measurement before its summary, and the most it may add.
pub(super) const PARSING: &str = "headers, key, digest";
const PARSING_NS: f64 = 3.0;

pub(super) const CONTENDERS: [Contender; 7] = [
    Contender {
        name: "count-min, 16,384 candidates",
        algorithm: "count-min",
        parameters: COUNT_MIN,
        accelerator: None,
        most_ns: 9.5,
    },
    Contender {
        name: "count-min, no candidates",
        algorithm: "count-min",
        parameters: &[("rows", "4"), ("columns", "65536"), ("candidates", "0")],
        accelerator: None,
        most_ns: 7.5,
    },
    Contender {
        name: "linear-table",
        algorithm: "linear-table",
        parameters: &[],
        accelerator: None,
        most_ns: 7.5,
    },
    Contender {
        name: "univmon",
        algorithm: "univmon",
        parameters: &[],
        accelerator: Some(("agg-evict", &[])),
        most_ns: 7.0,
    },
    Contender {
        name: "linear-table, skipper",
        algorithm: "linear-table",
        parameters: &[],
        accelerator: Some(("skipper", &[("epsilon", "0.03"), ("before", "headers")])),
        most_ns: 0.9,
    },
    Contender {
        name: "linear-table, 1 in 100",
        algorithm: "linear-table",
        parameters: &[],
        accelerator: Some(("uniform", &[("sample", "100"), ("before", "headers")])),
        most_ns: 0.9,
    },
    Contender {
        name: "count-min, nitro p = 0.01",
        algorithm: "count-min",
        parameters: COUNT_MIN,
        accelerator: Some(("nitro", &[("p", "0.01"), ("before", "headers")])),
        // Four rows that each sample one packet in a hundred: four times the cost of one in a
        // hundred.
        most_ns: 3.6,
    },
];

fn measure(setting: &Setting) -> Result<Outcome, Failure> {
    #[cfg(feature = "dpdk")]
    return super::port::measure(setting);
    #[cfg(not(feature = "dpdk"))]
    {
        let _ = setting;
        Err(Failure::Skipped(super::WITHOUT_DPDK.to_owned()))
    }
}

fn judge(table: &Table) -> Verdict {
    let contenders = CONTENDERS.iter().map(|contender| (contender.name, contender.most_ns));
    let parts = iter::once((PARSING, PARSING_NS)).chain(contenders).map(|(name, most_ns)| {
        let added = table.of("measurement", name).next();
        let added = added.map_or(f64::NAN, |row| row.number("added_ns"));
        Part::at_most(&format!("{name}, ns added"), added, most_ns)
    });
    Verdict::of(
        table,
        [Claim::new(
            "Beside receiving a packet, its headers, key and digest take at most 3 ns, Count-Min of 4 x 65,536 \
             at most 9.5 ns with candidates and 7.5 without, an exact table 7.5, UnivMon behind Agg-Evict 7, \
             and a sampler before the headers that touches 1 % of the packets 0.9.",
            parts,
            "The machine had other work, or its caches are smaller than those that the limits are of.",
        )],
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::table::row;

    /// The verdict if each measurement takes `times` what it may.
    fn verdict(times: f64) -> &'static str {
        let mut table = Table::new(["measurement", "added_ns"]);
        row!(table, PARSING, times * PARSING_NS);
        for contender in &CONTENDERS {
            row!(table, contender.name, times * contender.most_ns);
        }
        judge(&table).worst()
    }

    #[test]
    fn what_takes_longer_contradicts() {
        assert_eq!([verdict(0.9), verdict(1.1)], ["Reproduced", "Contradicted"]);
        assert_eq!(judge(&Table::new(["measurement", "added_ns"])).worst(), "Cannot be told");
    }
}
