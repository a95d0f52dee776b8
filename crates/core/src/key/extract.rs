//! Fields of an IP packet to a key.

use flowgauge_kernel::Tuple;

use super::{Field, FlowKey, Key4, Key8, Key16, Key37, KeyKind};
use crate::packet::{Extras, Ip, Malformed, Ports};

/// A key type that can be made from an IP packet whose two addresses have `N` bytes.
pub trait Extract<const N: usize>: FlowKey {
    /// The key of a usual kind in a five-tuple. Its code is short, since it stands in the innermost loop.
    fn from_tuple(kind: KeyKind, tuple: &Tuple<N>) -> Self;
    /// The key of any kind in a packet, with the bits of `mask` alone.
    fn combined(kind: KeyKind, packet: &Whole<'_, N>, mask: Self) -> Self;
    /// Whether the source is the second endpoint of a key whose endpoints stand in order.
    fn is_answer(tuple: &Tuple<N>, mask: Self) -> bool {
        let _ = (tuple, mask);
        false
    }

    /// Makes the key of `kind`, which needs no more than a five-tuple.
    ///
    /// # Errors
    /// As [`Self::extract_bits`].
    #[inline(always)]
    fn extract(kind: KeyKind, ip: &Ip<N>) -> Result<Self, Malformed> {
        let mut all = Self::zeroed();
        bytemuck::bytes_of_mut(&mut all).fill(0xff);
        Self::extract_bits(kind, ip, &Extras::default(), all)
    }

    /// Makes the key of `kind`, with the bits of `mask` alone.
    ///
    /// # Errors
    /// When the key needs ports or the protocol, and the packet is malformed where they should stand.
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

/// What keys are made of: a five-tuple, and what the frame says beside it.
pub struct Whole<'a, const N: usize> {
    /// The five-tuple.
    pub tuple: &'a Tuple<N>,
    /// The rest.
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
pub(super) fn word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(bytes);
    u64::from_ne_bytes(word)
}

impl Extract<8> for Key4 {
    #[inline(always)]
    fn from_tuple(kind: KeyKind, tuple: &Tuple<8>) -> Self {
        let mut address = [0; 4];
        match kind {
            KeyKind::SOURCE => address.copy_from_slice(&tuple.addresses[..4]),
            KeyKind::DESTINATION => address.copy_from_slice(&tuple.addresses[4..]),
            _ => return one_number(kind, tuple),
        }
        super::Key(u32::from_ne_bytes(address))
    }

    fn combined(kind: KeyKind, packet: &Whole<'_, 8>, mask: Self) -> Self {
        let key = super::Key(if kind.has_addresses() {
            one_address(kind, packet.tuple)
        } else {
            four(numbers(kind, packet))
        });
        key.masked(mask)
    }
}

impl Extract<32> for Key4 {
    #[inline(always)]
    fn from_tuple(kind: KeyKind, tuple: &Tuple<32>) -> Self {
        one_number(kind, tuple)
    }

    fn combined(kind: KeyKind, packet: &Whole<'_, 32>, mask: Self) -> Self {
        super::Key(four(numbers(kind, packet))).masked(mask)
    }
}

impl Extract<8> for Key8 {
    #[inline(always)]
    fn from_tuple(_: KeyKind, tuple: &Tuple<8>) -> Self {
        super::Key(u64::from_ne_bytes(tuple.addresses))
    }

    fn combined(kind: KeyKind, packet: &Whole<'_, 8>, mask: Self) -> Self {
        let numbers = numbers(kind, packet);
        let key = super::Key(if kind.has_addresses() {
            bytemuck::cast([one_address(kind, packet.tuple), four(numbers)])
        } else {
            (numbers as u64).to_be()
        });
        key.masked(mask)
    }
}

impl Extract<32> for Key8 {
    #[inline(always)]
    fn from_tuple(_: KeyKind, _: &Tuple<32>) -> Self {
        unreachable!("no usual key of IPv6 has eight bytes")
    }

    fn combined(kind: KeyKind, packet: &Whole<'_, 32>, mask: Self) -> Self {
        super::Key((numbers(kind, packet) as u64).to_be()).masked(mask)
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

/// The usual keys without an address, which IPv4 and IPv6 share: a number in network order.
#[inline(always)]
fn one_number<const N: usize>(kind: KeyKind, tuple: &Tuple<N>) -> Key4 {
    let [_, _, high, low] = tuple.ports();
    super::Key(u32::from_ne_bytes(match kind {
        KeyKind::DESTINATION_PORT => [0, 0, high, low],
        _ => [0, 0, 0, tuple.protocol()],
    }))
}

/// Whether the source is the lower endpoint, or both are the same.
fn is_in_order<const N: usize>(tuple: &Tuple<N>) -> bool {
    let [a, b, c, d] = tuple.ports();
    let (source, destination) = tuple.addresses.split_at(N / 2);
    (source, [a, b]) <= (destination, [c, d])
}

/// The five-tuple of a packet that answers this one.
fn reversed<const N: usize>(tuple: &Tuple<N>) -> Tuple<N> {
    let [a, b, c, d] = tuple.ports();
    let mut addresses = tuple.addresses;
    addresses.rotate_left(N / 2);
    Tuple::new(addresses, [c, d, a, b], tuple.protocol())
}

/// The numbers of a key as one, in the order of its canonical bytes.
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

/// Numbers in the last four bytes of a key, as a word holds them.
fn four(numbers: u128) -> u32 {
    (numbers as u32).to_be()
}

/// The numbers of a key in five bytes behind whole words.
fn five<const N: usize>(kind: KeyKind, packet: &Whole<'_, N>) -> u64 {
    if kind.has_all(KeyKind::FIVE_TUPLE) {
        return packet.tuple.rest;
    }
    ((numbers(kind, packet) as u64) << 24).to_be()
}

/// Numbers in the last bytes of two words.
fn wide(numbers: u128) -> [u64; 2] {
    [((numbers >> 64) as u64).to_be(), (numbers as u64).to_be()]
}

/// The destination of a key that has it, else the source.
fn one_address(kind: KeyKind, tuple: &Tuple<8>) -> u32 {
    let [source, destination]: [u32; 2] = bytemuck::cast(tuple.addresses);
    if kind.has(Field::Destination) { destination } else { source }
}
