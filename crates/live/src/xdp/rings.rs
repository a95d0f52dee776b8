//! The socket, the memory that packets lie in, and the rings by which it goes to the kernel and back.

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use libc::{c_int, c_void, off_t, socklen_t};

use super::XdpOptions;
use crate::socket::{Event, checked};

/// Bytes of a frame, which the kernel allows to be a page at most.
const FRAME_BYTES: usize = 4096;

/// Packets that are sent before their memory comes back, of which there are none; Linux wants a ring.
const COMPLETIONS: u32 = 64;

// Of asm-generic/socket.h, which the C library's constants leave out.
const SO_PREFER_BUSY_POLL: c_int = 69;
const SO_BUSY_POLL_BUDGET: c_int = 70;
const BUSY_POLL_US: c_int = 20;
const BUSY_POLL_PACKETS: c_int = 64;

/// Memory that was mapped.
struct Mapping {
    memory: NonNull<u8>,
    bytes: usize,
}

impl Mapping {
    /// Pages that are all there: of the socket at this place, or of no file.
    fn new(bytes: usize, socket: Option<(c_int, off_t)>) -> io::Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let (fd, offset, kind) = match socket {
            Some((fd, offset)) => (fd, offset, libc::MAP_SHARED),
            None => (-1, 0, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS),
        };
        // SAFETY: a new mapping is asked for, at no place that is in use.
        let memory = unsafe {
            libc::mmap(ptr::null_mut(), bytes, access, kind | libc::MAP_POPULATE, fd, offset)
        };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let memory = NonNull::new(memory.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { memory, bytes })
    }

    /// A word that the kernel reads and writes too.
    fn word(&self, at: u64) -> &AtomicU32 {
        assert!(at as usize + 4 <= self.bytes && at.is_multiple_of(4));
        // SAFETY: the word lies in the mapping, which begins at a page, and all who write to it do so
        // at once.
        unsafe { AtomicU32::from_ptr(self.memory.as_ptr().add(at as usize).cast()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's, and no reference into it is left.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.bytes) };
    }
}

/// A ring of entries of the type `T` between the kernel and this thread.
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

    /// Where the entry of this number is.
    fn place(&self, number: u32) -> *mut T {
        let entry = (number & (self.entries - 1)) as usize;
        // SAFETY: the entry is below their number, for which there is room behind `desc`.
        unsafe {
            self.mapping.memory.as_ptr().add(self.offsets.desc as usize).cast::<T>().add(entry)
        }
    }
}

/// The socket of a queue with its memory.
pub(super) struct Rings {
    socket: OwnedFd,
    frames: Mapping,
    /// Frames for the kernel to fill, by the address of their first byte.
    fill: Ring<u64>,
    /// Frames with packets.
    received: Ring<libc::xdp_desc>,
    busy_poll: bool,
    /// Whether the interface writes packets into the frames itself.
    pub(super) is_zero_copy: bool,
}

// SAFETY: the mappings belong to this value alone, whatever thread it is in.
unsafe impl Send for Rings {}

/// Sets an option, whose value is of the type `T` in C, made of integers.
fn set<T>(socket: &OwnedFd, layer: c_int, option: c_int, value: &T) -> io::Result<()> {
    let length = size_of::<T>() as socklen_t;
    let value: *const c_void = (&raw const *value).cast();
    // SAFETY: the value is valid for its length during the call, which only reads it.
    checked(unsafe { libc::setsockopt(socket.as_raw_fd(), layer, option, value, length) }).map(drop)
}

/// Reads an option, likewise.
fn get<T: Copy>(socket: &OwnedFd, layer: c_int, option: c_int) -> io::Result<T> {
    // SAFETY: all zeros are a value of these structures of integers.
    let mut value: T = unsafe { zeroed() };
    let mut length = size_of::<T>() as socklen_t;
    let to: *mut c_void = (&raw mut value).cast();
    // SAFETY: the value may be written for its length during the call, and any bytes are one.
    checked(unsafe { libc::getsockopt(socket.as_raw_fd(), layer, option, to, &raw mut length) })?;
    Ok(value)
}

impl Rings {
    /// A socket of the interface's queue, with all of its memory at the kernel.
    pub(super) fn open(
        interface: c_int,
        queue: u32,
        options: &XdpOptions,
        is_native: bool,
    ) -> io::Result<Self> {
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
        set(&socket, libc::SOL_XDP, libc::XDP_UMEM_REG, &region)?;
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

    /// Receives what the program redirects. Without a flag the kernel copies only where it must; behind
    /// the driver it must.
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

    /// Packets that are there.
    pub(super) fn ready(&self) -> u32 {
        let consumed = self.received.consumer().load(Ordering::Relaxed);
        self.received.producer().load(Ordering::Acquire).wrapping_sub(consumed)
    }

    /// The entry of the packet at this place among those that are there.
    fn entry(&self, place: u32) -> libc::xdp_desc {
        let consumed = self.received.consumer().load(Ordering::Relaxed);
        // SAFETY: entries before the producer's place are written, and not written again before the
        // consumer's place moves, which needs this value for itself alone.
        unsafe { self.received.place(consumed.wrapping_add(place)).read() }
    }

    /// The bytes of the packet at this place among those that are there.
    ///
    /// # Panics
    /// When there is none.
    pub(super) fn packet(&self, place: u32) -> &[u8] {
        assert!(place < self.ready());
        let entry = self.entry(place);
        let (first, length) = (entry.addr as usize, entry.len as usize);
        assert!(first.checked_add(length).is_some_and(|end| end <= self.frames.bytes));
        // SAFETY: the bytes lie in the mapping. The kernel does not write to the frame before
        // `release`, which needs this value for itself alone.
        unsafe { slice::from_raw_parts(self.frames.memory.as_ptr().add(first), length) }
    }

    /// Gives the frames of the first packets that are there back to the kernel.
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

    /// Gives frames to the kernel. There are as many entries as frames, so that they find room.
    fn give(&mut self, frames: impl Iterator<Item = u64>) {
        let mut produced = self.fill.producer().load(Ordering::Relaxed);
        for frame in frames {
            // SAFETY: the kernel does not read an entry behind the producer's place, and there is room.
            unsafe { self.fill.place(produced).write(frame) };
            produced = produced.wrapping_add(1);
        }
        self.fill.producer().store(produced, Ordering::Release);
    }

    /// Has the driver fetch packets, without waiting for them.
    fn run_driver(&self) {
        let flags = libc::MSG_DONTWAIT;
        // What is wrong shows in `wait`.
        // SAFETY: no memory is passed.
        let _ = unsafe { libc::recv(self.socket.as_raw_fd(), ptr::null_mut(), 0, flags) };
    }

    /// Waits for packets, at most so long; not at all where the driver is run instead.
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

    /// Packets that the kernel dropped so far, and those of them that found the ring full.
    pub(super) fn dropped(&self) -> io::Result<(u64, u64)> {
        let counts: libc::xdp_statistics = get(&self.socket, libc::SOL_XDP, libc::XDP_STATISTICS)?;
        Ok((counts.rx_dropped + counts.rx_ring_full, counts.rx_ring_full))
    }
}
