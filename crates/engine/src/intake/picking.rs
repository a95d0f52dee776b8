//! The intake's part in sampling before headers: which packets are read.

use flowgauge_core::batcher::Batcher;
use flowgauge_core::packet::Frame;
use flowgauge_core::terms::Size;
use flowgauge_kernel::Gone;

use super::{Crew, Intake, PacketSlice};
use crate::sampling::{Arrivals, Sampling};
use crate::source::{Ahead, Skipped};

/// Sets the weight of the next packet that is read.
#[inline(always)]
fn weigh(sampling: &mut Sampling, batcher: &mut Batcher, crew: &mut dyn Crew) {
    let (chance, weight) = sampling.next_odds();
    if !sampling.is_latest(chance) {
        batcher.flush(crew);
        sampling.count(batcher.counts().keyed.packets, chance);
        batcher.weigh(u32::try_from(weight).unwrap_or(u32::MAX), crew);
    }
}

impl Intake {
    /// The length of a run of packets, at most `most`, that are all read or all skipped, and which.
    #[inline(always)]
    pub(super) fn next(&self, most: usize) -> (usize, bool) {
        match &self.sampling {
            None => (most, true),
            Some(sampling) => sampling.next(most),
        }
    }

    /// Tells the sampling that wanted packets were read.
    #[inline(always)]
    pub(super) fn took(&mut self, packets: usize) {
        if let Some(sampling) = &mut self.sampling {
            sampling.took(packets);
        }
    }

    /// Sets the weight of the next packet that is read.
    #[inline(always)]
    pub(super) fn weigh(&mut self, crew: &mut dyn Crew) {
        if let Some(sampling) = &mut self.sampling {
            weigh(sampling, &mut self.batcher, crew);
        }
    }

    /// Skips packets, the first of which is ordinary; returns the number of them in the open epoch.
    pub(super) fn pass_over(&mut self, packets: impl PacketSlice) -> usize {
        let most = usize::try_from(self.left).map_or(packets.len(), |left| left.min(packets.len()));
        let passed = 1 + packets.part(0..most).run(&mut self.clock);
        self.earliest_ns = self.earliest_ns.min(packets.time_ns(0));
        self.latest_ns = self.latest_ns.max(packets.time_ns(passed - 1));
        if let Some(sampling) = &mut self.sampling {
            sampling.pass(passed as u64);
        }
        let bytes = packets.part(0..passed).wire_bytes();
        self.count_skipped(Size { packets: passed as u64, bytes });
        passed
    }

    fn count_skipped(&mut self, size: Size) {
        self.account.read += size.packets;
        self.account.skipped += size;
        self.left -= size.packets;
    }

    /// Number of wanted packets that will come next and represent equally many packets.
    #[inline(always)]
    pub(super) fn owed(&self) -> usize {
        self.sampling.as_ref().map_or(0, Sampling::owed)
    }

    /// Counts wanted packets that came. Until now their bytes were counted as skipped.
    #[inline(always)]
    pub(super) fn came(&mut self, packets: impl PacketSlice) {
        if let Some(sampling) = &mut self.sampling {
            sampling.came(packets.len());
            let bytes = self.account.skipped.bytes;
            self.account.skipped.bytes = bytes.saturating_sub(packets.wire_bytes());
        }
    }

    /// Returns which packets of a burst to push, and skips the others.
    ///
    /// # Errors
    /// When a thread of the crew is gone.
    #[inline]
    pub(crate) fn want(&mut self, burst: &Arrivals, crew: &mut dyn Crew) -> Result<u64, Gone> {
        let Some(sampling) = &mut self.sampling else { return Ok(burst.all()) };
        let packets = u64::from(burst.packets);
        if self.account.read > 0
            && packets <= self.left
            && self.clock.flows(burst.time_ns)
            && sampling.pass(packets)
        {
            self.latest_ns = self.latest_ns.max(burst.time_ns);
            self.count_skipped(Size { packets, bytes: burst.bytes });
            return Ok(0);
        }
        self.pick(burst, crew)
    }

