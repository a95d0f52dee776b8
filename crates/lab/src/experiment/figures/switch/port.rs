//! DPDK ports that replay captures, at full speed and at a steady rate.

use std::hint::black_box;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::{env, fs, process};

use flowgauge_core::any::BatchMut;
use flowgauge_core::batcher::{Batcher, BatcherOptions, Take};
use flowgauge_core::key::{CanonicalKey, KeyKind, KeySpec};
use flowgauge_core::packet::Frames;
use flowgauge_core::summary::Parameters;
use flowgauge_core::task::Report;
use flowgauge_dpdk::{Dpdk, DpdkQueue, PortOptions, open};
use flowgauge_engine::report::EpochReport;
use flowgauge_engine::sink::Each;
use flowgauge_engine::source::{Ahead, Burst, Columns, Skipped, Source, SourceError};
use flowgauge_engine::{Config, Pace, Plan};
use flowgauge_kernel::{Digester, Isa, Seed, cycles};
use flowgauge_synthetic::to_pcap_bytes;

use super::dpdk::{CLAIMED, CONTENDERS, COUNT_MIN, Contender, PARSING};
use crate::experiment::Outcome;
use crate::experiment::part::median;
use crate::experiment::setting::Setting;
use crate::experiment::table::{Table, row};
use crate::failure::Failure;
use crate::machine::{ns_per_cycle, thread_seconds};

/// Names: receiving alone, and lending packets that are not looked at.
const RECEIVING: &str = "receiving alone";
const LENDING: &str = "receiving, packets lent out";
const COMPUTING: &str = "receiving, then arithmetic";

/// Packets in each port's loop, and their flows.
const PACKETS: u64 = 16_384;
const FLOWS: u64 = 4_000;

/// Packet size of each port in bytes, without the 4-byte checksum.
const SIZES: [u32; 7] = [60, 124, 252, 508, 1020, 1276, 1514];

/// Loops received before timing starts, and while timing.
const COLD: u64 = 64;
const TIMED: u64 = 256;

/// Rounds in which all loops take turns; the table has their medians.
const ROUNDS: usize = 9;

pub(super) fn measure_cost(setting: &Setting) -> Result<Outcome, Failure> {
    let (flows, truth) = truth(setting.seed)?;
    let mut ports = ports(setting.seed)?;
    let memory = ports.memory;
    let queue = &mut ports.queues[0];
    let mut times = vec![Vec::new(); 4 + CONTENDERS.len()];
    let (mut told, mut alone) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        told.clear();
        alone.push(arithmetic_alone());
        times[0].push(timed(queue, receive)?);
        times[1].push(timed(queue, |source| each_burst(source, |_| {}))?);
        times[2].push(timed(queue, |source| each_burst(source, |_| compute()))?);
        times[3].push(timed(queue, parse)?);
        for (contender, times) in CONTENDERS.iter().zip(&mut times[4..]) {
            let mut report = None;
            times.push(timed(queue, |source| {
                report = run(contender, &truth, source)?;
                Ok(())
            })?);
            told.push(report);
        }
    }
    let medians: Vec<f64> = times.iter().map(|times| median(times)).collect();
    let bare = medians[0];
    let columns = ["measurement", "behind", "added_ns", "rate_share", "read_share", "error"];
    let mut table = Table::new(columns);
    row!(table, RECEIVING, "", 0.0, 1.0, 0.0, f64::NAN);
    row!(table, LENDING, "", medians[1] - bare, bare / medians[1], 0.0, f64::NAN);
    row!(table, COMPUTING, "", medians[2] - bare, bare / medians[2], 0.0, f64::NAN);
    row!(table, PARSING, "", medians[3] - bare, bare / medians[3], 1.0, f64::NAN);
    for ((contender, ns), report) in CONTENDERS.iter().zip(&medians[4..]).zip(&told) {
        let behind = contender.accelerator.map_or("", |(name, _)| name);
        let read = report.as_ref().map(|report| {
            let account = &report.account;
            1.0 - account.skipped.packets as f64 / account.read as f64
        });
        let error = report.as_ref().and_then(|report| error(report, &truth));
        row!(table, contender.name, behind, ns - bare, bare / ns, read, error);
    }
    let limit = format!(
        "Receiving 32 packets and giving their buffers back takes {bare:.1} ns a packet of net_pcap, which \
         copies each; {memory}. Arithmetic that takes {:.1} ns a packet alone adds {:.1} to lending packets out.",
        median(&alone),
        medians[2] - medians[1]
    );
    let notes = format!(
        "{PACKETS} packets of 64 bytes, of {flows} flows by Zipf's law, again and again; CPU time of the thread; \
         medians of {ROUNDS} rounds in which all take turns. Errors are root mean squares over the {} \
         largest flows, as shares of their sizes, at the end of {} million packets.",
        super::LARGEST,
        (COLD + TIMED) * PACKETS / 1_000_000
    );
    Ok(Outcome { table, limit, notes })
}

