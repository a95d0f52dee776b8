//! Latency as the papers measure it: cycles per batch divided by its packets, in a histogram of two
//! cycles per bucket, after a warm-up pass.

use std::hint::black_box;
use std::sync::Arc;

use flowgauge_core::batch::{BATCH_PACKETS, Batch};
use flowgauge_core::summary::Summary;
use flowgauge_core::summary::concurrent::ConcurrentIngest;
use flowgauge_kernel::{Digester, Isa, Seed, cycles};

use super::part::{median, spread};
use super::setting::FRAME_BYTES;
use super::stream::Stream;
use super::table::{Cell, Noise, short};
use crate::keys::Keys;
use crate::machine::ns_per_cycle;

/// Name of the bare loop in tables.
pub(crate) const BARE: &str = "bare loop";

/// Buckets of the histogram, and cycles per bucket.
const BUCKETS: usize = 2048;
const BUCKET_CYCLES: u64 = 2;

/// One in this many packets warms up caches and branch predictors before each measured pass.
const WARM_UP: usize = 8;

/// Processes batches and is timed.
pub(crate) trait Runner<K: Keys>: Send {
    /// Starts an epoch.
    fn begin(&mut self);
    /// Processes a batch.
    fn take(&mut self, batch: &mut Batch<K::Key>);
    /// Processes whatever is held back.
    fn end(&mut self) {}
    /// Whether batches need elements.
    fn wants_elements(&self) -> bool {
        false
    }
    /// Untracked packets.
    fn untracked(&self) -> u64 {
        0
    }
}

impl<K: Keys> Runner<K> for Box<dyn Summary<K::Key>> {
    fn begin(&mut self) {
        self.next_epoch();
    }

    fn take(&mut self, batch: &mut Batch<K::Key>) {
        self.ingest(batch);
    }

    fn end(&mut self) {
        self.settle();
    }

    fn wants_elements(&self) -> bool {
        self.reads().elements
    }

    fn untracked(&self) -> u64 {
        self.answers().untracked().packets
    }
}

/// A concurrent summary that other threads fill too.
impl<K: Keys> Runner<K> for Arc<dyn ConcurrentIngest<K::Key>> {
    /// Joins the epoch that the other threads are in.
    fn begin(&mut self) {}

    fn take(&mut self, batch: &mut Batch<K::Key>) {
        self.ingest(batch);
    }
}

/// The lower limit: fills and digests batches, and counts nothing.
pub(crate) struct Bare(Digester);

impl Bare {
    /// A bare loop.
    pub(crate) fn new() -> Self {
        Self(Digester::new(Seed::number(1), Isa::best()))
    }
}

impl<K: Keys> Runner<K> for Bare {
    fn begin(&mut self) {}

    fn take(&mut self, batch: &mut Batch<K::Key>) {
        batch.digest(&self.0.for_keys(K::BYTES));
        black_box(batch.digests());
    }
}

/// Time per packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Latency {
    /// Mean over the batches in the histogram.
    pub(crate) mean_ns: f64,
    /// The 99th percentile.
    pub(crate) p99_ns: f64,
    /// Spread of each over rounds, in ns.
    pub(crate) mean_spread: f64,
    pub(crate) p99_spread: f64,
}

/// The latency columns.
pub(super) const COLUMNS: [&str; 4] = ["mean_ns", TAIL, "mean_ns_spread", "p99_ns_spread"];

/// The column of tails.
pub(super) const TAIL: &str = "p99_ns";

impl Latency {
    /// The cells of [`COLUMNS`].
    pub(super) fn cells(&self) -> [Cell; 4] {
        [self.mean_ns, self.p99_ns, self.mean_spread, self.p99_spread].map(Cell::from)
    }

    /// Throughput in million packets per second.
    pub(super) fn mpps(&self) -> f64 {
        1e3 / self.mean_ns
    }
}

/// A histogram of cycles per packet, weighted by packets.
pub(super) struct Histogram {
    packets: Vec<u64>,
    /// Cycles of all batches in it.
    cycles: u64,
    /// Packets of batches beyond the last bucket: they were interrupted.
    beyond: u64,
}

