//! Fields of an IP packet to a key.

use flowgauge_kernel::Tuple;

use super::{Key4, Key8, Key16, Key37, KeyKind};
use crate::packet::{Ip, Malformed, Ports};

/// A key type that can be made from an IP packet whose two addresses have `N` bytes.
pub trait Extract<const N: usize>: Sized {
    /// The key of `kind` in a five-tuple.
    fn from_tuple(kind: KeyKind, tuple: &Tuple<N>) -> Self;

    /// Makes the key of `kind`.
    ///
    /// # Errors
    /// When the key needs ports or the protocol, and the packet is malformed where they should stand.
    #[inline(always)]
    fn extract(kind: KeyKind, ip: &Ip<N>) -> Result<Self, Malformed> {
        let ports = match ip.ports {
            Ports::Unreached(malformed) if !kind.has_addresses() => return Err(malformed),
            _ if !kind.needs_ports() => [0; 4],
            ports => ports.bytes()?,
        };
        Ok(Self::from_tuple(kind, &Tuple::new(ip.addresses, ports, ip.protocol)))
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

/// The keys without an address, which IPv4 and IPv6 share: a number in network order.
#[inline(always)]
fn number<const N: usize>(kind: KeyKind, tuple: &Tuple<N>) -> Key4 {
    let [_, _, high, low] = tuple.ports();
    super::Key(u32::from_ne_bytes(match kind {
        KeyKind::DestinationPort => [0, 0, high, low],
        _ => [0, 0, 0, tuple.protocol()],
    }))
}

impl Extract<8> for Key4 {
    #[inline(always)]
    fn from_tuple(kind: KeyKind, tuple: &Tuple<8>) -> Self {
        let mut address = [0; 4];
        match kind {
            KeyKind::Source => address.copy_from_slice(&tuple.addresses[..4]),
            KeyKind::Destination => address.copy_from_slice(&tuple.addresses[4..]),
            _ => return number(kind, tuple),
        }
        super::Key(u32::from_ne_bytes(address))
    }
}

impl Extract<32> for Key4 {
    #[inline(always)]
    fn from_tuple(kind: KeyKind, tuple: &Tuple<32>) -> Self {
        number(kind, tuple)
    }
}

impl Extract<8> for Key8 {
    #[inline(always)]
    fn from_tuple(_: KeyKind, tuple: &Tuple<8>) -> Self {
        super::Key(u64::from_ne_bytes(tuple.addresses))
    }
}

impl Extract<8> for Key16 {
    #[inline(always)]
    fn from_tuple(_: KeyKind, tuple: &Tuple<8>) -> Self {
        super::Key([u64::from_ne_bytes(tuple.addresses), tuple.rest])
    }
}

impl Extract<32> for Key16 {
    #[inline(always)]
    fn from_tuple(kind: KeyKind, tuple: &Tuple<32>) -> Self {
        let at = if kind == KeyKind::Destination { 16 } else { 0 };
        let word = |at| word(&tuple.addresses[at..at + 8]);
        super::Key([word(at), word(at + 8)])
    }
}

impl Extract<32> for Key37 {
    #[inline(always)]
    fn from_tuple(kind: KeyKind, tuple: &Tuple<32>) -> Self {
        let rest = if kind == KeyKind::Pair { 0 } else { tuple.rest };
        super::Key(std::array::from_fn(|i| match i {
            4 => rest,
            _ => word(&tuple.addresses[8 * i..8 * i + 8]),
        }))
    }
}
