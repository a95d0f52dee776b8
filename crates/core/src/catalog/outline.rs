//! Outlines: the abilities of a summary, without building it.

use crate::key::CanonicalKey;
use crate::summary::concurrent::without_candidates;
use crate::summary::{
    Ability, Answers, BuildError, Candidates, Cells, Counted, Details, Estimate, Flows, Forecast,
    Forecasts, Options, Parameters, Prefixes, QuantileOf, Quantiles, Seen, SizeEstimate, SizeQuery,
    Spread,
};
use crate::terms::{Hierarchy, Measure, Size};

/// An algorithm behind accelerators, as described by the catalog. It has the abilities of the
/// summary that would be built from the same options, and answers like a summary without packets.
///
/// Memory: some tens of bytes, for any options.
///
/// ```
/// use flowgauge_core::catalog::Outline;
/// use flowgauge_core::summary::{Answers, Options};
///
/// let outline = Outline::new(13, &[], "count-min", &Options::new(1 << 20, 1)).unwrap();
/// assert!(outline.size().is_some());
/// assert!(outline.flows().is_none());
/// ```
#[derive(Clone, Debug)]
pub struct Outline {
    answers: Vec<Ability>,
    by: Measure,
    hierarchy: Hierarchy,
}

impl Outline {
    /// The outline of the algorithm called `name` behind accelerators, for keys of `key_bytes`
    /// canonical bytes.
    ///
    /// # Errors
    /// When one of them or a parameter does not exist, when an accelerator is not sound at its
    /// place, or the algorithm cannot measure what the options ask for. Other values of parameters,
    /// and the memory, are not checked.
    pub fn new(
        key_bytes: usize,
        accelerators: &[(String, Parameters)],
        name: &str,
        options: &Options,
    ) -> Result<Self, BuildError> {
        super::sound(accelerators, name, &options.parameters)?;
        let digester = options.digester.for_keys(key_bytes);
        super::fits_options(name, &Options { digester, ..options.clone() })?;
        let mut answers = super::info(name)?.form(&options.parameters).answers.to_vec();
        let mut laws = super::laws(name, &options.parameters)?;
        for (accelerator, parameters) in accelerators.iter().rev() {
            super::check_accelerator(accelerator, parameters)?;
            answers = super::answers_behind(accelerator, parameters, &laws, answers);
            laws = super::laws_behind(accelerator, laws);
        }
        Ok(Self { answers, by: options.by, hierarchy: options.hierarchy })
    }

    /// The outline of the concurrent form of the algorithm called `name`, for keys of `key_bytes`
    /// canonical bytes. It keeps no candidates.
    ///
    /// # Errors
    /// Those of [`Self::new`], and when the algorithm is not in [`CONCURRENT`](super::CONCURRENT), or has
    /// no concurrent form with these parameters.
    pub fn concurrent(key_bytes: usize, name: &str, options: &Options) -> Result<Self, BuildError> {
        let info = super::info(name)?;
        super::check_concurrent(info)?;
        let has = |name| info.parameters.iter().any(|parameter| parameter.name == name);
        if has("state") {
            options.parameters.word("state", &["counter"])?;
        }
        let options =
            if has("candidates") { without_candidates(options)? } else { options.clone() };
        Self::new(key_bytes, &[], name, &options)
    }

    fn has(&self, ability: Ability) -> Option<&Self> {
        self.answers.contains(&ability).then_some(self)
    }

    /// The measures of an ability, where it has any.
    fn counted(&self, of: impl Fn(Ability) -> Option<Counted>) -> Option<Counted> {
        self.answers.iter().find_map(|ability| of(*ability))
    }

    fn sizes(&self) -> Option<Counted> {
        self.counted(|ability| match ability {
            Ability::Size(counted) => Some(counted),
            _ => None,
        })
    }

    fn of_quantiles(&self) -> Option<QuantileOf> {
        self.answers.iter().find_map(|ability| match ability {
            Ability::Quantiles(of) => Some(*of),
            _ => None,
        })
    }
}

const NONE: Estimate = Estimate { value: 0.0, low: 0.0, high: 0.0, confidence: None };

