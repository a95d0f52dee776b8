//! The key of a measurement, and the layout of its canonical bytes.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;
use std::str::FromStr;

use super::{CanonicalKey, Field, Fields, FlowKey, KeyKind, Mac, TcpFlags};
use crate::unknown::Unknown;

/// A key kind with the prefix lengths of its addresses: `source`, `pair/24`, `source/24,48`,
/// `source/24+destination-port`.
///
/// ```
/// use flowgauge_core::key::KeySpec;
///
/// let key: KeySpec = "source/24+destination-port".parse().unwrap();
/// let flow = key.parse_flow("source=10.1.2.3,destination_port=53").unwrap();
/// assert_eq!(flow.as_bytes(), [10, 1, 2, 0, 0, 0, 0, 53]);
/// assert_eq!(key.fields(flow.as_bytes()).destination_port, Some(53));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeySpec {
    kind: KeyKind,
    /// The prefix of the source, or of the host.
    source: Prefix,
    destination: Prefix,
}

/// The number of address bits that the key keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Prefix {
    /// Bits of an IPv4 address, 0 to 32.
    v4: u8,
    /// Bits of an IPv6 address, 0 to 128.
    v6: u8,
}

/// The whole address; also the prefix of an address that the key lacks.
const WHOLE: Prefix = Prefix { v4: 32, v6: 128 };

/// Why a key or a flow is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// No key has this name.
    #[error(transparent)]
    Unknown(#[from] Unknown),
    /// The prefix is not a length, or too long.
    #[error(
        "'{0}' is not a prefix; write /LEN for IPv4 (0 to 32), or /LEN,LEN for IPv4 and IPv6 (0 \
         to 128)"
    )]
    Prefix(String),
    /// A prefix of a key without addresses.
    #[error("key '{0}' has no address and takes no prefix; leave it out")]
    NoAddress(&'static str),
    /// A field that is named twice.
    #[error("key '{key}' names the field '{}' twice; name it once", field.name())]
    Twice {
        /// The given key.
        key: String,
        /// The field.
        field: Field,
    },
    /// Fields that cannot be combined.
    #[error("invalid key '{key}': {reason}")]
    Together {
        /// The given key.
        key: String,
        /// Why not.
        reason: &'static str,
    },
    /// A key that cannot be derived from another one.
    #[error("key '{to}' cannot be derived from key '{from}': {reason}")]
    NotCoarser {
        /// The given key.
        from: KeySpec,
        /// The wanted key.
        to: KeySpec,
        /// What `from` lacks.
        reason: &'static str,
    },
    /// A flow whose fields do not make a key of this kind.
    #[error("'{text}' is not a flow of key '{key}': {reason}")]
    Flow {
        /// The user's text.
        text: String,
        /// The key of the measurement.
        key: KeySpec,
        /// What is wrong.
        reason: String,
    },
}

impl From<KeyKind> for KeySpec {
    fn from(kind: KeyKind) -> Self {
        Self { kind, source: WHOLE, destination: WHOLE }
    }
}

impl FromStr for KeySpec {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let mut spec = Self::from(KeyKind::NONE);
        for part in text.split('+') {
            let (kind, prefix) = named(part)?;
            if let Some(field) = spec.kind.common(kind).fields().next() {
                return Err(KeyError::Twice { key: text.to_owned(), field });
            }
            spec.kind = spec.kind.with(kind);
            if kind.has(Field::Source) || kind.has(Field::Host) {
                spec.source = prefix;
            }
            if kind.has(Field::Destination) {
                spec.destination = prefix;
            }
        }
        let reason = if spec.kind.is_either() && spec.kind.tells_ends() {
            "'host' and 'mac' match either end of a packet; leave out the field of one end"
        } else if spec.kind.has(Field::Host) && spec.kind.has(Field::Mac) {
            "'host' and 'mac' both match either end of a packet; use one of them"
        } else if spec.kind.number_bytes() > LONGEST_NUMBERS[spec.kind.addresses()] {
            "it has too many fields; leave a MAC address out"
        } else {
            return Ok(spec);
        };
        Err(KeyError::Together { key: text.to_owned(), reason })
    }
}

/// Maximum total length of the numbers in a key, by its number of IP addresses.
const LONGEST_NUMBERS: [usize; 3] = [16, 12, 8];

