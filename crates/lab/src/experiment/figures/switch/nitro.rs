//! NitroSketch, Figure 2 and Table 2: the switch's rate with sketches, and where its thread spends
//! time.

use super::ovs::{self, DROP, EMC, FEW, Kind, Rounds, SIMPLE, Way};
use crate::experiment::chart::{Chart, linear};
use crate::experiment::part::{Part, median};
use crate::experiment::setting::Setting;
use crate::experiment::table::{Table, row};
use crate::experiment::verdict::{Claim, Verdict};
use crate::experiment::{Experiment, Outcome, Preset};
use crate::failure::Failure;

pub(crate) const NITRO_FIG2: Experiment = Experiment {
    name: "switch/nitro-fig2",
    title: "where the time of Open vSwitch goes with sketches in it",
    paper: "NitroSketch (SIGCOMM 2019), Fig. 2 and Table 2",
    presets: &[
        super::VERSION,
        Preset::other(
            "traffic",
            "packets of 64 bytes, at 40 Gbit/s",
            "16,384 packets of 64 bytes, again and again",
            "there is no port; see docs/switch.md",
        ),
    ],
    measure,
    judge,
    missing: &[],
    charts: &[Chart {
        title: "Where the time goes",
        x: "structure",
        x_axis: linear(""),
        y: &[("ns", "")],
        y_axis: linear("time (ns a packet)"),
        series: "part",
        only: &[],
        paper: &[],
        see: "The paper has most of the time of sketches in a switch go to hashing, the dark part that the engine's one digest makes small.",
    }],
};

const NOTHING: &str = "no sketch";
const COUNT_MIN: &str = "Count-Min";
const COUNT_SKETCH: &str = "Count Sketch";
const UNIVMON: &str = "UnivMon";
const STRUCTURES: [&str; 4] = [NOTHING, COUNT_MIN, COUNT_SKETCH, UNIVMON];

const RECEIVING: &str = "receiving";
const SENDING: &str = "sending";
const LOOKING_UP: &str = "parsing and looking up";
const HEADERS: &str = "headers and key";
const HASHING: &str = "hashing";
const COUNTERS: &str = "counters";
const KEYS: &str = "heavy keys";

