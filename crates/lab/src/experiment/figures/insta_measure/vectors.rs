//! Figure 8: longer vectors, in one layer or two, with a single flow.

use flowgauge_core::summary::Options;

use super::{FlowRegulator, Rcc};
use crate::experiment::chart::{Chart, linear as axis, log};
use crate::experiment::part::Part;
use crate::experiment::setting::Setting;
use crate::experiment::table::{Table, row, short};
use crate::experiment::verdict::{Claim, Gain, Verdict};
use crate::experiment::{Experiment, Outcome, Preset};
use crate::failure::Failure;

pub(crate) const FIG8: Experiment = Experiment {
    name: "insta-measure/fig8",
    title: "packets that a vector retains, and the error of what it lets through",
    paper: "InstaMeasure (ICDCS 2019), Fig. 8",
    presets: &[
        Preset::same("vectors", "8 to 64 bits, of all layers together"),
        Preset::same("flows", "one"),
        Preset::other(
            "decoding",
            "not named",
            "by the mean wait, and by linear counting",
            "RCC decodes by linear counting; that is 14 % too high for 8 bits",
        ),
    ],
    measure,
    judge,
    missing: &[],
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
            y_axis: axis("standard deviation (%)"),
            ..BY_BITS
        },
        Chart {
            title: "The same, decoded by linear counting",
            y: &[("linear_percent", "")],
            y_axis: axis("root of the mean square (%)"),
            ..BY_BITS
        },
    ],
};

const BY_BITS: Chart = Chart {
    title: "",
    x: "bits",
    x_axis: log("bits of a flow, all layers"),
    y: &[],
    y_axis: axis(""),
    series: "design",
    only: &[RCC, REGULATOR],
    paper: &[],
    see: "Two layers retain ever more packets with more bits, one layer hardly does; what one packet let through stands for is less certain for it.",
};

const RCC: &str = "RCC";
const REGULATOR: &str = "FlowRegulator";
const ENGINE_RCC: &str = "RCC, the engine's";
const ENGINE_REGULATOR: &str = "FlowRegulator, the engine's";

/// Passed packets in an epoch of 1000.
const THROUGH: usize = 50;

/// A digest; its value does not matter to a single flow.
const FLOW: u64 = 0x0123_4567_89ab_cdef;

