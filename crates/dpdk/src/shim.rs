//! Safe wrappers of the functions of `shim.c`.

use std::ffi::{CStr, CString, c_char, c_int, c_uint};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use flowgauge_core::packet::{Captured, Column, Frame, Frames, LinkType};
use flowgauge_engine::sink::visible;
use flowgauge_engine::source::Burst;

use crate::fault::{DpdkError, PortFault};

/// Maximum number of packets received at once: `BURST` of `shim.c`.
const BURST: usize = 32;

/// Maximum number of packets picked at once. More buffers would not fit in the cache of their pool.
pub(crate) const PICKED: usize = 16;

/// Length of a port's name with its final zero: `RTE_ETH_NAME_MAX_LEN`.
const NAME_BYTES: usize = 64;

/// A packet buffer, opaque to Rust.
#[repr(C)]
struct Packet([u8; 0]);
/// A pool of packet buffers, opaque to Rust.
#[repr(C)]
struct Pool([u8; 0]);

/// The bytes of a packet in its first buffer.
#[repr(C)]
#[derive(Clone, Copy)]
struct RawFrame {
    bytes: NonNull<u8>,
    captured: usize,
}

/// `struct shim_burst`. The shim fills the first `count` entries; `frames` point to packet buffers.
#[repr(C)]
struct RawBurst {
    packets: [*mut Packet; BURST],
    frames: [RawFrame; BURST],
    wire: [u32; BURST],
    cycles: u64,
}

impl RawFrame {
    const NONE: Self = Self { bytes: NonNull::dangling(), captured: 0 };

    /// The bytes.
    ///
    /// # Safety
    /// Their buffer must be held while they are used.
    #[inline(always)]
    unsafe fn bytes<'a>(self) -> &'a [u8] {
        // SAFETY: the buffer has this many bytes, and the caller holds it.
        unsafe { slice::from_raw_parts(self.bytes.as_ptr(), self.captured) }
    }
}

/// The counters of a port since it was opened: `struct shim_counters`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    /// Packets lost because the queues of the port were full.
    pub(crate) missed: u64,
    /// Packets lost because of an error of the packet or the device.
    pub(crate) errors: u64,
    /// Failed allocations of a buffer.
    pub(crate) no_buffers: u64,
}

// SAFETY: these functions are defined in `shim.c` with the same types.
unsafe extern "C" {
    fn shim_start(count: c_int, arguments: *mut *mut c_char) -> c_int;
    fn shim_stop();
    fn shim_reason(reason: c_int) -> *const c_char;
    fn shim_find(name: *const c_char) -> c_int;
    fn shim_name(port: *mut u16, name: *mut c_char) -> c_int;
    fn shim_queues(port: u16, receiving: *mut u16, sending: *mut u16) -> c_int;
    fn shim_pool(name: *const c_char, port: u16, buffers: c_uint) -> *mut Pool;
    fn shim_least_buffers() -> c_uint;
    fn shim_buffer_bytes() -> usize;
    fn shim_open(
        port: u16,
        pools: *mut *mut Pool,
        receiving: u16,
        sending: u16,
        promiscuous: c_int,
    ) -> c_int;
    fn shim_close(port: u16);
    fn shim_needs_buffers(port: u16) -> c_int;
    fn shim_is_gone(port: u16) -> c_int;
    fn shim_counters(port: u16, counters: *mut Counters) -> c_int;
    fn shim_enter();
    fn shim_leave();
    fn shim_receive(port: u16, queue: u16, burst: *mut RawBurst) -> c_uint;
    fn shim_cycles_per_second() -> u64;
    fn shim_free(packets: *mut *mut Packet, count: c_uint);
    fn shim_forward(port: u16, queue: u16, packets: *mut *mut Packet, count: c_uint) -> c_uint;
}

/// DPDK's text for an error.
fn reason(error: c_int) -> String {
    // SAFETY: the text ends with zero and is valid until this thread's next call.
    unsafe { CStr::from_ptr(shim_reason(error.abs())) }.to_string_lossy().into_owned()
}

