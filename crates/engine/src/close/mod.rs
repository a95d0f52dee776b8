//! The close of an epoch: the tasks are answered, and the report goes to the sink.

pub(crate) mod group;
pub(crate) mod queues;
mod widening;

use std::sync::Arc;

use flowgauge_core::key::{Field, KeyKind, KeySpec};
use flowgauge_core::services::{ServiceCounts, WITH_PORTS};
use flowgauge_core::sorting::sort_by;
use flowgauge_core::summary::{Candidates, Estimate, Spread};
use flowgauge_core::task::{EpochContext, Lane, Lists, Report, Selection, SizeItem, Task};
use flowgauge_core::terms::{Measure, Size, Threshold};
use flowgauge_kernel::{SeedId, Zeroed};

use crate::account::Account;
use crate::config::Config;
use crate::error::EngineError;
use crate::intake::Ended;
use crate::report::{Audit, Breakdown, EpochReport, Gap, SummaryInfo, TotalReport, Traffic};
use crate::sink::{Item, Sink, Takes, units};
use crate::snapshot::Saving;
use crate::summaries::{Summaries, View};
use widening::{UNKNOWN, Widening};

pub use group::{Closed, Group};

/// Coverage from which on an epoch is compared with others.
const WHOLE: f64 = 0.9;

/// Number of points of a series in a report.
const BINS: usize = 512;

/// Closes the epochs of one measurement, one at a time and in order.
pub(crate) struct Closer {
    pub(crate) key: KeySpec,
    by: Measure,
    seed: SeedId,
    threshold: Threshold,
    lists: Lists,
    pub(crate) tasks: Vec<Box<dyn Task>>,
    /// Working memory of the tasks, reserved at start.
    pub(crate) scratch: Zeroed<u64>,
    breakdown: BreakdownTask,
    pub(crate) summary: SummaryInfo,
    /// What is left out, and why.
    pub(crate) notes: Vec<String>,
    /// Stores closed epochs, if the configuration asks for it.
    saving: Option<Saving>,
    /// Start of the run of empty epochs right before the open one.
    quiet_ns: Option<i64>,
    /// The total of the epochs closed so far.
    pub(crate) total: TotalReport,
}

impl Closer {
    pub(crate) fn new(
        config: &Config,
        seed: SeedId,
        tasks: Vec<Box<dyn Task>>,
        scratch: Zeroed<u64>,
        summary: SummaryInfo,
        notes: Vec<String>,
    ) -> Self {
        Self {
            key: config.key,
            by: config.by,
            seed,
            threshold: config.threshold,
            lists: Lists { top: config.top, limit: config.list_limit },
            tasks,
            scratch,
            breakdown: BreakdownTask::new(),
            summary,
            notes,
            saving: None,
            quiet_ns: None,
            total: TotalReport::new(config.name.as_str().into()),
        }
    }

    /// Stores each closed epoch from now on.
    pub(crate) fn save(&mut self, saving: Saving) {
        self.total.run = Some(saving.run());
        self.saving = Some(saving);
    }

    /// The measurement and the run that its reports name.
    pub(crate) fn of(&self) -> (Arc<str>, Option<u64>) {
        (Arc::clone(&self.total.measurement), self.total.run)
    }

    /// Stores an epoch if the configuration asks for it, and reports the answers of its summaries.
    /// They are settled and share no flow.
    pub(crate) fn close(
        &mut self,
        ended: Ended,
        summaries: &[&Summaries],
        sink: &mut dyn Sink,
    ) -> Result<(), EngineError> {
        if let (Some(saving), [summaries], false) = (&mut self.saving, summaries, ended.update) {
            let saved = saving.save(&ended, self.quiet_ns, summaries)?;
            sink.deliver(&Item::Snapshot(Arc::new(saved)))?;
        }
        if !ended.update {
            self.quiet_ns = None;
        }
        let coverage = ended.coverage();
        self.report(ended, coverage, &View::new(self.key, summaries.iter().copied()), sink)
    }

