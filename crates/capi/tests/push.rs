//! A live meter's calls never allocate and never give up the processor: within epochs, at their
//! ends, and while skipping packets.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::ffi::{CStr, CString, c_void};
use std::fs;
use std::mem::offset_of;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU64, Ordering};

use flowgauge_capi::*;
use flowgauge_kernel::counting::{Counting, heap};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const BURST: usize = 32;

/// A burst of packets, as Ethernet frames and as headers.
struct Burst {
    frames: [[u8; 60]; BURST],
    headers: [fg_headers; BURST],
}

/// As a program describes a packet.
#[repr(C)]
struct Mbuf {
    buffer: *const c_void,
    wire: u32,
    start: u16,
}

static LAYOUT: fg_mbuf_layout = fg_mbuf_layout {
    buffer: offset_of!(Mbuf, buffer) as u16,
    start: offset_of!(Mbuf, start) as u16,
    captured: offset_of!(Mbuf, wire) as u16,
    wire: offset_of!(Mbuf, wire) as u16,
};

impl Burst {
    fn new() -> Self {
        let mut frame = [0; 60];
        frame[12..14].copy_from_slice(&[8, 0]);
        frame[14..24].copy_from_slice(&[0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17]);
        frame[30..38].copy_from_slice(&[10, 0, 1, 1, 0, 7, 0, 53]);
        let mut destination = [0; 16];
        destination[..4].copy_from_slice(&frame[30..34]);
        let headers = fg_headers {
            source: [0; 16],
            destination,
            source_port: 7,
            destination_port: 53,
            wire: 60,
            version: 4,
            protocol: 17,
            has_ports: 1,
            reserved: 0,
        };
        Self { frames: [frame; BURST], headers: [headers; BURST] }
    }

    /// Pushes burst number `at`, whose packets are the first of their flows, in every possible way.
    fn push(&mut self, meter: *mut fg_meter, at: u32, now_ns: i64) {
        let flows = (0x0a00_0000 + at * BURST as u32..).map(u32::to_be_bytes);
        for ((frame, headers), source) in self.frames.iter_mut().zip(&mut self.headers).zip(flows) {
            frame[26..30].copy_from_slice(&source);
            headers.source[..4].copy_from_slice(&source);
        }
        let data = self.frames.each_ref().map(|frame| frame.as_ptr().cast());
        let lengths = [60; BURST];
        let bytes = 60 * BURST as u64;
        let mbufs = data.map(|buffer| Mbuf { buffer, wire: 60, start: 0 });
        let of_mbufs = mbufs.each_ref().map(|mbuf| std::ptr::from_ref(mbuf).cast());
        // SAFETY: the meter is one of the library's, and the arrays have as many items as the calls say.
        let codes = unsafe {
            let wanted = fg_pick(meter, BURST as u32, bytes, now_ns).count_ones();
            [
                fg_push(meter, wanted, data.as_ptr(), lengths.as_ptr(), lengths.as_ptr(), now_ns),
                fg_push_mbufs(meter, BURST as u32, of_mbufs.as_ptr(), &raw const LAYOUT, now_ns),
                fg_push_parsed(meter, BURST as u32, self.headers.as_ptr(), now_ns),
                fg_advance(meter, now_ns),
            ]
        };
        assert_eq!(codes, [FG_OK; 4]);
    }
}

/// Maximum pages that a thread touches for the first time in thousands of bursts: pages of code,
/// not of tables.
const NEW_PAGES: u64 = 8;

/// Counts for this thread so far: allocations, voluntary context switches, and page faults (minor
/// ones, and major ones that wait for the disk).
fn so_far() -> (u64, u64, u64) {
    let allocations = heap().allocations;
    let status = fs::read_to_string("/proc/thread-self/status").unwrap();
    let switches = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    let stat = fs::read_to_string("/proc/thread-self/stat").unwrap();
    let fields = stat.rsplit(") ").next().unwrap().split(' ');
    let faults = fields.skip(7).step_by(2).take(2).map(|field| field.parse::<u64>().unwrap()).sum();
    (allocations, switches.unwrap().trim().parse().unwrap(), faults)
}

#[test]
fn a_push_neither_allocates_nor_waits_nor_touches_new_pages() {
    let mut packets = Burst::new();
    for options in [
        "key=source task=top epoch=10ms memory=4MiB",
        "key=five-tuple algorithm=count-min epoch=10ms memory=4MiB",
        "accelerator=agg-evict algorithm=univmon epoch=10ms memory=16MiB",
        "accelerator=uniform:sample=100,before=headers epoch=10ms memory=4MiB",
        "filter='udp port 53' epoch=10ms memory=4MiB",
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
        // Two epochs of the same flows, one in each set of summaries; then eight of new ones.
        for at in 0..510 {
            packets.push(meter, 0, i64::from(at) * 40_000);
        }
        so_far();
        let (allocations, switches, faults) = so_far();
        for at in 510..2510 {
            packets.push(meter, at, i64::from(at) * 40_000);
        }
        let (allocations_then, switches_then, faults_then) = so_far();
        // Reading the numbers allocates the same amount each time.
        let (again, ..) = so_far();
        assert_eq!(allocations_then - allocations, again - allocations_then, "{options}");
        let (switched, faulted) = (switches_then - switches, faults_then - faults);
        assert!(faulted <= NEW_PAGES, "{options}: {faulted}");
        // The kernel may make a thread wait for a page of code, but for nothing else.
        assert!(
            switched <= faulted,
            "{options}: waited {switched} times, {faulted} of them for pages"
        );
        assert_eq!(fg_close(group), FG_OK);
        assert!(reports.into_inner() >= 3, "{options}: epochs ended on the way");
    }
}

unsafe extern "C" fn count(reports: *mut c_void, _: *const fg_report) {
    // SAFETY: the group that calls this is closed before the number goes.
    unsafe { &*reports.cast::<AtomicU64>() }.fetch_add(1, Ordering::Relaxed);
}
