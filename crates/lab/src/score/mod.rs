//! Scores of answers: errors, listed flows, and bounds that held.

mod judge;

use flowgauge_core::key::{CanonicalKey, FlowKey};
use flowgauge_core::packet::Ports;
use flowgauge_core::summary::Estimate;

use crate::exact::{Exact, number};
use crate::traffic::{Keyed, Packet, Scene};

pub(crate) use judge::judge;

/// How many bounds failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Failed ones.
    pub(crate) broken: u64,
    /// All of them.
    pub(crate) asked: u64,
}

/// The score of an algorithm at a task, over several streams.
#[derive(Clone, Debug, Default)]
pub(crate) struct Score {
    /// Streams with an answer.
    pub(crate) answered: u64,
    errors: u64,
    /// Signed errors.
    signed: u64,
    sum: f64,
    squares: f64,
    worst: f64,
    named: u64,
    right: u64,
    wanted: u64,
    /// Bounds that always hold.
    pub(crate) sure: Bounds,
    /// Bounds that hold with a probability.
    pub(crate) likely: Bounds,
    /// The lowest of these probabilities.
    pub(crate) confidence: Option<f64>,
}

impl Score {
    /// Adds the relative error of an estimate.
    fn relative(&mut self, estimate: f64, truth: f64) {
        if truth != 0.0 {
            let error = (estimate - truth) / truth.abs();
            self.signed += 1;
            self.sum += error;
            self.error(error.abs());
        }
    }

    /// Adds an unsigned error.
    fn error(&mut self, error: f64) {
        self.errors += 1;
        self.squares += error * error;
        self.worst = self.worst.max(error);
    }

    /// Adds the number of listed flows, of correctly listed ones, and of those that should be
    /// listed.
    fn names(&mut self, named: usize, right: usize, wanted: usize) {
        self.named += named as u64;
        self.right += right as u64;
        self.wanted += wanted as u64;
    }

    /// Checks an estimate's bounds. Bounds with a probability count only if they are for a given
    /// `flow`. Lists of addresses and prefixes are selected by their estimates and favour
    /// overestimates, so the stated probability does not apply to them.
    fn bound(&mut self, estimate: &Estimate, truth: f64, flow: bool) {
        // Sums of logarithms have rounding errors.
        let rounding = 1e-9 * (1.0 + truth.abs());
        let holds = estimate.low - rounding <= truth && truth <= estimate.high + rounding;
        let bounds = match estimate.confidence {
            None => &mut self.sure,
            Some(_) if !flow => return,
            Some(confidence) => {
                let lowest = self.confidence.map_or(confidence, |lowest| lowest.min(confidence));
                self.confidence = Some(lowest);
                &mut self.likely
            }
        };
        bounds.asked += 1;
        bounds.broken += u64::from(!holds);
    }

    /// The mean error.
    pub(crate) fn bias(&self) -> Option<f64> {
        (self.signed > 0).then(|| self.sum / self.signed as f64)
    }

    /// The root mean square error.
    pub(crate) fn rms(&self) -> Option<f64> {
        (self.errors > 0).then(|| (self.squares / self.errors as f64).sqrt())
    }

    /// The largest error.
    pub(crate) fn worst(&self) -> Option<f64> {
        (self.errors > 0).then_some(self.worst)
    }

    /// The share of listed flows that are correct.
    pub(crate) fn precision(&self) -> Option<f64> {
        (self.named > 0).then(|| self.right as f64 / self.named as f64)
    }

    /// The share of wanted flows that are listed.
    pub(crate) fn recall(&self) -> Option<f64> {
        (self.wanted > 0).then(|| self.right as f64 / self.wanted as f64)
    }
}

/// Number of flows below the threshold queried with `flow-size`, to test their bounds.
const SMALL_FLOWS: usize = 1000;

/// Number of absent flows queried.
const ABSENT_FLOWS: u8 = 100;

/// The ground truth of a stream, for one kind of key.
pub(crate) struct Truth<'a> {
    /// Flows of the last epoch.
    flows: Exact,
    /// Flows of the previous epoch, in a scene of two.
    before: Exact,
    /// Peers of each source, in the scene with superspreaders.
    of_sources: Exact,
    /// Peers of each destination, likewise.
    of_destinations: Exact,
    /// The packets of the last epoch.
    packets: &'a [Packet],
    /// A heavy flow exceeds this.
    threshold: f64,
    key_bytes: usize,
}

impl<'a> Truth<'a> {
    /// Counts the flows of these epochs; `threshold` is a share of the last epoch.
    pub(crate) fn count<K: FlowKey>(
        scene: Scene,
        epochs: &'a [Vec<Packet>],
        keyed: &[Vec<Keyed<K>>],
        threshold: f64,
    ) -> Self {
        let packets = epochs.last().map_or(&[][..], Vec::as_slice);
        let flows = |back: usize| {
            let epoch = keyed.len().checked_sub(back).map_or(&[][..], |at| &keyed[at]);
            Exact::count(
                epoch.iter().map(|packet| number(packet.key.canonical(K::SHORTEST))).collect(),
            )
        };
        let peers = |source| match scene {
            Scene::Spread => peers(packets, source),
            Scene::Plain | Scene::Changes => Exact::default(),
        };
        Self {
            flows: flows(1),
            before: flows(2),
            of_sources: peers(true),
            of_destinations: peers(false),
            packets,
            threshold: threshold * packets.len() as f64,
            key_bytes: K::SHORTEST,
        }
    }

    /// Number of flows.
    pub(crate) fn flows(&self) -> u64 {
        self.flows.len() as u64
    }

    /// Whether a flow of this weight is heavy.
    fn is_heavy(&self, weight: u64) -> bool {
        weight as f64 > self.threshold
    }

    /// The flows to query: all heavy ones, some others from the whole key space, and some absent
    /// ones.
    pub(crate) fn asked(&self) -> Vec<CanonicalKey> {
        let canonical = |key: &[u8]| CanonicalKey::new(&key[..self.key_bytes]);
        let step = self.flows.len().div_ceil(SMALL_FLOWS).max(1);
        let asked = self.flows.iter().enumerate();
        let asked = asked.filter(|(i, (_, weight))| self.is_heavy(*weight) || i % step == 0);
        let asked = asked.map(|(_, (key, _))| canonical(&key.to_be_bytes()));
        // Addresses that begin with 240 are never generated.
        let absent = (0..ABSENT_FLOWS).map(|i| canonical(&[240, 0, i, i].repeat(4)));
        asked.chain(absent).collect()
    }
}

/// The number of distinct endpoints each source sends to, or each destination receives from.
fn peers(packets: &[Packet], source: bool) -> Exact {
    let peer = |packet: &Packet| {
        let (from, to) = packet.ip.addresses.split_at(4);
        let Ports::Found(ports) = packet.ip.ports else { return 0 };
        let [high, low, next_high, next_low] = ports.to_be_bytes();
        let (address, peer, port) =
            if source { (from, to, [next_high, next_low]) } else { (to, from, [high, low]) };
        number(&[address, peer, &port].concat())
    };
    let mut pairs: Vec<u128> = packets.iter().map(peer).collect();
    pairs.sort_unstable();
    pairs.dedup();
    // Keep only the address.
    Exact::count(pairs.into_iter().map(|pair| pair >> 96 << 96).collect())
}
