//! The address of an IPFIX collector.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer};

use crate::host;

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
        if host::has_port(host) {
            Ok(Self { transport, host: host.to_owned() })
        } else {
            Err(refuse())
        }
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