/// Parses a name with an optional prefix.
fn named(text: &str) -> Result<(KeyKind, Prefix), KeyError> {
    let (name, prefix) = match text.split_once('/') {
        Some((name, prefix)) => (name, Some(prefix)),
        None => (text, None),
    };
    let Some((name, kind)) = KeyKind::NAMED.into_iter().find(|(known, _)| *known == name) else {
        let known = KeyKind::NAMED.map(|(name, _)| name);
        return Err(Unknown::new("key", name, known).into());
    };
    let Some(prefix) = prefix else { return Ok((kind, WHOLE)) };
    if !kind.has_addresses() {
        return Err(KeyError::NoAddress(name));
    }
    let length = |text: &str, most: u8| match text.parse::<u8>() {
        Ok(length) if length <= most => Ok(length),
        _ => Err(KeyError::Prefix(prefix.to_owned())),
    };
    let (v4, v6) = match prefix.split_once(',') {
        Some((v4, v6)) => (v4, length(v6, 128)?),
        None => (prefix, WHOLE.v6),
    };
    Ok((kind, Prefix { v4: length(v4, 32)?, v6 }))
}

impl fmt::Display for KeySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, source, destination } = *self;
        if let Some(name) = kind.name()
            && (kind.common(KeyKind::PAIR) != KeyKind::PAIR || source == destination)
        {
            let prefix = if kind.has(Field::Destination) { destination } else { source };
            return write!(f, "{name}{prefix}");
        }
        let mut plus = "";
        if kind.is_in_order() {
            write!(f, "{}{source}", KeyKind::CONVERSATION)?;
            plus = "+";
        }
        for field in kind.apart() {
            write!(f, "{plus}{}{}", field.name(), self.prefix(field))?;
            plus = "+";
        }
        Ok(())
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.v4, self.v6) {
            (32, 128) => Ok(()),
            (v4, 128) => write!(f, "/{v4}"),
            (v4, v6) => write!(f, "/{v4},{v6}"),
        }
    }
}

impl KeySpec {
    /// The fields.
    pub fn kind(self) -> KeyKind {
        self.kind
    }

    /// The same fields, with prefixes of `v4` bits (at most 32) and `v6` bits (at most 128) of each
    /// address.
    #[must_use]
    pub fn with_prefixes(self, v4: u8, v6: u8) -> Self {
        let kept = |field| if self.kind.has(field) { Prefix { v4, v6 } } else { WHOLE };
        let first = if self.kind.has(Field::Host) { Field::Host } else { Field::Source };
        Self { source: kept(first), destination: kept(Field::Destination), ..self }
    }

    /// The key that consists of this address of the key alone.
    #[must_use]
    pub fn alone(self, address: Field) -> Self {
        let Prefix { v4, v6 } = self.prefix(address);
        Self::from(KeyKind::of(&[address])).with_prefixes(v4, v6)
    }

    /// Whether it keeps the same number of bits of both addresses.
    pub(crate) fn is_even(self) -> bool {
        self.source == self.destination
    }

    /// Whether it keeps more bits of an address than `other`.
    pub(super) fn keeps_more(self, other: Self) -> bool {
        self.kind.fields().any(|field| {
            let (own, other) = (self.prefix(field), other.prefix(field));
            own.v4 > other.v4 || own.v6 > other.v6
        })
    }

    fn prefix(self, field: Field) -> Prefix {
        match field {
            Field::Source | Field::Host => self.source,
            Field::Destination => self.destination,
            _ => WHOLE,
        }
    }

