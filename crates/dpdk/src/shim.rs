//! The functions of `shim.c`, behind types whose use is safe.

use std::ffi::{CStr, CString, c_char, c_int, c_uint};
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use flowgauge_core::packet::{Frame, LinkType};
use flowgauge_engine::sink::visible;

use crate::fault::{DpdkError, PortFault};
use crate::printed;

/// Packets that are received at once: `BURST` of `shim.c`.
const BURST: usize = 32;

/// Packets that are picked at once: more would leave the cache of their pool.
pub(crate) const PICKED: usize = 16;

/// Bytes of a port's name with the zero that ends it: `RTE_ETH_NAME_MAX_LEN`.
const NAME_BYTES: usize = 64;

/// A packet's buffer, and a store of them; only the shim looks inside.
#[repr(C)]
struct Packet([u8; 0]);
#[repr(C)]
struct Pool([u8; 0]);

/// The bytes of a packet in its first buffer.
#[repr(C)]
#[derive(Clone, Copy)]
struct RawFrame {
    bytes: NonNull<u8>,
    captured: usize,
}

/// `struct shim_burst`. The first `count` of `frames`, which the shim writes, lie in buffers.
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
    /// The buffer that they lie in must be held while they are looked at.
    #[inline(always)]
    unsafe fn bytes<'a>(self) -> &'a [u8] {
        // SAFETY: the shim found so many bytes there, and the buffer is held.
        unsafe { slice::from_raw_parts(self.bytes.as_ptr(), self.captured) }
    }
}

/// What a port lost since it was opened: `struct shim_counters`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    /// For want of time: the queues of the port were full.
    pub(crate) missed: u64,
    /// Because of an error of the packet or the device.
    pub(crate) errors: u64,
    /// For want of buffers.
    pub(crate) no_buffers: u64,
}

// SAFETY: these are the functions of `shim.c`, and their types are the same there.
unsafe extern "C" {
    fn shim_start(count: c_int, arguments: *mut *mut c_char) -> c_int;
    fn shim_stop();
    fn shim_reason(reason: c_int) -> *const c_char;
    fn shim_find(name: *const c_char) -> c_int;
    fn shim_name(port: *mut u16, name: *mut c_char) -> c_int;
    fn shim_queues(port: u16, receiving: *mut u16, sending: *mut u16) -> c_int;
    fn shim_pool(name: *const c_char, port: u16, buffers: c_uint) -> *mut Pool;
    fn shim_buffer_bytes() -> usize;
    fn shim_open(
        port: u16,
        pools: *mut *mut Pool,
        receiving: u16,
        sending: u16,
        promiscuous: c_int,
    ) -> c_int;
    fn shim_close(port: u16);
    fn shim_is_gone(port: u16) -> c_int;
    fn shim_counters(port: u16, counters: *mut Counters);
    fn shim_enter();
    fn shim_leave();
    fn shim_receive(port: u16, queue: u16, burst: *mut RawBurst) -> c_uint;
    fn shim_cycles_per_second() -> u64;
    fn shim_free(packets: *mut *mut Packet, count: c_uint);
    fn shim_forward(port: u16, queue: u16, packets: *mut *mut Packet, count: c_uint) -> c_uint;
}

/// DPDK's text for an error.
fn reason(error: c_int) -> String {
    // SAFETY: what is returned is a text that stays until the thread asks for another.
    unsafe { CStr::from_ptr(shim_reason(error.abs())) }.to_string_lossy().into_owned()
}

/// DPDK, started. It stops when the last owner of this, and of its ports, is gone.
#[derive(Debug)]
pub struct Dpdk {
    /// What it complained of while it started: a device that it could not open.
    complaint: Option<String>,
}

impl Dpdk {
    /// Starts it, once in a process, with arguments as its own programs take them, such as `--no-huge`.
    /// What it prints meanwhile is not shown.
    ///
    /// # Errors
    /// With DPDK's reason, when it does not start, or was started before.
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
        // SAFETY: there are so many arguments, which are never freed, and it is called once.
        let (error, printed) = printed::during(|| unsafe { shim_start(count, pointers) })
            .map_err(|error| DpdkError::Start(error.to_string()))?;
        let complaint = complaint(&printed);
        if error == 0 {
            return Ok(Arc::new(Self { complaint }));
        }
        let complaint = complaint.unwrap_or_else(|| reason(error));
        let of_huge_pages = complaint.contains("hugepage");
        Err(if of_huge_pages { DpdkError::HugePages } else { DpdkError::Start }(complaint))
    }

    /// The number of the port of this name.
    pub(crate) fn find(&self, name: &str) -> Result<u16, PortFault> {
        let missing = || {
            let (ports, complaint) = (names(self), self.complaint.clone());
            PortFault::Missing { ports, complaint }
        };
        let name = CString::new(name).map_err(|_| missing())?;
        // SAFETY: the name is a text that ends with zero, and DPDK was started.
        u16::try_from(unsafe { shim_find(name.as_ptr()) }).map_err(|_| missing())
    }
}

