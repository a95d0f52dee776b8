//! How much to measure: profiles of traffic, packets and seeds.

use flowgauge_synthetic as synthetic;

use crate::args::Selection;
use crate::table::Row;

/// A kind of traffic.
#[derive(Debug)]
pub(crate) struct Profile {
    /// Its name in tables and on the command line.
    pub(crate) name: &'static str,
    /// The order in which flows send.
    pub(crate) order: synthetic::Profile,
    /// Whether the small form includes it.
    small: bool,
}

const fn zipf(name: &'static str, flows: u64, skew: f64, small: bool) -> Profile {
    Profile { name, order: synthetic::Profile::Zipf { flows, skew }, small }
}

/// Every profile.
pub(crate) static PROFILES: [Profile; 5] = [
    zipf("zipf-0.75", 1_000_000, 0.75, false),
    zipf("zipf-1.1", 1_000_000, 1.1, true),
    zipf("zipf-1.5", 1_000_000, 1.5, false),
    zipf("uniform", 10_000_000, 0.0, false),
    Profile { name: "backbone", order: synthetic::Profile::Backbone { flows: None }, small: true },
];

/// One size of the measurement.
#[derive(Debug)]
pub(crate) struct Form {
    /// Packets of an epoch.
    pub(crate) packets: u64,
    /// Streams per profile, with the seeds 1, 2, …; more if these give too few bounds to judge.
    pub(crate) seeds: u64,
    /// The profiles.
    pub(crate) profiles: Vec<&'static Profile>,
}

impl Form {
    /// The form of the published numbers.
    pub(crate) fn full(selection: &Selection) -> Self {
        Self { packets: 2_500_000, seeds: 3, profiles: select(selection, |_| true) }
    }

    /// The form of the gate.
    pub(crate) fn small(selection: &Selection) -> Self {
        Self { packets: 200_000, seeds: 1, profiles: select(selection, |profile| profile.small) }
    }

    /// Whether this row was measured in this form.
    pub(crate) fn has(&self, row: &Row) -> bool {
        row.packets == self.packets
            && row.seeds >= self.seeds
            && self.profiles.iter().any(|profile| profile.name == row.profile)
    }
}

fn select(selection: &Selection, has: impl Fn(&Profile) -> bool) -> Vec<&'static Profile> {
    let names = &selection.profiles;
    let among = |profile: &Profile| names.is_empty() || names.iter().any(|n| n == profile.name);
    PROFILES.iter().filter(|profile| has(profile) && among(profile)).collect()
}
