//! The intake of one measurement: from frames to batches, through clock, filter and batcher, with the
//! account.

mod ended;
mod picking;
mod slice;

use std::sync::Arc;

use flowgauge_core::batcher::{Batcher, BatcherOptions, Take};
use flowgauge_core::block::Block;
use flowgauge_core::packet::{Column, Frame, Frames};
use flowgauge_core::task;
use flowgauge_core::timeline::Timeline;
use flowgauge_filter::Filter;
use flowgauge_kernel::Gone;

use crate::account::Account;
use crate::clock::{Clock, Tick};
use crate::config::{Config, EpochLength};
use crate::sampling::{Sampling, Traffic};
use crate::source::Thinned;
use slice::{BlockSlice, PacketSlice};

pub(crate) use ended::{Ended, add_note};

/// Packets that the batcher takes at a time.
pub(crate) const BURST: usize = 256;

/// Receives the batches of an intake and the ends of its epochs.
pub(crate) trait Crew: Take {
    /// Ends the epoch after its last batch, or makes an update.
    ///
    /// # Errors
    /// When a thread that measures or closes is gone.
    fn end(&mut self, ended: Ended) -> Result<(), Gone>;
    /// Passes over empty epochs.
    ///
    /// # Errors
    /// As [`Self::end`].
    fn pass(&mut self, epochs: u64) -> Result<(), Gone>;
    /// Opens the epoch with this number, in multiples of its length.
    fn open(&mut self, number: i64) {
        let _ = number;
    }
    /// Announces the first packet of the open epoch.
    fn touch(&mut self) {}
    /// Hands over epochs that were held back, after the last one.
    fn finish(&mut self) {}
    /// Whether a thread that measures or closes is gone, so reading on is useless.
    fn is_broken(&self) -> bool;
}

/// The filter's verdict on the packet at a place.
type Judge<'a> = dyn FnMut(usize) -> Verdict + 'a;

/// A filter's verdict on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Passes,
    Rejected,
    /// Rejected, since the filter cannot judge it.
    Unfit,
}

/// Passes packets to the batcher, and decides where epochs end.
///
/// Cost: two virtual calls for each burst and one for each batch. Memory: that of the batcher.
pub(crate) struct Intake {
    batcher: Batcher,
    /// The sampling before headers, if packets are sampled.
    sampling: Option<Sampling>,
    filter: Option<Filter>,
    packets_per_epoch: u64,
    packets_per_update: u64,
    clock: Clock,
    /// Packets left of the limit `-c`; packets that the filter rejects do not count.
    left: u64,
    /// The account of the open epoch, without the counts of the batcher. It includes the packets read
    /// up to the latest update.
    account: Account,
    reported: u64,
    /// Keyed packets left until the epoch ends or an update is due, and those left after that.
    stretch_left: u64,
    epoch_left: u64,
    epoch: u64,
    bounds_ns: Option<(i64, i64)>,
    earliest_ns: i64,
    latest_ns: i64,
    /// Whether the filter could not judge a packet of the open epoch.
    unfit: bool,
    /// Why it could not.
    reason: Option<Arc<str>>,
    notes: Vec<String>,
    /// Why packets pass unseen at present, and whether any may have in the open epoch.
    outage: Option<Box<str>>,
    unseen: bool,
    /// How the source sampled the next packets, and how it sampled those of the open epoch.
    thinning: Option<Thinned>,
    thinned: Option<Thinned>,
    /// Packets over time, if a task asks for it.
    timeline: Option<Box<Timeline>>,
    /// The step of the clock at the end of the open epoch.
    step_ns: i64,
    /// Epochs ended so far.
    ended: u64,
    /// The earliest and the latest time seen, of packets or of the clock.
    told_ns: Option<(i64, i64)>,
    /// Whether no more packets will come.
    finishing: bool,
}

impl Intake {
    pub(crate) fn new(config: &Config, batcher: BatcherOptions) -> Self {
        let packets = |length| match length {
            EpochLength::Packets(packets) => packets,
            EpochLength::Whole | EpochLength::Time(_) => u64::MAX,
        };
        let mut intake = Self {
            batcher: Batcher::new(batcher),
            sampling: None,
            filter: config.filter.clone(),
            packets_per_epoch: packets(config.epoch),
            packets_per_update: packets(config.updates),
            clock: Clock::new(config.epoch, config.updates),
            left: config.limit.unwrap_or(u64::MAX),
            account: Account::default(),
            reported: 0,
            stretch_left: 0,
            epoch_left: 0,
            epoch: 0,
            bounds_ns: None,
            earliest_ns: i64::MAX,
            latest_ns: i64::MIN,
            unfit: false,
            reason: None,
            notes: Vec::new(),
            outage: None,
            unseen: false,
            thinning: None,
            thinned: None,
            timeline: timeline(config),
            step_ns: 0,
            ended: 0,
            told_ns: None,
            finishing: false,
        };
        intake.begin();
        intake
    }