/// Arithmetic in registers for a burst, about as long as cutting its keys.
fn compute() {
    let mut numbers = black_box([1_u64, 2, 3, 4]);
    for step in 0..64 {
        numbers =
            numbers.map(|number| number.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(step));
    }
    black_box(numbers);
}

/// Nanoseconds of [`compute`] per packet of a burst, without receiving.
fn arithmetic_alone() -> f64 {
    let begun = thread_seconds();
    for _ in 0..TIMED * PACKETS / BURST {
        compute();
    }
    (thread_seconds() - begun) * 1e9 / (TIMED * PACKETS) as f64
}

/// The number of flows, and the largest with their shares, which do not depend on packet size.
fn truth(seed: u64) -> Result<(usize, Vec<(CanonicalKey, f64)>), Failure> {
    let packets = super::draw(PACKETS, FLOWS, SIZES[0], seed)?;
    Ok(super::largest(&packets, |packet| packet.key))
}

/// A queue per size in [`SIZES`], and the memory behind them.
struct Ports {
    queues: Vec<DpdkQueue>,
    memory: &'static str,
}

/// The ports. They exist once, because DPDK initializes once per process.
fn ports(seed: u64) -> Result<MutexGuard<'static, Ports>, Failure> {
    static PORTS: OnceLock<Result<Mutex<Ports>, String>> = OnceLock::new();
    let ports = PORTS.get_or_init(|| match start(seed) {
        Ok(ports) => Ok(Mutex::new(ports)),
        Err(Failure::Skipped(reason)) => Err(reason),
        Err(failure) => Err(failure.to_string()),
    });
    match ports {
        Ok(ports) => Ok(ports.lock().unwrap_or_else(PoisonError::into_inner)),
        Err(reason) => Err(Failure::Skipped(reason.clone())),
    }
}

fn start(seed: u64) -> Result<Ports, Failure> {
    let (memory, told) = if huge_pages() {
        (&["--in-memory"][..], "buffers lie in huge pages")
    } else {
        (&["--no-huge", "-m", "768", "--no-shconf"][..], "buffers lie in small pages")
    };
    let mut arguments: Vec<String> =
        [memory, &["--no-pci", "--no-telemetry"]].concat().into_iter().map(str::to_owned).collect();
    let (mut paths, mut names) = (Vec::new(), Vec::new());
    for (number, bytes) in SIZES.into_iter().enumerate() {
        let name = format!("flowgauge-port-{}-{number}", process::id());
        let path = env::temp_dir().join(name);
        let packets = super::draw(PACKETS, FLOWS, bytes, seed)?;
        fs::write(&path, to_pcap_bytes(packets)).map_err(Failure::of(path.display()))?;
        let capture = path.display();
        arguments.push(format!("--vdev=net_pcap{number},rx_pcap={capture},infinite_rx=1"));
        names.push((format!("net_pcap{number}"), None));
        paths.push(path);
    }
    let options = PortOptions { queues: 1, ring_bytes: 48 << 20, promiscuous: false };
    let opened = Dpdk::start(&arguments)
        .and_then(|dpdk| open(&dpdk, &names, &options, &Arc::new(AtomicBool::new(false))));
    for path in paths {
        fs::remove_file(&path).map_err(Failure::of(path.display()))?;
    }
    let queues = opened.map_err(|error| Failure::Skipped(error.to_string()))?;
    Ok(Ports { queues, memory: told })
}

/// Whether the system has 512 MiB of huge pages.
fn huge_pages() -> bool {
    let Ok(memory) = fs::read_to_string("/proc/meminfo") else { return false };
    let free = memory.lines().find_map(|line| line.strip_prefix("HugePages_Free:"));
    free.and_then(|free| free.trim().parse::<u32>().ok()).is_some_and(|free| free >= 256)
}