fn measure(setting: &Setting) -> Result<Outcome, Failure> {
    let mut table = Table::new([
        "design",
        "bits",
        "retained_packets",
        "through_percent",
        "error_percent",
        "linear_percent",
    ]);
    let count = setting.packets / 1000 * THROUGH / 10;
    let mut push = |design: &str, bits: u32, (retained, error): (f64, f64)| {
        // The linear counting estimate per passed packet, which is too high.
        let unit = match design {
            REGULATOR | ENGINE_REGULATOR => linear(bits / 2).powi(2),
            _ => linear(bits),
        };
        let plain = (unit / retained - 1.0).hypot(error * unit / retained);
        let percents = (100.0 / retained, 100.0 * error, 100.0 * plain);
        row!(table, design, f64::from(bits), retained, percents.0, percents.1, percents.2);
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

/// The mean number of packets from one that passes to the next, and the standard deviation over the
/// mean.
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
    let retained = |design: &str, bits| at(design, bits, "retained_packets");
    let added = |column: &str, bits| at(REGULATOR, bits, column) - at(RCC, bits, column);
    let small = |column: &str| {
        let what = "points of error that two layers add at 16 bits, over those at 8 bits";
        Part::at_most(what, added(column, 16.0) / added(column, 8.0), 0.5)
    };
    let engine = |engine: &str, design: &str, bits: f64| {
        let what = format!("{engine}, over the paper's rules");
        Part::within(&what, retained(engine, bits) / retained(design, bits), 1.0, 0.05)
    };
    let closer = at(REGULATOR, 16.0, "linear_percent") / at(REGULATOR, 16.0, "error_percent");
    Verdict::of(
        table,
        [
            Claim::new(
                "With two layers 16 bits retain about a hundred packets (within a tenth).",
                [Part::within(
                    "packets that 16 bits retain in two layers",
                    retained(REGULATOR, 16.0),
                    100.0,
                    0.1,
                )],
                "By theory it is the square of 9.74.",
            ),
            Claim::new(
                "With one layer a vector of 64 bits retains 77 packets (within 5 %).",
                [Part::within(
                    "packets that 64 bits retain in one layer",
                    retained(RCC, 64.0),
                    77.0,
                    0.05,
                )],
                "By theory it is 64 (H(64) - H(19)).",
            ),
            Claim::new(
                "With two layers more bits retain ever more: 64 bits five times what one layer does.",
                [Part::at_least(
                    "64 bits in two layers over one",
                    retained(REGULATOR, 64.0) / retained(RCC, 64.0),
                    5.0,
                )],
                "By theory it is the square of half the bits' wait.",
            ),
            Claim::new(
                "What each packet that is let through stands for is less certain with two layers, by little \
                 but for 8 bits: at 16 bits by half as many points or less.",
                [small("error_percent")],
                "The deviation of two layers of half the bits is 1.4 times that of one layer, whatever the \
                 bits. Of a hundred packets let through the sum differs by a tenth of either.",
            )
            .on_baseline([small("linear_percent")], Gain::Closer(closer)),
            Claim::new(
                "The engine's regulators do as the paper's rules say (within 5 %).",
                [engine(ENGINE_RCC, RCC, 8.0), engine(ENGINE_REGULATOR, REGULATOR, 16.0)],
                "The engine draws its marks by other random numbers.",
            ),
        ],
    )
}

/// Shared words in which each flow has a vector of `bits` bits.
struct Layer {
    words: Vec<u64>,
    bits: u32,
    saturated: u32,
}

/// Tenths of the bits that are clear in a saturated vector, by the paper's rules.
pub(super) const TENTHS: u32 = 3;

/// The number of clear bits at which a vector of `bits` bits is saturated.
fn saturated(bits: u32, tenths: u32) -> u32 {
    tenths * bits / 10
}

/// Mean number of marks that saturate a vector of `bits` bits.
pub(super) fn wait(bits: u32) -> f64 {
    (saturated(bits, TENTHS) + 1..=bits).map(|clear| f64::from(bits) / f64::from(clear)).sum()
}

/// The linear counting estimate for a saturated vector of `bits` bits.
pub(super) fn linear(bits: u32) -> f64 {
    let clear = f64::from(saturated(bits, TENTHS)) / f64::from(bits);
    -f64::from(bits) * clear.ln()
}

impl Layer {
    fn new(bytes: usize, bits: u32, tenths: u32) -> Self {
        Self { words: vec![0; (bytes / 8).max(1)], bits, saturated: saturated(bits, tenths) }
    }

    /// Marks a random bit of a flow's vector, which has one bit in each of `bits` parts of a word.
    /// If that saturates it, clears the vector and returns the number of clear bits.
    fn mark(&mut self, digest: u64, random: &mut fastrand::Rng) -> Option<u32> {
        let place = (digest as u32 as usize) % self.words.len();
        let part = u64::BITS / self.bits;
        let mut offsets = digest.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut vector = [0; u64::BITS as usize];
        let vector = &mut vector[..self.bits as usize];
        for (at, bit) in (0..).zip(&mut *vector) {
            *bit = 1 << (at * part + (offsets >> 32) as u32 % part);
            offsets = offsets.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(1);
        }
        let word = &mut self.words[place];
        *word |= vector[random.usize(0..vector.len())];
        let all = vector.iter().fold(0, |all, bit| all | bit);
        let clear = self.bits - (*word & all).count_ones();
        let full = clear <= self.saturated;
        if full {
            *word &= !all;
        }
        full.then_some(clear)
    }
}

/// RCC with one layer, or a flow regulator with two.
pub(super) struct Vectors {
    first: Layer,
    /// One layer per number of clear bits at saturation; empty for RCC.
    second: Vec<Layer>,
    random: fastrand::Rng,
}

impl Vectors {
    /// A structure of `bytes` in all, with vectors of `bits` bits in each layer.
    pub(super) fn new(bytes: usize, bits: u32, layers: usize, seed: u64) -> Self {
        let levels = if layers == 1 { 0 } else { saturated(bits, TENTHS) as usize + 1 };
        let layer = || Layer::new(bytes / (1 + levels), bits, TENTHS);
        let second = (0..levels).map(|_| layer()).collect();
        Self { first: layer(), second, random: fastrand::Rng::with_seed(seed) }
    }

    /// One layer with vectors that are saturated with this many tenths of the bits clear.
    pub(super) fn saturated_at(tenths: u32, bytes: usize, bits: u32, seed: u64) -> Self {
        let first = Layer::new(bytes, bits, tenths);
        Self { first, second: Vec::new(), random: fastrand::Rng::with_seed(seed) }
    }

    /// Whether a packet passes.
    pub(super) fn takes(&mut self, digest: u64) -> bool {
        let Some(clear) = self.first.mark(digest, &mut self.random) else { return false };
        match self.second.get_mut(clear as usize) {
            Some(layer) => layer.mark(digest, &mut self.random).is_some(),
            None => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paper's numbers: 9.7 packets for eight bits, 77 for 64.
    #[test]
    fn a_flow_alone_waits_as_long_as_theory_says() {
        assert!((wait(8) - 9.743).abs() < 1e-3 && (wait(64) - 76.6).abs() < 0.1);
        for (bits, layers) in [(4, 1), (8, 1), (8, 2), (64, 1)] {
            let mut vectors = Vectors::new(1 << 10, bits, layers, 1);
            let packets = 400_000;
            let through = (0..packets).filter(|_| vectors.takes(0x1234_5678_9abc_def0)).count();
            let expected = f64::from(packets) / wait(bits).powf(layers as f64);
            let ratio = through as f64 / expected;
            assert!((0.95..1.05).contains(&ratio), "{bits} bits, {layers} layers: {ratio}");
        }
    }
}
