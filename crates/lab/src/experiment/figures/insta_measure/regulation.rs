//! Figures 1, 7 and 8: how many packets reach the flow table, and longer vectors.

use flowgauge_core::key::{Extract, FlowKey, Key16, KeyKind};
use flowgauge_core::summary::Options;
use flowgauge_kernel::{Digester, Isa, Seed};

use super::{FlowRegulator, RATE, Rcc, SKETCH};
use crate::experiment::chart::{Chart, Mark, linear, linear as axis, log};
use crate::experiment::part::Part;
use crate::experiment::setting::{Mix, Setting};
use crate::experiment::table::{Table, row, short};
use crate::experiment::verdict::{Claim, Gain, Verdict};
use crate::experiment::{Experiment, Outcome, Preset};
use crate::failure::Failure;
use crate::keys::{FiveTuples, Keys};

/// Figure 1: insertions behind one layer of counters.
pub(crate) const FIG1: Experiment = Experiment {
    name: "insta-measure/fig1",
    title: "how often one layer of counters saturates",
    paper: "InstaMeasure (ICDCS 2019), Fig. 1",
    presets: &[
        super::BACKBONE,
        super::KEY,
        Preset::same("RCC", "vectors of 8 and 16 bits"),
        Preset::other("memory of RCC", "not named", "128 KB", "that of FlowRegulator"),
        Preset::other(
            "saturation",
            "70 % of the bits set, as far as the text says",
            "that, and half of the bits beside",
            "half gives the paper's 19 %",
        ),
    ],
    measure: |setting| measure_regulation(setting, &[RCC_8, RCC_16, HALF_8, HALF_16]),
    judge: judge_rcc,
    missing: &[],
    charts: CHARTS,
};

/// Figure 7: insertions behind one layer and behind two.
pub(crate) const FIG7: Experiment = Experiment {
    name: "insta-measure/fig7",
    title: "the rate of insertions behind one layer and behind two",
    paper: "InstaMeasure (ICDCS 2019), Fig. 7",
    presets: &[super::BACKBONE, super::KEY, super::REGULATOR, Preset::same("RCC", "16 bits, 3 MB")],
    measure: |setting| measure_regulation(setting, &[RCC_LARGE, FLOW_REGULATOR]),
    judge: judge_regulator,
    missing: &[],
    charts: CHARTS,
};

const CHARTS: &[Chart] = &[Chart {
    title: "Packets that arrive, and those that reach the flow table",
    x: "time_s",
    x_axis: linear("time (s)"),
    y: &[("per_second", "")],
    y_axis: log("packets a second"),
    series: "structure",
    only: &[],
    paper: &[
        Mark::Level("RCC by the paper: 112,000 a second", 112_000.0),
        Mark::Level("FlowRegulator by the paper: 1.02 %", 10_200.0),
    ],
    see: "Two layers let through a tenth of what one lets through, and far below the packets that arrive.",
}];

const ARRIVALS: &str = "arrivals";
const RCC_8: &str = "RCC, 8 bits, 128 KB";
const RCC_16: &str = "RCC, 16 bits, 128 KB";
const HALF_8: &str = "8 bits, saturated by half";
const HALF_16: &str = "16 bits, saturated by half";
const RCC_LARGE: &str = "RCC, 16 bits, 3 MB";
const FLOW_REGULATOR: &str = "FlowRegulator, 128 KB";

/// Whether a packet with this digest passes.
type Takes = Box<dyn FnMut(u64) -> bool>;

