//! Web hooks: JSON over plain HTTP.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use serde::Deserialize;

/// Where changes are posted: `http://HOST[:PORT]/PATH`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Target {
    /// Host and port as written, for the `Host` header.
    authority: String,
    host: String,
    port: u16,
    path: String,
}

impl TryFrom<String> for Target {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let wrong = |what: &str| format!("cannot post to '{text}': {what}");
        if text.starts_with("https://") {
            return Err(wrong("TLS is not supported; post to a local proxy by http://"));
        }
        let Some(rest) = text.strip_prefix("http://") else {
            return Err(wrong("write http://HOST:PORT/PATH"));
        };
        if !rest.chars().all(|c| c.is_ascii_graphic()) {
            return Err(wrong("write spaces and characters other than ASCII as %XX"));
        }
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        if authority.contains('@') {
            return Err(wrong("user names and passwords are not supported"));
        }
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port),
            _ => (authority, "80"),
        };
        let port = port.parse().map_err(|_| wrong("the port is not a number up to 65535"))?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        if host.is_empty() {
            return Err(wrong("it names no host"));
        }
        let slash = if path.starts_with('/') { "" } else { "/" };
        let path = path.split('#').next().unwrap_or_default();
        Ok(Self { authority: authority.to_owned(), host, port, path: format!("{slash}{path}") })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority, self.path)
    }
}

impl Target {
    /// Posts a body within `limit`, and expects a 2xx answer.
    pub(super) fn post(&self, body: &str, limit: Duration) -> io::Result<()> {
        let deadline = Instant::now() + limit;
        let addresses = (self.host.as_str(), self.port).to_socket_addrs()?;
        let mut error = io::Error::new(ErrorKind::NotFound, "the host has no address");
        for address in addresses {
            match TcpStream::connect_timeout(&address, left(deadline)?) {
                Ok(stream) => return self.send(stream, body, deadline),
                Err(refused) => error = refused,
            }
        }
        Err(error)
    }

    fn send(&self, mut stream: TcpStream, body: &str, deadline: Instant) -> io::Result<()> {
        stream.set_write_timeout(Some(left(deadline)?))?;
        let request = format!(
            "POST {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: flowgauge/{}\r\nContent-Type: \
             application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            self.path,
            self.authority,
            env!("CARGO_PKG_VERSION"),
            body.len()
        );
        stream.write_all(request.as_bytes())?;
        let status = status_line(&mut stream, deadline)?;
        let code = status.strip_prefix("HTTP/1.").and_then(|rest| rest.split(' ').nth(1));
        match code {
            Some(code) if code.len() == 3 && code.starts_with('2') => Ok(()),
            _ => Err(io::Error::other(format!("it answered '{status}'"))),
        }
    }
}

/// The first line of the answer, up to 128 bytes.
fn status_line(stream: &mut TcpStream, deadline: Instant) -> io::Result<String> {
    let mut line = Vec::new();
    let mut byte = [0];
    while line.len() < 128 {
        stream.set_read_timeout(Some(left(deadline)?))?;
        match stream.read(&mut byte) {
            Ok(0) => break,
            Ok(_) if byte == *b"\n" => break,
            Ok(_) => line.push(byte[0]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                return Err(ErrorKind::TimedOut.into());
            }
            Err(error) => return Err(error),
        }
    }
    Ok(String::from_utf8_lossy(&line).trim_end().to_owned())
}

/// Time until the deadline.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}
