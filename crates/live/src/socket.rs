//! The packet socket: what of the operating system's interface is needed, with its errors.

use std::ffi::{CStr, CString};
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use flowgauge_filter::Instruction;
use libc::{c_int, c_void, socklen_t};

/// A raw packet socket. It receives nothing before it is bound.
pub(crate) struct Socket(OwnedFd);

/// Questions to drivers (`linux/ethtool.h`), which libc lacks.
const SIOCETHTOOL: libc::Ioctl = 0x8946;
const ETHTOOL_GFLAGS: u32 = 0x25;
const ETHTOOL_GGRO: u32 = 0x2b;
const FLAG_LRO: u32 = 1 << 15;

#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
}

/// What came while waiting.
pub(crate) enum Event {
    /// Something may be there, or the time is over, or a signal came.
    None,
    /// The interface is down or gone.
    Down,
}

/// A question about the interface of this name.
fn request_of(name: &CStr) -> libc::ifreq {
    // SAFETY: all zeros are a value of this structure of integers.
    let mut request: libc::ifreq = unsafe { zeroed() };
    let bytes = name.to_bytes().iter().take(request.ifr_name.len() - 1);
    for (to, byte) in request.ifr_name.iter_mut().zip(bytes) {
        *to = byte.cast_signed();
    }
    request
}