/// DPDK, started. It stops when the last owner of this value and of its ports is dropped.
#[derive(Debug)]
pub struct Dpdk {
    /// DPDK's complaint during the start, such as a device that it could not open.
    complaint: Option<String>,
}

impl Dpdk {
    /// Starts DPDK, once per process, with arguments of DPDK programs, such as `--no-huge`. Its
    /// output during the start is not shown.
    ///
    /// # Errors
    /// When DPDK does not start (with its reason), or was started before.
    pub fn start(arguments: &[String]) -> Result<Arc<Self>, DpdkError> {
        static STARTED: AtomicBool = AtomicBool::new(false);
        let program = [c"flowgauge".to_owned()].into_iter().map(Ok);
        let given = arguments.iter().map(|argument| CString::new(&**argument));
        let arguments: Result<Vec<_>, _> = program.chain(given).collect();
        let arguments = arguments
            .map_err(|_| DpdkError::Start("an argument has a zero byte in it".to_owned()))?;
        if STARTED.swap(true, Ordering::Relaxed) {
            return Err(DpdkError::Started);
        }
        // DPDK keeps pointers to its arguments.
        let count = c_int::try_from(arguments.len()).unwrap_or(c_int::MAX);
        let mut pointers: Vec<_> = arguments.into_iter().map(CString::into_raw).collect();
        pointers.push(ptr::null_mut());
        let pointers = pointers.leak().as_mut_ptr();
        // SAFETY: there are `count` arguments, which are never freed, and this is called once.
        let (error, printed) = capture_output(|| unsafe { shim_start(count, pointers) })
            .map_err(|error| DpdkError::Start(error.to_string()))?;
        let complaint = complaint(&printed);
        if error == 0 {
            return Ok(Arc::new(Self { complaint }));
        }
        let complaint = complaint.unwrap_or_else(|| reason(error));
        let of_huge_pages = complaint.contains("hugepage");
        Err(if of_huge_pages { DpdkError::HugePages } else { DpdkError::Start }(complaint))
    }

    /// The number of the port with this name.
    pub(crate) fn find(&self, name: &str) -> Result<u16, PortFault> {
        let missing = || {
            let (ports, complaint) = (names(self), self.complaint.clone());
            PortFault::Missing { ports, complaint }
        };
        let name = CString::new(name).map_err(|_| missing())?;
        // SAFETY: the name ends with zero, and DPDK was started.
        u16::try_from(unsafe { shim_find(name.as_ptr()) }).map_err(|_| missing())
    }
}

impl Drop for Dpdk {
    fn drop(&mut self) {
        // SAFETY: DPDK was started, and no port is open, because each port holds this value.
        unsafe { shim_stop() }
    }
}

/// The names of all ports.
fn names(_: &Dpdk) -> Vec<String> {
    let (mut names, mut port) = (Vec::new(), 0);
    let mut name = [0 as c_char; NAME_BYTES];
    // SAFETY: `name` has room for the name of a port, and DPDK was started.
    while unsafe { shim_name(&raw mut port, name.as_mut_ptr()) } != 0 {
        // SAFETY: the text written by the shim ends with zero.
        let text = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy();
        names.push(visible(&text).into_owned());
        port += 1;
    }
    names
}

/// The line of DPDK's output that gives the problem.
fn complaint(printed: &str) -> Option<String> {
    const WORDS: [&str; 7] = [
        "annot ",
        "ouldn't ",
        "ailed to ",
        "nable to ",
        "nvalid ",
        "unrecognized ",
        " unavailable",
    ];
    // DPDK works without these.
    const FINE: &str = "Physical addresses";
    let is_one = |line: &&str| WORDS.iter().any(|word| line.contains(word)) && !line.contains(FINE);
    let line = printed.lines().map(str::trim).find(is_one)?;
    let line = line.trim_start_matches("EAL: ").trim_start_matches("FATAL: ");
    Some(visible(line.trim_end_matches('.')).into_owned())
}

