//! Figures 1 and 7: the share of packets that reaches the flow table.

use flowgauge_core::key::{Extract, FlowKey, Key16, KeyKind};
use flowgauge_core::summary::Options;
use flowgauge_kernel::{Digester, Isa, Seed};

use super::vectors::Vectors;
use super::{FlowRegulator, RATE, Rcc, SKETCH};
use crate::experiment::chart::{Chart, Mark, linear, log};
use crate::experiment::part::Part;
use crate::experiment::setting::{Mix, Setting};
use crate::experiment::table::{Table, row};
use crate::experiment::verdict::{Claim, Verdict};
use crate::experiment::{Experiment, Outcome, Preset};
use crate::failure::Failure;

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
    measure: |setting| measure(setting, &[RCC_8, RCC_16, HALF_8, HALF_16]),
    judge: judge_rcc,
    missing: &[],
    charts: CHARTS,
};

pub(crate) const FIG7: Experiment = Experiment {
    name: "insta-measure/fig7",
    title: "the rate of insertions behind one layer and behind two",
    paper: "InstaMeasure (ICDCS 2019), Fig. 7",
    presets: &[super::BACKBONE, super::KEY, super::REGULATOR, Preset::same("RCC", "16 bits, 3 MB")],
    measure: |setting| measure(setting, &[RCC_LARGE, REGULATOR]),
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
const REGULATOR: &str = "FlowRegulator, 128 KB";

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
        REGULATOR => {
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

fn measure(setting: &Setting, names: &[&str]) -> Result<Outcome, Failure> {
    let mut structures =
        names.iter().map(|name| build(name, setting)).collect::<Result<Vec<_>, _>>()?;
    let digester = Digester::new(Seed::number(setting.seed), Isa::best()).for_keys(Key16::SHORTEST);
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
    let (one, two) = (percent(table, RCC_LARGE), percent(table, REGULATOR));
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
