//! Tunnels, from the IP packet that carries them to the one they carry.

use super::cursor::Cursor;
use super::network::Network;
use super::transport::UDP;
use super::{Fault, Ip, Layer, Malformed, NoKey, Ports, ethernet};

/// Transparent Ethernet bridging, an `EtherType` that only tunnels use.
const ETHERNET_BRIDGING: u16 = 0x6558;

/// What a packet that is no tunnel, or a tunnel without IP, carries.
const NOTHING: Network = Network::Other(NoKey::OtherProtocol);

const IPV4: u8 = 4;
const IPV6: u8 = 41;
const GRE: u8 = 47;

const VXLAN: u16 = 4789;
/// What Linux used before VXLAN had a port of its own, and still does by default.
const VXLAN_LINUX: u16 = 8472;
const GENEVE: u16 = 6081;
const GTP_U: u16 = 2152;
/// The port of Teredo's servers, from which they answer, too.
const TEREDO: u16 = 3544;

/// Whether the packet may be a tunnel, by its protocol and ports.
#[inline(always)]
pub(super) fn may_be<const N: usize>(ip: &Ip<N>) -> bool {
    // The ports first: they are hardly ever those of a tunnel, while the protocol is anyone's guess.
    let port = matches!(
        ip.ports,
        Ports::Found(ports) if source(ports) == TEREDO || is_tunnel(destination(ports))
    );
    (port && ip.protocol == UDP) || matches!(ip.protocol, IPV4 | IPV6 | GRE)
}

/// Destination ports of tunnels, each at a place of its own by three of its bits, so that one comparison
/// finds it. The places left over hold a port of another place, which finds nothing.
const PORTS: [u16; 8] = {
    let (ports, mut places, mut next) = ([VXLAN_LINUX, GENEVE, GTP_U, TEREDO], [VXLAN; 8], 0);
    while next < ports.len() {
        places[place(ports[next])] = ports[next];
        next += 1;
    }
    places
};

const fn place(port: u16) -> usize {
    (port >> 4 & 7) as usize
}

#[inline(always)]
fn is_tunnel(port: u16) -> bool {
    PORTS[place(port)] == port
}

#[inline(always)]
fn source(ports: u32) -> u16 {
    (ports >> 16) as u16
}

#[inline(always)]
fn destination(ports: u32) -> u16 {
    ports as u16
}

/// Moves to what the packet `outer`, in front of the cursor, carries. Anything but IP says that
/// `outer` is the innermost packet.
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
            // The header of UDP, of which only the ports were read.
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

/// The first bytes of a tunnel header; `None` where the packet ends before them, as that of a
/// port scan does, so that there is no tunnel.
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

/// GRE version 0. Source routing, which nobody sends, is not followed.
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

/// VXLAN: an Ethernet frame, if the flag says that the network identifier is valid.
fn vxlan(cursor: &mut Cursor<'_>) -> Result<Network, Malformed> {
    let Some(&[flags, ..]) = header::<8>(cursor)? else { return Ok(NOTHING) };
    if flags & 0x08 == 0 {
        return Ok(NOTHING);
    }
    cursor.nest(Layer::Tunnel)?;
    cursor.skip(8, Layer::Tunnel)?;
    ethernet::read(cursor)
}

/// Geneve version 0, with its options skipped.
fn geneve(cursor: &mut Cursor<'_>) -> Result<Network, Malformed> {
    let Some(&[version, _, high, low, ..]) = header::<8>(cursor)? else { return Ok(NOTHING) };
    if version >> 6 != 0 {
        return Ok(NOTHING);
    }
    cursor.nest(Layer::Tunnel)?;
    cursor.skip(8 + 4 * usize::from(version & 0x3f), Layer::Tunnel)?;
    payload(cursor, u16::from_be_bytes([high, low]))
}

/// GTP-U version 1, a message that carries a user's packet.
fn gtp_u(cursor: &mut Cursor<'_>) -> Result<Network, Malformed> {
    const G_PDU: u8 = 255;
    const EXTENSION: u8 = 0x04;
    const ANY_OPTIONAL: u8 = 0x07;

    let Some(&[flags, G_PDU, ..]) = header::<8>(cursor)? else { return Ok(NOTHING) };
    // Version 1, and not the charging protocol that shares the header.
    if flags >> 4 != 3 {
        return Ok(NOTHING);
    }
    cursor.nest(Layer::Tunnel)?;
    cursor.skip(8, Layer::Tunnel)?;
    if flags & ANY_OPTIONAL != 0 {
        // One flag brings all the optional fields, but only its own is then valid.
        let &[_, _, _, extension] = cursor.take(Layer::Tunnel)?;
        let mut next = if flags & EXTENSION == 0 { 0 } else { extension };
        while next != 0 {
            next = gtp_u_extension(cursor)?;
        }
    }
    Network::by_version(cursor, Layer::Tunnel, NoKey::OtherProtocol)
}

/// Moves over an extension header of GTP-U, whose first byte is its length in words and whose last
/// one is the type of the next.
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

/// Teredo (RFC 4380): IPv6, behind an authentication and the origin that a server saw, where there are
/// any.
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
        // Behind both stand a nonce of eight bytes and a confirmation.
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
    fn each_port_of_a_tunnel_has_a_place_of_its_own() {
        let found: Vec<_> = (0..=u16::MAX).filter(|port| is_tunnel(*port)).collect();
        assert_eq!(found, [GTP_U, TEREDO, VXLAN, GENEVE, VXLAN_LINUX]);
    }
}
