//! Figures 2 and 6: the size of a batch, and the key.

use std::collections::HashSet;

use flowgauge_core::batch::{BATCH_PACKETS, Batch};
use flowgauge_core::key::FlowKey;
use flowgauge_kernel::{Zeroed, cycles};

use super::paper::{Alone, FlowRadar};
use super::{ALONE, BEHIND, BOTH_THEIRS, OURS, THEIRS, THEIRS_BEHIND, WAYS, less, theirs};
use crate::experiment::chart::{Chart, linear, log};
use crate::experiment::latency::{BARE, Bare, Histogram, Latency, Runner, middle, noise};
use crate::experiment::part::{Part, median};
use crate::experiment::setting::{FRAME_BYTES, Mix, Setting};
use crate::experiment::stream::Stream;
use crate::experiment::table::{Table, row};
use crate::experiment::verdict::{Claim, Gain, Verdict};
use crate::experiment::{Experiment, Outcome, Preset};
use crate::failure::Failure;
use crate::keys::{FiveTuples, Keys, Pairs, Sources};
use crate::machine::zeroed;

/// Figure 2: the size of a batch, without an aggregator.
pub(crate) const FIG2: Experiment = Experiment {
    name: "agg-evict/fig2",
    title: "the size of a batch: its cost, and the flows in it",
    paper: "Agg-Evict (CCR 2018), Fig. 2",
    presets: &[
        super::TRAFFIC,
        super::EPOCH,
        super::RADAR,
        super::HASHES,
        Preset::same("batches", "32 to 8192 packets of 64 bytes"),
        BUFFERS,
    ],
    measure: measure_plain,
    judge: judge_plain,
    missing: &[],
    charts: &[
        Chart {
            title: "Throughput of FlowRadar, the engine's",
            only: &[KEYS[0][0], KEYS[1][0], KEYS[2][0]],
            ..THROUGHPUT
        },
        Chart {
            title: "Throughput of FlowRadar, the paper's",
            only: &[KEYS[0][1], KEYS[1][1], KEYS[2][1]],
            ..THROUGHPUT
        },
        Chart {
            title: "Flows of a batch",
            y: &[("distinct_percent", "")],
            only: &["source", "pair", "five-tuple"],
            y_axis: linear("distinct flows (% of the packets)"),
            ..BY_BATCH
        },
    ],
};

const THROUGHPUT: Chart =
    Chart { y: &[("mpps", "")], y_axis: linear("million packets a second"), ..BY_BATCH };

const BY_BATCH: Chart = Chart {
    title: "",
    x: "batch_packets",
    x_axis: log("packets of a batch"),
    y: &[],
    y_axis: linear(""),
    series: "key",
    only: &[],
    paper: &[],
    see: "Throughput and the share of distinct flows both fall to the right: that is the dilemma, since fewer flows a batch could be updated together.",
};

/// What packets are read from.
const BUFFERS: Preset = Preset::other(
    "packets",
    "in buffers of DPDK, received from a 10 Gbit/s port in bursts of 32",
    "in buffers 2 KB apart, written in bursts of 32 by the core that reads them",
    "there is no port; what is written is not timed",
);

/// The engine's FlowRadar, and the paper's, by key.
const KEYS: [[&str; 2]; 3] = [
    ["source", "source, the paper's"],
    ["pair", "pair, the paper's"],
    ["five-tuple", "five-tuple, the paper's"],
];

/// The paper's throughput relative to batches of 32, by source and by pair.
const LEFT: [f64; 2] = [0.874, 0.838];

/// Batch sizes in packets.
const BATCHES: [usize; 5] = [32, 128, 512, 2048, 8192];

