//! The program in the driver that redirects packets to sockets, and its map of sockets.

use std::io;
use std::mem::size_of_val;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use libc::{c_int, c_long};

// From linux/bpf.h and linux/if_link.h; these constants are missing in libc.
const MAP_CREATE: c_int = 0;
const MAP_UPDATE_ELEM: c_int = 2;
const PROG_LOAD: c_int = 5;
const LINK_CREATE: c_int = 28;
const MAP_TYPE_XSKMAP: u32 = 17;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
const GENERIC: u32 = 1 << 1;
const NATIVE: u32 = 1 << 2;

/// Offset of the receive queue's number in the program's argument (`struct xdp_md`).
const RX_QUEUE_INDEX: u64 = 16;
/// The action for packets of a queue without a socket: pass them to the host (`XDP_PASS`).
const PASS: u32 = 2;
const REDIRECT_MAP: u32 = 51;

/// A program attached to an interface. When it is dropped, the host receives the packets again.
#[derive(Debug)]
pub(super) struct Hook {
    map: OwnedFd,
    _link: OwnedFd,
    /// Whether the driver runs the program, before the kernel allocates its own packet structure.
    pub(super) is_native: bool,
}

/// The start of `union bpf_attr` to create a map.
#[repr(C)]
struct NewMap {
    kind: u32,
    key_bytes: u32,
    value_bytes: u32,
    entries: u32,
    flags: u32,
}

/// The start of `union bpf_attr` to set an element.
#[repr(C)]
struct Element {
    map: u32,
    _padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// The start of `union bpf_attr` to load a program.
#[repr(C)]
struct Program {
    kind: u32,
    instructions: u32,
    code: u64,
    license: u64,
    log_level: u32,
    log_bytes: u32,
    log: u64,
}

/// The start of `union bpf_attr` to attach a program to an interface.
#[repr(C)]
struct Link {
    program: u32,
    interface: u32,
    kind: u32,
    flags: u32,
}

/// Runs a command of the system call `bpf`.
fn bpf<T>(command: c_int, attributes: &T) -> io::Result<c_int> {
    // SAFETY: the attributes are a structure of integers, valid for its length during the call. So
    // are the key, value, program and license whose addresses it holds. The kernel only reads them.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            c_long::from(command),
            &raw const *attributes,
            size_of_val(attributes),
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as c_int) }
}

/// The descriptor that a command returned.
fn owned(descriptor: c_int) -> OwnedFd {
    // SAFETY: the kernel just created it for this process, and it has no other owner.
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}

fn number(descriptor: &impl AsRawFd) -> u32 {
    descriptor.as_raw_fd().cast_unsigned()
}

/// An instruction of eBPF: operation, registers, offset and constant.
fn instruction(code: u64, to: u64, from: u64, offset: u64, constant: u32) -> u64 {
    code | to << 8 | from << 12 | offset << 16 | u64::from(constant) << 32
}

/// The program: redirects a packet to the socket of its queue in the map.
fn program(map: u32) -> [u64; 6] {
    [
        // r2 = the queue
        instruction(0x61, 2, 1, RX_QUEUE_INDEX, 0),
        // r1 = the map, a constant of two words
        instruction(0x18, 1, 1, 0, map),
        0,
        // r3 = the action if the map has no socket
        instruction(0xb7, 3, 0, 0, PASS),
        instruction(0x85, 0, 0, 0, REDIRECT_MAP),
        instruction(0x95, 0, 0, 0, 0),
    ]
}

impl Hook {
    /// Attaches a program to the interface of this number: in the driver if possible, otherwise
    /// after it.
    pub(super) fn attach(interface: c_int, queues: u32) -> io::Result<Self> {
        let new = NewMap {
            kind: MAP_TYPE_XSKMAP,
            key_bytes: 4,
            value_bytes: 4,
            entries: queues,
            flags: 0,
        };
        let map = owned(bpf(MAP_CREATE, &new)?);
        let (code, license) = (program(number(&map)), c"Apache-2.0");
        let program = Program {
            kind: PROG_TYPE_XDP,
            instructions: code.len() as u32,
            code: code.as_ptr() as u64,
            license: license.as_ptr() as u64,
            log_level: 0,
            log_bytes: 0,
            log: 0,
        };
        let program = owned(bpf(PROG_LOAD, &program)?);
        let link = |flags| {
            let (program, interface) = (number(&program), interface.cast_unsigned());
            bpf(LINK_CREATE, &Link { program, interface, kind: ATTACH_XDP, flags }).map(owned)
        };
        match link(NATIVE) {
            Ok(link) => Ok(Self { map, _link: link, is_native: true }),
            // Attaching after the driver would fail, too.
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => Err(error),
            Err(_) => Ok(Self { map, _link: link(GENERIC)?, is_native: false }),
        }
    }

    /// Redirects the packets of a queue to a socket.
    pub(super) fn redirect(&self, queue: u32, socket: &impl AsRawFd) -> io::Result<()> {
        let socket = number(socket);
        let (key, value) = (&raw const queue as u64, &raw const socket as u64);
        let element = Element { map: number(&self.map), _padding: 0, key, value, flags: 0 };
        bpf(MAP_UPDATE_ELEM, &element).map(drop)
    }
}
