//! The packets of all speed measurements, in memory.

use std::collections::HashSet;
use std::iter;

use flowgauge_core::batch::{BATCH_PACKETS, Batch};
use flowgauge_core::key::{FlowKey, Key8};
use flowgauge_kernel::Digester;
use flowgauge_synthetic::{Config, Profile, Traffic};

use super::contestant::FRAME_BYTES;
use crate::failure::Failure;

/// Packets before the measured ones: they bring the run to a million flows.
const BEFORE: usize = 26_000_000;

/// Prefilled batches that are processed repeatedly.
const GIVEN: usize = 256;

/// Number of flows in traffic by Zipf's law.
const FLOWS: u64 = 1_000_000;

/// Number of flows of a backbone link in 30 million packets: it has 976,000 in 28.8 million. Left to
/// itself, the profile has 6 % fewer.
const LINK: u64 = 1_016_000;

/// Number of flows in uniform traffic: a table of them is much larger than the caches.
const ALIKE: u64 = 1 << 22;

/// A kind of traffic.
#[derive(Debug)]
pub(crate) struct Order {
    /// Its name on the command line.
    pub(crate) name: &'static str,
    profile: Profile,
}

/// Every kind; targets apply to the first.
pub(crate) static ORDERS: [Order; 5] = [
    Order { name: "backbone", profile: Profile::Backbone { flows: Some(LINK) } },
    zipf("zipf-1.5", 1.5),
    zipf("zipf-1.1", 1.1),
    zipf("zipf-0.75", 0.75),
    zipf("uniform", 0.0),
];

const fn zipf(name: &'static str, skew: f64) -> Order {
    Order { name, profile: Profile::Zipf { flows: FLOWS, skew } }
}

/// All streams.
pub(super) struct Streams {
    /// Pairs of addresses in the order in which a link carries them.
    pub(super) ordered: Stream,
    /// Each packet of a random one of `ALIKE` flows.
    pub(super) scattered: Stream,
}

/// Packets, and the flows before them.
pub(super) struct Stream {
    order: &'static Order,
    /// Every flow of the run before `keys`, in the order in which they started.
    pub(super) earlier: Vec<Key8>,
    /// One key per packet.
    pub(super) keys: Vec<Key8>,
    /// Per packet, the digest of what follows the source in the five-tuple.
    pub(super) elements: Vec<u64>,
    /// The first keys in batches, for structures that read few of them.
    pub(super) batches: Vec<Batch<Key8>>,
}

impl Streams {
    pub(super) fn draw(
        order: &'static Order,
        packets: usize,
        digester: &Digester,
    ) -> Result<Self, Failure> {
        let ordered = Stream::draw(order, packets, digester)?;
        // The same number, although some packets may lack addresses.
        let scattered = Stream::scattered(order, ordered.keys.len());
        Ok(Self { ordered, scattered })
    }

    /// A description in one line.
    pub(super) fn describe(&self, rounds: u64) -> String {
        format!(
            "{}; where scattered, as many packets of {ALIKE} flows that are all alike, a packet of \
             each before them; behind skipper and nitro the first {} of the packets again and again, a \
             billion in all, in batches that are filled; {rounds} rounds",
            self.ordered.describe(),
            GIVEN * BATCH_PACKETS
        )
    }
}

impl Stream {
    fn scattered(order: &'static Order, packets: usize) -> Self {
        let mut random = fastrand::Rng::with_seed(1);
        let key = |flow: u64| Key8::from_canonical(&(flow + 1).to_be_bytes());
        Self {
            order,
            earlier: (0..ALIKE).filter_map(key).collect(),
            keys: (0..packets).filter_map(|_| key(random.u64(0..ALIKE))).collect(),
            elements: Vec::new(),
            batches: Vec::new(),
        }
    }

    pub(super) fn draw(
        order: &'static Order,
        packets: usize,
        digester: &Digester,
    ) -> Result<Self, Failure> {
        let traffic = Traffic::new(Config {
            profile: order.profile,
            packets: (BEFORE + packets) as u64,
            ..Config::default()
        })?;
        let (mut earlier, mut keys, mut elements) = (Vec::new(), Vec::new(), Vec::new());
        let mut seen = HashSet::new();
        for (number, packet) in traffic.enumerate() {
            let tuple = packet.key.as_bytes();
            let word = |start: usize| Key8::from_canonical(&tuple[start..start + 8]);
            let (Some(key), Some(peer)) = (word(0), word(4)) else { continue };
            if number >= BEFORE {
                keys.push(key);
                elements.push(peer.digest(digester));
            } else if seen.insert(bytemuck::cast::<_, u64>(key)) {
                earlier.push(key);
            }
        }
        let filled = |keys: &[Key8]| {
            let mut batch = Batch::new();
            batch.fill(keys, FRAME_BYTES);
            batch
        };
        let batches = keys.chunks_exact(BATCH_PACKETS).take(GIVEN).map(filled).collect();
        Ok(Self { order, earlier, keys, elements, batches })
    }

    /// The name of the traffic.
    pub(super) fn name(&self) -> &'static str {
        self.order.name
    }

    /// Each packet repeated `packets` times in a row, with no more packets in all than before.
    pub(super) fn in_runs_of(&self, packets: usize) -> Self {
        fn repeated<T: Copy>(all: &[T], packets: usize) -> Vec<T> {
            let each = all.iter().flat_map(|one| iter::repeat_n(*one, packets));
            each.take(all.len()).collect()
        }
        let (keys, elements) = (repeated(&self.keys, packets), repeated(&self.elements, packets));
        Self { order: self.order, earlier: Vec::new(), keys, elements, batches: Vec::new() }
    }

    /// A description in one line.
    fn describe(&self) -> String {
        let flows: HashSet<_> = Key8::words(&self.keys).iter().collect();
        format!(
            "{} packets of {} flows (pairs of addresses, profile {}), {} flows before them where \
             crowded",
            self.keys.len(),
            flows.len(),
            self.order.name,
            self.earlier.len(),
        )
    }
}
