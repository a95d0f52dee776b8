//! Extraction of keys and elements from IP packets.

use flowgauge_kernel::{Digester, Tuple};

use super::{Field, FlowKey, Key8, Key16, Key37, KeyKind};
use crate::packet::{Extras, Ip, Malformed, Ports};
use crate::terms::SpreadOf;

/// A key type that can be extracted from an IP packet whose two addresses have `N` bytes together.
///
/// ```
/// use flowgauge_core::key::{Extract, FlowKey, Key8, KeyKind};
/// use flowgauge_core::packet::{Ip, Ports};
///
/// let addresses = [10, 0, 0, 1, 192, 0, 2, 1];
/// let ip = Ip { addresses, protocol: 17, ports: Ports::Found(12345 << 16 | 53) };
/// let key = Key8::extract(KeyKind::PAIR, &ip).unwrap();
/// assert_eq!(key.canonical(8), addresses);
/// ```
pub trait Extract<const N: usize>: FlowKey {
    /// The key of a usual kind. Short code, since it is inlined into the innermost loop.
    fn from_tuple(kind: KeyKind, tuple: &Tuple<N>) -> Self;
    /// The key of any kind, masked by `mask`.
    fn combined(kind: KeyKind, packet: &Whole<'_, N>, mask: Self) -> Self;
    /// Whether the packet's source is the second endpoint of a key with ordered endpoints.
    fn is_answer(tuple: &Tuple<N>, mask: Self) -> bool {
        let _ = (tuple, mask);
        false
    }

    /// Extracts the key of `kind`, which must not need extras.
    ///
    /// # Errors
    /// Those of [`Self::extract_bits`].
    #[inline(always)]
    fn extract(kind: KeyKind, ip: &Ip<N>) -> Result<Self, Malformed> {
        let mut all = Self::zeroed();
        bytemuck::bytes_of_mut(&mut all).fill(0xff);
        Self::extract_bits(kind, ip, &Extras::default(), all)
    }

    /// Extracts the key of `kind`, masked by `mask`.
    ///
    /// # Errors
    /// When the key needs ports or the protocol, and the packet is malformed there.
    #[inline(always)]
    fn extract_bits(
        kind: KeyKind,
        ip: &Ip<N>,
        extras: &Extras,
        mask: Self,
    ) -> Result<Self, Malformed> {
        let ports = match ip.ports {
            Ports::Unreached(malformed) if kind.has(Field::Protocol) => return Err(malformed),
            _ if !kind.needs_ports() => [0; 4],
            ports => ports.bytes()?,
        };
        let tuple = Tuple::new(ip.addresses, ports, ip.protocol);
        Ok(if kind.is_usual() {
            Self::from_tuple(kind, &tuple).masked(mask)
        } else {
            Self::combined(kind, &Whole { tuple: &tuple, extras }, mask)
        })
    }
}

/// All fields that keys can be made of: a five-tuple and the extras of the frame.
pub struct Whole<'a, const N: usize> {
    /// The five-tuple.
    pub tuple: &'a Tuple<N>,
    /// The extras.
    pub extras: &'a Extras,
}

impl Ports {
    #[inline(always)]
    pub(crate) fn bytes(&self) -> Result<[u8; 4], Malformed> {
        match *self {
            Self::Found(ports) => Ok(ports.to_be_bytes()),
            Self::Absent => Ok([0; 4]),
            Self::Malformed(malformed) | Self::Unreached(malformed) => Err(malformed),
        }
    }
}

#[inline(always)]
fn word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(bytes);
    u64::from_ne_bytes(word)
}

impl Extract<8> for Key8 {
    #[inline(always)]
    fn from_tuple(kind: KeyKind, tuple: &Tuple<8>) -> Self {
        let pair = tuple.addresses;
        let mut address = [0; 8];
        match kind {
            KeyKind::PAIR => address = pair,
            KeyKind::SOURCE => address[..4].copy_from_slice(&pair[..4]),
            KeyKind::DESTINATION => address[..4].copy_from_slice(&pair[4..]),
            _ => return one_number(kind, tuple),
        }
        super::Key(bytemuck::cast(address))
    }

