//! The papers' figures, measured again. An experiment is a measurement, and claims that are judged
//! only by the measured numbers.
//!
//! To add one, write a `const … : Experiment` in a file of the paper's folder in `figures`, and add its
//! name to [`EXPERIMENTS`].

mod chart;
mod figures;
mod latency;
mod memory;
mod papers;
mod parallel;
mod part;
mod report;
mod setting;
mod stream;
mod structure;
mod svg;
mod table;
#[cfg(test)]
mod tests;
mod verdict;

use std::fmt::Write as _;

use chart::Chart;
pub(crate) use figures::EXPERIMENTS;
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
