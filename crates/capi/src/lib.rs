//! `libflowgauge`: the engine's meters for programs in C. `flowgauge.h` is generated from this file.
//!
//! A program opens a group of meters from text, gives one meter to each thread that has packets,
//! and takes reports as JSON and snapshots as bytes from a thread of its choice. A push never
//! waits, locks, allocates or makes a system call, unless the group was opened for replay.
//! Detectable misuse is an error: `NULL`, closed handles, a meter in use by another thread.
//!
//! `examples/pcap.c` measures a capture.
//!
//! # Safety
//! For every function: a pointer is `NULL` or points to what the header says, texts end in a zero
//! byte, arrays have as many items as the call says, and meters came from [`fg_queue`]. Handles
//! from the library may be passed closed; that of a meter until 4096 more meters were closed.
#![allow(non_camel_case_types, reason = "the names are those of the header")]
#![allow(clippy::missing_safety_doc, reason = "it is that of all functions, and stands above")]

mod error;
mod group;
mod mbuf;
mod meter;
mod report;

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use arrayvec::ArrayVec;
use flowgauge_core::block::ParsedRow;
use flowgauge_core::packet::{Captured, Column, Frames, Headers, Ip, LinkType, NoKey, Ports};
use flowgauge_engine::{Arrivals, Meter, Pace};

use error::{Problem, entry};
use group::Asked;
use meter::Slot;
use report::Taker;

/// The version of this interface. Programs and libraries with the same number are compatible.
pub const FG_ABI_VERSION: u32 = 1;

/// The call succeeded.
pub const FG_OK: c_int = 0;
/// There are no more reports.
pub const FG_END: c_int = 1;
/// An argument is `NULL` or out of range, or the size or pace in the settings is wrong.
pub const FG_EINVAL: c_int = -1;
/// The group or meter was closed before.
pub const FG_ECLOSED: c_int = -2;
/// Another thread uses the meter or polls the group, or the call comes from the function that takes a
/// report and may wait for it to return: closing and polling, and pushing with `FG_REPLAY`.
pub const FG_EBUSY: c_int = -3;
/// The group no longer measures, because of a defect or a failed thread.
pub const FG_EDEAD: c_int = -4;
/// The settings are invalid: the options, the YAML text, the number of queues or the seed file.
pub const FG_EOPTIONS: c_int = -5;
/// The operating system refused memory, a thread or random bits.
pub const FG_EFAILED: c_int = -6;

/// A meter never waits: if no summaries are free, an epoch continues into the next one, and its
/// report says so. Updates, forecasts and the task `findings` are refused. An epoch is 10 s unless
/// the options say otherwise; `fg_advance` tells it the time.
pub const FG_LIVE: u32 = 0;
/// A meter waits for free summaries, for its reports to be taken, and for queues that are some
/// epochs behind, so reports depend only on the packets: give each queue a thread of its own. All
/// packets are one epoch unless the options say otherwise.
pub const FG_REPLAY: u32 = 1;

/// A report: a line of JSON, as `flowgauge --format json` writes it.
pub const FG_JSON: u32 = 1;
/// A snapshot, as `flowgauge --save` writes it to a file.
pub const FG_SNAPSHOT: u32 = 2;

/// Maximum number of packets in a burst for `fg_want`.
pub const FG_WANT_MOST: u32 = 64;

/// A group of meters. Opaque.
pub struct fg_group {
    _nothing: [u8; 0],
}

/// A meter. Only the functions in this header may use the fields.
#[repr(C)]
pub struct fg_meter {
    /// Number of packets, from the next one on, that are certainly not wanted.
    pub ahead: u64,
    /// Time of the last packet.
    pub last_ns: i64,
    /// Time after which any packet may be wanted.
    pub until_ns: i64,
    /// Bytes of the packets skipped since the last call.
    pub skipped_bytes: u64,
    /// Whether some packets may be unwanted.
    pub samples: u32,
}

