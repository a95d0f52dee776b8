//! Merges messages with snapshots into network-wide reports.

use std::collections::BTreeMap;
use std::sync::Arc;

use flowgauge_engine::report::{EpochReport, LeftOut, Network};
use flowgauge_engine::sink::{Each, units};
use flowgauge_engine::snapshot::{Coverage, Snapshot};
use flowgauge_engine::{Config, EngineError, EpochLength};
use flowgauge_kernel::Seed;

use super::counts::{Counts, Outcome};
use super::epoch::Refusal;
use super::epoch::{Added, Epoch, PartId, hash};
use super::known::Known;

/// Maximum number of rejected snapshots that are held until the first good one of their epoch
/// arrives.
const STRAYS: usize = 1000;

/// Names listed in a note; JSON lists all.
const NAMED: usize = 10;

/// How long the collector waits for epochs and keeps them, and its memory limit.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Wait for missing agents, from the end of an epoch or its first message, whichever is later,
    /// to its report; in nanoseconds.
    pub delay_ns: i64,
    /// Time after that report in which late snapshots correct it, in nanoseconds.
    pub keep_ns: i64,
    /// Memory limit in bytes for the summaries of all kept epochs.
    pub memory_bytes: usize,
}

/// What the reports of a measurement answer.
#[derive(Clone, Debug, Default)]
pub struct Ask {
    /// The tasks, by default all that the summary can answer.
    pub tasks: Option<Vec<String>>,
    /// Items in lists such as `top`, by default as the measurement has it.
    pub top: Option<usize>,
}

/// A message that carries a snapshot.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// The partition of the topic.
    pub partition: i32,
    /// The offset in the partition. Offsets grow.
    pub offset: i64,
    /// The agent that sent it.
    pub agent: &'a str,
    /// The id of the snapshot, unique per agent.
    pub id: &'a str,
    /// Measurement and epoch start, to name a snapshot that cannot be decoded.
    pub of: Option<(&'a str, i64)>,
    /// The snapshot.
    pub bytes: &'a [u8],
}

/// The outcome of a message, and the reason if it was not merged.
#[derive(Debug)]
pub struct Fed {
    /// The outcome.
    pub outcome: Outcome,
    /// The field that prevents the merge, and what is wrong with it.
    pub why: Option<(&'static str, String)>,
}

/// Where to resume a partition after a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// The partition.
    pub partition: i32,
    /// The first message that is still needed, otherwise the next one.
    pub offset: i64,
    /// The state to pass to [`Collector::assign`].
    pub floors: String,
}

/// A measurement and an epoch start.
type Key = (Arc<str>, i64);

/// The state of a partition.
#[derive(Default)]
struct Partition {
    /// The offset after its last message; `None` before the first.
    next: Option<i64>,
    /// The latest epoch of each measurement that is no longer kept. Epochs up to it are too late.
    floors: BTreeMap<Arc<str>, i64>,
}

/// A rejected snapshot whose epoch has no good one yet.
struct Stray {
    agent: Arc<str>,
    refusal: Refusal,
    place: (i32, i64),
    seen_ns: i64,
}

/// Merges snapshots by measurement and epoch, each exactly once.
pub struct Collector {
    limits: Limits,
    seed: Option<Seed>,
    asks: BTreeMap<Arc<str>, Ask>,
    known: Known,
    epochs: BTreeMap<Key, Epoch>,
    strays: BTreeMap<Key, Vec<Stray>>,
    partitions: BTreeMap<i32, Partition>,
    /// Late snapshots per measurement and agent since the last report.
    late: BTreeMap<Arc<str>, BTreeMap<Arc<str>, u64>>,
    /// One snapshot per measurement that is no longer needed; the next one is decoded into its
    /// memory.
    spares: BTreeMap<Arc<str>, Snapshot>,
    counts: Counts,
}

