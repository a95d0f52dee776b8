//! What may be tried: an algorithm, alone or behind an accelerator.

use std::iter;

use flowgauge_core::catalog::{self, ACCELERATORS, ALGORITHMS};
use flowgauge_core::summary::{Info, Parameter, Parameters};

use crate::config::Config;

/// An algorithm behind accelerators, with parameters.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Candidate {
    algorithm: &'static str,
    parameters: Parameters,
    accelerators: Vec<(String, Parameters)>,
    /// The error that a sample adds, however long it runs.
    pub(super) sampling: f64,
}

impl Candidate {
    /// The algorithm that answers nearly everything, exactly.
    pub(super) fn exact() -> Self {
        Self {
            algorithm: "linear-table",
            parameters: Parameters::default(),
            accelerators: Vec::new(),
            sampling: 0.0,
        }
    }

    /// Everything that the catalog can put together, sized for this error where it can be.
    pub(super) fn all(error: f64) -> impl Iterator<Item = Self> {
        ALGORITHMS.iter().flat_map(move |info| {
            let able = ACCELERATORS
                .iter()
                .filter(|accelerator| catalog::able(accelerator.name).contains(&info.name))
                .filter(move |accelerator| error > 0.0 || !accelerator.samples);
            let behind = able.map(move |accelerator| {
                let own = sized(accelerator.parameters, error / 2.0);
                Self::behind(info, accelerator.name, own, error)
            });
            iter::once(Self::alone(info, error)).chain(behind)
        })
    }

    fn alone(info: &Info, error: f64) -> Self {
        let parameters = sized(info.parameters, error);
        Self { algorithm: info.name, parameters, accelerators: Vec::new(), sampling: 0.0 }
    }

    /// Where both have errors to choose, each has half of what there may be.
    fn behind(info: &Info, accelerator: &str, own: Parameters, error: f64) -> Self {
        let sampling = if own == Parameters::default() { 0.0 } else { error / 2.0 };
        Self {
            algorithm: info.name,
            parameters: sized(info.parameters, error - sampling),
            accelerators: vec![(accelerator.to_owned(), own)],
            sampling,
        }
    }

    /// Its name for people.
    pub(super) fn name(&self) -> String {
        let before = self.accelerators.iter().map(|(name, _)| format!(" behind {name}"));
        iter::once(self.algorithm.to_owned()).chain(before).collect()
    }

    /// The run `asked`, with this to measure.
    pub(super) fn config(&self, asked: &Config) -> Config {
        Config {
            algorithm: self.algorithm.to_owned(),
            parameters: self.parameters.clone(),
            accelerators: self.accelerators.clone(),
            ..asked.clone()
        }
    }
}

/// The error as a parameter, where there is such a one.
fn sized(parameters: &[Parameter], error: f64) -> Parameters {
    let named = error > 0.0 && parameters.iter().any(|parameter| parameter.name == "epsilon");
    Parameters::new(named.then_some(("epsilon", error)))
}