/// An open port. It closes when its last queue is dropped.
#[derive(Debug)]
pub(crate) struct Port {
    number: u16,
    receiving: u16,
    sending: u16,
    _dpdk: Arc<Dpdk>,
}

impl Port {
    /// Opens a port with these numbers of receive and send queues, and with `buffers` buffers per
    /// receive queue, or more if the port needs them.
    pub(crate) fn open(
        dpdk: &Arc<Dpdk>,
        number: u16,
        receiving: usize,
        sending: usize,
        buffers: usize,
        promiscuous: bool,
    ) -> Result<Self, PortFault> {
        let check =
            |error| if error == 0 { Ok(()) } else { Err(PortFault::Refused(reason(error))) };
        let (mut most_receiving, mut most_sending) = (0, 0);
        // SAFETY: DPDK was started. A wrong port number gives an error.
        check(unsafe { shim_queues(number, &raw mut most_receiving, &raw mut most_sending) })?;
        let (most_receiving, most_sending) = (most_receiving.into(), most_sending.into());
        if receiving > most_receiving {
            return Err(PortFault::Receiving(most_receiving));
        }
        if sending > most_sending {
            return Err(PortFault::Sending(most_sending));
        }
        // SAFETY: the function returns a constant.
        let buffers = buffers.max(unsafe { shim_least_buffers() } as usize);
        let pool = |queue| {
            let name = CString::new(format!("flowgauge_{number}_{queue}")).unwrap_or_default();
            // SAFETY: the name ends with zero, and DPDK was started.
            NonNull::new(unsafe { shim_pool(name.as_ptr(), number, buffers as c_uint) })
                .map(NonNull::as_ptr)
                .ok_or(PortFault::Memory(buffers * buffer_bytes()))
        };
        let mut pools: Vec<_> = (0..receiving).map(pool).collect::<Result<_, _>>()?;
        let (receiving, sending) = (receiving as u16, sending as u16);
        let port = Self { number, receiving, sending, _dpdk: Arc::clone(dpdk) };
        let pools = pools.as_mut_ptr();
        // SAFETY: there is a pool for each receive queue, and nothing else opens this port.
        check(unsafe { shim_open(number, pools, receiving, sending, promiscuous.into()) })?;
        Ok(port)
    }

    /// Whether the port loses a packet that it finds no buffer for.
    pub(crate) fn needs_buffers(&self) -> bool {
        // SAFETY: the port is open.
        unsafe { shim_needs_buffers(self.number) != 0 }
    }

    pub(crate) fn is_gone(&self) -> bool {
        // SAFETY: the port is open.
        unsafe { shim_is_gone(self.number) != 0 }
    }

    /// The counters so far, if they can be read. A network card may take microseconds to answer.
    pub(crate) fn counters(&self) -> Option<Counters> {
        let mut counters = Counters::default();
        // SAFETY: the port is open, and `counters` may be written during the call.
        let failed = unsafe { shim_counters(self.number, &raw mut counters) };
        (failed == 0).then_some(counters)
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        // SAFETY: the port was opened, and no queue uses it any more.
        unsafe { shim_close(self.number) }
    }
}

/// Size of a buffer.
pub(crate) fn buffer_bytes() -> usize {
    // SAFETY: the function returns a constant.
    unsafe { shim_buffer_bytes() }
}

/// Rate of the counter that stamps packets, in cycles per second.
pub(crate) fn cycles_per_second() -> u64 {
    // SAFETY: the function only reads a number, which is 0 before DPDK is started.
    unsafe { shim_cycles_per_second() }
}

/// Received packets that are neither forwarded nor given back yet.
pub(crate) struct Received {
    burst: Box<RawBurst>,
    /// Number of packets.
    count: usize,
    /// Number of buffers at the front that were moved to [`Picked`].
    given: usize,
}

