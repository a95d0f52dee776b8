//! Primitives about protocols, addresses and ports, as conditions on bytes of the frame.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::Problem;
use super::condition::{Conditions, Node};
use super::layout::{Layout, carried};
use super::machine::{Base, Condition, Load, Step, Subject, Width};
use super::words::{ARP, Direction, IPV4, IPV6, ISIS, OSI, Protocol, RARP, SCTP, TCP, UDP};

/// Turns primitives into conditions, in the order of the expression: `vlan` and its like change
/// where everything behind them looks.
#[derive(Debug)]
pub(super) struct Generator {
    pub(super) layout: Layout,
    pub(super) all: Conditions,
    pub(super) steps: Vec<Step>,
}

/// Where the source and the destination lie in a header.
type Ends = (u32, u32);

impl Generator {
    pub(super) fn new(layout: Layout) -> Self {
        Self { layout, all: Conditions::default(), steps: Vec::new() }
    }

    fn carries(&mut self, protocol: u32) -> Result<Node, Problem> {
        let node = self.layout.carries(&mut self.all, protocol);
        node.ok_or_else(|| Problem::usage("only IPv4 and IPv6 can be recognised after 'mpls'"))
    }

    /// A byte, word or double word of the network header.
    fn network(&mut self, width: Width, offset: u32, value: u32) -> Node {
        self.all.equal(width, self.layout.network + offset, value)
    }

    /// A protocol's name alone: packets of that protocol.
    pub(super) fn is(&mut self, protocol: Protocol) -> Result<Node, Problem> {
        match protocol {
            Protocol::Link => Err(Problem::usage("a link layer alone is not a condition")),
            Protocol::Network(carried) => self.carries(carried),
            Protocol::Ip(number) => self.carries_protocol(u32::from(number), None),
            Protocol::Ipv4(number) => self.carries_protocol(u32::from(number), Some(IPV4)),
            Protocol::Icmp6 => self.carries_protocol(58, Some(IPV6)),
            Protocol::Osi(number) => self.carries_protocol(u32::from(number), Some(OSI)),
            Protocol::Isis(types) => {
                let mut any = self.all.constant(false);
                for &kind in types {
                    let isis = Protocol::Osi(ISIS);
                    let next = self.carries_protocol(u32::from(kind), Some(isis))?;
                    any = self.all.or(any, next);
                }
                Ok(any)
            }
        }
    }

    /// `proto`: packets of `outer` that carry the protocol of this number.
    pub(super) fn carries_protocol(
        &mut self,
        number: u32,
        outer: Option<Protocol>,
    ) -> Result<Node, Problem> {
        const FRAGMENT: u32 = 44;
        match outer {
            None => {
                let v4 = self.carries_protocol(number, Some(IPV4))?;
                let v6 = self.carries_protocol(number, Some(IPV6))?;
                Ok(self.all.or(v4, v6))
            }
            Some(Protocol::Link) => self.carries(number),
            Some(IPV4) => {
                let v4 = self.carries(carried::IPV4)?;
                let protocol = self.network(Width::One, 9, number);
                Ok(self.all.and(v4, protocol))
            }
            Some(IPV6) => {
                let v6 = self.carries(carried::IPV6)?;
                let first = self.network(Width::One, 6, number);
                let fragment = self.network(Width::One, 6, FRAGMENT);
                let second = self.network(Width::One, 40, number);
                let fragment = self.all.and(fragment, second);
                let either = self.all.or(first, fragment);
                Ok(self.all.and(v6, either))
            }
            Some(OSI) => {
                let osi = self.carries(carried::LLC_OSI)?;
                let protocol = self.all.equal(Width::One, self.layout.behind_llc, number);
                Ok(self.all.and(osi, protocol))
            }
            Some(Protocol::Osi(ISIS)) => {
                let isis = self.carries_protocol(u32::from(ISIS), Some(OSI))?;
                let kind = self.all.equal(Width::One, self.layout.behind_llc + 4, number);
                Ok(self.all.and(isis, kind))
            }
            Some(_) => {
                Err(Problem::usage("'proto' goes with 'ether', 'ip', 'ip6', 'iso' or 'isis'"))
            }
        }
    }

    /// `host` and `net` of IPv4: in IP, ARP and RARP packets, unless `protocol` names one of them.
    pub(super) fn host(
        &mut self,
        address: u32,
        mask: u32,
        protocol: Option<Protocol>,
        direction: Direction,
    ) -> Result<Node, Problem> {
        let (carried, ends) = match protocol {
            None => {
                let mut any = self.host(address, mask, Some(IPV4), direction)?;
                if self.layout.labels == 0 {
                    for protocol in [ARP, RARP] {
                        let next = self.host(address, mask, Some(protocol), direction)?;
                        any = self.all.or(any, next);
                    }
                }
                return Ok(any);
            }
            Some(IPV4) => (carried::IPV4, (12, 16)),
            Some(ARP) => (carried::ARP, (14, 24)),
            Some(RARP) => (carried::RARP, (14, 24)),
            Some(_) => {
                let address = Ipv4Addr::from(address);
                let what = format!("this protocol has no IPv4 addresses such as {address}");
                return Err(Problem::usage(what));
            }
        };
        self.either_end(direction, ends, &mut |this, offset| {
            let carries = this.carries(carried)?;
            let offset = this.layout.network + offset;
            let equal = this.all.masked(Width::Four, offset, mask, address);
            Ok(this.all.and(carries, equal))
        })
    }