/// A queue that ends after a number of packets, and times most of them.
struct Timed<'a> {
    queue: &'a mut DpdkQueue,
    received: u64,
    begun: Option<(u64, f64)>,
    ns: f64,
}

impl Timed<'_> {
    /// Counts packets, and takes the time.
    fn count(&mut self, packets: u64) {
        self.received += packets;
        match self.begun {
            None if self.received >= COLD * PACKETS => {
                self.begun = Some((self.received, thread_seconds()));
            }
            Some((received, seconds)) if self.is_over() && self.ns.is_nan() => {
                let packets = self.received - received;
                self.ns = (thread_seconds() - seconds) * 1e9 / packets as f64;
            }
            _ => {}
        }
    }

    fn is_over(&self) -> bool {
        self.received >= (COLD + TIMED) * PACKETS
    }
}

impl Source for Timed<'_> {
    fn poll<'b>(&'b mut self, burst: &mut Burst<'b>) -> Result<bool, SourceError> {
        // Packets lent before have been measured by now.
        self.count(0);
        if self.is_over() {
            return Ok(false);
        }
        let Self { queue, received, .. } = self;
        let more = queue.poll(burst)?;
        *received += burst.len() as u64;
        Ok(more)
    }

    fn skip(&mut self, ahead: &Ahead) -> Skipped {
        let skipped = self.queue.skip(ahead);
        self.count(skipped.packets);
        skipped
    }

    fn pick(&mut self, ahead: &Ahead, gaps: &[u64]) -> Skipped {
        let skipped = self.queue.pick(ahead, gaps);
        self.count(skipped.packets);
        skipped
    }
}

/// Runs `work` with the queue's packets; returns nanoseconds per packet.
fn timed(
    queue: &mut DpdkQueue,
    work: impl FnOnce(&mut Timed<'_>) -> Result<(), Failure>,
) -> Result<f64, Failure> {
    let mut source = Timed { queue, received: 0, begun: None, ns: f64::NAN };
    work(&mut source)?;
    Ok(source.ns)
}

/// Receives packets and returns them, by skipping or, where the queue does not skip, by polling.
fn receive(source: &mut Timed<'_>) -> Result<(), Failure> {
    let all = Ahead { packets: u64::MAX, from_ns: 0, until_ns: i64::MAX };
    let mut columns = Columns::default();
    while !source.is_over() {
        if source.skip(&all).packets == 0 {
            poll(source, &mut Burst::new(&mut columns))?;
        }
    }
    Ok(())
}

fn poll<'a>(source: &'a mut dyn Source, burst: &mut Burst<'a>) -> Result<bool, Failure> {
    source.poll(burst).map_err(|error| Failure::Skipped(error.to_string()))
}

