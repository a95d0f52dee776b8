//! Two workers that fill a concurrent summary, against two with a summary each.

use std::sync::Arc;

use flowgauge_core::batch::BATCH_PACKETS;
use flowgauge_core::catalog;
use flowgauge_core::key::Key8;
use flowgauge_core::summary::concurrent::ConcurrentIngest;
use flowgauge_synthetic::Profile;

use super::{WORKERS, in_turns};
use crate::experiment::chart::{Chart, linear};
use crate::experiment::latency::{self, Bare, Runner};
use crate::experiment::parallel::{Together, together};
use crate::experiment::part::{Part, median};
use crate::experiment::setting::Setting;
use crate::experiment::stream::Stream;
use crate::experiment::structure::Structure;
use crate::experiment::table::{Table, row};
use crate::experiment::verdict::{Claim, Verdict};
use crate::experiment::{Experiment, Outcome, Preset};
use crate::failure::Failure;
use crate::keys::Pairs;
use crate::traffic::Scene;
use crate::trial::THRESHOLD;

pub(crate) const CONCURRENT: Experiment = Experiment {
    name: "scaling/shared",
    title: "two workers that share a summary, against two with one each",
    paper: "Simple (SOSR 2018), section 5",
    presets: &[
        super::EPOCH,
        super::CORES,
        Preset::other(
            "structures, traffic",
            "a count array, a trace",
            "every shared summary, in and beyond the cache, by Zipf's law with skew 0, 1 and 1.5",
            "the claim is of shared structures in general",
        ),
    ],
    measure,
    judge,
    missing: &[],
    charts: &[Chart {
        title: "A packet of two workers: one each (bar), shared (tick)",
        x: "structure",
        x_axis: linear(""),
        y: &[("two_ns", ", one each"), ("two_shared_ns", ", shared")],
        y_axis: linear("ns a packet"),
        series: "traffic",
        only: &[],
        paper: &[],
        see: "A tick above its bar says that sharing one summary costs more than one each; the nearer, the better.",
    }],
};

/// A configuration that fits the cache: bytes of a concurrent summary, and flows.
const SMALL: (usize, u64) = (1 << 19, 1 << 12);

/// Flows of a summary that does not fit.
const MANY: u64 = 1_000_000;

const CACHED: &str = "in the cache";
const BEYOND: &str = "beyond the cache";

/// Passes of the bare loop over all packets.
const BARE_PASSES: usize = 8;

const SKEWS: [f64; 3] = [0.0, 1.0, 1.5];

fn measure(setting: &Setting) -> Result<Outcome, Failure> {
    let mut table = Table::new([
        "structure",
        "size",
        "skew",
        "traffic",
        "one_ns",
        "one_shared_ns",
        "two_ns",
        "two_shared_ns",
        "times",
    ]);
    let (mut bare_ns, mut full) = (Vec::new(), Vec::new());
    for (size, (bytes, flows)) in [(CACHED, SMALL), (BEYOND, (setting.most_bytes, MANY))] {
        for skew in SKEWS {
            let whole = draw(setting, flows, skew)?;
            let parts = whole.deal(WORKERS, BATCH_PACKETS);
            let traffic = format!("{size}, skew {skew}");
            for name in catalog::CONCURRENT {
                let structure = Structure::new(*name, name).in_bytes(bytes);
                let (times, untracked) = contest(&structure, setting, &whole, &parts)?;
                if untracked > 0 {
                    full.push(format!("{name} {traffic}"));
                }
                let of = |at: usize| median(&times.iter().map(|ns| ns[at]).collect::<Vec<_>>());
                let ratios = times.iter().map(|[_, _, two, shared]| shared / two);
                let ratio = median(&ratios.collect::<Vec<_>>());
                row!(table, *name, size, skew, traffic.as_str(), of(0), of(1), of(2), of(3), ratio);
            }
            let bare = run(&mut [Bare::new()], std::slice::from_ref(&whole), BARE_PASSES);
            bare_ns.push(bare.latency.mean_ns);
        }
    }
    let limit = latency::limit(&bare_ns, BATCH_PACKETS);
    let notes = format!(
        "Nanoseconds of one worker, and of two together, for each packet. A shared summary has its \
         share of {} KiB, or of {} MiB; the others have as many cells, or as much room, without \
         candidates, and one worker's cells half as large. Batches go to the workers by turns, so that \
         both have packets of every flow: {} flows, or a million.{}",
        SMALL.0 >> 10,
        setting.most_bytes >> 20,
        SMALL.1,
        if full.is_empty() { String::new() } else { format!(" Full: {}.", full.join("; ")) }
    );
    Ok(Outcome { table, limit, notes })
}

