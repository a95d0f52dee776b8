//! Structures of other projects beside ours: same keys, same memory; updates per second and errors.
//!
//! Everything runs on one core and counts the thread's CPU time. In each round all structures
//! process the same packets, one right after the other. Rates are medians over the rounds, errors
//! are those of the last round.

#[cfg(feature = "dpdk")]
mod dpdk;
mod others;
mod ours;

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

use crate::args::Peers;
use crate::exact::{Exact, number};
use crate::experiment::{Mix, Setting, Stream, median, short};
use crate::failure::Failure;
use crate::keys::Pairs;
use crate::machine::{self, thread_seconds};
use crate::trial::THRESHOLD;

const COUNT_MIN: &str = "Count-Min, 4 x 65536";
const SAMPLED_COUNT_MIN: &str = "Count-Min 4 x 65536, one row in 100 sampled";
const EXACT_TABLE: &str = "exact table";

/// A structure that counts 8-byte keys.
trait Peer {
    /// Removes all keys.
    fn begin(&mut self);
    /// Counts one packet per key.
    fn take(&mut self, keys: &[u64]);
    /// Bytes of memory.
    fn memory_bytes(&self) -> usize;
    /// Packets of a flow, if it answers sizes.
    fn size(&self, key: u64) -> Option<f64>;
    /// Number of flows, if it answers that.
    fn flows(&self) -> Option<f64>;
}

/// A member of a group.
struct Contender {
    /// Its origin: a crate, or flowgauge.
    project: &'static str,
    name: &'static str,
    peer: Box<dyn Peer>,
}

/// Structures for one purpose, with the same memory or the same shape.
struct Group {
    purpose: &'static str,
    contenders: Vec<Contender>,
}

/// The ground truth of the stream.
struct Truth {
    /// The large flows and their packets.
    heavy: Vec<(u64, f64)>,
    flows: usize,
}

impl Truth {
    fn count(keys: &[u64]) -> Self {
        let flows = Exact::count(keys.iter().map(|key| number(&key.to_ne_bytes())).collect());
        let least = THRESHOLD * keys.len() as f64;
        let heavy = flows.iter().filter(|(_, packets)| *packets as f64 > least);
        let key = |number: u128| ((number >> 64) as u64).to_be();
        let heavy = heavy.map(|(number, packets)| (key(number), packets as f64));
        Self { heavy: heavy.collect(), flows: flows.len() }
    }

    /// The root mean square of relative errors, and the largest.
    fn errors(&self, peer: &dyn Peer) -> Option<(f64, f64)> {
        if let Some(flows) = peer.flows() {
            let error = (flows / self.flows as f64 - 1.0).abs();
            return Some((error, error));
        }
        let errors = self
            .heavy
            .iter()
            .map(|(key, truth)| peer.size(*key).map(|packets| (packets / truth - 1.0).abs()));
        let errors = errors.collect::<Option<Vec<f64>>>()?;
        let squares: f64 = errors.iter().map(|error| error * error).sum();
        let worst = errors.iter().copied().fold(0.0, f64::max);
        Some(((squares / errors.len() as f64).sqrt(), worst))
    }
}

/// Measures all structures, and writes the requested output.
///
/// # Errors
/// When a structure cannot be built, or a file cannot be written.
pub(crate) fn measure(asked: &Peers) -> Result<(), Failure> {
    let setting = Setting { packets: asked.packets as usize, seed: asked.seed, ..Setting::quick() };
    let keys = draw(&setting)?;
    let truth = Truth::count(&keys);
    let rows = rows(&setting, &keys, &truth, asked.rounds as usize)?;
    let about = format!(
        "{} packets of {} flows (pairs of addresses, profile backbone), {} of them with more than {} % of \
         the packets; {} rounds",
        keys.len(),
        truth.flows,
        truth.heavy.len(),
        100.0 * THRESHOLD,
        asked.rounds
    );
    write(&rows, &about, asked.output.as_deref())
}

/// Draws pairs of addresses, as the numbers that other projects take.
///
/// # Errors
/// When they cannot be drawn.
fn draw(setting: &Setting) -> Result<Vec<u64>, Failure> {
    let stream = Stream::<Pairs>::draw(setting, Mix::Trace)?;
    Ok(stream.keys.into_iter().map(bytemuck::cast).collect())
}

fn rows(
    setting: &Setting,
    keys: &[u64],
    truth: &Truth,
    rounds: usize,
) -> Result<Vec<Row>, Failure> {
    let mut groups = groups(setting, truth.flows)?;
    let mut rows = Vec::new();
    for group in &mut groups {
        let mut times = vec![Vec::new(); group.contenders.len()];
        // The first round touches memory for the first time.
        for round in 0..=rounds {
            for (contender, times) in group.contenders.iter_mut().zip(&mut times) {
                contender.peer.begin();
                let start = thread_seconds();
                contender.peer.take(keys);
                if round > 0 {
                    times.push(thread_seconds() - start);
                }
            }
        }
        for (contender, times) in group.contenders.iter().zip(times) {
            rows.push(Row {
                purpose: group.purpose,
                project: contender.project,
                name: contender.name,
                memory_bytes: contender.peer.memory_bytes(),
                mups: keys.len() as f64 / median(&times) / 1e6,
                errors: truth.errors(&*contender.peer),
            });
        }
    }
    Ok(rows)
}

