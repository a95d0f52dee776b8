//! Repetitions with other seeds and traffic, to check that a verdict does not depend on them.

use flowgauge_synthetic::Profile;

use super::setting::Setting;

/// A repetition.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Again {
    /// With another seed for traffic, digests and samples.
    Seed(u64),
    /// With the traffic of this profile.
    Traffic(&'static str, Profile),
}

const SEEDS: [Again; 2] = [Again::Seed(2), Again::Seed(3)];
const UNIFORM: Again = Again::Traffic("uniform", Profile::Zipf { flows: FLOWS, skew: 0.0 });
const ZIPF: Again = Again::Traffic("zipf-1.1", Profile::Zipf { flows: FLOWS, skew: 1.1 });
const BACKBONE: Again = Again::Traffic("backbone", Profile::Backbone { flows: None });
const FLOWS: u64 = 1_000_000;

/// For experiments on backbone traffic, and on Zipf traffic.
const OF_TRACE: [Again; 4] = [SEEDS[0], SEEDS[1], ZIPF, UNIFORM];
const OF_ZIPF: [Again; 4] = [SEEDS[0], SEEDS[1], BACKBONE, UNIFORM];

/// Experiments with claims about traffic and errors. Others measure times, or already cover several
/// seeds and profiles.
pub(super) const AGAIN: &[(&str, &[Again])] = &[
    ("agg-evict/fig4", &SEEDS),
    ("nitro/fig3b", &OF_TRACE),
    ("insta-measure/fig1", &OF_TRACE),
    ("insta-measure/fig7", &OF_TRACE),
    ("insta-measure/fig8", &SEEDS),
    ("insta-measure/fig9b", &OF_TRACE),
    ("insta-measure/fig10", &OF_ZIPF),
    ("insta-measure/fig11", &OF_ZIPF),
    // For so long a stream, a backbone has more flows than the exact table holds, and uniform
    // traffic has no large flows.
    ("insta-measure/fig13", &SEEDS),
    ("insta-measure/fig14", &SEEDS),
    // It already uses three seeds.
    ("skipper/fig3", &[ZIPF, UNIFORM]),
];

/// The repetitions of an experiment.
pub(super) fn of(name: &str) -> &'static [Again] {
    AGAIN.iter().find(|(known, _)| *known == name).map_or(&[], |(_, again)| again)
}

impl Again {
    /// Its name in files and pages.
    pub(super) fn label(self) -> String {
        match self {
            Self::Seed(seed) => format!("seed-{seed}"),
            Self::Traffic(name, _) => name.to_owned(),
        }
    }

    /// The setting of this repetition.
    pub(super) fn setting(self, setting: &Setting) -> Setting {
        match self {
            Self::Seed(seed) => Setting { seed: setting.seed + seed - 1, ..setting.clone() },
            Self::Traffic(_, profile) => Setting { profile: Some(profile), ..setting.clone() },
        }
    }
}
