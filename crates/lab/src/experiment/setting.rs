//! How much to measure and on which packets, and with which seeds and traffic to repeat it.

use std::fs;
use std::path::{Path, PathBuf};

use flowgauge_capture::Captures;
use flowgauge_core::packet::{Headers, Ip, Ports, parse};
use flowgauge_engine::source::{Burst, Columns, Source};
use flowgauge_synthetic::Profile;

use crate::failure::Failure;
use crate::traffic::{Packet, Scene};
use crate::trial::THRESHOLD;

/// Flows of generated Zipf traffic, as many as in the papers' traces.
const FLOWS: u64 = 1_000_000;

/// Bytes of a five-tuple; a key file has the first ones.
const TUPLE_BYTES: usize = 13;

/// Bytes of a generated frame.
pub(crate) const FRAME_BYTES: u32 = 64;

/// Minimum-size packets on a 10 Gbit/s link, in millions per second.
pub(crate) const LINE_RATE: f64 = 14.88;

/// How much to measure, and on which packets.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    /// Packets per epoch.
    pub(crate) packets: usize,
    /// Rounds; reported numbers are medians.
    pub(crate) rounds: usize,
    /// Bytes of the largest structure in a sweep over sizes.
    pub(crate) most_bytes: usize,
    /// Factor between two sizes of a sweep.
    pub(crate) factor: usize,
    /// The seed of traffic and digests.
    pub(crate) seed: u64,
    /// A trace to use instead of generated traffic.
    pub(crate) trace: Option<Trace>,
    /// A profile for all generated traffic, instead of an experiment's own.
    pub(crate) profile: Option<Profile>,
    /// The folder of an Open vSwitch that contains flowgauge.
    pub(crate) switch: Option<PathBuf>,
}

/// A kind of traffic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Mix {
    /// The user's trace, otherwise generated backbone traffic.
    Trace,
    /// Packets of a million flows in random order, with Zipf shares of this skew.
    Zipf(f64),
}

/// Packets from a file.
#[derive(Clone, Debug)]
pub(crate) struct Trace {
    /// Its options on the command line.
    pub(crate) words: String,
    /// Known bytes of the five-tuple.
    key_bytes: usize,
    packets: Vec<Packet>,
}

impl Mix {
    /// The profile that generates it.
    pub(crate) fn profile(self) -> Profile {
        match self {
            Self::Trace => Profile::Backbone { flows: None },
            Self::Zipf(skew) => Profile::Zipf { flows: FLOWS, skew },
        }
    }
}

impl Setting {
    /// A few minutes for all experiments.
    pub(crate) fn quick() -> Self {
        Self {
            packets: 1_000_000,
            rounds: 5,
            most_bytes: 64 << 20,
            factor: 4,
            seed: 1,
            trace: None,
            profile: None,
            switch: None,
        }
    }

    /// The papers' epochs and sizes.
    pub(crate) fn full() -> Self {
        Self { packets: 2_000_000, rounds: 9, most_bytes: 256 << 20, factor: 2, ..Self::quick() }
    }

    /// Sizes from `least` to the largest.
    pub(crate) fn sizes(&self, least: usize) -> Vec<usize> {
        let next = |size: &usize| Some(size * self.factor);
        std::iter::successors(Some(least), next).take_while(|s| *s <= self.most_bytes).collect()
    }

    /// The epochs of a scene.
    ///
    /// # Errors
    /// When what is planted does not fit, or the trace is too short or its keys are.
    pub(crate) fn epochs(&self, mix: Mix, scene: Scene) -> Result<Vec<Vec<Packet>>, Failure> {
        let profile = match (mix, &self.trace) {
            (Mix::Trace, Some(trace)) => {
                let epochs = trace.packets.chunks_exact(self.packets).take(2);
                let epochs: Vec<Vec<Packet>> = epochs.map(<[Packet]>::to_vec).collect();
                let wanted = if scene == Scene::Changes { 2 } else { 1 };
                return match epochs.len() {
                    have if have < wanted => Err(Failure::Trace {
                        name: trace.words.clone(),
                        reason: format!(
                            "{} packets, where {wanted} epochs of {} are wanted",
                            trace.packets.len(),
                            self.packets
                        ),
                    }),
                    _ => Ok(epochs.into_iter().take(wanted).collect()),
                };
            }
            (mix, _) => self.profile.unwrap_or(mix.profile()),
        };
        Ok(scene.draw(profile, self.packets as u64, THRESHOLD, self.seed)?)
    }

    /// Rejects a trace that knows fewer than `bytes` bytes of the five-tuple.
    ///
    /// # Errors
    /// When it knows fewer.
    pub(crate) fn needs(&self, mix: Mix, bytes: usize) -> Result<(), Failure> {
        match &self.trace {
            Some(trace) if mix == Mix::Trace && trace.key_bytes < bytes => Err(Failure::Trace {
                name: trace.words.clone(),
                reason: format!("keys of {} bytes, where {bytes} are needed", trace.key_bytes),
            }),
            _ => Ok(()),
        }
    }
}

impl Trace {
    /// Reads at most `most` packets of a capture, or of a file of keys, each the first `key_bytes`
    /// bytes of a five-tuple.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub(crate) fn read(
        path: &Path,
        key_bytes: Option<usize>,
        most: usize,
    ) -> Result<Self, Failure> {
        let words = match key_bytes {
            Some(bytes) => format!("--keys {} --key-bytes {bytes}", path.display()),
            None => format!("--keys {}", path.display()),
        };
        let packets = match key_bytes {
            Some(bytes) => {
                let keys = fs::read(path).map_err(Failure::of(path.display()))?;
                keys.chunks_exact(bytes).take(most).map(of_key).collect()
            }
            None => of_capture(path.to_path_buf(), most)?,
        };
        Ok(Self { words, key_bytes: key_bytes.unwrap_or(TUPLE_BYTES), packets })
    }
}

