//! The ring of blocks to which the kernel writes packets, mapped once.

use std::io;
use std::mem::offset_of;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use libc::{c_int, c_uint};

use crate::socket::Socket;

/// Size of a block: several times the largest packet that offloads build (64 KiB).
const BLOCK_BYTES: usize = 256 << 10;

/// The kernel hands over a block with packets after this time, even if it is not full.
pub(crate) const RETIRE: Duration = Duration::from_millis(10);

/// Free bytes before each packet, for a VLAN tag.
pub(crate) const RESERVED: usize = 4;

const STATUS: usize =
    offset_of!(libc::tpacket_block_desc, hdr) + offset_of!(libc::tpacket_hdr_v1, block_status);

/// The blocks, and the number of the next one.
pub(crate) struct Ring {
    memory: NonNull<u8>,
    blocks: usize,
    next: usize,
}

// SAFETY: only this value uses the mapping, and a mapping is valid in every thread.
unsafe impl Send for Ring {}

impl Ring {
    /// Creates and maps the ring of a socket that is not bound yet. It has `bytes` bytes, rounded
    /// down to blocks, and at least two blocks.
    pub(crate) fn new(socket: &Socket, bytes: usize) -> io::Result<Self> {
        let blocks = (bytes / BLOCK_BYTES).max(2);
        let version: c_int = libc::tpacket_versions::TPACKET_V3 as c_int;
        socket.set(libc::PACKET_VERSION, &version)?;
        socket.set(libc::PACKET_RESERVE, &(RESERVED as c_uint))?;
        let frame_bytes = 2048;
        let request = libc::tpacket_req3 {
            tp_block_size: BLOCK_BYTES as c_uint,
            tp_block_nr: blocks as c_uint,
            // Without effect in this version, but it must be consistent.
            tp_frame_size: frame_bytes,
            tp_frame_nr: (BLOCK_BYTES / frame_bytes as usize * blocks) as c_uint,
            tp_retire_blk_tov: RETIRE.as_millis() as c_uint,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        socket.set(libc::PACKET_RX_RING, &request)?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: this requests a new mapping, at an address that is not in use.
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

    /// The next block; empty until the kernel has handed it over.
    pub(crate) fn block(&self) -> &[u8] {
        let bytes = if self.ready() { BLOCK_BYTES } else { 0 };
        // SAFETY: the block lies in the mapping, all of which is accessible. The kernel does not
        // write to it before `release`, which borrows this value exclusively.
        unsafe { slice::from_raw_parts(self.place(), bytes) }
    }

    /// The next block, writable.
    pub(crate) fn block_mut(&mut self) -> &mut [u8] {
        let bytes = if self.ready() { BLOCK_BYTES } else { 0 };
        // SAFETY: as in `block`; the exclusive borrow of `self` excludes other references.
        unsafe { slice::from_raw_parts_mut(self.place(), bytes) }
    }

    /// Gives the block back to the kernel and continues with the next one.
    pub(crate) fn release(&mut self) {
        self.status().store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.next = (self.next + 1) % self.blocks;
    }

    /// The start of the next block.
    fn place(&self) -> *mut u8 {
        // SAFETY: `next` is below `blocks`, so the block lies in the mapping.
        unsafe { self.memory.as_ptr().add(self.next * BLOCK_BYTES) }
    }

    fn status(&self) -> &AtomicU32 {
        // SAFETY: the word lies in the mapping, aligned like its structure, and this process and
        // the kernel access it only atomically.
        unsafe { AtomicU32::from_ptr(self.place().add(STATUS).cast()) }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to this value, and no reference into it is left.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), BLOCK_BYTES * self.blocks) };
    }
}
