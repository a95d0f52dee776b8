//! The socket, its packet memory, and the rings that pass this memory to the kernel and back.

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use libc::{c_int, c_void, off_t, socklen_t};

use super::XdpOptions;
use crate::fault::InterfaceFault;
use crate::socket::{Event, checked};

/// Size of a frame: a page, the maximum in the kernel.
const FRAME_BYTES: usize = 4096;

/// Entries of the completion ring of sent packets. Nothing is sent, but Linux requires the ring.
const COMPLETIONS: u32 = 64;

// From asm-generic/socket.h; these constants are missing in libc.
const SO_PREFER_BUSY_POLL: c_int = 69;
const SO_BUSY_POLL_BUDGET: c_int = 70;
const BUSY_POLL_US: c_int = 20;
const BUSY_POLL_PACKETS: c_int = 64;

/// Mapped memory.
struct Mapping {
    memory: NonNull<u8>,
    bytes: usize,
}

impl Mapping {
    /// Maps populated pages: of the socket at this offset, or anonymous ones.
    fn new(bytes: usize, socket: Option<(c_int, off_t)>) -> io::Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let (fd, offset, kind) = match socket {
            Some((fd, offset)) => (fd, offset, libc::MAP_SHARED),
            None => (-1, 0, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS),
        };
        // SAFETY: this requests a new mapping, at an address that is not in use.
        let memory = unsafe {
            libc::mmap(ptr::null_mut(), bytes, access, kind | libc::MAP_POPULATE, fd, offset)
        };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let memory = NonNull::new(memory.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { memory, bytes })
    }

    /// A word that the kernel also reads and writes.
    fn word(&self, at: u64) -> &AtomicU32 {
        assert!(at as usize + 4 <= self.bytes && at.is_multiple_of(4));
        // SAFETY: the word lies in the mapping and is aligned, because the mapping begins at a
        // page. This process and the kernel access it only atomically.
        unsafe { AtomicU32::from_ptr(self.memory.as_ptr().add(at as usize).cast()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to this value, and no reference into it is left.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.bytes) };
    }
}

/// A ring of entries of type `T` between the kernel and this thread.
struct Ring<T> {
    mapping: Mapping,
    offsets: libc::xdp_ring_offset,
    entries: u32,
    kind: std::marker::PhantomData<T>,
}

impl<T: Copy> Ring<T> {
    /// Maps a ring of the socket.
    fn new(
        socket: &OwnedFd,
        place: off_t,
        offsets: libc::xdp_ring_offset,
        entries: u32,
    ) -> io::Result<Self> {
        let bytes = offsets.desc as usize + entries as usize * size_of::<T>();
        debug_assert!(entries.is_power_of_two());
        let mapping = Mapping::new(bytes, Some((socket.as_raw_fd(), place)))?;
        Ok(Self { mapping, offsets, entries, kind: std::marker::PhantomData })
    }

    fn producer(&self) -> &AtomicU32 {
        self.mapping.word(self.offsets.producer)
    }

    fn consumer(&self) -> &AtomicU32 {
        self.mapping.word(self.offsets.consumer)
    }

    /// The address of the entry with this number.
    fn place(&self, number: u32) -> *mut T {
        let entry = (number & (self.entries - 1)) as usize;
        // SAFETY: the index is below the number of entries, and the mapping holds all of them after
        // `desc`.
        unsafe {
            self.mapping.memory.as_ptr().add(self.offsets.desc as usize).cast::<T>().add(entry)
        }
    }
}

/// The socket of a queue, with its memory and rings.
pub(super) struct Rings {
    socket: OwnedFd,
    frames: Mapping,
    /// Addresses of frames for the kernel to fill.
    fill: Ring<u64>,
    /// Frames with packets.
    received: Ring<libc::xdp_desc>,
    busy_poll: bool,
    /// Whether the interface writes packets directly to the frames.
    pub(super) is_zero_copy: bool,
}

// SAFETY: only this value uses the mappings, and a mapping is valid in every thread.
unsafe impl Send for Rings {}

/// Sets an option. `T` must be the option's type in C.
fn set<T>(socket: &OwnedFd, layer: c_int, option: c_int, value: &T) -> io::Result<()> {
    let length = size_of::<T>() as socklen_t;
    let value: *const c_void = (&raw const *value).cast();
    // SAFETY: the value is valid for its length during the call, which only reads it.
    checked(unsafe { libc::setsockopt(socket.as_raw_fd(), layer, option, value, length) }).map(drop)
}