/// Packets of this many flows with Zipf shares of this skew.
fn draw(setting: &Setting, flows: u64, skew: f64) -> Result<Stream<Pairs>, Failure> {
    let profile = Profile::Zipf { flows, skew };
    let epochs = Scene::Plain.draw(profile, setting.packets as u64, THRESHOLD, setting.seed)?;
    Ok(Stream::of(&epochs[0], setting.seed))
}

/// Nanoseconds per packet, round by round: one worker with an ordinary summary, one with a
/// concurrent one, two with a summary each, and two that fill one together. Also the number of
/// untracked packets.
fn contest(
    structure: &Structure,
    setting: &Setting,
    whole: &Stream<Pairs>,
    parts: &[Stream<Pairs>],
) -> Result<(Vec<[f64; 4]>, u64), Failure> {
    let mut concurrent = structure.concurrent::<Pairs>(setting)?;
    let shape = structure.clone().with(concurrent.collect().parameters());
    let mut alone = [shape.build::<Pairs>(setting)?];
    let mut each = [shape.build::<Pairs>(setting)?, shape.build::<Pairs>(setting)?];
    let concurrent: Arc<dyn ConcurrentIngest<Key8>> = concurrent.into();
    let mut one = [Arc::clone(&concurrent)];
    let mut both = [Arc::clone(&concurrent), concurrent];
    let whole = std::slice::from_ref(whole);
    let times = in_turns(
        whole[0].keys.len(),
        setting.rounds,
        [
            &mut |passes| run(&mut alone, whole, passes),
            &mut |passes| run(&mut one, whole, passes),
            &mut |passes| run(&mut each, parts, passes),
            &mut |passes| run(&mut both, parts, passes),
        ],
    );
    Ok((times, alone[0].answers().untracked().packets))
}

/// Each runner processes its packets `passes` times, all at once.
fn run<R: Runner<Pairs>>(runners: &mut [R], streams: &[Stream<Pairs>], passes: usize) -> Together {
    let runners = runners.iter_mut().map(|runner| runner as &mut dyn Runner<Pairs>);
    together(runners.zip(streams), BATCH_PACKETS, passes)
}

fn judge(table: &Table) -> Verdict {
    let less = |what: &str, size: &str, own: &str, shared: &str| {
        let of = |column: &str| table.numbers("size", size, column);
        Part::less(&format!("{what}, {size}: its own over a shared one"), &of(own), &of(shared))
    };
    let sizes = [CACHED, BEYOND];
    Verdict::of(
        table,
        [
            Claim::new(
                "For two workers, sharing is slower than a summary for each, whatever the structure, its size \
                 and the skew of the traffic.",
                sizes.map(|size| less("two workers", size, "two_ns", "two_shared_ns")),
                "Two workers that share have the memory of one summary between them.",
            ),
            Claim::new(
                "One worker is slower with a shared summary, too: it pays for what is atomic.",
                sizes.map(|size| less("one worker", size, "one_ns", "one_shared_ns")),
                "Memory is waited for longer than what is atomic takes.",
            ),
        ],
    )
}