/// All groups, for a stream of `flows` flows.
fn groups(setting: &Setting, flows: usize) -> Result<Vec<Group>, Failure> {
    let frequent = others::frequent_items();
    let frequent_bytes = frequent.peer.memory_bytes();
    #[cfg_attr(not(feature = "dpdk"), expect(unused_mut, reason = "only DPDK's join the groups"))]
    let mut groups = vec![
        Group {
            purpose: COUNT_MIN,
            contenders: [
                ours::count_min(setting)?,
                vec![others::datasketches_count_min(), others::asap_count_min()],
            ]
            .into_iter()
            .flatten()
            .collect(),
        },
        Group {
            purpose: "Count Sketch, 4 x 65536",
            contenders: vec![
                ours::count_sketch(setting)?,
                ours::nitro_count_sketch(setting)?,
                others::asap_count_sketch(),
            ],
        },
        Group {
            purpose: SAMPLED_COUNT_MIN,
            contenders: vec![ours::nitro_count_min(setting)?, others::asap_nitro_count_min()],
        },
        Group {
            purpose: "frequent items",
            contenders: vec![ours::space_saving(setting, frequent_bytes)?, frequent],
        },
        Group {
            purpose: EXACT_TABLE,
            contenders: vec![
                ours::linear_table(setting, flows)?,
                others::map_of_sizes(),
                others::map(),
                others::map_of_digests(),
            ],
        },
        Group {
            purpose: "number of flows, 16384 registers",
            contenders: vec![
                ours::hyperloglog(setting)?,
                ours::linear_counting(setting)?,
                others::datasketches_hll(),
                others::asap_hll(),
            ],
        },
    ];
    #[cfg(feature = "dpdk")]
    dpdk::join(&mut groups, flows)?;
    Ok(groups)
}

/// The result of one structure.
struct Row {
    purpose: &'static str,
    project: &'static str,
    name: &'static str,
    memory_bytes: usize,
    /// Million updates per second.
    mups: f64,
    /// Root mean square and maximum of the relative errors.
    errors: Option<(f64, f64)>,
}

/// Prints the table; with a path, writes it there with a Markdown version beside it.
///
/// # Errors
/// When a file cannot be written.
fn write(rows: &[Row], about: &str, output: Option<&Path>) -> Result<(), Failure> {
    let tabs = tabs(rows);
    io::stdout().lock().write_all(tabs.as_bytes()).map_err(Failure::of("standard output"))?;
    let Some(path) = output else { return Ok(()) };
    let write =
        |path: &Path, text: &str| fs::write(path, text).map_err(Failure::of(path.display()));
    write(path, &tabs)?;
    write(&path.with_extension("md"), &markdown(rows, about))
}

fn tabs(rows: &[Row]) -> String {
    let mut text =
        "purpose\tproject\tstructure\tmemory_bytes\tmillion_updates_per_s\trms_percent\tworst_percent\n"
            .to_owned();
    for Row { purpose, project, name, memory_bytes, mups, errors } in rows {
        let errors = errors.map_or_else(
            || "\t".to_owned(),
            |(rms, worst)| format!("{}\t{}", short(100.0 * rms), short(100.0 * worst)),
        );
        let mups = short(*mups);
        let _ = writeln!(text, "{purpose}\t{project}\t{name}\t{memory_bytes}\t{mups}\t{errors}");
    }
    text
}

fn markdown(rows: &[Row], about: &str) -> String {
    let mut text = "| structure | memory | million updates/s | error (RMS) | error (worst) |\n\
                    |---|---:|---:|---:|---:|\n"
        .to_owned();
    let mut last = "";
    for Row { purpose, project, name, memory_bytes, mups, errors } in rows {
        if last != *purpose {
            let _ = writeln!(text, "| **{purpose}** | | | | |");
            last = purpose;
        }
        let percent = |error: Option<f64>| {
            error.map_or("-".to_owned(), |error| format!("{} %", short(100.0 * error)))
        };
        let (rms, worst) = (percent(errors.map(|e| e.0)), percent(errors.map(|e| e.1)));
        let kib = memory_bytes.div_ceil(1024);
        let mups = short(*mups);
        let _ = writeln!(text, "| {project} `{name}` | {kib} KiB | {mups} | {rms} | {worst} |");
    }
    let _ = write!(
        text,
        "\n{about}; one core, CPU time, keys of eight bytes from memory. Errors are of the sizes of the \
         large flows, or of the number of flows. The exact table counts packets and bytes, as the first map \
         does; the others count packets alone. {}; {}.\n",
        machine::describe(),
        machine::caches()
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every structure is near the truth, and each group has ours and others.
    #[test]
    fn all_count_the_same_packets() {
        let setting = Setting { packets: 60_000, ..Setting::quick() };
        let Ok(keys) = draw(&setting) else { panic!("the traffic is drawn") };
        let truth = Truth::count(&keys);
        assert!(truth.heavy.len() > 20 && truth.flows > 1000);
        let Ok(rows) = rows(&setting, &keys, &truth, 1) else { panic!("all are built") };
        for row in &rows {
            let Row { purpose, project, name, memory_bytes, mups, errors } = row;
            let about = format!("{purpose}: {name} of {project}, {errors:?}");
            let Some((rms, worst)) = *errors else { panic!("{about}") };
            // A sample of one in a hundred says little about such a short stream, and frequent
            // items omit some.
            let sampled = purpose.contains("sampled") || name.contains("NitroSketch");
            let most = if sampled {
                3.0
            } else if *purpose == "frequent items" {
                1.0
            } else {
                0.3
            };
            assert!(rms <= worst + 1e-12 && worst <= most, "{about}");
            if *purpose == EXACT_TABLE {
                assert!(worst < 1e-12, "{about}");
            }
            assert!(*memory_bytes > 1000 && *mups > 0.0, "{about}");
            let same = || rows.iter().filter(|other| other.purpose == *purpose);
            assert!(same().any(|row| row.project == ours::PROJECT), "{about}");
            assert!(same().any(|row| row.project != ours::PROJECT), "{about}");
        }
    }
}
