//! Fields of an IP packet to a key.

use super::{Key4, Key8, Key16, Key37, KeyKind};
use crate::packet::{Ip, Malformed, Ports};

/// A key type that can be made from an IP packet whose two addresses have `N` bytes.
pub trait Extract<const N: usize>: Sized {
    /// Makes the key of `kind`.
    ///
    /// # Errors
    /// When the key needs ports or the protocol, and the packet is malformed where they should stand.
    fn extract(kind: KeyKind, ip: &Ip<N>) -> Result<Self, Malformed>;
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
fn number<const N: usize>(kind: KeyKind, ip: &Ip<N>) -> Result<Key4, Malformed> {
    Ok(super::Key(u32::from_ne_bytes(match kind {
        KeyKind::DestinationPort => {
            let ports = ip.ports.bytes()?;
            [0, 0, ports[2], ports[3]]
        }
        _ => match ip.ports {
            Ports::Unreached(malformed) => return Err(malformed),
            _ => [0, 0, 0, ip.protocol],
        },
    })))
}

impl Extract<8> for Key4 {
    #[inline(always)]
    fn extract(kind: KeyKind, ip: &Ip<8>) -> Result<Self, Malformed> {
        let mut address = [0; 4];
        match kind {
            KeyKind::Source => address.copy_from_slice(&ip.addresses[..4]),
            KeyKind::Destination => address.copy_from_slice(&ip.addresses[4..]),
            _ => return number(kind, ip),
        }
        Ok(super::Key(u32::from_ne_bytes(address)))
    }
}

impl Extract<32> for Key4 {
    #[inline(always)]
    fn extract(kind: KeyKind, ip: &Ip<32>) -> Result<Self, Malformed> {
        number(kind, ip)
    }
}

impl Extract<8> for Key8 {
    #[inline(always)]
    fn extract(_: KeyKind, ip: &Ip<8>) -> Result<Self, Malformed> {
        Ok(super::Key(u64::from_ne_bytes(ip.addresses)))
    }
}

impl Extract<8> for Key16 {
    #[inline(always)]
    fn extract(_: KeyKind, ip: &Ip<8>) -> Result<Self, Malformed> {
        let [a, b, c, d] = ip.ports.bytes()?;
        let rest = [a, b, c, d, ip.protocol, 0, 0, 0];
        Ok(super::Key([u64::from_ne_bytes(ip.addresses), u64::from_ne_bytes(rest)]))
    }
}

impl Extract<32> for Key16 {
    #[inline(always)]
    fn extract(kind: KeyKind, ip: &Ip<32>) -> Result<Self, Malformed> {
        let at = if kind == KeyKind::Destination { 16 } else { 0 };
        Ok(super::Key([word(&ip.addresses[at..at + 8]), word(&ip.addresses[at + 8..at + 16])]))
    }
}

impl Extract<32> for Key37 {
    #[inline(always)]
    fn extract(kind: KeyKind, ip: &Ip<32>) -> Result<Self, Malformed> {
        let rest = if kind == KeyKind::Pair {
            0
        } else {
            let [a, b, c, d] = ip.ports.bytes()?;
            u64::from_ne_bytes([a, b, c, d, ip.protocol, 0, 0, 0])
        };
        Ok(super::Key(std::array::from_fn(|i| match i {
            4 => rest,
            _ => word(&ip.addresses[8 * i..8 * i + 8]),
        })))
    }
}
