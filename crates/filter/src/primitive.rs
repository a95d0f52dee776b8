//! Primitives as conditions on the bytes of a frame: protocols, addresses and ports; then tags,
//! labels, LLC, length and direction.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::Problem;
use super::condition::{Conditions, Node};
use super::machine::{Base, Compare, Condition, Load, Step, Subject, Width};
use super::offsets::{HeaderOffsets, Link, carried};
use super::words::{
    ARP, Direction, IPV4, IPV6, ISIS, OSI, Protocol, RARP, Relation, SCTP, TCP, UDP,
};

/// Translates primitives to conditions, in the order of the expression, because `vlan`, `mpls` and
/// `pppoes` change the offsets of everything after them.
#[derive(Debug)]
pub(super) struct Generator {
    pub(super) offsets: HeaderOffsets,
    pub(super) all: Conditions,
    pub(super) steps: Vec<Step>,
}

/// The largest offset of `byte`; frames are shorter.
const LARGEST_FRAME: u32 = 262_144;

/// The offsets of source and destination in a header.
type Ends = (u32, u32);

impl Generator {
    pub(super) fn new(offsets: HeaderOffsets) -> Self {
        Self { offsets, all: Conditions::default(), steps: Vec::new() }
    }

    fn carries(&mut self, protocol: u32) -> Result<Node, Problem> {
        let node = self.offsets.carries(&mut self.all, protocol);
        node.ok_or_else(|| Problem::usage("only IPv4 and IPv6 can be recognised after 'mpls'"))
    }

    /// Tests a number in the network header.
    fn network(&mut self, width: Width, offset: u32, value: u32) -> Node {
        self.all.equal(width, self.offsets.network + offset, value)
    }

    /// The name of a protocol alone: packets of that protocol.
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

    /// `proto`: packets of `outer` that carry protocol `number`.
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
                let protocol = self.all.equal(Width::One, self.offsets.behind_llc, number);
                Ok(self.all.and(osi, protocol))
            }
            Some(Protocol::Osi(ISIS)) => {
                let isis = self.carries_protocol(u32::from(ISIS), Some(OSI))?;
                let kind = self.all.equal(Width::One, self.offsets.behind_llc + 4, number);
                Ok(self.all.and(isis, kind))
            }
            Some(_) => {
                Err(Problem::usage("'proto' goes with 'ether', 'ip', 'ip6', 'iso' or 'isis'"))
            }
        }
    }

    /// `host` and `net` of IPv4, in IP, ARP and RARP packets or only in those of `protocol`.
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
                if self.offsets.labels == 0 {
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
            let offset = this.offsets.network + offset;
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
                let offset = this.offsets.network + offset + 4 * at;
                let equal = this.all.masked(Width::Four, offset, mask, address);
                node = this.all.and(node, equal);
            }
            Ok(node)
        })
    }

    /// A condition on the source, the destination, either or both.
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

    /// `port` and `portrange`, of TCP, UDP and SCTP or only of `transport`. In IPv6, only without
    /// extension headers, as in tcpdump.
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
            this.port(base, this.offsets.network + 40, (low, high), direction)
        })?;
        let v6 = self.all.and(v6, v6_ports);
        let v4 = self.carries(carried::IPV4)?;
        let v4_ports = self.ports_of(transports, 9, &mut |this| {
            let base = Base::BehindIpv4(this.offsets.network);
            let first = this.not_a_later_fragment();
            let port = this.port(base, 0, (low, high), direction)?;
            Ok(this.all.and(first, port))
        })?;
        let v4 = self.all.and(v4, v4_ports);
        Ok(self.all.or(v6, v4))
    }

    /// `port` for any of `transports`, whose number is at offset `field` of the network header.
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

    /// Tests for a whole IPv4 packet or a first fragment.
    pub(super) fn not_a_later_fragment(&mut self) -> Node {
        self.all.masked(Width::Two, self.offsets.network + 6, 0x1fff, 0)
    }
}

