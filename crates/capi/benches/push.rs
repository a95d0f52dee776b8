//! Benchmark of what the C interface adds to a meter, and of the longest calls: CPU time of bursts
//! of 32 packets in memory. The added cost is the median of interleaved rounds. Call times are
//! percentiles over 200,000 calls; one call in a thousand ends an epoch. The kernel's timer
//! interrupts calls, so a loop of arithmetic is timed the same way. The benchmark fails if the
//! 99.99th percentile exceeds the limit and that of the arithmetic does not.
#![expect(clippy::unwrap_used, reason = "a bench may stop at the first surprise")]

use std::ffi::{CString, c_void};
use std::hint::black_box;
use std::ptr::{null, null_mut};

use flowgauge_capi::*;
use flowgauge_core::packet::{Frame, FrameColumns, LinkType};
use flowgauge_engine::sink::Each;
use flowgauge_engine::{Config, EpochLength, Meter, Pace, Plan};
use rustix::time::{ClockId, clock_gettime};

const BURST: usize = 32;
const PACKETS: usize = 16_384;
const FLOWS: u32 = 2_600;
const ROUNDS: usize = 15;
/// Passes over the packets per round.
const PASSES: usize = 100;

/// Number of timed calls, calls per epoch, and the limit of a call.
const CALLS: usize = 200_000;
const EPOCH_CALLS: usize = 1_000;
const LIMIT_US: f64 = 50.0;

/// Packets in memory, in the form of each interface.
struct Frames {
    bytes: Vec<[u8; 60]>,
    data: Vec<*const c_void>,
    lengths: Vec<u32>,
}

impl Frames {
    fn new() -> Self {
        let bytes: Vec<_> = (0..PACKETS as u32).map(frame).collect();
        let data = bytes.iter().map(|bytes| bytes.as_ptr().cast()).collect();
        Self { bytes, data, lengths: vec![60; PACKETS] }
    }
}

/// Packet number `at` as a frame. A few flows have most packets.
fn frame(at: u32) -> [u8; 60] {
    let random = at.wrapping_mul(0x9e37_79b9).rotate_left(15).wrapping_mul(0x85eb_ca6b) >> 8;
    let share = f64::from(random) / f64::from(1 << 24);
    let flow = (f64::from(FLOWS).powf(share) - 1.0) as u32;
    let mut frame = [0; 60];
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14..24].copy_from_slice(&[0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17]);
    frame[26..30].copy_from_slice(&(0x0a00_0000 | flow).to_be_bytes());
    frame[30..38].copy_from_slice(&[10, 1, 0, 1, 0, 7, 0, 53]);
    frame
}

/// A named way to push all packets.
type Way<'a> = (&'static str, Box<dyn FnMut() + 'a>);

/// A meter of the Rust interface; its group closes on a thread.
fn of_rust() -> Box<dyn Meter> {
    let (pace, epoch) = (Pace::Live, EpochLength::Time(10_000_000_000));
    let config = Config { pace, epoch, memory_bytes: 16 << 20, ..Config::seeded(1) };
    let (mut meters, group) = Plan::new(config).ok().unwrap().build().unwrap();
    std::thread::spawn(move || group.close(&mut Each(|_: &_| Ok(()))).map(|_| ()));
    meters.pop().unwrap()
}

/// A meter of the C interface.
fn of_c(options: &str) -> *mut fg_meter {
    let (options, seed) = (CString::new(options).unwrap(), 1);
    let settings = fg_settings {
        size: size_of::<fg_settings>(),
        options: options.as_ptr(),
        yaml: null(),
        seed_file: null(),
        seed: &raw const seed,
        take: None,
        user: null_mut(),
        queues: 1,
        pace: FG_LIVE,
        inner: 0,
        snapshots: 0,
    };
    let mut group = null_mut();
    // SAFETY: the settings and the place for the group live until the call returns.
    assert_eq!(unsafe { fg_open(&raw const settings, &raw mut group) }, FG_OK);
    fg_queue(group, 0)
}

