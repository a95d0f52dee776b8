//! Tunnels: from the outer IP packet to the inner one.

use super::cursor::Cursor;
use super::ip::{Network, UDP};
use super::{Fault, Ip, Layer, Malformed, NoKey, Ports, ethernet};

/// Transparent Ethernet bridging, an `EtherType` that only tunnels use.
const ETHERNET_BRIDGING: u16 = 0x6558;

/// The result for a packet that is no tunnel, and for a tunnel without IP.
const NOTHING: Network = Network::Other(NoKey::OtherProtocol);

const IPV4: u8 = 4;
const IPV6: u8 = 41;
const GRE: u8 = 47;

const VXLAN: u16 = 4789;
/// The port that Linux used before VXLAN had an assigned one, and still its default.
const VXLAN_LINUX: u16 = 8472;
const GENEVE: u16 = 6081;
const GTP_U: u16 = 2152;
/// The port of Teredo servers, which they also answer from.
const TEREDO: u16 = 3544;

/// Whether the packet may be a tunnel, judged by its protocol and ports.
#[inline(always)]
pub(super) fn may_be<const N: usize>(ip: &Ip<N>) -> bool {
    // Ports first: they rarely match, so the branch is predictable; the protocol is not.
    let port = matches!(
        ip.ports,
        Ports::Found(ports) if source(ports) == TEREDO || is_tunnel(destination(ports))
    );
    (port && ip.protocol == UDP) || matches!(ip.protocol, IPV4 | IPV6 | GRE)
}

/// Destination ports of tunnels in a perfect hash table: three bits of a port are its slot, so one
/// comparison decides. Unused slots hold a port that belongs to another slot and never match.
const PORTS: [u16; 8] = {
    let (ports, mut slots, mut next) = ([VXLAN_LINUX, GENEVE, GTP_U, TEREDO], [VXLAN; 8], 0);
    while next < ports.len() {
        slots[slot(ports[next])] = ports[next];
        next += 1;
    }
    slots
};

const fn slot(port: u16) -> usize {
    (port >> 4 & 7) as usize
}

#[inline(always)]
fn is_tunnel(port: u16) -> bool {
    PORTS[slot(port)] == port
}

#[inline(always)]
fn source(ports: u32) -> u16 {
    (ports >> 16) as u16
}

#[inline(always)]
fn destination(ports: u32) -> u16 {
    ports as u16
}

/// Moves to the payload of the packet `outer`, whose header is in front of the cursor. A result
/// other than IP means that `outer` is the innermost packet.
pub(super) fn read<const N: usize>(
    cursor: &mut Cursor<'_>,
    outer: &Ip<N>,
) -> Result<Network, Malformed> {
    match (outer.protocol, outer.ports) {
        _ if cursor.fragment => Ok(NOTHING),
        (IPV4, _) => {
            cursor.nest(Layer::Tunnel)?;
            Ok(Network::Ipv4)
        }
        (IPV6, _) => {
            cursor.nest(Layer::Tunnel)?;
            Ok(Network::Ipv6)
        }
        (GRE, _) => gre(cursor),
        (UDP, Ports::Found(ports)) => {
            // Only the ports of the UDP header have been read.
            cursor.at += 8;
            match destination(ports) {
                VXLAN | VXLAN_LINUX => vxlan(cursor),
                GENEVE => geneve(cursor),
                GTP_U => gtp_u(cursor),
                TEREDO => teredo(cursor),
                _ if source(ports) == TEREDO => teredo(cursor),
                _ => Ok(NOTHING),
            }
        }
        _ => Ok(NOTHING),
    }
}

/// The first bytes of a tunnel header. `None` where the packet ends before them, as in a port scan:
/// then there is no tunnel.
fn header<'a, const N: usize>(cursor: &Cursor<'a>) -> Result<Option<&'a [u8; N]>, Malformed> {
    match cursor.peek(Layer::Tunnel) {
        Err(Malformed { fault: Fault::Contradiction, .. }) => Ok(None),
        header => header.map(Some),
    }
}

fn payload(cursor: &mut Cursor<'_>, ether_type: u16) -> Result<Network, Malformed> {
    match ether_type {
        ETHERNET_BRIDGING => ethernet::read(cursor),
        _ => ethernet::payload(cursor, ether_type),
    }
}

/// GRE version 0. Source routing is not followed, since it is not used in practice.
fn gre(cursor: &mut Cursor<'_>) -> Result<Network, Malformed> {
    const CHECKSUM: u8 = 0x80;
    const ROUTING: u8 = 0x40;
    const KEY: u8 = 0x20;
    const SEQUENCE: u8 = 0x10;

    let Some(&[flags, version, high, low]) = header(cursor)? else { return Ok(NOTHING) };
    if flags & ROUTING != 0 || version & 7 != 0 {
        return Ok(NOTHING);
    }
    cursor.nest(Layer::Tunnel)?;
    let optional = (flags & (CHECKSUM | KEY | SEQUENCE)).count_ones() as usize;
    cursor.skip(4 + 4 * optional, Layer::Tunnel)?;
    payload(cursor, u16::from_be_bytes([high, low]))
}