    /// Reports the answers of a view to `sink`. The part `coverage` of the epoch was observed. An
    /// update omits what compares epochs.
    pub(crate) fn report(
        &mut self,
        ended: Ended,
        coverage: f64,
        view: &View<'_>,
        sink: &mut dyn Sink,
    ) -> Result<(), EngineError> {
        let lanes = &view.lanes()[..];
        let mut account = ended.account;
        let keyed = Traffic::keyed(ended.traffic, &account);
        let mut notes = self.notes.clone();
        notes.extend(
            account.reasons.unread().map(|link| format!("link type {link} is not supported")),
        );
        notes.extend(ended.unfit.map(|reason| format!("counted as filtered: {reason}")));
        notes.extend(ended.notes);
        notes.extend(stepped(ended.step_ns));
        notes.extend(ended.traffic.map(|traffic| sampled(traffic, &account)));
        notes.extend((ended.late_epochs > 0).then(|| late(ended.late_epochs)));
        notes.extend(ended.missing.iter().map(|queue| {
            format!(
                "queue {queue} did not deliver this epoch in time: its packets count in the next \
                 epoch"
            )
        }));
        full(lanes, &mut account, &mut notes);
        account.untracked += ended.unmeasured;
        account.outages = account.outages.max(ended.unseen.into());
        if self.key.kind().is_either() {
            leave_out_at_most(keyed, &mut account);
        }
        if !ended.update {
            self.total.add(&account, ended.traffic, ended.times_ns);
        }
        if sink.takes() == Takes::Snapshots {
            return Ok(());
        }
        let (by, threshold, lists) = (self.by, self.threshold, self.lists);
        let timeline = ended.timeline.as_deref();
        let context = EpochContext { by, keyed, threshold, lists, timeline };
        let widening = Widening::new(ended.traffic, keyed.packets, by);
        let audit = view.observed(by).map(|(one_in, observed)| Audit { one_in, observed });
        notes.extend(audit.and_then(|audit| unaudited(&audit, widening.is_some())));
        let audit = audit.filter(|_| widening.is_none()).map(Box::new);
        let mut tasks = Vec::with_capacity(self.tasks.len());
        for task in &mut self.tasks {
            if coverage < WHOLE && !ended.update && task.compares_epochs() {
                let (name, share) = (task.name(), units::percent(coverage));
                notes.push(format!(
                    "{name} is left out: it compares whole epochs, but only {share} of this epoch was \
                     observed"
                ));
                continue;
            }
            if ended.update && task.compares_epochs() {
                notes.push(format!("{} is left out of updates: it compares epochs", task.name()));
                continue;
            }
            let answer = task.run(&context, lanes, &mut self.scratch);
            let answer = answer.map_err(|reason| reason.to_string());
            let answer = match answer {
                Ok(report) if self.key.kind().is_either() => {
                    Ok(once(report, &context, account.skipped))
                }
                answer => answer,
            };
            let whole = answer.and_then(|report| match &widening {
                Some(widening) => widening.apply(report).ok_or_else(|| UNKNOWN.to_owned()),
                None => Ok(report),
            });
            match whole {
                Ok(report) => tasks.push((task.name(), report)),
                Err(reason) => notes.push(format!("{} is left out: {reason}", task.name())),
            }
        }
        if tasks.iter().any(|(_, report)| matches!(report, Report::Hierarchical { .. })) {
            notes.extend(lanes.iter().find_map(|lane| few(lane, &context)));
        }
        notes.extend(tasks.iter().filter_map(|(name, report)| truncated(name, report)));
        let flows = self.breakdown.run(self.by, lanes);
        let flows = flows.map(|flows| Breakdown { untracked: account.untracked, ..flows });
        let counted = || Some(breakdown_of(ended.services.as_ref()?, self.by));
        // A breakdown has no bounds.
        let breakdown = flows.or_else(counted).filter(|_| widening.is_none());
        sink.deliver(&Item::Epoch(Arc::new(EpochReport {
            measurement: Arc::clone(&self.total.measurement),
            run: self.total.run,
            update: ended.update,
            epoch: ended.epoch,
            start_ns: ended.bounds_ns.map(|(start_ns, _)| start_ns),
            end_ns: ended.bounds_ns.map(|(_, end_ns)| end_ns),
            coverage,
            missing: ended.missing.len(),
            key: self.key,
            by: self.by,
            seed: self.seed,
            account,
            traffic: ended.traffic,
            summary: self.summary.clone(),
            tasks,
            audit,
            breakdown,
            series: ended.timeline.map(|timeline| Box::new(timeline.series().within(BINS))),
            network: None,
            notes,
            undelivered: 0,
        })))?;
        Ok(())
    }

    /// Most bytes that a report takes while it is made, in an epoch of `flows` flows.
    pub(crate) fn report_bytes(&self, flows: usize) -> usize {
        self.tasks.iter().map(|task| task.report_bytes(self.lists, flows)).sum()
    }

    /// Notes a run of empty epochs, and reports it.
    pub(crate) fn gap(&mut self, gap: &Gap, sink: &mut dyn Sink) -> Result<(), EngineError> {
        sink.deliver(&Item::Gap(gap.clone()))?;
        self.quiet_ns = Some(gap.start_ns);
        for task in &mut self.tasks {
            task.pass(gap.epochs);
        }
        Ok(())
    }
}