/// CPU time of this thread.
fn cpu_ns() -> i64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// The 99.99th percentile of the duration of a call, in microseconds.
fn longest(name: &str, mut call: impl FnMut(usize)) -> f64 {
    let switched = switches();
    let mut times: Vec<_> = (0..CALLS)
        .map(|number| {
            let begun_ns = cpu_ns();
            call(number);
            (cpu_ns() - begun_ns) as f64 / 1e3
        })
        .collect();
    let switched = switches() - switched;
    times.sort_unstable_by(f64::total_cmp);
    let at = |share: f64| times[((CALLS - 1) as f64 * share) as usize];
    let [median, percentile, most] = [0.5, 0.9999, 1.0].map(at);
    println!(
        "{name}: {median:.2} us a call, 99.99 % within {percentile:.1} us, all within {most:.1} us, with \
         {switched} involuntary switches"
    );
    percentile
}

/// Involuntary context switches of this thread.
fn switches() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:"));
    line.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

/// Times single calls of `fg_push`, epoch ends included.
fn calls(packets: &Frames) {
    let mut state = 1_u64;
    let arithmetic = longest("arithmetic", |_| {
        for _ in 0..1_000 {
            state = black_box(state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1));
        }
    });
    if arithmetic > LIMIT_US {
        println!("nothing is asserted: this machine stops arithmetic for {arithmetic:.0} us");
    }
    for options in [
        "memory=16MiB epoch=1s",
        "algorithm=count-min memory=16MiB epoch=1s",
        "algorithm=univmon accelerator=agg-evict memory=16MiB epoch=1s",
    ] {
        let meter = of_c(options);
        let most = longest(options, |number| {
            let first = number * BURST % PACKETS;
            let data = packets.data[first..].as_ptr();
            let lengths = packets.lengths[first..].as_ptr();
            let now_ns = (number * 1_000_000_000 / EPOCH_CALLS) as u64;
            // SAFETY: the meter is the library's, and so many packets follow.
            let code = unsafe {
                fg_push(meter, BURST as u32, data, lengths, lengths, now_ns.cast_signed())
            };
            assert_eq!(code, FG_OK);
        });
        assert!(most <= LIMIT_US || arithmetic > LIMIT_US, "{options}: {most} us");
    }
}

fn main() {
    let packets = Frames::new();
    let frames: FrameColumns<'_> = packets
        .bytes
        .iter()
        .map(|bytes| Frame { bytes, wire: 60, link: LinkType::ETHERNET, time_ns: 1 })
        .collect();
    let mut rust = of_rust();
    let (all, few) = (
        of_c("memory=16MiB"),
        of_c("memory=16MiB accelerator=uniform:sample=1000000,before=headers"),
    );
    let mut ways: [Way<'_>; 4] = [
        (
            "Meter::push",
            Box::new(|| {
                frames.frames().chunks(BURST).for_each(|burst| rust.push(black_box(burst)));
            }),
        ),
        (
            "fg_push",
            Box::new(|| {
                for first in (0..PACKETS).step_by(BURST) {
                    let data = packets.data[first..].as_ptr();
                    let lengths = packets.lengths[first..].as_ptr();
                    // SAFETY: the meter is the library's, and so many packets follow.
                    let code = unsafe { fg_push(all, BURST as u32, data, lengths, lengths, 1) };
                    assert_eq!(code, FG_OK);
                }
            }),
        ),
        (
            "fg_push of no packet",
            Box::new(|| {
                for _ in 0..PACKETS / BURST {
                    // SAFETY: the meter is the library's, and no packet is named.
                    unsafe { fg_advance(all, 1) };
                }
            }),
        ),
        (
            "fg_pick of a burst that is skipped",
            Box::new(|| {
                for _ in 0..PACKETS / BURST {
                    // SAFETY: the meter is the library's.
                    black_box(unsafe { fg_pick(few, BURST as u32, 60 * BURST as u64, 1) });
                }
            }),
        ),
    ];
    let mut times = vec![Vec::new(); ways.len()];
    for _ in 0..ROUNDS {
        for ((_, way), times) in ways.iter_mut().zip(&mut times) {
            let begun_ns = cpu_ns();
            (0..PASSES).for_each(|_| way());
            times.push((cpu_ns() - begun_ns) as f64 / (PASSES * PACKETS) as f64);
        }
    }
    for ((name, _), times) in ways.iter().zip(&mut times) {
        times.sort_unstable_by(f64::total_cmp);
        println!("{name}: {:.2} ns a packet", times[ROUNDS / 2]);
    }
    calls(&packets);
}