    /// Reads a sample of the packets from now on.
    pub(crate) fn sample(&mut self, sampling: Sampling) {
        self.sampling = Some(sampling);
    }

    /// Whether it has a filter.
    pub(crate) fn is_filtered(&self) -> bool {
        self.filter.is_some()
    }

    /// Whether blocks need the extras of frames.
    pub(crate) fn wants_extras(&self) -> bool {
        self.batcher.wants_extras()
    }

    /// Whether packets are counted by protocol and service.
    pub(crate) fn counts_services(&self) -> bool {
        self.batcher.counts_services()
    }

    /// The filter's verdict on a frame, which passes without a filter.
    pub(crate) fn judge(&mut self, frame: &Frame<'_>) -> Verdict {
        match &mut self.filter {
            Some(filter) => judge(filter, frame, &mut self.reason),
            None => Verdict::Passes,
        }
    }

    /// Whether the filter could not judge a packet of the open epoch.
    pub(crate) fn is_unfit(&self) -> bool {
        self.unfit
    }

    /// Continues after a packet that another intake has taken.
    pub(crate) fn follow(&mut self, before_ns: i64) {
        self.clock.follow(before_ns);
    }

    /// Whether the limit allows more packets.
    pub(crate) fn wants_more(&self) -> bool {
        self.left > 0
    }

    /// Whether the open epoch has anything to report.
    pub(crate) fn holds(&self) -> bool {
        self.account.read > 0 || self.account.lost > 0 || !self.notes.is_empty()
    }

    /// Epochs that ended so far.
    pub(crate) fn ended(&self) -> u64 {
        self.ended
    }

    /// Puts a note into the report of the open epoch.
    pub(crate) fn note(&mut self, note: &str) {
        self.notes.push(note.to_owned());
    }

    /// Sets why packets pass unseen from now on; `None` if none do.
    pub(crate) fn outage(&mut self, outage: Option<&str>, crew: &mut dyn Crew) {
        self.outage = outage.map(Into::into);
        self.note_outage();
        if self.unseen {
            crew.touch();
        }
    }

    /// Puts the outage into the report of the open epoch.
    fn note_outage(&mut self) {
        self.notes.extend(self.outage.as_deref().map(str::to_owned));
        self.unseen |= self.outage.is_some();
    }

    /// Notes how the source sampled the next packets.
    pub(crate) fn thin(&mut self, thinned: Option<Thinned>) {
        self.thinning = thinned;
    }

    /// Counts packets that were lost before they could be read.
    pub(crate) fn lose(&mut self, packets: u64) {
        self.account.lost += packets;
    }

    /// Ingests frames in order.
    ///
    /// # Errors
    /// When a thread of the crew is gone.
    // By reference, as for the batcher.
    pub(crate) fn take(&mut self, frames: &Frames<'_>, crew: &mut dyn Crew) -> Result<(), Gone> {
        if self.take_ordinary(frames, crew) {
            return Ok(());
        }
        let Some(mut filter) = self.filter.take() else {
            return self.take_packets(*frames, None, crew);
        };
        let mut reason = self.reason.clone();
        let mut verdict = |place| judge(&mut filter, &frames.at(place), &mut reason);
        let taken = self.take_packets(*frames, Some(&mut verdict), crew);
        self.reason = reason;
        self.filter = Some(filter);
        taken
    }

    /// Ingests the burst of a driver, or the wanted part of it, if it needs nothing but the batcher:
    /// it neither opens nor ends an epoch, and no filter chooses among its packets. Returns whether
    /// it did. This is the path of nearly all bursts; it is short, since a switch in between evicts
    /// it from the cache.
    fn take_ordinary(&mut self, frames: &Frames<'_>, crew: &mut dyn Crew) -> bool {
        let Column::Same(time_ns) = frames.times_ns() else { return false };
        let packets = frames.len() as u64;
        let takes_all = self.sampling.as_ref().is_none_or(|sampling| sampling.awaits(frames.len()));
        if !takes_all || !self.is_plain(packets) || !self.clock.flows(time_ns) {
            return false;
        }
        let (_, keyed) = self.batcher.take(frames, packets, crew);
        self.account.read += packets;
        self.left -= packets;
        self.stretch_left -= keyed;
        self.earliest_ns = self.earliest_ns.min(time_ns);
        self.latest_ns = self.latest_ns.max(time_ns);
        self.came(*frames);
        true
    }

