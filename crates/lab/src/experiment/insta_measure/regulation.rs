//! Figures 1 and 7: which share of the packets reaches the flow table.

use flowgauge_core::key::{Extract, FlowKey, Key16, KeyKind};
use flowgauge_core::summary::Options;
use flowgauge_kernel::{Digester, Isa, Seed};

use super::vector::Vectors;
use super::{FlowRegulator, RATE, Rcc, SKETCH};
use crate::experiment::chart::{Chart, linear, log};
use crate::experiment::setting::{Mix, Setting};
use crate::experiment::table::{Table, row};
use crate::experiment::verdict::{Part, Verdict};
use crate::experiment::{Experiment, Outcome};
use crate::failure::Failure;

pub(crate) const FIG1: Experiment = Experiment {
    name: "insta-measure/fig1",
    title: "how often one layer of counters saturates",
    paper: "InstaMeasure (ICDCS 2019), Fig. 1",
    claim: "RCC lets 19 % of the packets through with vectors of 8 bits and 12 % with 16 bits: more than the \
            5 to 10 % that DRAM is slower than SRAM by.",
    measure: |setting| measure(setting, [RCC_8, RCC_16]),
    judge: judge_rcc,
    charts: CHARTS,
};

pub(crate) const FIG7: Experiment = Experiment {
    name: "insta-measure/fig7",
    title: "the rate of insertions behind one layer and behind two",
    paper: "InstaMeasure (ICDCS 2019), Fig. 7",
    claim: "RCC of 16 bits in 3 MB lets 12 % of the packets through to the flow table, FlowRegulator in \
            128 KB no more than 1.02 %.",
    measure: |setting| measure(setting, [RCC_LARGE, REGULATOR]),
    judge: judge_regulator,
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
}];

const ARRIVALS: &str = "arrivals";
const RCC_8: &str = "RCC, 8 bits, 128 KB";
const RCC_16: &str = "RCC, 16 bits, 128 KB";
const RCC_LARGE: &str = "RCC, 16 bits, 3 MB";
const REGULATOR: &str = "FlowRegulator, 128 KB";

/// Whether a packet with this digest is let through.
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
        _ => {
            let bytes = if name == RCC_16 { SKETCH } else { 3 << 20 };
            let mut vectors = Vectors::new(bytes, 16, 1, setting.seed);
            Box::new(move |digest| vectors.takes(digest))
        }
    })
}

fn measure(setting: &Setting, names: [&str; 2]) -> Result<Outcome, Failure> {
    let mut structures =
        names.iter().map(|name| build(name, setting)).collect::<Result<Vec<_>, _>>()?;
    let digester = Digester::new(Seed::number(setting.seed), Isa::best()).for_keys(Key16::SHORTEST);
    let mut table = Table::new(["structure", "time_s", "per_second", "percent"]);
    let mut through = vec![0_u64; structures.len()];
    let (mut packets, mut all) = (0_u64, 0_u64);
    super::pieces(setting, Mix::Trace, super::epochs(setting) / 4, |piece| {
        for packet in piece {
            let Ok(key) = Key16::extract(KeyKind::FiveTuple, &packet.ip) else { continue };
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

/// The mean share that a structure lets through, the first tenth left out, in which it fills.
fn percent(table: &Table, name: &str) -> f64 {
    let all = table.numbers("structure", name, "percent");
    let settled = &all[all.len() / 10..];
    settled.iter().sum::<f64>() / settled.len() as f64
}

fn judge_rcc(table: &Table) -> Verdict {
    let (eight, sixteen) = (percent(table, RCC_8), percent(table, RCC_16));
    Verdict::of([
        Part::at_least("RCC of 8 bits lets through, %", eight, 12.0),
        Part::at_least("RCC of 16 bits lets through, %", sixteen, 10.0),
        Part::at_most("16 bits over 8", sixteen / eight, 1.0),
        Part::at_least("the least of both, %, over the 5 of DRAM", eight.min(sixteen), 5.0),
    ])
}

fn judge_regulator(table: &Table) -> Verdict {
    let (one, two) = (percent(table, RCC_LARGE), percent(table, REGULATOR));
    Verdict::of([
        Part::at_most("FlowRegulator lets through, %", two, 1.1),
        Part::at_least("RCC of 16 bits in 3 MB lets through, %", one, 10.0),
        Part::at_least("RCC over FlowRegulator", one / two, 10.0),
    ])
}