/// VXLAN: an Ethernet frame, if the flag marks the network identifier as valid.
fn vxlan(cursor: &mut Cursor<'_>) -> Result<Network, Malformed> {
    let Some(&[flags, ..]) = header::<8>(cursor)? else { return Ok(NOTHING) };
    if flags & 0x08 == 0 {
        return Ok(NOTHING);
    }
    cursor.nest(Layer::Tunnel)?;
    cursor.skip(8, Layer::Tunnel)?;
    ethernet::read(cursor)
}

/// Geneve version 0. Options are skipped.
fn geneve(cursor: &mut Cursor<'_>) -> Result<Network, Malformed> {
    let Some(&[version, _, high, low, ..]) = header::<8>(cursor)? else { return Ok(NOTHING) };
    if version >> 6 != 0 {
        return Ok(NOTHING);
    }
    cursor.nest(Layer::Tunnel)?;
    cursor.skip(8 + 4 * usize::from(version & 0x3f), Layer::Tunnel)?;
    payload(cursor, u16::from_be_bytes([high, low]))
}

/// GTP-U version 1: a G-PDU, the message that carries a user's packet.
fn gtp_u(cursor: &mut Cursor<'_>) -> Result<Network, Malformed> {
    const G_PDU: u8 = 255;
    const EXTENSION: u8 = 0x04;
    const ANY_OPTIONAL: u8 = 0x07;

    let Some(&[flags, G_PDU, ..]) = header::<8>(cursor)? else { return Ok(NOTHING) };
    // Version 1 of GTP-U, not of the charging protocol with the same header.
    if flags >> 4 != 3 {
        return Ok(NOTHING);
    }
    cursor.nest(Layer::Tunnel)?;
    cursor.skip(8, Layer::Tunnel)?;
    if flags & ANY_OPTIONAL != 0 {
        // Any of these flags adds all optional fields, but only its own field is valid.
        let &[_, _, _, extension] = cursor.take(Layer::Tunnel)?;
        let mut next = if flags & EXTENSION == 0 { 0 } else { extension };
        while next != 0 {
            next = gtp_u_extension(cursor)?;
        }
    }
    Network::by_version(cursor, Layer::Tunnel, NoKey::OtherProtocol)
}

/// Moves over a GTP-U extension header, whose first byte is its length in words and whose last byte
/// is the type of the next header.
fn gtp_u_extension(cursor: &mut Cursor<'_>) -> Result<u8, Malformed> {
    cursor.nest(Layer::Tunnel)?;
    let &[words] = cursor.peek(Layer::Tunnel)?;
    if words == 0 {
        return Err(cursor.contradiction(Layer::Tunnel));
    }
    cursor.skip(4 * usize::from(words) - 1, Layer::Tunnel)?;
    let &[next] = cursor.take(Layer::Tunnel)?;
    Ok(next)
}

/// Teredo (RFC 4380): IPv6 behind an optional authentication header and an optional origin
/// indication.
fn teredo(cursor: &mut Cursor<'_>) -> Result<Network, Malformed> {
    const AUTHENTICATION: [u8; 2] = [0, 1];
    const ORIGIN: [u8; 2] = [0, 0];

    let Some(&(mut first)) = header(cursor)? else { return Ok(NOTHING) };
    if !matches!(first, AUTHENTICATION | ORIGIN) && first[0] >> 4 != 6 {
        return Ok(NOTHING);
    }
    cursor.nest(Layer::Tunnel)?;
    if first == AUTHENTICATION {
        let &[.., identifier, value] = cursor.peek::<4>(Layer::Tunnel)?;
        // A nonce of eight bytes and a confirmation byte follow both.
        let lengths = usize::from(identifier) + usize::from(value);
        cursor.skip(4 + lengths + 9, Layer::Tunnel)?;
        first = *cursor.peek(Layer::Tunnel)?;
    }
    if first == ORIGIN {
        cursor.skip(8, Layer::Tunnel)?;
    }
    let &[version] = cursor.peek(Layer::Tunnel)?;
    Ok(if version >> 4 == 6 { Network::Ipv6 } else { NOTHING })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tunnel_port_has_its_own_slot() {
        let found: Vec<_> = (0..=u16::MAX).filter(|port| is_tunnel(*port)).collect();
        assert_eq!(found, [GTP_U, TEREDO, VXLAN, GENEVE, VXLAN_LINUX]);
    }
}