/// Primitives about frames.
impl Generator {
    /// `ether host`, `ether src`, `ether dst`.
    pub(super) fn ethernet_host(
        &mut self,
        address: [u8; 6],
        direction: Direction,
    ) -> Result<Node, Problem> {
        self.need(&[Link::Ethernet], "Ethernet addresses")?;
        let bits = address.iter().fold(0, |bits, &byte| bits << 8 | u64::from(byte));
        let (first, last) = ((bits >> 32) as u32, bits as u32);
        self.either_end(direction, (6, 0), &mut |this, offset| {
            let offset = this.offsets.header + offset;
            let last = this.all.equal(Width::Four, offset + 2, last);
            let first = this.all.equal(Width::Two, offset, first);
            Ok(this.all.and(last, first))
        })
    }

    /// `broadcast`: of Ethernet, or with `ip` the destinations 0.0.0.0 and 255.255.255.255, because
    /// a capture does not record the netmask.
    pub(super) fn broadcast(&mut self, protocol: Option<Protocol>) -> Result<Node, Problem> {
        match protocol {
            None | Some(Protocol::Link) => self.ethernet_host([0xff; 6], Direction::Destination),
            Some(IPV4) => {
                let v4 = self.is(IPV4)?;
                let destination = self.offsets.network + 16;
                let zeros = self.all.equal(Width::Four, destination, 0);
                let ones = self.all.equal(Width::Four, destination, u32::MAX);
                let either = self.all.or(zeros, ones);
                Ok(self.all.and(v4, either))
            }
            Some(_) => Err(Problem::usage("'broadcast' goes with 'ether' or 'ip'")),
        }
    }

    /// `multicast`: of Ethernet, or with `ip` and `ip6` by the destination's first byte.
    pub(super) fn multicast(&mut self, protocol: Option<Protocol>) -> Result<Node, Problem> {
        match protocol {
            None | Some(Protocol::Link) => {
                self.need(&[Link::Ethernet], "'multicast' without 'ip' or 'ip6'")?;
                Ok(self.all.masked(Width::One, self.offsets.header, 1, 1))
            }
            Some(IPV4) => {
                let v4 = self.is(IPV4)?;
                let destination = self.offsets.network + 16;
                let group = self.all.compare(Width::One, destination, Compare::AtLeast, 224);
                Ok(self.all.and(v4, group))
            }
            Some(IPV6) => {
                let v6 = self.is(IPV6)?;
                let group = self.all.equal(Width::One, self.offsets.network + 24, 255);
                Ok(self.all.and(v6, group))
            }
            Some(_) => Err(Problem::usage("'multicast' goes with 'ether', 'ip' or 'ip6'")),
        }
    }

    /// `greater` (or equal) and `less` (or equal), by bytes on the wire.
    pub(super) fn length(&mut self, compare: Compare, value: u32) -> Node {
        self.all.test(Condition::new(Subject::Length, u32::MAX, compare, value))
    }

    /// `byte`: a byte at an offset from the link header.
    pub(super) fn byte(
        &mut self,
        offset: u32,
        relation: Relation,
        value: u32,
    ) -> Result<Node, Problem> {
        if offset > LARGEST_FRAME {
            return Err(Problem::usage(format!("no frame has {offset} bytes")));
        }
        let offset = self.offsets.header + offset;
        match relation {
            Relation::Equal => Ok(self.all.equal(Width::One, offset, value)),
            Relation::Greater => Ok(self.all.compare(Width::One, offset, Compare::Greater, value)),
            Relation::Less => {
                let at_least = self.all.compare(Width::One, offset, Compare::AtLeast, value);
                Ok(self.all.not(at_least))
            }
            _ => Err(Problem::usage("'byte' compares with '=', '<' or '>'")),
        }
    }

    /// `inbound` and `outbound`.
    pub(super) fn outbound(&mut self) -> Result<Node, Problem> {
        const OUTGOING: u32 = 4;
        self.need(&[Link::Cooked, Link::CookedV2], "the direction of a packet")?;
        let header = self.offsets.header;
        Ok(match self.offsets.link {
            Link::Cooked => self.all.equal(Width::Two, header, OUTGOING),
            _ => self.all.equal(Width::One, header + 10, OUTGOING),
        })
    }

    /// `ifindex`.
    pub(super) fn interface_index(&mut self, index: u32) -> Result<Node, Problem> {
        self.need(&[Link::CookedV2], "the interface of a packet")?;
        Ok(self.all.equal(Width::Four, self.offsets.header + 4, index))
    }