/// A report or a snapshot. All of it is valid until the function that takes it returns.
#[repr(C)]
pub struct fg_report {
    /// `FG_JSON` or `FG_SNAPSHOT`.
    pub kind: u32,
    /// Whether a snapshot holds the seed: keep it secret from senders of packets.
    pub secret: u32,
    /// The name of the measurement.
    pub measurement: *const c_char,
    /// The number of the epoch; in a total, the number of epochs.
    pub epoch: u64,
    /// The line with its newline, or the snapshot; followed by a zero byte.
    pub bytes: *const c_char,
    /// Length in bytes, without the zero byte.
    pub length: usize,
}

/// Takes a report.
pub type fg_take = Option<unsafe extern "C" fn(user: *mut c_void, report: *const fg_report)>;

/// The settings to open a group with. Unset fields are 0.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct fg_settings {
    /// `sizeof(struct fg_settings)`.
    pub size: usize,
    /// Measurements, one per line, in the form of `--measure`: `NAME: OPTION=VALUE …`. The name may
    /// be omitted if there is only one. `NULL` for all defaults.
    pub options: *const c_char,
    /// Instead of options: the text of a file for `-C`.
    pub yaml: *const c_char,
    /// A file with the secret behind the seed, so that snapshots of several hosts can be merged.
    pub seed_file: *const c_char,
    /// A known seed, for tests and comparisons. By default it is random.
    pub seed: *const u64,
    /// Takes reports, on a thread of the library. `NULL` if they are polled.
    pub take: fg_take,
    /// The argument for `take`.
    pub user: *mut c_void,
    /// Number of meters, 1 to 256: one for each thread that has packets.
    pub queues: u32,
    /// `FG_LIVE` or `FG_REPLAY`.
    pub pace: u32,
    /// Whether to follow tunnels to the inner packet.
    pub inner: u32,
    /// Whether to store each closed epoch as a snapshot too.
    pub snapshots: u32,
}

/// The headers of a packet that the program has already parsed.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct fg_headers {
    /// Source address in network order; an IPv4 address is in the first four bytes.
    pub source: [u8; 16],
    /// Destination address, likewise.
    pub destination: [u8; 16],
    /// Source port in host byte order.
    pub source_port: u16,
    /// Destination port in host byte order.
    pub destination_port: u16,
    /// Bytes on the wire.
    pub wire: u32,
    /// 4 or 6; any other number if the packet is not IP.
    pub version: u8,
    /// The protocol; for IPv6, of the first header that is not an extension.
    pub protocol: u8,
    /// Whether there are ports: not in later fragments, nor if the protocol has none.
    pub has_ports: u8,
    /// Must be 0.
    pub reserved: u8,
}

/// How a program's own structures describe a packet: where in them, in bytes from their start, four
/// fields are. Those of DPDK's `rte_mbuf` are `buf_addr`, `data_off`, `data_len` and `pkt_len`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct fg_mbuf_layout {
    /// The place of the pointer to the buffer.
    pub buffer: u16,
    /// The place of a `uint16_t`: at which byte of the buffer the packet starts.
    pub start: u16,
    /// The place of a `uint16_t`: how many bytes of the packet the buffer holds. It equals `wire` if
    /// the buffer always holds the whole packet.
    pub captured: u16,
    /// The place of a `uint32_t`: how many bytes the packet has on the wire.
    pub wire: u16,
}

/// The version of the library's interface, to compare with `FG_ABI_VERSION`.
#[unsafe(no_mangle)]
pub extern "C" fn fg_abi_version() -> u32 {
    FG_ABI_VERSION
}

/// Why the last failed call on this thread failed, in one line. Valid until another call fails.
#[unsafe(no_mangle)]
pub extern "C" fn fg_error() -> *const c_char {
    error::last()
}

/// Opens a group, and reserves all its memory. Starts threads on the cores that the program's main
/// thread may use at this time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fg_open(settings: *const fg_settings, group: *mut *mut fg_group) -> c_int {
    entry(|| {
        if group.is_null() {
            return Err(Problem::argument(c"the place for the group is NULL"));
        }
        // SAFETY: the caller says so.
        unsafe { group.write(std::ptr::null_mut()) };
        // SAFETY: as above.
        let settings = unsafe { read(settings)? };
        // SAFETY: as above.
        let asked = unsafe { asked(&settings)? };
        let opened = group::open(&asked)?;
        // SAFETY: as above.
        unsafe { group.write(opened) };
        Ok(FG_OK)
    })
}