/// A result of a call by the C convention.
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
        // SAFETY: the descriptor is new, and nobody else's.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Receives from the interface all that has `protocol`; with 0 what it received before, which is
    /// nothing at first.
    pub(crate) fn bind(&self, interface: c_int, protocol: c_int) -> io::Result<()> {
        // SAFETY: all zeros are a value of this structure of integers.
        let mut address: libc::sockaddr_ll = unsafe { zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (protocol as u16).to_be();
        address.sll_ifindex = interface;
        let length = size_of::<libc::sockaddr_ll>() as socklen_t;
        // SAFETY: the address is valid for its length during the call.
        checked(unsafe { libc::bind(self.fd(), (&raw const address).cast(), length) })?;
        Ok(())
    }

    /// The interface that it is bound to: its number, negative if it is gone, and its hardware type
    /// (`ARPHRD_…`).
    pub(crate) fn bound(&self) -> io::Result<(c_int, u16)> {
        // SAFETY: all zeros are a value of this structure of integers.
        let mut address: libc::sockaddr_ll = unsafe { zeroed() };
        let mut length = size_of::<libc::sockaddr_ll>() as socklen_t;
        // SAFETY: the address may be written for its length during the call.
        checked(unsafe {
            libc::getsockname(self.fd(), (&raw mut address).cast(), &raw mut length)
        })?;
        Ok((address.sll_ifindex, address.sll_hatype))
    }

    /// Asks for packets to other hosts too, for as long as the socket is there.
    pub(crate) fn ask_for_all(&self, interface: c_int) -> io::Result<()> {
        let request = libc::packet_mreq {
            mr_ifindex: interface,
            mr_type: libc::PACKET_MR_PROMISC as u16,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        self.set(libc::PACKET_ADD_MEMBERSHIP, &request)
    }

    /// Receives from now on only what a program of classic BPF accepts.
    pub(crate) fn attach(&self, program: &[Instruction]) -> io::Result<()> {
        let instruction =
            |&Instruction { code, jt, jf, k }: &Instruction| libc::sock_filter { code, jt, jf, k };
        let mut program: Vec<_> = program.iter().map(instruction).collect();
        let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
        self.set_of(libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
    }

    /// Receives everything from now on.
    pub(crate) fn detach(&self) -> io::Result<()> {
        let none: c_int = 0;
        self.set_of(libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &none)
    }

    /// Sets an option of the packet layer, whose value is of the type `T` in C.
    pub(crate) fn set<T>(&self, option: c_int, value: &T) -> io::Result<()> {
        self.set_of(libc::SOL_PACKET, option, value)
    }

    /// Sets an option of a layer, likewise.
    fn set_of<T>(&self, layer: c_int, option: c_int, value: &T) -> io::Result<()> {
        let length = size_of::<T>() as socklen_t;
        let value: *const c_void = (&raw const *value).cast();
        // SAFETY: the value is valid for its length during the call, which only reads it; so is what
        // a program's pointer names.
        checked(unsafe { libc::setsockopt(self.fd(), layer, option, value, length) })?;
        Ok(())
    }

    /// Whether the interface of this number is up.
    pub(crate) fn is_up(&self, number: c_int) -> bool {
        let Some(name) = name(number) else { return false };
        let mut request = request_of(&name);
        // SAFETY: the request is of the type that this call reads and writes.
        let asked = unsafe { libc::ioctl(self.fd(), libc::SIOCGIFFLAGS, &raw mut request) };
        // SAFETY: the call wrote the flags where it succeeded, and any bytes are a value of an integer.
        let flags = unsafe { request.ifr_ifru.ifru_flags };
        asked == 0 && c_int::from(flags) & libc::IFF_UP != 0
    }

    /// The offloads by which the interface of this name joins packets before they are captured.
    pub(crate) fn joining(&self, name: &CStr) -> Vec<&'static str> {
        let is_set = |command, bits| self.setting(name, command).is_ok_and(|set| set & bits != 0);
        let offloads =
            [("GRO", is_set(ETHTOOL_GGRO, u32::MAX)), ("LRO", is_set(ETHTOOL_GFLAGS, FLAG_LRO))];
        offloads.into_iter().filter_map(|(name, is_on)| is_on.then_some(name)).collect()
    }

    /// What the driver of an interface answers to a question for one number.
    fn setting(&self, name: &CStr, command: u32) -> io::Result<u32> {
        let mut value = EthtoolValue { command, data: 0 };
        let mut request = request_of(name);
        request.ifr_ifru.ifru_data = (&raw mut value).cast();
        // SAFETY: the request is of the type that this call reads, and points at the two numbers of such a
        // question, of which the call writes the second.
        checked(unsafe { libc::ioctl(self.fd(), SIOCETHTOOL, &raw mut request) })?;
        Ok(value.data)
    }

    /// Packets dropped, and times that the ring became full, since this was asked last.
    pub(crate) fn dropped(&self) -> io::Result<(u64, u64)> {
        // SAFETY: all zeros are a value of this structure of integers.
        let mut counts: libc::tpacket_stats_v3 = unsafe { zeroed() };
        self.get(libc::SOL_PACKET, libc::PACKET_STATISTICS, &mut counts)?;
        Ok((u64::from(counts.tp_drops), u64::from(counts.tp_freeze_q_cnt)))
    }

    /// Waits for a block of packets, at most so long.
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

    /// What befell the interface since this was asked last.
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

    /// Reads an option whose value is of the type `T` in C, made of integers.
    fn get<T: Copy>(&self, level: c_int, option: c_int, value: &mut T) -> io::Result<()> {
        let mut length = size_of::<T>() as socklen_t;
        let value: *mut c_void = (&raw mut *value).cast();
        // SAFETY: the value may be written for its length during the call, and any bytes are one.
        checked(unsafe { libc::getsockopt(self.fd(), level, option, value, &raw mut length) })?;
        Ok(())
    }

    pub(crate) fn fd(&self) -> c_int {
        self.0.as_raw_fd()
    }
}

/// The number of the interface `name`.
pub(crate) fn interface(name: &CStr) -> Option<c_int> {
    // SAFETY: the name is a string that C understands.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    c_int::try_from(index).ok().filter(|&index| index > 0)
}

/// The name of the interface of this number.
pub(crate) fn name(number: c_int) -> Option<CString> {
    let mut name = [0 as libc::c_char; libc::IF_NAMESIZE];
    // SAFETY: the name may be written for its length, which is what this call needs.
    let there = unsafe { libc::if_indextoname(number.cast_unsigned(), name.as_mut_ptr()) };
    let bytes: Vec<u8> = name.iter().map(|c| c.cast_unsigned()).take_while(|c| *c != 0).collect();
    CString::new(bytes).ok().filter(|_| !there.is_null())
}

/// The names of all interfaces.
pub fn interfaces() -> Vec<String> {
    let mut names = Vec::new();
    // SAFETY: no pointer is passed.
    let first = unsafe { libc::if_nameindex() };
    let mut entry = first;
    while !entry.is_null() {
        // SAFETY: the array goes on up to an entry without a name, which ends the loop.
        let libc::if_nameindex { if_index, if_name } = unsafe { *entry };
        if if_index == 0 || if_name.is_null() {
            break;
        }
        // SAFETY: the name is a string of C that lives as long as the array.
        names.push(unsafe { CStr::from_ptr(if_name) }.to_string_lossy().into_owned());
        // SAFETY: behind an entry that is not the last stands another.
        entry = unsafe { entry.add(1) };
    }
    if !first.is_null() {
        // SAFETY: the array came from `if_nameindex`, and is not used any more.
        unsafe { libc::if_freenameindex(first) };
    }
    names
}
