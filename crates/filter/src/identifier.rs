//! Identifiers: addresses, networks, ports and names, read by the qualifiers before them.

use std::net::Ipv6Addr;

use super::condition::Node;
use super::lexer::Token;
use super::machine::Binary;
use super::parser::{Parser, Qualifiers};
use super::words::{Direction, IPV4, IPV6, Kind, OSI, Protocol, TCP, UDP, Word, carried_protocol};
use super::{Problem, names};

impl Parser<'_> {
    /// The condition of one identifier.
    pub(super) fn identifier(&mut self, qualifiers: Qualifiers) -> Result<Node, Problem> {
        let place = self.place();
        let token = self.peek();
        let Qualifiers { protocol, kind, .. } = qualifiers;
        let direction = qualifiers.direction.unwrap_or(Direction::Either);
        let node = match token {
            Token::Number(value) => {
                self.skip();
                self.numeric(value, qualifiers, direction)
            }
            Token::Ipv4(text) => {
                self.skip();
                self.ipv4(text, qualifiers, direction)
            }
            Token::Ipv6(address) => {
                self.skip();
                self.ipv6(address, qualifiers, direction)
            }
            Token::Ethernet(address) => {
                self.skip();
                if protocol != Some(Protocol::Link) || !matches!(kind, None | Some(Kind::Host)) {
                    Err(Problem::usage("an Ethernet address goes with 'ether host'"))
                } else {
                    self.generator.ethernet_host(address, direction)
                }
            }
            Token::Name(name) => {
                self.skip();
                self.named(name, qualifiers, direction)
            }
            _ => return Err(self.unexpected("an address, a port, a number or a name")),
        };
        node.map_err(|problem| problem.or_at(place))
    }

    fn numeric(
        &mut self,
        value: u32,
        Qualifiers { protocol, kind, .. }: Qualifiers,
        direction: Direction,
    ) -> Result<Node, Problem> {
        match kind {
            None | Some(Kind::Host) => self.generator.host(value, u32::MAX, protocol, direction),
            Some(Kind::Net) => {
                // A short network number stands for its first bytes.
                let zeros = value.leading_zeros() / 8 * 8;
                let (net, mask) = match value {
                    0 => (0, u32::MAX),
                    _ => (value << zeros, u32::MAX << zeros),
                };
                self.generator.host(net, mask, protocol, direction)
            }
            Some(Kind::Port | Kind::PortRange) => {
                let port = port(u64::from(value))?;
                self.generator.ports((port, port), protocol, direction)
            }
            Some(Kind::Protocol) => self.generator.carries_protocol(value, protocol),
        }
    }

    fn ipv4(
        &mut self,
        text: &str,
        Qualifiers { protocol, kind, .. }: Qualifiers,
        direction: Direction,
    ) -> Result<Node, Problem> {
        let (address, bytes_mask) = dotted(text)?;
        let mask = if self.take(Word::Operator(Binary::Divide)) {
            let length = self.number("the length of a prefix")?;
            Some(prefix_mask(32, length)? as u32)
        } else if self.take(Word::Mask) {
            let Token::Ipv4(mask) = self.peek() else {
                return Err(self.unexpected("a mask such as 255.255.0.0"));
            };
            self.skip();
            Some(dotted(mask)?.0)
        } else {
            None
        };
        match (kind, mask) {
            (Some(Kind::Net), Some(mask)) if address & !mask == 0 => {
                self.generator.host(address, mask, protocol, direction)
            }
            (Some(Kind::Net), Some(_)) => {
                Err(Problem::usage("the address has bits outside the mask"))
            }
            (_, Some(_)) => Err(Problem::usage("a mask goes with 'net'")),
            (None | Some(Kind::Host | Kind::Net), None) => {
                self.generator.host(address, bytes_mask, protocol, direction)
            }
            (Some(_), None) => Err(Problem::usage("an address where a port or protocol belongs")),
        }
    }

    fn ipv6(
        &mut self,
        address: Ipv6Addr,
        Qualifiers { protocol, kind, .. }: Qualifiers,
        direction: Direction,
    ) -> Result<Node, Problem> {
        let length = if self.take(Word::Operator(Binary::Divide)) {
            self.number("the length of a prefix")?
        } else {
            128
        };
        let mask = prefix_mask(128, length)?;
        if address.to_bits() & !mask != 0 {
            return Err(Problem::usage("the address has bits outside the mask"));
        }
        match kind {
            None | Some(Kind::Host) if length != 128 => {
                Err(Problem::usage("a mask goes with 'net'"))
            }
            None | Some(Kind::Host | Kind::Net) => {
                self.generator.host6(address, Ipv6Addr::from_bits(mask), protocol, direction)
            }
            _ => Err(Problem::usage("an address where a port or protocol belongs")),
        }
    }

    fn named(
        &mut self,
        name: &str,
        Qualifiers { protocol, kind, .. }: Qualifiers,
        direction: Direction,
    ) -> Result<Node, Problem> {
        match kind {
            Some(Kind::Port) => {
                let (port, transport) = service(name, protocol)?;
                self.generator.ports((port, port), transport, direction)
            }
            Some(Kind::PortRange) => {
                let (ports, transport) = range(name, protocol)?;
                self.generator.ports(ports, transport, direction)
            }
            Some(Kind::Protocol) => {
                let number = match protocol {
                    None | Some(IPV4 | IPV6) => names::protocol(name),
                    Some(Protocol::Link) => carried_protocol(name),
                    Some(OSI) => match name {
                        "clnp" => Some(0x81),
                        "esis" => Some(0x82),
                        "isis" => Some(0x83),
                        _ => None,
                    },
                    _ => None,
                };
                let unknown =
                    || Problem::usage(unknown("protocol", name, names::like_protocol(name)));
                self.generator.carries_protocol(number.ok_or_else(unknown)?, protocol)
            }
            None | Some(Kind::Host | Kind::Net) => Err(Problem::usage(format!(
                "unknown address '{name}'; filters do not resolve names, so use the number"
            ))),
        }
    }
}