/// Reads an option. `T` must be the option's type in C, and consist of integers.
fn get<T: Copy>(socket: &OwnedFd, layer: c_int, option: c_int) -> io::Result<T> {
    // SAFETY: these structures of integers may be all zeros.
    let mut value: T = unsafe { zeroed() };
    let mut length = size_of::<T>() as socklen_t;
    let to: *mut c_void = (&raw mut value).cast();
    // SAFETY: the value may be written for its length during the call, and any bytes are valid.
    checked(unsafe { libc::getsockopt(socket.as_raw_fd(), layer, option, to, &raw mut length) })?;
    Ok(value)
}

impl Rings {
    /// Opens a socket of the interface's queue, and gives all of its frames to the kernel.
    pub(super) fn open(
        interface: c_int,
        queue: u32,
        options: &XdpOptions,
        is_native: bool,
    ) -> Result<Self, InterfaceFault> {
        let frames = (options.ring_bytes / FRAME_BYTES).clamp(128, 1 << 20);
        let entries = 1 << frames.ilog2();
        // SAFETY: no pointer is passed.
        let socket =
            checked(unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) })?;
        // SAFETY: the descriptor is new, and has no other owner.
        let socket = unsafe { OwnedFd::from_raw_fd(socket) };
        let memory = Mapping::new(entries as usize * FRAME_BYTES, None)?;
        let region = libc::xdp_umem_reg {
            addr: memory.memory.as_ptr() as u64,
            len: memory.bytes as u64,
            chunk_size: FRAME_BYTES as u32,
            headroom: 0,
            flags: 0,
            tx_metadata_len: 0,
        };
        set(&socket, libc::SOL_XDP, libc::XDP_UMEM_REG, &region).map_err(|error| {
            match error.raw_os_error() {
                Some(libc::ENOBUFS) => InterfaceFault::Locked(memory.bytes),
                _ => error.into(),
            }
        })?;
        set(&socket, libc::SOL_XDP, libc::XDP_UMEM_FILL_RING, &entries)?;
        set(&socket, libc::SOL_XDP, libc::XDP_UMEM_COMPLETION_RING, &COMPLETIONS)?;
        set(&socket, libc::SOL_XDP, libc::XDP_RX_RING, &entries)?;
        let offsets: libc::xdp_mmap_offsets = get(&socket, libc::SOL_XDP, libc::XDP_MMAP_OFFSETS)?;
        let fill_place = libc::XDP_UMEM_PGOFF_FILL_RING.cast_signed();
        let fill = Ring::new(&socket, fill_place, offsets.fr, entries)?;
        let received = Ring::new(&socket, libc::XDP_PGOFF_RX_RING, offsets.rx, entries)?;
        let busy_poll = options.busy_poll;
        if busy_poll {
            set(&socket, libc::SOL_SOCKET, SO_PREFER_BUSY_POLL, &1)?;
            set(&socket, libc::SOL_SOCKET, libc::SO_BUSY_POLL, &BUSY_POLL_US)?;
            set(&socket, libc::SOL_SOCKET, SO_BUSY_POLL_BUDGET, &BUSY_POLL_PACKETS)?;
        }
        let mut rings =
            Self { socket, frames: memory, fill, received, busy_poll, is_zero_copy: false };
        rings.give((0..u64::from(entries)).map(|frame| frame * FRAME_BYTES as u64));
        rings.bind(interface, queue, is_native)?;
        Ok(rings)
    }

    /// Binds the socket to its queue. Without a flag, the kernel copies packets only if it must;
    /// after the driver, it must.
    fn bind(&mut self, interface: c_int, queue: u32, is_native: bool) -> io::Result<()> {
        let copy = if is_native { 0 } else { libc::XDP_COPY };
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: libc::XDP_USE_NEED_WAKEUP | copy,
            sxdp_ifindex: interface.cast_unsigned(),
            sxdp_queue_id: queue,
            sxdp_shared_umem_fd: 0,
        };
        let length = size_of::<libc::sockaddr_xdp>() as socklen_t;
        // SAFETY: the address is valid for its length during the call.
        checked(unsafe {
            libc::bind(self.socket.as_raw_fd(), (&raw const address).cast(), length)
        })?;
        let options: libc::xdp_options = get(&self.socket, libc::SOL_XDP, libc::XDP_OPTIONS)?;
        self.is_zero_copy = options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0;
        Ok(())
    }

    pub(super) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// Number of packets in the ring.
    pub(super) fn ready(&self) -> u32 {
        let consumed = self.received.consumer().load(Ordering::Relaxed);
        self.received.producer().load(Ordering::Acquire).wrapping_sub(consumed)
    }

    /// The entry of the packet at this place in the ring.
    fn entry(&self, place: u32) -> libc::xdp_desc {
        let consumed = self.received.consumer().load(Ordering::Relaxed);
        // SAFETY: the kernel has written the entries before the producer's place, and does not
        // write them again before the consumer's place moves, which borrows this value exclusively.
        unsafe { self.received.place(consumed.wrapping_add(place)).read() }
    }

    /// The bytes of the packet at this place in the ring.
    ///
    /// # Panics
    /// When there is no such packet.
    pub(super) fn packet(&self, place: u32) -> &[u8] {
        assert!(place < self.ready());
        let entry = self.entry(place);
        let (first, length) = (entry.addr as usize, entry.len as usize);
        assert!(first.checked_add(length).is_some_and(|end| end <= self.frames.bytes));
        // SAFETY: the bytes lie in the mapping. The kernel does not write to the frame before
        // `release`, which borrows this value exclusively.
        unsafe { slice::from_raw_parts(self.frames.memory.as_ptr().add(first), length) }
    }

    /// Gives the frames of the first packets in the ring back to the kernel.
    pub(super) fn release(&mut self, packets: u32) {
        if packets == 0 {
            return;
        }
        let first_byte = !(FRAME_BYTES as u64 - 1);
        for place in 0..packets {
            let frame = self.entry(place).addr & first_byte;
            self.give(std::iter::once(frame));
        }
        let consumed = self.received.consumer().load(Ordering::Relaxed);
        self.received.consumer().store(consumed.wrapping_add(packets), Ordering::Release);
        let flags = self.fill.mapping.word(self.fill.offsets.flags);
        if flags.load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0 {
            self.run_driver();
        }
    }

    /// Gives frames to the kernel. The ring has as many entries as there are frames, so it has
    /// room.
    fn give(&mut self, frames: impl Iterator<Item = u64>) {
        let mut produced = self.fill.producer().load(Ordering::Relaxed);
        for frame in frames {
            // SAFETY: the kernel does not read entries from the producer's place on, and there is
            // room.
            unsafe { self.fill.place(produced).write(frame) };
            produced = produced.wrapping_add(1);
        }
        self.fill.producer().store(produced, Ordering::Release);
    }

    /// Makes the driver fetch packets, without waiting.
    fn run_driver(&self) {
        let flags = libc::MSG_DONTWAIT;
        // `wait` reports errors.
        // SAFETY: no memory is passed.
        let _ = unsafe { libc::recv(self.socket.as_raw_fd(), ptr::null_mut(), 0, flags) };
    }

    /// Waits for packets, at most for this time. With busy polling, runs the driver instead.
    pub(super) fn wait(&self, most: Duration) -> io::Result<Event> {
        let most = if self.busy_poll {
            self.run_driver();
            0
        } else {
            most.as_millis() as c_int
        };
        let mut wanted =
            libc::pollfd { fd: self.socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one structure is passed, which may be written during the call.
        match checked(unsafe { libc::poll(&raw mut wanted, 1, most) }) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(Event::None),
            Err(error) => Err(error),
            Ok(_) if wanted.revents & libc::POLLERR == 0 => Ok(Event::None),
            Ok(_) => match get::<c_int>(&self.socket, libc::SOL_SOCKET, libc::SO_ERROR)? {
                0 => Ok(Event::None),
                libc::ENETDOWN | libc::ENODEV | libc::ENXIO => Ok(Event::Down),
                error => Err(io::Error::from_raw_os_error(error)),
            },
        }
    }

    /// Number of packets that the kernel dropped so far, and of those dropped because the ring was
    /// full.
    pub(super) fn dropped(&self) -> io::Result<(u64, u64)> {
        let counts: libc::xdp_statistics = get(&self.socket, libc::SOL_XDP, libc::XDP_STATISTICS)?;
        Ok((counts.rx_dropped + counts.rx_ring_full, counts.rx_ring_full))
    }
}
