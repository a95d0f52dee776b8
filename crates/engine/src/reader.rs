//! From a source to batches: clock, filter, headers, keys, and the account of all that.

use flowgauge_capture::filter::Filter;
use flowgauge_capture::{CaptureError, Frame, Frames, Source};
use flowgauge_core::packet::{Headers, parse, parse_common, parse_inner};
use flowgauge_core::summary::Size;

use crate::account::Account;
use crate::clock::{Clock, Tick};
use crate::config::{Config, EpochLength};
use crate::error::EngineError;
use crate::lanes::{Keyless, Lanes, Take};
use crate::report::Gap;

/// Where packets come from.
pub type Packets<'a> = dyn Source<Error = CaptureError> + 'a;

/// Those who measure what a reader passes on.
pub(crate) trait Crew<A, B>: Take<A, B> {
    /// Ends the epoch, after its last batch, or tells what is known of it so far.
    fn end(&mut self, ended: Ended) -> Result<(), EngineError>;
    /// Takes note of empty epochs.
    fn gap(&mut self, gap: &Gap) -> Result<(), EngineError>;
    /// Whether one of them is no more, so that reading on is of no use.
    fn is_broken(&self) -> bool {
        false
    }
}

/// What is known of an epoch when its last packet was read, or at an update of it.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    pub(crate) epoch: u64,
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
}

/// Reads packets into the lanes, and says where epochs end.
pub(crate) struct Reader<L> {
    lanes: L,
    filter: Option<Filter>,
    inner: bool,
    packets_per_epoch: u64,
    packets_per_update: u64,
    clock: Clock,
    /// Packets that may still be read under `-c`, of those that pass the filter.
    left: u64,
    /// Of the open epoch; with the packets read up to its latest update.
    account: Account,
    told: u64,
    /// Keyed packets before the epoch ends or an update is due, and those that it takes behind them.
    stretch_left: u64,
    epoch_left: u64,
    epoch: u64,
    bounds_ns: Option<(i64, i64)>,
    earliest_ns: i64,
    latest_ns: i64,
    unfit: Option<String>,
    /// Epochs ended so far.
    ended: u64,
    /// Packets lost so far, by the source's count.
    lost: u64,
}

impl<L: Lanes> Reader<L> {
    pub(crate) fn new(config: &Config, lanes: L) -> Self {
        let packets = |length| match length {
            EpochLength::Packets(packets) => packets,
            EpochLength::Whole | EpochLength::Time(_) => u64::MAX,
        };
        let mut reader = Self {
            lanes,
            filter: config.filter.clone(),
            inner: config.inner,
            packets_per_epoch: packets(config.epoch),
            packets_per_update: packets(config.updates),
            clock: Clock::new(config.epoch, config.updates),
            left: config.limit.unwrap_or(u64::MAX),
            account: Account::default(),
            told: 0,
            stretch_left: 0,
            epoch_left: 0,
            epoch: 0,
            bounds_ns: None,
            earliest_ns: i64::MAX,
            latest_ns: i64::MIN,
            unfit: None,
            ended: 0,
            lost: 0,
        };
        reader.begin();
        reader
    }