impl Histogram {
    pub(super) fn new() -> Self {
        Self { packets: vec![0; BUCKETS], cycles: 0, beyond: 0 }
    }

    /// Adds a batch.
    pub(super) fn take(&mut self, packets: usize, cycles: u64) {
        let bucket = cycles / packets as u64 / BUCKET_CYCLES;
        match self.packets.get_mut(bucket as usize) {
            Some(count) => {
                *count += packets as u64;
                self.cycles += cycles;
            }
            None => self.beyond += packets as u64,
        }
    }

    /// Adds another histogram.
    pub(super) fn merge(&mut self, other: &Self) {
        for (packets, others) in self.packets.iter_mut().zip(&other.packets) {
            *packets += others;
        }
        self.cycles += other.cycles;
        self.beyond += other.beyond;
    }

    pub(super) fn latency(&self) -> Latency {
        let within: u64 = self.packets.iter().sum();
        let mean = self.cycles as f64 / within as f64;
        let mut left = (within + self.beyond) * 99 / 100;
        let mut p99 = f64::NAN;
        for (bucket, packets) in self.packets.iter().enumerate() {
            if left <= *packets {
                // Packets lie evenly in their bucket.
                let buckets = bucket as f64 + left as f64 / *packets as f64;
                p99 = buckets * BUCKET_CYCLES as f64;
                break;
            }
            left -= packets;
        }
        let tick = ns_per_cycle();
        Latency { mean_ns: mean * tick, p99_ns: p99 * tick, mean_spread: 0.0, p99_spread: 0.0 }
    }
}

/// Processes the keys in batches of `batch_packets` from memory. Batches larger than the engine's
/// are first copied to a buffer. Times nothing without a histogram.
pub(crate) fn pass<K: Keys>(
    runner: &mut dyn Runner<K>,
    stream: &Stream<K>,
    batch_packets: usize,
    batch: &mut Batch<K::Key>,
    mut timed: Option<&mut dyn FnMut(usize, u64)>,
) {
    let with_elements = runner.wants_elements();
    let mut buffer: Vec<K::Key> = Vec::with_capacity(batch_packets);
    let elements = stream.elements.chunks(batch_packets);
    for (keys, elements) in stream.keys.chunks(batch_packets).zip(elements) {
        let start = cycles();
        let keys = if batch_packets > BATCH_PACKETS {
            buffer.clear();
            buffer.extend_from_slice(keys);
            black_box(&buffer[..])
        } else {
            keys
        };
        for (keys, elements) in keys.chunks(BATCH_PACKETS).zip(elements.chunks(BATCH_PACKETS)) {
            if with_elements {
                batch.fill_with_elements(keys, elements, FRAME_BYTES);
            } else {
                batch.fill(keys, FRAME_BYTES);
            }
            runner.take(batch);
        }
        if let Some(timed) = &mut timed {
            timed(keys.len(), cycles() - start);
        }
    }
    runner.end();
}

/// A sentence about a bare loop's times with this batch size.
pub(crate) fn limit(bare_ns: &[f64], batch_packets: usize) -> String {
    format!(
        "Batches of {batch_packets} that are filled and digested, with nothing counted, take {} ns a \
         packet.",
        short(median(bare_ns))
    )
}

/// The latencies of these runners in batches of this size, with all runners taking turns on the
/// same packets in each round. Medians over the rounds.
pub(crate) fn race<K: Keys>(
    runners: &mut [&mut dyn Runner<K>],
    stream: &Stream<K>,
    batch_packets: usize,
    rounds: usize,
) -> Vec<Latency> {
    race_paced(runners, stream, batch_packets, rounds, 0.0)
}