/// Reads the settings of a program whose structure may be shorter or longer than ours.
///
/// # Safety
/// They have the size that they state, or are null.
unsafe fn read(settings: *const fg_settings) -> Result<fg_settings, Problem> {
    if settings.is_null() {
        return Err(Problem::argument(c"the settings are NULL"));
    }
    // SAFETY: the size is the first of the settings.
    let size = unsafe { settings.cast::<usize>().read() };
    if size != size_of::<fg_settings>() {
        return Err(Problem::argument(
            c"the size in the settings is wrong: set it to sizeof(struct fg_settings)",
        ));
    }
    // SAFETY: there are as many bytes, of types that any bytes are valid for but the function; a null
    // function is none.
    Ok(unsafe { settings.read() })
}

/// Converts the settings.
///
/// # Safety
/// Their texts end in a zero byte.
unsafe fn asked(settings: &fg_settings) -> Result<Asked<'_>, Problem> {
    let text = |text: *const c_char| {
        if text.is_null() {
            return Ok(None);
        }
        // SAFETY: the caller says so.
        let text = unsafe { CStr::from_ptr(text) }.to_str();
        text.map(Some).map_err(|_| Problem::fixed(FG_EOPTIONS, c"the text is not UTF-8"))
    };
    let seed_file = (!settings.seed_file.is_null()).then(|| {
        // SAFETY: the caller says so.
        let path = unsafe { CStr::from_ptr(settings.seed_file) };
        Path::new(OsStr::from_bytes(path.to_bytes()))
    });
    // SAFETY: the caller says so.
    let seed = unsafe { settings.seed.as_ref() }.copied();
    let pace = match settings.pace {
        FG_LIVE => Pace::Live,
        FG_REPLAY => Pace::Replay,
        _ => return Err(Problem::argument(c"the pace is neither FG_LIVE nor FG_REPLAY")),
    };
    Ok(Asked {
        options: text(settings.options)?,
        yaml: text(settings.yaml)?,
        seed_file,
        seed,
        queues: settings.queues as usize,
        pace,
        inner: settings.inner != 0,
        save: settings.snapshots != 0,
        taker: settings.take.map(|take| Taker { take, user: settings.user }),
    })
}

/// The meter of a queue, counted from 0, or `NULL` if there is none. It is for one thread at a
/// time.
#[unsafe(no_mangle)]
pub extern "C" fn fg_queue(group: *const fg_group, queue: u32) -> *mut fg_meter {
    let mut meter = std::ptr::null_mut();
    entry(|| {
        let slot = group::of(group)?.slot(queue as usize);
        let slot = slot.ok_or_else(|| Problem::argument(c"the group has no such queue"))?;
        meter = slot.handle();
        Ok(FG_OK)
    });
    meter
}

/// Sets the link type of this meter's packets, as pcap numbers them. The default is 1, Ethernet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fg_link(meter: *mut fg_meter, link: u32) -> c_int {
    entry(|| {
        let link = u16::try_from(link)
            .map_err(|_| Problem::argument(c"a link type has at most 16 bits"))?;
        // SAFETY: the caller says so.
        let slot = unsafe { Slot::of(meter)? };
        slot.with(0, |own, _| *own = LinkType(link)).map(|()| FG_OK)
    })
}

/// The slow path of `fg_want`, for packets that may be wanted. Call `fg_want` instead.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fg_pick(
    meter: *mut fg_meter,
    packets: u32,
    bytes: u64,
    now_ns: i64,
) -> u64 {
    let mut wanted = 0;
    entry(|| {
        // SAFETY: the caller says so.
        let slot = unsafe { Slot::of(meter)? };
        if packets > FG_WANT_MOST {
            return Err(Problem::argument(c"a burst has at most 64 packets"));
        }
        let burst = Arrivals { packets, bytes, time_ns: now_ns };
        wanted = slot.with(packets, |_, meter| meter.want(&burst))?;
        Ok(FG_OK)
    });
    wanted
}

