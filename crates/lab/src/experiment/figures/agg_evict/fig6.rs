//! Figure 6: the key, and the size of a batch, with and without the aggregator.

use flowgauge_core::key::{Extract, FlowKey, Key4, Key8, Key16, KeyKind};

use super::buffers::{Batching, race};
use super::fig2::BATCHES;
use super::solutions::FlowRadar;
use super::{ALONE, BEHIND, BOTH_THEIRS, OURS, THEIRS, THEIRS_BEHIND, WAYS, less, theirs};
use crate::experiment::chart::{Chart, log};
use crate::experiment::latency::{BARE, Bare, Runner, noise};
use crate::experiment::part::Part;
use crate::experiment::setting::{Mix, Setting};
use crate::experiment::stream::Stream;
use crate::experiment::table::Table;
use crate::experiment::verdict::{Claim, Verdict};
use crate::experiment::{Experiment, Outcome, Preset};
use crate::failure::Failure;

pub(crate) const FIG6: Experiment = Experiment {
    name: "agg-evict/fig6",
    title: "the key, with and without the aggregator",
    paper: "Agg-Evict (CCR 2018), Fig. 6a and 6b",
    presets: &[
        super::TRAFFIC,
        super::EPOCH,
        super::BATCHES,
        super::AGGREGATOR,
        super::HASHES,
        super::RADAR,
        Preset::same("keys", "the source, both addresses, the five-tuple"),
    ],
    measure,
    judge,
    missing: &[],
    charts: &[Chart { x: "key", ..super::THROUGHPUT }, Chart { x: "key", ..super::LATENCY }],
};

pub(crate) const FIG6C: Experiment = Experiment {
    name: "agg-evict/fig6c",
    title: "the size of a batch, with and without the aggregator",
    paper: "Agg-Evict (CCR 2018), Fig. 6c",
    presets: &[
        super::TRAFFIC,
        super::EPOCH,
        super::SOURCES,
        super::AGGREGATOR,
        super::HASHES,
        super::RADAR,
        Preset::same("batches", "32 to 8192 packets of 64 bytes"),
        super::fig2::BUFFERS,
    ],
    measure: |setting| measure_batches(setting, Batching::whole),
    judge: judge_batches,
    missing: &[],
    charts: &[Chart {
        title: "Latency",
        x: "batch_packets",
        x_axis: log("packets of a batch"),
        ..super::LATENCY
    }],
};

pub(crate) const RECEIVE: Experiment = Experiment {
    name: "agg-evict/receive",
    title: "how many packets are received at once, with and without the aggregator",
    paper: "Agg-Evict (CCR 2018), section 4.3: a figure that is not plotted",
    measure: |setting| measure_batches(setting, received),
    charts: &[Chart {
        title: "Latency",
        x: "batch_packets",
        x_axis: log("packets received at once"),
        ..super::LATENCY
    }],
    ..FIG6C
};

/// Receives `packets` at once, and passes on 32 of them at a time.
fn received(packets: usize) -> Batching {
    Batching { received: packets, handed_on: super::BATCH }
}

fn measure(setting: &Setting) -> Result<Outcome, Failure> {
    let mut table = super::table(["key"]);
    measure_key::<Key4, 4>(&mut table, "source", KeyKind::SOURCE, setting)?;
    measure_key::<Key8, 8>(&mut table, "pair", KeyKind::PAIR, setting)?;
    measure_key::<Key16, 13>(&mut table, "five-tuple", KeyKind::FIVE_TUPLE, setting)?;
    let limit = super::limit(&table);
    Ok(Outcome { table, limit, notes: String::new() })
}

fn measure_key<K: FlowKey + Extract<8>, const BYTES: usize>(
    table: &mut Table,
    name: &str,
    kind: KeyKind,
    setting: &Setting,
) -> Result<(), Failure> {
    let stream = Stream::<K>::draw(setting, Mix::Trace, kind)?;
    let both = super::both(&super::flow_radar(), super::ROWS);
    let theirs = theirs(FlowRadar::<BYTES>::new, WAYS);
    super::measure(table, &[name.into()], &both, theirs, setting, &stream)
}

