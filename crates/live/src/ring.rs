//! The ring of blocks that the kernel writes packets into, mapped once.

use std::io;
use std::mem::offset_of;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use libc::{c_int, c_uint};

use crate::socket::Socket;

/// Bytes of a block, which holds the largest packets that offloads build (64 KiB) several times.
const BLOCK_BYTES: usize = 256 << 10;

/// A block that has packets is handed over after this time, be it full or not.
pub(crate) const RETIRE: Duration = Duration::from_millis(10);

/// Bytes that are left free before each packet, for a VLAN tag.
pub(crate) const RESERVED: usize = 4;

const STATUS: usize =
    offset_of!(libc::tpacket_block_desc, hdr) + offset_of!(libc::tpacket_hdr_v1, block_status);

/// The blocks, and which of them comes next.
pub(crate) struct Ring {
    memory: NonNull<u8>,
    blocks: usize,
    next: usize,
}

// SAFETY: the mapping belongs to this value alone, whatever thread it is in.
unsafe impl Send for Ring {}

impl Ring {
    /// Makes the ring of a socket that is not bound yet, and maps it: of `bytes`, rounded to blocks,
    /// of which there are at least two.
    pub(crate) fn new(socket: &Socket, bytes: usize) -> io::Result<Self> {
        let blocks = (bytes / BLOCK_BYTES).max(2);
        let version: c_int = libc::tpacket_versions::TPACKET_V3 as c_int;
        socket.set(libc::PACKET_VERSION, &version)?;
        socket.set(libc::PACKET_RESERVE, &(RESERVED as c_uint))?;
        let frame_bytes = 2048;
        let request = libc::tpacket_req3 {
            tp_block_size: BLOCK_BYTES as c_uint,
            tp_block_nr: blocks as c_uint,
            // Of no consequence in this version but for its consistency.
            tp_frame_size: frame_bytes,
            tp_frame_nr: (BLOCK_BYTES / frame_bytes as usize * blocks) as c_uint,
            tp_retire_blk_tov: RETIRE.as_millis() as c_uint,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        socket.set(libc::PACKET_RX_RING, &request)?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping is asked for, at no place that is in use.
        let memory = unsafe {
            let length = BLOCK_BYTES * blocks;
            libc::mmap(ptr::null_mut(), length, access, libc::MAP_SHARED, socket.fd(), 0)
        };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let memory = NonNull::new(memory.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { memory, blocks, next: 0 })
    }

    /// Whether the kernel has handed over the next block.
    pub(crate) fn ready(&self) -> bool {
        self.status().load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }

    /// The next block, once it is handed over; no bytes before.
    pub(crate) fn block(&self) -> &[u8] {
        let bytes = if self.ready() { BLOCK_BYTES } else { 0 };
        // SAFETY: the block lies in the mapping, whose pages are all there. The kernel does not
        // write to it before `release`, which needs this value for itself alone.
        unsafe { slice::from_raw_parts(self.place(), bytes) }
    }

    /// The same, to be written to.
    pub(crate) fn block_mut(&mut self) -> &mut [u8] {
        let bytes = if self.ready() { BLOCK_BYTES } else { 0 };
        // SAFETY: as in `block`; nobody else has a reference to it.
        unsafe { slice::from_raw_parts_mut(self.place(), bytes) }
    }

    /// Gives the block back to the kernel, and goes on to the one behind it.
    pub(crate) fn release(&mut self) {
        self.status().store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.next = (self.next + 1) % self.blocks;
    }

    /// Where the next block begins.
    fn place(&self) -> *mut u8 {
        // SAFETY: `next` is below `blocks`, so that the block lies in the mapping.
        unsafe { self.memory.as_ptr().add(self.next * BLOCK_BYTES) }
    }

    fn status(&self) -> &AtomicU32 {
        // SAFETY: the word lies in the mapping, aligned as its structure is, and everybody who
        // writes to it, the kernel as well, does so at once.
        unsafe { AtomicU32::from_ptr(self.place().add(STATUS).cast()) }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's, and no reference into it is left.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), BLOCK_BYTES * self.blocks) };
    }
}