/// The note on an epoch that ended before the closer was ready for it.
fn late(epochs: u64) -> String {
    format!(
        "late: this epoch includes {} before it, since no summaries were free then; use longer \
         epochs or fewer tasks",
        units::plural(epochs, "epoch")
    )
}

/// The note on an epoch of which a sample of the packets was read.
fn sampled(traffic: Traffic, account: &Account) -> String {
    if traffic.elsewhere.is_some() {
        return format!(
            "packets were sampled before they came here, up to 1 in {}: sizes are estimates, and numbers \
             of peers and flows lower bounds",
            traffic.one_in()
        );
    }
    let (read, all) = (account.read - account.skipped.packets, account.read);
    format!(
        "sampling before headers read {} of {}: keyed traffic, thresholds and shares are estimates",
        units::count(read as f64),
        units::plural(all, "packet")
    )
}

/// The note on what an audit does not cover.
fn unaudited(audit: &Audit, sampled: bool) -> Option<String> {
    if sampled {
        return Some("audit is left out: packets were sampled before they came here".to_owned());
    }
    let packets = audit.observed.untracked.packets;
    (packets > 0).then(|| {
        format!(
            "the table of the audit was full: {} of its slice are not compared; raise --memory, or \
             audit a smaller slice",
            units::plural(packets, "packet")
        )
    })
}

/// Limits what is left out of keys of both ends to the keyed traffic: it may be both ends of a packet.
fn leave_out_at_most(keyed: Size, account: &mut Account) {
    for ends in [&mut account.untracked, &mut account.dropped] {
        ends.packets = ends.packets.min(keyed.packets);
        ends.bytes = ends.bytes.min(keyed.bytes);
    }
}

/// The note on an epoch that ended early, or before a long gap, because packet time stepped.
fn stepped(step_ns: i64) -> Option<String> {
    let by = units::duration(i128::from(step_ns).abs());
    match step_ns {
        0 => None,
        1.. => {
            Some(format!("the packets' timestamps jumped forward by {by}, which ended this epoch"))
        }
        _ => Some(format!("the packets' timestamps jumped back by {by}, which ended this epoch")),
    }
}

/// The note on a list that is not complete.
fn truncated(task: &str, report: &Report) -> Option<String> {
    let (items, truncated) = report.listed().filter(|(_, truncated)| *truncated > 0)?;
    let all = items + truncated;
    Some(format!("{task} lists {items} of {all} items; --limit lists more"))
}

/// Adds what the lanes had no room for to the account, and notes what it may hide.
fn full(lanes: &[Lane<'_>], account: &mut Account, notes: &mut Vec<String>) {
    for lane in lanes {
        account.untracked += lane.answers.untracked();
        account.saturated += lane.answers.saturated();
        let heavy = lane.answers.candidates().map_or(0, Candidates::overflow);
        if heavy > 0 && lane.answers.flows().is_some() {
            notes.push(format!(
                "the sketch did not decode {}: some may be missing; raise --memory, or use a \
                 coarser key or shorter epochs",
                units::plural(heavy, "flow")
            ));
        } else if heavy > 0 {
            notes.push(format!(
                "the set of heavy keys overflowed {}: some may be missing; raise --threshold, \
                 --memory, or the parameter candidates",
                units::plural(heavy, "time")
            ));
        }
        let spread = lane.answers.spread().map_or(0, Spread::overflow);
        if spread > 0 {
            notes.push(format!(
                "the superspreader set overflowed {}: some may be missing; raise --spread or \
                 --memory",
                units::plural(spread, "time")
            ));
        }
    }
    if account.untracked.packets > 0 {
        let why = if lanes.iter().any(|lane| lane.answers.displaces()) {
            "flows were displaced by others in the same slot"
        } else {
            "the table was full, or keys collided"
        };
        notes.push(format!(
            "{why}: untracked packets may hide heavy flows and superspreaders; raise --memory, or use \
             a coarser key or shorter epochs"
        ));
    }
    if account.dropped.packets > 0 {
        notes.push(
            "the workers were too slow: answers and bounds do not cover dropped packets; use \
             more workers, or a cheaper algorithm or key"
                .to_owned(),
        );
    }
}

/// Limits the sizes of keys of both ends to the traffic, upper bounds to the keyed and the `skipped`
/// packets. A summary takes each packet for two, and so do its bounds, but a key has it once.
fn once(report: Report, epoch: &EpochContext<'_>, skipped: Size) -> Report {
    let Report::Sizes { selection, mut items, truncated, complete_to } = report else {
        return report;
    };
    let most = epoch.keyed + skipped;
    let limited = |estimate: Estimate, by: Measure| {
        let value = estimate.value.min(epoch.keyed.by(by) as f64);
        let high = estimate.high.min(most.by(by) as f64);
        Estimate { value, low: estimate.low.min(value), high, ..estimate }
    };
    for SizeItem { size, share, .. } in &mut items {
        size.packets = size.packets.map(|packets| limited(packets, Measure::Packets));
        size.bytes = size.bytes.map(|bytes| limited(bytes, Measure::Bytes));
        *share = share.min(1.0);
    }
    if selection != Selection::Asked {
        let value = |item: &SizeItem| item.size.by(epoch.by).map_or(0.0, |size| size.value);
        sort_by(&mut items, &|one, other| {
            value(other).total_cmp(&value(one)).then(one.key.cmp(&other.key))
        });
    }
    Report::Sizes { selection, items, truncated, complete_to }
}

/// The note on a lane that counts prefixes in a sample too small for the threshold.
fn few(lane: &Lane<'_>, epoch: &EpochContext<'_>) -> Option<String> {
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
            "the sample is too small for prefixes of {threshold:.1} {by}: listed prefixes may be \
             smaller, and larger ones may be missing; {measure_more}raise --threshold to \
             {least:.0} {by}, or use --algorithm mst, which counts every packet"
        )
    })
}

