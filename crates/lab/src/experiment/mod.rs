//! The papers' figures, measured again. An experiment is a measurement, and claims that are judged
//! only by the measured numbers.
//!
//! To add one, write a file in the paper's folder with a `const … : Experiment`, and add its name
//! to [`EXPERIMENTS`].

mod agg_evict;
mod auto;
mod chart;
mod insta_measure;
mod latency;
mod memory;
mod nitro;
mod papers;
mod parallel;
mod part;
mod report;
mod scaling;
mod setting;
mod simple;
mod simulation;
mod skipper;
mod stream;
mod structure;
mod svg;
mod switch;
mod table;
#[cfg(test)]
mod tests;
mod verdict;

use std::fmt::Write as _;

use chart::Chart;
pub(crate) use part::median;
pub(crate) use report::{judge, list, run};
pub(crate) use setting::{FRAME_BYTES, Mix, Setting};
pub(crate) use stream::Stream;
pub(crate) use structure::Structure;
use table::Table;
pub(crate) use table::short;
use verdict::{Missing, Verdict};

use crate::failure::Failure;

/// A figure of a paper.
pub(crate) struct Experiment {
    /// The paper's short name and the figure: `simple/fig2`.
    pub(crate) name: &'static str,
    /// What is measured, in a few words.
    title: &'static str,
    /// The paper and the figure.
    paper: &'static str,
    /// The parameters, beside the paper's.
    presets: &'static [Preset],
    /// Runs the measurement.
    measure: fn(&Setting) -> Result<Outcome, Failure>,
    /// Judges the paper's claims, using only the measured numbers.
    judge: fn(&Table) -> Verdict,
    /// Claims that cannot be measured here.
    missing: &'static [Missing],
    /// Charts of the table.
    charts: &'static [Chart],
}

/// The result of a measurement.
pub(crate) struct Outcome {
    /// All numbers.
    table: Table,
    /// The lower limit (the bare loop), in a sentence.
    limit: String,
    /// Further remarks in sentences; may be empty.
    notes: String,
}

/// A parameter of a figure.
#[derive(Clone, Copy)]
pub(crate) struct Preset {
    /// Its name.
    pub(crate) what: &'static str,
    /// The paper's value.
    pub(crate) paper: &'static str,
    /// Ours.
    pub(crate) ours: Ours,
    /// Why they differ; empty if they do not.
    pub(crate) why: &'static str,
}

/// Our value.
#[derive(Clone, Copy)]
pub(crate) enum Ours {
    /// The paper's value.
    Same,
    /// A different value.
    Other(&'static str),
    /// A value that the setting decides.
    Of(fn(&Setting) -> String),
}

impl Preset {
    /// A parameter with the paper's value.
    pub(crate) const fn same(what: &'static str, paper: &'static str) -> Self {
        Self { what, paper, ours: Ours::Same, why: "" }
    }

    /// A parameter with a different value here, for a reason.
    pub(crate) const fn other(
        what: &'static str,
        paper: &'static str,
        ours: &'static str,
        why: &'static str,
    ) -> Self {
        Self { what, paper, ours: Ours::Other(ours), why }
    }

    /// A parameter that the setting decides.
    pub(crate) const fn of(
        what: &'static str,
        paper: &'static str,
        ours: fn(&Setting) -> String,
        why: &'static str,
    ) -> Self {
        Self { what, paper, ours: Ours::Of(ours), why }
    }

    /// The cells of a row: name, the paper's value, ours and the reason.
    fn cells(&self) -> String {
        let ours = match self.ours {
            Ours::Same => "the same".to_owned(),
            Ours::Other(ours) => ours.to_owned(),
            Ours::Of(ours) => match [Setting::quick(), Setting::full()].map(|s| ours(&s)) {
                [quick, full] if quick == full => quick,
                [quick, full] => format!("{quick} (`--quick`), {full} (`--full`)"),
            },
        };
        format!("{} | {} | {ours} | {}", self.what, self.paper, self.why)
    }
}

/// Packets per epoch, in millions.
pub(crate) fn epoch(setting: &Setting) -> String {
    format!("{} million packets", setting.packets as f64 / 1e6)
}

/// A table of all parameters. Figures of a paper with the same parameter share a row.
fn presets() -> String {
    let mut rows: Vec<(String, Vec<&str>)> = Vec::new();
    for Experiment { name, presets, .. } in EXPERIMENTS {
        for cells in presets.iter().map(Preset::cells) {
            let paper = |name: &str| name.split('/').next().map(str::to_owned);
            let known = rows.iter_mut().find(|(have, names)| {
                *have == cells && names.iter().all(|one| paper(one) == paper(name))
            });
            match known {
                Some((_, names)) => names.push(name),
                None => rows.push((cells, vec![name])),
            }
        }
    }
    let mut table =
        "| figure | what | the paper | here | why they differ |\n|---|---|---|---|---|\n"
            .to_owned();
    for (cells, names) in rows {
        let _ = writeln!(table, "| {} | {cells} |", names.join(", "));
    }
    table
}

/// All experiments, in the order of the report.
#[rustfmt::skip]
pub(crate) const EXPERIMENTS: &[&Experiment] = &[
    &simple::FIG1,
    &simple::FIG2,
    &simple::ARRAY_SIZE,
    &simple::HIERARCHICAL,
    &simple::FIG3,
    &simple::FIG3C,
    &simple::FIG4,
    &simple::FIG5,
    &simple::FIG6,
    &simple::FIG7,
    &simple::FIG8,
    &simple::MERGE,
    &simple::CACHE,
    &simple::FIG9A,
    &simple::FIG9B,
    &simple::ZERO_LOSS,
    &agg_evict::FIG2,
    &agg_evict::FIG4,
    &agg_evict::FIG5,
    &agg_evict::FIG6,
    &agg_evict::FIG6C,
    &agg_evict::RECEIVE,
    &agg_evict::FIG7,
    &agg_evict::FIG7C,
    &agg_evict::FIG8A,
    &agg_evict::FIG8B,
    &nitro::FIG3A,
    &nitro::FIG3B,
    &nitro::TABLE1,
    &nitro::TABLE2,
    &nitro::STRAWMEN,
    &nitro::CONVERGENCE,
    &nitro::LOAD,
    &insta_measure::FIG1,
    &insta_measure::FIG6,
    &insta_measure::FIG7,
    &insta_measure::FIG8,
    &insta_measure::FIG9A,
    &insta_measure::FIG9B,
    &insta_measure::FIG10,
    &insta_measure::FIG11,
    &insta_measure::CSM,
    &insta_measure::FIG12,
    &insta_measure::FIG13,
    &insta_measure::FIG14,
    &insta_measure::WSAF,
    &skipper::FIG2,
    &skipper::FIG3,
    &skipper::UNIVMON,
    &skipper::CONVERGENCE,
    &skipper::WEIGHTED,
    &skipper::L2,
    &skipper::HIERARCHICAL,
    &auto::AUTO,
    &scaling::SEPARATE,
    &scaling::CONCURRENT,
    &scaling::UPDATES,
    &switch::DPDK,
    &switch::ZERO_LOSS,
    &switch::EMC_FEW,
    &switch::EMC_MANY,
    &switch::MEGAFLOW_FEW,
    &switch::MEGAFLOW_MANY,
    &switch::SIMPLE_FEW,
    &switch::SIMPLE_MANY,
    &switch::NITRO_FIG2,
    &switch::SKIPPER_FIG5,
    &switch::TODAY,
];
