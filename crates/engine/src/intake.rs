//! One measurement's way from frames to batches: clock, filter, lanes, and the account of all that.

use std::ops::Range;

use flowgauge_core::block::Block;
use flowgauge_core::lanes::{LaneOptions, Lanes, Take};
use flowgauge_core::packet::Frame;
use flowgauge_core::terms::Size;
use flowgauge_filter::Filter;
use flowgauge_kernel::Gone;

use crate::account::Account;
use crate::clock::{Clock, Tick};
use crate::config::{Config, EpochLength};

/// Packets that are put into lanes at a time.
pub(crate) const BURST: usize = 256;

/// Takes the batches of an intake, and the ends of its epochs.
pub(crate) trait Crew: Take {
    /// Ends the epoch after its last batch, or updates it.
    ///
    /// # Errors
    /// When a thread that measures or closes is gone.
    fn end(&mut self, ended: Ended) -> Result<(), Gone>;
    /// Passes over empty epochs.
    ///
    /// # Errors
    /// As [`Self::end`].
    fn pass(&mut self, epochs: u64) -> Result<(), Gone>;
    /// Opens the epoch that is this multiple of its length.
    fn open(&mut self, number: i64) {
        let _ = number;
    }
    /// The first packet of the open epoch comes.
    fn touch(&mut self) {}
    /// Hands over what was held back, after the last epoch.
    fn finish(&mut self) {}
    /// Whether a thread that measures or closes is gone, so that reading on is of no use.
    fn is_broken(&self) -> bool;
}

/// An epoch when its last packet was read, or at an update of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ended {
    /// Number of the epoch from 0, and of the last one that is in it; runs of empty epochs count.
    pub(crate) epoch: u64,
    pub(crate) through: u64,
    /// Whether it goes on.
    pub(crate) update: bool,
    /// What became of the packets before they were measured.
    pub(crate) account: Account,
    /// Keyed packets that no lane takes.
    pub(crate) unmeasured: Size,
    /// Bounds of a time epoch, as far as it went; else those of the packets.
    pub(crate) bounds_ns: Option<(i64, i64)>,
    /// Times of the earliest and the latest packet.
    pub(crate) times_ns: Option<(i64, i64)>,
    /// Times of the first and the last packet of the whole run so far, in the order of the packets.
    pub(crate) ends_ns: Option<(i64, i64)>,
    /// Why the filter could not judge some packets.
    pub(crate) unfit: Option<String>,
    /// By how much the clock stepped, which ended the epoch; 0 where it did not.
    pub(crate) step_ns: i64,
    /// Epochs that are in it, too, since no summaries were free when they ended.
    pub(crate) late_epochs: u64,
    /// Queues that touched the epoch, and did not hand it over in time.
    pub(crate) missing: Vec<usize>,
    /// What the source has to say.
    pub(crate) notes: Vec<String>,
}

impl Ended {
    /// This epoch together with the one behind it.
    pub(crate) fn and(mut self, next: Self) -> Self {
        self.account.add(&next.account);
        self.unmeasured += next.unmeasured;
        self.bounds_ns = match (self.bounds_ns, next.bounds_ns) {
            (Some((start_ns, _)), Some((_, end_ns))) => Some((start_ns, end_ns)),
            (own, next) => own.or(next),
        };
        self.times_ns = match (self.times_ns, next.times_ns) {
            (Some((start_ns, end_ns)), Some((earliest_ns, latest_ns))) => {
                Some((start_ns.min(earliest_ns), end_ns.max(latest_ns)))
            }
            (own, next) => own.or(next),
        };
        self.ends_ns = next.ends_ns.or(self.ends_ns);
        self.unfit = self.unfit.or(next.unfit);
        next.notes.into_iter().for_each(|note| add_note(&mut self.notes, note));
        self.step_ns = if self.step_ns == 0 { next.step_ns } else { self.step_ns };
        self.late_epochs += next.late_epochs + 1;
        self.through = next.through;
        self.update = next.update;
        self
    }
}

/// Adds a note, unless another queue said the same.
pub(crate) fn add_note(notes: &mut Vec<String>, note: String) {
    if !notes.contains(&note) {
        notes.push(note);
    }
}