/// Receives packets, and runs `work` on the frames of each burst.
fn each_burst(source: &mut dyn Source, mut work: impl FnMut(Frames<'_>)) -> Result<(), Failure> {
    let mut columns = Columns::default();
    loop {
        let mut burst = Burst::new(&mut columns);
        if !poll(source, &mut burst)? {
            return Ok(());
        }
        work(burst.frames());
    }
}

/// Digests the keys of a batch.
struct Digests(Digester);

impl Take for Digests {
    fn take(&mut self, _: usize, batch: BatchMut<'_>) {
        if let BatchMut::Sixteen(batch) = batch {
            batch.digest(&self.0);
            black_box(batch.digests());
        }
    }
}

/// Parses headers, and digests five-tuples.
fn parse(source: &mut Timed<'_>) -> Result<(), Failure> {
    let (key, isa) = (KeySpec::from(KeyKind::FIVE_TUPLE), Isa::best());
    let mut batcher = Batcher::new(BatcherOptions::new(key));
    let mut digests = Digests(Digester::new(Seed::from(1), isa).for_keys(key.lanes()[0]));
    each_burst(source, |frames| {
        batcher.take(&frames, u64::MAX, &mut digests);
    })
}

/// Measures packets like the command does.
fn run(
    contender: &Contender,
    truth: &[(CanonicalKey, f64)],
    source: &mut dyn Source,
) -> Result<Option<EpochReport>, Failure> {
    let parameters =
        |pairs: &[(&'static str, &'static str)]| Parameters::new(pairs.iter().copied());
    let config = Config {
        algorithm: contender.algorithm.to_owned(),
        parameters: parameters(contender.parameters),
        accelerators: (contender.accelerator.iter())
            .map(|(name, pairs)| ((*name).to_owned(), parameters(pairs)))
            .collect(),
        tasks: Some(vec!["flow-size".to_owned()]),
        flows: truth.iter().map(|(key, _)| *key).collect(),
        lock_memory: true,
        pace: Pace::Live,
        ..Config::seeded(1)
    };
    let mut report = None;
    let mut keep = Each(|told: &EpochReport| {
        report = Some(told.clone());
        Ok(())
    });
    flowgauge_engine::run(Plan::new(config)?, source, &mut keep, &mut |_| {})?;
    Ok(report)
}

/// The size error of the largest flows.
fn error(report: &EpochReport, truth: &[(CanonicalKey, f64)]) -> Option<f64> {
    let Some((_, Report::Sizes { items, .. })) = report.tasks.first() else { return None };
    let sizes = items.iter().map(|item| item.size.packets.map_or(f64::NAN, |size| size.value));
    let shares = truth.iter().map(|(_, share)| *share);
    Some(super::error(sizes, shares, report.account.read as f64))
}

/// Queue size in packets, the default of Open vSwitch.
const DESCRIPTORS: u64 = 2048;

/// Packets received at once.
const BURST: u64 = 32;

/// The highest rate tried, in million packets per second, and the resolution of the search.
const MOST_MPPS: f64 = 128.0;
const WIDTH: f64 = 0.02;

/// Overhead of a packet on Ethernet in bytes: preamble and gap.
const GAP_BYTES: u32 = 20;

/// A longer burst may have been interrupted.
const LONG_NS: f64 = 20_000.0;

pub(super) fn measure_rates(setting: &Setting) -> Result<Outcome, Failure> {
    let full = setting.rounds >= Setting::full().rounds;
    let repeats = if full { 10 } else { 3 };
    let trial = setting.packets as u64;
    let (_, truth) = truth(setting.seed)?;
    let mut ports = ports(setting.seed)?;
    let memory = ports.memory;
    let mut table = Table::new([
        "measurement",
        "bytes",
        "mpps",
        "least_mpps",
        "most_mpps",
        "gbit",
        "link_mpps",
    ]);
    let mut bare = [0.0; SIZES.len()];
    let contenders = contenders();
    for (port, captured) in SIZES.into_iter().enumerate() {
        let bytes = captured + 4;
        let link = 10_000.0 / f64::from(8 * (bytes + GAP_BYTES));
        for contender in [None].into_iter().chain(contenders.iter().map(Some)) {
            let queue = &mut ports.queues[port];
            let mut rates = Vec::new();
            for _ in 0..repeats {
                rates.push(search(|mpps| {
                    let mut source = Paced::new(queue, mpps, trial);
                    match contender {
                        None => each_burst(&mut source, |_| {})?,
                        Some(contender) => drop(run(contender, &truth, &mut source)?),
                    }
                    Ok(!source.lost)
                })?);
            }
            rates.sort_by(f64::total_cmp);
            let mpps = median(&rates);
            let gbit = 10.0 * mpps / link;
            let name = contender.map_or(RECEIVING, |contender| contender.name);
            if contender.is_none() {
                bare[port] = mpps;
            }
            row!(table, name, f64::from(bytes), mpps, rates[0], rates[rates.len() - 1], gbit, link);
        }
    }
    let limit = format!(
        "Receiving from `net_pcap`, which copies every packet as a network card would for nothing, loses \
         none up to {:.1} million packets of 64 bytes a second, and {:.1} million of 1518; {memory}.",
        bare[0],
        bare[SIZES.len() - 1]
    );
    let notes = format!(
        "In one process: {BURST} packets are taken from the port when so many have arrived by the clock at a \
         steady rate, and a rate loses packets once more than {DESCRIPTORS} wait, as many as a queue of Open \
         vSwitch holds. A rate stands where {trial} packets pass without a loss; the search halves until \
         it is {} % wide, {repeats} times, of which the table has the median, the least and the most. \
         RFC 2544 asks for trials of 60 s and a generator of its own: here is no link, and no network \
         card. Time in which something else had the core does not count, and the memory of \
         measurements is faulted in and locked before, as `live --engine dpdk` does. `link_mpps` is the rate of a link of 10 \
         Gbit/s; bytes are with the checksum; `gbit` is with preamble and gap. {PACKETS} packets come \
         again and again, keys are five-tuples.",
        100.0 * WIDTH
    );
    Ok(Outcome { table, limit, notes })
}

fn contenders() -> [Contender; 5] {
    let of = |name, algorithm, parameters, accelerator| Contender {
        name,
        algorithm,
        parameters,
        accelerator,
        most_ns: f64::NAN,
    };
    let agg_evict: Option<(_, &[_])> = Some(("agg-evict", &[]));
    let [insta_measure, count_min, univmon, table] = CLAIMED;
    [
        of(insta_measure, "insta-measure", &[("entries", "65536")], None),
        of(count_min, "count-min", COUNT_MIN, agg_evict),
        of(univmon, "univmon", &[], agg_evict),
        of(table, "linear-table", &[("buckets", "131072")], None),
        of("count-min", "count-min", COUNT_MIN, None),
    ]
}

/// The highest rate that `stands`, by bisection; NaN if none does.
fn search(mut stands: impl FnMut(f64) -> Result<bool, Failure>) -> Result<f64, Failure> {
    let (mut least, mut most) = (0.0, MOST_MPPS);
    let mut rate = most / 4.0;
    while most > least * (1.0 + WIDTH) && rate > 0.1 {
        if stands(rate)? {
            least = rate;
        } else {
            most = rate;
        }
        rate = if least > 0.0 { (least * most).sqrt() } else { most / 2.0 };
    }
    Ok(if least > 0.0 { least } else { f64::NAN })
}

/// A queue with packets arriving at a steady rate. It ends after a number of packets, or with the
/// first loss.
struct Paced<'a> {
    queue: &'a mut DpdkQueue,
    /// Packets per cycle.
    rate: f64,
    start: u64,
    /// Cycles in which another process had the core.
    away: u64,
    /// Cycles and thread CPU seconds at the last reading, and cycles at the last poll.
    known: (u64, f64),
    looked: u64,
    taken: u64,
    until: u64,
    lost: bool,
}

