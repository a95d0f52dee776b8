//! Builds a run: the key chooses the lanes, and the memory is divided among workers, lanes and
//! tasks, and reserved.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use flowgauge_core::any::AnySummary;
use flowgauge_core::audit::Audit;
use flowgauge_core::batcher::BatcherOptions;
use flowgauge_core::catalog;
use flowgauge_core::key::{Elements, KeyKind};
use flowgauge_core::packet::Tunnels;
use flowgauge_core::summary::{
    BuildError, BuildErrorKind, Cells, Flows, Memory, Options, Parameters, Reads,
};
use flowgauge_core::task::{self, HistoryShape, TASKS, Task, TaskEntry, TaskOptions};
use flowgauge_core::terms::Threshold;
use flowgauge_kernel::{Digester, Seed, Zeroed};

use crate::close::Closer;
use crate::config::Config;
use crate::crew::{Division, keeps_apart};
use crate::error::{Able, EngineError};
use crate::outline::{self, Outlines};
use crate::plan::Prepared;
use crate::report::SummaryInfo;
use crate::sink::units;
use crate::snapshot::Saving;
use crate::summaries::{Sets, Summaries, View};

/// The IPv4 lane's share of the memory.
const V4_SHARE: f64 = 0.75;

/// Audits get one byte in this many.
const AUDIT_PART: usize = 8;

/// Builds the run of one measurement with these lanes. The configuration has been checked.
pub(crate) fn build(
    config: Config,
    seed: Seed,
    outlines: Outlines,
    division: Division,
) -> Result<Prepared, EngineError> {
    let shares = match outlines.lanes()[..] {
        [v4, v6] => vec![(v4.key_bytes, V4_SHARE), (v6.key_bytes, 1.0 - V4_SHARE)],
        ref lanes => lanes.iter().map(|lane| (lane.key_bytes, 1.0)).collect(),
    };
    let builder = Builder::new(config, seed, &division, outlines.note)?;
    let sets = builder.sets(&shares, &division)?;
    builder.finish(division, sets)
}

/// Divides the memory among lanes and tasks.
struct Builder {
    config: Config,
    seed: Seed,
    entries: Vec<&'static TaskEntry>,
    /// Number of sets of summaries, in all and for each set that the tasks read.
    all: usize,
    all_for_one: usize,
    /// Bytes for the lanes and for the tasks' state for each of their flows.
    lanes_bytes: usize,
    /// Bytes for the audits of all sets.
    audit_bytes: usize,
    task_bytes_per_flow: usize,
    task_bytes_per_cell: usize,
    /// Bytes that could not be locked.
    unlocked: Arc<AtomicUsize>,
    /// What is left out, and why.
    notes: Vec<String>,
}

/// Number of flows or cells used to find out how many bytes the tasks need for each.
const PROBE: usize = 1 << 16;

impl Builder {
    fn new(
        config: Config,
        seed: Seed,
        division: &Division,
        note: Option<String>,
    ) -> Result<Self, EngineError> {
        let key_bytes = config.key.lanes();
        let entries = entries(&config)?;
        let probe = |flows: usize, cells: usize| {
            let shapes =
                key_bytes.iter().map(|&key_bytes| HistoryShape { key_bytes, flows, cells });
            let tasks = build_tasks(&config, seed, &entries, shapes.collect())?;
            let history: usize = tasks.iter().map(|task| task.history_bytes()).sum();
            let scratch = tasks.iter().map(|task| task.scratch_bytes(flows)).max().unwrap_or(0);
            Ok::<_, EngineError>(scratch + history)
        };
        let (fixed, flows, cells) = (probe(0, 0)?, probe(PROBE, 0)?, probe(0, PROBE)?);
        let (needed, given) = (fixed + 1, config.memory_bytes);
        let lanes_bytes = given.checked_sub(fixed).filter(|bytes| *bytes > 0);
        let lanes_bytes = lanes_bytes
            .ok_or_else(|| BuildError::from(BuildErrorKind::TooLittleMemory { needed, given }))?;
        let audit_bytes = config.audit.map_or(0, |_| lanes_bytes / AUDIT_PART);
        let task_bytes_per_flow = (flows - fixed).div_ceil(PROBE);
        // Each lane has its own cells, which cost the same for any key.
        let task_bytes_per_cell = (cells - fixed).div_ceil(key_bytes.len() * PROBE);
        Ok(Self {
            config,
            seed,
            entries,
            all: division.all(),
            all_for_one: division.all_for_one(),
            lanes_bytes: lanes_bytes - audit_bytes,
            audit_bytes,
            task_bytes_per_flow,
            task_bytes_per_cell,
            unlocked: Arc::default(),
            notes: note.into_iter().collect(),
        })
    }

