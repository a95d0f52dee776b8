//! The run: packets in, reports out, in one thread.

use flowgauge_capture::{CaptureError, Frame, Frames, Source};
use flowgauge_core::packet::{Headers, parse, parse_common, parse_inner};
use flowgauge_core::summary::{Candidates, Spread};
use flowgauge_core::task::{EpochContext, Lane, Report, Task, Threshold};

use crate::account::Account;
use crate::breakdown::BreakdownTask;
use crate::clock::{Clock, Tick};
use crate::config::{Config, EpochLength};
use crate::error::EngineError;
use crate::lanes::{Keyless, Lanes};
use crate::report::{EpochReport, Gap, SummaryInfo, TotalReport};
use crate::sink::Sink;

/// Where packets come from.
pub type Packets<'a> = dyn Source<Error = CaptureError> + 'a;

/// A run whose key types are known at compile time.
pub(crate) struct Engine<L> {
    pub(crate) config: Config,
    pub(crate) lanes: L,
    pub(crate) tasks: Vec<Box<dyn Task>>,
    pub(crate) scratch: Scratch,
    pub(crate) summary: SummaryInfo,
    /// What is left out, and why.
    pub(crate) notes: Vec<String>,
    /// Why the filter could not judge some packets.
    pub(crate) unfit: Option<String>,
}

/// What the tasks work in, reserved at start.
pub(crate) struct Scratch {
    pub(crate) words: flowgauge_kernel::Zeroed<u64>,
    pub(crate) breakdown: BreakdownTask,
}

/// What a run came to, beside its reports.
#[derive(Debug)]
pub struct Outcome {
    /// What was wrong with the inputs, in the order of their reading.
    pub problems: Vec<CaptureError>,
    /// The last report.
    pub total: TotalReport,
}

/// The part of a run that is open: its clock, and the account of its epoch.
struct Open {
    clock: Clock,
    account: Account,
    /// Packets that may still be read under `-c`, of those that pass the filter.
    left: u64,
    /// Keyed packets that the open epoch still takes.
    epoch_left: u64,
    epoch: u64,
    /// Bounds of the open time epoch.
    bounds_ns: Option<(i64, i64)>,
    /// Times of the earliest and the latest packet of the open epoch.
    earliest_ns: i64,
    latest_ns: i64,
    /// Packets lost so far, by the source's count.
    lost: u64,
    /// Over the epochs closed so far.
    total: TotalReport,
}

