//! Figure 3a: speed by the number of flows.

use flowgauge_core::key::{FlowKey, Key8};

use crate::experiment::chart::{Chart, linear, log};
use crate::experiment::latency::{BARE, Bare, Runner};
use crate::experiment::long::Loop;
use crate::experiment::setting::{LINE_RATE, Setting};
use crate::experiment::structure::Structure;
use crate::experiment::table::{Table, row, short};
use crate::experiment::verdict::{Part, Verdict, median};
use crate::experiment::{Experiment, Outcome};
use crate::failure::Failure;

pub(crate) const FIG3A: Experiment = Experiment {
    name: "nitro/fig3a",
    title: "speed by the number of flows",
    paper: "NitroSketch (SIGCOMM 2019), Fig. 3a",
    claim: "A hash table is fast with few flows and falls to less than half of that, below 10 million \
            packets a second, with millions of them. Sketches keep their rate whatever the number of \
            flows, but it is below the 14.88 million packets a second of a 10 Gbit/s link.",
    measure,
    judge,
    charts: &[Chart {
        title: "Throughput",
        x: "flows",
        x_axis: log("flows"),
        y: &[("mpps", "")],
        y_axis: linear("million packets a second"),
        series: "structure",
        only: &[],
    }],
};

const TABLE: &str = "hash table";
const UNIVMON: &str = "UnivMon (5 %)";
const SAMPLED: &str = "UnivMon (5 %) behind NitroSketch";
const SKETCHES: [&str; 3] = [UNIVMON, "Count-Min (1 %)", "K-ary (5 %)"];
const WITH_KEYS: &str = "Count-Min (1 %) with heavy keys";

/// The fewest flows; the most are this many times as many as packets.
const LEAST: usize = 1 << 10;
const MOST: usize = 16;

/// What stays within this share of itself does not change.
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
    let mut table = Table::new(["structure", "flows", "mpps"]);
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

/// The rates of all with so many flows.
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
        row!(table, label, flows, median(&rates));
    }
    Ok(())
}

fn judge(table: &Table) -> Verdict {
    let of = |name: &str| table.numbers("structure", name, "mpps");
    let ends = |name: &str| {
        let rates = of(name);
        [rates.first(), rates.last()].map(|rate| rate.copied().unwrap_or(f64::NAN))
    };
    let [few, many] = ends(TABLE);
    let mut parts = vec![
        Part::at_most("the hash table with most flows over fewest", many / few, 0.5),
        Part::at_most("the hash table with most flows, in Mpps", many, 10.0),
    ];
    for name in SKETCHES {
        let rates = of(name);
        let least = rates.iter().copied().fold(f64::NAN, f64::min);
        let most = rates.iter().copied().fold(f64::NAN, f64::max);
        parts.push(Part::at_least(&format!("{name}, slowest over fastest"), least / most, STEADY));
        parts.push(Part::at_most(&format!("{name} at best, in Mpps"), most, LINE_RATE));
    }
    Verdict::of(parts)
}