    fn combined(kind: KeyKind, packet: &Whole<'_, 8>, mask: Self) -> Self {
        let numbers = numbers(kind, packet);
        let key = super::Key(if kind.has_addresses() {
            [one_address(kind, packet.tuple), four(numbers)]
        } else {
            short(kind, numbers)
        });
        key.masked(mask)
    }
}

impl Extract<32> for Key8 {
    #[inline(always)]
    fn from_tuple(kind: KeyKind, tuple: &Tuple<32>) -> Self {
        one_number(kind, tuple)
    }

    fn combined(kind: KeyKind, packet: &Whole<'_, 32>, mask: Self) -> Self {
        super::Key(short(kind, numbers(kind, packet))).masked(mask)
    }
}

impl Extract<8> for Key16 {
    #[inline(always)]
    fn from_tuple(_: KeyKind, tuple: &Tuple<8>) -> Self {
        super::Key([u64::from_ne_bytes(tuple.addresses), tuple.rest])
    }

    fn combined(kind: KeyKind, packet: &Whole<'_, 8>, mask: Self) -> Self {
        if kind.is_in_order() && Self::is_answer(packet.tuple, mask) {
            let tuple = &reversed(packet.tuple);
            return Self::combined(kind, &Whole { tuple, ..*packet }, mask);
        }
        let addresses = if kind.has_all(KeyKind::PAIR) {
            u64::from_ne_bytes(packet.tuple.addresses)
        } else if kind.has_addresses() {
            bytemuck::cast([one_address(kind, packet.tuple), 0])
        } else {
            0
        };
        let [high, low] = match kind.number_bytes() {
            ..=5 => [0, five(kind, packet)],
            _ => wide(numbers(kind, packet)),
        };
        super::Key([addresses | high, low]).masked(mask)
    }

    fn is_answer(tuple: &Tuple<8>, mask: Self) -> bool {
        let addresses = (u64::from_ne_bytes(tuple.addresses) & mask.0[0]).to_ne_bytes();
        !is_in_order(&Tuple { addresses, ..*tuple })
    }
}

impl Extract<32> for Key16 {
    #[inline(always)]
    fn from_tuple(kind: KeyKind, tuple: &Tuple<32>) -> Self {
        let at = if kind == KeyKind::DESTINATION { 16 } else { 0 };
        let word = |at| word(&tuple.addresses[at..at + 8]);
        super::Key([word(at), word(at + 8)])
    }

    fn combined(kind: KeyKind, packet: &Whole<'_, 32>, mask: Self) -> Self {
        let key = if kind.has_addresses() {
            Self::from_tuple(kind.common(KeyKind::PAIR), packet.tuple)
        } else {
            super::Key(wide(numbers(kind, packet)))
        };
        key.masked(mask)
    }
}

impl Extract<32> for Key37 {
    #[inline(always)]
    fn from_tuple(kind: KeyKind, tuple: &Tuple<32>) -> Self {
        let rest = if kind == KeyKind::PAIR { 0 } else { tuple.rest };
        super::Key(std::array::from_fn(|i| match i {
            4 => rest,
            _ => word(&tuple.addresses[8 * i..8 * i + 8]),
        }))
    }

    fn combined(kind: KeyKind, packet: &Whole<'_, 32>, mask: Self) -> Self {
        if kind.is_in_order() && Self::is_answer(packet.tuple, mask) {
            let tuple = &reversed(packet.tuple);
            return Self::combined(kind, &Whole { tuple, ..*packet }, mask);
        }
        if kind.has_all(KeyKind::PAIR) {
            let rest = match kind.number_bytes() {
                ..=5 => five(kind, packet),
                _ => (numbers(kind, packet) as u64).to_be(),
            };
            return Self::from_tuple(kind, &Tuple { rest, ..*packet.tuple }).masked(mask);
        }
        let super::Key([high, low]) = Key16::from_tuple(kind.common(KeyKind::PAIR), packet.tuple);
        let [third, fourth] = wide(numbers(kind, packet));
        super::Key([high, low, third, fourth, 0]).masked(mask)
    }