/// The steps of the switch and of every sketch, in order.
fn steps() -> [(&'static str, Way); 5] {
    let measure = |options: &str| (EMC, Kind::Measure(options.to_owned()));
    // Only one packet in a million is digested and counted.
    let headers = "algorithm=count-min:rows=1,columns=64,candidates=0 task=flow-size flow=source=10.0.0.1 \
                   accelerator=uniform:sample=1000000";
    [
        (RECEIVING, (DROP, Kind::Bare)),
        (SENDING, (SIMPLE, Kind::Bare)),
        (LOOKING_UP, (EMC, Kind::Bare)),
        (HEADERS, measure(headers)),
        (HASHING, measure(super::DIGESTS)),
    ]
}

/// Each sketch without and with its heavy keys. UnivMon cannot be without, and keeps two per level.
fn sketches() -> [(&'static str, [Way; 2]); 3] {
    let pair = |options: &str, keys: [u32; 2]| {
        let task = "task=flow-size flow=source=10.0.0.1";
        keys.map(|keys| (EMC, Kind::Measure(format!("algorithm={options}={keys} {task}"))))
    };
    [
        (COUNT_MIN, pair("count-min:rows=4,columns=65536,candidates", [0, 1024])),
        (COUNT_SKETCH, pair("count-sketch:rows=4,columns=65536,candidates", [0, 1024])),
        (UNIVMON, pair("univmon:levels=4,rows=4,columns=65536,top", [2, 128])),
    ]
}

fn measure(setting: &Setting) -> Result<Outcome, Failure> {
    let (steps, sketches) = (steps(), sketches());
    let mut ways: Vec<Way> = steps.iter().map(|(_, way)| way.clone()).collect();
    let digests = ways[4].clone();
    for (_, pair) in &sketches {
        ways.push(digests.clone());
        ways.extend(pair.clone());
    }
    let Rounds { ways, flows, told } = ovs::run(setting, FEW, &ways)?;
    let ways = ways.into_iter().collect::<Result<Vec<_>, _>>().map_err(Failure::Switch)?;
    let rounds = |way: usize| ways[way].iter().map(|figures| figures.ns);
    let ns = |way| median(&rounds(way).collect::<Vec<_>>());
    // The additional time of a way over the one before it, which ran just before.
    let more = |way| {
        let pairs = rounds(way).zip(rounds(way - 1));
        let more = median(&pairs.map(|(with, without)| with - without).collect::<Vec<_>>());
        if more < 0.0 { 0.0 } else { more }
    };
    let mut table = Table::new(["structure", "part", "ns", "percent"]);
    let mut structure = |name: &str, parts: &[(&str, f64)]| {
        let all: f64 = parts.iter().map(|(_, ns)| ns).sum();
        for (part, ns) in parts {
            row!(table, name, *part, *ns, 100.0 * ns / all);
        }
    };
    let step = |way| if way == 0 { ns(0) } else { more(way) };
    let common: Vec<(&str, f64)> =
        steps.iter().enumerate().map(|(way, (part, _))| (*part, step(way))).collect();
    structure(NOTHING, &common[..3]);
    for (number, (name, _)) in sketches.iter().enumerate() {
        let without = steps.len() + 3 * number + 1;
        let own = [(COUNTERS, more(without)), (KEYS, more(without + 1))];
        structure(name, &[&common[..], &own].concat());
    }
    let limit = format!(
        "The switch alone takes {:.1} ns a packet of its polling thread's CPU time.",
        ns(2)
    );
    let notes = format!(
        "Each part is the difference of two runs, one right after the other, by medians of {} rounds: packets are \
         dropped when they are received from `net_pcap`; sent to `net_null` from port to port; found in the \
         exact-match cache; their headers and keys read; their digests too, with one bit set; counted \
         without heavy keys (UnivMon: two a level); and with them. A difference below 0 is 0. Receiving is mostly \
         the copy of each packet that `net_pcap` makes: the paper, where it takes 3 %, has a network card. {} packets of 64 bytes and {flows} sources, \
         which are the keys. {told}",
        setting.rounds, FEW.packets
    );
    Ok(Outcome { table, limit, notes })
}

fn judge(table: &Table) -> Verdict {
    let percent = |part: &str| {
        let mut rows = table.of("structure", UNIVMON).filter(|row| row.text("part") == part);
        rows.next().map_or(f64::NAN, |row| row.number("percent"))
    };
    let time = |name| match table.numbers("structure", name, "ns")[..] {
        [] => f64::NAN,
        ref parts => parts.iter().sum(),
    };
    let times = STRUCTURES.map(time);
    let order = Part::less("time with each structure over the next", &times[..3], &times[1..]);
    Verdict::of(
        table,
        [
            Claim::new(
                "The switch is fastest without a sketch, then with Count-Min, Count Sketch and UnivMon, in this \
                 order.",
                [order],
                "UnivMon counts a packet once, at the depth of its key.",
            ),
            Claim::new(
                "With UnivMon hashing takes most of the time, 37 %, counters take 16 %, and heavy keys 16 %.",
                [
                    Part::at_least("hashing with UnivMon, %", percent(HASHING), 37.0),
                    Part::at_least("counters of UnivMon, %", percent(COUNTERS), 15.0),
                    Part::at_least("heavy keys of UnivMon, %", percent(KEYS), 15.0),
                ],
                "One digest of a packet serves all rows and levels; `nitro/table2` has the paper's \
                 structure, which does as the paper says.",
            ),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The verdict for a time per structure, and shares of UnivMon.
    fn verdict(times: [f64; 4], shares: [f64; 3]) -> &'static str {
        let mut table = Table::new(["structure", "part", "ns", "percent"]);
        for (name, ns) in STRUCTURES.iter().zip(times) {
            for (part, share) in [HASHING, COUNTERS, KEYS].iter().zip(shares) {
                row!(table, *name, *part, ns / 4.0, share);
            }
        }
        judge(&table).worst()
    }

    #[test]
    fn every_part_can_fail() {
        let (order, shares) = ([50.0, 60.0, 70.0, 80.0], [37.3, 15.9, 15.6]);
        assert_eq!(verdict(order, shares), "Reproduced");
        assert_eq!(verdict([60.0, 50.0, 70.0, 80.0], shares), "Contradicted");
        for (part, other) in [30.0, 10.0, 10.0].into_iter().enumerate() {
            let mut shares = shares;
            shares[part] = other;
            assert_eq!(verdict(order, shares), "Contradicted", "{part}");
        }
        assert_eq!(
            judge(&Table::new(["structure", "part", "ns", "percent"])).worst(),
            "Cannot be told"
        );
    }
}
