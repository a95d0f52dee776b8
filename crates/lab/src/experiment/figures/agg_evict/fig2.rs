//! Figure 2: the size of a batch, without an aggregator.

use std::collections::HashSet;

use flowgauge_core::key::{Extract, FlowKey, Key4, Key8, Key16, KeyKind};

use super::buffers::{Batching, race};
use super::paper::Alone;
use super::solutions::FlowRadar;
use crate::experiment::chart::{Chart, linear, log};
use crate::experiment::latency::{BARE, Bare, Runner, noise};
use crate::experiment::part::{Part, median};
use crate::experiment::setting::{Mix, Setting};
use crate::experiment::stream::Stream;
use crate::experiment::table::{Table, row};
use crate::experiment::verdict::{Claim, Gain, Verdict};
use crate::experiment::{Experiment, Outcome, Preset};
use crate::failure::Failure;

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
    measure,
    judge,
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
pub(super) const BUFFERS: Preset = Preset::other(
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
pub(super) const BATCHES: [usize; 5] = [32, 128, 512, 2048, 8192];

fn measure(setting: &Setting) -> Result<Outcome, Failure> {
    let mut table =
        Table::new(["key", "batch_packets", "mean_ns", "mpps", "mpps_spread", "distinct_percent"]);
    measure_key::<Key4, 4>(&mut table, KEYS[0], KeyKind::SOURCE, setting)?;
    measure_key::<Key8, 8>(&mut table, KEYS[1], KeyKind::PAIR, setting)?;
    measure_key::<Key16, 13>(&mut table, KEYS[2], KeyKind::FIVE_TUPLE, setting)?;
    let limit = super::latency::limit(&table.numbers("key", BARE, "mean_ns"), BATCHES[0]);
    let notes =
        "A packet is in a buffer of its own, and read when its batch is taken; the engine's own \
                 batches hold 256 of them. In the generated trace nearly each flow has a source of its own, so that \
                 the share of distinct ones is the same by any key."
            .to_owned();
    Ok(Outcome { table, limit, notes })
}

fn measure_key<K: FlowKey + Extract<8>, const BYTES: usize>(
    table: &mut Table,
    [ours, theirs]: [&str; 2],
    kind: KeyKind,
    setting: &Setting,
) -> Result<(), Failure> {
    let stream = Stream::<K>::draw(setting, Mix::Trace, kind)?;
    let mut engine = super::flow_radar().build::<K>(setting)?;
    let (mut bare, mut paper) = (Bare::new(), Alone(FlowRadar::<BYTES>::new()));
    let mut runners: [&mut dyn Runner<K>; 3] = [&mut bare, &mut engine, &mut paper];
    let times = race(&mut runners, &stream.keys, &BATCHES.map(Batching::whole), setting.rounds);
    for (batch, times) in BATCHES.into_iter().zip(times) {
        table.add_noise(noise(&times));
        let percent = 100.0 * distinct(&stream.keys, batch);
        for (label, time) in [BARE, ours, theirs].into_iter().zip(times) {
            let spread = time.mpps() * time.mean_spread / time.mean_ns;
            row!(table, label, batch, time.mean_ns, time.mpps(), spread, percent);
        }
    }
    Ok(())
}

/// The mean share of distinct keys in batches of this size.
fn distinct<K: FlowKey>(keys: &[K], batch: usize) -> f64 {
    let mut seen = HashSet::new();
    let mut share = |keys: &[K]| {
        seen.clear();
        keys.iter().filter(|key| seen.insert(key.canonical(K::SHORTEST).to_vec())).count() as f64
    };
    let batches = keys.chunks_exact(batch);
    let count = batches.len();
    batches.map(&mut share).sum::<f64>() / (count * batch) as f64
}

fn judge(table: &Table) -> Verdict {
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