impl Answers for Outline {
    fn flows(&self) -> Option<&dyn Flows> {
        Some(self.has(Ability::Flows)?)
    }
    fn size(&self) -> Option<&dyn SizeQuery> {
        self.sizes().map(|_| self as &dyn SizeQuery)
    }
    fn candidates(&self) -> Option<&dyn Candidates> {
        Some(self.has(Ability::Candidates)?)
    }
    fn cardinality(&self) -> Option<Estimate> {
        self.has(Ability::Cardinality).map(|_| NONE)
    }
    fn weight_logs(&self, by: Measure) -> Option<Estimate> {
        let counted = self.counted(|ability| match ability {
            Ability::WeightLogs(counted) => Some(counted),
            _ => None,
        });
        counted.filter(|counted| counted.has(by, self.by)).map(|_| NONE)
    }
    fn distribution(&self) -> Option<Vec<(u64, Estimate)>> {
        let counted = self.counted(|ability| match ability {
            Ability::Distribution(counted) => Some(counted),
            _ => None,
        });
        counted.filter(|counted| counted.has(Measure::Packets, self.by)).map(|_| Vec::new())
    }
    fn quantiles(&self) -> Option<&dyn Quantiles> {
        self.of_quantiles().map(|_| self as &dyn Quantiles)
    }
    fn spread(&self) -> Option<&dyn Spread> {
        Some(self.has(Ability::Spread)?)
    }
    fn details(&self) -> Option<&dyn Details> {
        Some(self.has(Ability::Details)?)
    }
    fn forecasts(&self) -> Option<&dyn Forecasts> {
        Some(self.has(Ability::Forecasts)?)
    }
    fn prefixes(&self) -> Option<&dyn Prefixes> {
        let one = |sampled| self.has(Ability::Prefixes { sampled });
        Some(one(false).or_else(|| one(true))?)
    }
    fn cells(&self) -> Option<&dyn Cells> {
        let one = |sampled| self.has(Ability::Cells { sampled });
        Some(one(false).or_else(|| one(true))?)
    }
}

impl Flows for Outline {
    fn len(&self) -> usize {
        0
    }
    fn most(&self) -> usize {
        0
    }
    fn get(&self, index: usize) -> (&[u8], Size) {
        unreachable!("an outline has no flow {index}")
    }
    fn for_each(&self, _: &mut dyn FnMut(&[u8], Size)) {}
}

impl SizeQuery for Outline {
    fn estimate(&self, _: &[u8]) -> SizeEstimate {
        let has = |measure| self.sizes().is_some_and(|counted| counted.has(measure, self.by));
        let [packets, bytes] =
            [Measure::Packets, Measure::Bytes].map(|measure| has(measure).then_some(NONE));
        SizeEstimate { packets, bytes }
    }
}

impl Candidates for Outline {
    fn for_each(&self, _: &mut dyn FnMut(CanonicalKey, SizeEstimate)) {}
    fn overflow(&self) -> u64 {
        0
    }
}

impl Quantiles for Outline {
    fn of(&self) -> QuantileOf {
        self.of_quantiles().unwrap_or(QuantileOf::Key)
    }
    fn count(&self) -> u64 {
        0
    }
    fn error(&self) -> f64 {
        0.0
    }
    fn confidence(&self) -> Option<f64> {
        None
    }
    fn largest(&self) -> f64 {
        0.0
    }
    fn rank(&self, _: f64) -> f64 {
        0.0
    }
    fn key(&self, _: f64) -> Option<CanonicalKey> {
        None
    }
}

impl Spread for Outline {
    fn for_each(&self, _: &mut dyn FnMut(CanonicalKey, Estimate)) {}
    fn overflow(&self) -> u64 {
        0
    }
}

impl Details for Outline {
    fn seen(&self, _: &[u8]) -> Option<Seen> {
        None
    }
}

impl Forecasts for Outline {
    fn for_each(&self, _: &mut dyn FnMut(CanonicalKey, Forecast)) {}
}

impl Prefixes for Outline {
    fn measure(&self) -> Measure {
        self.by
    }
    fn hierarchy(&self) -> Hierarchy {
        self.hierarchy
    }
    fn nodes(&self) -> Vec<(u8, u8)> {
        Vec::new()
    }
    fn for_each(&self, _: usize, _: &mut dyn FnMut(CanonicalKey, Estimate)) {}
    fn estimate(&self, _: usize, _: &[u8]) -> Estimate {
        NONE
    }
}

impl Cells for Outline {
    fn measure(&self) -> Measure {
        self.by
    }
    fn len(&self) -> usize {
        0
    }
    fn sampled(&self) -> bool {
        self.has(Ability::Cells { sampled: true }).is_some()
    }
    fn read(&self, _: &mut [f64]) {}
    fn estimate(&self, _: &[f64], _: &[u8]) -> Estimate {
        NONE
    }
}
