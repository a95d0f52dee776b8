//! Figure 8: vectors of more bits, one layer or two, with a single flow.

use flowgauge_core::summary::Options;

use super::vector::{Vectors, wait};
use super::{FlowRegulator, Rcc};
use crate::experiment::chart::{Chart, linear, log};
use crate::experiment::setting::Setting;
use crate::experiment::table::{Table, row, short};
use crate::experiment::verdict::{Part, Verdict};
use crate::experiment::{Experiment, Outcome};
use crate::failure::Failure;

pub(crate) const FIG8: Experiment = Experiment {
    name: "insta-measure/fig8",
    title: "packets that a vector retains, and the error of what it lets through",
    paper: "InstaMeasure (ICDCS 2019), Fig. 8",
    claim: "With one layer a vector of 64 bits retains no more than 77 packets; with two layers 16 bits \
            retain about a hundred, and more bits retain ever more. What each packet that is let through \
            stands for is less certain with two layers; by how much is small, but for 8 bits.",
    measure,
    judge,
    charts: &[
        Chart {
            title: "Packets retained",
            y: &[("retained_packets", "")],
            y_axis: log("packets"),
            ..BY_BITS
        },
        Chart {
            title: "How often a packet is let through",
            y: &[("through_percent", "")],
            y_axis: log("packets let through (%)"),
            ..BY_BITS
        },
        Chart {
            title: "Error of what one stands for",
            y: &[("error_percent", "")],
            y_axis: linear("standard deviation (%)"),
            ..BY_BITS
        },
    ],
};

const BY_BITS: Chart = Chart {
    title: "",
    x: "bits",
    x_axis: log("bits of a flow, all layers"),
    y: &[],
    y_axis: linear(""),
    series: "design",
    only: &[RCC, REGULATOR],
};

const RCC: &str = "RCC";
const REGULATOR: &str = "FlowRegulator";
const ENGINE_RCC: &str = "RCC, the engine's";
const ENGINE_REGULATOR: &str = "FlowRegulator, the engine's";

/// Packets let through of each in an epoch of 1000.
const THROUGH: usize = 50;

/// A digest: which one does not matter to a flow that is alone.
const FLOW: u64 = 0x0123_4567_89ab_cdef;

fn measure(setting: &Setting) -> Result<Outcome, Failure> {
    let mut table =
        Table::new(["design", "bits", "retained_packets", "through_percent", "error_percent"]);
    let count = setting.packets / 1000 * THROUGH / 10;
    let mut push = |design: &str, bits: u32, (retained, error): (f64, f64)| {
        row!(table, design, f64::from(bits), retained, 100.0 / retained, 100.0 * error);
    };
    for bits in [8, 16, 32, 64] {
        let mut vectors = Vectors::new(1 << 10, bits, 1, setting.seed);
        push(RCC, bits, waits(count, || vectors.takes(FLOW)));
        let mut vectors = Vectors::new(1 << 10, bits / 2, 2, setting.seed);
        push(REGULATOR, bits, waits(count, || vectors.takes(FLOW)));
    }
    let options = Options::new(1 << 20, setting.seed);
    let failed = |error| Failure::Build { algorithm: "rcc", asked: String::new(), error };
    let mut rcc = Rcc::from_options(&options).map_err(failed)?;
    push(ENGINE_RCC, 8, waits(count, || through(|emit| rcc.regulate(&[FLOW], None, emit))));
    let mut two = FlowRegulator::from_options(&options).map_err(failed)?;
    push(ENGINE_REGULATOR, 16, waits(count, || through(|emit| two.regulate(&[FLOW], None, emit))));
    let limit = format!(
        "By theory vectors of 8 bits retain {} packets in one layer and {} in two.",
        short(wait(8)),
        short(wait(8).powi(2))
    );
    let notes = format!(
        "A single flow, until {count} of its packets are let through. The engine has vectors of 8 bits in \
         each layer; others are simulated by the paper's rules."
    );
    Ok(Outcome { table, limit, notes })
}

/// Whether something is emitted.
fn through(regulate: impl FnOnce(&mut dyn FnMut(usize))) -> bool {
    let mut emitted = false;
    regulate(&mut |_| emitted = true);
    emitted
}

/// Mean, and standard deviation over it, of the packets from one that is let through to the next.
fn waits(count: usize, mut takes: impl FnMut() -> bool) -> (f64, f64) {
    let (mut sum, mut squares) = (0.0, 0.0);
    for _ in 0..count {
        let mut packets = 1.0_f64;
        while !takes() {
            packets += 1.0;
        }
        sum += packets;
        squares += packets * packets;
    }
    let mean = sum / count as f64;
    (mean, (squares / count as f64 - mean * mean).max(0.0).sqrt() / mean)
}

fn judge(table: &Table) -> Verdict {
    let at = |design: &str, bits: f64, column: &str| {
        let mut rows =
            table.of("design", design).filter(|row| (row.number("bits") - bits).abs() < 0.5);
        rows.next().map_or(f64::NAN, |row| row.number(column))
    };
    let retained = |design, bits| at(design, bits, "retained_packets");
    let more = |bits| at(REGULATOR, bits, "error_percent") - at(RCC, bits, "error_percent");
    let engine = retained(ENGINE_REGULATOR, 16.0) / retained(REGULATOR, 16.0);
    Verdict::of([
        Part::at_most("packets that 64 bits retain in one layer", retained(RCC, 64.0), 79.0),
        Part::at_least(
            "packets that 16 bits retain in two layers",
            retained(REGULATOR, 16.0),
            90.0,
        ),
        Part::at_least(
            "64 bits in two layers over one",
            retained(REGULATOR, 64.0) / retained(RCC, 64.0),
            5.0,
        ),
        Part::at_least("the engine's two layers over the paper's rules", engine, 0.95),
        Part::at_most("the engine's two layers over the paper's rules", engine, 1.05),
        Part::at_most(
            "points of error that two layers add at 16 bits, over those at 8 bits",
            more(16.0) / more(8.0),
            0.5,
        ),
    ])
}