/// Like [`race`], with a pause in nanoseconds after each measured batch.
pub(crate) fn race_paced<K: Keys>(
    runners: &mut [&mut dyn Runner<K>],
    stream: &Stream<K>,
    batch_packets: usize,
    rounds: usize,
    pause_ns: f64,
) -> Vec<Latency> {
    let pause = (pause_ns / ns_per_cycle()) as u64;
    let mut batch = Batch::new();
    let warm = stream.keys.len() / WARM_UP;
    let warm_up =
        Stream { keys: stream.keys[..warm].to_vec(), elements: stream.elements[..warm].to_vec() };
    // The first touch of memory costs a page fault.
    for runner in &mut *runners {
        runner.begin();
        pass(&mut **runner, stream, batch_packets, &mut batch, None);
    }
    let mut times = vec![Vec::new(); runners.len()];
    for _ in 0..rounds {
        for (runner, times) in runners.iter_mut().zip(&mut times) {
            runner.begin();
            pass(&mut **runner, &warm_up, batch_packets, &mut batch, None);
            runner.begin();
            let mut histogram = Histogram::new();
            let mut timed = |packets, taken| {
                histogram.take(packets, taken);
                let start = cycles();
                while cycles() - start < pause {}
            };
            pass(&mut **runner, stream, batch_packets, &mut batch, Some(&mut timed));
            times.push(histogram.latency());
        }
    }
    times.iter().map(|times| middle(times)).collect()
}

/// Medians over rounds.
pub(super) fn middle(times: &[Latency]) -> Latency {
    let of = |of: fn(&Latency) -> f64| times.iter().map(of).collect::<Vec<f64>>();
    let (means, tails) = (of(|latency| latency.mean_ns), of(|latency| latency.p99_ns));
    Latency {
        mean_ns: median(&means),
        p99_ns: median(&tails),
        mean_spread: spread(&means),
        p99_spread: spread(&tails),
    }
}

/// How far medians of this many rounds are uncertain, as a share of them. Smaller differences cannot
/// be distinguished. Of nine rounds it is the median relative spread, and it falls with the root of
/// their number.
pub(super) fn noise(times: &[Latency], rounds: usize) -> Noise {
    let scale = (9.0 / rounds as f64).sqrt();
    let of = |of: fn(&Latency) -> f64| scale * median(&times.iter().map(of).collect::<Vec<f64>>());
    Noise {
        means: of(|latency| latency.mean_spread / latency.mean_ns),
        tails: of(|latency| latency.p99_spread / latency.p99_ns),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_tell_how_far_they_differ() {
        let round =
            |mean_ns, p99_ns| Latency { mean_ns, p99_ns, mean_spread: 0.0, p99_spread: 0.0 };
        let means = [9.0, 9.5, 10.0, 10.5, 30.0].map(|mean| round(mean, 20.0));
        let tails = [18.0, 18.0, 20.0, 22.0, 22.0].map(|tail| round(10.0, tail));
        let one = noise(&[middle(&means)], 9);
        assert!((one.means - 0.05).abs() < 1e-9 && one.tails <= 0.0);
        let most = noise(&[middle(&means), middle(&tails), middle(&tails)], 9);
        assert!(most.means <= 0.0 && (most.tails - 0.1).abs() < 1e-9);
        assert!(noise(&[middle(&means[..1])], 9).means <= 0.0);
        assert!((noise(&[middle(&means)], 36).means - 0.025).abs() < 1e-9);
    }

    #[test]
    fn a_histogram_knows_mean_and_tail() {
        let mut histogram = Histogram::new();
        for _ in 0..98 {
            histogram.take(64, 64 * 10);
        }
        histogram.take(64, 64 * 100);
        histogram.take(64, 64 * 1_000_000);
        let Latency { mean_ns, p99_ns, .. } = histogram.latency();
        let tick = ns_per_cycle();
        assert!((mean_ns / tick - (98.0 * 10.0 + 100.0) / 99.0).abs() < 1e-9);
        assert!((p99_ns / tick - 102.0).abs() < 1e-9);
        histogram.take(64, 64 * 100);
        let p99_ns = histogram.latency().p99_ns;
        // Packet 6,399 is the 127th of the 128 in this bucket; 6,272 are in an earlier one.
        assert!((p99_ns / tick - (100.0 + 2.0 * 127.0 / 128.0)).abs() < 1e-9);
        histogram.take(64, 64 * 1_000_000);
        histogram.take(64, 64 * 1_000_000);
        assert!(histogram.latency().p99_ns.is_nan(), "the tail lies beyond");
    }
}