    /// Reads `source` to its end, or to the limit; returns what was wrong with it.
    pub(crate) fn read(
        &mut self,
        source: &mut Packets<'_>,
        crew: &mut impl Crew<L::First, L::Second>,
        progress: &mut dyn FnMut(&Packets<'_>),
    ) -> Result<Vec<CaptureError>, EngineError> {
        let mut problems = Vec::new();
        while self.left > 0 && !crew.is_broken() {
            match source.poll() {
                Ok(Some(frames)) => self.take(&frames, crew)?,
                Ok(None) => break,
                Err(problem) => problems.push(problem),
            }
            let lost = source.lost();
            self.account.lost += lost - self.lost;
            self.lost = lost;
            while let Some(tick) = source.clock_ns().and_then(|now_ns| self.clock.passes(now_ns)) {
                self.step(tick, crew)?;
            }
            progress(source);
        }
        let unreadable =
            |problem: &CaptureError| matches!(problem, CaptureError::Unreadable { .. });
        let nothing_to_read = !problems.is_empty()
            && problems.iter().filter(|problem| unreadable(problem)).count()
                == source.files().len();
        // A run over sound but empty input is one empty epoch; one over no input is none.
        let holds = self.account.read > 0 || self.account.lost > 0;
        if holds || (self.ended == 0 && !nothing_to_read) {
            self.close(crew)?;
        }
        Ok(problems)
    }

    fn take(
        &mut self,
        frames: &Frames<'_>,
        crew: &mut impl Crew<L::First, L::Second>,
    ) -> Result<(), EngineError> {
        for frame in frames.frames {
            if !self.clock.flows(frame.time_ns) {
                let tick = self.clock.tick(frame.time_ns);
                self.step(tick, crew)?;
            }
            self.account.read += 1;
            self.earliest_ns = self.earliest_ns.min(frame.time_ns);
            self.latest_ns = self.latest_ns.max(frame.time_ns);
            let captured = frames.captured(frame);
            if let Some(filter) = &mut self.filter
                && !filter.matches(frame.link, captured, frame.wire).unwrap_or_else(|reason| {
                    self.unfit.get_or_insert_with(|| reason.to_string());
                    false
                })
            {
                self.account.filtered += 1;
                continue;
            }
            let pushed = match parse_common(frame.link, captured, self.inner) {
                Some(ip) => self.lanes.push(&Headers::V4(ip), frame.wire, frame.time_ns, crew),
                None => self.push_uncommon(frame, captured, crew),
            };
            match pushed {
                Ok(()) => self.stretch_left -= 1,
                Err(Keyless::NoKey(reason)) => self.account.count_no_key(reason),
                Err(Keyless::Malformed(malformed)) => self.account.count_malformed(malformed),
            }
            self.left -= 1;
            if self.stretch_left == 0 {
                self.end_stretch(crew)?;
            }
            if self.left == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Puts a packet into its lane that [`parse_common`] cannot tell.
    #[inline(never)]
    fn push_uncommon(
        &mut self,
        frame: &Frame,
        captured: &[u8],
        crew: &mut impl Crew<L::First, L::Second>,
    ) -> Result<(), Keyless> {
        let headers = if self.inner {
            parse_inner(frame.link, captured)
        } else {
            parse(frame.link, captured)
        };
        self.lanes.push(&headers, frame.wire, frame.time_ns, crew)
    }

    /// Acts on a time that is not an ordinary one, before a packet of it is counted.
    #[cold]
    fn step(
        &mut self,
        tick: Tick,
        crew: &mut impl Crew<L::First, L::Second>,
    ) -> Result<(), EngineError> {
        if tick.closes {
            self.close(crew)?;
        }
        if tick.updates {
            self.update(crew)?;
        }
        let closed = std::mem::replace(&mut self.bounds_ns, self.clock.bounds_ns());
        if let (Some((_, start_ns)), Some((end_ns, _))) = (closed, self.bounds_ns)
            && tick.gap > 0
        {
            crew.gap(&Gap { epoch: self.epoch, epochs: tick.gap, start_ns, end_ns })?;
            self.epoch += tick.gap;
        }
        self.account.late += u64::from(tick.late);
        self.account.backwards += u64::from(tick.backwards);
        self.account.jumps += u64::from(tick.jump);
        Ok(())
    }

    /// Acts on so many keyed packets. An update waits for what comes next: that may be the end.
    #[cold]
    fn end_stretch(
        &mut self,
        crew: &mut impl Crew<L::First, L::Second>,
    ) -> Result<(), EngineError> {
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
        self.told = 0;
        self.epoch_left = self.packets_per_epoch;
        self.next_stretch();
        (self.earliest_ns, self.latest_ns) = (i64::MAX, i64::MIN);
        self.unfit = None;
        self.lanes.forget();
    }

    /// Ends the open epoch, and opens the next.
    fn close(&mut self, crew: &mut impl Crew<L::First, L::Second>) -> Result<(), EngineError> {
        let ended = self.so_far(crew);
        crew.end(ended)?;
        self.begin();
        self.epoch += 1;
        self.ended += 1;
        Ok(())
    }

    /// Has told what is known of the open epoch, unless nothing was read since the last time.
    fn update(&mut self, crew: &mut impl Crew<L::First, L::Second>) -> Result<(), EngineError> {
        if self.account.read == self.told {
            return Ok(());
        }
        self.told = self.account.read;
        let so_far = self.so_far(crew);
        let bounds_ns =
            so_far.bounds_ns.map(|(start_ns, _)| (start_ns, self.latest_ns.max(start_ns)));
        crew.end(Ended { update: true, bounds_ns, ..so_far })
    }

    /// The open epoch as far as it went, all of which the crew then has.
    fn so_far(&mut self, crew: &mut impl Crew<L::First, L::Second>) -> Ended {
        self.lanes.flush(crew);
        let keyed = self.lanes.keyed();
        let mut account = self.account.clone();
        (account.keyed, account.keyed_bytes) = (keyed.packets, keyed.bytes);
        let times_ns = (account.read > 0).then_some((self.earliest_ns, self.latest_ns));
        Ended {
            epoch: self.epoch,
            update: false,
            account,
            unmeasured: self.lanes.unmeasured(),
            bounds_ns: self.bounds_ns.or(times_ns),
            times_ns,
            ends_ns: self.clock.ends_ns(),
            unfit: self.unfit.clone(),
        }
    }
}
