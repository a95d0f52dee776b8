//! What a summary reads of a packet beside key and size: its element.

use flowgauge_kernel::Digester;

use super::KeyKind;
use super::extract::word;
use crate::packet::{Ip, Malformed};
use crate::terms::SpreadOf;

/// What elements are.
#[derive(Clone, Copy, Debug)]
pub enum Elements {
    /// The digest of whom the address of the key speaks with, for counts of distinct peers.
    Peers(SpreadOf, Digester),
    /// TCP flags, and the way of the packet: see [`Detail`].
    Details,
}

/// An element of [`Elements::Details`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Detail {
    /// The flags of TCP; 0 without TCP.
    pub tcp_flags: u8,
    /// Whether the packet came back: its source is the second endpoint of a key whose endpoints stand in
    /// order, or it was received by the host that the key is.
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
/// source where it is the destination.
pub trait Element {
    /// Digests the address, the port, or both.
    ///
    /// # Errors
    /// When the port is asked for, and the packet is malformed where it should stand.
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
