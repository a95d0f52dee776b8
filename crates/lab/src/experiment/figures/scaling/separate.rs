//! Two workers with a summary each, against one worker, with arithmetic as a reference.

use std::hint::black_box;
use std::ops::RangeInclusive;
use std::sync::Arc;

use flowgauge_core::batch::{BATCH_PACKETS, Batch};
use flowgauge_core::catalog::ALGORITHMS;
use flowgauge_core::key::Key8;
use flowgauge_core::summary::Merge;

use super::{LEAST_NS, WORKERS};
use crate::experiment::chart::{Chart, linear};
use crate::experiment::latency::Runner;
use crate::experiment::parallel::{Crew, Together};
use crate::experiment::part::{Part, median};
use crate::experiment::setting::{Mix, Setting};
use crate::experiment::stream::Stream;
use crate::experiment::structure::Structure;
use crate::experiment::table::{Row, Table, row, short};
use crate::experiment::verdict::{Claim, Verdict};
use crate::experiment::{Experiment, Outcome, Preset};
use crate::failure::Failure;
use crate::keys::Pairs;

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
    let stream = Stream::<Pairs>::draw(setting, Mix::Trace)?;
    let (apart, dealt) = (stream.split(WORKERS), stream.deal(WORKERS, BATCH_PACKETS));
    let larger = apart.iter().map(|part| part.keys.len()).max().unwrap_or(0) as f64
        / stream.keys.len() as f64;
    let keys: Vec<Key8> = stream.keys.iter().take(PASS).copied().collect();
    let start = Stream { elements: vec![0; keys.len()], keys };
    let least_ns = ARITHMETIC_NS * setting.packets as f64;
    let multiply = || Ok(Box::new(Arithmetic) as Box<dyn Runner<Pairs>>);
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
    let stream = Stream::<Pairs>::draw(&uniform, Mix::Zipf(0.0))?;
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
    move || Ok(Box::new(structure.build::<Pairs>(setting)?))
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

/// Rounds that should count, and the maximum taken, per round of the setting.
const COUNT: usize = 4;
const MOST: usize = 12;

/// Arithmetic steps per packet.
const STEPS: u64 = 8;

/// Multiplications for each packet, without reading it.
struct Arithmetic;

impl Runner<Pairs> for Arithmetic {
    fn begin(&mut self) {}

    fn take(&mut self, batch: &mut Batch<Key8>) {
        let steps = 0..STEPS * batch.len() as u64;
        // Four independent chains keep the multiplier busy.
        black_box(steps.fold([1_u64, 3, 5, 7], |chains, step| {
            chains.map(|chain| black_box(chain.wrapping_mul(step | 1)))
        }));
    }
}

type Built = Result<Box<dyn Runner<Pairs>>, Failure>;
type Shared = Arc<Stream<Pairs>>;

/// Streams shared with workers.
fn shared(streams: impl IntoIterator<Item = Stream<Pairs>>) -> Vec<Shared> {
    streams.into_iter().map(Arc::new).collect()
}

/// Workers with their packets.
struct Side {
    runners: Vec<Box<dyn Runner<Pairs>>>,
    streams: Vec<Shared>,
    passes: usize,
}

impl Side {
    /// `least_ns` is the minimum duration of a measurement.
    fn new(
        crew: &Crew,
        build: impl Fn() -> Built,
        streams: &[Shared],
        least_ns: f64,
    ) -> Result<Self, Failure> {
        let runners = streams.iter().map(|_| build()).collect::<Result<_, _>>()?;
        let mut side = Self { runners, streams: streams.to_vec(), passes: 1 };
        // The first pass meets every flow for the first time.
        side.run(crew);
        side.passes = (least_ns / side.run(crew).wall_ns).ceil() as usize;
        Ok(side)
    }

    fn run(&mut self, crew: &Crew) -> Together {
        crew.together(&mut self.runners, &self.streams, BATCH_PACKETS, self.passes)
    }

