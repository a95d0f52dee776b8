//! Memory accesses of structures, and Figure 9: applications that take the caches and the memory.

use std::fmt::Write as _;
use std::thread;

use flowgauge_core::key::Key8;

use super::paper::Traced;
use super::{
    ARRAY, BATCH, CUCKOO_1, CUCKOO_4, Contender, INLINE, INLINE_ARRAY, Inline, LINEAR, OVERWRITING,
    Rows, Rule, SET_ARRAY, SET_COUNT_MIN, better,
};
use crate::experiment::chart::{Chart, Mark, linear, log};
use crate::experiment::latency::{BARE, Bare, COLUMNS, Latency, Runner, middle, noise, race_paced};
use crate::experiment::memory::{
    Antagonist, Caches, LINE_BYTES, Memory, Work, XEON, beside, read_ns, stream_rate,
};
use crate::experiment::part::{Part, median};
use crate::experiment::setting::{Mix, Setting};
use crate::experiment::stream::Stream;
use crate::experiment::table::{Table, row, short};
use crate::experiment::verdict::{Claim, Verdict};
use crate::experiment::{Experiment, Outcome, Preset};
use crate::failure::Failure;
use crate::keys::{Keys, Pairs};
use crate::machine::cache_sizes;

/// Memory accesses of structures by size, in a simulation of the paper's caches.
pub(crate) const CACHE: Experiment = Experiment {
    name: "simple/cache",
    title: "memory accesses by size, with the paper's caches",
    paper: "Simple (SOSR 2018), Fig. 2a and 3c",
    presets: &[
        super::TRAFFIC,
        super::EPOCH,
        Preset::other(
            "sizes",
            "3 and 200 MB; 0.05 to 200 MB for the array",
            "64 KB to 256 MB; the tables of 4 and 256 MB have 3 and 192 MB of entries",
            "a power of two of entries of 24 bytes",
        ),
        Preset::other(
            "counters of the processor",
            "not said which",
            "a simulation of its caches: 32 KB of 8 ways, 256 KB of 8 ways, 25 MB of 20 ways; least recently used",
            "other processors have other caches, and virtual machines no counters",
        ),
    ],
    measure: measure_lines,
    judge: judge_lines,
    missing: &[],
    charts: &[
        Chart {
            title: "Entries that a packet touches",
            y: &[("entries", "")],
            y_axis: log("entries a packet"),
            see: "The table comes down to one entry as it grows; the paper has 22 % more at 3 MB than at 200 MB.",
            ..LINES_BY_SIZE
        },
        Chart {
            title: "Lines that the core's own caches do not have",
            y: &[("beyond_l2", "")],
            y_axis: linear("lines a packet"),
            see: "Each line leaves the bottom where the structure leaves 256 KB; Count-Min has three places for each packet.",
            ..LINES_BY_SIZE
        },
        Chart {
            title: "Lines from memory",
            y: &[("memory", "")],
            y_axis: linear("lines a packet"),
            see: "Below 25 MB nothing comes from memory.",
            ..LINES_BY_SIZE
        },
    ],
};

const LINES_BY_SIZE: Chart = Chart {
    title: "",
    x: "size_mb",
    x_axis: log("size (MB)"),
    y: &[],
    y_axis: linear(""),
    series: "structure",
    only: &[],
    paper: &[],
    see: "",
};

/// Memory limits of the structures in bytes. A table stays below its limit.
const SIZES: [usize; 7] = [1 << 16, 1 << 18, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20];

