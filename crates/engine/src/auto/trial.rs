//! One candidate tried on the sample: its time a packet, and how wide its bounds are.

use std::io;
use std::time::Instant;

use flowgauge_core::batch::BATCH_PACKETS;
use flowgauge_core::summary::{BuildError, Estimate, Measure, Parameters, Size};
use flowgauge_core::task::Report;

use super::sample::Sample;
use crate::config::{Config, EpochLength, Overrun};
use crate::error::EngineError;
use crate::plan::Plan;
use crate::report::{EpochReport, Gap, TotalReport};
use crate::sink::Sink;

/// What a trial found.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Trial {
    /// Nanoseconds a packet, from its frame to its summary.
    pub(super) ns: f64,
    /// The widest bounds of what the tasks answered: half their width as a share of the traffic
    /// where they are about sizes, of the number itself where they are about numbers.
    pub(super) error: f64,
    /// Flows that there is room for in each lane, where the summary is a table.
    pub(super) room: Vec<Option<usize>>,
}

/// Runs `config` over the first `packets` packets of the sample, `passes` times. The time is that of
/// their second half, so that fresh memory and the tasks at the close do not count.
pub(super) fn run(
    config: &Config,
    sample: &Sample,
    packets: usize,
    passes: usize,
) -> Result<Trial, EngineError> {
    let plan = Plan::build(Config {
        epoch: EpochLength::Whole,
        limit: None,
        overrun: Overrun::Wait,
        ..config.clone()
    })?;
    let explanation = plan.explain();
    // Sized for an error, a summary may be larger than what the memory would hold.
    let (needed, given) = (explanation.summary.memory_bytes, config.memory_bytes);
    if needed > given {
        return Err(BuildError::TooLittleMemory { needed, given }.into());
    }
    let room = explanation.lanes.iter().map(|lane| lane.flows).collect();
    let polls = packets.div_ceil(BATCH_PACKETS) * passes;
    let (mut widest, mut poll) = (Widest::default(), 0);
    let (mut start, mut end) = (Instant::now(), Instant::now());
    plan.run(&mut sample.replay(packets, passes), &mut widest, &mut |_| {
        poll += 1;
        if poll == polls / 2 {
            start = Instant::now();
        }
        if poll == polls {
            end = Instant::now();
        }
    })?;
    let packets = (packets * passes) as f64 * (polls - polls / 2) as f64 / polls as f64;
    Ok(Trial { ns: (end - start).as_nanos() as f64 / packets, error: widest.error, room })
}

/// Memory in which an exact table holds whatever flows a sample may have.
const ENOUGH: usize = 64 << 20;

/// Flows of each lane among the first `packets` of the sample, counted exactly.
pub(super) fn flows(
    config: &Config,
    sample: &Sample,
    packets: usize,
) -> Result<Vec<usize>, EngineError> {
    let exact = Config {
        memory_bytes: config.memory_bytes.max(ENOUGH),
        algorithm: "linear-table".to_owned(),
        parameters: Parameters::default(),
        accelerators: Vec::new(),
        tasks: Some(vec!["top".to_owned()]),
        top: packets.max(1),
        epoch: EpochLength::Whole,
        limit: None,
        workers: 1,
        shared: false,
        ..config.clone()
    };
    let plan = Plan::new(exact)?;
    let lanes = plan.explain().lanes;
    let mut widest = Widest::default();
    plan.run(&mut sample.replay(packets, 1), &mut widest, &mut |_| {})?;
    let of = |key_bytes| widest.key_bytes.iter().filter(|bytes| **bytes == key_bytes).count();
    Ok(lanes.iter().map(|lane| of(lane.key_bytes)).collect())
}

/// Reads the bounds off a report.
#[derive(Default)]
struct Widest {
    error: f64,
    /// Bytes of each key that a list of sizes holds.
    key_bytes: Vec<usize>,
}

impl Sink for Widest {
    fn epoch(&mut self, report: &EpochReport) -> io::Result<()> {
        if report.update {
            return Ok(());
        }
        self.error = self.error.max(widest(report));
        for (_, task) in &report.tasks {
            if let Report::Sizes { items, .. } = task {
                self.key_bytes.extend(items.iter().map(|item| item.key.as_bytes().len()));
            }
        }
        Ok(())
    }

    fn gap(&mut self, _: &Gap) -> io::Result<()> {
        Ok(())
    }

    fn total(&mut self, _: &TotalReport) -> io::Result<()> {
        Ok(())
    }
}

/// Half the width of the widest bounds in an epoch's answers: a share of the traffic where they are
/// about sizes, of the number itself where they are about numbers.
pub fn widest(report: &EpochReport) -> f64 {
    let total = Size { packets: report.account.keyed, bytes: report.account.keyed_bytes };
    report.tasks.iter().map(|(_, task)| error(task, report.by, total)).fold(0.0, f64::max)
}

/// Half the width of the widest bounds in an answer.
fn error(report: &Report, by: Measure, total: Size) -> f64 {
    let total = total.by(by).max(1) as f64;
    let half = |estimate: &Estimate| (estimate.high - estimate.low) / 2.0;
    let of_traffic = |estimate: &Estimate| half(estimate) / total;
    let of_itself = |estimate: &Estimate| half(estimate) / estimate.value.abs().max(1.0);
    let widest = |errors: &mut dyn Iterator<Item = f64>| errors.fold(0.0, f64::max);
    match report {
        Report::Sizes { items, .. } => {
            widest(&mut items.iter().filter_map(|item| item.size.by(by)).map(|e| of_traffic(&e)))
        }
        Report::Spread { items, .. } => {
            widest(&mut items.iter().map(|item| of_itself(&item.distinct)))
        }
        Report::Changes { items, .. } => {
            widest(&mut items.iter().map(|item| of_traffic(&item.now)))
        }
        Report::Cardinality { flows } => of_itself(flows),
        Report::Entropy { bits, .. } => of_itself(bits),
        Report::SizeDistribution { bins } => {
            let flows: f64 = bins.iter().map(|(_, flows)| flows.value).sum();
            bins.iter().map(|(_, flows)| half(flows)).sum::<f64>() / flows.max(1.0)
        }
        Report::Quantiles { sizes, .. } => {
            widest(&mut sizes.iter().map(|(_, size)| of_itself(size)))
        }
        Report::Hierarchical { items, .. } => {
            widest(&mut items.iter().map(|item| of_traffic(&item.total)))
        }
    }
}