/// Packets picked from several bursts.
pub(crate) struct Picked {
    packets: [*mut Packet; PICKED],
    /// Each with its length on the wire and its time.
    frames: [(RawFrame, u32, i64); PICKED],
    count: usize,
}

// SAFETY: buffers belong to the process, and any thread may use them.
unsafe impl Send for Received {}

impl Received {
    pub(crate) fn new() -> Self {
        let burst = RawBurst {
            packets: [ptr::null_mut(); BURST],
            frames: [RawFrame::NONE; BURST],
            wire: [0; BURST],
            cycles: 0,
        };
        Self { burst: Box::new(burst), count: 0, given: 0 }
    }

    /// Receives up to 32 packets from a queue.
    ///
    /// # Panics
    /// When packets of the last burst are left, or the port has no such queue.
    pub(crate) fn receive(&mut self, port: &Port, queue: u16) {
        assert!(self.count == 0 && queue < port.receiving);
        // SAFETY: the port is open, one thread uses each of its queues, and there is room for a
        // burst.
        let count = unsafe { shim_receive(port.number, queue, &raw mut *self.burst) };
        self.count = count as usize;
    }

    /// Time of the burst, on the counter of [`cycles_per_second`].
    pub(crate) fn cycles(&self) -> u64 {
        self.burst.cycles
    }

    /// Number of packets.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Lengths of the packets on the wire.
    pub(crate) fn wires(&self) -> &[u32] {
        &self.burst.wire[..self.count]
    }

    /// The sum of the lengths at these places.
    ///
    /// # Panics
    /// When the range exceeds the burst.
    pub(crate) fn wire_bytes(&self, places: Range<usize>) -> u64 {
        self.wires()[places].iter().map(|wire| u64::from(*wire)).sum()
    }

    /// Lends out the packets at these places, received at this time: the bytes of each in its first
    /// buffer.
    ///
    /// # Panics
    /// When the range exceeds the burst.
    pub(crate) fn lend<'a>(&'a self, places: Range<usize>, time_ns: i64, to: &mut Burst<'a>) {
        assert!(places.end <= self.count);
        let (frames, wires) = (&self.burst.frames[places.clone()], &self.burst.wire[places]);
        // SAFETY: giving the buffers back needs `&mut self`, so they are held while the bytes are
        // used. Both types are a pointer and a number of bytes.
        let captured: &[Captured<'_>] =
            unsafe { slice::from_raw_parts(frames.as_ptr().cast(), frames.len()) };
        let (link, time_ns) = (Column::Same(LinkType::ETHERNET), Column::Same(time_ns));
        to.arrive(Frames::new(captured, wires, link, time_ns));
    }

    /// Moves the packet at this place, received at this time, to `picked`. Packets before it must
    /// not be used any more.
    ///
    /// # Panics
    /// When there is no such packet, or `picked` is full.
    pub(crate) fn pick(&mut self, place: usize, time_ns: i64, picked: &mut Picked) {
        assert!((self.given..self.count).contains(&place));
        let RawBurst { packets, frames, wire, .. } = &mut *self.burst;
        picked.packets[picked.count] = packets[place];
        picked.frames[picked.count] = (frames[place], wire[place], time_ns);
        picked.count += 1;
        // Keeps the buffers to give back adjacent.
        packets[place] = packets[self.given];
        self.given += 1;
    }

    /// Gives the buffers back.
    pub(crate) fn free(&mut self) {
        let packets = &mut self.burst.packets[self.given..self.count];
        // SAFETY: there are this many packets, which nothing else owns.
        unsafe { shim_free(packets.as_mut_ptr(), packets.len() as c_uint) };
        (self.count, self.given) = (0, 0);
    }