    fn is_answer(tuple: &Tuple<32>, mask: Self) -> bool {
        let [a, b, c, d, _] = Self::from_tuple(KeyKind::PAIR, tuple).masked(mask).0;
        !is_in_order(&Tuple { addresses: bytemuck::cast([a, b, c, d]), ..*tuple })
    }
}

/// The usual keys without an address, the same for IPv4 and IPv6: a number in network order.
#[inline(always)]
fn one_number<const N: usize>(kind: KeyKind, tuple: &Tuple<N>) -> Key8 {
    let [_, _, high, low] = tuple.ports();
    super::Key(bytemuck::cast(match kind {
        KeyKind::DESTINATION_PORT => [0, 0, high, low, 0, 0, 0, 0_u8],
        _ => [0, 0, 0, tuple.protocol(), 0, 0, 0, 0],
    }))
}

/// Whether the source is the lower endpoint, or both are equal.
fn is_in_order<const N: usize>(tuple: &Tuple<N>) -> bool {
    let [a, b, c, d] = tuple.ports();
    let (source, destination) = tuple.addresses.split_at(N / 2);
    (source, [a, b]) <= (destination, [c, d])
}

/// The five-tuple of the opposite direction.
fn reversed<const N: usize>(tuple: &Tuple<N>) -> Tuple<N> {
    let [a, b, c, d] = tuple.ports();
    let mut addresses = tuple.addresses;
    addresses.rotate_left(N / 2);
    Tuple::new(addresses, [c, d, a, b], tuple.protocol())
}

/// The numbers of a key concatenated into one, in the order of its canonical bytes.
fn numbers<const N: usize>(kind: KeyKind, packet: &Whole<'_, N>) -> u128 {
    let Whole { tuple, extras } = packet;
    let [a, b, c, d] = tuple.ports();
    let mac = |at| {
        let mut bytes = [0; 8];
        bytes[2..].copy_from_slice(&extras.macs[at..at + 6]);
        u64::from_be_bytes(bytes)
    };
    let value = |field| match field {
        Field::SourcePort => u16::from_be_bytes([a, b]).into(),
        Field::DestinationPort => u16::from_be_bytes([c, d]).into(),
        Field::Protocol => tuple.protocol().into(),
        Field::Vlan => extras.vlan.into(),
        Field::TcpFlags => extras.tcp_flags.into(),
        Field::SourceMac | Field::Mac => mac(0),
        Field::DestinationMac => mac(6),
        Field::Source | Field::Destination | Field::Host => 0,
    };
    kind.fields().fold(0, |all, field| all << (8 * field.number_bytes()) | u128::from(value(field)))
}

/// The numbers as the last four bytes of a key.
fn four(numbers: u128) -> u32 {
    (numbers as u32).to_be()
}

/// The numbers as the only bytes of a key: four or eight.
fn short(kind: KeyKind, numbers: u128) -> [u32; 2] {
    let unused = if kind.number_bytes() > 4 { 0 } else { 32 };
    bytemuck::cast(((numbers as u64) << unused).to_be())
}

/// The numbers as five bytes of the last word.
fn five<const N: usize>(kind: KeyKind, packet: &Whole<'_, N>) -> u64 {
    if kind.has_all(KeyKind::FIVE_TUPLE) {
        return packet.tuple.rest;
    }
    ((numbers(kind, packet) as u64) << 24).to_be()
}

/// The numbers as the last bytes of two words.
fn wide(numbers: u128) -> [u64; 2] {
    [((numbers >> 64) as u64).to_be(), (numbers as u64).to_be()]
}

