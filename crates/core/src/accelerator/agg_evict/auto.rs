//! Whether the aggregator pays: trials time the summary alone and behind the aggregator.

use crate::summary::{BuildError, Options, Parameters};

/// Timed blocks of batches, alone and behind. Their median decides, so that one interruption does
/// not.
const BLOCKS: usize = 3;

/// Batches of a block alone, and of one behind, in which evicted sums are passed on several times.
const ALONE: usize = 16;
const BEHIND: usize = 64;

/// Where a trial begins to fill the table, to time batches behind it, and ends: after 94,208
/// packets in full batches.
const FILL: usize = BLOCKS * ALONE;
const TIME: usize = FILL + 128;
const END: usize = TIME + BLOCKS * BEHIND;

/// Filling the table takes less time than using a full one, which evicts. If even that takes this
/// many times as long as the summary alone, in two blocks, the trial ends early. A single block may
/// have been interrupted.
const HOPELESS: f64 = 1.5;

/// In the first trial, the summary's memory is cold and all flows are new, so that the summary alone
/// takes longer than later. The aggregator is chosen if it takes less than this share of that time.
const FIRST: f64 = 0.6;

/// The parameter that turns it on, and its values.
pub(super) const NAME: &str = "auto";
const NO: &str = "no";
pub(super) const YES: &str = "yes";

/// Decides by trials, for a summary and its traffic, whether batches pass through the aggregator.
pub(super) struct Auto {
    behind: bool,
    trial: Option<Trial>,
    /// Whether a second trial began, which confirms the first.
    confirmed: bool,
    /// Samples of this epoch, and about as many as the longest of late had.
    epoch: u32,
    longest: u32,
    watch: Watch,
    /// Batches until the next sample of the watch.
    left: u32,
}

/// A trial under way.
#[derive(Default)]
struct Trial {
    batches: usize,
    /// Of the current block.
    packets: usize,
    ticks: u64,
    /// Ticks a packet, by block.
    alone: [f64; BLOCKS],
    behind: [f64; BLOCKS],
    /// Whether a block that filled the table took [`HOPELESS`] times as long as those alone.
    hopeless: bool,
    /// Packets since [`TIME`], and the occupied pairs of the table then.
    timed: usize,
    occupied: usize,
}

impl Auto {
    /// Memory in bytes.
    pub(super) const BYTES: usize = size_of::<Self>() + SEEN * size_of::<u16>();

    /// [`Self::BYTES`], if the parameters ask for it, or 0.
    ///
    /// # Errors
    /// When the parameter has another value.
    pub(super) fn bytes(parameters: &Parameters) -> Result<usize, BuildError> {
        let asked = parameters.word(NAME, &[NO, YES])? == YES;
        Ok(if asked { Self::BYTES } else { 0 })
    }

    /// With a trial first, if the parameters ask for it.
    ///
    /// # Errors
    /// As [`Self::bytes`], and when the memory does not suffice.
    #[inline(never)]
    pub(super) fn new(options: &Options) -> Result<Option<Box<Self>>, BuildError> {
        let bytes = Self::bytes(&options.parameters)?;
        options.memory.take(bytes)?;
        Ok((bytes > 0).then(|| {
            Box::new(Self {
                behind: true,
                trial: Some(Trial::default()),
                confirmed: false,
                epoch: 0,
                longest: 0,
                watch: Watch { seen: Box::new([0; SEEN]), share: 0.0, before: 0.0, samples: 0 },
                left: EVERY,
            })
        }))
    }

    /// Whether the next batch passes through the aggregator.
    pub(super) fn is_behind(&self) -> bool {
        match &self.trial {
            Some(trial) => trial.batches >= FILL,
            None => self.behind,
        }
    }

    /// Whether the next batch is timed.
    pub(super) fn is_trial(&self) -> bool {
        self.trial.is_some()
    }

    /// Records the time of a batch of a trial. `occupied` counts the occupied pairs of the table.
    #[inline(never)]
    pub(super) fn took(&mut self, packets: usize, ticks: u64, occupied: &dyn Fn() -> usize) {
        let Some(trial) = &mut self.trial else { return };
        let limit = if self.confirmed { 1.0 } else { FIRST };
        if let Some(cost) = trial.took(packets, ticks, occupied) {
            self.behind = cost < limit;
            self.trial = None;
            self.watch.samples = 0;
        }
    }

    /// Whether the next batch only passes by the aggregator: it is neither timed nor a sample.
    #[inline(always)]
    pub(super) fn passes_by(&mut self) -> bool {
        let passes = !self.behind && self.left > 1 && self.trial.is_none();
        self.left -= u32::from(passes);
        passes
    }

