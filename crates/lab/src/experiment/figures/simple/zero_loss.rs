//! The zero-loss rate: the rate at which the figures' latencies are measured.

use flowgauge_core::batch::Batch;
use flowgauge_kernel::cycles;

use super::{
    ARRAY, BATCH, COUNT_MIN, CUCKOO_1, CUCKOO_4, Contender, HEAP, LINEAR, OVERWRITING, SPACE_SAVING,
};
use crate::experiment::chart::{Chart, linear};
use crate::experiment::latency::{self, Bare, Runner, race};
use crate::experiment::part::Part;
use crate::experiment::setting::{FRAME_BYTES, Mix, Setting};
use crate::experiment::stream::Stream;
use crate::experiment::table::{Table, row};
use crate::experiment::verdict::{Claim, Verdict};
use crate::experiment::{Experiment, Outcome, Preset};
use crate::failure::Failure;
use crate::keys::{Keys, Pairs};
use crate::machine::ns_per_cycle;

pub(crate) const ZERO_LOSS: Experiment = Experiment {
    name: "simple/zero-loss",
    title: "the highest rate without loss",
    paper: "Simple (SOSR 2018), section 3.1 (RFC 2544)",
    presets: &[
        super::TRAFFIC,
        super::EPOCH,
        super::BATCHES,
        Preset::other("size", "not named", "4 MB", "all flows of an epoch have room"),
        Preset::other(
            "queue",
            "that of a 10 Gbit/s port",
            "275 microseconds, as 4096 packets take there",
            "packets come from memory by the clock",
        ),
    ],
    measure,
    judge,
    missing: &[],
    charts: &[Chart {
        title: "Packets a second",
        x: "structure",
        x_axis: linear(""),
        y: &[("mpps", "")],
        y_axis: linear("million packets a second"),
        series: "rate",
        only: &[],
        paper: &[],
        see: "The rate without loss should stand little below that by the mean latency: a short tail fills no queue.",
    }],
};

const NAMES: [&str; 8] =
    [ARRAY, OVERWRITING, COUNT_MIN, LINEAR, CUCKOO_1, CUCKOO_4, HEAP, SPACE_SAVING];

/// Bytes per structure.
const BYTES: usize = 4 << 20;

/// Maximum waiting time of a packet: the time of 4096 packets on a 10 Gbit/s link.
const QUEUE_NS: f64 = 275_000.0;

/// Bisection steps of the search, and attempts at a rate before it is given up, since another
/// process may have had the core.
const STEPS: usize = 7;
const TRIES: usize = 3;

const WITHOUT_LOSS: &str = "without loss";
const BY_MEAN: &str = "by the mean latency";

fn measure(setting: &Setting) -> Result<Outcome, Failure> {
    let stream = Stream::<Pairs>::draw(setting, Mix::Trace)?;
    let contenders = NAMES.iter().map(|name| Contender::<Pairs>::named(name, BYTES, setting));
    let mut contenders = contenders.collect::<Result<Vec<_>, _>>()?;
    let mut bare = Bare::new();
    let mut runners: Vec<&mut dyn Runner<Pairs>> = vec![&mut bare];
    runners.extend(contenders.iter_mut().map(|one| &mut *one.runner as &mut dyn Runner<Pairs>));
    let times = race(&mut runners, &stream, BATCH, setting.rounds);
    let mut table = Table::new(["structure", "rate", "mpps"]);
    table.add_noise(latency::noise(&times, setting.rounds));
    for ((name, runner), time) in NAMES.iter().zip(&mut runners[1..]).zip(&times[1..]) {
        row!(table, *name, BY_MEAN, 1e3 / time.mean_ns);
        row!(table, *name, WITHOUT_LOSS, 1e3 / search(&mut **runner, &stream, time.mean_ns));
    }
    let limit = latency::limit(&[times[0].mean_ns], BATCH);
    let notes = "Packets arrive by the clock, at a steady rate; the loop takes up to 64 that wait. The queue \
                 holds what arrives in 275 microseconds, as 4096 packets do at 10 Gbit/s. A rate counts \
                 where one of three passes over the epoch lost nothing."
        .to_owned();
    Ok(Outcome { table, limit, notes })
}

/// The smallest gap between packets without a loss, in nanoseconds: between half and six times
/// `mean_ns`.
fn search(runner: &mut dyn Runner<Pairs>, stream: &Stream<Pairs>, mean_ns: f64) -> f64 {
    let (mut lossy, mut fine) = (0.5 * mean_ns, 6.0 * mean_ns);
    for _ in 0..STEPS {
        let gap = (lossy * fine).sqrt();
        if (0..TRIES).any(|_| is_lossless(runner, stream, gap)) {
            fine = gap;
        } else {
            lossy = gap;
        }
    }
    fine
}

/// Whether the queue never overflows with a packet every `gap_ns` nanoseconds.
fn is_lossless<K: Keys>(runner: &mut dyn Runner<K>, stream: &Stream<K>, gap_ns: f64) -> bool {
    let mut batch = Batch::new();
    let rate = ns_per_cycle() / gap_ns;
    let queue = (QUEUE_NS / gap_ns) as usize;
    let mut taken = 0;
    runner.begin();
    let start = cycles();
    while taken < stream.keys.len() {
        let arrived = ((cycles() - start) as f64 * rate) as usize;
        let waiting = arrived.min(stream.keys.len()) - taken;
        if waiting > queue {
            return false;
        }
        let next = waiting.min(BATCH);
        if next > 0 {
            batch.fill(&stream.keys[taken..taken + next], FRAME_BYTES);
            runner.take(&mut batch);
            taken += next;
        }
    }
    runner.end();
    true
}

fn judge(table: &Table) -> Verdict {
    let rates = |rate: &str| -> Vec<f64> { table.numbers("rate", rate, "mpps") };
    let (by_mean, without_loss) = (rates(BY_MEAN), rates(WITHOUT_LOSS));
    let (mut alike, mut pairs) = (0, 0);
    for (at, mean) in by_mean.iter().enumerate() {
        for (other_at, other_mean) in by_mean.iter().enumerate().skip(at + 1) {
            // Nearly equal means have no order.
            if (mean / other_mean).ln().abs() > 0.1 {
                pairs += 1;
                alike +=
                    usize::from((mean > other_mean) == (without_loss[at] > without_loss[other_at]));
            }
        }
    }
    let shares = without_loss.iter().zip(&by_mean).map(|(rate, mean)| rate / mean);
    Verdict::of(
        table,
        [
            Claim::new(
                "The mean latency rules the throughput: structures are in the same order by the rate at \
                 which a queue just does not overflow as by their mean latencies.",
                [Part::at_least(
                    "share of pairs of structures in the same order by both",
                    f64::from(alike as u32) / f64::from(pairs as u32),
                    0.9,
                )],
                "A structure that stalls for longer than the queue lasts loses packets at a low mean.",
            ),
            Claim::new(
                "The rate without loss is near what the mean allows (80 %).",
                [Part::at_least(
                    "rate without loss over the one by the mean, at worst",
                    shares.fold(f64::NAN, f64::min),
                    0.8,
                )
                .timed()],
                "Something else had the core for longer than the queue lasts.",
            ),
        ],
    )
}