impl Collector {
    /// Creates a collector of these measurements. `seed` is from the seed file that all agents
    /// share.
    pub fn new(
        limits: Limits,
        seed: Option<Seed>,
        asks: impl IntoIterator<Item = (String, Ask)>,
        known: Known,
    ) -> Self {
        Self {
            limits,
            seed,
            asks: asks.into_iter().map(|(name, ask)| (name.into(), ask)).collect(),
            known,
            epochs: BTreeMap::new(),
            strays: BTreeMap::new(),
            partitions: BTreeMap::new(),
            late: BTreeMap::new(),
            spares: BTreeMap::new(),
            counts: Counts::default(),
        }
    }

    /// Number of messages since the start, by outcome.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The agents that reports wait for.
    pub fn known(&self) -> &Known {
        &self.known
    }

    /// Takes over a partition from another collector, or after a restart, with the floors of its
    /// [`Position`].
    pub fn assign(&mut self, partition: i32, floors: &str) {
        let floors: BTreeMap<String, i64> = serde_json::from_str(floors).unwrap_or_default();
        let floors = floors.into_iter().map(|(name, floor)| (name.into(), floor)).collect();
        self.partitions.insert(partition, Partition { next: None, floors });
    }

    /// Gives up a partition, with every epoch that has messages from it.
    pub fn revoke(&mut self, partition: i32) {
        self.partitions.remove(&partition);
        self.epochs.retain(|_, epoch| !epoch.offsets.contains_key(&partition));
        for strays in self.strays.values_mut() {
            strays.retain(|stray| stray.place.0 != partition);
        }
        self.strays.retain(|_, strays| !strays.is_empty());
    }

    /// Where to resume each partition after a restart: no kept epoch has an earlier message. A
    /// partition without messages has no position.
    pub fn positions(&self) -> Vec<Position> {
        let position = |(partition, known): (&i32, &Partition)| {
            let next = known.next?;
            let epochs = self.epochs.values().filter_map(|epoch| epoch.offsets.get(partition));
            let strays = self.strays.values().flatten().map(|stray| &stray.place);
            let strays = strays.filter(|place| place.0 == *partition).map(|place| &place.1);
            let offset = epochs.chain(strays).copied().fold(next, i64::min);
            let floors = known.floors.iter().map(|(name, floor)| (&**name, floor));
            let floors = serde_json::to_string(&floors.collect::<BTreeMap<_, _>>());
            Some(Position { partition: *partition, offset, floors: floors.unwrap_or_default() })
        };
        self.partitions.iter().filter_map(position).collect()
    }

    /// Skips a message that is not a snapshot.
    pub fn pass(&mut self, partition: i32, offset: i64) {
        self.partitions.entry(partition).or_default().next = Some(offset + 1);
    }

    /// Processes a message that was read at `now_ns`.
    pub fn feed(&mut self, message: &Message<'_>, now_ns: i64) -> Fed {
        self.pass(message.partition, message.offset);
        let (outcome, why) = match self.take(message, now_ns) {
            Ok(outcome) => (outcome, None),
            Err(refusal) => (Outcome::LeftOut, Some((refusal.field, refusal.reason))),
        };
        self.counts.add(outcome, message.agent);
        Fed { outcome, why }
    }