impl Drop for Dpdk {
    fn drop(&mut self) {
        // SAFETY: it was started, and no port is open: each holds this.
        unsafe { shim_stop() }
    }
}

/// The names of all ports.
fn names(_: &Dpdk) -> Vec<String> {
    let (mut names, mut port) = (Vec::new(), 0);
    let mut name = [0 as c_char; NAME_BYTES];
    // SAFETY: there is room for a name of a port, and DPDK was started.
    while unsafe { shim_name(&raw mut port, name.as_mut_ptr()) } != 0 {
        // SAFETY: the shim wrote a text that ends with zero.
        let text = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy();
        names.push(visible(&text).into_owned());
        port += 1;
    }
    names
}

/// The line that says what is wrong, among those that DPDK printed.
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
    // It can do without these.
    const FINE: &str = "Physical addresses";
    let is_one = |line: &&str| WORDS.iter().any(|word| line.contains(word)) && !line.contains(FINE);
    let line = printed.lines().map(str::trim).find(is_one)?;
    let line = line.trim_start_matches("EAL: ").trim_start_matches("FATAL: ");
    Some(visible(line.trim_end_matches('.')).into_owned())
}

/// An open port. It closes when the last of its queues is gone.
#[derive(Debug)]
pub(crate) struct Port {
    number: u16,
    receiving: u16,
    sending: u16,
    _dpdk: Arc<Dpdk>,
}

impl Port {
    /// Opens a port with so many queues, and so many buffers for each of those that receive.
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
        // SAFETY: DPDK was started; a wrong number is an error.
        check(unsafe { shim_queues(number, &raw mut most_receiving, &raw mut most_sending) })?;
        let (most_receiving, most_sending) = (most_receiving.into(), most_sending.into());
        if receiving > most_receiving {
            return Err(PortFault::Receiving(most_receiving));
        }
        if sending > most_sending {
            return Err(PortFault::Sending(most_sending));
        }
        let pool = |queue| {
            let name = CString::new(format!("flowgauge_{number}_{queue}")).unwrap_or_default();
            // SAFETY: the name is a text that ends with zero, and DPDK was started.
            NonNull::new(unsafe { shim_pool(name.as_ptr(), number, buffers as c_uint) })
                .map(NonNull::as_ptr)
                .ok_or(PortFault::Memory(buffers * buffer_bytes()))
        };
        let mut pools: Vec<_> = (0..receiving).map(pool).collect::<Result<_, _>>()?;
        let (receiving, sending) = (receiving as u16, sending as u16);
        let port = Self { number, receiving, sending, _dpdk: Arc::clone(dpdk) };
        let pools = pools.as_mut_ptr();
        // SAFETY: there is a pool for each queue, and nothing else opens this port.
        check(unsafe { shim_open(number, pools, receiving, sending, promiscuous.into()) })?;
        Ok(port)
    }

    pub(crate) fn is_gone(&self) -> bool {
        // SAFETY: the port is open.
        unsafe { shim_is_gone(self.number) != 0 }
    }

    /// What the port lost so far. A network card may take microseconds to say so.
    pub(crate) fn counters(&self) -> Counters {
        let mut counters = Counters::default();
        // SAFETY: the port is open, and the place is written during the call.
        unsafe { shim_counters(self.number, &raw mut counters) };
        counters
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        // SAFETY: it was opened, and no queue uses it any more.
        unsafe { shim_close(self.number) }
    }
}

/// Bytes that a buffer takes.
pub(crate) fn buffer_bytes() -> usize {
    // SAFETY: it returns a constant.
    unsafe { shim_buffer_bytes() }
}

/// Cycles a second of the counter that packets are stamped by.
pub(crate) fn cycles_per_second() -> u64 {
    // SAFETY: DPDK was started, or it returns 0.
    unsafe { shim_cycles_per_second() }
}

/// Packets that were received and are neither forwarded nor given back yet.
pub(crate) struct Received {
    burst: Box<RawBurst>,
    /// How many there are, and how many buffers in front are no longer held here.
    count: usize,
    given: usize,
}

/// Few of the packets of many bursts.
pub(crate) struct Picked {
    packets: [*mut Packet; PICKED],
    /// With their lengths on the wire and their times.
    frames: [(RawFrame, u32, i64); PICKED],
    count: usize,
}

