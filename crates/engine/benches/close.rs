//! How long the end of an epoch stops a meter, in CPU time of the meter's thread and in wall time. For
//! comparison, the first two bursts of 32 packets after it are timed, too.
//!
//! Each line is of 10,000 epochs with the same packets. The next epoch begins when the one before is
//! reported, or after 50 ms; the benchmark prints how many reports came later. It fails if the 99.9th
//! percentile of the CPU time exceeds the limit, unless a loop of arithmetic does, too.
#![expect(clippy::unwrap_used, reason = "a benchmark may stop at the first surprise")]

mod frame;

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use flowgauge_core::packet::{Frame, FrameColumns, LinkType};
use flowgauge_engine::report::EpochReport;
use flowgauge_engine::sink::Each;
use flowgauge_engine::{Config, EpochLength, Meter, Pace, Plan};
use rustix::time::{ClockId, clock_gettime};

use frame::frame;

const EPOCHS: i64 = 10_000;
const EPOCH_NS: i64 = 1_000_000_000;
const PACKETS: u64 = 2048;
const BURST: usize = 32;
const LIMIT_US: f64 = 50.0;
/// The longest wait for a report.
const PATIENCE: Duration = Duration::from_millis(50);

/// CPU time of this thread, and wall time, of a call, in microseconds.
fn timed(call: impl FnOnce()) -> [f64; 2] {
    let cpu_ns = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        time.tv_sec * 1_000_000_000 + time.tv_nsec
    };
    let (wall, cpu) = (Instant::now(), cpu_ns());
    call();
    [(cpu_ns() - cpu) as f64 / 1e3, wall.elapsed().as_secs_f64() * 1e6]
}

/// The medians and the 99.9th percentiles of CPU and wall time.
fn tell(name: &str, times: &[[f64; 2]]) -> f64 {
    let [cpu, wall] = [0, 1].map(|clock| {
        let mut times: Vec<_> = times.iter().map(|times| times[clock]).collect();
        times.sort_unstable_by(f64::total_cmp);
        [0.5, 0.999].map(|share| times[((times.len() - 1) as f64 * share) as usize])
    });
    println!("{name}\t{:.2}\t{:.2}\t{:.2}\t{:.2}", cpu[0], cpu[1], wall[0], wall[1]);
    cpu[1]
}

/// A live meter, and the number of its reported epochs.
fn meter(algorithm: &str, workers: usize) -> (Box<dyn Meter>, Arc<AtomicU64>) {
    let config = Config {
        algorithm: algorithm.to_owned(),
        epoch: EpochLength::Time(EPOCH_NS),
        pace: Pace::Live,
        memory_bytes: 512 << 10,
        tasks: Some(vec!["top".to_owned()]),
        workers,
        ..Config::seeded(1)
    };
    let (mut meters, group) = Plan::new(config).unwrap().build().unwrap();
    let reported = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&reported);
    thread::spawn(move || {
        let mut sink = Each(|_: &EpochReport| {
            count.fetch_add(1, Ordering::Release);
            Ok(())
        });
        group.close(&mut sink).map(|_| ())
    });
    (meters.pop().unwrap(), reported)
}

/// The times of the ends of epochs, and of the first and second bursts after them.
fn ends(name: &str, algorithm: &str, workers: usize) -> [Vec<[f64; 2]>; 3] {
    let bytes: Vec<_> = (0..PACKETS).map(|packet| frame(packet % 1000)).collect();
    let frames = |time_ns| -> FrameColumns<'_> {
        let frame = |bytes| Frame { bytes, wire: 60, link: LinkType::ETHERNET, time_ns };
        bytes.iter().map(|bytes| frame(&bytes[..])).collect()
    };
    let (mut meter, reported) = meter(algorithm, workers);
    let (mut times, mut late) = ([const { Vec::new() }; 3], 0);
    for epoch in 0..EPOCHS {
        let frames = frames(epoch * EPOCH_NS + 1);
        let before = reported.load(Ordering::Acquire);
        let mut bursts = frames.frames().chunks(BURST);
        let first = bursts.next().unwrap();
        let second = bursts.next().unwrap();
        times[0].push(timed(|| meter.advance(epoch * EPOCH_NS)));
        times[1].push(timed(|| meter.push(black_box(first))));
        times[2].push(timed(|| meter.push(black_box(second))));
        bursts.for_each(|burst| meter.push(burst));
        let waiting = Instant::now();
        while epoch > 0 && reported.load(Ordering::Acquire) == before {
            if waiting.elapsed() > PATIENCE {
                late += 1;
                break;
            }
            thread::sleep(Duration::from_micros(20));
        }
    }
    meter.finish();
    println!("{name}: {late} of {EPOCHS} reports late");
    times
}

fn main() {
    println!("what\tCPU: median us\t99.9 % us\twall: median us\t99.9 % us");
    let mut state = 1_u64;
    let mut arithmetic = || {
        for _ in 0..5_000 {
            state = black_box(state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1));
        }
    };
    let times: Vec<_> = (0..EPOCHS).map(|_| timed(&mut arithmetic)).collect();
    let arithmetic = tell("arithmetic", &times);
    if arithmetic > LIMIT_US {
        println!("nothing is asserted: this machine stops arithmetic for {arithmetic:.0} us");
    }
    for algorithm in ["linear-table", "count-min", "univmon"] {
        for workers in [1, 2] {
            let name = format!("{algorithm}, {workers} workers");
            let [ends, first, second] = ends(&name, algorithm, workers);
            tell(&format!("{name}, first burst"), &first);
            tell(&format!("{name}, second burst"), &second);
            let most = tell(&format!("{name}, end"), &ends);
            assert!(most <= LIMIT_US || arithmetic > LIMIT_US, "{algorithm}: {most} us");
        }
    }
}
