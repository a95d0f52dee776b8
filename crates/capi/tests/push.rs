//! A live meter's calls allocate nothing and never give the processor away: within epochs, where they end,
//! and where packets are skipped.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::ffi::{CStr, CString, c_void};
use std::fs;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU64, Ordering};

use flowgauge_capi::*;
use flowgauge_kernel::counting::{Counting, heap};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const BURST: usize = 32;

/// Packets of 64 flows, as Ethernet frames and as headers.
struct Packets {
    frames: Vec<[u8; 60]>,
    headers: Vec<fg_headers>,
}

impl Packets {
    fn new() -> Self {
        let mut frames = Vec::new();
        let mut headers = Vec::new();
        for flow in 0..64 {
            let mut frame = [0; 60];
            frame[12..14].copy_from_slice(&[8, 0]);
            frame[14..24].copy_from_slice(&[0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17]);
            frame[26..34].copy_from_slice(&[10, 0, 0, flow, 10, 0, 1, 1]);
            frame[34..38].copy_from_slice(&[0, flow, 0, 53]);
            frames.push(frame);
            let (mut source, mut destination) = ([0; 16], [0; 16]);
            source[..4].copy_from_slice(&frame[26..30]);
            destination[..4].copy_from_slice(&frame[30..34]);
            headers.push(fg_headers {
                source,
                destination,
                source_port: flow.into(),
                destination_port: 53,
                wire: 60,
                version: 4,
                protocol: 17,
                has_ports: 1,
                reserved: 0,
            });
        }
        Self { frames, headers }
    }

    /// Pushes burst number `at` in every way there is.
    fn push(&self, meter: *mut fg_meter, at: usize, now_ns: i64) {
        let first = at * BURST % (self.frames.len() - BURST + 1);
        let data: [*const c_void; BURST] =
            std::array::from_fn(|place| self.frames[first + place].as_ptr().cast());
        let lengths = [60; BURST];
        let headers = self.headers[first..].as_ptr();
        let bytes = 60 * BURST as u64;
        // SAFETY: the meter is one of the library's, and the arrays have as many items as the calls say.
        let codes = unsafe {
            let wanted = fg_pick(meter, BURST as u32, bytes, now_ns).count_ones();
            [
                fg_push(meter, wanted, data.as_ptr(), lengths.as_ptr(), lengths.as_ptr(), now_ns),
                fg_push_parsed(meter, BURST as u32, headers, now_ns),
                fg_advance(meter, now_ns),
            ]
        };
        assert_eq!(codes, [FG_OK; 3]);
    }
}

/// How often this thread allocated, and gave the processor away of its own accord.
fn so_far() -> (u64, String) {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap();
    let switches = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches"));
    (heap().allocations, switches.unwrap().to_owned())
}

#[test]
fn a_push_neither_allocates_nor_waits() {
    let packets = Packets::new();
    for options in [
        "key=source task=top epoch=10ms memory=4MiB",
        "key=five-tuple algorithm=count-min epoch=10ms memory=4MiB",
        "accelerator=agg-evict algorithm=univmon epoch=10ms memory=16MiB",
        "accelerator=uniform:sample=100,before=headers epoch=10ms memory=4MiB",
        "filter='udp port 53' epoch=10ms updates=5ms memory=4MiB",
        "a: key=source epoch=10ms memory=4MiB\nb: key=pair epoch=20ms memory=4MiB",
    ] {
        let text = CString::new(options).unwrap();
        let (seed, reports) = (1, AtomicU64::new(0));
        let settings = fg_settings {
            size: size_of::<fg_settings>(),
            options: text.as_ptr(),
            yaml: null(),
            seed_file: null(),
            seed: &raw const seed,
            take: Some(count),
            user: (&raw const reports).cast_mut().cast(),
            queues: 1,
            pace: FG_LIVE,
            inner: 0,
            snapshots: 0,
        };
        let mut group = null_mut();
        // SAFETY: the settings and the place for the group live until the call returns.
        let code = unsafe { fg_open(&raw const settings, &raw mut group) };
        // SAFETY: the text of an error ends in a zero.
        assert_eq!(code, FG_OK, "{:?}", unsafe { CStr::from_ptr(fg_error()) });
        let meter = fg_queue(group, 0);
        let push = |bursts: std::ops::Range<u32>| {
            for at in bursts {
                packets.push(meter, at as usize, i64::from(at) * 20_000);
            }
        };
        push(0..10);
        let (allocations, switches) = so_far();
        // Ten epochs.
        push(10..5010);
        let (allocations_then, switches_then) = so_far();
        // Reading the number of switches allocates the same each time.
        let (again, _) = so_far();
        assert_eq!(allocations_then - allocations, again - allocations_then, "{options}");
        assert_eq!(switches_then, switches, "{options}");
        assert_eq!(fg_close(group), FG_OK);
        assert!(reports.into_inner() >= 3, "{options}: epochs ended on the way");
    }
}

unsafe extern "C" fn count(reports: *mut c_void, _: *const fg_report) {
    // SAFETY: the group that calls this is closed before the number goes.
    unsafe { &*reports.cast::<AtomicU64>() }.fetch_add(1, Ordering::Relaxed);
}