    /// Sends the packets on a queue of a port. Returns the number of packets that the port did not
    /// take.
    ///
    /// # Panics
    /// When the port has no such queue, or packets were picked.
    pub(crate) fn forward(&mut self, port: &Port, queue: u16) -> usize {
        assert!(queue < port.sending && self.given == 0);
        let (packets, count) = (self.burst.packets.as_mut_ptr(), self.count as c_uint);
        // SAFETY: the port is open, one thread uses each of its queues, and there are `count`
        // packets, which nothing else owns.
        let sent = unsafe { shim_forward(port.number, queue, packets, count) } as usize;
        std::mem::take(&mut self.count) - sent
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        self.free();
    }
}

// SAFETY: as for `Received`.
unsafe impl Send for Picked {}

impl Picked {
    pub(crate) fn new() -> Self {
        let packets = [ptr::null_mut(); PICKED];
        Self { packets, frames: [(RawFrame::NONE, 0, 0); PICKED], count: 0 }
    }

    /// The packets: the bytes of each in its first buffer.
    pub(crate) fn frames(&self) -> impl Iterator<Item = Frame<'_>> {
        self.frames[..self.count].iter().map(|&(frame, wire, time_ns)| {
            // SAFETY: giving the buffer back needs `&mut self`, so it is held while the bytes are
            // used.
            let bytes = unsafe { frame.bytes() };
            Frame { bytes, wire, link: LinkType::ETHERNET, time_ns }
        })
    }

    /// Gives the buffers back.
    pub(crate) fn free(&mut self) {
        // SAFETY: there are this many packets, which nothing else owns.
        unsafe { shim_free(self.packets.as_mut_ptr(), self.count as c_uint) };
        self.count = 0;
    }
}

impl Drop for Picked {
    fn drop(&mut self) {
        self.free();
    }
}

/// The registration of the calling thread with DPDK, which gives it a cache of buffers.
pub(crate) struct Known(());

impl Known {
    pub(crate) fn new() -> Self {
        // SAFETY: DPDK was started, because the caller is a queue, which holds a port.
        unsafe { shim_enter() };
        Self(())
    }
}

impl Drop for Known {
    fn drop(&mut self) {
        // SAFETY: as above. For a thread that is not registered, this has no effect.
        unsafe { shim_leave() }
    }
}

/// Runs `work`, and captures everything that the process prints until it returns.
///
/// # Errors
/// When the system cannot redirect the output; `work` is not run then.
fn capture_output<T>(work: impl FnOnce() -> T) -> io::Result<(T, String)> {
    let mut place = memory_file()?;
    io::stdout().flush()?;
    let redirected = [Redirected::new(1, &place)?, Redirected::new(2, &place)?];
    let done = work();
    // SAFETY: a null pointer flushes all streams of C.
    unsafe { libc::fflush(std::ptr::null_mut()) };
    drop(redirected);
    let mut printed = Vec::new();
    place.rewind()?;
    place.read_to_end(&mut printed)?;
    Ok((done, String::from_utf8_lossy(&printed).into_owned()))
}

/// A file in memory.
fn memory_file() -> io::Result<File> {
    // SAFETY: the name ends with zero.
    let file = unsafe { libc::memfd_create(c"printed".as_ptr(), libc::MFD_CLOEXEC) };
    if file < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new, and has no other owner.
    Ok(unsafe { File::from_raw_fd(file) })
}

/// A descriptor that is redirected until this value is dropped.
struct Redirected {
    number: i32,
    before: OwnedFd,
}

impl Redirected {
    fn new(number: i32, place: &File) -> io::Result<Self> {
        // SAFETY: descriptors are numbers; a wrong one gives an error.
        let before = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 0) };
        if before < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new, and has no other owner.
        let before = unsafe { OwnedFd::from_raw_fd(before) };
        // SAFETY: as above.
        if unsafe { libc::dup2(place.as_raw_fd(), number) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { number, before })
    }
}

impl Drop for Redirected {
    fn drop(&mut self) {
        // SAFETY: both descriptors are open.
        unsafe { libc::dup2(self.before.as_raw_fd(), self.number) };
    }
}