    /// Ingests the wanted packets of a burst, which `frame` reads, and skips the others, if the burst
    /// needs nothing but sampler and batcher, as for [`Self::take_ordinary`]. Returns whether it did.
    pub(crate) fn take_wanted<'a>(
        &mut self,
        burst: &Arrivals,
        frame: &mut dyn FnMut(usize) -> Frame<'a>,
        crew: &mut dyn Crew,
    ) -> bool {
        let (packets, time_ns) = (burst.packets(), burst.time_ns);
        if !self.is_plain(packets) || self.owed() > 0 || !self.clock.flows(time_ns) {
            return false;
        }
        let Some(sampling) = &mut self.sampling else { return false };
        let (mut at, mut skipped) = (0, Size { packets, bytes: burst.bytes });
        while at + sampling.ahead() < packets {
            at += sampling.ahead();
            weigh(sampling, &mut self.batcher, crew);
            let frame = frame(at as usize);
            self.stretch_left -= u64::from(self.batcher.take_one(&frame, crew));
            skipped.packets -= 1;
            skipped.bytes = skipped.bytes.saturating_sub(frame.wire.into());
            sampling.pick();
            at += 1;
        }
        sampling.pass(packets - at);
        self.account.skipped += skipped;
        self.account.read += packets;
        self.left -= packets;
        self.earliest_ns = self.earliest_ns.min(time_ns);
        self.latest_ns = self.latest_ns.max(time_ns);
        true
    }

    /// As [`Self::want`], if a packet is wanted or the burst is the first of its epoch.
    #[inline(never)]
    fn pick(&mut self, burst: &Arrivals, crew: &mut dyn Crew) -> Result<u64, Gone> {
        if !self.clock.flows(burst.time_ns) {
            let tick = self.clock.tick(burst.time_ns);
            self.step(tick, crew)?;
        }
        if self.account.read == 0 {
            crew.touch();
        }
        self.earliest_ns = self.earliest_ns.min(burst.time_ns);
        self.latest_ns = self.latest_ns.max(burst.time_ns);
        let most = burst.packets().min(self.left);
        let (mut wanted, mut picked, mut at) = (0, 0, 0);
        if let Some(sampling) = &mut self.sampling {
            self.account.lost += sampling.give_up();
            while at + sampling.ahead() < most {
                at += sampling.ahead();
                sampling.pass(sampling.ahead());
                wanted |= 1u64 << at;
                sampling.owe();
                (picked, at) = (picked + 1, at + 1);
            }
            sampling.pass(most - at);
        }
        self.count_skipped(Size { packets: most - picked, bytes: burst.bytes });
        Ok(wanted)
    }

    /// The number of packets, from the next one on, that are surely skipped.
    pub(crate) fn ahead(&self) -> Ahead {
        match (&self.sampling, self.clock.calm()) {
            (Some(sampling), Some((from_ns, until_ns))) if self.account.read > 0 => {
                Ahead { packets: sampling.ahead().min(self.left), from_ns, until_ns }
            }
            _ => Ahead::default(),
        }
    }

    /// The gaps between the next wanted packets, in packets. Empty if [`Self::ahead`] is empty, or
    /// if the packet limit lies within the gaps.
    pub(crate) fn gaps(&self) -> &[u64] {
        let (Some(sampling), Some(_), 1..) = (&self.sampling, self.clock.calm(), self.account.read)
        else {
            return &[];
        };
        let gaps = sampling.gaps();
        let end = gaps.iter().fold(gaps.len() as u64, |end, gap| end.saturating_add(*gap));
        if end <= self.left { gaps } else { &[] }
    }

    /// Skips unwanted packets, and the picked ones among them, which come next.
    pub(crate) fn skip(&mut self, skipped: &Skipped) {
        let &Skipped { packets, picked, bytes, last_ns } = skipped;
        if packets + picked as u64 > 0
            && let Some(sampling) = &mut self.sampling
        {
            let mut left = packets;
            for _ in 0..picked {
                left -= sampling.ahead();
                sampling.pass(sampling.ahead());
                sampling.owe();
            }
            let ahead = sampling.pass(left) && self.clock.flows(last_ns);
            debug_assert!(ahead, "the source passes over no more than what is ahead");
            self.latest_ns = self.latest_ns.max(last_ns);
            self.count_skipped(Size { packets, bytes });
        }
    }
}