/// Measures packets that arrived at `now_ns`, in nanoseconds since the UNIX epoch. Packet `i` has
/// `captured[i]` captured bytes at `data[i]` (none if `data[i]` is `NULL`), and `wire[i]` bytes on
/// the wire.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fg_push(
    meter: *mut fg_meter,
    packets: u32,
    data: *const *const c_void,
    captured: *const u32,
    wire: *const u32,
    now_ns: i64,
) -> c_int {
    entry(|| {
        // SAFETY: the caller says so.
        let slot = unsafe { Slot::of(meter)? };
        if packets == 0 {
            return Ok(FG_OK);
        }
        if data.is_null() || captured.is_null() || wire.is_null() {
            return Err(Problem::argument(c"an array is NULL"));
        }
        let count = packets as usize;
        // SAFETY: the arrays have so many items, as the caller says.
        let (data, captured, wire) = unsafe {
            (
                std::slice::from_raw_parts(data, count),
                std::slice::from_raw_parts(captured, count),
                std::slice::from_raw_parts(wire, count),
            )
        };
        // SAFETY: so many bytes were captured at each place, as the caller says.
        slot.with(packets, |link, meter| unsafe {
            push_frames(meter, *link, (data, captured, wire), now_ns);
        })
        .map(|()| FG_OK)
    })
}

/// Packets passed to a meter at once.
const BURST: usize = 64;

/// Measures frames with these places, captured lengths and lengths on the wire.
///
/// # Safety
/// `captured[i]` bytes are readable at `data[i]`, unless that is null.
unsafe fn push_frames(
    meter: &mut dyn Meter,
    link: LinkType,
    (data, captured, wires): (&[*const c_void], &[u32], &[u32]),
    now_ns: i64,
) {
    let bytes = |data: *const c_void, captured: u32| {
        if data.is_null() {
            return Captured::from(&[][..]);
        }
        // SAFETY: this function's contract.
        unsafe { std::slice::from_raw_parts(data.cast(), captured as usize) }.into()
    };
    let (link, time_ns) = (Column::Same(link), Column::Same(now_ns));
    let places = data.chunks(BURST).zip(captured.chunks(BURST));
    for ((data, captured), wires) in places.zip(wires.chunks(BURST)) {
        let mut frames = ArrayVec::<Captured<'_>, BURST>::new();
        // Room for eight frames is checked at once.
        let (eights, rest) = data.as_chunks::<8>();
        let (lengths, other_lengths) = captured.as_chunks::<8>();
        for (data, captured) in eights.iter().zip(lengths) {
            let eight: [_; 8] = std::array::from_fn(|at| bytes(data[at], captured[at]));
            frames.try_extend_from_slice(&eight).expect("a chunk fits");
        }
        frames
            .extend(rest.iter().zip(other_lengths).map(|(data, captured)| bytes(*data, *captured)));
        meter.push(Frames::new(&frames, wires, link, time_ns));
    }
}

/// Measures packets that the program describes in structures of its own. They arrived at `now_ns`.
/// If a sampler decides before headers, it is asked about these packets here: do not call `fg_want`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fg_push_mbufs(
    meter: *mut fg_meter,
    packets: u32,
    mbufs: *const *const c_void,
    layout: *const fg_mbuf_layout,
    now_ns: i64,
) -> c_int {
    entry(|| {
        // SAFETY: the caller says so.
        let slot = unsafe { Slot::of(meter)? };
        if packets == 0 {
            return Ok(FG_OK);
        }
        // SAFETY: the caller says so.
        let layout = unsafe { layout.as_ref() }.copied();
        let layout = layout.ok_or_else(|| Problem::argument(c"the layout is NULL"))?;
        if mbufs.is_null() {
            return Err(Problem::argument(c"the array is NULL"));
        }
        // SAFETY: there are so many, as the caller says.
        let mbufs = unsafe { std::slice::from_raw_parts(mbufs, packets as usize) };
        let samples = slot.samples();
        slot.with(packets, |link, meter| {
            for mbufs in mbufs.chunks(BURST) {
                // SAFETY: each is a structure of this layout, as the caller says.
                unsafe { mbuf::push(meter, *link, mbufs, layout, samples, now_ns) };
            }
        })
        .map(|()| FG_OK)
    })
}

