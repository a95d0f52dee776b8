//! The source: a collector behind a UDP socket.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, IoSliceMut};
use std::mem;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use flowgauge_engine::source::{Burst, Counter, Source, SourceError};
use nix::cmsg_space;
use nix::sys::socket::sockopt::RxqOvfl;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt};
use rustix::net::{RecvFlags, recv, sockopt};

use crate::account::Account;
use crate::collector::Collector;

/// Maximum time between looks at the clock and the stop flag.
const PAUSE: Duration = Duration::from_millis(10);

/// Interval between updates of [`Accounts`].
const SHOW: Duration = Duration::from_secs(1);

/// Requested size of the socket's buffer, which the kernel may limit.
const BUFFER: usize = 8 << 20;

/// Maximum length of a datagram.
const DATAGRAM: usize = 1 << 16;

/// The accounts of exporters, at most a second old, for other threads to read.
///
/// ```
/// use flowgauge_records::{KeptPorts, Records};
///
/// let (at, stop, ports) = ("127.0.0.1:0".parse()?, Default::default(), KeptPorts::default());
/// let records = Records::bind(at, None, |_| {}, &stop, &ports)?;
/// assert!(records.accounts().get().is_empty(), "no exporter has sent a datagram");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Accounts(Arc<Mutex<BTreeMap<IpAddr, Account>>>);

impl Accounts {
    /// Each exporter's account, by address.
    pub fn get(&self) -> BTreeMap<IpAddr, Account> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn show(&self, collector: &Collector) {
        let accounts = collector.accounts().map(|(address, account)| (address, account.clone()));
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = accounts.collect();
    }
}

/// The error of an address where no records can be received.
#[derive(Debug, thiserror::Error)]
#[error("cannot receive flow records at {at}: {error}")]
pub struct BindError {
    at: SocketAddr,
    error: io::Error,
}

/// Time to count what has arrived before the end.
const ENDING: Duration = Duration::from_secs(1);

/// Ports that one run leaves to the next: their sockets, and what is known of their exporters, which
/// do not send templates and sampling rates again for a while.
#[derive(Clone, Default)]
pub struct KeptPorts(Arc<Mutex<BTreeMap<SocketAddr, Port>>>);

impl KeptPorts {
    /// Closes all ports but those at these addresses.
    pub fn keep(&self, addresses: &[SocketAddr]) {
        self.lock().retain(|at, _| addresses.contains(at));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<SocketAddr, Port>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A socket, and the state of those that send to it.
struct Port {
    socket: Arc<UdpSocket>,
    /// Datagrams that the kernel dropped since the socket was created, modulo 2³².
    dropped: u32,
    collector: Collector,
}

/// Flow records from a UDP port, as packets. Each packet has the arrival time of its record.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::AtomicBool;
///
/// use flowgauge_engine::source::{Burst, Columns, Source};
/// use flowgauge_records::{KeptPorts, Records};
///
/// let stop = Arc::new(AtomicBool::new(true));
/// let say = |line: &str| eprintln!("{line}");
/// let ports = KeptPorts::default();
/// let mut records = Records::bind("127.0.0.1:0".parse()?, None, say, &stop, &ports)?;
/// assert_eq!(records.inputs(), ["udp://127.0.0.1:0"]);
/// // The stop flag is set already, and nothing has arrived, so the source ends at once.
/// assert!(!records.poll(&mut Burst::new(&mut Columns::default()))?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Records {
    at: SocketAddr,
    socket: Arc<UdpSocket>,
    dropped: u32,
    names: [String; 1],
    collector: Collector,
    datagram: Box<[u8]>,
    /// Room for the kernel's count of dropped datagrams beside a datagram.
    control: Vec<u8>,
    /// Arrival time of the datagram whose packets are lent out.
    time_ns: i64,
    /// No more packets will have an earlier time.
    settled_ns: Option<i64>,
    failed: bool,
    accounts: Accounts,
    shown: Instant,
    say: fn(&str),
    stop: Arc<AtomicBool>,
    /// When it ends at the latest, once `stop` is set.
    ends: Option<Instant>,
    ports: KeptPorts,
}

impl Records {
    /// Receives records at an address until `stop` is set; those that have come before count for a
    /// second more. They were sampled one in `sampling`; with `None`, as exporters report. Calls
    /// `say` with a line for each exporter that is new or cannot be read. Takes its port from
    /// `ports`, if an earlier source left one there, and leaves it there when it is dropped.
    ///
    /// # Errors
    /// When the address cannot be bound.
    pub fn bind(
        at: SocketAddr,
        sampling: Option<u64>,
        say: fn(&str),
        stop: &Arc<AtomicBool>,
        ports: &KeptPorts,
    ) -> Result<Self, BindError> {
        let bind = || -> io::Result<Port> {
            let socket = UdpSocket::bind(at)?;
            socket.set_read_timeout(Some(PAUSE))?;
            // Exceeds the limit of ordinary users if permitted. The default size works, too.
            let _ = sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER)
                .or_else(|_| sockopt::set_socket_recv_buffer_size(&socket, BUFFER));
            setsockopt(&socket, RxqOvfl, &1)?;
            let collector = Collector::default();
            Ok(Port { socket: Arc::new(socket), dropped: 0, collector })
        };
        let kept = ports.lock().remove(&at);
        let port = kept.map_or_else(bind, Ok).map_err(|error| BindError { at, error })?;
        let Port { socket, dropped, mut collector } = port;
        collector.begin(sampling);
        Ok(Self {
            at,
            socket,
            dropped,
            names: [format!("udp://{at}")],
            collector,
            datagram: vec![0; DATAGRAM].into(),
            control: cmsg_space!(u32),
            time_ns: 0,
            settled_ns: None,
            failed: false,
            accounts: Accounts::default(),
            shown: Instant::now(),
            say,
            stop: Arc::clone(stop),
            ends: None,
            ports: ports.clone(),
        })
    }

