//! Effects of workers on each other: waiting, dropping, failing, and pinning.

use std::path::Path;
use std::time::{Duration, Instant};
use std::{fs, io, thread};

use flowgauge_capture::Captures;
use flowgauge_core::packet::{Frame, LinkType};
use flowgauge_core::task::Report;
use flowgauge_core::terms::Size;
use flowgauge_engine::report::EpochReport;
use flowgauge_engine::sink::Each;
use flowgauge_engine::source::{Burst, Source, SourceError};
use flowgauge_engine::{Config, EngineError, EpochLength, Meter, Outcome, Overrun, Plan};
use rustix::time::{ClockId, clock_gettime};

use crate::capture::{Pcap, udp};
use crate::epochs::SECOND;
use crate::meters::push;
use crate::workers::algorithm;
use crate::{asking, refusal};

pub(crate) fn each(
    config: Config,
    bytes: &[u8],
    epoch: impl FnMut(&EpochReport) -> io::Result<()> + Send,
) -> Result<Outcome, EngineError> {
    let mut source = Captures::from_bytes("test.pcap", bytes.to_vec());
    flowgauge_engine::run(Plan::new(config).unwrap(), &mut source, &mut Each(epoch), &mut |_| {})
}

/// `packets` packets of one flow, which dispatch by any means gives to one worker.
pub(crate) fn one_flow(packets: u64) -> Vec<u8> {
    let mut pcap = Pcap::new();
    for i in 0..packets {
        pcap.udp(i, (3, 1), (2, 2));
    }
    pcap.0
}

pub(crate) fn busy(overrun: Overrun) -> Config {
    Config { epoch: EpochLength::Packets(10_000), workers: 2, overrun, ..asking(&["top"]) }
}

/// The closer takes long over the first epoch: the worker that has all the packets waits
/// for summaries in the third, and its ring is full. Each epoch's report says how many it measured.
#[test]
fn batches_that_find_a_full_ring_are_dropped_and_counted() {
    for workers in [2, 4] {
        let mut sums = Vec::new();
        let mut wait = Some(Duration::from_millis(300));
        let config = Config { workers, ..busy(Overrun::Drop) };
        let outcome = each(config, &one_flow(45_000), |report| {
            thread::sleep(wait.take().unwrap_or_default());
            let measured = match &report.tasks[0].1 {
                Report::Sizes { items, .. } => {
                    items.first().map_or(0.0, |item| item.size.packets.unwrap().value)
                }
                other => panic!("{other:?}"),
            };
            sums.push((report.account.keyed, report.account.dropped, measured as u64));
            let noted = report.notes.iter().any(|note| note.contains("the workers were too slow"));
            assert_eq!(noted, report.account.dropped.packets > 0);
            Ok(())
        });
        let total = outcome.unwrap().total.account;
        assert_eq!(sums.len(), 5);
        for (keyed, dropped, measured) in &sums {
            assert_eq!(*keyed, dropped.packets + measured, "{workers}");
            assert_eq!(dropped.bytes, dropped.packets * 64);
        }
        assert!(sums[2].1.packets > 2000, "{workers} {sums:?}");
        assert_eq!(total.keyed, 45_000);
        let dropped: u64 = sums.iter().map(|(_, dropped, _)| dropped.packets).sum();
        assert_eq!(total.dropped.packets, dropped);
    }
}

#[test]
fn where_the_source_waits_nothing_is_dropped_and_the_wait_is_noted() {
    let mut wait = Some(Duration::from_millis(100));
    let outcome = each(busy(Overrun::Wait), &one_flow(45_000), |report| {
        thread::sleep(wait.take().unwrap_or_default());
        assert_eq!((report.account.dropped, report.notes.len()), (Size::default(), 0));
        Ok(())
    });
    let Outcome { total, swaps, .. } = outcome.unwrap();
    assert_eq!(total.account.keyed, 45_000);
    assert_eq!(swaps.count(), 5);
    assert!(swaps.waits().epochs > 0 && swaps.waits().time > Duration::from_millis(1));
    assert!(total.notes[0].contains("epochs ended faster"), "{:?}", total.notes);
}

