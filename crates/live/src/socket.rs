//! The packet socket, and queries about interfaces.

use std::ffi::{CStr, CString};
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use flowgauge_filter::Instruction;
use libc::{c_int, c_void, socklen_t};

/// A raw packet socket. It receives nothing before it is bound.
pub(crate) struct Socket(OwnedFd);

/// Queries to drivers (`linux/ethtool.h`); these constants are missing in libc.
const SIOCETHTOOL: libc::Ioctl = 0x8946;
const ETHTOOL_GFLAGS: u32 = 0x25;
const ETHTOOL_GGRO: u32 = 0x2b;
const FLAG_LRO: u32 = 1 << 15;

#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
}

/// The result of waiting.
pub(crate) enum Event {
    /// Packets may have arrived, the time is over, or a signal came.
    None,
    /// The interface is down or gone.
    Down,
}

/// A request about the interface of this name.
fn request_of(name: &CStr) -> libc::ifreq {
    // SAFETY: this structure of integers may be all zeros.
    let mut request: libc::ifreq = unsafe { zeroed() };
    let bytes = name.to_bytes().iter().take(request.ifr_name.len() - 1);
    for (to, byte) in request.ifr_name.iter_mut().zip(bytes) {
        *to = byte.cast_signed();
    }
    request
}

