//! Which key a user asked for, and how its canonical bytes read as fields.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use super::{CanonicalKey, FlowKey};
use crate::unknown::Unknown;

/// The fields that make up a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    /// Source address.
    Source,
    /// Destination address.
    Destination,
    /// Source and destination address.
    Pair,
    /// Source, destination, source port, destination port, protocol.
    FiveTuple,
    /// Protocol.
    Protocol,
    /// Destination port.
    DestinationPort,
}

impl KeyKind {
    /// Every kind with its name.
    pub const ALL: [(&'static str, Self); 6] = [
        ("source", Self::Source),
        ("destination", Self::Destination),
        ("pair", Self::Pair),
        ("five-tuple", Self::FiveTuple),
        ("protocol", Self::Protocol),
        ("destination-port", Self::DestinationPort),
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }

    /// Whether the key holds addresses, so that IPv4 and IPv6 differ in it.
    pub fn has_addresses(self) -> bool {
        !matches!(self, Self::Protocol | Self::DestinationPort)
    }

    /// Whether the key needs the ports of the transport header.
    pub(super) fn needs_ports(self) -> bool {
        matches!(self, Self::FiveTuple | Self::DestinationPort)
    }

    /// Whether the key holds the source address, which then stands first.
    pub fn has_source(self) -> bool {
        matches!(self, Self::Source | Self::Pair | Self::FiveTuple)
    }

    pub(super) fn has_destination(self) -> bool {
        matches!(self, Self::Destination | Self::Pair | Self::FiveTuple)
    }
}

/// A key kind with the prefix lengths of its addresses: `source`, `pair/24`, `source/24,48`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeySpec {
    /// The fields.
    pub kind: KeyKind,
    /// Bits kept of an IPv4 address, 0 to 32.
    pub v4_prefix: u8,
    /// Bits kept of an IPv6 address, 0 to 128.
    pub v6_prefix: u8,
}

/// A key that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// No key has this name.
    #[error(transparent)]
    Unknown(#[from] Unknown),
    /// The prefix is not a length, or too long.
    #[error(
        "'{0}' is no prefix; write /LEN for IPv4 (0 to 32), or /LEN,LEN for IPv4 and IPv6 (0 to 128)"
    )]
    Prefix(String),
    /// A prefix of a key without addresses.
    #[error("the key '{0}' has no address to take a prefix of")]
    NoAddress(&'static str),
    /// A key cannot be made of another one.
    #[error("'{to}' cannot be made of the key '{from}': {reason}")]
    NotCoarser {
        /// The key that there is.
        from: KeySpec,
        /// The key that was asked for.
        to: KeySpec,
        /// What the first one lacks.
        reason: &'static str,
    },
    /// A flow's fields do not make a key of this kind.
    #[error("'{text}' is no flow of the key '{key}': {reason}")]
    Flow {
        /// What was given.
        text: String,
        /// The key it should be of.
        key: KeySpec,
        /// What is wrong.
        reason: String,
    },
}

impl From<KeyKind> for KeySpec {
    fn from(kind: KeyKind) -> Self {
        Self { kind, v4_prefix: 32, v6_prefix: 128 }
    }
}

impl FromStr for KeySpec {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let (name, prefix) = match text.split_once('/') {
            Some((name, prefix)) => (name, Some(prefix)),
            None => (text, None),
        };
        let Some((name, kind)) = KeyKind::ALL.into_iter().find(|(known, _)| *known == name) else {
            let known = KeyKind::ALL.map(|(name, _)| name);
            return Err(Unknown::new("key", name, known).into());
        };
        let mut spec = Self::from(kind);
        let Some(prefix) = prefix else { return Ok(spec) };
        if !kind.has_addresses() {
            return Err(KeyError::NoAddress(name));
        }
        let length = |text: &str, most: u8| match text.parse::<u8>() {
            Ok(length) if length <= most => Ok(length),
            _ => Err(KeyError::Prefix(prefix.to_owned())),
        };
        let (v4, v6) = match prefix.split_once(',') {
            Some((v4, v6)) => (v4, Some(v6)),
            None => (prefix, None),
        };
        spec.v4_prefix = length(v4, 32)?;
        if let Some(v6) = v6 {
            spec.v6_prefix = length(v6, 128)?;
        }
        Ok(spec)
    }
}