    /// The accounts of the exporters.
    pub fn accounts(&self) -> Accounts {
        self.accounts.clone()
    }

    /// Whether the stop flag is set, and all that had come before was counted, as far as there was
    /// time.
    fn is_over(&mut self) -> bool {
        if !self.stop.load(Ordering::Relaxed) {
            return false;
        }
        let ends = *self.ends.get_or_insert_with(|| Instant::now() + ENDING);
        let look = RecvFlags::DONTWAIT | RecvFlags::PEEK;
        let has_more = || recv(&self.socket, &mut [0_u8; 1][..], look).is_ok();
        Instant::now() >= ends || (self.collector.is_done() && !has_more())
    }

    /// The length and the sender of the next datagram. Counts those that the kernel dropped before.
    fn datagram(&mut self) -> io::Result<(usize, SocketAddr)> {
        let (socket, mut room) = (self.socket.as_raw_fd(), [IoSliceMut::new(&mut self.datagram)]);
        let control = Some(&mut self.control[..]);
        let message = recvmsg::<SockaddrStorage>(socket, &mut room, control, MsgFlags::empty())?;
        for beside in message.cmsgs()? {
            if let ControlMessageOwned::RxqOvfl(dropped) = beside {
                self.collector.dropped(dropped.wrapping_sub(self.dropped));
                self.dropped = dropped;
            }
        }
        let sender = message.address.and_then(|address| {
            let v4 = address.as_sockaddr_in().map(|address| SocketAddr::from(*address));
            v4.or_else(|| address.as_sockaddr_in6().map(|address| SocketAddr::from(*address)))
        });
        Ok((message.bytes, sender.ok_or(ErrorKind::AddrNotAvailable)?))
    }

    /// Waits up to [`PAUSE`] for a datagram.
    fn receive(&mut self) -> Result<(), SourceError> {
        match self.datagram() {
            Ok((len, from)) => {
                self.time_ns = now_ns();
                self.collector.take(from, &self.datagram[..len]);
                self.collector.news().iter().for_each(|line| (self.say)(line));
            }
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                ) => {}
            Err(error) => {
                self.failed = true;
                let [name] = &self.names;
                return Err(SourceError::Failed(format!("{name}: {error}").into()));
            }
        }
        if self.shown.elapsed() >= SHOW {
            self.shown = Instant::now();
            self.accounts.show(&self.collector);
        }
        Ok(())
    }
}

impl Drop for Records {
    fn drop(&mut self) {
        if !self.failed {
            let (socket, dropped) = (Arc::clone(&self.socket), self.dropped);
            let port = Port { socket, dropped, collector: mem::take(&mut self.collector) };
            self.ports.lock().insert(self.at, port);
        }
    }
}

impl Source for Records {
    fn poll<'a>(&'a mut self, burst: &mut Burst<'a>) -> Result<bool, SourceError> {
        if self.failed || self.is_over() {
            self.collector.abandon();
            self.accounts.show(&self.collector);
            return Ok(false);
        }
        if self.collector.is_done() {
            self.receive()?;
        }
        let is_idle = self.collector.is_done();
        self.settled_ns = Some(if is_idle { now_ns() } else { self.time_ns });
        self.collector.lend(burst, self.time_ns);
        Ok(true)
    }

    fn inputs(&self) -> &[String] {
        &self.names
    }

    fn counters(&self) -> &[Counter] {
        self.collector.total().counters()
    }

    fn clock_ns(&self) -> Option<i64> {
        self.settled_ns
    }
}

/// Nanoseconds since the UNIX epoch.
fn now_ns() -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.ok().and_then(|now| i64::try_from(now.as_nanos()).ok()).unwrap_or_default()
}