#[test]
fn a_failure_ends_the_run_with_one_reason() {
    let bytes = one_flow(45_000);
    for workers in [2, 3] {
        let config = Config { workers, ..busy(Overrun::Wait) };
        let full = each(config.clone(), &bytes, |_| Err(io::ErrorKind::StorageFull.into()));
        assert!(matches!(full, Err(EngineError::Sink(_))), "{full:?}");
        let failed = each(config, &bytes, |report| {
            assert!(report.epoch < 2, "a defect of the sink");
            Ok(())
        });
        let message = failed.err().unwrap().to_string();
        assert!(message.contains("'closer' failed: a defect of the sink"), "{message}");
    }
}

/// A source of two epochs of ten packets, and then of nothing for as long as it is asked, but not for
/// ever.
struct Endless {
    bytes: Vec<u8>,
    polls: u32,
}

const POLLS: u32 = 10_000;

impl Source for Endless {
    fn poll<'a>(&'a mut self, burst: &mut Burst<'a>) -> Result<bool, SourceError> {
        self.polls += 1;
        if self.polls == 1 {
            let (bytes, wire) = (&self.bytes[..], self.bytes.len() as u32);
            let frame = Frame { bytes, wire, link: LinkType::ETHERNET, time_ns: 1 };
            burst.extend([frame; 20]);
        } else {
            thread::sleep(Duration::from_millis(1));
        }
        Ok(self.polls < POLLS)
    }
}

/// The reading thread notices that the sink is closed even if it has nothing to pass on.
#[test]
fn a_refused_report_ends_the_reading() {
    let bytes = udp((3, 1), (2, 2));
    for workers in [2, 3] {
        let epoch = EpochLength::Packets(10);
        let config = Config { epoch, workers, ..busy(Overrun::Wait) };
        let mut source = Endless { bytes: bytes.clone(), polls: 0 };
        let mut epochs = 0;
        let mut full = Each(|_: &EpochReport| {
            epochs += 1;
            Err(io::ErrorKind::StorageFull.into())
        });
        let run =
            flowgauge_engine::run(Plan::new(config).unwrap(), &mut source, &mut full, &mut |_| {});
        assert!(matches!(run, Err(EngineError::Sink(_))), "{run:?}");
        assert!(epochs == 1 && source.polls < POLLS / 2, "{} polls", source.polls);
    }
}

/// The cores on which a thread may run, by its folder below `/proc`.
fn cores(thread: &Path) -> Vec<usize> {
    let status = fs::read_to_string(thread.join("status")).unwrap_or_default();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let ranges = list.into_iter().flat_map(|list| list.trim().split(','));
    let ends = ranges.map(|range| range.split_once('-').unwrap_or((range, range)));
    ends.flat_map(|(low, high)| low.parse().unwrap()..=high.parse().unwrap()).collect()
}

/// Whether a thread of this name may run on these cores only.
fn has_thread(name: &str, on: &[usize]) -> bool {
    let named = |thread: &Path| {
        let own = fs::read_to_string(thread.join("comm")).unwrap_or_default();
        own.trim_end() == name
    };
    let mut threads = fs::read_dir("/proc/self/task").unwrap().map(|entry| entry.unwrap().path());
    threads.any(|thread| named(&thread) && cores(&thread) == on)
}

#[test]
fn workers_stay_on_their_cores_or_the_run_is_refused() {
    let own = || cores(Path::new("/proc/thread-self"));
    for workers in [1, 2] {
        let epoch = EpochLength::Packets(100);
        let pinned = Config { workers, epoch, pin: true, ..asking(&["top"]) };
        let plan = match Plan::new(pinned) {
            Ok(plan) => plan,
            Err(error) => {
                assert!(error.to_string().contains("--pin needs"), "{error}");
                continue;
            }
        };
        let (all, mut reading, mut closing) = (own(), Vec::new(), Vec::new());
        let mut source = Captures::from_bytes("test.pcap", one_flow(1000));
        let mut sink = Each(|report: &EpochReport| {
            closing.push(own());
            // The worker that measures the third epoch waits for the first report.
            if workers == 2 && report.epoch == 0 {
                assert!(has_thread("worker 1", &all[1..2]), "no worker is on the second core");
            }
            Ok(())
        });
        flowgauge_engine::run(plan, &mut source, &mut sink, &mut |_| reading.push(own())).unwrap();
        assert!(reading.len() > 1 && reading.iter().all(|cores| *cores == all[..1]), "{reading:?}");
        // The closer is a thread of its own, which stays on no core.
        assert_eq!(closing.len(), 10);
        assert!(closing.iter().all(|cores| *cores == all), "{workers} {closing:?}");
        assert_eq!(own(), all);
    }
    let many = refusal(Config { workers: 256, pin: true, ..asking(&["top"]) }).to_string();
    assert!(many.contains("--pin needs a core for each of 256 workers"), "{many}");
}