fn measure_plain(setting: &Setting) -> Result<Outcome, Failure> {
    let mut table =
        Table::new(["key", "batch_packets", "mean_ns", "mpps", "mpps_spread", "distinct_percent"]);
    measure_plain_by::<Sources, 4>(&mut table, KEYS[0], setting)?;
    measure_plain_by::<Pairs, 8>(&mut table, KEYS[1], setting)?;
    measure_plain_by::<FiveTuples, 13>(&mut table, KEYS[2], setting)?;
    let limit = super::latency::limit(&table.numbers("key", BARE, "mean_ns"), BATCHES[0]);
    let notes =
        "A packet is in a buffer of its own, and read when its batch is taken; the engine's own \
                 batches hold 256 of them. In the generated trace nearly each flow has a source of its own, so that \
                 the share of distinct ones is the same by any key."
            .to_owned();
    Ok(Outcome { table, limit, notes })
}

fn measure_plain_by<K: Keys, const BYTES: usize>(
    table: &mut Table,
    [ours, theirs]: [&str; 2],
    setting: &Setting,
) -> Result<(), Failure> {
    let stream = Stream::<K>::draw(setting, Mix::Trace)?;
    let mut engine = super::flow_radar().build::<K>(setting)?;
    let (mut bare, mut paper) = (Bare::new(), Alone(FlowRadar::<BYTES>::new()));
    let mut runners: [&mut dyn Runner<K>; 3] = [&mut bare, &mut engine, &mut paper];
    let (rounds, batches) = (setting.rounds, BATCHES.map(Batching::whole));
    let times = race_in_buffers(&mut runners, &stream.keys, &batches, rounds);
    for (batch, times) in BATCHES.into_iter().zip(times) {
        table.add_noise(noise(&times, setting.rounds));
        let percent = 100.0 * distinct::<K>(&stream.keys, batch);
        for (label, time) in [BARE, ours, theirs].into_iter().zip(times) {
            let spread = time.mpps() * time.mean_spread / time.mean_ns;
            row!(table, label, batch, time.mean_ns, time.mpps(), spread, percent);
        }
    }
    Ok(())
}

/// The mean share of distinct keys in batches of this size.
fn distinct<K: Keys>(keys: &[K::Key], batch: usize) -> f64 {
    let mut seen = HashSet::new();
    let mut share = |keys: &[K::Key]| {
        seen.clear();
        keys.iter().filter(|key| seen.insert(key.canonical(K::BYTES).to_vec())).count() as f64
    };
    let batches = keys.chunks_exact(batch);
    let count = batches.len();
    batches.map(&mut share).sum::<f64>() / (count * batch) as f64
}