    /// `host` and `net` of IPv6.
    pub(super) fn host6(
        &mut self,
        address: Ipv6Addr,
        mask: Ipv6Addr,
        protocol: Option<Protocol>,
        direction: Direction,
    ) -> Result<Node, Problem> {
        if !matches!(protocol, None | Some(IPV6)) {
            return Err(Problem::usage("this protocol has no IPv6 addresses"));
        }
        let words = |address: Ipv6Addr| {
            let bits = address.to_bits();
            [bits >> 96, bits >> 64, bits >> 32, bits].map(|word| word as u32)
        };
        let pairs = words(address).into_iter().zip(words(mask));
        self.either_end(direction, (8, 24), &mut |this, offset| {
            let mut node = this.carries(carried::IPV6)?;
            for (at, (address, mask)) in (0u32..).zip(pairs.clone()) {
                let offset = this.layout.network + offset + 4 * at;
                let equal = this.all.masked(Width::Four, offset, mask, address);
                node = this.all.and(node, equal);
            }
            Ok(node)
        })
    }

    /// A condition on the source, the destination, or both of them.
    pub(super) fn either_end(
        &mut self,
        direction: Direction,
        (source, destination): Ends,
        end: &mut dyn FnMut(&mut Self, u32) -> Result<Node, Problem>,
    ) -> Result<Node, Problem> {
        match direction {
            Direction::Source => end(self, source),
            Direction::Destination => end(self, destination),
            Direction::Either => {
                let (source, destination) = (end(self, source)?, end(self, destination)?);
                Ok(self.all.or(source, destination))
            }
            Direction::Both => {
                let (source, destination) = (end(self, source)?, end(self, destination)?);
                Ok(self.all.and(source, destination))
            }
        }
    }

    /// `port` and `portrange`: of TCP, UDP and SCTP, unless `transport` names one of them; behind
    /// an IPv6 header only where no extension header comes between, as in tcpdump.
    pub(super) fn ports(
        &mut self,
        ports: (u16, u16),
        transport: Option<Protocol>,
        direction: Direction,
    ) -> Result<Node, Problem> {
        let transports = match transport {
            None => &[SCTP, TCP, UDP][..],
            Some(SCTP) => &[SCTP],
            Some(TCP) => &[TCP],
            Some(UDP) => &[UDP],
            Some(_) => {
                return Err(Problem::usage("ports go with 'tcp', 'udp', 'sctp' or no protocol"));
            }
        };
        let low = u32::from(ports.0.min(ports.1));
        let high = u32::from(ports.0.max(ports.1));
        let v6 = self.carries(carried::IPV6)?;
        let v6_ports = self.ports_of(transports, 6, &mut |this| {
            let base = Base::Frame;
            this.port(base, this.layout.network + 40, (low, high), direction)
        })?;
        let v6 = self.all.and(v6, v6_ports);
        let v4 = self.carries(carried::IPV4)?;
        let v4_ports = self.ports_of(transports, 9, &mut |this| {
            let base = Base::BehindIpv4(this.layout.network);
            let first = this.not_a_later_fragment();
            let port = this.port(base, 0, (low, high), direction)?;
            Ok(this.all.and(first, port))
        })?;
        let v4 = self.all.and(v4, v4_ports);
        Ok(self.all.or(v6, v4))
    }

    /// For any of `transports`, whose number stands at `field` of the network header.
    fn ports_of(
        &mut self,
        transports: &[Protocol],
        field: u32,
        port: &mut dyn FnMut(&mut Self) -> Result<Node, Problem>,
    ) -> Result<Node, Problem> {
        let mut any = self.all.constant(false);
        for transport in transports {
            if let Protocol::Ip(number) = *transport {
                let protocol = self.network(Width::One, field, u32::from(number));
                let port = port(self)?;
                let next = self.all.and(protocol, port);
                any = self.all.or(any, next);
            }
        }
        Ok(any)
    }

    fn port(
        &mut self,
        base: Base,
        offset: u32,
        (low, high): (u32, u32),
        direction: Direction,
    ) -> Result<Node, Problem> {
        self.either_end(direction, (offset, offset + 2), &mut |this, offset| {
            let subject = Subject::Load(Load { base, offset, width: Width::Two });
            Ok(this.all.test(Condition { subject, mask: u32::MAX, low, high }))
        })
    }

    /// An IPv4 packet that is whole or a first fragment.
    pub(super) fn not_a_later_fragment(&mut self) -> Node {
        self.all.masked(Width::Two, self.layout.network + 6, 0x1fff, 0)
    }
}