    /// Whether a burst of so many packets of the open epoch needs no more than to be batched.
    #[inline(always)]
    fn is_plain(&self, packets: u64) -> bool {
        self.filter.is_none()
            && self.thinning.is_none()
            && self.timeline.is_none()
            && (1..self.left.min(self.stretch_left)).contains(&packets)
            && self.account.read > 0
    }

    /// Ingests the packets of a block. If `judge` is given, it has the filter's verdict on the packet
    /// at each place.
    ///
    /// # Errors
    /// When a thread of the crew is gone.
    pub(crate) fn take_block(
        &mut self,
        block: &Block,
        judge: Option<&mut Judge<'_>>,
        crew: &mut dyn Crew,
    ) -> Result<(), Gone> {
        self.take_packets(BlockSlice { block, first: 0, end: block.len() }, judge, crew)
    }

    #[inline]
    fn take_packets(
        &mut self,
        packets: impl PacketSlice,
        mut judge: Option<&mut Judge<'_>>,
        crew: &mut dyn Crew,
    ) -> Result<(), Gone> {
        let mut done = 0;
        while done < packets.len() && self.left > 0 {
            let burst = packets.part(done..packets.len().min(done + BURST));
            let owed = self.owed();
            if owed > 0 {
                let owed = burst.part(0..owed.min(burst.len()));
                self.weigh(crew);
                let taken = self.take_judged(owed, &mut judge, done, crew);
                self.came(owed.part(0..taken));
                done += taken;
                continue;
            }
            let first_ns = burst.time_ns(0);
            if !self.clock.flows(first_ns) {
                let tick = self.clock.tick(first_ns);
                self.step(tick, crew)?;
            }
            if self.account.read == 0 {
                crew.touch();
            }
            if let Some(thinning) = self.thinning {
                self.thinned = Some(self.thinned.map_or(thinning, |own| own.and(thinning)));
            }
            let (alike, wanted) = self.next(burst.len());
            let burst = burst.part(0..alike);
            if !wanted {
                done += self.pass_over(burst);
                continue;
            }
            self.weigh(crew);
            let ordinary = 1 + burst.run(&mut self.clock);
            let taken = self.take_judged(burst.part(0..ordinary), &mut judge, done, crew);
            self.took(taken);
            if taken < ordinary {
                self.clock.follow(first_ns);
                burst.part(0..taken).run(&mut self.clock);
            }
            self.earliest_ns = self.earliest_ns.min(first_ns);
            self.latest_ns = self.latest_ns.max(burst.time_ns(taken - 1));
            done += taken;
            if self.stretch_left == 0 {
                self.end_stretch(crew)?;
            }
        }
        Ok(())
    }

    /// Ingests packets of the open epoch that pass the filter, if there is one, beginning with the
    /// packet at `first`.
    #[inline]
    fn take_judged(
        &mut self,
        packets: impl PacketSlice,
        judge: &mut Option<&mut Judge<'_>>,
        first: usize,
        crew: &mut dyn Crew,
    ) -> usize {
        match judge {
            None => self.take_all(packets, crew),
            Some(judge) => {
                let mut judge = |place| judge(first + place);
                self.take_passing(packets, &mut judge, crew)
            }
        }
    }

    /// Ingests packets of the open epoch up to the limit and the end of the stretch. Returns their
    /// number, at least one.
    #[inline]
    fn take_all(&mut self, packets: impl PacketSlice, crew: &mut dyn Crew) -> usize {
        let most = usize::try_from(self.left).map_or(packets.len(), |left| left.min(packets.len()));
        let taken = self.put(packets.part(0..most), crew);
        self.account.read += taken as u64;
        taken
    }