fn judge_plain(table: &Table) -> Verdict {
    let ends = |key: &str, column: &str| {
        let numbers = table.numbers("key", key, column);
        [numbers.first(), numbers.last()].map(|end| end.copied().unwrap_or(f64::NAN))
    };
    let left = |key: &str| {
        let [first, last] = ends(key, "mpps");
        last / first
    };
    let falls = |at: usize| {
        KEYS[..2].iter().map(move |keys| {
            let what = format!("throughput (Mpps) of batches of 32 to 8192, by {}", keys[at]);
            Part::moves(&what, &table.numbers("key", keys[at], "mpps"), false)
        })
    };
    let by_how_much = |key: usize, at: usize| {
        let name = KEYS[key][at];
        let what = format!("throughput of batches of 8192 over 32, by {name}");
        [Part::within(&what, left(name), LEFT[key], 0.1).timed()]
    };
    let ratios: Vec<f64> = KEYS
        .iter()
        .flat_map(|[ours, theirs]| {
            let of = |key: &str| table.numbers("key", key, "mean_ns");
            of(theirs).into_iter().zip(of(ours)).map(|(theirs, ours)| theirs / ours)
        })
        .collect();
    let faster = Gain::Faster(median(&ratios));
    let [first, last] = ends("source", "distinct_percent");
    Verdict::of(
        table,
        [
            Claim::new(
                "FlowRadar's throughput falls when packets come in larger batches, with the source or the \
                 pair of addresses as the key.",
                falls(0),
                "What is lost with packets that left the cache is less than what is gained where the \
                 structure's own memory is fetched for more packets at once.",
            )
            .on_baseline(falls(1), faster),
            Claim::new(
                "By source it falls to 87.4 % from batches of 32 to those of 8192 packets (within a tenth).",
                by_how_much(0, 0),
                "The faster the structure, the larger a share of the time is that in which packets come \
                 from a farther cache, and the more is gained by fetching ahead.",
            )
            .on_baseline(by_how_much(0, 1), faster),
            Claim::new(
                "By pair it falls to 83.8 % (within a tenth).",
                by_how_much(1, 0),
                "The paper's core has 256 KB of second-level cache, where this one has 1 MB: more of a large \
                 batch stays near. A pair's hashes take longer than a source's, so that the wait for packets \
                 is a smaller share.",
            )
            .on_baseline(by_how_much(1, 1), faster),
            Claim::new(
                "By five-tuple it falls only slightly (10 %).",
                [Part::at_least("throughput by five-tuple", left(KEYS[2][0]), 0.9).timed()],
                "The engine's five-tuple costs hardly more than a source, so that packets from a farther \
                 cache are as large a share of it.",
            )
            .on_baseline(
                [Part::at_least("throughput by five-tuple", left(KEYS[2][1]), 0.9).timed()],
                faster,
            ),
            Claim::new(
                "The share of distinct sources in a batch falls by a factor of 2.23 (within 20 %).",
                [Part::within("percent in batches of 32 over 8192", first / last, 2.23, 0.2)],
                "Flows of a generated trace come in other runs than those of the paper's.",
            ),
        ],
    )
}

/// Figures 6a and 6b: the key.
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
    measure: measure_keys,
    judge: judge_keys,
    missing: &[],
    charts: &[Chart { x: "key", ..super::THROUGHPUT }, Chart { x: "key", ..super::LATENCY }],
};

/// Figure 6c: the size of a batch, with and without the aggregator.
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
        BUFFERS,
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

/// Section 4.3: how many packets are received at once.
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

fn measure_keys(setting: &Setting) -> Result<Outcome, Failure> {
    let mut table = super::table(["key"]);
    measure_key::<Sources, 4>(&mut table, "source", setting)?;
    measure_key::<Pairs, 8>(&mut table, "pair", setting)?;
    measure_key::<FiveTuples, 13>(&mut table, "five-tuple", setting)?;
    let limit = super::limit(&table);
    Ok(Outcome { table, limit, notes: String::new() })
}

fn measure_key<K: Keys, const BYTES: usize>(
    table: &mut Table,
    name: &str,
    setting: &Setting,
) -> Result<(), Failure> {
    let stream = Stream::<K>::draw(setting, Mix::Trace)?;
    let both = super::both(&super::flow_radar(), super::ROWS);
    let theirs = theirs(FlowRadar::<BYTES>::new, WAYS);
    super::measure(table, &[name.into()], &both, theirs, setting, &stream)
}