fn build(name: &str, setting: &Setting) -> Result<Takes, Failure> {
    let options = Options::new(1 << 20, setting.seed).with([("sketch", SKETCH)]);
    let failed = |error| Failure::Build { algorithm: "rcc", asked: name.to_owned(), error };
    Ok(match name {
        RCC_8 => {
            let mut rcc = Rcc::from_options(&options).map_err(failed)?;
            Box::new(move |digest| {
                let mut through = false;
                rcc.regulate(&[digest], None, &mut |_| through = true);
                through
            })
        }
        FLOW_REGULATOR => {
            let mut regulator = FlowRegulator::from_options(&options).map_err(failed)?;
            Box::new(move |digest| {
                let mut through = false;
                regulator.regulate(&[digest], None, &mut |_| through = true);
                through
            })
        }
        HALF_8 | HALF_16 => {
            let bits = if name == HALF_8 { 8 } else { 16 };
            let mut vectors = Vectors::saturated_at(5, SKETCH, bits, setting.seed);
            Box::new(move |digest| vectors.takes(digest))
        }
        _ => {
            let bytes = if name == RCC_16 { SKETCH } else { 3 << 20 };
            let mut vectors = Vectors::new(bytes, 16, 1, setting.seed);
            Box::new(move |digest| vectors.takes(digest))
        }
    })
}

fn measure_regulation(setting: &Setting, names: &[&str]) -> Result<Outcome, Failure> {
    let mut structures =
        names.iter().map(|name| build(name, setting)).collect::<Result<Vec<_>, _>>()?;
    let digester =
        Digester::new(Seed::number(setting.seed), Isa::best()).for_keys(FiveTuples::BYTES);
    let mut table = Table::new(["structure", "time_s", "per_second", "percent"]);
    let mut through = vec![0_u64; structures.len()];
    let (mut packets, mut all) = (0_u64, 0_u64);
    super::pieces(setting, Mix::Trace, super::epochs(setting) / 4, |piece| {
        for packet in piece {
            let Ok(key) = Key16::extract(KeyKind::FIVE_TUPLE, &packet.ip) else { continue };
            let digest = key.digest(&digester);
            packets += 1;
            for (takes, through) in structures.iter_mut().zip(&mut through) {
                *through += u64::from(takes(digest));
            }
        }
        // A point for each twentieth of a second or more.
        if packets >= RATE / 20 {
            all += packets;
            let time = all as f64 / RATE as f64;
            row!(table, ARRIVALS, time, RATE as f64, 100.0);
            for (name, through) in names.iter().zip(&mut through) {
                let share = *through as f64 / packets as f64;
                row!(table, *name, time, share * RATE as f64, 100.0 * share);
                *through = 0;
            }
            packets = 0;
        }
    })?;
    let limit = format!(
        "A flow that is alone in its words lets one packet in {:.2} through with one layer of 8 bits, and \
         one in {:.1} with two.",
        Rcc::UNIT,
        FlowRegulator::UNIT
    );
    let notes =
        "Time is that of a million packets a second. Vectors of 16 bits are simulated by the \
                 paper's rules; the engine's have 8 bits in each layer."
            .to_owned();
    Ok(Outcome { table, limit, notes })
}

/// The mean share that a structure lets pass, without the first tenth, in which it fills up.
fn percent(table: &Table, name: &str) -> f64 {
    let all = table.numbers("structure", name, "percent");
    let settled = &all[all.len() / 10..];
    settled.iter().sum::<f64>() / settled.len() as f64
}

/// Why RCC cannot let as many packets pass as the paper says.
const PROOF: &str = "It cannot follow from the rules. A packet sets at most one bit, and a saturated vector \
                     has at least 6 of its 8 bits set (12 of 16), all of which it clears: at most one packet \
                     in 6 saturates a vector of 8 bits, 16.7 %, and one in 12 one of 16 bits, 8.3 %.";