/// Converts the result of a C call: negative values are errors.
pub(crate) fn checked(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

impl From<OwnedFd> for Socket {
    fn from(fd: OwnedFd) -> Self {
        Self(fd)
    }
}

impl Socket {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: no pointer is passed.
        let fd = checked(unsafe {
            libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0)
        })?;
        // SAFETY: the descriptor is new, and has no other owner.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Receives all packets of the interface with `protocol`. With 0, it keeps the protocol; a new
    /// socket then receives nothing.
    pub(crate) fn bind(&self, interface: c_int, protocol: c_int) -> io::Result<()> {
        // SAFETY: this structure of integers may be all zeros.
        let mut address: libc::sockaddr_ll = unsafe { zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (protocol as u16).to_be();
        address.sll_ifindex = interface;
        let length = size_of::<libc::sockaddr_ll>() as socklen_t;
        // SAFETY: the address is valid for its length during the call.
        checked(unsafe { libc::bind(self.fd(), (&raw const address).cast(), length) })?;
        Ok(())
    }

    /// The bound interface: its number, negative if it was removed, and its hardware type
    /// (`ARPHRD_…`).
    pub(crate) fn bound(&self) -> io::Result<(c_int, u16)> {
        // SAFETY: this structure of integers may be all zeros.
        let mut address: libc::sockaddr_ll = unsafe { zeroed() };
        let mut length = size_of::<libc::sockaddr_ll>() as socklen_t;
        // SAFETY: the address may be written for its length during the call.
        checked(unsafe {
            libc::getsockname(self.fd(), (&raw mut address).cast(), &raw mut length)
        })?;
        Ok((address.sll_ifindex, address.sll_hatype))
    }

    /// Turns on promiscuous mode for the lifetime of the socket.
    pub(crate) fn ask_for_all(&self, interface: c_int) -> io::Result<()> {
        let request = libc::packet_mreq {
            mr_ifindex: interface,
            mr_type: libc::PACKET_MR_PROMISC as u16,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        self.set(libc::PACKET_ADD_MEMBERSHIP, &request)
    }

    /// Receives only packets that a classic BPF program accepts, from now on.
    pub(crate) fn attach(&self, program: &[Instruction]) -> io::Result<()> {
        let instruction =
            |&Instruction { code, jt, jf, k }: &Instruction| libc::sock_filter { code, jt, jf, k };
        let mut program: Vec<_> = program.iter().map(instruction).collect();
        let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
        self.set_of(libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
    }

    /// Receives all packets from now on.
    pub(crate) fn detach(&self) -> io::Result<()> {
        let none: c_int = 0;
        self.set_of(libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &none)
    }

    /// Sets an option of the packet layer. `T` must be the option's type in C.
    pub(crate) fn set<T>(&self, option: c_int, value: &T) -> io::Result<()> {
        self.set_of(libc::SOL_PACKET, option, value)
    }

    /// Sets an option of a layer. `T` must be the option's type in C.
    fn set_of<T>(&self, layer: c_int, option: c_int, value: &T) -> io::Result<()> {
        let length = size_of::<T>() as socklen_t;
        let value: *const c_void = (&raw const *value).cast();
        // SAFETY: the value is valid for its length during the call, which only reads it, and so is
        // the memory to which a program's pointer points.
        checked(unsafe { libc::setsockopt(self.fd(), layer, option, value, length) })?;
        Ok(())
    }

    /// Whether the interface of this number is up.
    pub(crate) fn is_up(&self, number: c_int) -> bool {
        let Some(name) = name(number) else { return false };
        let mut request = request_of(&name);
        // SAFETY: the request has the type that this call reads and writes.
        let asked = unsafe { libc::ioctl(self.fd(), libc::SIOCGIFFLAGS, &raw mut request) };
        // SAFETY: the flags are an integer, for which any bytes are valid.
        let flags = unsafe { request.ifr_ifru.ifru_flags };
        asked == 0 && c_int::from(flags) & libc::IFF_UP != 0
    }

    /// The active offloads with which an interface joins packets before they are captured.
    pub(crate) fn joining(&self, name: &CStr) -> Vec<&'static str> {
        let is_set = |command, bits| self.setting(name, command).is_ok_and(|set| set & bits != 0);
        let offloads =
            [("GRO", is_set(ETHTOOL_GGRO, u32::MAX)), ("LRO", is_set(ETHTOOL_GFLAGS, FLAG_LRO))];
        offloads.into_iter().filter_map(|(name, is_on)| is_on.then_some(name)).collect()
    }

    /// Queries one number from the driver of an interface.
    fn setting(&self, name: &CStr, command: u32) -> io::Result<u32> {
        let mut value = EthtoolValue { command, data: 0 };
        let mut request = request_of(name);
        request.ifr_ifru.ifru_data = (&raw mut value).cast();
        // SAFETY: the request has the type that this call reads. It points to the two numbers of
        // the query; the call writes the second one.
        checked(unsafe { libc::ioctl(self.fd(), SIOCETHTOOL, &raw mut request) })?;
        Ok(value.data)
    }

    /// Number of packets dropped, and of times that the ring became full, since the last call.
    pub(crate) fn dropped(&self) -> io::Result<(u64, u64)> {
        // SAFETY: this structure of integers may be all zeros.
        let mut counts: libc::tpacket_stats_v3 = unsafe { zeroed() };
        self.get(libc::SOL_PACKET, libc::PACKET_STATISTICS, &mut counts)?;
        Ok((u64::from(counts.tp_drops), u64::from(counts.tp_freeze_q_cnt)))
    }

    /// Waits for a block of packets, at most for this time.
    pub(crate) fn wait(&self, most: Duration) -> io::Result<Event> {
        let mut wanted = libc::pollfd { fd: self.fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one structure is passed, which may be written during the call.
        let ready = unsafe { libc::poll(&raw mut wanted, 1, most.as_millis() as c_int) };
        match checked(ready) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(Event::None),
            Err(error) => return Err(error),
            Ok(_) if wanted.revents & libc::POLLERR == 0 => return Ok(Event::None),
            Ok(_) => {}
        }
        self.event()
    }

    /// The event of the interface since the last call.
    pub(crate) fn event(&self) -> io::Result<Event> {
        let mut error: c_int = 0;
        self.get(libc::SOL_SOCKET, libc::SO_ERROR, &mut error)?;
        match error {
            0 => Ok(Event::None),
            libc::ENETDOWN => Ok(Event::Down),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }

    /// Reads an option of the packet layer.
    pub(crate) fn option(&self, option: c_int) -> io::Result<c_int> {
        let mut value: c_int = 0;
        self.get(libc::SOL_PACKET, option, &mut value)?;
        Ok(value)
    }

    /// Reads an option. `T` must be the option's type in C, and consist of integers.
    fn get<T: Copy>(&self, level: c_int, option: c_int, value: &mut T) -> io::Result<()> {
        let mut length = size_of::<T>() as socklen_t;
        let value: *mut c_void = (&raw mut *value).cast();
        // SAFETY: the value may be written for its length during the call, and any bytes are valid.
        checked(unsafe { libc::getsockopt(self.fd(), level, option, value, &raw mut length) })?;
        Ok(())
    }

    pub(crate) fn fd(&self) -> c_int {
        self.0.as_raw_fd()
    }
}

/// The number of the interface `name`.
pub(crate) fn interface(name: &CStr) -> Option<c_int> {
    // SAFETY: the name ends with zero.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    c_int::try_from(index).ok().filter(|&index| index > 0)
}

/// The name of the interface of this number.
pub(crate) fn name(number: c_int) -> Option<CString> {
    let mut name = [0 as libc::c_char; libc::IF_NAMESIZE];
    // SAFETY: the name may be written, and has the length that this call needs.
    let there = unsafe { libc::if_indextoname(number.cast_unsigned(), name.as_mut_ptr()) };
    let bytes: Vec<u8> = name.iter().map(|c| c.cast_unsigned()).take_while(|c| *c != 0).collect();
    CString::new(bytes).ok().filter(|_| !there.is_null())
}

/// The names of all interfaces.
///
/// ```
/// let names = flowgauge_live::interfaces();
/// assert!(names.iter().all(|name| !name.is_empty() && name.len() < 16));
/// ```
pub fn interfaces() -> Vec<String> {
    let mut names = Vec::new();
    // SAFETY: no pointer is passed.
    let first = unsafe { libc::if_nameindex() };
    let mut entry = first;
    while !entry.is_null() {
        // SAFETY: the array ends with an entry without a name, which ends the loop.
        let libc::if_nameindex { if_index, if_name } = unsafe { *entry };
        if if_index == 0 || if_name.is_null() {
            break;
        }
        // SAFETY: the name ends with zero and lives as long as the array.
        names.push(unsafe { CStr::from_ptr(if_name) }.to_string_lossy().into_owned());
        // SAFETY: an entry that is not the last one is followed by another.
        entry = unsafe { entry.add(1) };
    }
    if !first.is_null() {
        // SAFETY: the array came from `if_nameindex`, and is no longer used.
        unsafe { libc::if_freenameindex(first) };
    }
    names
}
