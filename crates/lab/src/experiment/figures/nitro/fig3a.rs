//! Figure 3a: speed by number of flows.

use flowgauge_core::key::{FlowKey, Key8};

use super::paper::{Kind, Plain, Sketch, Work};
use crate::experiment::chart::{Chart, Mark, log};
use crate::experiment::latency::{BARE, Bare, Runner};
use crate::experiment::part::{Part, median, spread};
use crate::experiment::setting::{LINE_RATE, Setting};
use crate::experiment::stream::Loop;
use crate::experiment::structure::Structure;
use crate::experiment::table::{Table, row, short};
use crate::experiment::verdict::{Claim, Gain, Verdict};
use crate::experiment::{Experiment, Outcome, Preset};
use crate::failure::Failure;

pub(crate) const FIG3A: Experiment = Experiment {
    name: "nitro/fig3a",
    title: "speed by the number of flows",
    paper: "NitroSketch (SIGCOMM 2019), Fig. 3a",
    presets: &[
        super::SWITCH,
        super::HASHES,
        Preset::of(
            "flows",
            "1000 to 100 million",
            |setting| format!("1024 to {} million", MOST * setting.packets / 1_000_000),
            "the hash table of more takes all memory",
        ),
        Preset::other(
            "traffic",
            "a million packets of flows",
            "flows all alike",
            "no cache knows the next",
        ),
        Preset::same("errors", "UnivMon and K-ary 5 %, Count-Min 1 %"),
        Preset::other(
            "levels of UnivMon",
            "not named",
            "14 of the paper's; the engine's own number",
            "14 levels are enough for 100 million flows",
        ),
    ],
    measure,
    judge,
    missing: &[],
    charts: &[
        Chart { title: "The engine's", only: &OURS, ..BY_FLOWS },
        Chart { title: "The paper's, written in the lab", only: &THEIRS, ..BY_FLOWS },
    ],
};

const BY_FLOWS: Chart = Chart {
    title: "",
    x: "flows",
    x_axis: log("flows"),
    y: &[("mpps", "")],
    y_axis: log("million packets a second"),
    series: "structure",
    only: &[],
    paper: &[Mark::Level("10 Gbit/s", LINE_RATE)],
    see: "The hash table falls with the number of flows, sketches stay; the paper has the table under 10 million a second at 20 million flows, and sketches below the link's rate.",
};

const TABLE: &str = "hash table";
const UNIVMON: &str = "UnivMon (5 %)";
const SAMPLED: &str = "UnivMon (5 %) behind NitroSketch";
const SKETCHES: [&str; 3] = [UNIVMON, "Count-Min (1 %)", "K-ary (5 %)"];
const WITH_KEYS: &str = "Count-Min (1 %) with heavy keys";

const OURS: [&str; 6] = [TABLE, UNIVMON, SKETCHES[1], WITH_KEYS, SKETCHES[2], SAMPLED];

/// The paper's structures: a table that is looked up packet by packet, and sketches with a hash per
/// row and a heap.
const PLAIN_TABLE: &str = "hash table, packet by packet";
const THEIRS: [&str; 4] = [
    PLAIN_TABLE,
    "UnivMon (5 %), hash by hash",
    "Count-Min (1 %), hash by hash",
    "K-ary (5 %), hash by hash",
];