impl<L: Lanes> Engine<L> {
    /// Reads `source` to its end, or to the limit, and reports to `sink`.
    pub(crate) fn run(
        &mut self,
        source: &mut Packets<'_>,
        sink: &mut dyn Sink,
        progress: &mut dyn FnMut(&Packets<'_>),
    ) -> Result<Outcome, EngineError> {
        let mut open = Open {
            clock: Clock::new(self.config.epoch),
            account: Account::default(),
            left: self.config.limit.unwrap_or(u64::MAX),
            epoch_left: self.packets_per_epoch(),
            epoch: 0,
            bounds_ns: None,
            earliest_ns: i64::MAX,
            latest_ns: i64::MIN,
            lost: 0,
            total: TotalReport::default(),
        };
        let mut problems = Vec::new();
        while open.left > 0 {
            match source.poll() {
                Ok(Some(frames)) => self.take(&frames, &mut open, sink)?,
                Ok(None) => break,
                Err(problem) => problems.push(problem),
            }
            let lost = source.lost();
            open.account.lost += lost - open.lost;
            open.lost = lost;
            while let Some(tick) = source.clock_ns().and_then(|now_ns| open.clock.passes(now_ns)) {
                self.step(tick, &mut open, sink)?;
            }
            progress(source);
        }
        let unreadable =
            |problem: &CaptureError| matches!(problem, CaptureError::Unreadable { .. });
        let nothing_to_read = !problems.is_empty()
            && problems.iter().filter(|problem| unreadable(problem)).count()
                == source.files().len();
        // A run over sound but empty input is one empty epoch; one over no input is none.
        let holds = open.account.read > 0 || open.account.lost > 0;
        if holds || (open.total.epochs == 0 && !nothing_to_read) {
            self.close(&mut open, sink)?;
        }
        let mut total = open.total;
        total.files = source.files().iter().map(|file| file.file.clone()).collect();
        total.irregular = source.files().iter().map(|file| file.irregular).sum();
        total.problems = problems.iter().map(ToString::to_string).collect();
        sink.total(&total)?;
        Ok(Outcome { problems, total })
    }

    fn packets_per_epoch(&self) -> u64 {
        match self.config.epoch {
            EpochLength::Packets(packets) => packets,
            EpochLength::Whole | EpochLength::Time(_) => u64::MAX,
        }
    }

    fn take(
        &mut self,
        frames: &Frames<'_>,
        open: &mut Open,
        sink: &mut dyn Sink,
    ) -> Result<(), EngineError> {
        for frame in frames.frames {
            if !open.clock.flows(frame.time_ns) {
                let tick = open.clock.tick(frame.time_ns);
                self.step(tick, open, sink)?;
            }
            open.account.read += 1;
            open.earliest_ns = open.earliest_ns.min(frame.time_ns);
            open.latest_ns = open.latest_ns.max(frame.time_ns);
            let captured = frames.captured(frame);
            if let Some(filter) = &mut self.config.filter
                && !filter.matches(frame.link, captured, frame.wire).unwrap_or_else(|reason| {
                    self.unfit.get_or_insert_with(|| reason.to_string());
                    false
                })
            {
                open.account.filtered += 1;
                continue;
            }
            let pushed = match parse_common(frame.link, captured, self.config.inner) {
                Some(ip) => self.lanes.push(&Headers::V4(ip), frame.wire, frame.time_ns),
                None => self.push_uncommon(frame, captured),
            };
            match pushed {
                Ok(()) => open.epoch_left -= 1,
                Err(Keyless::NoKey(reason)) => open.account.count_no_key(reason),
                Err(Keyless::Malformed(malformed)) => open.account.count_malformed(malformed),
            }
            open.left -= 1;
            if open.epoch_left == 0 {
                self.close(open, sink)?;
            }
            if open.left == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Puts a packet into its lane that [`parse_common`] cannot tell.
    #[inline(never)]
    fn push_uncommon(&mut self, frame: &Frame, captured: &[u8]) -> Result<(), Keyless> {
        let headers = if self.config.inner {
            parse_inner(frame.link, captured)
        } else {
            parse(frame.link, captured)
        };
        self.lanes.push(&headers, frame.wire, frame.time_ns)
    }

    /// Acts on a packet whose time is not an ordinary one, before the packet is counted.
    fn step(
        &mut self,
        tick: Tick,
        open: &mut Open,
        sink: &mut dyn Sink,
    ) -> Result<(), EngineError> {
        if tick.closes {
            self.close(open, sink)?;
        }
        let closed = std::mem::replace(&mut open.bounds_ns, open.clock.bounds_ns());
        if let (Some((_, start_ns)), Some((end_ns, _))) = (closed, open.bounds_ns)
            && tick.gap > 0
        {
            sink.gap(&Gap { epoch: open.epoch, epochs: tick.gap, start_ns, end_ns })?;
            for task in &mut self.tasks {
                task.pass(tick.gap);
            }
            open.epoch += tick.gap;
        }
        open.account.late += u64::from(tick.late);
        open.account.backwards += u64::from(tick.backwards);
        open.account.jumps += u64::from(tick.jump);
        Ok(())
    }

    /// Closes the open epoch: answers, reports, forgets.
    fn close(&mut self, open: &mut Open, sink: &mut dyn Sink) -> Result<(), EngineError> {
        self.lanes.settle();
        let keyed = self.lanes.keyed();
        let lanes = self.lanes.views();
        let mut account = std::mem::take(&mut open.account);
        account.keyed = keyed.packets;
        account.keyed_bytes = keyed.bytes;
        let mut notes = self.notes.clone();
        notes.extend(self.unfit.take().map(|reason| format!("counted as filtered: {reason}")));
        for lane in &lanes {
            account.untracked += lane.answers.untracked();
            account.saturated += lane.answers.saturated();
            let heavy = lane.answers.candidates().map_or(0, Candidates::overflow);
            if heavy > 0 {
                notes.push(format!(
                    "heavy keys found no room {heavy} times: some may be missing; raise the \
                     threshold or the memory, or the parameter candidates where there is one"
                ));
            }
            let spread = lane.answers.spread().map_or(0, Spread::overflow);
            if spread > 0 {
                notes.push(format!(
                    "addresses that spread found no room {spread} times: some may be missing; raise \
                     the spread or the memory"
                ));
            }
        }
        if account.untracked.packets > 0 {
            notes.push(
                "the table was full: untracked packets may hide heavy flows and spreaders; raise \
                 the memory, or choose a coarser key or shorter epochs"
                    .to_owned(),
            );
        }
        account.untracked += self.lanes.unmeasured();
        let context = EpochContext {
            by: self.config.by,
            keyed,
            threshold: self.config.threshold,
            top: self.config.top,
        };
        let mut tasks = Vec::with_capacity(self.tasks.len());
        for task in &mut self.tasks {
            match task.run(&context, &lanes, &mut self.scratch.words) {
                Ok(report) => tasks.push((task.name(), report)),
                Err(reason) => notes.push(format!("{} is left out: {reason}", task.name())),
            }
        }
        if tasks.iter().any(|(_, report)| matches!(report, Report::Hierarchical { .. })) {
            notes.extend(lanes.iter().find_map(|lane| few(lane, &context)));
        }
        let breakdown = self.scratch.breakdown.run(self.config.by, &lanes);
        let times = (account.read > 0).then_some((open.earliest_ns, open.latest_ns));
        let bounds = open.bounds_ns.or(times);
        sink.epoch(&EpochReport {
            epoch: open.epoch,
            start_ns: bounds.map(|(start_ns, _)| start_ns),
            end_ns: bounds.map(|(_, end_ns)| end_ns),
            key: self.config.key,
            by: self.config.by,
            account: account.clone(),
            summary: self.summary.clone(),
            tasks,
            breakdown,
            notes,
        })?;
        open.closed(&account);
        open.epoch_left = self.packets_per_epoch();
        self.lanes.next_epoch();
        Ok(())
    }
}

/// What to say of a lane that counts prefixes in a sample too small for the threshold.
fn few(lane: &Lane<'_>, epoch: &EpochContext) -> Option<String> {
    let (least, by) = (lane.answers.prefixes()?.sampling()?.least(), epoch.by.name());
    let threshold = epoch.threshold_weight();
    let measure_more = match epoch.threshold {
        Threshold::Share(share) if share > 0.0 => {
            format!("measure {:.0} {by} an epoch, ", (least / share).ceil())
        }
        _ => String::new(),
    };
    (threshold < least).then(|| {
        format!(
            "the sample is too small for prefixes of {threshold:.1} {by}: some that are listed may \
             weigh less, and some that weigh more may be missing; {measure_more}raise the threshold \
             to {least:.0} {by}, or use mst, which counts every packet"
        )
    })
}

impl Open {
    /// Adds a closed epoch to the total, and opens the next.
    fn closed(&mut self, account: &Account) {
        let total = &mut self.total;
        total.epochs += 1;
        total.account.add(account);
        if account.read > 0 {
            let earliest_ns = self.earliest_ns.min(total.start_ns.unwrap_or(i64::MAX));
            let latest_ns = self.latest_ns.max(total.end_ns.unwrap_or(i64::MIN));
            (total.start_ns, total.end_ns) = (Some(earliest_ns), Some(latest_ns));
        }
        self.epoch += 1;
        self.earliest_ns = i64::MAX;
        self.latest_ns = i64::MIN;
    }
}