/// Measures packets whose headers the program has parsed. A measurement with a filter counts them
/// as filtered, since filters need the packet's bytes. A measurement whose key has a MAC address, the
/// VLAN or TCP flags counts them as packets without a key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fg_push_parsed(
    meter: *mut fg_meter,
    packets: u32,
    headers: *const fg_headers,
    now_ns: i64,
) -> c_int {
    entry(|| {
        // SAFETY: the caller says so.
        let slot = unsafe { Slot::of(meter)? };
        if packets == 0 {
            return Ok(FG_OK);
        }
        if headers.is_null() {
            return Err(Problem::argument(c"the headers are NULL"));
        }
        // SAFETY: there are so many, as the caller says.
        let headers = unsafe { std::slice::from_raw_parts(headers, packets as usize) };
        slot.with(packets, |_, meter| {
            for some in headers.chunks(BURST) {
                let rows: ArrayVec<_, BURST> = some.iter().map(|one| one.row(now_ns)).collect();
                meter.push_headers(&rows);
            }
        })
        .map(|()| FG_OK)
    })
}

impl fg_headers {
    fn row(&self, time_ns: i64) -> ParsedRow {
        let ports = match self.has_ports {
            0 => Ports::Absent,
            _ => Ports::Found(u32::from(self.source_port) << 16 | u32::from(self.destination_port)),
        };
        let protocol = self.protocol;
        let headers = match self.version {
            4 => {
                let mut addresses = [0; 8];
                addresses[..4].copy_from_slice(&self.source[..4]);
                addresses[4..].copy_from_slice(&self.destination[..4]);
                Headers::V4(Ip { addresses, protocol, ports })
            }
            6 => {
                let mut addresses = [0; 32];
                addresses[..16].copy_from_slice(&self.source);
                addresses[16..].copy_from_slice(&self.destination);
                Headers::V6(Ip { addresses, protocol, ports })
            }
            _ => Headers::NoKey(NoKey::OtherProtocol),
        };
        ParsedRow { headers, wire: self.wire, time_ns }
    }
}

/// Announces that no packet older than `now_ns` will be pushed, so that epochs end on time without
/// packets.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fg_advance(meter: *mut fg_meter, now_ns: i64) -> c_int {
    entry(|| {
        // SAFETY: the caller says so.
        let slot = unsafe { Slot::of(meter)? };
        slot.with(0, |_, meter| meter.advance(now_ns)).map(|()| FG_OK)
    })
}

/// Ends a queue that has no more packets, and closes its meter. May wait for the closing thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fg_end(meter: *mut fg_meter) -> c_int {
    // SAFETY: the caller says so.
    entry(|| unsafe { Slot::of(meter)? }.end().map(|()| FG_OK))
}

/// Calls a function with each waiting report, on this thread. Waits up to `wait_ms` milliseconds
/// for the first one. Returns `FG_END` after the last one, when all queues have ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fg_poll(
    group: *const fg_group,
    wait_ms: u32,
    take: fg_take,
    user: *mut c_void,
) -> c_int {
    entry(|| {
        report::check_outside()?;
        let opened = group::of(group)?;
        let take =
            take.ok_or_else(|| Problem::argument(c"the function that takes reports is NULL"))?;
        let mailbox = opened.mailbox();
        let mailbox = mailbox
            .ok_or_else(|| Problem::argument(c"the group has a function that takes its reports"))?;
        mailbox.poll(Taker { take, user }, Duration::from_millis(wait_ms.into()))
    })
}

/// Counts the packets that were pushed to meters of the group but not measured: after the group's
/// death, after the meter had ended, or while another thread used the meter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fg_dropped(group: *const fg_group, packets: *mut u64) -> c_int {
    entry(|| {
        if packets.is_null() {
            return Err(Problem::argument(c"the place for the number is NULL"));
        }
        let dropped = group::of(group)?.dropped();
        // SAFETY: it can be written, as the caller says.
        unsafe { packets.write(dropped) };
        Ok(FG_OK)
    })
}

/// Closes a group: ends the queues that have not ended, and waits until the function that takes
/// reports has returned from the last one. Reports that were not polled are lost. Other threads'
/// calls on its meters finish first, and later ones are refused. Only the process that opened a group
/// can close it, not its child.
#[unsafe(no_mangle)]
pub extern "C" fn fg_close(group: *mut fg_group) -> c_int {
    entry(|| {
        report::check_outside()?;
        group::close(group)
    })
}