    /// As [`Self::take_all`], but only packets that pass the filter.
    fn take_passing(
        &mut self,
        packets: impl PacketSlice,
        judge: &mut Judge<'_>,
        crew: &mut dyn Crew,
    ) -> usize {
        let (mut taken, mut filtered) = (0, 0);
        let mut verdict = Verdict::Passes;
        // The stretch ends right after its last packet, before packets that the filter rejects.
        while taken < packets.len() && self.left > 0 && self.stretch_left > 0 {
            let most = self.left.min((packets.len() - taken) as u64) as usize;
            let mut passes = |place: &usize| {
                verdict = judge(*place);
                verdict == Verdict::Passes
            };
            let passing = (taken..taken + most).take_while(&mut passes).count();
            if passing > 0 {
                let put = self.put(packets.part(taken..taken + passing), crew);
                taken += put;
                if put < passing {
                    break;
                }
            }
            if passing < most && self.stretch_left > 0 {
                (taken, filtered) = (taken + 1, filtered + 1);
                self.unfit |= verdict == Verdict::Unfit;
            }
        }
        self.account.read += taken as u64;
        self.account.filtered += filtered;
        taken
    }

    /// Passes packets that passed the filter to the batcher; returns their number.
    // Inlined, since a copy of the slice would wait for the stores of its fields.
    #[inline(always)]
    fn put(&mut self, packets: impl PacketSlice, crew: &mut dyn Crew) -> usize {
        let (taken, keyed) = packets.put(&mut self.batcher, self.stretch_left, crew);
        if let Some(timeline) = &mut self.timeline {
            packets.part(0..taken).record(timeline);
        }
        self.stretch_left -= keyed;
        self.left -= taken as u64;
        taken
    }

    /// Advances to the time `now_ns`: no older packet will come.
    ///
    /// # Errors
    /// When a thread of the crew is gone.
    pub(crate) fn advance(&mut self, now_ns: i64, crew: &mut dyn Crew) -> Result<(), Gone> {
        self.tell(now_ns, now_ns);
        while let Some(tick) = self.clock.passes(now_ns) {
            self.step(tick, crew)?;
        }
        Ok(())
    }

    /// Notes the times seen.
    fn tell(&mut self, earliest_ns: i64, latest_ns: i64) {
        let (first_ns, last_ns) = self.told_ns.unwrap_or((earliest_ns, latest_ns));
        self.told_ns = Some((first_ns.min(earliest_ns), last_ns.max(latest_ns)));
    }

    /// The interval in which the open time epoch was observed.
    fn observed_ns(&self) -> Option<(i64, i64)> {
        let ((start_ns, end_ns), (first_ns, last_ns)) = (self.bounds_ns?, self.told_ns?);
        let start_ns = if self.ended == 0 { start_ns.max(first_ns) } else { start_ns };
        let end_ns = if self.finishing { end_ns.min(last_ns) } else { end_ns };
        Some((start_ns, end_ns))
    }

    /// Handles a time that is not ordinary, before its packet is counted.
    #[cold]
    fn step(&mut self, tick: Tick, crew: &mut dyn Crew) -> Result<(), Gone> {
        if tick.closes {
            self.step_ns = tick.step_ns;
            self.close(crew)?;
            if tick.step_ns < 0 {
                // The times seen before are of another clock.
                self.told_ns = None;
            }
        }
        if tick.updates {
            self.update(crew)?;
        }
        self.bounds_ns = self.clock.bounds_ns();
        if tick.opens {
            crew.open(self.clock.number());
            if self.unseen {
                crew.touch();
            }
            if let Some(sampling) = &mut self.sampling {
                sampling.begin(self.clock.number());
            }
        }
        if tick.gap > 0 {
            crew.pass(tick.gap)?;
            self.epoch = self.epoch.saturating_add(tick.gap);
        }
        self.account.late += u64::from(tick.late);
        self.account.backwards += u64::from(tick.backwards);
        self.account.jumps += u64::from(tick.jump);
        Ok(())
    }

    /// Handles the end of a stretch of keyed packets. An update waits for the next packet, since
    /// the input may end first.
    #[cold]
    fn end_stretch(&mut self, crew: &mut dyn Crew) -> Result<(), Gone> {
        if self.epoch_left == 0 {
            return self.close(crew);
        }
        self.clock.make_due();
        self.next_stretch();
        Ok(())
    }

    fn next_stretch(&mut self) {
        self.stretch_left = self.packets_per_update.min(self.epoch_left);
        self.epoch_left -= self.stretch_left;
    }