/// Packets on their way into lanes.
trait Packets: Copy {
    fn len(self) -> usize;
    fn time_ns(self, place: usize) -> i64;
    fn part(self, places: Range<usize>) -> Self;
    /// How many packets from the second on are ordinary ones to the clock, which took the first.
    fn run(self, clock: &mut Clock) -> usize;
    /// Puts packets into lanes, as [`Lanes::take`].
    fn put(self, lanes: &mut Lanes, most: u64, to: &mut dyn Take) -> (usize, u64);
}

impl Packets for &[Frame<'_>] {
    #[inline(always)]
    fn len(self) -> usize {
        <[_]>::len(self)
    }
    #[inline(always)]
    fn time_ns(self, place: usize) -> i64 {
        self[place].time_ns
    }
    #[inline(always)]
    fn part(self, places: Range<usize>) -> Self {
        &self[places]
    }
    #[inline(always)]
    fn run(self, clock: &mut Clock) -> usize {
        clock.run(self[1..].iter().map(|frame| frame.time_ns))
    }
    fn put(self, lanes: &mut Lanes, most: u64, to: &mut dyn Take) -> (usize, u64) {
        lanes.take(self, most, to)
    }
}

/// Some of the packets of a block.
#[derive(Clone, Copy)]
struct Places<'a> {
    block: &'a Block,
    first: usize,
    end: usize,
}

impl Packets for Places<'_> {
    #[inline(always)]
    fn len(self) -> usize {
        self.end - self.first
    }
    #[inline(always)]
    fn time_ns(self, place: usize) -> i64 {
        self.block.times_ns()[self.first + place]
    }
    #[inline(always)]
    fn part(self, places: Range<usize>) -> Self {
        let first = self.first + places.start;
        Self { first, end: first + places.len(), ..self }
    }
    #[inline(always)]
    fn run(self, clock: &mut Clock) -> usize {
        let times_ns = &self.block.times_ns()[self.first + 1..self.end];
        match times_ns.last() {
            // Where the last of ordered times is an ordinary one, so are those before it.
            Some(last_ns) if self.block.is_ordered() && clock.flows(*last_ns) => times_ns.len(),
            _ => clock.run(times_ns.iter().copied()),
        }
    }
    fn put(self, lanes: &mut Lanes, most: u64, to: &mut dyn Take) -> (usize, u64) {
        lanes.take_block(self.block, self.first..self.end, most, to)
    }
}

/// Whether the packet at a place passes the filter.
type Judge<'a> = dyn FnMut(usize) -> bool + 'a;

/// Puts packets into lanes, and decides where epochs end.
///
/// Cost: two virtual calls for each burst and one for each batch. Memory: that of the lanes.
pub(crate) struct Intake {
    lanes: Lanes,
    filter: Option<Filter>,
    packets_per_epoch: u64,
    packets_per_update: u64,
    clock: Clock,
    /// Packets that may still be read under `-c`, of those that pass the filter.
    left: u64,
    /// Of the open epoch, without what the lanes count; with the packets read up to its latest update.
    account: Account,
    reported: u64,
    /// Keyed packets before the epoch ends or an update is due, and those that it takes behind them.
    stretch_left: u64,
    epoch_left: u64,
    epoch: u64,
    bounds_ns: Option<(i64, i64)>,
    earliest_ns: i64,
    latest_ns: i64,
    unfit: Option<String>,
    notes: Vec<String>,
    /// By how much the clock stepped at the end of the open epoch.
    step_ns: i64,
    /// Epochs ended so far.
    ended: u64,
}

impl Intake {
    pub(crate) fn new(config: &Config, lanes: LaneOptions) -> Self {
        let packets = |length| match length {
            EpochLength::Packets(packets) => packets,
            EpochLength::Whole | EpochLength::Time(_) => u64::MAX,
        };
        let mut intake = Self {
            lanes: Lanes::new(lanes),
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
            unfit: None,
            notes: Vec::new(),
            step_ns: 0,
            ended: 0,
        };
        intake.begin();
        intake
    }