    /// Whether the next batch, outside trials, is a sample for [`Self::watch`].
    #[inline(always)]
    pub(super) fn is_sample(&mut self) -> bool {
        self.left -= 1;
        self.left == 0
    }

    /// Records a sample. A trial begins with the next batch if the traffic has changed or the first
    /// trial is not confirmed yet, but only in the second half of an epoch: new flows take longer.
    #[inline(never)]
    pub(super) fn watch(&mut self, digests: &[u64]) {
        self.left = EVERY;
        self.epoch += 1;
        let changed = self.watch.has_changed(digests);
        let is_due = self.watch.samples >= EARLIEST && self.epoch > self.longest / 2;
        if is_due && (changed || !self.confirmed) {
            self.confirmed = true;
            self.trial = Some(Trial::default());
        }
    }

    /// Begins an epoch.
    #[inline(never)]
    pub(super) fn next_epoch(&mut self) {
        self.longest = self.epoch.max(self.longest - self.longest / 8);
        self.epoch = 0;
    }
}

impl Trial {
    /// Adds a batch; returns the time behind over that alone, once both are known.
    fn took(&mut self, packets: usize, ticks: u64, occupied: &dyn Fn() -> usize) -> Option<f64> {
        self.batches += 1;
        self.packets += packets;
        self.ticks += ticks;
        let batches = self.batches;
        if batches <= FILL {
            if batches.is_multiple_of(ALONE) {
                self.alone[batches / ALONE - 1] = self.end_block();
            }
            return None;
        }
        let alone = median(self.alone);
        if batches <= TIME {
            if !batches.is_multiple_of(ALONE) {
                return None;
            }
            if batches == TIME {
                self.occupied = occupied();
            }
            let cost = self.end_block() / alone;
            // The first block loads the table into the caches.
            let is_hopeless = batches > FILL + ALONE && cost > HOPELESS;
            let is_second = self.hopeless && is_hopeless;
            self.hopeless |= is_hopeless;
            return is_second.then_some(cost);
        }
        self.timed += packets;
        if (batches - TIME).is_multiple_of(BEHIND) {
            self.behind[(batches - TIME) / BEHIND - 1] = self.end_block();
        }
        (batches == END).then(|| {
            // Once the table is full, a sum leaves for each pair that was filled here, and costs
            // about as much as a packet alone.
            let filled = occupied().saturating_sub(self.occupied) as f64 / self.timed as f64;
            median(self.behind) / alone + filled
        })
    }

    /// Ends a block; returns its ticks a packet.
    fn end_block(&mut self) -> f64 {
        let cost = self.ticks as f64 / self.packets as f64;
        (self.ticks, self.packets) = (0, 0);
        cost
    }
}

fn median(mut costs: [f64; BLOCKS]) -> f64 {
    costs.sort_unstable_by(f64::total_cmp);
    costs[BLOCKS / 2]
}

/// One batch in this many is a sample of the watch.
const EVERY: u32 = 512;

/// Flows that the watch remembers: the last one in each place.
const SEEN: usize = 4096;

/// The share is a mean over about this many samples.
const MEAN: f64 = 8.0;

/// Samples after a trial until the share is settled, and until the next trial at the earliest:
/// 3.1 and 4.2 million packets in full batches.
const SETTLED: u32 = 24;
const EARLIEST: u32 = 32;

/// Traffic has changed if its share moved by more: eight standard errors, where flows come in random
/// order.
const CHANGED: f64 = 0.1;

/// Watches how often flows come again.
struct Watch {
    /// Tags of flows of earlier samples.
    seen: Box<[u16; SEEN]>,
    /// The share of a sample's packets whose flow is remembered.
    share: f64,
    /// The share soon after the decision.
    before: f64,
    samples: u32,
}