/// Ports that a report lists at most.
const MOST_PORTS: usize = 10;

/// Counts traffic by protocol and by service port in tables that are reserved once (6 MB). It reads
/// the flows if a summary holds all of them and their keys have both fields. Otherwise the
/// breakdown comes from counts made packet by packet.
struct BreakdownTask {
    protocols: Box<[Size; 256]>,
    ports: Vec<Size>,
    /// The places in `ports` that are not 0: an epoch of few flows reads and clears no others.
    used: Vec<u32>,
}

impl BreakdownTask {
    pub(crate) fn new() -> Self {
        Self {
            protocols: Box::new([Size::default(); 256]),
            ports: vec![Size::default(); WITH_PORTS.len() << 16],
            used: Vec::with_capacity(WITH_PORTS.len() << 16),
        }
    }

    /// Counts the lanes' flows; `None` if the key lacks a field or the summary does not list its
    /// flows.
    pub(crate) fn run(&mut self, by: Measure, lanes: &[Lane<'_>]) -> Option<Breakdown> {
        if lanes.iter().any(|lane| !lane.key.kind().has_all(KeyKind::FIVE_TUPLE)) {
            return None;
        }
        let place = |lane: &Lane<'_>, field| lane.key.place(field, lane.key_bytes);
        self.protocols.fill(Size::default());
        for place in self.used.drain(..) {
            self.ports[place as usize] = Size::default();
        }
        for lane in lanes {
            let numbers = place(lane, Field::SourcePort)?.start..place(lane, Field::Protocol)?.end;
            lane.answers.flows()?.for_each(&mut |key, size| {
                let [a, b, c, d, protocol] = key[numbers.clone()] else { return };
                self.protocols[usize::from(protocol)] += size;
                if let Some(at) = WITH_PORTS.iter().position(|with| *with == protocol) {
                    let service = u16::from_be_bytes([a, b]).min(u16::from_be_bytes([c, d]));
                    let place = at << 16 | usize::from(service);
                    if self.ports[place].packets == 0 && size.packets > 0 {
                        self.used.push(place as u32);
                    }
                    self.ports[place] += size;
                }
            });
        }
        let protocols = (0..=255u8)
            .zip(self.protocols.iter().copied())
            .filter(|(_, size)| size.packets > 0)
            .collect();
        let port = |&at: &u32| (WITH_PORTS[at as usize >> 16], at as u16, self.ports[at as usize]);
        let ports = self.used.iter().map(port).collect();
        Some(sorted(protocols, ports, by))
    }
}

/// The breakdown of traffic that was counted packet by packet.
fn breakdown_of(services: &ServiceCounts, by: Measure) -> Breakdown {
    sorted(services.protocols().collect(), services.ports().collect(), by)
}

fn sorted(
    mut protocols: Vec<(u8, Size)>,
    mut ports: Vec<(u8, u16, Size)>,
    by: Measure,
) -> Breakdown {
    sort_by(&mut protocols, &|(_, one), (_, other)| other.by(by).cmp(&one.by(by)));
    sort_by(&mut ports, &|one, other| {
        other.2.by(by).cmp(&one.2.by(by)).then((one.0, one.1).cmp(&(other.0, other.1)))
    });
    ports.truncate(MOST_PORTS);
    Breakdown { protocols, ports, untracked: Size::default() }
}