/// What no meter may be stopped for at the end of an epoch, in 999 of 1000, whatever the size of its
/// summaries: in CPU time of its thread, since the machine may have other things to do meanwhile.
#[test]
#[ignore = "measures time: make bench runs it"]
fn the_end_of_an_epoch_stops_no_meter_for_long() {
    const EPOCHS: i64 = 10_000;
    let bytes = udp((1, 1), (2, 80));
    // Advances one meter through all epochs: CPU and wall time of each end.
    let ends = |mut meter: Box<dyn Meter>| {
        let mut ends = Vec::new();
        for epoch in 1..=EPOCHS {
            let (wire, time_ns) = (bytes.len() as u32, epoch * SECOND);
            let frame = Frame { bytes: &bytes, wire, link: LinkType::ETHERNET, time_ns };
            // A batch, for which a replay may wait for a spare set; the rest is measured at the end.
            push(&mut *meter, &[frame; 300]);
            // The other threads keep up: waiting for them is not part of ending an epoch.
            thread::sleep(Duration::from_micros(200));
            let (cpu_ns, begun) = (cpu_ns(), Instant::now());
            meter.advance((epoch + 1) * SECOND);
            ends.push((self::cpu_ns() - cpu_ns, begun.elapsed()));
        }
        meter.finish();
        ends
    };
    for (name, memory_bytes, workers, queues) in [
        ("linear-table", 1 << 20, 1, 1),
        ("linear-table", 64 << 20, 1, 1),
        ("linear-table", 64 << 20, 2, 1),
        ("linear-table", 64 << 20, 1, 2),
        ("count-min", 64 << 20, 1, 1),
        ("count-min", 64 << 20, 2, 1),
        ("count-min", 64 << 20, 1, 2),
    ] {
        let config = Config {
            workers,
            queues,
            epoch: EpochLength::Time(SECOND),
            memory_bytes,
            ..algorithm(name, &[])
        };
        let (meters, group) = Plan::new(config).unwrap().build().unwrap();
        let mut found = Vec::new();
        thread::scope(|scope| {
            let threads: Vec<_> =
                meters.into_iter().map(|meter| scope.spawn(|| ends(meter))).collect();
            let mut reports = 0;
            group
                .close(&mut Each(|_: &EpochReport| {
                    reports += 1;
                    Ok(())
                }))
                .unwrap();
            assert!(reports >= EPOCHS, "{reports} reports");
            for thread in threads {
                found.extend(thread.join().unwrap());
            }
        });
        let (mut cpu_ns, mut wall): (Vec<_>, Vec<_>) = found.into_iter().unzip();
        cpu_ns.sort_unstable();
        wall.sort_unstable();
        let place = cpu_ns.len() * 999 / 1000;
        println!(
            "{name}, {} MiB, {workers} workers, {queues} queues: 99.9th percentile {} us of CPU time and {} us of \
             wall time, most {} and {} us",
            memory_bytes >> 20,
            cpu_ns[place] / 1000,
            wall[place].as_micros(),
            cpu_ns[cpu_ns.len() - 1] / 1000,
            wall[wall.len() - 1].as_micros(),
        );
        assert!(cpu_ns[place] <= 50_000, "{} ns", cpu_ns[place]);
    }
}

/// CPU time of this thread in nanoseconds.
fn cpu_ns() -> i64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec * SECOND + now.tv_nsec
}
