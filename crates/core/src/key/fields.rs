//! The fields of a key as values.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use super::{Field, KeyKind};

/// The fields of a key by name; fields that the key lacks are `None`.
///
/// ```
/// use flowgauge_core::key::KeySpec;
///
/// let spec: KeySpec = "source+destination-port".parse()?;
/// let fields = spec.fields(&[10, 0, 0, 1, 0, 0, 1, 187]);
/// assert_eq!((fields.destination_port, fields.protocol), (Some(443), None));
/// # Ok::<(), flowgauge_core::key::KeyError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fields {
    /// Source address or prefix.
    pub source: Option<IpAddr>,
    /// Destination address or prefix.
    pub destination: Option<IpAddr>,
    /// Address or prefix of either end.
    pub host: Option<IpAddr>,
    /// Source port.
    pub source_port: Option<u16>,
    /// Destination port.
    pub destination_port: Option<u16>,
    /// IP protocol number.
    pub protocol: Option<u8>,
    /// VLAN ID; 0 without a tag.
    pub vlan: Option<u16>,
    /// TCP flags; none without TCP.
    pub tcp_flags: Option<TcpFlags>,
    /// Source MAC address.
    pub source_mac: Option<Mac>,
    /// Destination MAC address.
    pub destination_mac: Option<Mac>,
    /// MAC address of either end.
    pub mac: Option<Mac>,
}

impl Fields {
    /// Parses a field, and returns whether it was set before. `None` where the text is no value.
    pub(super) fn set(&mut self, field: Field, text: &str) -> Option<bool> {
        fn put<T: FromStr>(to: &mut Option<T>, text: &str) -> Option<bool> {
            Some(to.replace(text.parse().ok()?).is_some())
        }
        match field {
            Field::Source => put(&mut self.source, text),
            Field::Destination => put(&mut self.destination, text),
            Field::Host => put(&mut self.host, text),
            Field::SourcePort => put(&mut self.source_port, text),
            Field::DestinationPort => put(&mut self.destination_port, text),
            Field::Protocol => put(&mut self.protocol, text),
            Field::Vlan => put(&mut self.vlan, text),
            Field::TcpFlags => put(&mut self.tcp_flags, text),
            Field::SourceMac => put(&mut self.source_mac, text),
            Field::DestinationMac => put(&mut self.destination_mac, text),
            Field::Mac => put(&mut self.mac, text),
        }
    }

    /// The value of a field, aligned to the highest bit.
    pub(super) fn bits(&self, field: Field) -> Option<u128> {
        let address = |address: Option<IpAddr>| {
            address.map(|address| match address {
                IpAddr::V4(v4) => u128::from(u32::from(v4)) << 96,
                IpAddr::V6(v6) => u128::from(v6),
            })
        };
        let one = |byte: Option<u8>| byte.map(|byte| u128::from(byte) << 120);
        let two = |number: Option<u16>| number.map(|number| u128::from(number) << 112);
        let mac = |mac: Option<Mac>| {
            mac.map(|mac| {
                let mut bytes = [0; 16];
                bytes[..6].copy_from_slice(&mac.0);
                u128::from_be_bytes(bytes)
            })
        };
        match field {
            Field::Source => address(self.source),
            Field::Destination => address(self.destination),
            Field::Host => address(self.host),
            Field::SourcePort => two(self.source_port),
            Field::DestinationPort => two(self.destination_port),
            Field::Protocol => one(self.protocol),
            Field::Vlan => two(self.vlan),
            Field::TcpFlags => one(self.tcp_flags.map(|flags| flags.0)),
            Field::SourceMac => mac(self.source_mac),
            Field::DestinationMac => mac(self.destination_mac),
            Field::Mac => mac(self.mac),
        }
    }

    /// The fields that a kind of key has; the others are `None`.
    pub(super) fn of(self, kind: KeyKind) -> Self {
        fn kept<T>(kind: KeyKind, field: Field, value: Option<T>) -> Option<T> {
            value.filter(|_| kind.has(field))
        }
        Self {
            source: kept(kind, Field::Source, self.source),
            destination: kept(kind, Field::Destination, self.destination),
            host: kept(kind, Field::Host, self.host),
            source_port: kept(kind, Field::SourcePort, self.source_port),
            destination_port: kept(kind, Field::DestinationPort, self.destination_port),
            protocol: kept(kind, Field::Protocol, self.protocol),
            vlan: kept(kind, Field::Vlan, self.vlan),
            tcp_flags: kept(kind, Field::TcpFlags, self.tcp_flags),
            source_mac: kept(kind, Field::SourceMac, self.source_mac),
            destination_mac: kept(kind, Field::DestinationMac, self.destination_mac),
            mac: kept(kind, Field::Mac, self.mac),
        }
    }
}

/// A MAC address.
///
/// ```
/// use flowgauge_core::key::Mac;
///
/// let mac: Mac = "02-00-00-00-00-01".parse().unwrap();
/// assert_eq!(mac.to_string(), "02:00:00:00:00:01");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mac(pub [u8; 6]);

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0.map(|byte| format!("{byte:02x}"));
        f.write_str(&bytes.join(":"))
    }
}

impl FromStr for Mac {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut parts = text.split([':', '-']);
        let mut address = [0; 6];
        for byte in &mut address {
            let part = parts.next().filter(|part| part.len() == 2).ok_or(())?;
            *byte = u8::from_str_radix(part, 16).map_err(|_| ())?;
        }
        parts.next().is_none().then_some(Self(address)).ok_or(())
    }
}

/// A set of TCP flags, from CWR in the highest bit to FIN in the lowest. Written as `SYN+ACK`; the
/// empty set as an empty string.
///
/// ```
/// use flowgauge_core::key::TcpFlags;
///
/// assert_eq!(TcpFlags(0x12).to_string(), "SYN+ACK");
/// assert_eq!("fin+ack".parse(), Ok(TcpFlags(0x11)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpFlags(pub u8);

impl TcpFlags {
    const NAMES: [(u8, &str); 8] = [
        (0x02, "SYN"),
        (0x10, "ACK"),
        (0x08, "PSH"),
        (0x01, "FIN"),
        (0x04, "RST"),
        (0x20, "URG"),
        (0x40, "ECE"),
        (0x80, "CWR"),
    ];
}

impl fmt::Display for TcpFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let own = Self::NAMES.iter().filter(|(bit, _)| self.0 & bit != 0);
        f.write_str(&own.map(|(_, name)| *name).collect::<Vec<_>>().join("+"))
    }
}

impl FromStr for TcpFlags {
    type Err = ();

    /// Reads names joined by `+`, an empty string, or the set as a number.
    fn from_str(text: &str) -> Result<Self, ()> {
        if text.is_empty() {
            return Ok(Self(0));
        }
        if let Ok(number) = text.parse() {
            return Ok(Self(number));
        }
        let bit = |name: &str| {
            let known = Self::NAMES.iter().find(|(_, known)| known.eq_ignore_ascii_case(name));
            known.map(|(bit, _)| *bit).ok_or(())
        };
        text.split('+').try_fold(Self(0), |all, name| Ok(Self(all.0 | bit(name)?)))
    }
}
