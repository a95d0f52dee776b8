//! At a DPDK port: the cost of measuring, and the highest rates without loss.

use std::iter;

use crate::experiment::Experiment;
use crate::experiment::chart::{Chart, linear, log};
use crate::experiment::part::Part;
use crate::experiment::table::Table;
use crate::experiment::verdict::{Claim, Verdict};

/// Measuring while receiving, at a DPDK port.
pub(crate) const DPDK: Experiment = Experiment {
    name: "switch/dpdk",
    title: "what measuring adds to receiving a packet from DPDK",
    paper: "This project; the papers' testbeds: Simple, section 3; Agg-Evict, section 5; NitroSketch, section 6; \
            Skipper, section VIII",
    presets: &[],
    #[cfg(feature = "dpdk")]
    measure: super::port::measure_cost,
    #[cfg(not(feature = "dpdk"))]
    measure: |_| Err(super::without_dpdk()),
    judge: judge_cost,
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

fn judge_cost(table: &Table) -> Verdict {
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
            "The limits are of another machine. Lending packets out is part of each cost, and has a row of its own.",
        )],
    )
}

/// The highest rates without queue overflow, by packet size.
pub(crate) const ZERO_LOSS: Experiment = Experiment {
    name: "switch/zero-loss",
    title: "the highest rate without loss, by the size of packets",
    paper: "Simple (SOSR 2018), section 3.1; Agg-Evict (CCR 2018), section 4.2; InstaMeasure (ICDCS 2019), section \
            V (RFC 2544)",
    presets: &[],
    #[cfg(feature = "dpdk")]
    measure: super::port::measure_rates,
    #[cfg(not(feature = "dpdk"))]
    measure: |_| Err(super::without_dpdk()),
    judge: judge_rates,
    missing: &[],
    charts: &[
        Chart {
            title: "Packets a second without loss",
            x: "bytes",
            x_axis: log("bytes of a packet"),
            y: &[("mpps", "")],
            y_axis: linear("million packets a second"),
            series: "measurement",
            only: &[],
            paper: &[],
            see: "No structure loses packets below its line: at large packets all should reach the link's rate.",
        },
        Chart {
            title: "Bits a second without loss",
            x: "bytes",
            x_axis: log("bytes of a packet"),
            y: &[("gbit", "")],
            y_axis: linear("Gbit/s on the link"),
            series: "measurement",
            only: &[],
            paper: &[],
            see: "The larger the packets, the nearer all structures come to what the link carries.",
        },
    ],
};

pub(super) const CLAIMED: [&str; 4] =
    ["insta-measure", "count-min behind agg-evict", "univmon behind agg-evict", "linear-table"];

fn judge_rates(table: &Table) -> Verdict {
    let rates = |name| table.numbers("measurement", name, "gbit");
    // NaN remains if every rate of a size loses packets.
    let less = |one: f64, other: f64| if one.is_nan() || one < other { one } else { other };
    let least = |name| rates(name).into_iter().reduce(less).unwrap_or(f64::NAN);
    let parts = CLAIMED.map(|name| {
        Part::at_least(&format!("{name}: Gbit/s without loss, at worst"), least(name), 10.0)
    });
    Verdict::of(
        table,
        [Claim::new(
            "One core keeps up with 10 Gbit/s without a loss, at every size of packets from 64 bytes on (14.88 \
             million a second): with InstaMeasure, and with Count-Min and UnivMon behind Agg-Evict. A table of \
             all flows keeps up, too.",
            parts,
            "Something else had the core for longer than the queue lasts.",
        )],
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::table::row;

    /// The verdict if each measurement takes `times` what it may.
    fn cost(times: f64) -> &'static str {
        let mut table = Table::new(["measurement", "added_ns"]);
        row!(table, PARSING, times * PARSING_NS);
        for contender in &CONTENDERS {
            row!(table, contender.name, times * contender.most_ns);
        }
        judge_cost(&table).worst()
    }

    #[test]
    fn longer_times_contradict() {
        assert_eq!([cost(0.9), cost(1.1)], ["Reproduced", "Contradicted"]);
        assert_eq!(judge_cost(&Table::new(["measurement", "added_ns"])).worst(), "Cannot be told");
    }

    /// The verdict if each measurement has this rate at one of two sizes.
    fn rate(gbit: f64) -> &'static str {
        let mut table = Table::new(["measurement", "gbit"]);
        for name in CLAIMED {
            row!(table, name, 40.0);
            row!(table, name, gbit);
        }
        judge_rates(&table).worst()
    }

    #[test]
    fn a_rate_below_the_link_contradicts() {
        assert_eq!([rate(10.1), rate(9.9)], ["Reproduced", "Contradicted"]);
        assert_eq!(rate(f64::NAN), "Cannot be told");
        assert_eq!(judge_rates(&Table::new(["measurement", "gbit"])).worst(), "Cannot be told");
    }
}
