//! The parameters of a figure: the paper's value, ours, and why they differ.

use std::fmt::Write as _;

use super::setting::Setting;
use super::{EXPERIMENTS, Experiment};

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
pub(super) fn table() -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Differences have a reason, and every figure has parameters.
    #[test]
    fn presets_say_why_they_differ() {
        for Experiment { name, presets, .. } in EXPERIMENTS {
            for preset in *presets {
                let cells = preset.cells();
                assert_eq!(
                    preset.why.is_empty(),
                    matches!(preset.ours, Ours::Same),
                    "{name}: {cells}"
                );
                assert_eq!(cells.matches('|').count(), 3, "{name}: {cells}");
            }
        }
        let table = table();
        assert!(
            table
                .contains("| epoch | 2 million packets | 1 million packets (`--quick`), 2 million")
        );
    }
}