    /// Whether it judges frames by a filter.
    pub(crate) fn is_filtered(&self) -> bool {
        self.filter.is_some()
    }

    /// Whether a frame passes the filter, where there is one.
    pub(crate) fn passes(&mut self, frame: &Frame<'_>) -> bool {
        self.filter.as_mut().is_none_or(|filter| judge(filter, frame, &mut self.unfit))
    }

    /// Whether the limit allows more packets.
    pub(crate) fn wants_more(&self) -> bool {
        self.left > 0
    }

    /// Whether there is something to report of the open epoch.
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

    /// Counts packets that were lost before they could be read.
    pub(crate) fn lose(&mut self, packets: u64) {
        self.account.lost += packets;
    }

    /// Takes frames in their order.
    ///
    /// # Errors
    /// When a thread of the crew is gone.
    pub(crate) fn take(&mut self, frames: &[Frame<'_>], crew: &mut dyn Crew) -> Result<(), Gone> {
        let Some(mut filter) = self.filter.take() else {
            return self.take_packets(frames, None, crew);
        };
        let mut unfit = None;
        let mut passes = |place| judge(&mut filter, &frames[place], &mut unfit);
        let taken = self.take_packets(frames, Some(&mut passes), crew);
        self.unfit = self.unfit.take().or(unfit);
        self.filter = Some(filter);
        taken
    }

    /// Takes the packets of a block; where `passes` is given, it tells by their place which of them
    /// pass the filter.
    ///
    /// # Errors
    /// When a thread of the crew is gone.
    pub(crate) fn take_block(
        &mut self,
        block: &Block,
        passes: Option<&mut Judge<'_>>,
        crew: &mut dyn Crew,
    ) -> Result<(), Gone> {
        self.take_packets(Places { block, first: 0, end: block.len() }, passes, crew)
    }

    #[inline]
    fn take_packets(
        &mut self,
        packets: impl Packets,
        mut passes: Option<&mut Judge<'_>>,
        crew: &mut dyn Crew,
    ) -> Result<(), Gone> {
        let mut done = 0;
        while done < packets.len() && self.left > 0 {
            let burst = packets.part(done..packets.len().min(done + BURST));
            let first_ns = burst.time_ns(0);
            if !self.clock.flows(first_ns) {
                let tick = self.clock.tick(first_ns);
                self.step(tick, crew)?;
            }
            if self.account.read == 0 {
                crew.touch();
            }
            let begun = self.clock.clone();
            let ordinary = 1 + burst.run(&mut self.clock);
            let taken = match &mut passes {
                None => self.take_all(burst.part(0..ordinary), crew),
                Some(passes) => {
                    let mut passes = |place| passes(done + place);
                    self.take_passing(burst.part(0..ordinary), &mut passes, crew)
                }
            };
            if taken < ordinary {
                self.clock = begun;
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

    /// Takes packets of the open epoch, up to the limit and to the end of the stretch; returns how
    /// many, at least one.
    #[inline]
    fn take_all(&mut self, packets: impl Packets, crew: &mut dyn Crew) -> usize {
        let most = usize::try_from(self.left).map_or(packets.len(), |left| left.min(packets.len()));
        let taken = self.put(packets.part(0..most), crew);
        self.account.read += taken as u64;
        taken
    }

    /// As [`Self::take_all`], of those packets that pass the filter.
    fn take_passing(
        &mut self,
        packets: impl Packets,
        passes: &mut Judge<'_>,
        crew: &mut dyn Crew,
    ) -> usize {
        let (mut taken, mut filtered) = (0, 0);
        // The stretch ends right behind its last packet, not behind those that the filter rejects next.
        while taken < packets.len() && self.left > 0 && self.stretch_left > 0 {
            let most = self.left.min((packets.len() - taken) as u64) as usize;
            let passing = (taken..taken + most).take_while(|place| passes(*place)).count();
            if passing > 0 {
                let put = self.put(packets.part(taken..taken + passing), crew);
                taken += put;
                if put < passing {
                    break;
                }
            }
            if passing < most && self.stretch_left > 0 {
                (taken, filtered) = (taken + 1, filtered + 1);
            }
        }
        self.account.read += taken as u64;
        self.account.filtered += filtered;
        taken
    }

    /// Puts packets that pass the filter into their lanes; returns how many.
    #[inline]
    fn put(&mut self, packets: impl Packets, crew: &mut dyn Crew) -> usize {
        let (taken, keyed) = packets.put(&mut self.lanes, self.stretch_left, crew);
        self.stretch_left -= keyed;
        self.left -= taken as u64;
        taken
    }

    /// Acts on the time: no packet that is older comes any more.
    ///
    /// # Errors
    /// When a thread of the crew is gone.
    pub(crate) fn advance(&mut self, now_ns: i64, crew: &mut dyn Crew) -> Result<(), Gone> {
        while let Some(tick) = self.clock.passes(now_ns) {
            self.step(tick, crew)?;
        }
        Ok(())
    }

    /// Acts on a time that is not an ordinary one, before a packet of it is counted.
    #[cold]
    fn step(&mut self, tick: Tick, crew: &mut dyn Crew) -> Result<(), Gone> {
        if tick.closes {
            self.step_ns = tick.step_ns;
            self.close(crew)?;
        }
        if tick.updates {
            self.update(crew)?;
        }
        self.bounds_ns = self.clock.bounds_ns();
        if tick.opens {
            crew.open(self.clock.number());
        }
        if tick.gap > 0 {
            crew.pass(tick.gap)?;
            self.epoch += tick.gap;
        }
        self.account.late += u64::from(tick.late);
        self.account.backwards += u64::from(tick.backwards);
        self.account.jumps += u64::from(tick.jump);
        Ok(())
    }

    /// Acts on so many keyed packets. An update waits for what comes next: that may be the end.
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
        self.unfit = None;
        self.notes.clear();
        self.step_ns = 0;
        self.lanes.forget();
    }

    /// Ends the open epoch, and opens the next.
    ///
    /// # Errors
    /// When a thread of the crew is gone.
    pub(crate) fn close(&mut self, crew: &mut dyn Crew) -> Result<(), Gone> {
        let ended = self.so_far(crew);
        crew.end(ended)?;
        self.begin();
        self.epoch += 1;
        self.ended += 1;
        Ok(())
    }

    /// Reports the open epoch, unless nothing was read since the last time.
    fn update(&mut self, crew: &mut dyn Crew) -> Result<(), Gone> {
        if self.account.read == self.reported {
            return Ok(());
        }
        self.reported = self.account.read;
        let so_far = self.so_far(crew);
        let bounds_ns =
            so_far.bounds_ns.map(|(start_ns, _)| (start_ns, self.latest_ns.max(start_ns)));
        crew.end(Ended { update: true, bounds_ns, ..so_far })
    }

    /// The open epoch as far as it went, all of which the crew then has.
    fn so_far(&mut self, crew: &mut dyn Crew) -> Ended {
        self.lanes.flush(crew);
        let counts = self.lanes.counts();
        let account = Account {
            keyed: counts.keyed.packets,
            keyed_bytes: counts.keyed.bytes,
            malformed: counts.keyless.malformed(),
            no_key: counts.keyless.no_key(),
            reasons: counts.keyless,
            ..self.account.clone()
        };
        let times_ns = (account.read > 0).then_some((self.earliest_ns, self.latest_ns));
        Ended {
            epoch: self.epoch,
            through: self.epoch,
            update: false,
            account,
            unmeasured: counts.unmeasured,
            bounds_ns: self.bounds_ns.or(times_ns),
            times_ns,
            ends_ns: self.clock.ends_ns(),
            unfit: self.unfit.clone(),
            notes: self.notes.clone(),
            step_ns: self.step_ns,
            late_epochs: 0,
            missing: Vec::new(),
        }
    }
}

/// Whether a frame passes the filter; why it could not be judged is noted once.
#[inline]
fn judge(filter: &mut Filter, frame: &Frame<'_>, unfit: &mut Option<String>) -> bool {
    filter.matches(frame.link, frame.bytes, frame.wire).unwrap_or_else(|reason| {
        unfit.get_or_insert_with(|| reason.to_string());
        false
    })
}
