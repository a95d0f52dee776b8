//! The papers' figures at a switch: NitroSketch, Figure 2 and Table 2, and Skipper, Figure 5.

use super::ovs::{self, Contender, DROP, EMC, FEW, Kind, Rounds, SIMPLE, Way, figure};
use crate::experiment::chart::{Chart, linear};
use crate::experiment::part::{Part, median};
use crate::experiment::setting::Setting;
use crate::experiment::table::{Table, row};
use crate::experiment::verdict::{Claim, Verdict};
use crate::experiment::{Experiment, Outcome, Preset};
use crate::failure::Failure;

/// NitroSketch, Figure 2 and Table 2: the switch's rate with sketches, and where its thread spends
/// time.
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
    measure: measure_sketches,
    judge: judge_sketches,
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

fn measure_sketches(setting: &Setting) -> Result<Outcome, Failure> {
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

fn judge_sketches(table: &Table) -> Verdict {
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

/// Skipper, Figure 5: Space-Saving in the data plane, with and without Skipper, and outside of it.
pub(crate) const SKIPPER_FIG5: Experiment = Experiment {
    name: "switch/skipper-fig5",
    title: "Space-Saving in Open vSwitch, with and without Skipper",
    paper: "Skipper, Fig. 5",
    presets: &[
        super::VERSION,
        Preset::same("ε, δ", "1 %, 0.01 %"),
        Preset::other(
            "traffic",
            "a trace of San Jose, at 10 Gbit/s",
            "16,384 packets of 64 bytes, again and again",
            "there is no port; see docs/switch.md",
        ),
    ],
    measure: measure_data_plane,
    judge: judge_data_plane,
    missing: &[],
    charts: &[Chart {
        title: "Throughput",
        x: "measurement",
        x_axis: linear(""),
        y: &[("mpps", "")],
        y_axis: linear("million packets a second"),
        series: "variant",
        only: &[],
        paper: &[],
        see: "The paper has Space-Saving take a fifth of the switch's rate, and Skipper leave it 4 % below no measurement.",
    }],
};

const SPACE_SAVING: &str = "space-saving";
const ALONE: &str = "alone";
const AFTER: &str = "skipper";
const BEFORE: &str = "skipper before headers";
const MIRROR: &str = "mirror, outside";

fn measure_data_plane(setting: &Setting) -> Result<Outcome, Failure> {
    let measured = |behind, accelerator: &str| {
        let kind = Kind::Sizes(format!("algorithm=space-saving {accelerator}"));
        Contender::new(SPACE_SAVING, behind, kind)
    };
    let contenders = [
        measured(ALONE, ""),
        measured(AFTER, "accelerator=skipper:epsilon=0.01,delta=0.0001"),
        measured(BEFORE, "accelerator=skipper:epsilon=0.01,delta=0.0001,before=headers"),
        Contender::new(MIRROR, "", Kind::Mirror),
    ];
    let mut table = ovs::table();
    let compared = ovs::compare(setting, FEW, EMC, &contenders, &mut table)?;
    let notes = format!(
        "{} The paper runs two virtual machines before the measured port, streams its trace for longer, so that \
         Skipper samples less of it, and forwards what Skipper samples to the third; the switch here \
         cannot mirror a sample.",
        compared.notes(setting, FEW)
    );
    Ok(Outcome { table, limit: compared.limit(), notes })
}

fn judge_data_plane(table: &Table) -> Verdict {
    let lost = |name, behind| figure(table, name, behind, "lost_percent");
    let alone = lost(SPACE_SAVING, ALONE);
    Verdict::of(
        table,
        [
            Claim::new(
                "Behind Skipper, for an error of 1 %, Space-Saving loses 4 % of the throughput of Open vSwitch.",
                [
                    Part::at_most("behind Skipper: lost %", lost(SPACE_SAVING, AFTER), 4.0),
                    Part::at_most(
                        "behind Skipper before headers: lost %",
                        lost(SPACE_SAVING, BEFORE),
                        4.0,
                    ),
                ],
                "This switch takes less of a packet's time, so that reading it is a larger share.",
            ),
            Claim::new(
                "Alone Space-Saving loses over 20 %.",
                [Part::at_least("Space-Saving alone: lost %", alone, 20.0)],
                "This Space-Saving looks for the least counter without a heap.",
            ),
            Claim::new(
                "Outside the switch, where a copy of every packet goes to it, it loses more than inside.",
                [Part::less("lost inside over outside", &[alone], &[lost(MIRROR, "")])],
                "A copy costs less than Space-Saving.",
            ),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The verdict for a time per structure, and shares of UnivMon.
    fn of_sketches(times: [f64; 4], shares: [f64; 3]) -> &'static str {
        let mut table = Table::new(["structure", "part", "ns", "percent"]);
        for (name, ns) in STRUCTURES.iter().zip(times) {
            for (part, share) in [HASHING, COUNTERS, KEYS].iter().zip(shares) {
                row!(table, *name, *part, ns / 4.0, share);
            }
        }
        judge_sketches(&table).worst()
    }

    #[test]
    fn every_part_of_sketches_can_fail() {
        let (order, shares) = ([50.0, 60.0, 70.0, 80.0], [37.3, 15.9, 15.6]);
        assert_eq!(of_sketches(order, shares), "Reproduced");
        assert_eq!(of_sketches([60.0, 50.0, 70.0, 80.0], shares), "Contradicted");
        for (part, other) in [30.0, 10.0, 10.0].into_iter().enumerate() {
            let mut shares = shares;
            shares[part] = other;
            assert_eq!(of_sketches(order, shares), "Contradicted", "{part}");
        }
        assert_eq!(
            judge_sketches(&Table::new(["structure", "part", "ns", "percent"])).worst(),
            "Cannot be told"
        );
    }

    /// The verdict for these losses in percent.
    fn of_skipper(alone: f64, behind: f64, mirror: f64) -> &'static str {
        let mut table = Table::new(["measurement", "variant", "lost_percent"]);
        for (behind, lost) in [(ALONE, alone), (AFTER, behind), (BEFORE, behind)] {
            row!(table, SPACE_SAVING, behind, lost);
        }
        row!(table, MIRROR, "", mirror);
        judge_data_plane(&table).worst()
    }

    #[test]
    fn every_part_of_skipper_can_fail() {
        assert_eq!(of_skipper(21.0, 3.9, 50.0), "Reproduced");
        assert_eq!(of_skipper(19.0, 3.9, 50.0), "Contradicted");
        assert_eq!(of_skipper(21.0, 4.1, 50.0), "Contradicted");
        assert_eq!(of_skipper(21.0, 3.9, 15.0), "Contradicted");
        assert_eq!(of_skipper(21.0, 3.9, f64::NAN), "Cannot be told");
    }
}