impl Watch {
    /// Adds a sample; returns whether the traffic is other than after the decision.
    fn has_changed(&mut self, digests: &[u64]) -> bool {
        let mut again = 0;
        for digest in digests {
            let tag = (digest >> 48) as u16;
            let seen = &mut self.seen[(digest >> 24) as usize % SEEN];
            again += u32::from(*seen == tag);
            *seen = tag;
        }
        let share = f64::from(again) / digests.len().max(1) as f64;
        self.share += (share - self.share) / MEAN;
        self.samples = self.samples.saturating_add(1);
        if self.samples == SETTLED {
            self.before = self.share;
        }
        (self.share - self.before).abs() > CHANGED
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn auto() -> Auto {
        *Auto::new(&Options::new(1 << 20, 1).with([(NAME, YES)])).unwrap().unwrap()
    }

    /// Runs the trial with these ticks a batch, by number, and returns its batches.
    fn run(auto: &mut Auto, ticks: impl Fn(bool, usize) -> u64) -> usize {
        let mut batches = 0;
        while auto.is_trial() {
            auto.took(256, ticks(auto.is_behind(), batches), &|| 1000);
            batches += 1;
        }
        batches
    }

    /// A trial that is due early in an epoch waits for its second half.
    #[test]
    fn trials_are_in_the_second_half_of_an_epoch() {
        let mut auto = auto();
        run(&mut auto, |_, _| 1000);
        let sample = |auto: &mut Auto| {
            while !auto.is_sample() {}
            auto.watch(&[1; 256]);
            auto.is_trial()
        };
        for _ in 0..2 {
            assert!((1..EARLIEST).all(|_| !sample(&mut auto)));
            auto.next_epoch();
            auto.watch.samples = 0;
        }
        auto.watch.samples = EARLIEST;
        assert_eq!((1..100).find(|_| sample(&mut auto)), Some((EARLIEST - 1) / 2 + 1));
    }

    /// What fills the table without evicting anything will evict as much once the table is full.
    #[test]
    fn filled_pairs_count_as_sums() {
        for (share, chosen) in [(0.4, true), (0.6, false)] {
            let (mut auto, packets) = (Auto { confirmed: true, ..auto() }, Cell::new(0));
            while auto.is_trial() {
                packets.set(packets.get() + 256);
                let occupied = || (f64::from(packets.get()) * share) as usize;
                auto.took(256, if auto.is_behind() { 500 } else { 1000 }, &occupied);
            }
            assert_eq!(auto.is_behind(), chosen, "{share}");
        }
    }

    /// Digests of a batch of random packets of this many flows.
    fn digests(random: &mut fastrand::Rng, flows: u64) -> Vec<u64> {
        (0..256).map(|_| random.u64(..flows).wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect()
    }

    #[test]
    fn the_faster_way_is_chosen() {
        for (alone, behind, confirmed, chosen) in [
            (1000, 550, false, true),
            (1000, 650, false, false),
            (1000, 950, true, true),
            (1000, 1050, true, false),
        ] {
            let mut auto = Auto { confirmed, ..auto() };
            assert_eq!(run(&mut auto, |is_behind, _| if is_behind { behind } else { alone }), 368);
            assert_eq!(auto.is_behind(), chosen);
        }
    }

    /// Neither an interruption (alone, while the table is filled, or behind it) nor the time of
    /// filling decides anything.
    #[test]
    fn medians_decide() {
        let interrupted = |is_behind: bool, batch| match (is_behind, batch) {
            (_, 3 | 70 | 200) => 1_000_000,
            (true, 48..176) => 1400,
            (true, _) => 500,
            (false, _) => 1000,
        };
        let mut auto = auto();
        assert_eq!((run(&mut auto, interrupted), auto.is_behind()), (368, true));
    }

    #[test]
    fn a_hopeless_trial_ends_early() {
        let mut auto = auto();
        assert_eq!(run(&mut auto, |is_behind, _| if is_behind { 1600 } else { 1000 }), 96);
        assert!(!auto.is_behind());
    }

    /// Steady traffic is not tried again; other traffic is, once the watch has seen enough.
    #[test]
    fn another_trial_begins_when_the_traffic_changes() {
        let mut random = fastrand::Rng::with_seed(1);
        for (before, after) in [(1000, 100_000), (100_000, 1000)] {
            let mut auto = auto();
            run(&mut auto, |_, _| 1000);
            let mut samples = |auto: &mut Auto, flows, most| {
                let trial = (1..=most).find(|_| {
                    while !auto.is_sample() {}
                    auto.watch(&digests(&mut random, flows));
                    auto.is_trial()
                });
                trial.unwrap_or(0)
            };
            assert_eq!(samples(&mut auto, before, 40), EARLIEST, "the first trial is confirmed");
            run(&mut auto, |_, _| 1000);
            assert_eq!(samples(&mut auto, before, 1000), 0, "{before}");
            let changed = samples(&mut auto, after, 100);
            assert!((1..16).contains(&changed), "{before} to {after}: {changed}");
        }
    }

    #[test]
    fn it_is_off_by_default() {
        let options = Options::new(1 << 20, 1);
        assert!(Auto::new(&options).unwrap().is_none());
        assert!(Auto::new(&options.with([(NAME, "maybe")])).is_err());
    }
}