    /// Nanoseconds per packet, and whether every worker had a core.
    fn ns(&mut self, crew: &Crew) -> (f64, bool) {
        let packets: usize = self.streams.iter().map(|stream| stream.keys.len()).sum();
        let run = self.run(crew);
        (run.wall_ns / (self.passes * packets) as f64, run.had_cores())
    }
}

/// One worker, and two.
struct Both {
    one: Side,
    two: Side,
}

impl Both {
    /// Both with a minimum duration.
    ///
    /// # Errors
    /// When a runner cannot be built.
    fn new(
        crew: &Crew,
        build: impl Fn() -> Built,
        whole: &[Shared],
        parts: &[Shared],
        least_ns: f64,
    ) -> Result<Self, Failure> {
        let side = |streams| Side::new(crew, &build, streams, least_ns);
        Ok(Self { one: side(whole)?, two: side(parts)? })
    }
}

/// A measured summary.
struct Contest {
    name: &'static str,
    kind: &'static str,
    both: Both,
    rounds: Rounds,
}

impl Contest {
    fn new(name: &'static str, kind: &'static str, both: Both, setting: &Setting) -> Self {
        let rounds = Rounds::new(COUNT * setting.rounds, MOST * setting.rounds);
        Self { name, kind, both, rounds }
    }

    /// Takes a round, if more are wanted.
    fn round(&mut self, crew: &Crew, arithmetic: &mut Both) {
        let Self { both, rounds, .. } = self;
        rounds.take(|| {
            let (alone_ns, _) = arithmetic.one.ns(crew);
            let (before_ns, _) = arithmetic.two.ns(crew);
            let (one_ns, one_had) = both.one.ns(crew);
            let (two_ns, two_had) = both.two.ns(crew);
            let (after_ns, _) = arithmetic.two.ns(crew);
            Round {
                one_ns,
                two_ns,
                arithmetic: [alone_ns / before_ns, alone_ns / after_ns],
                cores: one_had && two_had,
            }
        });
    }

    /// Adds the rates; the ratio is the median of the rounds' ratios.
    fn tell(&self, table: &mut Table) {
        let (told, rounds) = (self.rounds.told(), &self.rounds);
        row!(
            table,
            self.name,
            self.kind,
            1e3 / told.one_ns,
            1e3 / told.two_ns,
            told.ratio,
            told.arithmetic,
            rounds.taken(),
            rounds.retaken(),
        );
    }
}

/// Speed-up of arithmetic on two threads with a core each. Two threads of one core gain less; a
/// thread that was kept from its core seems to gain more.
const DOUBLES: RangeInclusive<f64> = 1.9..=2.1;

/// Minimum number of counting rounds for a reliable result.
const LEAST: usize = 3;

/// A round: one worker, two workers, and arithmetic before and after.
#[derive(Clone, Copy, Debug)]
struct Round {
    /// Nanoseconds per packet.
    one_ns: f64,
    two_ns: f64,
    /// Speed-up of arithmetic on two threads, before and after.
    arithmetic: [f64; 2],
    /// Whether every worker had a core.
    cores: bool,
}

impl Round {
    /// The speed-up of arithmetic, before or after, that is farther from two.
    fn gain(&self) -> f64 {
        let [before, after] = self.arithmetic;
        if (before - 2.0).abs() > (after - 2.0).abs() { before } else { after }
    }

    /// Whether it counts. This does not depend on the measured result.
    fn counts(&self) -> bool {
        self.cores && self.arithmetic.iter().all(|gain| DOUBLES.contains(gain))
    }
}

/// The rounds of a measurement. Rounds without two full cores are retaken.
#[derive(Clone, Debug)]
struct Rounds {
    taken: Vec<Round>,
    wanted: usize,
    most: usize,
}

/// Medians of the rounds that count, or of all if too few do.
#[derive(Clone, Copy, Debug)]
struct Told {
    /// Nanoseconds per packet.
    one_ns: f64,
    two_ns: f64,
    ratio: f64,
    arithmetic: f64,
}

impl Rounds {
    /// Takes rounds until `wanted` count, at most `most`.
    fn new(wanted: usize, most: usize) -> Self {
        Self { taken: Vec::with_capacity(most), wanted, most }
    }