    fn take(&mut self, message: &Message<'_>, now_ns: i64) -> Result<Outcome, Refusal> {
        let agent: Arc<str> = message.agent.into();
        let decoded = if self.known.takes(message.agent) {
            self.decode(message).and_then(|snapshot| {
                let (start_ns, end_ns, is_last) = time(&snapshot)?;
                Ok((snapshot, start_ns, end_ns, is_last))
            })
        } else {
            Err(Refusal::new("agent", "it is not in the list of agents"))
        };
        let (snapshot, start_ns, end_ns, is_last) = match decoded {
            Ok(decoded) => decoded,
            Err(refusal) => {
                self.leave_out(message, agent, refusal.clone(), now_ns);
                return Err(refusal);
            }
        };
        let Some((measurement, _)) = self.asks.get_key_value(&*snapshot.config().name) else {
            return Ok(Outcome::NotCollected);
        };
        let key = (Arc::clone(measurement), start_ns);
        if !self.epochs.contains_key(&key) && self.is_late(message.partition, &key) {
            *self.late.entry(key.0).or_default().entry(agent).or_default() += 1;
            return Ok(Outcome::Late);
        }
        let ahead_ns = start_ns.saturating_sub(now_ns);
        if ahead_ns > self.limits.keep_ns {
            let by = units::duration(ahead_ns.into());
            let refusal = Refusal::new("time", format!("its epoch begins {by} in the future"));
            return Err(refusal);
        }
        self.make_room(&key, &snapshot)?;
        let is_new = !self.epochs.contains_key(&key);
        let strays = if is_new { self.strays.remove(&key) } else { None };
        let epoch = self.epochs.entry(key.clone()).or_insert_with(|| Epoch::new(end_ns, now_ns));
        for stray in strays.into_iter().flatten() {
            epoch.came(stray.place);
            epoch.leave_out(&stray.agent, &stray.refusal, now_ns);
        }
        epoch.came((message.partition, message.offset));
        let id: PartId = (Arc::clone(&agent), message.id.into());
        let (added, spare) = epoch.add(id, hash(message.bytes), snapshot, is_last, now_ns);
        if let Some(spare) = spare {
            self.spares.insert(Arc::clone(&key.0), spare);
        }
        match added {
            Added::Merged => {
                self.known.saw(&key.0, &agent, now_ns);
                Ok(Outcome::Merged)
            }
            Added::Duplicate => Ok(Outcome::Duplicate),
            Added::Conflict => Ok(Outcome::Conflict),
            Added::LeftOut(refusal) => Err(refusal),
        }
    }

    /// Decodes the snapshot of a message.
    fn decode(&mut self, message: &Message<'_>) -> Result<Snapshot, Refusal> {
        let (limit, seed) = (self.limits.memory_bytes, self.seed.as_ref());
        let spare = message.of.and_then(|(name, _)| self.spares.remove(name));
        let decoded = match spare {
            Some(spare) => Snapshot::decode_again(message.bytes, limit, seed, spare),
            None => Snapshot::decode(message.bytes, limit, seed),
        };
        decoded.map_err(Refusal::from)
    }

    /// Notes a snapshot that cannot be merged, so that its epoch's report names it.
    fn leave_out(&mut self, message: &Message<'_>, agent: Arc<str>, refusal: Refusal, now_ns: i64) {
        let of = message.of.and_then(|(name, start_ns)| {
            Some((Arc::clone(self.asks.get_key_value(name)?.0), start_ns))
        });
        let Some(key) = of else { return };
        let place = (message.partition, message.offset);
        if let Some(epoch) = self.epochs.get_mut(&key) {
            epoch.came(place);
            epoch.leave_out(&agent, &refusal, now_ns);
        } else if !self.is_late(message.partition, &key)
            && self.strays.values().map(Vec::len).sum::<usize>() < STRAYS
        {
            let stray = Stray { agent, refusal, place, seen_ns: now_ns };
            self.strays.entry(key).or_default().push(stray);
        }
    }

    /// Whether an epoch was kept and no longer is.
    fn is_late(&self, partition: i32, (measurement, start_ns): &Key) -> bool {
        let floor = self.partitions.get(&partition).and_then(|known| known.floors.get(measurement));
        floor.is_some_and(|floor| start_ns <= floor)
    }