/// One to four numbers with dots between, as an address and the mask of the bytes that are given.
fn dotted(text: &str) -> Result<(u32, u32), Problem> {
    let wrong = || Problem::usage(format!("invalid IPv4 address {text}"));
    let (mut address, mut bits) = (0u32, 0);
    for part in text.split('.') {
        address = address << 8 | u32::from(part.parse::<u8>().map_err(|_| wrong())?);
        bits += 8;
    }
    Ok((address << (32 - bits), u32::MAX << (32 - bits)))
}

/// The mask of a prefix, in the lowest `width` bits.
fn prefix_mask(width: u32, length: u32) -> Result<u128, Problem> {
    let Some(host_bits) = width.checked_sub(length) else {
        return Err(Problem::usage(format!("a prefix has at most {width} bits")));
    };
    let all = u128::MAX >> (128 - width);
    Ok(all & u128::MAX.checked_shl(host_bits).unwrap_or(0))
}

fn port(value: u64) -> Result<u16, Problem> {
    u16::try_from(value).map_err(|_| Problem::usage(format!("port {value} is above 65535")))
}

/// What is wrong with a name that the system's tables do not have, and the nearest that they have.
fn unknown(what: &str, name: &str, like: Option<String>) -> String {
    match like {
        Some(like) => format!("unknown {what} '{name}' (did you mean '{like}'?)"),
        None => format!("unknown {what} '{name}'; use its number"),
    }
}

/// The port of a service, and the one transport that it is for, or `None` for all of them.
fn service(name: &str, wanted: Option<Protocol>) -> Result<(u16, Option<Protocol>), Problem> {
    let (tcp, udp) = (names::service(name, "tcp"), names::service(name, "udp"));
    let (port, transport) = match (tcp, udp) {
        (Some(tcp), Some(udp)) if tcp == udp => (tcp, None),
        (Some(tcp), _) => (tcp, Some(TCP)),
        (None, Some(udp)) => (udp, Some(UDP)),
        (None, None) => {
            return Err(Problem::usage(unknown("port", name, names::like_service(name))));
        }
    };
    match (wanted, transport) {
        (None, transport) => Ok((port, transport)),
        (wanted, None) => Ok((port, wanted)),
        (wanted, transport) if wanted == transport => Ok((port, transport)),
        _ => Err(Problem::usage(format!("port '{name}' belongs to another protocol"))),
    }
}

/// Two ports with a dash between: two numbers, or the names of two services.
fn range(text: &str, wanted: Option<Protocol>) -> Result<((u16, u16), Option<Protocol>), Problem> {
    let Some((low, high)) = text.split_once('-') else {
        return Err(Problem::usage(format!("invalid port range '{text}'; write it as 6000-6008")));
    };
    if let (Ok(low), Ok(high)) = (low.parse(), high.parse()) {
        return Ok(((port(low)?, port(high)?), wanted));
    }
    let ((low, first), (high, last)) = (service(low, wanted)?, service(high, wanted)?);
    Ok(((low, high), if first == last { first } else { wanted }))
}
