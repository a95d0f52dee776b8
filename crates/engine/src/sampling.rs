//! Sampling before headers: which packets of an epoch are read, and how many packets each of them
//! represents.

use std::collections::VecDeque;

use flowgauge_core::accelerator::{HeaderRate, HeaderSampler, is_before_headers};
use flowgauge_core::summary::{Estimate, Sampling as Error};
use flowgauge_core::terms::Size;
use flowgauge_kernel::Seed;

use crate::account::Account;
use crate::config::{Config, EpochLength};
use crate::error::EngineError;
use crate::source::Thinned;

/// Packets that arrived together and have not been read yet.
///
/// ```
/// use flowgauge_engine::{Arrivals, Config, Plan};
///
/// let plan = Plan::new(Config { memory_bytes: 1 << 20, ..Config::default() })?;
/// let (mut meters, _group) = plan.build()?;
/// // Without a sampler before headers, the meter wants every packet.
/// let wanted = meters[0].want(&Arrivals { packets: 3, bytes: 192, time_ns: 0 });
/// assert_eq!(wanted, 0b111);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrivals {
    /// Number of packets, at most 64.
    pub packets: u32,
    /// Their bytes on the wire.
    pub bytes: u64,
    /// When they arrived, in nanoseconds since the UNIX epoch.
    pub time_ns: i64,
}

impl Arrivals {
    /// Most packets of a burst.
    pub const MOST: u32 = u64::BITS;

    /// A mask with a bit for each packet.
    ///
    /// # Panics
    /// When there are more than [`Self::MOST`].
    pub(crate) fn all(&self) -> u64 {
        match self.packets() {
            0 => 0,
            packets => u64::MAX >> (u64::from(Self::MOST) - packets),
        }
    }

    /// The number of packets.
    ///
    /// # Panics
    /// When it is above [`Self::MOST`].
    #[inline(always)]
    pub(crate) fn packets(&self) -> u64 {
        assert!(self.packets <= Self::MOST, "a burst has at most 64 packets");
        self.packets.into()
    }
}

/// The keyed traffic of an epoch of which a sample was read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Traffic {
    /// Packets represented by those with a key.
    pub(crate) packets: f64,
    /// Most packets that one packet represents.
    pub(crate) weight: f64,
    /// Probability that the traffic is not within its bounds.
    pub(crate) delta: f64,
    /// Bytes of the longest packet, if the source delivered a sample.
    pub(crate) elsewhere: Option<u32>,
}

/// Probability that a bound does not hold for packets that the source sampled.
const DELTA: f64 = 0.01;

impl Traffic {
    /// No traffic yet, read at this rate.
    pub(crate) fn none(rate: HeaderRate) -> Self {
        Self { packets: 0.0, weight: 1.0, delta: rate.delta(), elsewhere: None }
    }

    /// The traffic of packets that the source sampled. `again` is the sample that was drawn from
    /// these, if any.
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

    /// Most packets that a packet that was read represents, as a whole number.
    pub(crate) fn one_in(self) -> u64 {
        self.weight.round() as u64
    }

    /// The sum of two independent samples, or the only one.
    pub(crate) fn both(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        match (one, other) {
            (Some(one), Some(other)) => Some(one.and(other)),
            (one, other) => one.or(other),
        }
    }

    /// The sum of this sample and an independent one.
    fn and(self, other: Self) -> Self {
        Self {
            packets: self.packets + other.packets,
            weight: self.weight.max(other.weight),
            delta: self.delta.max(other.delta),
            elsewhere: self.elsewhere.max(other.elsewhere),
        }
    }

    /// The keyed traffic of an account, estimated if `sample` was read of it. Thresholds and shares
    /// refer to it.
    pub(crate) fn keyed(sample: Option<Self>, account: &Account) -> Size {
        let packets = sample.map_or(account.keyed, |it| it.estimate(account).value.round() as u64);
        Size { packets, bytes: account.keyed_bytes }
    }

    /// Estimates the keyed packets among all that arrived. Chernoff's bounds hold for a sum of
    /// independent draws, as for the flows of a sample.
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

/// Refuses what does not work with a sampler before headers.
///
/// # Errors
/// With what to use or leave out instead.
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

/// The seed of a queue's draws: the seed of samplers, varied by measurement and queue.
fn apart(seed: &Seed, measurement: &str, queue: usize) -> u64 {
    // FNV-1a over parts with their lengths in front. The empty one keeps the draws of earlier versions.
    let parts = [&[][..], measurement.as_bytes(), &queue.to_le_bytes()];
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
    /// The traffic read of the open epoch.
    traffic: Traffic,
    /// Keyed packets included in it, and the probability with which each following one was read.
    counted: u64,
    chance: f64,
    /// The wanted packets that have not come yet: the first run, and those after it. Only the first
    /// may be empty, and only if it is the last.
    owed: Run,
    later: VecDeque<Run>,
}

/// Wanted packets in a row with the same probability and weight.
struct Run {
    odds: (f64, u64),
    packets: usize,
}

impl Sampling {
    /// The sampling of a queue of a measurement.
    pub(crate) fn new(rate: HeaderRate, seed: &Seed, measurement: &str, queue: usize) -> Self {
        let sampler = HeaderSampler::new(rate, apart(seed, measurement, queue));
        let owed = Run { odds: (1.0, 1), packets: 0 };
        let later = VecDeque::with_capacity(Arrivals::MOST as usize);
        Self { sampler, traffic: Traffic::none(rate), counted: 0, chance: 1.0, owed, later }
    }