fn judge(table: &Table) -> Verdict {
    let reached = table.of("how", BEHIND).filter(|row| row.text("key") == "five-tuple");
    let rate = reached.map(|row| row.number("mpps")).fold(f64::NAN, f64::min);
    let faster = super::faster(table);
    Verdict::of(
        table,
        [
            Claim::new(
                "Whatever the key, FlowRadar is faster behind the aggregator, in the mean.",
                [less(table, "mean", "mean_ns", OURS)],
                "A solution that takes less than the aggregator gains nothing from it.",
            )
            .on_baseline([less(table, "mean", "mean_ns", BOTH_THEIRS)], faster),
            Claim::new(
                "Behind it FlowRadar is faster in the tail, too.",
                [less(table, "tail", "p99_ns", OURS)],
                "Sums that are handed on together make some batches long.",
            )
            .on_baseline([less(table, "tail", "p99_ns", BOTH_THEIRS)], faster),
            Claim::new(
                "Behind it FlowRadar takes more than 10 million packets a second even by the five-tuple.",
                [Part::at_least("million packets a second by the five-tuple", rate, 10.0).timed()],
                "This core is slower than the paper's.",
            ),
        ],
    )
}

/// Measures FlowRadar with batches of each size, arriving as `batching` defines.
fn measure_batches(setting: &Setting, batching: fn(usize) -> Batching) -> Result<Outcome, Failure> {
    let stream = Stream::<Key4>::draw(setting, Mix::Trace, KeyKind::SOURCE)?;
    let [alone, behind] = super::both(&super::flow_radar(), super::ROWS);
    let (mut alone, mut behind) = (alone.build::<Key4>(setting)?, behind.build::<Key4>(setting)?);
    let mut theirs = theirs::<Key4, _>(FlowRadar::<4>::new, WAYS);
    let mut bare = Bare::new();
    let mut runners: Vec<&mut dyn Runner<Key4>> = vec![&mut bare, &mut alone, &mut behind];
    runners.extend(theirs.iter_mut().map(|(_, runner)| &mut **runner as &mut dyn Runner<Key4>));
    let mut table = super::table(["batch_packets"]);
    let labels = [BARE, ALONE, BEHIND, THEIRS, THEIRS_BEHIND];
    let times = race(&mut runners, &stream.keys, &BATCHES.map(batching), setting.rounds);
    for (batch, times) in BATCHES.into_iter().zip(times) {
        table.add_noise(noise(&times));
        super::push(&mut table, &[batch.into()], labels.into_iter().zip(times));
    }
    let limit = super::limit(&table);
    Ok(Outcome { table, limit, notes: String::new() })
}

fn judge_batches(table: &Table) -> Verdict {
    let of = |how: &str, column: &str| table.numbers("how", how, column);
    let gap = |how: &str| -> Vec<f64> {
        of(how, "p99_ns").iter().zip(of(how, "mean_ns")).map(|(tail, mean)| tail - mean).collect()
    };
    let gaps = |[behind, alone]: [&str; 2]| {
        let what = "tail less mean behind the aggregator over alone";
        Part::less(what, &gap(behind), &gap(alone))
    };
    let rises = |hows: [&str; 2]| {
        hows.map(|how| {
            let what = format!("mean {how} (ns), by the size of a batch");
            Part::moves(&what, &of(how, "mean_ns"), true)
        })
    };
    let faster = super::faster(table);
    Verdict::of(
        table,
        [
            Claim::new(
                "Behind the aggregator FlowRadar is always faster.",
                [less(table, "mean", "mean_ns", OURS)],
                "A solution that takes less than the aggregator gains nothing from it.",
            )
            .on_baseline([less(table, "mean", "mean_ns", BOTH_THEIRS)], faster),
            Claim::new(
                "With larger batches latency rises gradually with and without the aggregator.",
                rises(OURS),
                "What is lost with packets that left the cache is less than what is gained where the \
                 structure's own memory is fetched for more packets at once.",
            )
            .on_baseline(rises(BOTH_THEIRS), faster),
            Claim::new(
                "Behind the aggregator the tail is closer to the mean.",
                [gaps(OURS)],
                "Sums that are handed on together make some batches long.",
            )
            .on_baseline([gaps(BOTH_THEIRS)], faster),
        ],
    )
}