    /// `vlan`. All following primitives read after the tag.
    pub(super) fn vlan(&mut self, tag: Option<u32>) -> Result<Node, Problem> {
        if self.offsets.labels > 0 {
            return Err(Problem::usage("VLAN tags cannot be recognised after 'mpls'"));
        }
        self.need(&[Link::Ethernet], "VLAN tags")?;
        let mut node = self.all.constant(false);
        for kind in carried::VLAN {
            let next = self.all.equal(Width::Two, self.offsets.kind, kind);
            node = self.all.or(node, next);
        }
        if let Some(tag) = tag {
            let tag = at_most(tag, 0xfff, "VLAN")?;
            let same = self.all.masked(Width::Two, self.offsets.payload, 0xfff, tag);
            node = self.all.and(node, same);
        }
        self.offsets.pass_vlan();
        Ok(node)
    }

    /// `mpls`. All following primitives read after the label.
    pub(super) fn mpls(&mut self, label: Option<u32>) -> Result<Node, Problem> {
        const PPP_MPLS: u32 = 0x281;
        let network = self.offsets.network;
        let mut node = if self.offsets.labels > 0 {
            self.all.masked(Width::One, network - 2, 1, 0)
        } else {
            self.need(&[Link::Ethernet, Link::Ppp], "MPLS labels")?;
            let ethernet = self.offsets.link == Link::Ethernet;
            let number = if ethernet { carried::MPLS } else { PPP_MPLS };
            self.all.equal(Width::Two, self.offsets.kind, number)
        };
        if let Some(label) = label {
            let label = at_most(label, 0xf_ffff, "MPLS label")?;
            let same = self.all.masked(Width::Four, network, 0xffff_f000, label << 12);
            node = self.all.and(node, same);
        }
        self.offsets.pass_label();
        Ok(node)
    }

    /// `pppoes`. All following primitives read in the PPP packet inside.
    pub(super) fn pppoe_session(&mut self, session: Option<u32>) -> Result<Node, Problem> {
        let mut node = self.is(Protocol::Network(carried::PPPOE_SESSION))?;
        if let Some(session) = session {
            let session = at_most(session, 0xffff, "PPPoE session")?;
            let same = self.all.masked(Width::Four, self.offsets.network, 0xffff, session);
            node = self.all.and(node, same);
        }
        self.offsets.pass_pppoe();
        Ok(node)
    }

    /// `llc`, or packets of one of its types.
    pub(super) fn llc(&mut self, kind: Option<&str>) -> Result<Node, Problem> {
        // Mask and value of the control byte.
        let control = match kind {
            None => None,
            Some(name) => Some(match name.to_ascii_lowercase().as_str() {
                "i" => (0x01, 0x00),
                "s" => (0x03, 0x01),
                "u" => (0x03, 0x03),
                "rr" => (0x0f, 0x01),
                "rnr" => (0x0f, 0x05),
                "rej" => (0x0f, 0x09),
                "ui" => (0xef, 0x03),
                "ua" => (0xef, 0x63),
                "disc" => (0xef, 0x43),
                "dm" => (0xef, 0x0f),
                "sabme" => (0xef, 0x6f),
                "test" => (0xef, 0xe3),
                "xid" => (0xef, 0xaf),
                "frmr" => (0xef, 0x87),
                _ => return Err(Problem::usage(format!("unknown LLC type '{name}'"))),
            }),
        };
        self.need(&[Link::Ethernet], "LLC")?;
        let length = self.offsets.is_length(&mut self.all);
        let novell = self.all.equal(Width::Two, self.offsets.payload, 0xffff);
        let service = self.all.not(novell);
        let mut node = self.all.and(length, service);
        if let Some((mask, value)) = control {
            let offset = self.offsets.payload + 2;
            let same = self.all.masked(Width::One, offset, mask, value);
            node = self.all.and(node, same);
        }
        Ok(node)
    }

    /// Refuses link layers other than `links`.
    fn need(&self, links: &[Link], what: &str) -> Result<(), Problem> {
        if links.contains(&self.offsets.link) {
            return Ok(());
        }
        Err(Problem::link(format!("frames of this link type do not have {what}")))
    }
}

fn at_most(value: u32, largest: u32, what: &str) -> Result<u32, Problem> {
    if value <= largest {
        return Ok(value);
    }
    Err(Problem::usage(format!("{what} {value} is above the largest, {largest}")))
}