    /// Makes room for a snapshot by dropping the oldest reported epochs.
    fn make_room(&mut self, key: &Key, snapshot: &Snapshot) -> Result<(), Refusal> {
        if self.epochs.get(key).is_some_and(|epoch| !epoch.is_new(snapshot)) {
            return Ok(());
        }
        let (needed, limit) = (snapshot.memory_bytes(), self.limits.memory_bytes);
        loop {
            let held: usize = self.epochs.values().map(Epoch::memory_bytes).sum();
            if held + needed <= limit {
                return Ok(());
            }
            let is_done = |epoch: &Epoch| epoch.closed_ns.is_some() && epoch.changed_ns.is_none();
            let oldest = self.epochs.iter().filter(|(of, epoch)| *of != key && is_done(epoch));
            let Some(oldest) = oldest.map(|(of, _)| of.clone()).min_by_key(|of| of.1) else {
                let (held, limit) = (units::memory(held), units::memory(limit));
                let reason = format!("the epochs that are kept take {held} of {limit}");
                return Err(Refusal::new("memory", reason));
            };
            self.drop_epoch(&oldest);
        }
    }

    /// Drops an epoch. From now on, it and earlier ones are too late.
    fn drop_epoch(&mut self, key: &Key) {
        let Some(epoch) = self.epochs.remove(key) else { return };
        for partition in epoch.offsets.keys() {
            let floors = &mut self.partitions.entry(*partition).or_default().floors;
            let floor = floors.entry(Arc::clone(&key.0)).or_insert(key.1);
            *floor = key.1.max(*floor);
        }
    }

    /// Reports the epochs for which every agent has sent its last snapshot.
    ///
    /// # Errors
    /// When a report cannot be made.
    pub fn close_complete(
        &mut self,
        now_ns: i64,
        emit: &mut dyn FnMut(EpochReport, &Snapshot),
    ) -> Result<(), EngineError> {
        let known = &self.known;
        let complete = self.epochs.iter().filter(|((measurement, _), epoch)| {
            epoch.changed_ns.is_some()
                && epoch.has_heard(known.len(measurement), || known.of(measurement))
        });
        let complete: Vec<_> = complete.map(|(key, _)| key.clone()).collect();
        complete.iter().try_for_each(|key| self.report(key, now_ns, emit))
    }

    /// Reports the epochs whose wait is over, corrects reported ones that changed, and drops those
    /// kept long enough. Call it when all messages from before `now_ns` have been read.
    ///
    /// # Errors
    /// When a report cannot be made.
    pub fn advance(
        &mut self,
        now_ns: i64,
        emit: &mut dyn FnMut(EpochReport, &Snapshot),
    ) -> Result<(), EngineError> {
        let Limits { delay_ns, keep_ns, .. } = self.limits;
        self.known.forget(now_ns);
        self.close_complete(now_ns, emit)?;
        let is_due = |epoch: &Epoch| {
            let since_ns = match epoch.closed_ns {
                None => Some(epoch.end_ns.max(epoch.seen_ns)),
                Some(_) => epoch.changed_ns,
            };
            since_ns.is_some_and(|since_ns| now_ns >= since_ns.saturating_add(delay_ns))
        };
        let due = self.epochs.iter().filter(|(_, epoch)| is_due(epoch));
        let due: Vec<_> = due.map(|(key, _)| key.clone()).collect();
        due.iter().try_for_each(|key| self.report(key, now_ns, emit))?;
        let is_old = |since_ns: i64| now_ns >= since_ns.saturating_add(keep_ns);
        let mut old = Vec::new();
        // In time order: an epoch stays as long as an earlier one does.
        for of_one in
            self.epochs.iter().collect::<Vec<_>>().chunk_by(|one, next| one.0.0 == next.0.0)
        {
            let is_old =
                |epoch: &Epoch| epoch.changed_ns.is_none() && epoch.closed_ns.is_some_and(is_old);
            let of_one = of_one.iter().take_while(|(_, epoch)| is_old(epoch));
            old.extend(of_one.map(|(key, _)| (*key).clone()));
        }
        for key in &old {
            self.drop_epoch(key);
        }
        for strays in self.strays.values_mut() {
            strays.retain(|stray| !is_old(stray.seen_ns.saturating_add(delay_ns)));
        }
        self.strays.retain(|_, strays| !strays.is_empty());
        Ok(())
    }

