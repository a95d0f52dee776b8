//! The packets that everything takes, in memory.

use std::collections::HashSet;

use flowgauge_capture::synthetic::{Config, Profile, Traffic};
use flowgauge_core::key::{FlowKey, Key8};
use flowgauge_kernel::Digester;

use crate::failure::Failure;

/// Packets before those that are measured: with them the run has a million flows.
const BEFORE: usize = 26_000_000;

/// Flows that are all alike: a table of them is far larger than the caches.
const ALIKE: u64 = 1 << 22;

/// All packets that there are.
pub(super) struct Streams {
    /// Pairs of addresses in the order of a backbone link.
    pub(super) backbone: Stream,
    /// Each packet of one of `ALIKE` flows, whichever.
    pub(super) scattered: Stream,
}

/// Packets, and the flows before them.
pub(super) struct Stream {
    /// Every flow of the run before `keys`, in the order in which they began.
    pub(super) earlier: Vec<Key8>,
    /// A key a packet.
    pub(super) keys: Vec<Key8>,
    /// The digest of what follows the source in the five-tuple, a packet.
    pub(super) elements: Vec<u64>,
}

impl Streams {
    pub(super) fn draw(packets: usize, digester: &Digester) -> Result<Self, Failure> {
        let backbone = Stream::backbone(packets, digester)?;
        // As many, though some packet of the backbone may have no addresses.
        let scattered = Stream::scattered(backbone.keys.len());
        Ok(Self { backbone, scattered })
    }

    /// What they are, in a line.
    pub(super) fn describe(&self, rounds: u64) -> String {
        format!(
            "{}; where scattered, as many packets of {ALIKE} flows that are all alike, a packet of \
             each before them; {rounds} rounds",
            self.backbone.describe()
        )
    }
}

impl Stream {
    fn scattered(packets: usize) -> Self {
        let mut random = fastrand::Rng::with_seed(1);
        let key = |flow: u64| Key8::from_canonical(&(flow + 1).to_be_bytes());
        Self {
            earlier: (0..ALIKE).filter_map(key).collect(),
            keys: (0..packets).filter_map(|_| key(random.u64(0..ALIKE))).collect(),
            elements: Vec::new(),
        }
    }

    fn backbone(packets: usize, digester: &Digester) -> Result<Self, Failure> {
        let traffic = Traffic::new(Config {
            profile: Profile::Backbone { flows: None },
            packets: (BEFORE + packets) as u64,
            ..Config::default()
        })?;
        let mut stream = Self { earlier: Vec::new(), keys: Vec::new(), elements: Vec::new() };
        let mut seen = HashSet::new();
        for (number, packet) in traffic.enumerate() {
            let tuple = packet.key.as_bytes();
            let word = |start: usize| Key8::from_canonical(&tuple[start..start + 8]);
            let (Some(key), Some(peer)) = (word(0), word(4)) else { continue };
            if number >= BEFORE {
                stream.keys.push(key);
                stream.elements.push(peer.digest(digester));
            } else if seen.insert(Key8::words(&[key])[0]) {
                stream.earlier.push(key);
            }
        }
        Ok(stream)
    }

    /// What it is, in a line.
    fn describe(&self) -> String {
        let flows: HashSet<u64> = Key8::words(&self.keys).iter().copied().collect();
        format!(
            "{} packets of {} flows (pairs of addresses, profile backbone), {} flows before them \
             where crowded",
            self.keys.len(),
            flows.len(),
            self.earlier.len(),
        )
    }
}