    /// Canonical bytes of a key in each lane: of IPv4 and of IPv6, or of the one lane for both.
    ///
    /// The shortest key length that holds the fields: addresses at the start, numbers at the end,
    /// zeros between.
    pub fn lanes(self) -> &'static [usize] {
        match (self.kind.addresses(), self.kind.number_bytes()) {
            (0, ..=4) => &[4],
            (0, ..=8) => &[8],
            (0, _) => &[16],
            (1, 0) => &[4, 16],
            (1, ..=4) => &[8, 32],
            (1, 5) => &[13, 32],
            (1, _) => &[16, 32],
            (_, 0) => &[8, 32],
            (_, ..=5) => &[13, 37],
            _ => &[16, 40],
        }
    }

    /// The mask of the bits that the prefixes keep, in a key of `key_bytes` canonical bytes.
    ///
    /// # Panics
    /// When no key of type `K` has this length.
    pub fn mask<K: FlowKey>(&self, key_bytes: usize) -> K {
        let mut mask = [0xff; CanonicalKey::MAX_BYTES];
        for address in self.kind.fields().filter(|field| field.is_address()) {
            let bits = prefix_mask(self.bits(address, key_bytes)).to_be_bytes();
            if let Some(place) = self.place(address, key_bytes) {
                let size = place.len();
                mask[place].copy_from_slice(&bits[..size]);
            }
        }
        K::from_canonical(&mask[..key_bytes]).expect("the type holds keys of this length")
    }

    /// Length in bytes of an address in a key of `key_bytes` canonical bytes.
    pub fn address_bytes(self, key_bytes: usize) -> usize {
        if self.lanes()[0] == key_bytes { 4 } else { 16 }
    }

    /// Kept bits of an address in a key of `key_bytes` canonical bytes.
    pub fn bits(self, address: Field, key_bytes: usize) -> u8 {
        let Prefix { v4, v6 } = self.prefix(address);
        if self.lanes()[0] == key_bytes { v4 } else { v6 }
    }

    /// The byte range of a field in a key of `key_bytes` canonical bytes; `None` where the key
    /// lacks it.
    pub fn place(self, field: Field, key_bytes: usize) -> Option<Range<usize>> {
        if !self.kind.has(field) {
            return None;
        }
        let size =
            if field.is_address() { self.address_bytes(key_bytes) } else { field.number_bytes() };
        let start = if field == Field::Destination && self.kind.has(Field::Source) {
            size
        } else if field.is_address() {
            0
        } else {
            let here = self.kind.fields().skip_while(|own| *own != field);
            key_bytes.checked_sub(here.map(Field::number_bytes).sum())?
        };
        Some(start..start + size)
    }

    /// The prefix length of an address in this field; `None` for the whole address.
    pub fn prefix_of(&self, field: Field, address: IpAddr) -> Option<u8> {
        let Prefix { v4, v6 } = self.prefix(field);
        match address {
            IpAddr::V4(_) => (v4 < WHOLE.v4).then_some(v4),
            IpAddr::V6(_) => (v6 < WHOLE.v6).then_some(v6),
        }
    }

    /// Reads the fields of a key from its canonical bytes; fields beyond their end are `None`.
    pub fn fields(&self, key: &[u8]) -> Fields {
        let bytes = |field| key.get(self.place(field, key.len())?);
        let byte = |field| bytes(field).and_then(|bytes| bytes.first().copied());
        let two = |field| Some(u16::from_be_bytes(bytes(field)?.try_into().ok()?));
        let mac = |field| Some(Mac(bytes(field)?.try_into().ok()?));
        Fields {
            source: bytes(Field::Source).and_then(address),
            destination: bytes(Field::Destination).and_then(address),
            host: bytes(Field::Host).and_then(address),
            source_port: two(Field::SourcePort),
            destination_port: two(Field::DestinationPort),
            protocol: byte(Field::Protocol),
            vlan: two(Field::Vlan),
            tcp_flags: byte(Field::TcpFlags).map(TcpFlags),
            source_mac: mac(Field::SourceMac),
            destination_mac: mac(Field::DestinationMac),
            mac: mac(Field::Mac),
        }
    }

    /// Reads a flow such as `source=10.0.0.1,destination_port=53`, with every field of the key.
    ///
    /// # Errors
    /// When a field is unknown, missing, repeated, not part of this key, or has an invalid value.
    pub fn parse_flow(&self, text: &str) -> Result<CanonicalKey, KeyError> {
        let fail = |reason: String| KeyError::Flow { text: text.to_owned(), key: *self, reason };
        let mut fields = Fields::default();
        for part in text.split(',') {
            let Some((name, value)) = part.split_once('=') else {
                return Err(fail(format!("'{part}' is not FIELD=VALUE")));
            };
            let Some(field) =
                Field::ALL.into_iter().find(|field| field.name() == name.replace('_', "-"))
            else {
                let known = self.kind.fields().map(Field::name);
                return Err(fail(Unknown::new("field", name, known).to_string()));
            };
            let Some(repeated) = fields.set(field, value) else {
                return Err(fail(format!("invalid value '{value}' for '{name}'")));
            };
            if repeated {
                return Err(fail(format!("'{name}' is given twice")));
            }
        }
        self.canonical(&fields).map_err(fail)
    }

    /// The canonical bytes of a key with these fields.
    pub(super) fn canonical(self, fields: &Fields) -> Result<CanonicalKey, String> {
        if let (Some(source), Some(destination)) = (fields.source, fields.destination)
            && source.is_ipv4() != destination.is_ipv4()
        {
            return Err("one address is IPv4 and the other IPv6; give two of one kind".to_owned());
        }
        let any = fields.source.or(fields.destination).or(fields.host);
        let v6 = any.is_some_and(|address| address.is_ipv6());
        let lanes = self.lanes();
        let key_bytes = lanes[usize::from(v6).min(lanes.len() - 1)];
        let mut canonical = [0; CanonicalKey::MAX_BYTES];
        for field in Field::ALL {
            let value = fields.bits(field);
            let name = field.name().replace('-', "_");
            match (self.place(field, key_bytes), value) {
                (Some(place), Some(value)) => {
                    let kept = if field.is_address() { self.bits(field, key_bytes) } else { 128 };
                    let value = (value & prefix_mask(kept)).to_be_bytes();
                    let size = place.len();
                    canonical[place].copy_from_slice(&value[..size]);
                }
                (Some(_), None) => return Err(format!("'{name}' is missing")),
                (None, Some(_)) => return Err(format!("the key has no field '{name}'")),
                (None, None) => {}
            }
        }
        if self.kind.is_in_order() {
            let (size, numbers) = (self.address_bytes(key_bytes), self.kind.number_bytes());
            in_order(&mut canonical, size, key_bytes - numbers);
        }
        Ok(CanonicalKey::new(&canonical[..key_bytes]))
    }
}

