//! One epoch of a measurement over all agents: the sum of its snapshots, and the state of each.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use flowgauge_core::summary::codec::DecodeErrorKind;
use flowgauge_engine::report::{LeftOut, Network};
use flowgauge_engine::sink::rfc3339;
use flowgauge_engine::snapshot::{MergeError, Snapshot, SnapshotError};

/// Maximum number of groups of compatible snapshots per epoch.
const GROUPS: usize = 8;

/// Maximum number of rejected snapshots that an epoch names.
const NAMED: usize = 1000;

/// A truncated hash of bytes.
pub(super) type Hash = [u8; 16];

/// The first bytes of the hash of `bytes`.
pub(super) fn hash(bytes: &[u8]) -> Hash {
    let mut first = Hash::default();
    first.copy_from_slice(&blake3::hash(bytes).as_bytes()[..16]);
    first
}

/// A snapshot by its agent and its id.
pub(super) type PartId = (Arc<str>, Arc<str>);

/// Snapshots that merge with each other. A report uses the group with the most agents, so that one
/// agent with another seed does not shut out the others.
struct Group {
    sum: Snapshot,
    parts: BTreeMap<PartId, Hash>,
    agents: BTreeSet<Arc<str>>,
}

/// An epoch that is open, or reported and still open to corrections.
pub(super) struct Epoch {
    pub(super) end_ns: i64,
    /// Read time of its first message.
    pub(super) seen_ns: i64,
    groups: Vec<Group>,
    /// Why snapshots were rejected, by agent and field.
    left_out: BTreeMap<(Arc<str>, &'static str), String>,
    /// Agents not waited for any more: they sent the end of the epoch, or nothing that merges.
    heard: BTreeSet<Arc<str>>,
    /// The first offset in each partition.
    pub(super) offsets: BTreeMap<i32, i64>,
    /// Time of its first report, or when that was due.
    pub(super) closed_ns: Option<i64>,
    /// Time of the oldest change that is not reported yet.
    pub(super) changed_ns: Option<i64>,
}

/// The outcome of adding a snapshot.
pub(super) enum Added {
    Merged,
    Duplicate,
    Conflict,
    LeftOut(Refusal),
}

impl Epoch {
    pub(super) fn new(end_ns: i64, now_ns: i64) -> Self {
        Self {
            end_ns,
            seen_ns: now_ns,
            groups: Vec::new(),
            left_out: BTreeMap::new(),
            heard: BTreeSet::new(),
            offsets: BTreeMap::new(),
            closed_ns: None,
            changed_ns: None,
        }
    }

    /// Approximate memory in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        let sums: usize = self.groups.iter().map(|group| group.sum.memory_bytes()).sum();
        let parts: usize = self.groups.iter().map(|group| group.parts.len()).sum();
        size_of::<Self>() + sums + (parts + self.left_out.len() + self.heard.len()) * 256
    }

    /// Whether another snapshot would start a new group.
    pub(super) fn is_new(&self, snapshot: &Snapshot) -> bool {
        !self.groups.iter().any(|group| group.sum.check_identity(snapshot).is_ok())
    }

    /// Records the offset of the epoch's first message in a partition.
    pub(super) fn came(&mut self, (partition, offset): (i32, i64)) {
        let first = self.offsets.entry(partition).or_insert(offset);
        *first = offset.min(*first);
    }

    /// Adds a snapshot, and returns it unless it became the first of a group. `is_last` means that
    /// it includes the end of the epoch.
    pub(super) fn add(
        &mut self,
        id: PartId,
        hash: Hash,
        snapshot: Snapshot,
        is_last: bool,
        now_ns: i64,
    ) -> (Added, Option<Snapshot>) {
        if let Some(before) = self.groups.iter().find_map(|group| group.parts.get(&id)) {
            if *before == hash {
                return (Added::Duplicate, Some(snapshot));
            }
            let reason =
                format!("{} was sent again with different bytes; the first one counts", id.1);
            self.leave_out(&id.0, &Refusal::new("id", reason), now_ns);
            return (Added::Conflict, Some(snapshot));
        }
        let agent = Arc::clone(&id.0);
        for group in &mut self.groups {
            match group.sum.merge(&snapshot) {
                Ok(()) => {
                    group.parts.insert(id, hash);
                    group.agents.insert(Arc::clone(&agent));
                    return (self.merged(&agent, is_last, now_ns), Some(snapshot));
                }
                Err(MergeError::Differs { .. }) => {}
                Err(error) => {
                    return (self.refuse(&agent, error.into(), now_ns), Some(snapshot));
                }
            }
        }
        if self.groups.len() == GROUPS {
            let reason = format!("{GROUPS} agents before it differ from each other");
            let refused = self.refuse(&agent, Refusal::new("identity", reason), now_ns);
            return (refused, Some(snapshot));
        }
        let (parts, agents) = (BTreeMap::from([(id, hash)]), BTreeSet::from([Arc::clone(&agent)]));
        self.groups.push(Group { sum: snapshot, parts, agents });
        (self.merged(&agent, is_last, now_ns), None)
    }

    fn merged(&mut self, agent: &Arc<str>, is_last: bool, now_ns: i64) -> Added {
        if is_last {
            self.heard.insert(Arc::clone(agent));
        }
        self.changed_ns.get_or_insert(now_ns);
        Added::Merged
    }

    fn refuse(&mut self, agent: &Arc<str>, refusal: Refusal, now_ns: i64) -> Added {
        self.leave_out(agent, &refusal, now_ns);
        Added::LeftOut(refusal)
    }