impl fmt::Display for KeySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.name())?;
        match (self.v4_prefix, self.v6_prefix) {
            (32, 128) => Ok(()),
            (v4, 128) => write!(f, "/{v4}"),
            (v4, v6) => write!(f, "/{v4},{v6}"),
        }
    }
}

/// The fields of a key, by name; those that the key lacks are `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fields {
    /// Source address or prefix.
    pub source: Option<IpAddr>,
    /// Destination address or prefix.
    pub destination: Option<IpAddr>,
    /// Source port.
    pub source_port: Option<u16>,
    /// Destination port.
    pub destination_port: Option<u16>,
    /// IP protocol number.
    pub protocol: Option<u8>,
}

impl KeySpec {
    /// Canonical bytes of a key in each lane: that of IPv4 and that of IPv6, or the one of both.
    pub fn lanes(self) -> &'static [usize] {
        match self.kind {
            KeyKind::Source | KeyKind::Destination => &[4, 16],
            KeyKind::Pair => &[8, 32],
            KeyKind::FiveTuple => &[13, 37],
            KeyKind::Protocol | KeyKind::DestinationPort => &[4],
        }
    }

    /// The bits of a key of `key_bytes` canonical bytes that the prefixes keep.
    ///
    /// # Panics
    /// When no key of type `K` has as many.
    pub fn mask<K: FlowKey>(&self, key_bytes: usize) -> K {
        let mut mask = [0xff; CanonicalKey::MAX_BYTES];
        if self.kind.has_addresses() {
            let (size, prefix) = self.address(key_bytes);
            // The key of one address ends before the second.
            for address in mask.chunks_exact_mut(size).take(2) {
                address.copy_from_slice(&prefix_mask(prefix).to_be_bytes()[..size]);
            }
        }
        K::from_canonical(&mask[..key_bytes]).expect("the type holds keys of this length")
    }

    /// Bytes of an address, and bits kept of it, in a key of `key_bytes` canonical bytes.
    pub fn address(self, key_bytes: usize) -> (usize, u8) {
        match key_bytes {
            4 | 8 | 13 => (4, self.v4_prefix),
            _ => (16, self.v6_prefix),
        }
    }

    /// The prefix length that applies to `address`, where it is shorter than the address.
    pub fn prefix_of(&self, address: IpAddr) -> Option<u8> {
        match address {
            IpAddr::V4(_) => (self.v4_prefix < 32).then_some(self.v4_prefix),
            IpAddr::V6(_) => (self.v6_prefix < 128).then_some(self.v6_prefix),
        }
    }

    /// Reads the canonical bytes of a key of this kind; fields that they do not reach are `None`.
    pub fn fields(&self, key: &[u8]) -> Fields {
        let mut fields = Fields::default();
        let (size, _) = self.address(key.len());
        let mut rest = key;
        let mut next_address = || {
            let (bytes, after) = rest.split_at_checked(size)?;
            rest = after;
            address(bytes)
        };
        fields.source = self.kind.has_source().then(&mut next_address).flatten();
        fields.destination = self.kind.has_destination().then(&mut next_address).flatten();
        match (self.kind, rest) {
            (KeyKind::FiveTuple, &[a, b, c, d, protocol]) => {
                fields.source_port = Some(u16::from_be_bytes([a, b]));
                fields.destination_port = Some(u16::from_be_bytes([c, d]));
                fields.protocol = Some(protocol);
            }
            (KeyKind::Protocol, &[.., protocol]) => fields.protocol = Some(protocol),
            (KeyKind::DestinationPort, &[.., a, b]) => {
                fields.destination_port = Some(u16::from_be_bytes([a, b]));
            }
            _ => {}
        }
        fields
    }

    /// Reads a flow such as `source=10.0.0.1,destination_port=53`, with every field of the key.
    ///
    /// # Errors
    /// When a field is unknown, missing, repeated, of no use to this key or not a value.
    pub fn parse_flow(&self, text: &str) -> Result<CanonicalKey, KeyError> {
        let fail = |reason: String| KeyError::Flow { text: text.to_owned(), key: *self, reason };
        let mut fields = Fields::default();
        for part in text.split(',') {
            let Some((name, value)) = part.split_once('=') else {
                return Err(fail(format!("'{part}' is not FIELD=VALUE")));
            };
            let bad = || fail(format!("'{value}' is no value of {name}"));
            let repeated = match name.replace('-', "_").as_str() {
                "source" => fields.source.replace(value.parse().map_err(|_| bad())?).is_some(),
                "destination" => {
                    fields.destination.replace(value.parse().map_err(|_| bad())?).is_some()
                }
                "source_port" => {
                    fields.source_port.replace(value.parse().map_err(|_| bad())?).is_some()
                }
                "destination_port" => {
                    fields.destination_port.replace(value.parse().map_err(|_| bad())?).is_some()
                }
                "protocol" => fields.protocol.replace(value.parse().map_err(|_| bad())?).is_some(),
                _ => return Err(fail(format!("'{name}' is no field"))),
            };
            if repeated {
                return Err(fail(format!("'{name}' is given twice")));
            }
        }
        self.canonical(&fields).map_err(fail)
    }

    /// The canonical bytes of a key with these fields.
    pub(super) fn canonical(self, fields: &Fields) -> Result<CanonicalKey, String> {
        let mut bytes = Vec::with_capacity(CanonicalKey::MAX_BYTES);
        let kind = self.kind;
        let five_tuple = kind == KeyKind::FiveTuple;
        for (name, wanted, address) in [
            ("source", kind.has_source(), fields.source),
            ("destination", kind.has_destination(), fields.destination),
        ] {
            match (wanted, address) {
                (true, Some(IpAddr::V4(v4))) => {
                    let mask = (prefix_mask(self.v4_prefix) >> 96) as u32;
                    bytes.extend((u32::from(v4) & mask).to_be_bytes());
                }
                (true, Some(IpAddr::V6(v6))) => {
                    bytes.extend((u128::from(v6) & prefix_mask(self.v6_prefix)).to_be_bytes());
                }
                (true, None) => return Err(format!("'{name}' is missing")),
                (false, Some(_)) => return Err(format!("the key has no field '{name}'")),
                (false, None) => {}
            }
        }
        if let (Some(source), Some(destination)) = (fields.source, fields.destination)
            && source.is_ipv4() != destination.is_ipv4()
        {
            return Err("one address is IPv4 and the other IPv6".to_owned());
        }
        let mut number = |name: &str, wanted: bool, value: Option<&[u8]>| match (wanted, value) {
            (true, Some(value)) => {
                if !five_tuple {
                    bytes.resize(4 - value.len(), 0);
                }
                bytes.extend(value);
                Ok(())
            }
            (true, None) => Err(format!("'{name}' is missing")),
            (false, Some(_)) => Err(format!("the key has no field '{name}'")),
            (false, None) => Ok(()),
        };
        let source_port = fields.source_port.map(u16::to_be_bytes);
        let destination_port = fields.destination_port.map(u16::to_be_bytes);
        let protocol = fields.protocol.map(|protocol| [protocol]);
        number("source_port", five_tuple, source_port.as_ref().map(<[u8; 2]>::as_slice))?;
        number(
            "destination_port",
            kind.needs_ports(),
            destination_port.as_ref().map(<[u8; 2]>::as_slice),
        )?;
        number(
            "protocol",
            five_tuple || kind == KeyKind::Protocol,
            protocol.as_ref().map(<[u8; 1]>::as_slice),
        )?;
        Ok(CanonicalKey::new(&bytes))
    }
}

/// A mask of the first `bits` of 128, at most all of them.
pub(crate) fn prefix_mask(bits: u8) -> u128 {
    u128::MAX.checked_shl(128_u32.saturating_sub(u32::from(bits))).unwrap_or(0)
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(v4) = <[u8; 4]>::try_from(bytes) {
        return Some(Ipv4Addr::from(v4).into());
    }
    <[u8; 16]>::try_from(bytes).ok().map(|v6| Ipv6Addr::from(v6).into())
}