    /// Builds the sets of summaries. Each set divides its memory among the lanes by these shares.
    fn sets(&self, lanes: &[(usize, f64)], division: &Division) -> Result<Sets, EngineError> {
        let numbers = Cell::new(0);
        let set = || {
            // Summaries that take turns, or are filled side by side, draw independent samples.
            let seed = self.seed.drawing(numbers.replace(numbers.get() + 1));
            let summary =
                |(key_bytes, share): &(usize, f64)| self.summary(*key_bytes, *share, seed);
            let audit = |(key_bytes, share): &(usize, f64)| self.audit(*key_bytes, *share);
            Ok(Summaries {
                lanes: lanes.iter().map(summary).collect::<Result<_, EngineError>>()?,
                audits: lanes.iter().filter_map(audit).collect::<Result<_, _>>()?,
            })
        };
        let some = |count| (0..count).map(|_| set()).collect::<Result<Vec<_>, EngineError>>();
        let workers =
            (0..division.measuring).map(|_| some(division.sets)).collect::<Result<_, _>>()?;
        Ok(Sets { workers, sums: some(division.sums)? })
    }

    /// Builds a summary of keys of `key_bytes` bytes with `share` of the memory of a set.
    fn summary(&self, key_bytes: usize, share: f64, seed: Seed) -> Result<AnySummary, EngineError> {
        let config = &self.config;
        let set_bytes = self.lanes_bytes / self.all;
        // Parameters that need more than the memory holds are refused.
        let memory = if config.parameters == Parameters::default() {
            Memory::unlimited()
        } else {
            Memory::limited(set_bytes)
        };
        let options = Options {
            parameters: config.parameters.clone(),
            memory: self.placed(memory),
            task_bytes_per_flow: self.task_bytes_per_flow.div_ceil(self.all_for_one),
            task_bytes_per_cell: self.task_bytes_per_cell.div_ceil(self.all_for_one),
            by: config.by,
            threshold: candidate_threshold(config),
            spread: config.spread,
            hierarchy: config.hierarchy,
            apart: keeps_apart(config)?,
            ..Options::new((set_bytes as f64 * share) as usize, seed)
        };
        Ok(if config.shared {
            AnySummary::build_concurrent(key_bytes, &config.algorithm, &options)?
        } else {
            let Config { accelerators, algorithm, .. } = config;
            AnySummary::build(key_bytes, accelerators, algorithm, &options)?
        })
    }

    /// Builds the audit of keys of `key_bytes` bytes with `share` of the memory of a set's audits,
    /// if the configuration asks for one.
    fn audit(&self, key_bytes: usize, share: f64) -> Option<Result<Audit, EngineError>> {
        let memory_bytes = (self.audit_bytes as f64 / self.all as f64 * share) as usize;
        let memory = self.placed(Memory::unlimited());
        let options = Options { memory, ..Options::new(memory_bytes, self.seed) };
        let one_in = self.config.audit?;
        Some(Audit::build(key_bytes, one_in, options).map_err(EngineError::from))
    }

    /// Memory that is locked if the configuration asks for it.
    fn placed(&self, memory: Memory) -> Memory {
        if self.config.lock_memory { memory.locked(&self.unlocked) } else { memory }
    }

