//! Two workers with a summary each, against one worker.

use flowgauge_core::batch::BATCH_PACKETS;
use flowgauge_core::catalog::ALGORITHMS;
use flowgauge_core::key::{Key8, KeyKind};
use flowgauge_core::summary::Merge;

use super::contest::{Arithmetic, Both, Built, COUNT, Contest, DOUBLES, LEAST, MOST, shared};
use super::{LEAST_NS, WORKERS};
use crate::experiment::chart::{Chart, linear};
use crate::experiment::latency::Runner;
use crate::experiment::parallel::Crew;
use crate::experiment::part::{Part, median};
use crate::experiment::setting::{Mix, Setting};
use crate::experiment::stream::Stream;
use crate::experiment::structure::Structure;
use crate::experiment::table::{Row, Table, short};
use crate::experiment::verdict::{Claim, Verdict};
use crate::experiment::{Experiment, Outcome, Preset};
use crate::failure::Failure;

pub(crate) const SEPARATE: Experiment = Experiment {
    name: "scaling/separate",
    title: "two workers with a summary each, against one",
    paper: "Simple (SOSR 2018), section 5.1",
    presets: &[
        super::TRAFFIC,
        super::EPOCH,
        super::CORES,
        Preset::other(
            "structures",
            "a count array",
            "every algorithm in half a MiB, and a linear table of a million flows",
            "the paper shows latency, users ask for rates",
        ),
    ],
    measure,
    judge,
    missing: &[],
    charts: &[Chart {
        title: "Rate of two workers over that of one: the summary's (bar), arithmetic's beside it (tick)",
        x: "structure",
        x_axis: linear(""),
        y: &[("ratio", ""), ("arithmetic", ", arithmetic")],
        y_axis: linear("times"),
        series: "kind",
        only: &[],
        paper: &[],
        see: "Two workers with a summary each should reach twice the rate of one, where arithmetic alone does.",
    }],
};

/// Bytes of a summary that fits a core's cache.
const SMALL: usize = 1 << 19;

/// Wanted speed-up of a summary in the cache, and of a large table.
const WANTED: f64 = 1.8;
const WANTED_LARGE: f64 = 1.6;

const CACHED: &str = "in the cache";
const LARGE: &str = "a million flows";

/// Packets in a pass of arithmetic, and minimum nanoseconds of its measurement per packet of the
/// setting: 5 ms for a million.
const PASS: usize = 1 << 12;
const ARITHMETIC_NS: f64 = 5.0;

fn measure(setting: &Setting) -> Result<Outcome, Failure> {
    let crew = Crew::new(WORKERS);
    let stream = Stream::<Key8>::draw(setting, Mix::Trace, KeyKind::PAIR)?;
    let (apart, dealt) = (stream.split(WORKERS), stream.deal(WORKERS, BATCH_PACKETS));
    let larger = apart.iter().map(|part| part.keys.len()).max().unwrap_or(0) as f64
        / stream.keys.len() as f64;
    let keys: Vec<Key8> = stream.keys.iter().take(PASS).copied().collect();
    let start = Stream { elements: vec![0; keys.len()], keys };
    let least_ns = ARITHMETIC_NS * setting.packets as f64;
    let multiply = || Ok(Box::new(Arithmetic) as Box<dyn Runner<Key8>>);
    let halves = shared(start.deal(WORKERS, BATCH_PACKETS));
    let mut arithmetic = Both::new(&crew, multiply, &shared([start]), &halves, least_ns)?;
    let (whole, apart, dealt) = (shared([stream]), shared(apart), shared(dealt));
    let mut contests = Vec::new();
    let (mut left_out, mut by_flow) = (Vec::new(), Vec::new());
    for info in ALGORITHMS {
        // As in the engine: a flow may be in both parts only if summaries add up.
        let parts = if info.laws.flows || info.laws.merge == Merge::Disjoint {
            by_flow.push(info.name);
            &apart
        } else {
            &dealt
        };
        let build = of_structure(info.name, SMALL, setting);
        if build().is_ok() {
            let least_ns = LEAST_NS * setting.packets as f64;
            let both = Both::new(&crew, build, &whole, parts, least_ns)?;
            contests.push(Contest::new(info.name, CACHED, both, setting));
        } else {
            left_out.push(info.name);
        }
    }
    let uniform = Setting { packets: 4 * setting.packets, ..setting.clone() };
    let stream = Stream::<Key8>::draw(&uniform, Mix::Zipf(0.0), KeyKind::PAIR)?;
    let (name, parts) = ("linear-table", shared(stream.split(WORKERS)));
    let build = of_structure(name, 128 << 20, setting);
    let least_ns = LEAST_NS * uniform.packets as f64;
    let both = Both::new(&crew, build, &shared([stream]), &parts, least_ns)?;
    contests.push(Contest::new(name, LARGE, both, setting));
    // In turns, so that a period without two cores costs each contest one round, not one contest
    // all rounds.
    for _ in 0..MOST * setting.rounds {
        for contest in &mut contests {
            contest.round(&crew, &mut arithmetic);
        }
    }
    let mut table = Table::new([
        "structure",
        "kind",
        "one_mpps",
        "two_mpps",
        "ratio",
        "arithmetic",
        "rounds",
        "retaken",
    ]);
    for contest in &contests {
        contest.tell(&mut table);
    }
    let gains: Vec<f64> = contests.iter().flat_map(|contest| contest.rounds.gains()).collect();
    let retaken: usize = contests.iter().map(|contest| contest.rounds.retaken()).sum();
    let limit = format!(
        "A loop of multiplications, which touches no memory, is {} times as fast on two threads, in \
         the median of all {} rounds: that is the machine's.",
        short(median(&gains)),
        gains.len()
    );
    let (least, most) = DOUBLES.into_inner();
    let notes = format!(
        "Each summary at its defaults in {} KiB for each worker, warm. The machine has two cores for us at \
         some times, and two threads of one at others: beside each round that loop is timed on one \
         thread, and on two before and after, and a round does not count, whatever the summary did in \
         it, where two were not {least} to {most} times as fast, or where something else had a \
         worker's core. {retaken} of {} rounds were retaken \
         for that. Medians are of {} rounds that count; of all {} that are taken at most, where fewer \
         than {LEAST} of them count: then nothing is said of that summary. Batches go to the workers by \
         turns; where each flow has a counter of its own ({}), packets go by digest: the larger part \
         then has {:.1} % of them. Left out, since they need more: {}. The workers are threads that \
         stay on their cores, as the engine's with `--pin`.",
        SMALL >> 10,
        gains.len(),
        COUNT * setting.rounds,
        MOST * setting.rounds,
        by_flow.join(", "),
        100.0 * larger,
        if left_out.is_empty() { "none".to_owned() } else { left_out.join(", ") }
    );
    Ok(Outcome { table, limit, notes })
}