    /// Begins an epoch.
    fn begin(&mut self) {
        self.account = Account::default();
        self.reported = 0;
        self.epoch_left = self.packets_per_epoch;
        self.next_stretch();
        (self.earliest_ns, self.latest_ns) = (i64::MAX, i64::MIN);
        self.unfit = false;
        self.notes.clear();
        self.unseen = false;
        self.note_outage();
        self.thinned = None;
        if let Some(timeline) = &mut self.timeline {
            timeline.clear();
        }
        self.step_ns = 0;
        self.batcher.forget();
        if let Some(sampling) = &mut self.sampling {
            sampling.forget();
        }
    }

    /// Ends the open epoch, the last one.
    ///
    /// # Errors
    /// When a thread of the crew is gone.
    pub(crate) fn finish(&mut self, crew: &mut dyn Crew) -> Result<(), Gone> {
        self.finishing = true;
        self.close(crew)
    }

    /// Ends the open epoch, and opens the next.
    ///
    /// # Errors
    /// When a thread of the crew is gone.
    pub(crate) fn close(&mut self, crew: &mut dyn Crew) -> Result<(), Gone> {
        let ended = self.so_far(crew);
        crew.end(ended)?;
        self.begin();
        self.epoch = self.epoch.saturating_add(1);
        self.ended += 1;
        Ok(())
    }

    /// Makes an update of the open epoch, unless no packet was read since the last one.
    fn update(&mut self, crew: &mut dyn Crew) -> Result<(), Gone> {
        if self.account.read == self.reported {
            return Ok(());
        }
        self.reported = self.account.read;
        let so_far = self.so_far(crew);
        let latest_ns = self.latest_ns;
        let until_latest = |(start_ns, _): (i64, i64)| (start_ns, latest_ns.max(start_ns));
        let bounds_ns = so_far.bounds_ns.map(until_latest);
        let observed_ns = so_far.observed_ns.map(until_latest);
        crew.end(Ended { update: true, bounds_ns, observed_ns, ..so_far })
    }

    /// The open epoch so far. All its batches are passed to the crew first.
    fn so_far(&mut self, crew: &mut dyn Crew) -> Ended {
        self.batcher.flush(crew);
        let counts = self.batcher.counts();
        let sampling = self.sampling.as_mut();
        let traffic = sampling.map(|sampling| sampling.so_far(counts.keyed.packets));
        let traffic = match self.thinned {
            Some(thinned) => Some(Traffic::thinned(traffic, thinned)),
            None => traffic,
        };
        let account = Account {
            keyed: counts.keyed.packets,
            keyed_bytes: counts.keyed.bytes,
            malformed: counts.keyless.malformed(),
            no_key: counts.keyless.no_key(),
            reasons: counts.keyless,
            ..self.account.clone()
        };
        let times_ns = (account.read > 0).then_some((self.earliest_ns, self.latest_ns));
        if let Some((earliest_ns, latest_ns)) = times_ns {
            self.tell(earliest_ns, latest_ns);
        }
        Ended {
            epoch: self.epoch,
            through: self.epoch,
            update: false,
            account,
            traffic,
            unmeasured: counts.unmeasured,
            twice: counts.twice,
            bounds_ns: self.bounds_ns.or(times_ns),
            observed_ns: self.observed_ns(),
            times_ns,
            ends_ns: self.clock.ends_ns(),
            unfit: self.reason.clone().filter(|_| self.unfit),
            timeline: self.timeline.clone(),
            services: self.batcher.services(),
            notes: self.notes.clone(),
            unseen: self.unseen,
            step_ns: self.step_ns,
            late_epochs: 0,
            missing: Vec::new(),
        }
    }
}

/// An empty timeline if a task of the configuration asks for one.
fn timeline(config: &Config) -> Option<Box<Timeline>> {
    let mut names = config.tasks.iter().flatten();
    let asked = names.any(|name| task::find(name).is_ok_and(|entry| entry.timeline));
    let seed = config.seed.map_or(0, |seed| seed.draws());
    asked.then(|| Box::new(Timeline::new(config.key, config.tunnels, seed)))
}

/// The filter's verdict on a frame. Notes the first reason why it cannot judge one.
#[inline]
fn judge(filter: &mut Filter, frame: &Frame<'_>, reason: &mut Option<Arc<str>>) -> Verdict {
    match filter.matches(frame.link, frame.bytes, frame.wire) {
        Ok(true) => Verdict::Passes,
        Ok(false) => Verdict::Rejected,
        Err(error) => {
            reason.get_or_insert_with(|| error.to_string().into());
            Verdict::Unfit
        }
    }
}