/// The destination where the key has it, else the source.
fn one_address(kind: KeyKind, tuple: &Tuple<8>) -> u32 {
    let [source, destination]: [u32; 2] = bytemuck::cast(tuple.addresses);
    if kind.has(Field::Destination) { destination } else { source }
}

/// The second value that a summary reads of each packet besides key and size: its element.
#[derive(Clone, Copy, Debug)]
pub enum Elements {
    /// The digest of the peer of the key's address, for distinct counts.
    Peers(SpreadOf, Digester),
    /// TCP flags and the direction of the packet: see [`Detail`].
    Details,
}

/// An element of [`Elements::Details`].
///
/// ```
/// use flowgauge_core::key::Detail;
///
/// let element = u64::from(Detail { tcp_flags: 0x12, back: true });
/// assert_eq!(Detail::from(element), Detail { tcp_flags: 0x12, back: true });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Detail {
    /// The flags of TCP; 0 without TCP.
    pub tcp_flags: u8,
    /// Whether the packet is of the reverse direction: its source is the second endpoint of a key
    /// with ordered endpoints, or its destination is the host of the key.
    pub back: bool,
}

impl From<Detail> for u64 {
    fn from(Detail { tcp_flags, back }: Detail) -> Self {
        Self::from(back) << 8 | Self::from(tcp_flags)
    }
}

impl From<u64> for Detail {
    fn from(element: u64) -> Self {
        Self { tcp_flags: element as u8, back: element >> 8 & 1 == 1 }
    }
}

/// The digest of the peer of an address: of the destination where the key is the source, and of the
/// source where the key is the destination.
pub trait Element {
    /// Digests the address, the port, or both.
    ///
    /// # Errors
    /// When the port is needed, and the packet is malformed there.
    fn element(&self, kind: KeyKind, of: SpreadOf, digester: &Digester) -> Result<u64, Malformed>;
}

/// The port of the peer, in network order.
#[inline(always)]
fn port<const N: usize>(ip: &Ip<N>, kind: KeyKind) -> Result<[u8; 2], Malformed> {
    let [source_high, source_low, high, low] = ip.ports.bytes()?;
    Ok(if kind == KeyKind::DESTINATION { [source_high, source_low] } else { [high, low] })
}

impl Element for Ip<8> {
    #[inline(always)]
    fn element(&self, kind: KeyKind, of: SpreadOf, digester: &Digester) -> Result<u64, Malformed> {
        let at = if kind == KeyKind::DESTINATION { 0 } else { 4 };
        let mut bytes = [0; 8];
        let len = match of {
            SpreadOf::Address => 4,
            SpreadOf::Port | SpreadOf::Endpoint => {
                bytes[4..6].copy_from_slice(&port(self, kind)?);
                6
            }
        };
        if of != SpreadOf::Port {
            bytes[..4].copy_from_slice(&self.addresses[at..at + 4]);
        }
        Ok(digester.digest(&u64::from_ne_bytes(bytes), len))
    }
}

impl Element for Ip<32> {
    #[inline(always)]
    fn element(&self, kind: KeyKind, of: SpreadOf, digester: &Digester) -> Result<u64, Malformed> {
        let at = if kind == KeyKind::DESTINATION { 0 } else { 16 };
        let address = [word(&self.addresses[at..at + 8]), word(&self.addresses[at + 8..at + 16])];
        match of {
            SpreadOf::Address => Ok(digester.digest(&address, 16)),
            SpreadOf::Port | SpreadOf::Endpoint => {
                let [high, low] = port(self, kind)?;
                let port = u64::from_ne_bytes([high, low, 0, 0, 0, 0, 0, 0]);
                let [first, second] = if of == SpreadOf::Port { [0; 2] } else { address };
                Ok(digester.digest(&[first, second, port, 0, 0], 18))
            }
        }
    }
}
