//! Primitives about frames: Ethernet addresses, tags and labels, LLC, length and direction.

use super::Problem;
use super::condition::Node;
use super::layout::{Link, carried};
use super::machine::{Compare, Condition, Subject, Width};
use super::primitive::Generator;
use super::words::{Direction, IPV4, IPV6, Protocol, Relation};

/// The largest offset that `byte` takes: frames are shorter.
const LARGEST_FRAME: u32 = 262_144;

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
            let offset = this.layout.header + offset;
            let last = this.all.equal(Width::Four, offset + 2, last);
            let first = this.all.equal(Width::Two, offset, first);
            Ok(this.all.and(last, first))
        })
    }

    /// `broadcast`: of Ethernet, or with `ip` the destinations 0.0.0.0 and 255.255.255.255, as
    /// a capture does not tell the netmask.
    pub(super) fn broadcast(&mut self, protocol: Option<Protocol>) -> Result<Node, Problem> {
        match protocol {
            None | Some(Protocol::Link) => self.ethernet_host([0xff; 6], Direction::Destination),
            Some(IPV4) => {
                let v4 = self.is(IPV4)?;
                let destination = self.layout.network + 16;
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
                Ok(self.all.masked(Width::One, self.layout.header, 1, 1))
            }
            Some(IPV4) => {
                let v4 = self.is(IPV4)?;
                let destination = self.layout.network + 16;
                let group = self.all.compare(Width::One, destination, Compare::AtLeast, 224);
                Ok(self.all.and(v4, group))
            }
            Some(IPV6) => {
                let v6 = self.is(IPV6)?;
                let group = self.all.equal(Width::One, self.layout.network + 24, 255);
                Ok(self.all.and(v6, group))
            }
            Some(_) => Err(Problem::usage("'multicast' goes with 'ether', 'ip' or 'ip6'")),
        }
    }

    /// `greater` (or equal) and `less` (or equal): by the bytes on the wire.
    pub(super) fn length(&mut self, compare: Compare, value: u32) -> Node {
        self.all.test(Condition::new(Subject::Length, u32::MAX, compare, value))
    }

    /// `byte`: a byte counted from the link header.
    pub(super) fn byte(
        &mut self,
        offset: u32,
        relation: Relation,
        value: u32,
    ) -> Result<Node, Problem> {
        if offset > LARGEST_FRAME {
            return Err(Problem::usage(format!("no frame has {offset} bytes")));
        }
        let offset = self.layout.header + offset;
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
        let header = self.layout.header;
        Ok(match self.layout.link {
            Link::Cooked => self.all.equal(Width::Two, header, OUTGOING),
            _ => self.all.equal(Width::One, header + 10, OUTGOING),
        })
    }

    /// `ifindex`.
    pub(super) fn interface_index(&mut self, index: u32) -> Result<Node, Problem> {
        self.need(&[Link::CookedV2], "the interface of a packet")?;
        Ok(self.all.equal(Width::Four, self.layout.header + 4, index))
    }

    /// `vlan`: everything behind it looks behind the tag.
    pub(super) fn vlan(&mut self, tag: Option<u32>) -> Result<Node, Problem> {
        if self.layout.labels > 0 {
            return Err(Problem::usage("VLAN tags cannot be recognised after 'mpls'"));
        }
        self.need(&[Link::Ethernet], "VLAN tags")?;
        let mut node = self.all.constant(false);
        for kind in carried::VLAN {
            let next = self.all.equal(Width::Two, self.layout.kind, kind);
            node = self.all.or(node, next);
        }
        if let Some(tag) = tag {
            let tag = at_most(tag, 0xfff, "VLAN")?;
            let same = self.all.masked(Width::Two, self.layout.payload, 0xfff, tag);
            node = self.all.and(node, same);
        }
        self.layout.pass_vlan();
        Ok(node)
    }

    /// `mpls`: everything behind it looks behind the label.
    pub(super) fn mpls(&mut self, label: Option<u32>) -> Result<Node, Problem> {
        const PPP_MPLS: u32 = 0x281;
        let network = self.layout.network;
        let mut node = if self.layout.labels > 0 {
            self.all.masked(Width::One, network - 2, 1, 0)
        } else {
            self.need(&[Link::Ethernet, Link::Ppp], "MPLS labels")?;
            let ethernet = self.layout.link == Link::Ethernet;
            let number = if ethernet { carried::MPLS } else { PPP_MPLS };
            self.all.equal(Width::Two, self.layout.kind, number)
        };
        if let Some(label) = label {
            let label = at_most(label, 0xf_ffff, "MPLS label")?;
            let same = self.all.masked(Width::Four, network, 0xffff_f000, label << 12);
            node = self.all.and(node, same);
        }
        self.layout.pass_label();
        Ok(node)
    }

    /// `pppoes`: everything behind it looks at the PPP header inside.
    pub(super) fn pppoe_session(&mut self, session: Option<u32>) -> Result<Node, Problem> {
        let mut node = self.is(Protocol::Network(carried::PPPOE_SESSION))?;
        if let Some(session) = session {
            let session = at_most(session, 0xffff, "PPPoE session")?;
            let same = self.all.masked(Width::Four, self.layout.network, 0xffff, session);
            node = self.all.and(node, same);
        }
        self.layout.pass_pppoe();
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
        let length = self.layout.is_length(&mut self.all);
        let novell = self.all.equal(Width::Two, self.layout.payload, 0xffff);
        let service = self.all.not(novell);
        let mut node = self.all.and(length, service);
        if let Some((mask, value)) = control {
            let offset = self.layout.payload + 2;
            let same = self.all.masked(Width::One, offset, mask, value);
            node = self.all.and(node, same);
        }
        Ok(node)
    }

    /// Refuses a link layer that is not one of `links`.
    fn need(&self, links: &[Link], what: &str) -> Result<(), Problem> {
        if links.contains(&self.layout.link) {
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