fn judge_rcc(table: &Table) -> Verdict {
    let percent = |name: &str| percent(table, name);
    let lets = |name: &str, wanted: f64| {
        Part::within(&format!("{name}, lets through, %"), percent(name), wanted, 0.1)
    };
    let margin =
        |name: &str| Part::at_least(&format!("{name}, lets through, %"), percent(name), 5.0);
    Verdict::of(
        table,
        [
            Claim::new(
                "RCC lets 19 % of the packets through with vectors of 8 bits and 12 % with 16 bits (within a \
                 tenth of that).",
                [lets(RCC_8, 19.0), lets(RCC_16, 12.0)],
                format!(
                    "{PROOF} What would explain the paper's numbers: vectors that are saturated when half of \
                     their bits are set let {:.1} and {:.1} % through here.",
                    percent(HALF_8),
                    percent(HALF_16)
                ),
            ),
            Claim::new(
                "With vectors of 8 bits that is more than the 5 % that DRAM is slower than SRAM by.",
                [margin(RCC_8)],
                "So few packets saturate a vector.",
            ),
            Claim::new(
                "With 16 bits, too, it is more than that 5 %.",
                [margin(RCC_16)],
                "With as many bits a flow that is alone in its word saturates its vector once in 20.8 \
                 packets, 4.8 %, and other flows' bits add to that only where words are crowded: 8.3 % is \
                 the most.",
            ),
            Claim::new(
                "Twice the bits let fewer packets through.",
                [Part::at_most("16 bits over 8", percent(RCC_16) / percent(RCC_8), 1.0)],
                "Longer vectors share their words with more flows.",
            ),
        ],
    )
}

fn judge_regulator(table: &Table) -> Verdict {
    let (one, two) = (percent(table, RCC_LARGE), percent(table, FLOW_REGULATOR));
    Verdict::of(
        table,
        [
            Claim::new(
                "FlowRegulator in 128 KB lets no more than 1.02 % of the packets through to the flow table.",
                [Part::at_most("FlowRegulator lets through, %", two, 1.02)],
                "Words that more flows share saturate sooner.",
            ),
            Claim::new(
                "RCC of 16 bits in 3 MB lets 12 % through (within a tenth of that).",
                [Part::within("RCC of 16 bits in 3 MB lets through, %", one, 12.0, 0.1)],
                PROOF,
            ),
            Claim::new(
                "RCC lets several times as many packets through as FlowRegulator (4).",
                [Part::at_least("RCC over FlowRegulator", one / two, 4.0)],
                "So few packets saturate a vector of 16 bits.",
            ),
        ],
    )
}

/// Figure 8: longer vectors, in one layer or two, with a single flow.
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
    measure: measure_vectors,
    judge: judge_vectors,
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

fn measure_vectors(setting: &Setting) -> Result<Outcome, Failure> {
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
            REGULATOR | ENGINE_REGULATOR => linear_count(bits / 2).powi(2),
            _ => linear_count(bits),
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

fn judge_vectors(table: &Table) -> Verdict {
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
const TENTHS: u32 = 3;

/// The number of clear bits at which a vector of `bits` bits is saturated.
fn saturated(bits: u32, tenths: u32) -> u32 {
    tenths * bits / 10
}

/// Mean number of marks that saturate a vector of `bits` bits.
fn wait(bits: u32) -> f64 {
    (saturated(bits, TENTHS) + 1..=bits).map(|clear| f64::from(bits) / f64::from(clear)).sum()
}

/// The linear counting estimate for a saturated vector of `bits` bits.
fn linear_count(bits: u32) -> f64 {
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
struct Vectors {
    first: Layer,
    /// One layer per number of clear bits at saturation; empty for RCC.
    second: Vec<Layer>,
    random: fastrand::Rng,
}

impl Vectors {
    /// A structure of `bytes` in all, with vectors of `bits` bits in each layer.
    fn new(bytes: usize, bits: u32, layers: usize, seed: u64) -> Self {
        let levels = if layers == 1 { 0 } else { saturated(bits, TENTHS) as usize + 1 };
        let layer = || Layer::new(bytes / (1 + levels), bits, TENTHS);
        let second = (0..levels).map(|_| layer()).collect();
        Self { first: layer(), second, random: fastrand::Rng::with_seed(seed) }
    }

    /// One layer with vectors that are saturated with this many tenths of the bits clear.
    fn saturated_at(tenths: u32, bytes: usize, bits: u32, seed: u64) -> Self {
        let first = Layer::new(bytes, bits, tenths);
        Self { first, second: Vec::new(), random: fastrand::Rng::with_seed(seed) }
    }

    /// Whether a packet passes.
    fn takes(&mut self, digest: u64) -> bool {
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