/// A map from keys of one kind to keys of a coarser kind: `five-tuple` to `source`, `source` to
/// `source/24`.
///
/// ```
/// use flowgauge_core::key::Coarser;
///
/// let coarser = Coarser::new("pair".parse().unwrap(), "source/24".parse().unwrap()).unwrap();
/// let subnet = coarser.key(&[10, 1, 2, 3, 192, 0, 2, 1]);
/// assert_eq!(subnet.as_bytes(), [10, 1, 2, 0]);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Coarser {
    from: KeySpec,
    to: KeySpec,
}

impl Coarser {
    /// The map from keys of `from` to keys of `to`.
    ///
    /// # Errors
    /// When `to` has a field, or bits of an address, that `from` lacks.
    pub fn new(from: KeySpec, to: KeySpec) -> Result<Self, KeyError> {
        let refused = |reason| Err(KeyError::NotCoarser { from, to, reason });
        if !to.kind().is_made_of(from.kind()) {
            return refused("it lacks fields of that key");
        }
        if to.keeps_more(from) {
            return refused("its prefixes are shorter");
        }
        Ok(Self { from, to })
    }

    /// The coarser key of a key, which is given by its canonical bytes.
    ///
    /// # Panics
    /// When the bytes are no key of the finer kind.
    pub fn key(&self, canonical: &[u8]) -> CanonicalKey {
        let Self { from, to } = self;
        let kept = from.fields(canonical).of(to.kind());
        to.canonical(&kept).expect("a coarser key has no field that the key lacks")
    }
}

/// Orders the endpoints, the lower one first, in a key whose addresses have `size` bytes and whose
/// ports start at `ports`.
fn in_order(key: &mut [u8], size: usize, ports: usize) {
    let (addresses, numbers) = key.split_at_mut(ports);
    let (source, destination) = addresses[..2 * size].split_at_mut(size);
    let (source_port, rest) = numbers.split_at_mut(2);
    let destination_port = &mut rest[..2];
    if (&*source, &*source_port) > (&*destination, &*destination_port) {
        source.swap_with_slice(destination);
        source_port.swap_with_slice(destination_port);
    }
}

/// A mask of the `bits` highest bits, at most all 128.
pub(crate) fn prefix_mask(bits: u8) -> u128 {
    u128::MAX.checked_shl(128_u32.saturating_sub(u32::from(bits))).unwrap_or(0)
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(v4) = <[u8; 4]>::try_from(bytes) {
        return Some(Ipv4Addr::from(v4).into());
    }
    <[u8; 16]>::try_from(bytes).ok().map(|v6| Ipv6Addr::from(v6).into())
}
