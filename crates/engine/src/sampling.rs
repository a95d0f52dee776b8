//! Sampling before headers: which packets of an epoch are read, and what those stand for.

use std::collections::VecDeque;

use flowgauge_core::accelerator::{HeaderRate, HeaderSampler, is_before_headers};
use flowgauge_core::summary::{Estimate, Sampling as Error};
use flowgauge_core::terms::Size;
use flowgauge_kernel::{Seed, SeedId};

use crate::account::Account;
use crate::config::{Config, EpochLength};
use crate::error::EngineError;
use crate::source::Thinned;

/// Packets that arrived together and were not read yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrivals {
    /// How many: 64 at most.
    pub packets: u32,
    /// Their bytes on the wire.
    pub bytes: u64,
    /// When they arrived, in nanoseconds since the UNIX epoch.
    pub time_ns: i64,
}

impl Arrivals {
    /// Packets of a burst at most.
    pub const MOST: u32 = u64::BITS;

    /// A bit for each packet.
    ///
    /// # Panics
    /// When there are more than [`Self::MOST`].
    pub(crate) fn all(&self) -> u64 {
        assert!(self.packets <= Self::MOST, "a burst has at most 64 packets");
        match self.packets {
            0 => 0,
            packets => u64::MAX >> (Self::MOST - packets),
        }
    }
}

/// The keyed traffic of an epoch of which a sample was read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Traffic {
    /// Packets that those with a key stand for.
    pub(crate) packets: f64,
    /// Packets that one stands for at most.
    pub(crate) weight: f64,
    /// Chance that the traffic is not within its bounds.
    pub(crate) delta: f64,
    /// Bytes of the longest packet, where the sample was drawn before packets came here.
    pub(crate) elsewhere: Option<u32>,
}

/// Chance that a bound of packets that were sampled elsewhere does not hold.
const DELTA: f64 = 0.01;

impl Traffic {
    /// Nothing yet of what is read at this rate.
    pub(crate) fn none(rate: HeaderRate) -> Self {
        Self { packets: 0.0, weight: 1.0, delta: rate.delta(), elsewhere: None }
    }

    /// The same where packets were sampled before they came here, of which a sample was drawn again where
    /// there is one.
    pub(crate) fn thinned(again: Option<Self>, thinned: Thinned) -> Self {
        let one_in = thinned.one_in as f64;
        match again {
            Some(again) => Self { weight: again.weight * one_in, ..again },
            None => Self {
                packets: 0.0,
                weight: one_in,
                delta: DELTA,
                elsewhere: Some(thinned.longest),
            },
        }
    }

    /// Packets that one that was read stands for at most.
    pub(crate) fn one_in(self) -> u64 {
        self.weight.round() as u64
    }

    /// Two samples that were drawn independently, where there are two.
    pub(crate) fn both(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        match (one, other) {
            (Some(one), Some(other)) => Some(one.and(other)),
            (one, other) => one.or(other),
        }
    }

    /// This sample and one that was drawn independently of it.
    fn and(self, other: Self) -> Self {
        Self {
            packets: self.packets + other.packets,
            weight: self.weight.max(other.weight),
            delta: self.delta.max(other.delta),
            elsewhere: self.elsewhere.max(other.elsewhere),
        }
    }

    /// The keyed traffic of an account, of which this sample was read, where there is one: what thresholds
    /// and shares are of.
    pub(crate) fn keyed(sample: Option<Self>, account: &Account) -> Size {
        let packets = sample.map_or(account.keyed, |it| it.estimate(account).value.round() as u64);
        Size { packets, bytes: account.keyed_bytes }
    }

    /// The keyed packets of all that arrived. Chernoff's bounds hold for a sum of independent draws, as
    /// for the flows of a sample.
    pub fn estimate(&self, account: &Account) -> Estimate {
        let (keyed, skipped) = (account.keyed as f64, account.skipped.packets as f64);
        let unit = 2.0 * self.weight * (2.0 / self.delta).ln();
        let confidence = 1.0 - self.delta;
        if self.elsewhere.is_some() {
            let error = Error { unit, confidence }.error(keyed);
            return Estimate {
                value: keyed,
                low: (keyed - error).max(keyed / self.weight),
                high: keyed + error,
                confidence: Some(confidence),
            };
        }
        if skipped == 0.0 {
            return Estimate::exact(account.keyed);
        }
        let error = Error { unit, confidence }.error(self.packets);
        let possible = |packets: f64| packets.clamp(keyed, keyed + skipped);
        Estimate {
            value: possible(self.packets),
            low: possible(self.packets - error),
            high: possible(self.packets + error),
            confidence: Some(confidence),
        }
    }
}

/// Refuses what a sampler before the headers cannot do.
///
/// # Errors
/// With what it can do.
pub(crate) fn check(config: &Config) -> Result<(), EngineError> {
    let by_packets = |length| matches!(length, EpochLength::Packets(_));
    let refuse = |reason: &str| Err(EngineError::Sampling(reason.to_owned()));
    if !is_before_headers(&config.accelerators) {
        return Ok(());
    }
    if config.audit.is_some() {
        return refuse("skips packets of the flows to audit: leave out --audit");
    }
    if by_packets(config.epoch) {
        return refuse(
            "does not count keyed packets, so it cannot end epochs by packets: use an epoch by time",
        );
    }
    if by_packets(config.updates) {
        return refuse(
            "does not count keyed packets, so it cannot update by packets: use updates by time",
        );
    }
    if config.limit.is_some() && config.filter.is_some() {
        return refuse("does not count packets that pass the filter: leave out -c");
    }
    Ok(())
}

