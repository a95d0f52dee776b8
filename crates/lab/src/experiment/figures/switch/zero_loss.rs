//! The highest rates without queue overflow, by packet size.

use crate::experiment::chart::{Chart, linear, log};
use crate::experiment::part::Part;
use crate::experiment::setting::Setting;
use crate::experiment::table::Table;
use crate::experiment::verdict::{Claim, Verdict};
use crate::experiment::{Experiment, Outcome};
use crate::failure::Failure;

pub(crate) const ZERO_LOSS: Experiment = Experiment {
    name: "switch/zero-loss",
    title: "the highest rate without loss, by the size of packets",
    paper: "Simple (SOSR 2018), section 3.1; Agg-Evict (CCR 2018), section 4.2; InstaMeasure (ICDCS 2019), section \
            V (RFC 2544)",
    presets: &[],
    measure,
    judge,
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

/// Receiving without measuring.
#[cfg(feature = "dpdk")]
pub(super) const RECEIVING: &str = "receiving alone";

pub(super) const CLAIMED: [&str; 4] =
    ["insta-measure", "count-min behind agg-evict", "univmon behind agg-evict", "linear-table"];

/// Overhead of a packet on Ethernet in bytes: preamble and gap.
#[cfg(feature = "dpdk")]
pub(super) const GAP_BYTES: u32 = 20;

fn judge(table: &Table) -> Verdict {
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

fn measure(setting: &Setting) -> Result<Outcome, Failure> {
    #[cfg(feature = "dpdk")]
    return super::pace::measure(setting);
    #[cfg(not(feature = "dpdk"))]
    {
        let _ = setting;
        Err(Failure::Skipped(super::WITHOUT_DPDK.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::table::row;

    fn verdict(gbit: f64) -> &'static str {
        let mut table = Table::new(["measurement", "gbit"]);
        for name in CLAIMED {
            row!(table, name, 40.0);
            row!(table, name, gbit);
        }
        judge(&table).worst()
    }

    #[test]
    fn a_rate_below_the_link_contradicts() {
        assert_eq!([verdict(10.1), verdict(9.9)], ["Reproduced", "Contradicted"]);
        assert_eq!(verdict(f64::NAN), "Cannot be told");
        assert_eq!(judge(&Table::new(["measurement", "gbit"])).worst(), "Cannot be told");
    }
}