/// The paper's structures with known positions, in `bytes` bytes.
fn structures(bytes: usize, packets: usize) -> [(&'static str, Box<dyn Traced<Pairs>>); 4] {
    [
        (INLINE, Box::new(Inline::<Pairs, 0>::new(Rule::Linear, bytes))),
        (INLINE_ARRAY, Box::new(Inline::<Pairs, 0>::new(Rule::Overwriting, bytes))),
        (SET_ARRAY, Box::new(Rows::<Pairs, 1>::new(bytes, packets))),
        (SET_COUNT_MIN, Box::new(Rows::<Pairs, 3>::new(bytes, packets))),
    ]
}

fn measure_lines(setting: &Setting) -> Result<Outcome, Failure> {
    let stream = Stream::<Pairs>::draw(setting, Mix::Trace)?;
    let mut table = Table::new([
        "structure",
        "size_mb",
        "structure_mb",
        "load_percent",
        "entries",
        "l1",
        "l2",
        "l3",
        "memory",
        "beyond_l2",
    ]);
    for bytes in SIZES {
        for (name, mut structure) in structures(bytes, setting.packets) {
            let lines = lines(&mut *structure, &stream.keys, &XEON);
            let (size, memory) =
                (super::megabytes(bytes), super::megabytes(structure.memory_bytes()));
            let load = structure.load().map(|load| 100.0 * load);
            let [l1, l2, l3, beyond] = [0, 1, 2, 3].map(|level| lines.found[level]);
            row!(
                table,
                name,
                size,
                memory,
                load,
                lines.entries,
                l1,
                l2,
                l3,
                beyond,
                lines.beyond_l2()
            );
        }
    }
    let limit =
        "A packet touches one entry at least, and its line comes from the first level at best.";
    let notes = "Nothing is timed: the lines of each packet go through a simulation of the caches, after an epoch \
                 before, and after the structure was emptied line by line. Not in it are packets, stack and code, \
                 prefetches by the processor, and the order that batches give to accesses. `load_percent` is how \
                 full the table is at the end of the epoch, on which its accesses depend."
        .to_owned();
    Ok(Outcome { table, limit: limit.to_owned(), notes })
}

fn judge_lines(table: &Table) -> Verdict {
    let at = |name: &str, size: f64, column: &str| {
        let mut rows =
            table.of("structure", name).filter(|row| (row.number("size_mb") - size).abs() < 1e-3);
        rows.next().map_or(f64::NAN, |row| row.number(column))
    };
    let more = at(INLINE, 4.0, "entries") / at(INLINE, 256.0, "entries");
    let of_array = |size: f64, column: &str| at(INLINE_ARRAY, size, column);
    Verdict::of(
        table,
        [
            Claim::new(
                "A linear table of 3 MB performs 22 % more memory accesses than one of 200 MB (within a tenth).",
                [Part::within("entries that a packet touches, 3 over 192 MB", more, 1.22, 0.1)],
                "How full the table of 3 MB is depends on the flows of an epoch, which the paper does not say.",
            ),
            Claim::new(
                "An array that fits into the second-level cache is served by the core's own caches, a larger one is \
                 not; one that fits into the last-level cache needs no memory, a larger one does (each for more or \
                 less than 1 % of the packets).",
                [
                    Part::at_most(
                        "64 KB: lines beyond the second level",
                        of_array(0.0625, "beyond_l2"),
                        0.01,
                    ),
                    Part::at_least(
                        "1 MB: lines beyond the second level",
                        of_array(1.0, "beyond_l2"),
                        0.01,
                    ),
                    Part::at_most("16 MB: lines from memory", of_array(16.0, "memory"), 0.01),
                    Part::at_least("64 MB: lines from memory", of_array(64.0, "memory"), 0.01),
                ],
                "Few flows have nearly all packets, so that their lines are near wherever the others are.",
            ),
        ],
    )
}

/// The mean number of lines that a packet touches.
struct Lines {
    entries: f64,
    /// Lines by the cache level that holds them; memory comes last.
    found: Vec<f64>,
}

impl Lines {
    /// Lines beyond the first two levels.
    fn beyond_l2(&self) -> f64 {
        self.found.iter().skip(2).sum()
    }
}

/// Feeds the keys to a structure twice, clearing it before each time. Returns the lines touched the
/// second time, in caches of these bytes and ways.
fn lines<K: Keys>(
    structure: &mut dyn Traced<K>,
    keys: &[K::Key],
    caches: &[(usize, usize)],
) -> Lines {
    let levels = caches.len();
    let mut caches = Caches::new(caches);
    let (mut entries, mut found) = (0_u64, vec![0_u64; levels + 1]);
    for _ in 0..2 {
        structure.begin();
        (0..structure.memory_bytes().div_ceil(LINE_BYTES)).for_each(|line| {
            caches.read(line as u64);
        });
        (entries, found) = (0, vec![0; levels + 1]);
        for key in keys {
            structure.trace(*key, &mut |first, bytes| {
                entries += 1;
                for line in first / LINE_BYTES..=(first + bytes - 1) / LINE_BYTES {
                    found[caches.read(line as u64)] += 1;
                }
            });
        }
    }
    let mean = |count: u64| count as f64 / keys.len() as f64;
    Lines { entries: mean(entries), found: found.into_iter().map(mean).collect() }
}

/// Figure 9a: an application that takes the cache.
pub(crate) const FIG9A: Experiment = Experiment {
    name: "simple/fig9a",
    title: "an application beside that takes the cache",
    paper: "Simple (SOSR 2018), Fig. 9a",
    presets: &[
        super::TRAFFIC,
        super::EPOCH,
        super::BATCHES,
        SIZE,
        Preset::other(
            "rate",
            "lowered, so that the other application has the cache",
            "5 microseconds between two batches",
            "the paper does not say by how much",
        ),
    ],
    measure: measure_cache,
    judge: judge_cache,
    missing: &[],
    charts: &[Chart {
        x: "antagonist_mb",
        x_axis: log("memory of the thread beside (MB)"),
        ..super::BY_SIZE
    }],
};

/// Figure 9b: applications that take the memory.
pub(crate) const FIG9B: Experiment = Experiment {
    name: "simple/fig9b",
    title: "applications beside that take the memory",
    paper: "Simple (SOSR 2018), Fig. 9b",
    presets: &[
        super::TRAFFIC,
        super::EPOCH,
        super::BATCHES,
        SIZE,
        Preset::other(
            "threads beside",
            "0 to 7 of 10 cores",
            "as many as cores are left, at most 7",
            "one more would share a core with what is measured; up to 7 by simulation",
        ),
    ],
    measure: measure_memory,
    judge: judge_memory,
    missing: &[],
    charts: &[
        Chart {
            only: &BESIDE_MEMORY,
            see: "Lines that rise show that threads beside take memory from what is measured.",
            ..BY_THREADS
        },
        Chart {
            title: "Latency by simulation",
            y: &[("mean_ns", "")],
            only: &[HERE_ARRAY, HERE_TABLE],
            see: "This machine's memory with more threads than it has cores: an upper bound, as the rate that is \
                  reached with two threads is taken for all there is.",
            ..BY_THREADS
        },
        Chart {
            title: "Latency by simulation, the paper's machine",
            y: &[("mean_ns", "")],
            only: &[PAPER_ARRAY],
            paper: &[Mark::At(PAPER_ARRAY, 7.0, 2.9 * PAPER_ALONE_NS)],
            see: "The paper has 2.9 times the latency with seven threads.",
            ..BY_THREADS
        },
    ],
};

const BY_THREADS: Chart =
    Chart { x: "antagonists", x_axis: linear("threads beside"), ..super::BY_SIZE };

const SIZE: Preset =
    Preset::other("size", "not named", "8 MB", "in the last-level cache, if alone there");

const NAMES: [&str; 5] = [ARRAY, OVERWRITING, LINEAR, CUCKOO_1, CUCKOO_4];

/// The same, and the paper's structure with known lines.
const BESIDE_MEMORY: [&str; 7] =
    [ARRAY, OVERWRITING, LINEAR, CUCKOO_1, CUCKOO_4, INLINE_ARRAY, INLINE];

/// Names of the simulated structures.
const HERE_ARRAY: &str = "overwriting array, inline, simulated";
const HERE_TABLE: &str = "linear table, inline, simulated";
const PAPER_ARRAY: &str = "overwriting array, inline, on the paper's machine";

/// Maximum number of simulated antagonist threads.
const MOST_THREADS: usize = 7;

/// Nanoseconds per packet in the paper's array.
const PAPER_ALONE_NS: f64 = 40.0;

/// The paper's machine: its latencies, the throughput of one thread, and the maximum of all
/// together. A core has 10 outstanding lines.
const PAPER_MEMORY: Memory =
    Memory { latency_ns: 69.0, cached_ns: 15.0, capacity: 14.5, thread: 12.0, window: 10.0 };

/// Lines of the packet itself and of its descriptor, which the network card writes.
const PACKET_LINES: f64 = 1.25;

/// Bytes per structure: it would fit the last-level cache, if it had that alone.
const BYTES: usize = 8 << 20;

/// Bytes of a streaming thread.
const STREAM_BYTES: usize = 128 << 20;

/// Pause between batches, so that the antagonist has the caches longer than the structure.
const PAUSE_NS: f64 = 5_000.0;

fn measure_cache(setting: &Setting) -> Result<Outcome, Failure> {
    let beside_them: Vec<(usize, usize)> = (0..=7).map(|power| (1, 1 << (20 + power))).collect();
    let stream = Stream::<Pairs>::draw(setting, Mix::Trace)?;
    race_beside(setting, &stream, Antagonist::Random, &NAMES, &beside_them)
}

fn measure_memory(setting: &Setting) -> Result<Outcome, Failure> {
    // One more would take CPU time from the measured thread.
    let threads = 0..cores().min(MOST_THREADS + 1);
    let beside_them: Vec<(usize, usize)> = threads.map(|count| (count, STREAM_BYTES)).collect();
    let stream = Stream::<Pairs>::draw(setting, Mix::Trace)?;
    let mut outcome =
        race_beside(setting, &stream, Antagonist::Stream, &BESIDE_MEMORY, &beside_them)?;
    simulate(&mut outcome, &stream.keys);
    Ok(outcome)
}

fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// The latencies of these structures beside this many threads with `bytes` bytes each.
fn race_beside(
    setting: &Setting,
    stream: &Stream<Pairs>,
    antagonist: Antagonist,
    names: &[&'static str],
    beside_them: &[(usize, usize)],
) -> Result<Outcome, Failure> {
    let mut table =
        Table::new(["structure", "antagonists", "antagonist_mb"].into_iter().chain(COLUMNS));
    let contenders = names.iter().map(|name| Contender::<Pairs>::named(name, BYTES, setting));
    let mut contenders = contenders.collect::<Result<Vec<_>, _>>()?;
    let mut bare = Bare::new();
    let mut runners: Vec<&mut dyn Runner<Pairs>> = vec![&mut bare];
    runners.extend(contenders.iter_mut().map(|one| &mut *one.runner as &mut dyn Runner<Pairs>));
    // Latencies by round, thread beside and runner: all threads beside take turns in each round.
    let mut rounds = Vec::new();
    for _ in 0..setting.rounds {
        let turn = beside_them.iter().map(|(count, bytes)| {
            beside(*count, antagonist, *bytes, || {
                race_paced(&mut runners, stream, BATCH, 1, PAUSE_NS)
            })
        });
        rounds.push(turn.collect::<Vec<_>>());
    }
    let labels: Vec<&str> = std::iter::once(&BARE).chain(names).copied().collect();
    for runner in 0..labels.len() {
        level(&mut rounds, runner);
    }
    for (at, (count, bytes)) in beside_them.iter().enumerate() {
        let of = |runner: usize| {
            middle(&rounds.iter().map(|round| round[at][runner]).collect::<Vec<_>>())
        };
        let times: Vec<Latency> = (0..labels.len()).map(of).collect();
        table.add_noise(noise(&times, setting.rounds));
        for (label, time) in labels.iter().zip(times) {
            let at = [(*label).into(), (*count).into(), super::megabytes(*bytes).into()];
            table.push(at.into_iter().chain(time.cells()));
        }
    }
    let limit = super::limit(&table);
    let notes = format!(
        "Structures of {} MB; between two batches are {} microseconds. This machine has {} cores; threads \
         beside never share a core with what is measured.",
        BYTES >> 20,
        PAUSE_NS / 1e3,
        cores()
    );
    Ok(Outcome { table, limit, notes })
}

/// Scales the latencies of a runner in each round, so that all rounds have the same median over the
/// threads beside: the machine drifts from round to round by more than these differ.
fn level(rounds: &mut [Vec<Vec<Latency>>], runner: usize) {
    let of: [fn(&mut Latency) -> &mut f64; 2] = [|one| &mut one.mean_ns, |one| &mut one.p99_ns];
    for of in of {
        let mut middles = Vec::new();
        for round in rounds.iter_mut() {
            middles
                .push(median(&round.iter_mut().map(|at| *of(&mut at[runner])).collect::<Vec<_>>()));
        }
        let all = median(&middles);
        for (round, middle) in rounds.iter_mut().zip(middles) {
            for at in round {
                *of(&mut at[runner]) *= all / middle;
            }
        }
    }
}

/// Adds rows of the paper's structures by simulation: with the measured memory of this machine, and
/// with the paper's.
fn simulate(outcome: &mut Outcome, keys: &[Key8]) {
    let [latency_ns, at_once_ns] = read_ns(256 << 20);
    let [cached_ns, _] = read_ns(BYTES);
    let (thread, capacity) = (stream_rate(1, STREAM_BYTES), stream_rate(2, STREAM_BYTES));
    let window = latency_ns / at_once_ns;
    let memory = Memory { latency_ns, cached_ns, capacity, thread, window };
    let own_caches = match cache_sizes() {
        sizes if sizes.len() < 2 => XEON.to_vec(),
        sizes => sizes,
    };
    let lines = |rule: Rule, caches: &[(usize, usize)]| {
        lines(&mut Inline::<Pairs, 0>::new(rule, BYTES), keys, caches).beyond_l2()
    };
    let alone = |name: &str| {
        let means = outcome.table.numbers("structure", name, "mean_ns");
        means.first().copied().unwrap_or(f64::NAN)
    };
    let here = |name: &str, rule: Rule| Work {
        packets: BATCH,
        lines: lines(rule, &own_caches),
        alone_ns: alone(name),
    };
    let paper = Work {
        packets: BATCH,
        lines: PACKET_LINES + lines(Rule::Overwriting, &XEON),
        alone_ns: PAPER_ALONE_NS,
    };
    let simulated = [
        (HERE_ARRAY, memory, here(INLINE_ARRAY, Rule::Overwriting)),
        (HERE_TABLE, memory, here(INLINE, Rule::Linear)),
        (PAPER_ARRAY, PAPER_MEMORY, paper),
    ];
    for (name, memory, work) in &simulated {
        for threads in 0..=MOST_THREADS {
            row!(
                outcome.table,
                *name,
                threads,
                super::megabytes(STREAM_BYTES),
                memory.packet_ns(work, threads)
            );
        }
    }
    let [array, linear, paper] = simulated.map(|(_, _, work)| short(work.lines));
    let _ = write!(
        outcome.notes,
        " Rows that are simulated: the memory controller serves one line of 64 bytes after another, in order of \
         arrival; a thread beside keeps a fixed number of lines under way, and a batch asks for its lines in \
         advance, so many at once, and computes when all are there. With threads beside, nothing is left of \
         the last-level cache. Measured on this machine as input: a line from memory takes {} ns, one from \
         the last-level cache {} ns, a core waits for {} lines at once, one thread reads and writes {} GB/s, \
         two {} GB/s, which is taken for all the controller serves; a packet alone takes what it was \
         measured to; lines that it touches beyond the second-level cache are {array} (array) and {linear} \
         (table), by the simulation of `simple/cache`. Input of the paper's machine: 69 and 15 ns, 12 GB/s of \
         one thread, 14.5 GB/s of all, 40 ns for a packet in the array, {paper} lines, of which {} are the \
         packet's own; 10 lines at once, as its processor has buffers. Limits: a controller has several \
         channels and banks, prefers some requests to others, and turns between reads and writes; a batch \
         computes while lines are under way; where two threads do not use up the controller, more of them \
         delay less than is simulated.",
        short(latency_ns),
        short(cached_ns),
        short(window),
        short(thread),
        short(capacity),
        short(PACKET_LINES),
    );
}

/// Claims that an array has the lowest mean in every setting; at each point the better of the two
/// counts.
fn array_is_fastest(table: &Table) -> Claim {
    let of = |name: &str| table.numbers("structure", name, "mean_ns");
    let tables = better(&better(&of(LINEAR), &of(CUCKOO_1)), &of(CUCKOO_4));
    let arrays = better(&of(ARRAY), &of(OVERWRITING));
    Claim::new(
        "The array remains the fastest.",
        [Part::less("mean of the faster array over the fastest table", &arrays, &tables)],
        "Where all wait for memory, what is counted there matters little.",
    )
}

fn judge_cache(table: &Table) -> Verdict {
    // Memory well within the last-level cache, and well beyond.
    let mean = |from: f64, to: f64, name: &str| {
        let rows = table.of("structure", name);
        let rows = rows.filter(|row| (from..=to).contains(&row.number("antagonist_mb")));
        median(&rows.map(|row| row.number("mean_ns")).collect::<Vec<_>>())
    };
    let [within, beyond] = [(1.0, 4.0), (64.0, 128.0)]
        .map(|(from, to)| [OVERWRITING, LINEAR, CUCKOO_4].map(|name| mean(from, to, name)));
    let what =
        "mean of array, linear table and cuckoo-4, beside 1 to 4 MB over beside 64 to 128 MB";
    Verdict::of(
        table,
        [
            Claim::new(
                "Latency is higher beside a thread that adds to random words of more memory than the \
                 last-level cache has than beside one whose words fit.",
                [Part::less(what, &within, &beyond)],
                "Cores may have parts of the last-level cache that others cannot take.",
            ),
            array_is_fastest(table),
        ],
    )
}

fn judge_memory(table: &Table) -> Verdict {
    let means = |name: &str| table.numbers("structure", name, "mean_ns");
    let rises = |name: &str| {
        let means = means(name);
        match means.len() {
            0 | 1 => Part::open(format!("{name}: there is no core for a thread beside")),
            _ => Part::moves(&format!("mean of the {name} (ns), by threads beside"), &means, true),
        }
    };
    let at = |name: &str, threads: usize| means(name).get(threads).copied().unwrap_or(f64::NAN);
    let agrees = |name: &str, simulated: &str| {
        let what = format!("{name}, one thread beside (ns): simulated, as measured");
        Part::within(&what, at(simulated, 1), at(name, 1), 0.2).timed()
    };
    let seven = at(PAPER_ARRAY, MOST_THREADS) / at(PAPER_ARRAY, 0);
    Verdict::of(
        table,
        [
            Claim::new(
                "Latency rises with the number of threads beside that stream through memory.",
                [OVERWRITING, LINEAR, CUCKOO_4].map(rises),
                "One thread does not take all bandwidth of this machine's memory.",
            ),
            array_is_fastest(table),
            Claim::new(
                "With seven threads beside, the array takes 2.9 times as long (by simulation of the paper's machine, \
                 within a quarter).",
                [Part::within("seven threads over none, simulated", seven, 2.9, 0.25)],
                "The simulation has one queue for all lines; how many of them a packet waits for is not said.",
            ),
            Claim::new(
                "This project's: with one thread beside, the simulation is within a fifth of what is measured here.",
                [agrees(INLINE_ARRAY, HERE_ARRAY), agrees(INLINE, HERE_TABLE)],
                "Threads beside take less of the last-level cache than is simulated, or more of the memory.",
            ),
        ],
    )
}

#[cfg(test)]
mod tests {
    use flowgauge_core::key::FlowKey;

    use super::*;

    /// Repeating keys fit into the first level; too many keys come from beyond.
    #[test]
    fn lines_are_found_where_they_fit() {
        let key = |number: u64| Key8::from_canonical(&number.to_be_bytes());
        let few: Vec<Key8> = (0..20_000).filter_map(|i| key(i % 50)).collect();
        let mut table = Inline::<Pairs, 0>::new(Rule::Linear, 1 << 20);
        let near = lines(&mut table, &few, &XEON);
        assert!((table.load().unwrap_or(0.0) - 50.0 / 32_768.0).abs() < 1e-9);
        assert!((1.0..1.1).contains(&near.entries), "{}", near.entries);
        assert!(near.found[0] > 0.99 * near.found.iter().sum::<f64>(), "{:?}", near.found);
        assert!(near.beyond_l2() < 0.01);

        // A full table is searched to the end.
        let many: Vec<Key8> = (0..20_000).filter_map(key).collect();
        let mut full = Inline::<Pairs, 0>::new(Rule::Linear, 1 << 14);
        assert!(lines(&mut full, &many, &XEON).entries > 100.0 && full.load() == Some(1.0));

        // Three rows are three accesses each.
        let mut rows = Rows::<Pairs, 3>::new(1 << 20, 1000);
        assert!((lines(&mut rows, &many, &XEON).entries - 3.0).abs() < 1e-9);
    }
}