// SAFETY: buffers belong to the process, whatever thread has them.
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

    /// Receives what came in on a queue, at most 32 packets.
    ///
    /// # Panics
    /// When packets are left over, or the port has no such queue.
    pub(crate) fn receive(&mut self, port: &Port, queue: u16) {
        assert!(self.count == 0 && queue < port.receiving);
        // SAFETY: the port is open, each of its queues has one thread, and there is room for a burst.
        let count = unsafe { shim_receive(port.number, queue, &raw mut *self.burst) };
        self.count = count as usize;
    }

    /// When they were received, by the counter of [`cycles_per_second`].
    pub(crate) fn cycles(&self) -> u64 {
        self.burst.cycles
    }

    /// How many packets there are.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Their lengths on the wire.
    pub(crate) fn wires(&self) -> &[u32] {
        &self.burst.wire[..self.count]
    }

    /// The sum of the lengths at these places.
    ///
    /// # Panics
    /// When there are fewer.
    pub(crate) fn wire_bytes(&self, places: Range<usize>) -> u64 {
        self.wires()[places].iter().map(|wire| u64::from(*wire)).sum()
    }

    /// Packets at these places: the bytes of each in its first buffer.
    ///
    /// # Panics
    /// When there are fewer.
    pub(crate) fn bytes(&self, places: Range<usize>) -> impl Iterator<Item = &[u8]> {
        assert!(places.end <= self.count);
        self.burst.frames[places].iter().map(|frame| {
            // SAFETY: the buffer holds so many bytes, and is not given back before `&mut self` is had.
            unsafe { frame.bytes() }
        })
    }

    /// Moves the packet at this place, which came at this time, to those that were picked. Packets in
    /// front of it must be looked at no more.
    ///
    /// # Panics
    /// When there is no such packet, or no room.
    pub(crate) fn pick(&mut self, place: usize, time_ns: i64, picked: &mut Picked) {
        assert!((self.given..self.count).contains(&place));
        let RawBurst { packets, frames, wire, .. } = &mut *self.burst;
        picked.packets[picked.count] = packets[place];
        picked.frames[picked.count] = (frames[place], wire[place], time_ns);
        picked.count += 1;
        // Buffers that are given back stand side by side.
        packets[place] = packets[self.given];
        self.given += 1;
    }

    /// Gives the buffers back.
    pub(crate) fn free(&mut self) {
        let packets = &mut self.burst.packets[self.given..self.count];
        // SAFETY: there are so many packets, which nothing else has.
        unsafe { shim_free(packets.as_mut_ptr(), packets.len() as c_uint) };
        (self.count, self.given) = (0, 0);
    }

    /// Sends the packets on a queue of a port, and returns how many it did not take.
    ///
    /// # Panics
    /// When the port has no such queue, or some were picked.
    pub(crate) fn forward(&mut self, port: &Port, queue: u16) -> usize {
        assert!(queue < port.sending && self.given == 0);
        let (packets, count) = (self.burst.packets.as_mut_ptr(), self.count as c_uint);
        // SAFETY: the port is open, each of its queues has one thread, and there are so many packets,
        // which nothing else has.
        let sent = unsafe { shim_forward(port.number, queue, packets, count) } as usize;
        std::mem::take(&mut self.count) - sent
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        self.free();
    }
}

// SAFETY: as above.
unsafe impl Send for Picked {}

impl Picked {
    pub(crate) fn new() -> Self {
        let packets = [ptr::null_mut(); PICKED];
        Self { packets, frames: [(RawFrame::NONE, 0, 0); PICKED], count: 0 }
    }

    /// The packets: the bytes of each in its first buffer.
    pub(crate) fn frames(&self) -> impl Iterator<Item = Frame<'_>> {
        self.frames[..self.count].iter().map(|&(frame, wire, time_ns)| {
            // SAFETY: the buffer holds so many bytes, and is not given back before `&mut self` is had.
            let bytes = unsafe { frame.bytes() };
            Frame { bytes, wire, link: LinkType::ETHERNET, time_ns }
        })
    }

    /// Gives the buffers back.
    pub(crate) fn free(&mut self) {
        // SAFETY: there are so many packets, which nothing else has.
        unsafe { shim_free(self.packets.as_mut_ptr(), self.count as c_uint) };
        self.count = 0;
    }
}

impl Drop for Picked {
    fn drop(&mut self) {
        self.free();
    }
}

/// The calling thread as DPDK knows it, with a cache of buffers.
pub(crate) struct Known(());

impl Known {
    pub(crate) fn new() -> Self {
        // SAFETY: DPDK was started: a queue calls this, which holds a port.
        unsafe { shim_enter() };
        Self(())
    }
}

impl Drop for Known {
    fn drop(&mut self) {
        // SAFETY: as above. A thread that is not known stays so.
        unsafe { shim_leave() }
    }
}