/// The seed of a queue's draws: that of the samplers, apart for each measurement, each queue and, where
/// hosts share a seed file, each host.
fn apart(seed: &Seed, measurement: &str, queue: usize) -> u64 {
    let host = match seed.id() {
        SeedId::File(_) => rustix::system::uname().nodename().to_bytes().to_vec(),
        _ => Vec::new(),
    };
    // FNV-1a, of parts that begin with their lengths.
    let parts = [&host[..], measurement.as_bytes(), &queue.to_le_bytes()];
    let bytes = parts
        .iter()
        .flat_map(|part| part.len().to_le_bytes().into_iter().chain(part.iter().copied()));
    let apart = bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    seed.draws() ^ apart
}

/// The sampling of one queue.
pub(crate) struct Sampling {
    sampler: HeaderSampler,
    /// What was read of the open epoch.
    traffic: Traffic,
    /// Keyed packets that are in it, and what each of those that follow stands for.
    counted: u64,
    weight: f64,
    /// The chance and the weight of packets that were wanted and are yet to come.
    owed: VecDeque<(f64, u64)>,
}

impl Sampling {
    /// The sampling of a queue of a measurement.
    pub(crate) fn new(rate: HeaderRate, seed: &Seed, measurement: &str, queue: usize) -> Self {
        let (counted, weight, owed) = (0, 1.0, VecDeque::with_capacity(Arrivals::MOST as usize));
        let sampler = HeaderSampler::new(rate, apart(seed, measurement, queue));
        Self { sampler, traffic: Traffic::none(rate), counted, weight, owed }
    }

    /// Forgets the packets of an epoch.
    pub(crate) fn forget(&mut self) {
        self.traffic = Traffic::none(self.sampler.rate());
        self.counted = 0;
    }

    /// Draws anew for the epoch of this number.
    pub(crate) fn begin(&mut self, epoch: i64) {
        self.sampler.begin(epoch);
    }

    /// Packets before the next one that is wanted.
    #[inline(always)]
    pub(crate) fn ahead(&self) -> u64 {
        self.sampler.ahead()
    }

    /// The gaps between the next wanted packets, in packets.
    pub(crate) fn gaps(&self) -> &[u64] {
        self.sampler.gaps()
    }

    /// Passes over all of `packets`, unless one of them is wanted; whether it did.
    #[inline(always)]
    pub(crate) fn pass(&mut self, packets: u64) -> bool {
        self.sampler.pass(packets)
    }

    /// How many of the next `most` packets are surely alike, and whether they are wanted.
    pub(crate) fn next(&self, most: usize) -> (usize, bool) {
        let (ahead, run) = (self.sampler.ahead(), self.sampler.run());
        let alike = usize::try_from(ahead.max(run)).map_or(most, |alike| alike.min(most));
        (alike, ahead == 0)
    }

    /// Goes on behind so many packets that were wanted and read.
    pub(crate) fn took(&mut self, packets: usize) {
        for _ in 0..packets {
            self.sampler.take();
        }
    }

    /// Wants the next packet, which is to come.
    pub(crate) fn owe(&mut self) {
        self.owed.push_back((self.sampler.chance(), self.sampler.weight()));
        self.sampler.take();
    }

    /// Packets that were wanted and are yet to come, as far as they stand for the same.
    #[inline(always)]
    pub(crate) fn owed(&self) -> usize {
        match self.owed.front() {
            None => 0,
            Some(first) => self.owed.iter().take_while(|owed| *owed == first).count(),
        }
    }

    /// So many of these came.
    pub(crate) fn came(&mut self, packets: usize) {
        self.owed.drain(..packets);
    }

    /// Gives up those that did not come; returns how many.
    pub(crate) fn give_up(&mut self) -> u64 {
        let given_up = self.owed.len() as u64;
        self.owed.clear();
        given_up
    }

    /// What the next packet that is read stands for: in all, and in the summary.
    pub(crate) fn next_weight(&self) -> (f64, u64) {
        let now = (self.sampler.chance(), self.sampler.weight());
        let (chance, weight) = self.owed.front().copied().unwrap_or(now);
        (1.0 / chance, weight)
    }

    /// Whether the packets read last stand for so many each.
    pub(crate) fn stands_for(&self, packets: f64) -> bool {
        self.weight.to_bits() == packets.to_bits()
    }

    /// Counts all keyed packets of the epoch so far; those that follow stand for so many each.
    pub(crate) fn count(&mut self, keyed: u64, then: f64) {
        self.traffic.packets += (keyed - self.counted) as f64 * self.weight;
        (self.counted, self.weight) = (keyed, then);
    }

    /// What was read of the epoch, up to `keyed` keyed packets.
    pub(crate) fn so_far(&mut self, keyed: u64) -> Traffic {
        self.count(keyed, self.weight);
        // The chance falls as packets come: the next one has the largest weight there was.
        self.traffic.weight = self.traffic.weight.max(1.0 / self.sampler.chance());
        self.traffic
    }
}
