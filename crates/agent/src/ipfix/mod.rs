//! IPFIX export of reports (RFC 7011) over UDP or TCP.
//!
//! The encoder is our own: a message is only a header and sets. Existing crates bring the whole
//! registry, in a build that may load it from a network, and we need thirty elements.

mod messages;
mod records;
#[cfg(test)]
mod tests;

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::str::FromStr;
use std::time::{Duration, Instant};
use std::{fmt, thread};

use flowgauge_engine::report::EpochReport;
use flowgauge_engine::sink::{Item, Sink, SinkError, Takes};
use messages::{Head, Templates, messages};
use rustix::net::sockopt;
use serde::{Deserialize, Deserializer};

use crate::config::IpfixOptions;
use crate::has_port;
use crate::replay::now_ns;
use crate::resolve::resolve;

/// Time limit for a collector to accept a connection or an epoch.
const LIMIT: Duration = Duration::from_secs(5);

/// Longest time for which a TCP connection waits for an acknowledgement. Reports sent in that time are
/// lost if the collector is dead, so it is short; a collector that pauses for less loses nothing.
const SILENT: Duration = Duration::from_secs(30);

/// Interval at which templates are resent over UDP, in case the collector missed them.
const RESEND: Duration = Duration::from_secs(60);

/// Datagrams sent before a pause. Together they fit a socket buffer of default size.
const BURST: usize = 64;
const PAUSE: Duration = Duration::from_millis(2);

/// Sends the records of each epoch to a collector. After an error, resends all records of the
/// epoch.
pub(crate) struct Exporter {
    options: IpfixOptions,
    /// Names of the measurements, numbered from 1.
    measurements: Vec<String>,
    session: Option<Session>,
    templates: Templates,
    /// Time of the last transmission of all templates.
    announced: Option<Instant>,
    /// Data records sent in the session.
    sequence: u32,
}

/// The connection to a collector.
enum Session {
    Udp(UdpSocket),
    Tcp(TcpStream),
}

impl Exporter {
    /// Connects when there is something to send, so that the agent may start before its collector.
    pub(crate) fn new(options: &IpfixOptions, measurements: Vec<String>) -> Self {
        Self {
            options: options.clone(),
            measurements,
            session: None,
            templates: Templates::default(),
            announced: None,
            sequence: 0,
        }
    }

    /// Sends the records of a report. `now` decides whether templates are due.
    fn export(&mut self, report: &EpochReport, now: Instant) -> io::Result<()> {
        let is_of = |name: &String| **name == *report.measurement;
        let process = self.measurements.iter().position(is_of).map_or(0, |place| place as u32 + 1);
        let records = records::of(report, process, self.options.enterprise.map(Into::into));
        if records.is_empty() {
            return Ok(());
        }
        self.connect()?;
        let is_due = self.announced.is_none_or(|at| now.duration_since(at) >= RESEND);
        if let Some(Session::Udp(socket)) = &self.session {
            // A collector that refused a datagram may have restarted and lost the templates.
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
            // After a refused datagram, the next one may succeed. A stream that broke off within a
            // message is useless.
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

    /// Starts a session if there is none or the collector closed it.
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
        // The final report of an epoch repeats its updates.
        let report = match item {
            Item::Epoch(report) if !report.update => report,
            _ => return Ok(()),
        };
        let output = format!("the IPFIX collector {}", self.options.to);
        let exported = self.export(report, Instant::now());
        // Never `Closed`: the collector may come back.
        exported.map_err(|error| SinkError::Write { output, error })
    }
}

impl Session {
    /// Connects to the collector's first address that answers.
    fn open(collector: &Collector) -> io::Result<Self> {
        let deadline = Instant::now() + LIMIT;
        let mut last = io::Error::new(ErrorKind::NotFound, "the name has no address");
        for address in resolve(collector.host.clone(), left(deadline)?)? {
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

    /// Whether the connection is open: the collector has not closed it.
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

/// Whether the peer closed a non-blocking stream. Data from the collector is read and ignored, up
/// to a limit.
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
    sockopt::set_tcp_user_timeout(&stream, SILENT.as_millis() as u32)?;
    Ok(stream)
}

/// Sends each message as one datagram.
fn send(socket: &UdpSocket, messages: &[Vec<u8>]) -> io::Result<()> {
    for burst in messages.chunks(BURST) {
        for message in burst {
            socket.send(message)?;
        }
        thread::sleep(PAUSE);
    }
    // A refusal from the local network has arrived by now.
    socket.take_error()?.map_or(Ok(()), Err)
}

/// Writes all bytes within the time limit, even if the collector takes few at a time.
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

/// Time until the deadline.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(late()) } else { Ok(left) }
}

fn late() -> io::Error {
    io::Error::new(ErrorKind::TimedOut, "it takes too long")
}

/// The transport to a collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// One message per datagram.
    Udp,
    /// A stream of messages.
    Tcp,
}

/// The address of an IPFIX collector, such as `udp://127.0.0.1:4739`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collector {
    /// The transport.
    pub transport: Transport,
    /// Address or name, with the port.
    pub host: String,
}

impl FromStr for Collector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refuse = || {
            format!(
                "invalid collector '{text}'; write udp://HOST:PORT or tcp://HOST:PORT, and an address \
                 of IPv6 in brackets"
            )
        };
        let (scheme, host) = text.split_once("://").ok_or_else(refuse)?;
        let transport = match scheme {
            "udp" => Transport::Udp,
            "tcp" => Transport::Tcp,
            _ => return Err(refuse()),
        };
        if has_port(host) { Ok(Self { transport, host: host.to_owned() }) } else { Err(refuse()) }
    }
}

impl fmt::Display for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.transport {
            Transport::Udp => "udp",
            Transport::Tcp => "tcp",
        };
        write!(f, "{scheme}://{}", self.host)
    }
}

impl<'de> Deserialize<'de> for Collector {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}