    /// The options of the batcher in front of these summaries.
    fn batcher(&self, summaries: &Summaries) -> BatcherOptions {
        let config = &self.config;
        let digester = Options::new(0, self.seed).digester;
        let reads = summaries.reads();
        BatcherOptions {
            key: config.key,
            tunnels: config.tunnels,
            batch_packets: config.batch_packets,
            // Of packets dealt to workers, those dropped are counted with their bytes.
            reads: if config.workers > 1 { reads.or(Reads::BYTES) } else { reads },
            elements: self.elements(summaries, digester),
            services: self.counts_services(summaries),
            ipv6: summaries.lanes.len() > 1,
            isa: digester.isa(),
        }
    }

    /// Whether packets are counted by protocol and service: if the configuration asks for it, no
    /// table of five-tuples provides the counts, and every packet is read.
    fn counts_services(&self, summaries: &Summaries) -> bool {
        let tells = self.config.key.kind().has_all(KeyKind::FIVE_TUPLE)
            && summaries.lanes.iter().all(|summary| summary.answers().flows().is_some());
        self.config.services && !tells && summaries.header_rate().is_none()
    }

    /// The fields of packets that the summaries read beside key and size.
    fn elements(&self, summaries: &Summaries, digester: Digester) -> Option<Elements> {
        let details = |summary: &AnySummary| summary.answers().details().is_some();
        if summaries.lanes.iter().any(details) {
            return Some(Elements::Details);
        }
        let peers = Elements::Peers(self.config.spread_of, digester);
        summaries.reads().elements.then_some(peers)
    }

    /// Builds the tasks for summaries of this size, without those that cannot be answered.
    fn finish(mut self, division: Division, sets: Sets) -> Result<Prepared, EngineError> {
        let view = division.view(self.config.key, &sets.workers);
        let mut notes = std::mem::take(&mut self.notes);
        let unlocked = self.unlocked.load(Ordering::Relaxed);
        if unlocked > 0 {
            notes.push(format!(
                "the operating system did not lock {} of memory; raise the limit ('ulimit -l')",
                units::memory(unlocked)
            ));
        }
        let bytes = sets.all().map(Summaries::all_bytes).sum();
        let mut closer =
            answering(&self.config, self.seed, &self.entries, &view, sets.first(), bytes, notes)?;
        let batcher = self.batcher(sets.first());
        if self.config.save {
            closer.save(Saving::new(&self.config, self.seed)?);
        }
        let rate = sets.first().header_rate();
        let sampling = rate.map(|rate| (rate, self.seed));
        Ok(Prepared { config: self.config, batcher, sets, division, closer, sampling })
    }
}

/// Share of the traffic above which a flow surely is a candidate: at most half of the stored
/// candidates can exceed it at once.
const LEAST_SHARE: f64 = 1.0 / 8192.0;

/// The threshold of candidates. For a long list it is below the threshold of heavy hitters: if the
/// sizes of up to a million flows fall as 1 / rank, the k-th flow has more than 1 / 16 k of the
/// traffic. Half of that, since bounds rely only on flows of twice the threshold.
pub(crate) fn candidate_threshold(config: &Config) -> Threshold {
    match config.threshold {
        Threshold::Share(share) => {
            let listed = (1.0 / (32.0 * config.top as f64)).max(LEAST_SHARE);
            // If a packet counts for both of its ends, the summary ingests twice the traffic.
            let ends = if config.key.kind().is_either() { 2.0 } else { 1.0 };
            Threshold::Share(share.min(listed) / ends)
        }
        weight @ Threshold::Weight(_) => weight,
    }
}

/// The closer that answers the tasks of `config` from summaries that were filled elsewhere.
pub(crate) fn closer(
    config: &Config,
    seed: Seed,
    view: &View<'_>,
    summaries: &Summaries,
    notes: Vec<String>,
) -> Result<Closer, EngineError> {
    let bytes = summaries.all_bytes();
    answering(config, seed, &entries(config)?, view, summaries, bytes, notes)
}

