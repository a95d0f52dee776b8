//! An open interface: its options, fanout group, socket, ring and link type.

use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::{fmt, io};

use flowgauge_core::packet::LinkType;
use flowgauge_engine::sink::visible;
use flowgauge_filter::Filter;
use libc::{c_int, c_uint};

use crate::fault::InterfaceFault;
use crate::program;
use crate::ring::Ring;
use crate::socket::{self, Event, Socket};

/// The name that means all interfaces.
const ANY: &str = "any";

/// Opens packet sockets, in this process or in a privileged one.
#[derive(Clone, Default)]
pub struct Sockets(Option<Arc<Opener>>);

type Opener = dyn Fn() -> io::Result<OwnedFd> + Send + Sync;

impl Sockets {
    /// Gets sockets from another process.
    pub fn from_other(open: impl Fn() -> io::Result<OwnedFd> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(open)))
    }

    fn open(&self) -> io::Result<Socket> {
        self.0.as_ref().map_or_else(Socket::new, |open| open().map(Socket::from))
    }
}

impl fmt::Debug for Sockets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "of another process" } else { "own" })
    }
}

/// The options of [`open`](crate::open).
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of queues per interface, each with its own ring.
    pub queues: usize,
    /// How packets are divided among the queues.
    pub fanout: Fanout,
    /// Bytes of the ring of each queue, rounded down to blocks of 256 KiB; at least two blocks.
    pub ring_bytes: usize,
    /// Whether to receive packets for other hosts, too.
    pub promiscuous: bool,
    /// A filter that the kernel applies early, if it can. The caller must still apply it.
    pub filter: Option<Filter>,
    /// The opener of packet sockets.
    pub sockets: Sockets,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            queues: 1,
            fanout: Fanout::Hash,
            ring_bytes: 32 << 20,
            promiscuous: true,
            filter: None,
            sockets: Sockets::default(),
        }
    }
}

/// The state that the queues of an interface share.
#[derive(Debug)]
pub(crate) struct Interface {
    pub(crate) name: String,
    pub(crate) options: Options,
    pub(crate) group: Group,
}

impl Interface {
    pub(crate) fn new(name: &str, options: &Options) -> Arc<Self> {
        let group = Group::new(options.fanout, options.queues);
        Arc::new(Self { name: name.to_owned(), options: options.clone(), group })
    }

    /// The number of the interface; 0 for all interfaces.
    pub(crate) fn number(&self) -> Option<c_int> {
        match &*self.name {
            ANY => Some(0),
            name => socket::interface(&CString::new(name).ok()?),
        }
    }

    /// The note on offloads that join packets, if any are on. Any socket can query them.
    pub(crate) fn joining(&self, socket: &Socket) -> Option<String> {
        let name = CString::new(&*self.name).ok()?;
        let offloads = socket.joining(&name);
        let switches = offloads.iter().map(|offload| format!(" {} off", offload.to_lowercase()));
        let switches: String = switches.collect();
        let name = visible(&self.name);
        (!offloads.is_empty()).then(|| {
            format!(
                "interface {name} joins packets into frames of up to 64 KiB before they are captured ({}): \
                 'ethtool -K {name}{switches}' makes them count as on the wire",
                offloads.join(", ")
            )
        })
    }

    /// The number after an outage: the number of its name, or the old number if it was renamed.
    pub(crate) fn number_after(&self, outage_of: c_int) -> Option<c_int> {
        self.number().or_else(|| socket::name(outage_of).map(|_| outage_of))
    }
}

/// The operating system's part of a queue.
pub(crate) struct Port {
    pub(crate) socket: Socket,
    pub(crate) ring: Ring,
    /// The link type; `None` if each packet gives its own.
    pub(crate) link: Option<LinkType>,
    /// Whether the kernel applies the filter.
    pub(crate) rejects: bool,
}

