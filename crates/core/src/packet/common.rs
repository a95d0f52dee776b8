//! The common frame in one look: Ethernet, IPv4 without options, TCP or UDP.

use super::transport::{TCP, UDP};
use super::{Ip, Ports, ipv4};

/// Ethernet, IPv4 without options, and the ports.
const HEADERS: usize = 14 + 20 + 4;

/// The packet, if the frame is a common one; `None` says nothing about the frame.
#[expect(clippy::needless_bitwise_bool, reason = "one branch instead of seven")]
#[inline(always)]
pub(super) fn read(frame: &[u8]) -> Option<Ip<8>> {
    let head: &[u8; HEADERS] = frame.first_chunk()?;
    let short = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    let protocol = head[23];
    let common = (short(12) == 0x0800)
        & (head[14] == 0x45)
        // The total length is 0 or reaches over the ports.
        & (short(16).wrapping_sub(1) >= 20 + 4 - 1)
        & (short(20) & ipv4::FRAGMENT_OFFSET == 0)
        & ((protocol == TCP) | (protocol == UDP));
    if !common {
        return None;
    }
    let (addresses, ports) = (*head[26..].first_chunk()?, *head[34..].first_chunk()?);
    Some(Ip { addresses, protocol, ports: Ports::Found(u32::from_be_bytes(ports)) })
}