/// A packet of which only the first bytes of the five-tuple are known.
fn of_key(key: &[u8]) -> Packet {
    let mut tuple = [0; TUPLE_BYTES];
    tuple[..key.len()].copy_from_slice(key);
    let mut addresses = [0; 8];
    addresses.copy_from_slice(&tuple[..8]);
    let ports = Ports::Found(u32::from_be_bytes([tuple[8], tuple[9], tuple[10], tuple[11]]));
    let ip = Ip { addresses, protocol: tuple[12], ports };
    Packet { ip, wire: FRAME_BYTES, time_ns: 0 }
}

/// The IPv4 packets.
fn of_capture(path: PathBuf, most: usize) -> Result<Vec<Packet>, Failure> {
    let name = path.display().to_string();
    let mut captures = Captures::open([path]);
    let (mut packets, mut columns) = (Vec::new(), Columns::default());
    while packets.len() < most {
        let mut burst = Burst::new(&mut columns);
        let more = captures
            .poll(&mut burst)
            .map_err(|error| Failure::Trace { name: name.clone(), reason: error.to_string() })?;
        if !more {
            break;
        }
        for frame in burst.frames().iter() {
            if let Headers::V4(ip) = parse(frame.link, frame.bytes) {
                packets.push(Packet { ip, wire: frame.wire, time_ns: frame.time_ns });
            }
        }
    }
    packets.truncate(most);
    Ok(packets)
}

/// A repetition.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Repetition {
    /// With another seed for traffic, digests and samples.
    Seed(u64),
    /// With the traffic of this profile.
    Traffic(&'static str, Profile),
}

const SEEDS: [Repetition; 2] = [Repetition::Seed(2), Repetition::Seed(3)];
const UNIFORM: Repetition =
    Repetition::Traffic("uniform", Profile::Zipf { flows: FLOWS, skew: 0.0 });
const ZIPF: Repetition = Repetition::Traffic("zipf-1.1", Profile::Zipf { flows: FLOWS, skew: 1.1 });
const BACKBONE: Repetition = Repetition::Traffic("backbone", Profile::Backbone { flows: None });

/// For experiments on backbone traffic, and on Zipf traffic.
const OF_TRACE: [Repetition; 4] = [SEEDS[0], SEEDS[1], ZIPF, UNIFORM];
const OF_ZIPF: [Repetition; 4] = [SEEDS[0], SEEDS[1], BACKBONE, UNIFORM];

/// Experiments with claims about traffic and errors. Others measure times, or already cover several
/// seeds and profiles.
pub(super) const REPETITIONS: &[(&str, &[Repetition])] = &[
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
pub(super) fn repetitions(name: &str) -> &'static [Repetition] {
    REPETITIONS.iter().find(|(known, _)| *known == name).map_or(&[], |(_, again)| again)
}

impl Repetition {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn captures_are_traces() {
        use flowgauge_synthetic::{Config, Traffic, to_pcap_bytes};

        let Ok(traffic) = Traffic::new(Config { packets: 300, ..Config::default() }) else {
            panic!("the defaults are sound")
        };
        let packets: Vec<_> = traffic.collect();
        let path = std::env::temp_dir().join(format!("flowgauge-trace-{}", std::process::id()));
        assert!(fs::write(&path, to_pcap_bytes(packets.iter().copied())).is_ok());
        let trace = Trace::read(&path, None, 200);
        assert!(fs::remove_file(&path).is_ok());
        let Ok(trace) = trace else { panic!("the file is there") };
        assert_eq!((trace.packets.len(), trace.key_bytes), (200, 13));
        for (packet, expected) in trace.packets.iter().zip(packets) {
            let expected = Packet::from(expected);
            assert_eq!((packet.ip, packet.wire), (expected.ip, expected.wire));
        }
        assert!(Trace::read(&path, None, 200).is_err());
    }

    #[test]
    fn key_files_are_traces() {
        let path = std::env::temp_dir().join(format!("flowgauge-keys-{}", std::process::id()));
        let keys: Vec<u8> = (0..100_u8).flat_map(|i| [10, 0, 0, i, 10, 1, 1, i]).collect();
        assert!(fs::write(&path, keys).is_ok());
        let trace = Trace::read(&path, Some(8), 90);
        assert!(fs::remove_file(&path).is_ok());
        let Ok(trace) = trace else { panic!("the file is there") };
        assert_eq!(trace.packets.len(), 90);
        assert_eq!(trace.packets[7].ip.addresses, [10, 0, 0, 7, 10, 1, 1, 7]);
        let setting = Setting { packets: 40, trace: Some(trace), ..Setting::quick() };
        let epochs = setting.epochs(Mix::Trace, Scene::Changes);
        assert!(epochs.is_ok_and(|epochs| epochs.len() == 2 && epochs[1][0].ip.addresses[3] == 40));
        assert!(setting.needs(Mix::Trace, 8).is_ok() && setting.needs(Mix::Zipf(1.0), 13).is_ok());
        assert!(setting.needs(Mix::Trace, 13).is_err());
        let long = Setting { packets: 91, ..setting };
        assert!(long.epochs(Mix::Trace, Scene::Plain).is_err());
        assert_eq!(long.sizes(1 << 20), [1 << 20, 4 << 20, 16 << 20, 64 << 20]);
    }
}
