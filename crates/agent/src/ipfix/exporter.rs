//! Sends the records of each epoch to a collector.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use flowgauge_engine::report::EpochReport;
use flowgauge_engine::sink::{Item, Sink, SinkError, Takes};

use super::collector::{Collector, Transport};
use super::messages::{Head, Templates, messages};
use super::records;
use crate::config::IpfixOptions;
use crate::log::{say, warn};
use crate::replay::now_ns;

/// How long a collector may take to accept a connection, or an epoch.
const LIMIT: Duration = Duration::from_secs(5);

/// How often templates are sent again over UDP, where a collector may have missed them.
const RESEND: Duration = Duration::from_secs(60);

/// Datagrams that are sent at once, with a pause behind them. Together, they fit the buffer that a
/// socket has by default.
const BURST: usize = 64;
const PAUSE: Duration = Duration::from_millis(2);

/// Sends the records of each epoch to a collector: all of them, or after an error all of them again.
pub(crate) struct Exporter {
    options: IpfixOptions,
    /// Names of the measurements; the number of the first is 1.
    measurements: Vec<String>,
    session: Option<Session>,
    templates: Templates,
    /// When all templates were sent last.
    announced: Option<Instant>,
    /// Data records sent in the session.
    sequence: u32,
    /// Whether the last delivery failed.
    is_failing: bool,
}

/// What messages are sent through.
enum Session {
    Udp(UdpSocket),
    Tcp(TcpStream),
}

impl Exporter {
    /// Connects when there is something to send, so that an agent starts before its collector.
    pub(crate) fn new(options: &IpfixOptions, measurements: Vec<String>) -> Self {
        Self {
            options: options.clone(),
            measurements,
            session: None,
            templates: Templates::default(),
            announced: None,
            sequence: 0,
            is_failing: false,
        }
    }

    /// Sends the records of a report at this time.
    pub(super) fn export(&mut self, report: &EpochReport, now: Instant) -> io::Result<()> {
        let is_of = |name: &String| **name == *report.measurement;
        let process = self.measurements.iter().position(is_of).map_or(0, |place| place as u32 + 1);
        let records = records::of(report, process, self.options.enterprise.map(Into::into));
        if records.is_empty() {
            return Ok(());
        }
        self.connect()?;
        let is_due = self.announced.is_none_or(|at| now.duration_since(at) >= RESEND);
        if let Some(Session::Udp(socket)) = &self.session {
            // Who refused a datagram before knows none of the templates.
            if is_due || socket.take_error()?.is_some() {
                self.templates.announced = 0;
            }
        }
        let is_all = self.templates.announced == 0;
        let head = Head {
            domain: self.options.domain,
            time: u32::try_from(now_ns() / 1_000_000_000).unwrap_or(0),
            sequence: self.sequence,
        };
        let messages = messages(&mut self.templates, head, &records);
        let sent = match &mut self.session {
            Some(Session::Udp(socket)) => send(socket, &messages),
            Some(Session::Tcp(stream)) => write(stream, &messages.concat()),
            None => Err(ErrorKind::NotConnected.into()),
        };
        if let Err(error) = sent {
            self.templates.announced = 0;
            // A datagram may be refused, and the next one not; a stream that broke off within a message
            // is of no more use.
            let stays = matches!(self.session, Some(Session::Udp(_)))
                && error.kind() == ErrorKind::ConnectionRefused;
            if !stays {
                self.session = None;
            }
            return Err(error);
        }
        self.sequence = self.sequence.wrapping_add(records.len() as u32);
        self.templates.announced = self.templates.len();
        if is_all {
            self.announced = Some(now);
        }
        Ok(())
    }

    /// Begins a session where there is none, or where the collector closed it.
    fn connect(&mut self) -> io::Result<()> {
        if self.session.as_ref().is_some_and(Session::is_open) {
            return Ok(());
        }
        self.session = None;
        self.session = Some(Session::open(&self.options.to)?);
        self.templates.announced = 0;
        self.sequence = 0;
        Ok(())
    }
}

impl Sink for Exporter {
    fn takes(&self) -> Takes {
        Takes::Reports
    }

    fn deliver(&mut self, item: &Item) -> Result<(), SinkError> {
        // The epoch's last report repeats an update.
        let report = match item {
            Item::Epoch(report) if !report.update => report,
            _ => return Ok(()),
        };
        let output = format!("the IPFIX collector {}", self.options.to);
        let exported = self.export(report, Instant::now());
        let was_failing = std::mem::replace(&mut self.is_failing, exported.is_err());
        // Never `Closed`: a collector that went away may come back.
        let exported = exported.map_err(|error| SinkError::Write { output: output.clone(), error });
        match &exported {
            Err(error) if !was_failing => warn(&format!("{error}; trying again")),
            Ok(()) if was_failing => say(&format!("{output} accepts reports again")),
            _ => {}
        }
        exported
    }
}

impl Session {
    /// Connects to the first address of the collector's name that answers.
    fn open(collector: &Collector) -> io::Result<Self> {
        let deadline = Instant::now() + LIMIT;
        let mut last = io::Error::new(ErrorKind::NotFound, "the name has no address");
        for address in collector.host.to_socket_addrs()? {
            let opened = match collector.transport {
                Transport::Udp => datagrams(address).map(Self::Udp),
                Transport::Tcp => stream(address, deadline).map(Self::Tcp),
            };
            match opened {
                Ok(session) => return Ok(session),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Whether the other end has not closed it, as far as is known.
    fn is_open(&self) -> bool {
        match self {
            Self::Udp(_) => true,
            Self::Tcp(stream) => {
                stream.set_nonblocking(true).is_ok()
                    && !is_at_end(stream)
                    && stream.set_nonblocking(false).is_ok()
            }
        }
    }
}

/// Whether a stream that does not block was closed. A collector has nothing to say: what it sends is read
/// and forgotten, but not without end.
fn is_at_end(mut stream: &TcpStream) -> bool {
    let mut nonsense = [0; 4096];
    for _ in 0..16 {
        match stream.read(&mut nonsense) {
            Ok(1..) => {}
            Ok(0) => return true,
            Err(error) => return error.kind() != ErrorKind::WouldBlock,
        }
    }
    true
}

fn datagrams(address: SocketAddr) -> io::Result<UdpSocket> {
    let any: SocketAddr = match address {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect(address)?;
    socket.set_write_timeout(Some(LIMIT))?;
    Ok(socket)
}

fn stream(address: SocketAddr, deadline: Instant) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, left(deadline)?)?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Sends each message as a datagram.
fn send(socket: &UdpSocket, messages: &[Vec<u8>]) -> io::Result<()> {
    for burst in messages.chunks(BURST) {
        for message in burst {
            socket.send(message)?;
        }
        thread::sleep(PAUSE);
    }
    // A refusal from the same network is known by now.
    socket.take_error()?.map_or(Ok(()), Err)
}

/// Writes all bytes within the limit, also to a collector that takes a few at a time.
fn write(stream: &mut TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    let deadline = Instant::now() + LIMIT;
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(left(deadline)?))?;
        match stream.write(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Err(late()),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The time until the deadline.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(late()) } else { Ok(left) }
}

fn late() -> io::Error {
    io::Error::new(ErrorKind::TimedOut, "it takes too long")
}