/// Builds the tasks for the summaries of a view, without those that cannot be answered.
fn answering(
    config: &Config,
    seed: Seed,
    entries: &[&'static TaskEntry],
    view: &View<'_>,
    first: &Summaries,
    summaries_bytes: usize,
    mut notes: Vec<String>,
) -> Result<Closer, EngineError> {
    let views = view.lanes();
    let most = |lane: &task::Lane<'_>| lane.answers.flows().map_or(0, Flows::most);
    let shapes = views
        .iter()
        .map(|lane| {
            let cells = match lane.answers.flows() {
                Some(_) => None,
                None => lane.answers.cells(),
            };
            HistoryShape {
                key_bytes: lane.key_bytes,
                flows: most(lane),
                cells: cells.map_or(0, Cells::len),
            }
        })
        .collect();
    let mut tasks = Vec::new();
    for task in build_tasks(config, seed, entries, shapes)? {
        match task.check(config.by, &views) {
            Ok(()) => tasks.push(task),
            Err(reason) if config.tasks.is_none() => {
                let able = outline::able(config, task.name());
                let reason = outline::advised(config, task.name(), reason, &able);
                notes.push(format!("{} is left out: {reason}", task.name()));
            }
            Err(reason) => {
                let (task, able) = (task.name(), Able::default());
                return Err(EngineError::Task { task, reason, able });
            }
        }
    }
    notes.extend(followed(config.tunnels));
    let flows: usize = views.iter().map(most).sum();
    let scratch_bytes = tasks.iter().map(|task| task.scratch_bytes(flows)).max().unwrap_or(0);
    let words = Zeroed::new(scratch_bytes.div_ceil(8)).map_err(EngineError::Refused)?;
    let info = catalog::info(&config.algorithm)?;
    let summary = SummaryInfo {
        algorithm: info.name,
        accelerator: first.accelerator(),
        memory_bytes: summaries_bytes
            + words.memory_bytes()
            + tasks.iter().map(|task| task.history_bytes()).sum::<usize>(),
        parameters: first.parameters(),
    };
    Ok(Closer::new(config, seed.id(), tasks, words, summary, notes))
}

/// A note on which packet of a tunnel is measured; `None` if tunnels are not followed.
fn followed(tunnels: Tunnels) -> Option<String> {
    let bytes = match tunnels {
        Tunnels::Outer => return None,
        Tunnels::Inner => "the whole frame",
        Tunnels::InnerBytes => "the inner packet, without tunnel headers",
    };
    Some(format!(
        "packets in tunnels are measured by the inner packet and count the bytes of \
                  {bytes}"
    ))
}

/// The tasks that the configuration names, or the default tasks.
pub(crate) fn entries(config: &Config) -> Result<Vec<&'static TaskEntry>, EngineError> {
    let Some(names) = &config.tasks else {
        return Ok(TASKS.into_iter().filter(|entry| entry.by_default).collect());
    };
    for name in names {
        task::find(name)?;
    }
    Ok(TASKS.into_iter().filter(|entry| names.iter().any(|name| name == entry.name)).collect())
}

/// Builds the tasks of `entries` with histories for lanes of these shapes.
pub(crate) fn build_tasks(
    config: &Config,
    seed: Seed,
    entries: &[&'static TaskEntry],
    history: Vec<HistoryShape>,
) -> Result<Vec<Box<dyn Task>>, EngineError> {
    let options = TaskOptions {
        spread: config.spread,
        spread_of: config.spread_of,
        hierarchy: config.hierarchy,
        flows: config.flows.clone(),
        history,
        forecast: config.forecast,
        seed,
    };
    entries
        .iter()
        .map(|entry| entry.build(&options))
        .collect::<Result<_, _>>()
        .map_err(EngineError::Refused)
}