fn judge_keys(table: &Table) -> Verdict {
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
    let stream = Stream::<Sources>::draw(setting, Mix::Trace)?;
    let [alone, behind] = super::both(&super::flow_radar(), super::ROWS);
    let (mut alone, mut behind) =
        (alone.build::<Sources>(setting)?, behind.build::<Sources>(setting)?);
    let mut theirs = theirs::<Sources, _>(FlowRadar::<4>::new, WAYS);
    let mut bare = Bare::new();
    let mut runners: Vec<&mut dyn Runner<Sources>> = vec![&mut bare, &mut alone, &mut behind];
    runners.extend(theirs.iter_mut().map(|(_, runner)| &mut **runner as &mut dyn Runner<Sources>));
    let mut table = super::table(["batch_packets"]);
    let labels = [BARE, ALONE, BEHIND, THEIRS, THEIRS_BEHIND];
    let batches = BATCHES.map(batching);
    let times = race_in_buffers(&mut runners, &stream.keys, &batches, setting.rounds);
    for (batch, times) in BATCHES.into_iter().zip(times) {
        table.add_noise(noise(&times, setting.rounds));
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
        Part::less(what, &gap(behind), &gap(alone)).tails()
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

/// Buffer size, offset of the key, and buffers of a port beyond those of a batch, in that order.
const BUFFER_BYTES: usize = 2048;
const BEFORE: usize = 26;
const RING: usize = 1024;

/// Packets received at once.
const BURST: usize = 32;

/// A ring of buffers, as a driver has them: each packet has a buffer of 2 KB.
struct Port {
    buffers: Zeroed<[u8; BUFFER_BYTES]>,
    next: usize,
}

impl Port {
    fn new(batch_packets: usize) -> Self {
        Self { buffers: zeroed(batch_packets + RING), next: 0 }
    }

    /// Receives packets with these keys; returns their buffer numbers.
    fn receive<K: Keys>(&mut self, keys: &[K::Key], into: &mut Vec<u32>) {
        for key in keys {
            let bytes = key.canonical(K::BYTES);
            let frame = &mut self.buffers[self.next][..FRAME_BYTES as usize];
            frame.fill(self.next as u8);
            frame[BEFORE..BEFORE + bytes.len()].copy_from_slice(bytes);
            into.push(self.next as u32);
            self.next = (self.next + 1) % self.buffers.len();
        }
    }
}

/// How packets arrive and are passed on.
#[derive(Clone, Copy, Debug)]
struct Batching {
    /// Packets received before the first one is read.
    received: usize,
    /// Packets passed on at once.
    handed_on: usize,
}

impl Batching {
    /// Receives `packets` packets in bursts, and passes them on together.
    fn whole(packets: usize) -> Self {
        Self { received: packets, handed_on: packets }
    }
}

/// The latencies of these runners for each batching, with all runners taking turns in each round.
/// Packets are received in bursts; a batch is timed from reading its headers. Medians over the
/// rounds.
fn race_in_buffers<K: Keys>(
    runners: &mut [&mut dyn Runner<K>],
    keys: &[K::Key],
    batches: &[Batching],
    rounds: usize,
) -> Vec<Vec<Latency>> {
    let mut ports: Vec<Port> = batches.iter().map(|batch| Port::new(batch.received)).collect();
    let mut times = vec![vec![Vec::new(); runners.len()]; batches.len()];
    // The first round warms up.
    for round in 0..=rounds {
        for ((batch, port), times) in batches.iter().zip(&mut ports).zip(&mut times) {
            for (runner, times) in runners.iter_mut().zip(times) {
                let latency = pass_in_buffers(&mut **runner, keys, *batch, port);
                if round > 0 {
                    times.push(latency);
                }
            }
        }
    }
    times.iter().map(|times| times.iter().map(|times| middle(times)).collect()).collect()
}

fn pass_in_buffers<K: Keys>(
    runner: &mut dyn Runner<K>,
    keys: &[K::Key],
    batching: Batching,
    port: &mut Port,
) -> Latency {
    let (mut batch, mut histogram) = (Batch::new(), Histogram::new());
    let mut received = Vec::with_capacity(batching.received);
    runner.begin();
    for keys in keys.chunks(batching.received) {
        received.clear();
        for keys in keys.chunks(BURST) {
            port.receive::<K>(keys, &mut received);
        }
        for received in received.chunks(batching.handed_on) {
            let start = cycles();
            for numbers in received.chunks(BATCH_PACKETS) {
                batch.clear();
                for number in numbers {
                    let frame = &port.buffers[*number as usize];
                    let key = K::Key::from_canonical(&frame[BEFORE..BEFORE + K::BYTES]);
                    if let Some(key) = key {
                        batch.push(key, FRAME_BYTES, 0);
                    }
                }
                runner.take(&mut batch);
            }
            histogram.take(received.len(), cycles() - start);
        }
    }
    runner.end();
    histogram.latency()
}