    /// Takes a round, if more are wanted.
    fn take(&mut self, round: impl FnOnce() -> Round) {
        if self.taken.len() < self.most && self.taken() - self.retaken() < self.wanted {
            self.taken.push(round());
        }
    }

    /// Number of rounds taken.
    fn taken(&self) -> usize {
        self.taken.len()
    }

    /// Number of rounds that do not count.
    fn retaken(&self) -> usize {
        self.taken.iter().filter(|round| !round.counts()).count()
    }

    /// The speed-up of arithmetic in every round, counted or not.
    fn gains(&self) -> impl Iterator<Item = f64> {
        self.taken.iter().map(Round::gain)
    }

    fn told(&self) -> Told {
        let all = self.taken() - self.retaken() < LEAST;
        let told = || self.taken.iter().filter(|round| all || round.counts());
        let middle = |of: fn(&Round) -> f64| median(&told().map(of).collect::<Vec<_>>());
        Told {
            one_ns: middle(|round| round.one_ns),
            two_ns: middle(|round| round.two_ns),
            ratio: middle(|round| round.one_ns / round.two_ns),
            arithmetic: middle(Round::gain),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    /// Takes rounds with these gains of a summary and of arithmetic, as long as more are wanted.
    fn rounds(wanted: usize, most: usize, times: &[(f64, [f64; 2])]) -> Rounds {
        let mut rounds = Rounds::new(wanted, most);
        for &(ratio, arithmetic) in times {
            rounds.take(|| Round { one_ns: 10.0 * ratio, two_ns: 10.0, arithmetic, cores: true });
        }
        rounds
    }

    fn assert_near(number: f64, wanted: f64) {
        assert!((number - wanted).abs() < 1e-9, "{number} instead of {wanted}");
    }

    #[test]
    fn rounds_without_two_cores_are_retaken() {
        let (good, shared) = ([1.97, 1.98], [1.22, 1.23]);
        let changed = [[1.97, 1.3], [1.3, 1.97], [1.97, 2.5], [f64::NAN, 1.97]];
        let mut times = vec![(1.2, shared); 4];
        times.extend(changed.map(|arithmetic| (1.5, arithmetic)));
        times.extend([(1.9, good), (1.7, good), (1.8, good), (9.0, good)]);
        let rounds = rounds(3, 100, &times);
        assert_eq!((rounds.taken(), rounds.retaken()), (11, 8), "no more than are wanted");
        let told = rounds.told();
        assert_near(told.ratio, 1.8);
        assert_near(told.one_ns / told.two_ns, 1.8);
        assert_near(told.arithmetic, 1.97);
        assert_eq!(rounds.gains().filter(|gain| *gain < 1.4).count(), 6);
    }

    #[test]
    fn measured_times_retake_no_round() {
        let good = [2.0, 1.95];
        let times = [(0.6, good), (3.0, good), (0.7, good), (0.5, good)];
        let rounds = rounds(4, 8, &times);
        assert_eq!((rounds.taken(), rounds.retaken()), (4, 0));
        assert_near(rounds.told().ratio, 0.7);
    }

    #[test]
    fn rounds_with_other_processes_are_retaken() {
        let mut rounds = Rounds::new(2, 9);
        for cores in [false, true, false, true, true] {
            rounds.take(|| Round { one_ns: 2.0, two_ns: 1.0, arithmetic: [2.0; 2], cores });
        }
        assert_eq!((rounds.taken(), rounds.retaken()), (4, 2));
    }

    #[test]
    fn there_is_an_end_to_it() {
        let mut times = vec![(1.2, [1.22, 1.22]); 20];
        times[3] = (1.9, [1.96, 1.96]);
        times[5] = (1.9, [1.96, 1.96]);
        let rounds = rounds(5, 10, &times);
        assert_eq!((rounds.taken(), rounds.retaken()), (10, 8));
        assert!(rounds.taken() - rounds.retaken() < LEAST);
        let told = rounds.told();
        assert_near(told.ratio, 1.2);
        assert_near(told.arithmetic, 1.22);
    }
}