    fn report(
        &mut self,
        key: &Key,
        now_ns: i64,
        emit: &mut dyn FnMut(EpochReport, &Snapshot),
    ) -> Result<(), EngineError> {
        let (measurement, start_ns) = key;
        let Some(epoch) = self.epochs.get_mut(key) else { return Ok(()) };
        epoch.closed_ns.get_or_insert(now_ns);
        epoch.changed_ns = None;
        let known = self.known.of(measurement);
        let Some((sum, mut network)) = epoch.report(measurement, *start_ns, known) else {
            return Ok(());
        };
        let late = self.late.remove(measurement).unwrap_or_default();
        network.late = late.into_iter().map(|(agent, late)| (agent.to_string(), late)).collect();
        let ask = self.asks.get(measurement).cloned().unwrap_or_default();
        let asked = |config: &mut Config| {
            config.tasks = ask.tasks;
            config.top = ask.top.unwrap_or(config.top);
        };
        let mut answered = None;
        sum.query(
            asked,
            &mut Each(|report: &EpochReport| {
                answered = Some(report.clone());
                Ok(())
            }),
        )?;
        let Some(mut report) = answered else { return Ok(()) };
        if let EpochLength::Time(length_ns) = sum.config().epoch {
            report.epoch = start_ns.div_euclid(length_ns).try_into().unwrap_or_default();
        }
        report.notes.extend(notes(&network));
        report.network = Some(Box::new(network));
        emit(report, sum);
        Ok(())
    }
}

/// Start and end of a snapshot's epoch, and whether the snapshot includes the end.
fn time(snapshot: &Snapshot) -> Result<(i64, i64, bool), Refusal> {
    let EpochLength::Time(length_ns) = snapshot.config().epoch else {
        let reason = "only epochs by time cover the same time at every agent";
        return Err(Refusal::new("epoch", reason));
    };
    let mut all = snapshot.coverage().iter().filter(|one| one.bounds_ns != (0, 0));
    let Some(&Coverage { bounds_ns, .. }) = all.next() else {
        return Err(Refusal::new("time", "it has no packets"));
    };
    let (start_ns, end_ns) = bounds_ns;
    let is_whole =
        start_ns.rem_euclid(length_ns) == 0 && end_ns == start_ns.saturating_add(length_ns);
    if !is_whole || all.any(|other| other.bounds_ns != bounds_ns) {
        return Err(Refusal::new("time", "it does not cover exactly one epoch"));
    }
    let is_last = snapshot.coverage().iter().any(|one| one.observed_ns.1 >= end_ns);
    Ok((start_ns, end_ns, is_last))
}

/// Notes about the agents for readers of the report.
fn notes(network: &Network) -> Vec<String> {
    let Network { revision, agents, reported, missing, left_out, late, .. } = network;
    let named = |names: Vec<&str>| {
        let more = names.len().saturating_sub(NAMED);
        let names = names[..names.len() - more].join(", ");
        if more > 0 { format!("{names} and {more} more") } else { names }
    };
    let snapshots = units::plural(*revision, "snapshot");
    let agents = units::plural(*agents, "agent");
    let mut notes = vec![format!("{reported} of {agents} reported, in {snapshots}")];
    if !missing.is_empty() {
        let missing = missing.iter().map(String::as_str).collect();
        notes.push(format!("agents without a snapshot of this epoch: {}", named(missing)));
    }
    for LeftOut { agent, field, reason } in left_out.iter().take(NAMED) {
        notes.push(format!("a snapshot of agent '{agent}' is left out, {field}: {reason}"));
    }
    if left_out.len() > NAMED {
        notes.push(format!("{} more snapshots are left out", left_out.len() - NAMED));
    }
    if !late.is_empty() {
        let agents = named(late.iter().map(|(agent, _)| agent.as_str()).collect());
        let snapshots = units::plural(late.iter().map(|(_, late)| late).sum(), "snapshot");
        notes.push(format!("{snapshots} of earlier epochs came too late, from {agents}"));
    }
    notes
}
