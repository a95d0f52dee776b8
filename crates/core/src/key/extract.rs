//! Fields of an IP packet to a key.

use flowgauge_kernel::Tuple;

use super::{Field, FlowKey, Key4, Key8, Key16, Key37, KeyKind};
use crate::packet::{Ip, Malformed, Ports};

/// A key type that can be made from an IP packet whose two addresses have `N` bytes.
pub trait Extract<const N: usize>: FlowKey {
    /// The key of a usual kind in a five-tuple. Its code is short, since it stands in the innermost loop.
    fn from_tuple(kind: KeyKind, tuple: &Tuple<N>) -> Self;
    /// The key of any kind in a five-tuple, with the bits of `mask` alone.
    fn combined(kind: KeyKind, tuple: &Tuple<N>, mask: Self) -> Self;

    /// Makes the key of `kind`.
    ///
    /// # Errors
    /// As [`Self::extract_bits`].
    #[inline(always)]
    fn extract(kind: KeyKind, ip: &Ip<N>) -> Result<Self, Malformed> {
        let mut all = Self::zeroed();
        bytemuck::bytes_of_mut(&mut all).fill(0xff);
        Self::extract_bits(kind, ip, all)
    }

    /// Makes the key of `kind`, with the bits of `mask` alone.
    ///
    /// # Errors
    /// When the key needs ports or the protocol, and the packet is malformed where they should stand.
    #[inline(always)]
    fn extract_bits(kind: KeyKind, ip: &Ip<N>, mask: Self) -> Result<Self, Malformed> {
        let ports = match ip.ports {
            Ports::Unreached(malformed) if kind.has(Field::Protocol) => return Err(malformed),
            _ if !kind.needs_ports() => [0; 4],
            ports => ports.bytes()?,
        };
        let tuple = Tuple::new(ip.addresses, ports, ip.protocol);
        Ok(if kind.is_usual() {
            Self::from_tuple(kind, &tuple).masked(mask)
        } else {
            Self::combined(kind, &tuple, mask)
        })
    }
}

impl Ports {
    #[inline(always)]
    pub(super) fn bytes(&self) -> Result<[u8; 4], Malformed> {
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

    fn combined(kind: KeyKind, tuple: &Tuple<8>, mask: Self) -> Self {
        super::Key(four(number(kind, tuple))).masked(mask)
    }
}

impl Extract<32> for Key4 {
    #[inline(always)]
    fn from_tuple(kind: KeyKind, tuple: &Tuple<32>) -> Self {
        one_number(kind, tuple)
    }

    fn combined(kind: KeyKind, tuple: &Tuple<32>, mask: Self) -> Self {
        super::Key(four(number(kind, tuple))).masked(mask)
    }
}

impl Extract<8> for Key8 {
    #[inline(always)]
    fn from_tuple(_: KeyKind, tuple: &Tuple<8>) -> Self {
        super::Key(u64::from_ne_bytes(tuple.addresses))
    }

    fn combined(kind: KeyKind, tuple: &Tuple<8>, mask: Self) -> Self {
        let number = number(kind, tuple);
        let key = super::Key(if kind.has_addresses() {
            bytemuck::cast([one_address(kind, tuple), four(number)])
        } else {
            number.to_be()
        });
        key.masked(mask)
    }
}

impl Extract<32> for Key8 {
    #[inline(always)]
    fn from_tuple(kind: KeyKind, tuple: &Tuple<32>) -> Self {
        super::Key(number(kind, tuple).to_be())
    }

    fn combined(kind: KeyKind, tuple: &Tuple<32>, mask: Self) -> Self {
        Self::from_tuple(kind, tuple).masked(mask)
    }
}

impl Extract<8> for Key16 {
    #[inline(always)]
    fn from_tuple(_: KeyKind, tuple: &Tuple<8>) -> Self {
        super::Key([u64::from_ne_bytes(tuple.addresses), tuple.rest])
    }

    fn combined(kind: KeyKind, tuple: &Tuple<8>, mask: Self) -> Self {
        if kind.is_in_order() {
            let addresses = u64::from_ne_bytes(tuple.addresses) & mask.0[0];
            let kept = Tuple { addresses: addresses.to_ne_bytes(), ..*tuple };
            return Self::from_tuple(kind, &in_order(kept));
        }
        let addresses = if kind.has_all(KeyKind::PAIR) {
            u64::from_ne_bytes(tuple.addresses)
        } else {
            bytemuck::cast([one_address(kind, tuple), 0])
        };
        super::Key([addresses, five(number(kind, tuple))]).masked(mask)
    }
}

impl Extract<32> for Key16 {
    #[inline(always)]
    fn from_tuple(kind: KeyKind, tuple: &Tuple<32>) -> Self {
        let at = if kind == KeyKind::DESTINATION { 16 } else { 0 };
        let word = |at| word(&tuple.addresses[at..at + 8]);
        super::Key([word(at), word(at + 8)])
    }

    fn combined(kind: KeyKind, tuple: &Tuple<32>, mask: Self) -> Self {
        Self::from_tuple(kind, tuple).masked(mask)
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

    fn combined(kind: KeyKind, tuple: &Tuple<32>, mask: Self) -> Self {
        if kind.is_in_order() {
            let [a, b, c, d, _] = Self::from_tuple(kind, tuple).masked(mask).0;
            let kept = Tuple { addresses: bytemuck::cast([a, b, c, d]), ..*tuple };
            return Self::from_tuple(kind, &in_order(kept));
        }
        let number = number(kind, tuple);
        if kind.has_all(KeyKind::PAIR) {
            let rest = five(number);
            return Self::from_tuple(kind, &Tuple { rest, ..*tuple }).masked(mask);
        }
        let super::Key([high, low]) = Key16::from_tuple(kind.common(KeyKind::PAIR), tuple);
        super::Key([high, low, 0, number.to_be(), 0]).masked(mask)
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

/// The same packet as its answer, if that one's source is the lower endpoint.
fn in_order<const N: usize>(tuple: Tuple<N>) -> Tuple<N> {
    let [a, b, c, d] = tuple.ports();
    let (source, destination) = tuple.addresses.split_at(N / 2);
    if (source, [a, b]) <= (destination, [c, d]) {
        return tuple;
    }
    let mut addresses = tuple.addresses;
    addresses.rotate_left(N / 2);
    Tuple::new(addresses, [c, d, a, b], tuple.protocol())
}

/// The numbers of a key as one, in the order of its canonical bytes.
fn number<const N: usize>(kind: KeyKind, tuple: &Tuple<N>) -> u64 {
    let [a, b, c, d] = tuple.ports();
    let values = [
        (Field::SourcePort, u16::from_be_bytes([a, b])),
        (Field::DestinationPort, u16::from_be_bytes([c, d])),
        (Field::Protocol, tuple.protocol().into()),
    ];
    let own = values.into_iter().filter(|(field, _)| kind.has(*field));
    own.fold(0, |all, (field, value)| all << (8 * field.number_bytes()) | u64::from(value))
}

/// A number in the last four bytes of a key, as a word holds them.
fn four(number: u64) -> u32 {
    (number as u32).to_be()
}

/// A number in five bytes behind whole words.
fn five(number: u64) -> u64 {
    (number << 24).to_be()
}

/// The source of a key that has it, else the destination.
fn one_address(kind: KeyKind, tuple: &Tuple<8>) -> u32 {
    let [source, destination]: [u32; 2] = bytemuck::cast(tuple.addresses);
    if kind.has(Field::Source) { source } else { destination }
}