fn of_structure(name: &'static str, bytes: usize, setting: &Setting) -> impl Fn() -> Built {
    let structure = Structure::new(name, name).in_bytes(bytes);
    move || Ok(Box::new(structure.build::<Key8>(setting)?))
}

fn judge(table: &Table) -> Verdict {
    let claim = |says: &str, kind: &str, wanted: f64, otherwise: &'static str| {
        let counts = |row: &Row| row.number("rounds") - row.number("retaken") >= LEAST as f64;
        let (told, open): (Vec<Row>, Vec<Row>) = table.of("kind", kind).partition(counts);
        let ratio = |row: &Row| row.number("ratio");
        let least = told.iter().min_by(|a, b| ratio(a).total_cmp(&ratio(b)));
        let name = |row: &Row| row.text("structure").to_owned();
        let what = format!(
            "{}, which gains least ({} of {} gain enough)",
            least.map_or("none".to_owned(), name),
            told.iter().filter(|row| ratio(row) >= wanted).count(),
            told.len()
        );
        let part = Part::at_least(&what, least.map_or(f64::NAN, ratio), wanted).timed();
        let names: Vec<String> = open.iter().map(name).collect();
        let open = (!names.is_empty()).then(|| {
            Part::open(format!("{}: the machine did not give two cores", names.join(", ")))
        });
        Claim::new(says, std::iter::once(part).chain(open), otherwise)
    };
    Verdict::of(
        table,
        [
            claim(
                "Summaries of their own need no synchronisation: two workers take 1.8 times as many packets \
                 as one, for each summary that fits the cache.",
                CACHED,
                WANTED,
                "A summary of half a MiB beside its batches does not fit the part of the cache that a core of \
                 a shared machine has.",
            ),
            claim(
                "With a linear table of a million flows two workers take 1.6 times as many.",
                LARGE,
                WANTED_LARGE,
                "Both cores share the bandwidth of the memory.",
            ),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::table::row;

    /// The verdict on a summary with this ratio and number of rounds, and on a table that scales.
    fn stand(ratio: f64, [rounds, retaken]: [usize; 2]) -> &'static str {
        let mut table = Table::new(["structure", "kind", "ratio", "rounds", "retaken"]);
        row!(table, "one", CACHED, ratio, rounds, retaken);
        row!(table, "other", CACHED, 1.9, 10_usize, 0_usize);
        row!(table, "table", LARGE, 1.7, 10_usize, 0_usize);
        judge(&table).worst()
    }

    #[test]
    fn without_two_cores_nothing_is_said() {
        assert_eq!(stand(1.86, [12, 2]), "Reproduced");
        assert_eq!(stand(1.74, [12, 2]), "Contradicted");
        let few = [stand(1.74, [25, 23]), stand(1.86, [25, 23])];
        assert_eq!(few, ["Cannot be told"; 2]);
    }
}
