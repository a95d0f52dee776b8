//! What is measured again with other seeds and other traffic, to see whether verdicts are theirs.

use flowgauge_synthetic::Profile;

use super::setting::Setting;

/// One more measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Again {
    /// With another seed of traffic, digests and samples.
    Seed(u64),
    /// With the traffic of a profile, whatever it usually is.
    Traffic(&'static str, Profile),
}

const SEEDS: [Again; 2] = [Again::Seed(2), Again::Seed(3)];
const UNIFORM: Again = Again::Traffic("uniform", Profile::Zipf { flows: FLOWS, skew: 0.0 });
const ZIPF: Again = Again::Traffic("zipf-1.1", Profile::Zipf { flows: FLOWS, skew: 1.1 });
const BACKBONE: Again = Again::Traffic("backbone", Profile::Backbone { flows: None });
const FLOWS: u64 = 1_000_000;

/// Of the traffic of a backbone, and of Zipf's.
const OF_TRACE: [Again; 4] = [SEEDS[0], SEEDS[1], ZIPF, UNIFORM];
const OF_ZIPF: [Again; 4] = [SEEDS[0], SEEDS[1], BACKBONE, UNIFORM];

/// Experiments whose claims are about traffic and errors, and not about times; those that are not here
/// measure several seeds and profiles themselves, or times.
pub(super) const AGAIN: &[(&str, &[Again])] = &[
    ("agg-evict/fig4", &SEEDS),
    ("nitro/fig3b", &OF_TRACE),
    ("insta-measure/fig1", &OF_TRACE),
    ("insta-measure/fig7", &OF_TRACE),
    ("insta-measure/fig8", &SEEDS),
    ("insta-measure/fig9b", &OF_TRACE),
    ("insta-measure/fig10", &OF_ZIPF),
    ("insta-measure/fig11", &OF_ZIPF),
    // So long a stream of a backbone has more flows than the exact table, and of flows all alike none is large.
    ("insta-measure/fig13", &SEEDS),
    ("insta-measure/fig14", &SEEDS),
    // With three seeds as it is.
    ("skipper/fig3", &[ZIPF, UNIFORM]),
];

/// What is measured again of an experiment.
pub(super) fn of(name: &str) -> &'static [Again] {
    AGAIN.iter().find(|(known, _)| *known == name).map_or(&[], |(_, again)| again)
}

impl Again {
    /// How files and pages call it.
    pub(super) fn label(self) -> String {
        match self {
            Self::Seed(seed) => format!("seed-{seed}"),
            Self::Traffic(name, _) => name.to_owned(),
        }
    }

    /// The setting for it.
    pub(super) fn setting(self, setting: &Setting) -> Setting {
        match self {
            Self::Seed(seed) => Setting { seed: setting.seed + seed - 1, ..setting.clone() },
            Self::Traffic(_, profile) => Setting { profile: Some(profile), ..setting.clone() },
        }
    }
}