    /// Records a rejected snapshot.
    pub(super) fn leave_out(&mut self, agent: &Arc<str>, refusal: &Refusal, now_ns: i64) {
        let id = (Arc::clone(agent), refusal.field);
        let is_known = self.left_out.get(&id).is_some_and(|reason| *reason == refusal.reason);
        if is_known || (self.left_out.len() >= NAMED && !self.left_out.contains_key(&id)) {
            return;
        }
        self.left_out.insert(id, refusal.reason.clone());
        self.heard.insert(Arc::clone(agent));
        self.changed_ns.get_or_insert(now_ns);
    }

    /// Whether each of these agents has sent its last snapshot.
    pub(super) fn has_heard(&self, agents: usize, known: impl Fn() -> Vec<Arc<str>>) -> bool {
        // Comparing all names is only needed near the end.
        agents > 0
            && self.heard.len() >= agents
            && known().iter().all(|agent| self.heard.contains(agent))
    }

    /// The merged snapshot with its completeness, or `None` if nothing was merged.
    pub(super) fn report(
        &mut self,
        measurement: &str,
        start_ns: i64,
        known: Vec<Arc<str>>,
    ) -> Option<(&mut Snapshot, Network)> {
        let most = self.groups.iter().map(|group| group.agents.len()).max()?;
        let chosen = self.groups.iter().position(|group| group.agents.len() == most)?;
        let mut left_out = self.left_out.clone();
        for (at, group) in self.groups.iter().enumerate() {
            let same = self.groups[chosen].sum.check_identity(&group.sum);
            if let (true, Err(error)) = (at != chosen, same) {
                let refusal = Refusal::from(error);
                for agent in &group.agents {
                    left_out.insert((Arc::clone(agent), refusal.field), refusal.reason.clone());
                }
            }
        }
        let chosen = &mut self.groups[chosen];
        let mut agents: BTreeSet<Arc<str>> = known.into_iter().collect();
        agents.extend(chosen.agents.iter().cloned());
        agents.extend(left_out.keys().map(|(agent, _)| Arc::clone(agent)));
        let sent = |agent: &Arc<str>| {
            chosen.agents.contains(agent) || left_out.keys().any(|(of, _)| of == agent)
        };
        let missing = agents.iter().filter(|agent| !sent(agent)).map(ToString::to_string).collect();
        let left_out = left_out.into_iter().map(|((agent, field), reason)| {
            let agent = agent.to_string();
            LeftOut { agent, field, reason }
        });
        let mut network = Network {
            id: String::new(),
            revision: chosen.parts.len() as u64,
            agents: agents.len() as u64,
            reported: chosen.agents.len() as u64,
            missing,
            left_out: left_out.collect(),
            late: Vec::new(),
        };
        network.id = id(measurement, start_ns, &chosen.parts, &network);
        Some((&mut chosen.sum, network))
    }
}

/// The id of a report. Reports with the same id merge the same snapshots and say the same about all
/// others.
fn id(
    measurement: &str,
    start_ns: i64,
    parts: &BTreeMap<PartId, Hash>,
    network: &Network,
) -> String {
    let mut hasher = blake3::Hasher::new();
    let mut add = |text: &[u8]| {
        hasher.update(&(text.len() as u64).to_le_bytes());
        hasher.update(text);
    };
    for ((agent, id), hash) in parts {
        for part in [agent.as_bytes(), id.as_bytes(), hash] {
            add(part);
        }
    }
    add(&network.agents.to_le_bytes());
    network.missing.iter().for_each(|agent| add(agent.as_bytes()));
    for LeftOut { agent, field, reason } in &network.left_out {
        for text in [agent, *field, reason] {
            add(text.as_bytes());
        }
    }
    let hash = hasher.finalize().to_hex();
    format!("{measurement}/{}/{}/{}", rfc3339(start_ns), network.revision, &hash[..16])
}

/// The field that prevents a merge, and what is wrong with it.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    pub(super) field: &'static str,
    pub(super) reason: String,
}

impl Refusal {
    pub(super) fn new(field: &'static str, reason: impl Into<String>) -> Self {
        Self { field, reason: reason.into() }
    }
}

impl From<SnapshotError> for Refusal {
    fn from(error: SnapshotError) -> Self {
        let field = match &error {
            SnapshotError::Magic => "bytes",
            SnapshotError::Key(_) => "key",
            SnapshotError::Filter(_) => "filter",
            SnapshotError::Build(_) => "algorithm",
            SnapshotError::Unknown { field, .. } => field,
            SnapshotError::Decode(error) => match error.kind() {
                DecodeErrorKind::SeedFile { .. } => "seed",
                DecodeErrorKind::Build(_) => "parameters",
                DecodeErrorKind::Cut { .. } | DecodeErrorKind::Invalid { .. } => "bytes",
            },
        };
        Self::new(field, error.to_string())
    }
}

impl From<MergeError> for Refusal {
    fn from(error: MergeError) -> Self {
        let field = match &error {
            MergeError::Differs { field, one, other } => {
                return Self::new(field, format!("it has {other}, but most agents have {one}"));
            }
            MergeError::Overlap { .. } => "epoch",
            MergeError::Misaligned { .. } => "time",
            MergeError::TooMany(field) => field,
            MergeError::Summaries(_) => "algorithm",
        };
        Self::new(field, error.to_string())
    }
}