impl Port {
    pub(crate) fn open(interface: &Interface) -> Result<Self, InterfaceFault> {
        let Interface { options, group, .. } = interface;
        let missing = || InterfaceFault::Missing(socket::interfaces());
        let number = interface.number().ok_or_else(missing)?;
        let socket = options.sockets.open()?;
        let ring = Ring::new(&socket, options.ring_bytes)?;
        // Before it joins the group, it would receive the packets of all queues.
        socket.attach(program::NOTHING)?;
        // Bound to no protocol, the socket knows its interface, but receives nothing.
        socket.bind(number, 0)?;
        let (_, hardware) = socket.bound()?;
        let link = match number {
            0 => None,
            _ => Some(link(hardware).ok_or(InterfaceFault::Hardware(hardware))?),
        };
        if options.promiscuous && number != 0 {
            socket.ask_for_all(number)?;
        }
        socket.bind(number, libc::ETH_P_ALL)?;
        if matches!(socket.event()?, Event::Down) {
            return Err(InterfaceFault::Down);
        }
        group.join(&socket, number)?;
        let filter = options.filter.as_ref().zip(link);
        let rejecting = filter.and_then(|(filter, link)| program::rejecting(filter, link));
        let once = number == 0 || hardware == libc::ARPHRD_LOOPBACK;
        let attach = |rejecting| match program::of(once, rejecting) {
            Some(program) => socket.attach(&program),
            None => socket.detach(),
        };
        // The kernel has little memory for programs (`net.core.optmem_max`), and refuses long ones.
        let rejecting = rejecting.as_deref();
        let rejects = rejecting.is_some() && attach(rejecting).is_ok();
        if !rejects {
            attach(None)?;
        }
        Ok(Self { socket, ring, link, rejects })
    }
}

/// How packets are divided among the queues of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fanout {
    /// By the hash of the flow, which is equal in both directions.
    Hash,
    /// By the CPU on which the packet arrived, that is, by the interface's own queues.
    Cpu,
}

impl Fanout {
    /// All values, with their names.
    pub const ALL: [(&'static str, Self); 2] = [("hash", Self::Hash), ("cpu", Self::Cpu)];
}

/// A fanout group: the sockets of an interface's queues. The kernel gives each packet to one of
/// them.
#[derive(Debug)]
pub(crate) struct Group {
    fanout: Fanout,
    queues: usize,
    /// The number of the interface, and the group of its sockets. An interface that is created
    /// again has a new number, and its sockets a new group.
    joined: Mutex<Option<(c_int, c_uint)>>,
}

impl Group {
    pub(crate) fn new(fanout: Fanout, queues: usize) -> Self {
        Self { fanout, queues, joined: Mutex::new(None) }
    }

    /// Adds a bound socket to the group.
    pub(crate) fn join(&self, socket: &Socket, interface: c_int) -> Result<(), InterfaceFault> {
        if self.queues == 1 {
            return Ok(());
        }
        let way = match self.fanout {
            Fanout::Hash => libc::PACKET_FANOUT_HASH,
            Fanout::Cpu => libc::PACKET_FANOUT_CPU,
        };
        let mut joined = self.joined.lock().unwrap_or_else(PoisonError::into_inner);
        let group = match *joined {
            Some((there, group)) if there == interface => group,
            _ => (way | libc::PACKET_FANOUT_FLAG_UNIQUEID) << 16,
        };
        socket.set(libc::PACKET_FANOUT, &group)?;
        if joined.is_none_or(|(there, _)| there != interface) {
            let number = socket.option(libc::PACKET_FANOUT)? as c_uint & 0xffff;
            *joined = Some((interface, way << 16 | number));
        }
        Ok(())
    }
}

/// Raw IP of mobile networks; the constant is missing in libc.
const ARPHRD_RAWIP: u16 = 519;

/// The link type of a hardware type (`ARPHRD_…`), if it is supported.
#[inline]
pub(crate) fn link(hardware: u16) -> Option<LinkType> {
    match hardware {
        libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK => Some(LinkType::ETHERNET),
        libc::ARPHRD_NONE
        | libc::ARPHRD_TUNNEL
        | libc::ARPHRD_TUNNEL6
        | libc::ARPHRD_SIT
        | ARPHRD_RAWIP => Some(LinkType::RAW),
        libc::ARPHRD_CISCO => Some(LinkType::C_HDLC),
        libc::ARPHRD_IEEE80211 => Some(LinkType::IEEE802_11),
        libc::ARPHRD_IEEE80211_RADIOTAP => Some(LinkType::IEEE802_11_RADIOTAP),
        _ => None,
    }
}
