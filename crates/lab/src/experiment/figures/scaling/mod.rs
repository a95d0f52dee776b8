//! How separate and concurrent structures scale over cores.

mod concurrent;
mod separate;
mod updates;

pub(super) use concurrent::CONCURRENT;
pub(super) use separate::SEPARATE;
pub(super) use updates::UPDATES;

use crate::experiment::parallel::Together;
use crate::experiment::{Preset, epoch};

const TRAFFIC: Preset = Preset::other(
    "traffic",
    "a minute of CAIDA: 27 million packets, a million flows, skew 1.1",
    "generated like a backbone's, or `--keys FILE`",
    "the trace is not free to hand on",
);
const EPOCH: Preset = Preset::of("epoch", "2 million packets", epoch, "`--quick` is for every day");
const CORES: Preset = Preset::same("cores", "2");

/// Workers compared with one.
const WORKERS: usize = 2;

/// Minimum nanoseconds of a measurement, per packet: 20 ms for a million.
const LEAST_NS: f64 = 20.0;

/// Measures several ways to process `packets`, in turns: nanoseconds per packet for each way, round
/// by round. Rounds in which the workers did not have a core each are left out.
fn in_turns<const N: usize>(
    packets: usize,
    rounds: usize,
    mut ways: [&mut dyn FnMut(usize) -> Together; N],
) -> Vec<[f64; N]> {
    let all = LEAST_NS * packets as f64;
    // The first passes meet every flow for the first time.
    for way in &mut ways {
        way(1);
    }
    let passes = ways.each_mut().map(|way| (all / way(1).wall_ns).ceil() as usize);
    let round = |_| {
        let mut times = [0.0; N];
        for ((way, passes), time) in ways.iter_mut().zip(passes).zip(&mut times) {
            let wall_ns = Together::undisturbed(|| way(passes))?.wall_ns;
            *time = wall_ns / (passes * packets) as f64;
        }
        Some(times)
    };
    (0..rounds).map(round).collect::<Option<_>>().unwrap_or_default()
}
