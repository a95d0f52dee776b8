//! Identifiers: addresses, networks, ports and names. The qualifiers before them give their
//! meaning.

use std::fs;
use std::net::Ipv6Addr;

use flowgauge_core::unknown::nearest;

use super::Problem;
use super::condition::Node;
use super::lexer::Token;
use super::machine::Binary;
use super::parser::{Parser, Qualifiers};
use super::words::{Direction, IPV4, IPV6, Kind, OSI, Protocol, TCP, UDP, Word, carried_protocol};

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
                // A short network number gives only the first bytes.
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
                    None | Some(IPV4 | IPV6) => protocol_number(name),
                    Some(Protocol::Link) => carried_protocol(name),
                    Some(OSI) => match name {
                        "clnp" => Some(0x81),
                        "esis" => Some(0x82),
                        "isis" => Some(0x83),
                        _ => None,
                    },
                    _ => None,
                };
                let unknown = || Problem::usage(unknown("protocol", name, like_protocol(name)));
                self.generator.carries_protocol(number.ok_or_else(unknown)?, protocol)
            }
            None | Some(Kind::Host | Kind::Net) => Err(Problem::usage(format!(
                "unknown address '{name}'; filters do not resolve names, so use the number"
            ))),
        }
    }
}

/// Parses one to four numbers, separated by dots. Returns the address and the mask of the given
/// bytes.
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

/// The error text for a name that is not in the system's tables, with the nearest name in them.
fn unknown(what: &str, name: &str, like: Option<String>) -> String {
    match like {
        Some(like) => format!("unknown {what} '{name}' (did you mean '{like}'?)"),
        None => format!("unknown {what} '{name}'; use its number"),
    }
}

/// The port of a service, and its transport; `None` for all transports.
fn service(name: &str, wanted: Option<Protocol>) -> Result<(u16, Option<Protocol>), Problem> {
    let (tcp, udp) = (service_port(name, "tcp"), service_port(name, "udp"));
    let (port, transport) = match (tcp, udp) {
        (Some(tcp), Some(udp)) if tcp == udp => (tcp, None),
        (Some(tcp), _) => (tcp, Some(TCP)),
        (None, Some(udp)) => (udp, Some(UDP)),
        (None, None) => {
            return Err(Problem::usage(unknown("port", name, like_service(name))));
        }
    };
    match (wanted, transport) {
        (None, transport) => Ok((port, transport)),
        (wanted, None) => Ok((port, wanted)),
        (wanted, transport) if wanted == transport => Ok((port, transport)),
        _ => Err(Problem::usage(format!("port '{name}' belongs to another protocol"))),
    }
}

/// A range of ports: two numbers or two service names, separated by a dash.
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

const SERVICES: &str = "/etc/services";
const PROTOCOLS: &str = "/etc/protocols";

/// The port of the service `name` of `transport` in `/etc/services`.
fn service_port(name: &str, transport: &str) -> Option<u16> {
    let table = fs::read_to_string(SERVICES).ok()?;
    find(&table, name, |value| value.strip_suffix(transport)?.strip_suffix('/')?.parse().ok())
}

/// The number of the IP protocol `name` in `/etc/protocols`.
fn protocol_number(name: &str) -> Option<u32> {
    let table = fs::read_to_string(PROTOCOLS).ok()?;
    find(&table, name, |value| value.parse().ok())
}

/// The service with the name nearest to `name`.
fn like_service(name: &str) -> Option<String> {
    like(&fs::read_to_string(SERVICES).ok()?, name)
}

/// The protocol with the name nearest to `name`.
fn like_protocol(name: &str) -> Option<String> {
    like(&fs::read_to_string(PROTOCOLS).ok()?, name)
}

/// The nearest name or alias in a table.
fn like(table: &str, name: &str) -> Option<String> {
    let names = table.lines().flat_map(|line| {
        let words = line.split('#').next().unwrap_or_default().split_ascii_whitespace();
        words.enumerate().filter(|(at, _)| *at != 1).map(|(_, word)| word)
    });
    nearest(name, names).map(str::to_owned)
}

/// The value of the first line for `name`. Each line holds a name, a value and aliases.
fn find<T>(table: &str, name: &str, value: impl Fn(&str) -> Option<T>) -> Option<T> {
    table.lines().find_map(|line| {
        let line = line.split('#').next()?;
        let mut words = line.split_ascii_whitespace();
        let (first, second) = (words.next()?, words.next()?);
        let named = first == name || words.any(|word| word == name);
        if named { value(second) } else { None }
    })
}

#[cfg(test)]
mod tests {
    use super::{find, like};

    #[test]
    fn names_and_aliases_are_found_and_comments_are_not() {
        let table =
            "# ssh 1/tcp\ndomain 53/tcp\ndomain 53/udp # dns\nhttp\t80/tcp www # web\nbad\n";
        let tcp = |value: &str| value.strip_suffix("/tcp")?.parse::<u16>().ok();
        assert_eq!(find(table, "domain", tcp), Some(53));
        assert_eq!(find(table, "www", tcp), Some(80));
        for missing in ["ssh", "dns", "web", "bad", ""] {
            assert_eq!(find(table, missing, tcp), None, "{missing}");
        }
        for (word, near) in [("htpp", Some("http")), ("wwww", Some("www")), ("53/tcq", None)] {
            assert_eq!(like(table, word).as_deref(), near, "{word}");
        }
    }
}
