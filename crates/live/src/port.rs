//! An open interface: a socket, its ring, and what the first bytes of its frames are.

use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::{fmt, io};

use flowgauge_core::packet::LinkType;
use flowgauge_engine::sink::visible;
use flowgauge_filter::Filter;
use libc::c_int;

use crate::fault::InterfaceFault;
use crate::group::{Fanout, Group};
use crate::link::link;
use crate::program;
use crate::ring::Ring;
use crate::socket::{self, Event, Socket};

/// The name that stands for all interfaces.
const ANY: &str = "any";

/// Opens packet sockets, in this process or through a privileged one.
#[derive(Clone, Default)]
pub struct Sockets(Option<Arc<Opener>>);

type Opener = dyn Fn() -> io::Result<OwnedFd> + Send + Sync;

impl Sockets {
    /// Gets them from another process.
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

/// How interfaces are captured.
#[derive(Clone, Debug)]
pub struct Options {
    /// Queues of each interface, each with a ring of its own.
    pub queues: usize,
    /// Which of them gets a packet.
    pub fanout: Fanout,
    /// Bytes of the ring of each queue, in blocks of 256 KiB: at least two.
    pub ring_bytes: usize,
    /// Whether to ask for packets to other hosts, too.
    pub promiscuous: bool,
    /// Packets that it rejects need not be handed over: the kernel rejects what it can judge.
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

/// What the queues of an interface have in common.
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

    /// Its number: 0 for all interfaces.
    pub(crate) fn number(&self) -> Option<c_int> {
        match &*self.name {
            ANY => Some(0),
            name => socket::interface(&CString::new(name).ok()?),
        }
    }

    /// What to say of offloads by which it joins packets, asked through any socket.
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

    /// Its number after an outage: that of its name, or the one that it had, where it has another name now.
    pub(crate) fn number_after(&self, outage_of: c_int) -> Option<c_int> {
        self.number().or_else(|| socket::name(outage_of).map(|_| outage_of))
    }
}

/// A queue of an interface as the operating system has it.
pub(crate) struct Port {
    pub(crate) socket: Socket,
    pub(crate) ring: Ring,
    /// What the first bytes of frames are; `None` where each packet tells.
    pub(crate) link: Option<LinkType>,
    /// Whether the kernel rejects what the filter rejects.
    pub(crate) rejects: bool,
}

impl Port {
    pub(crate) fn open(interface: &Interface) -> Result<Self, InterfaceFault> {
        let Interface { options, group, .. } = interface;
        let missing = || InterfaceFault::Missing(socket::interfaces());
        let number = interface.number().ok_or_else(missing)?;
        let socket = options.sockets.open()?;
        let ring = Ring::new(&socket, options.ring_bytes)?;
        // Until it has joined the others, it would get the packets of all queues.
        socket.attach(program::NOTHING)?;
        // Bound to no protocol it knows its interface, and receives nothing.
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
        match program::of(once, rejecting.as_deref()) {
            Some(program) => socket.attach(&program)?,
            None => socket.detach()?,
        }
        Ok(Self { socket, ring, link, rejects: rejecting.is_some() })
    }
}