    /// Forgets the traffic of an epoch.
    pub(crate) fn forget(&mut self) {
        self.traffic = Traffic::none(self.sampler.rate());
        self.counted = 0;
    }

    /// Restarts the draws for the epoch with this number.
    pub(crate) fn begin(&mut self, epoch: i64) {
        self.sampler.begin(epoch);
    }

    /// Number of packets before the next wanted one.
    #[inline(always)]
    pub(crate) fn ahead(&self) -> u64 {
        self.sampler.ahead()
    }

    /// The gaps between the next wanted packets, in packets.
    pub(crate) fn gaps(&self) -> &[u64] {
        self.sampler.gaps()
    }

    /// Passes over `packets` packets unless one of them is wanted; returns whether it did.
    #[inline(always)]
    pub(crate) fn pass(&mut self, packets: u64) -> bool {
        self.sampler.pass(packets)
    }

    /// Passes over the packets before the next wanted one, and continues after that one.
    #[inline(always)]
    pub(crate) fn pick(&mut self) {
        self.sampler.pass(self.sampler.ahead());
        self.sampler.take();
    }

    /// The length of a run of packets, at most `most`, that are all wanted or all unwanted, and
    /// which.
    pub(crate) fn next(&self, most: usize) -> (usize, bool) {
        let (ahead, run) = (self.sampler.ahead(), self.sampler.run());
        let alike = usize::try_from(ahead.max(run)).map_or(most, |alike| alike.min(most));
        (alike, ahead == 0)
    }

    /// Continues after this many packets that were wanted and read.
    pub(crate) fn took(&mut self, packets: usize) {
        for _ in 0..packets {
            self.sampler.take();
        }
    }

    /// Notes that the next packet is wanted and will come.
    #[inline(never)]
    pub(crate) fn owe(&mut self) {
        let odds = self.drawn_odds();
        let last = self.later.back_mut().unwrap_or(&mut self.owed);
        match last {
            Run { odds: same, packets } if *same == odds => *packets += 1,
            Run { packets: 0, .. } => *last = Run { odds, packets: 1 },
            _ => self.later.push_back(Run { odds, packets: 1 }),
        }
        self.sampler.take();
    }

    /// Number of wanted packets that will come next and represent equally many packets.
    #[inline(always)]
    pub(crate) fn owed(&self) -> usize {
        self.owed.packets
    }

    /// Whether these many wanted packets will come next, and each represents as many packets as the
    /// latest ones.
    #[inline(always)]
    pub(crate) fn awaits(&self, packets: usize) -> bool {
        self.owed() == packets && self.is_latest(self.next_odds().0)
    }

    /// Notes that this many of them came.
    #[inline(always)]
    pub(crate) fn came(&mut self, packets: usize) {
        self.owed.packets -= packets;
        if self.owed.packets == 0
            && let Some(next) = self.later.pop_front()
        {
            self.owed = next;
        }
    }

    /// Gives up the wanted packets that did not come; returns their number.
    #[inline(always)]
    pub(crate) fn give_up(&mut self) -> u64 {
        let mut given_up = 0;
        while self.owed() > 0 {
            given_up += self.owed() as u64;
            self.came(self.owed());
        }
        given_up
    }

    /// The probability and the weight of the next packet to draw.
    #[inline(always)]
    fn drawn_odds(&self) -> (f64, u64) {
        (self.sampler.chance(), self.sampler.weight())
    }

    /// The probability with which the next packet is read, and its weight in the summary.
    #[inline(always)]
    pub(crate) fn next_odds(&self) -> (f64, u64) {
        if self.owed() > 0 { self.owed.odds } else { self.drawn_odds() }
    }

    /// Whether the latest packets were read with this probability.
    pub(crate) fn is_latest(&self, chance: f64) -> bool {
        self.chance.to_bits() == chance.to_bits()
    }

    /// Adds the keyed packets since the last call to the traffic. The following ones are read with
    /// the probability `then`.
    pub(crate) fn count(&mut self, keyed: u64, then: f64) {
        self.traffic.packets += (keyed - self.counted) as f64 * (1.0 / self.chance);
        (self.counted, self.chance) = (keyed, then);
    }

    /// The traffic read of the epoch, up to `keyed` keyed packets.
    pub(crate) fn so_far(&mut self, keyed: u64) -> Traffic {
        self.count(keyed, self.chance);
        // The probability falls as packets come, so the next packet has the largest weight so far.
        self.traffic.weight = self.traffic.weight.max(1.0 / self.sampler.chance());
        self.traffic
    }
}