fn theirs() -> [(&'static str, Box<dyn Runner<Key8>>); 4] {
    // 8 and 2.7 times the columns that an error of one column's share needs.
    let sketch = |kind, levels, columns| Box::new(Sketch::new(kind, levels, columns, Work::Heap));
    [
        (THEIRS[0], Box::<Plain>::default()),
        (THEIRS[1], sketch(Kind::CountSketch, 14, 3200)),
        (THEIRS[2], sketch(Kind::CountMin, 1, 272)),
        (THEIRS[3], sketch(Kind::Kary, 1, 3200)),
    ]
}

/// The fewest flows; the most are this many times the packets.
const LEAST: usize = 1 << 10;
const MOST: usize = 16;

/// A rate is steady if it stays above this share of itself.
const STEADY: f64 = 0.75;

fn structures(flows: usize) -> [Structure; 6] {
    let univmon = || Structure::new(UNIVMON, "univmon").with([("epsilon", 0.05)]);
    [
        Structure::new(TABLE, "linear-table").with([("buckets", (2 * flows).next_power_of_two())]),
        univmon(),
        Structure::new(SKETCHES[1], "count-min").with([("epsilon", "0.01"), ("candidates", "0")]),
        Structure::new(WITH_KEYS, "count-min").with([("epsilon", "0.01")]),
        Structure::new(SKETCHES[2], "k-ary").with([("epsilon", "0.05"), ("candidates", "0")]),
        univmon().named(SAMPLED).behind("nitro", [("p", "0.01")]),
    ]
}

fn measure(setting: &Setting) -> Result<Outcome, Failure> {
    let mut table = Table::new(["structure", "flows", "mpps", "mpps_spread"]);
    let sizes = std::iter::successors(Some(LEAST), |flows| Some(flows * setting.factor));
    for flows in sizes.take_while(|flows| *flows <= MOST * setting.packets) {
        measure_flows(&mut table, flows, setting)?;
    }
    let limit = format!(
        "Batches that are filled and digested, with nothing counted: {} million packets a second.",
        short(median(&table.numbers("structure", BARE, "mpps")))
    );
    let notes =
        "Flows are all alike, so that no cache knows the next one; each has sent a packet before. \
                 Structures alone, where the paper has them in a switch. With an error of 1 % and a \
                 threshold of 0.1 % every flow looks heavy to Count-Min: with heavy keys it is slow."
            .to_owned();
    Ok(Outcome { table, limit, notes })
}

/// The rates of all structures with this many flows.
fn measure_flows(table: &mut Table, flows: usize, setting: &Setting) -> Result<(), Failure> {
    let key =
        |flow: u64| Key8::from_canonical(&flow.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    let every: Vec<Key8> = (1..=flows as u64).filter_map(key).collect();
    let mut random = fastrand::Rng::with_seed(setting.seed);
    let keys: Vec<Key8> = (0..setting.packets).map(|_| every[random.usize(0..flows)]).collect();
    let mut runners: Vec<(String, Box<dyn Runner<Key8>>)> =
        vec![(BARE.to_owned(), Box::new(Bare::new()))];
    for structure in structures(flows) {
        let built = structure.build::<Key8>(setting)?;
        runners.push((structure.label, Box::new(built)));
    }
    runners.extend(theirs().map(|(label, runner)| (label.to_owned(), runner)));
    for (_, runner) in &mut runners {
        Loop::new(&every).feed(&mut **runner, flows);
    }
    let mut rates = vec![Vec::new(); runners.len()];
    for _ in 0..setting.rounds {
        for ((_, runner), rates) in runners.iter_mut().zip(&mut rates) {
            let seconds = Loop::new(&keys).feed(&mut **runner, keys.len());
            rates.push(keys.len() as f64 / seconds / 1e6);
        }
    }
    for ((label, _), rates) in runners.into_iter().zip(rates) {
        row!(table, label, flows, median(&rates), spread(&rates));
    }
    Ok(())
}

fn judge(table: &Table) -> Verdict {
    let of = |name: &str| table.numbers("structure", name, "mpps");
    let ends = |name: &str| {
        let rates = of(name);
        [rates.first(), rates.last()].map(|rate| rate.copied().unwrap_or(f64::NAN))
    };
    let most = |name: &str| of(name).into_iter().fold(f64::NAN, f64::max);
    let falls = |name: &str| {
        let [few, many] = ends(name);
        Part::at_most(&format!("the {name} with most flows over fewest"), many / few, 0.5).timed()
    };
    let slow = |name: &str| {
        Part::at_most(&format!("the {name} with most flows, in Mpps"), ends(name)[1], 10.0).timed()
    };
    let steady = |name: &str| {
        let least = of(name).into_iter().fold(f64::NAN, f64::min);
        Part::at_least(&format!("{name}, slowest over fastest"), least / most(name), STEADY).timed()
    };
    let below_line_rate = |name: &str| {
        Part::at_most(&format!("{name} at best, in Mpps"), most(name), LINE_RATE).timed()
    };
    let faster = |ours: &str, theirs: &str| Gain::Faster(ends(ours)[1] / ends(theirs)[1]);
    Verdict::of(
        table,
        [
            Claim::new(
                "A hash table is fast with few flows and falls to less than half of that with millions.",
                [falls(TABLE)],
                "Places of many packets are fetched ahead together.",
            )
            .on_baseline([falls(PLAIN_TABLE)], faster(TABLE, PLAIN_TABLE)),
            Claim::new(
                "Sketches keep their rate whatever the number of flows (within 25 %).",
                SKETCHES.map(steady),
                "Keys that are heavy among few flows take the time of a heap.",
            ),
            Claim::new(
                "With tens of millions of flows the hash table takes less than 10 million packets a second.",
                [slow(TABLE)],
                "Places of a batch are fetched ahead together, and the paper's rates are those of a whole \
                 switch.",
            )
            .on_baseline([slow(PLAIN_TABLE)], faster(TABLE, PLAIN_TABLE)),
            Claim::new(
                "UnivMon is below the 14.88 million packets a second of a 10 Gbit/s link.",
                [below_line_rate(UNIVMON)],
                "One digest serves all rows and levels here.",
            )
            .on_baseline([below_line_rate(THEIRS[1])], faster(UNIVMON, THEIRS[1])),
            Claim::new(
                "Count-Min and K-ary are below that rate, too.",
                SKETCHES[1..].iter().map(|name| below_line_rate(name)),
                "The paper's rates are those of a whole switch, whose own share of a packet's 67 ns is in them. \
                 Five hashes and a heap alone take less, as the paper's structures show here; \
                 `switch/nitro-fig2` has them in a switch.",
            )
            .on_baseline(
                THEIRS[2..].iter().map(|name| below_line_rate(name)),
                faster(SKETCHES[2], THEIRS[3]),
            ),
        ],
    )
}