impl<'a> Paced<'a> {
    fn new(queue: &'a mut DpdkQueue, mpps: f64, until: u64) -> Self {
        let (now, seconds) = (cycles(), thread_seconds());
        Self {
            queue,
            rate: mpps * 1e-3 * ns_per_cycle(),
            start: 0,
            away: 0,
            known: (now, seconds),
            looked: now,
            taken: 0,
            until,
            lost: false,
        }
    }

    /// Number of waiting packets.
    fn waiting(&mut self) -> u64 {
        let now = cycles();
        if self.start == 0 {
            // The measurement has been built by now.
            (self.start, self.known) = (now, (now, thread_seconds()));
        } else if (now - self.looked) as f64 * ns_per_cycle() > LONG_NS {
            let seconds = thread_seconds();
            let own = (seconds - self.known.1) * 1e9 / ns_per_cycle();
            self.away += (now - self.known.0).saturating_sub(own as u64);
            self.known = (now, seconds);
        }
        self.looked = now;
        let arrived = (now - self.start).saturating_sub(self.away) as f64 * self.rate;
        (arrived as u64).saturating_sub(self.taken)
    }
}

impl Source for Paced<'_> {
    fn poll<'b>(&'b mut self, burst: &mut Burst<'b>) -> Result<bool, SourceError> {
        loop {
            let waiting = self.waiting();
            self.lost = waiting > DESCRIPTORS;
            if self.lost || self.taken >= self.until {
                return Ok(false);
            }
            if waiting >= BURST {
                break;
            }
        }
        let Self { queue, taken, .. } = self;
        let more = queue.poll(burst)?;
        *taken += burst.len() as u64;
        Ok(more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_search_ends_below_the_rate_that_loses() {
        for limit in [0.3, 5.0, 14.88, 100.0] {
            let mut tried = 0;
            let found = search(|mpps| {
                tried += 1;
                Ok(mpps < limit)
            });
            let Ok(found) = found else { panic!("no trial fails") };
            assert!(found < limit && found * (1.0 + WIDTH) >= limit && tried < 20, "{found}");
        }
        assert!(search(|_| Ok(false)).is_ok_and(f64::is_nan));
    }
}
