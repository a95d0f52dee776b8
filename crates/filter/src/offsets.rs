//! The offsets of the headers in a frame, as the link type gives them, and tests for the protocol
//! that the link layer carries.

use flowgauge_core::packet::LinkType;

use super::condition::{Conditions, Node};
use super::machine::{Base, Compare, Condition, Load, Subject, Width};

/// Numbers of the protocols that a link layer carries: an `EtherType`, or below 1,536 an LLC
/// service access point.
pub(super) mod carried {
    pub(crate) const IPV4: u32 = 0x0800;
    pub(crate) const ARP: u32 = 0x0806;
    pub(crate) const RARP: u32 = 0x8035;
    pub(crate) const IPV6: u32 = 0x86dd;
    pub(crate) const ATALK: u32 = 0x809b;
    pub(crate) const AARP: u32 = 0x80f3;
    pub(crate) const DECNET: u32 = 0x6003;
    pub(crate) const LAT: u32 = 0x6004;
    pub(crate) const SCA: u32 = 0x6007;
    pub(crate) const MOP_LOAD: u32 = 0x6001;
    pub(crate) const MOP_CONSOLE: u32 = 0x6002;
    pub(crate) const LOOPBACK: u32 = 0x9000;
    pub(crate) const VLAN: [u32; 3] = [0x8100, 0x88a8, 0x9100];
    pub(crate) const MPLS: u32 = 0x8847;
    pub(crate) const PPPOE_DISCOVERY: u32 = 0x8863;
    pub(crate) const PPPOE_SESSION: u32 = 0x8864;
    pub(crate) const LLC_IP: u32 = 0x06;
    pub(crate) const LLC_STP: u32 = 0x42;
    pub(crate) const LLC_IPX: u32 = 0xe0;
    pub(crate) const LLC_NETBEUI: u32 = 0xf0;
    pub(crate) const LLC_OSI: u32 = 0xfe;
    pub(crate) const IPX: u32 = 0x8137;
    pub(crate) const XNS: u32 = 0x0600;
}
use carried::{AARP, ATALK, IPV4, IPV6, IPX, LLC_IP, LLC_IPX, LLC_NETBEUI, LLC_OSI, LLC_STP};

/// The largest number in the type field of Ethernet that is a length.
const LARGEST_LENGTH: u32 = 1500;

/// Kinds of link layers, by the way they identify their payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    Ethernet,
    Raw,
    Ipv4,
    Ipv6,
    /// An address family in the byte order of the capturing host.
    Null,
    /// An address family in network order.
    Loop,
    Cooked,
    CookedV2,
    /// PPP inside `PPPoE`.
    Ppp,
}

/// The offsets at which primitives read. `vlan`, `mpls` and `pppoes` change them for all following
/// primitives.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeaderOffsets {
    pub(super) link: Link,
    /// The link header.
    pub(super) header: u32,
    /// The field that identifies the payload.
    pub(super) kind: u32,
    /// The first byte after the link header; an LLC header begins there, if there is one.
    pub(super) payload: u32,
    /// The network header; in MPLS, after the labels.
    pub(super) network: u32,
    /// The network header after an LLC header of three bytes.
    pub(super) behind_llc: u32,
    /// Number of MPLS labels passed.
    pub(super) labels: u32,
}

impl HeaderOffsets {
    /// The offsets in frames of type `link`; `None` if filters do not support it.
    pub(super) fn new(link: LinkType) -> Option<Self> {
        let (link, kind, payload) = match link {
            LinkType::ETHERNET => (Link::Ethernet, 12, 14),
            LinkType::RAW | LinkType::DLT_RAW => (Link::Raw, 0, 0),
            LinkType::IPV4 => (Link::Ipv4, 0, 0),
            LinkType::IPV6 => (Link::Ipv6, 0, 0),
            LinkType::NULL => (Link::Null, 0, 4),
            LinkType::LOOP => (Link::Loop, 0, 4),
            LinkType::LINUX_SLL => (Link::Cooked, 14, 16),
            LinkType::LINUX_SLL2 => (Link::CookedV2, 0, 20),
            _ => return None,
        };
        let behind_llc = if link == Link::Ethernet { payload + 3 } else { payload };
        Some(Self { link, header: 0, kind, payload, network: payload, behind_llc, labels: 0 })
    }

    /// Moves the offsets past a VLAN tag.
    pub(super) fn pass_vlan(&mut self) {
        self.kind += 4;
        self.payload += 4;
        self.network += 4;
        self.behind_llc += 4;
    }

    /// Moves the offsets past an MPLS label.
    pub(super) fn pass_label(&mut self) {
        self.network += 4;
        self.behind_llc += 4;
        self.labels += 1;
    }

    /// Moves the offsets to the PPP header after a `PPPoE` header.
    pub(super) fn pass_pppoe(&mut self) {
        self.link = Link::Ppp;
        self.header = self.network + 6;
        self.kind = self.header;
        self.payload = self.header + 2;
        self.network = self.payload;
        self.behind_llc = self.payload;
    }

    /// Tests whether the link layer carries `protocol`; `None` if that cannot be tested within
    /// MPLS.
    pub(super) fn carries(&self, all: &mut Conditions, protocol: u32) -> Option<Node> {
        if self.labels > 0 {
            return self.carries_behind_label(all, protocol);
        }
        Some(match self.link {
            Link::Ethernet => self.ethernet_carries(all, protocol),
            Link::Cooked => self.cooked_carries(all, protocol),
            Link::CookedV2 => all.equal(Width::Two, self.kind, protocol),
            Link::Raw => match protocol {
                IPV4 => all.masked(Width::One, self.header, 0xf0, 0x40),
                IPV6 => all.masked(Width::One, self.header, 0xf0, 0x60),
                _ => all.constant(false),
            },
            Link::Ipv4 => all.constant(protocol == IPV4),
            Link::Ipv6 => all.constant(protocol == IPV6),
            Link::Null | Link::Loop => match protocol {
                IPV4 => self.family(all, &[2]),
                // NetBSD and OpenBSD, FreeBSD, macOS.
                IPV6 => self.family(all, &[24, 28, 30]),
                _ => all.constant(false),
            },
            Link::Ppp => all.equal(Width::Two, self.kind, ppp_number(protocol)),
        })
    }

    /// Only the IP version identifies the payload after the last label.
    fn carries_behind_label(&self, all: &mut Conditions, protocol: u32) -> Option<Node> {
        let version = match protocol {
            IPV4 => 0x40,
            IPV6 => 0x60,
            _ => return None,
        };
        let bottom = all.masked(Width::One, self.network - 2, 1, 1);
        let version = all.masked(Width::One, self.network, 0xf0, version);
        Some(all.and(bottom, version))
    }

    fn ethernet_carries(&self, all: &mut Conditions, protocol: u32) -> Node {
        let kind = |all: &mut Conditions, value| all.equal(Width::Two, self.kind, value);
        match protocol {
            LLC_OSI | LLC_IP | LLC_NETBEUI => {
                let length = self.is_length(all);
                let both = all.equal(Width::Two, self.payload, protocol << 8 | protocol);
                all.and(length, both)
            }
            // By type, by LLC, by SNAP, or by 0xffff in place of the LLC header.
            LLC_IPX => {
                let ethernet = kind(all, IPX);
                let length = self.is_length(all);
                let snap = self.snap(all, 0, IPX);
                let llc = all.equal(Width::One, self.payload, LLC_IPX);
                let novell = all.equal(Width::Two, self.payload, 0xffff);
                let rest = all.or(llc, novell);
                let rest = all.or(snap, rest);
                let framed = all.and(length, rest);
                all.or(ethernet, framed)
            }
            ATALK | AARP => {
                let ethernet = kind(all, protocol);
                let length = self.is_length(all);
                let snap = self.snap(all, apple_organization(protocol), protocol);
                let framed = all.and(length, snap);
                all.or(ethernet, framed)
            }
            service if service <= LARGEST_LENGTH => {
                let length = self.is_length(all);
                let service = all.equal(Width::One, self.kind + 2, service);
                all.and(length, service)
            }
            protocol => kind(all, protocol),
        }
    }

    fn cooked_carries(&self, all: &mut Conditions, protocol: u32) -> Node {
        const NOVELL: u32 = 1;
        const LLC: u32 = 4;
        let kind = |all: &mut Conditions, value| all.equal(Width::Two, self.kind, value);
        match protocol {
            LLC_OSI | LLC_IP | LLC_NETBEUI => {
                let llc = kind(all, LLC);
                let both = all.equal(Width::Two, self.payload, protocol << 8 | protocol);
                all.and(llc, both)
            }
            LLC_IPX => {
                let ethernet = kind(all, IPX);
                let novell = kind(all, NOVELL);
                let llc = kind(all, LLC);
                let service = all.equal(Width::One, self.payload, LLC_IPX);
                let snap = self.snap(all, 0, IPX);
                let either = all.or(service, snap);
                let framed = all.and(llc, either);
                let rest = all.or(novell, framed);
                all.or(ethernet, rest)
            }
            ATALK | AARP => {
                let ethernet = kind(all, protocol);
                let llc = kind(all, LLC);
                let snap = self.snap(all, apple_organization(protocol), protocol);
                let framed = all.and(llc, snap);
                all.or(ethernet, framed)
            }
            service if service <= LARGEST_LENGTH => {
                let llc = kind(all, LLC);
                let service = all.equal(Width::One, self.payload, service);
                all.and(llc, service)
            }
            protocol => kind(all, protocol),
        }
    }

    /// Tests whether the type field of Ethernet is a length, so that an LLC header follows.
    pub(super) fn is_length(&self, all: &mut Conditions) -> Node {
        let is_type = all.compare(Width::Two, self.kind, Compare::Greater, LARGEST_LENGTH);
        all.not(is_type)
    }

    /// Tests for a SNAP header with this organization and protocol.
    fn snap(&self, all: &mut Conditions, organization: u32, protocol: u32) -> Node {
        let last = all.equal(Width::Four, self.payload + 4, organization << 16 | protocol);
        let first = all.equal(Width::Four, self.payload, 0xaaaa_0300 | organization >> 16);
        all.and(last, first)
    }

    /// Tests the address family of BSD's loopback. [`Link::Null`] accepts both byte orders, because
    /// a capture does not record the one of its host.
    fn family(&self, all: &mut Conditions, families: &[u32]) -> Node {
        let mut any = None;
        for &family in families {
            let swapped = (self.link == Link::Null).then_some(family.swap_bytes());
            for value in swapped.into_iter().chain([family]) {
                let next = all.equal(Width::Four, self.header, value);
                any = Some(any.map_or(next, |any| all.or(any, next)));
            }
        }
        any.unwrap_or_else(|| all.constant(false))
    }
}

const fn apple_organization(protocol: u32) -> u32 {
    if protocol == ATALK { 0x0008_0007 } else { 0 }
}

/// The PPP number of the protocol with this `EtherType`.
const fn ppp_number(protocol: u32) -> u32 {
    match protocol {
        IPV4 => 0x21,
        IPV6 => 0x57,
        carried::DECNET => 0x27,
        ATALK => 0x29,
        carried::XNS => 0x25,
        LLC_OSI => 0x23,
        LLC_STP => 0x31,
        LLC_IPX => 0x2b,
        other => other,
    }
}

/// Tests of bytes at a fixed offset in the frame.
impl Conditions {
    pub(super) fn equal(&mut self, width: Width, offset: u32, value: u32) -> Node {
        self.masked(width, offset, u32::MAX, value)
    }

    pub(super) fn masked(&mut self, width: Width, offset: u32, mask: u32, value: u32) -> Node {
        let subject = Subject::Load(Load { base: Base::Frame, offset, width });
        self.test(Condition::new(subject, mask, Compare::Equal, value))
    }

    pub(super) fn compare(
        &mut self,
        width: Width,
        offset: u32,
        compare: Compare,
        value: u32,
    ) -> Node {
        let subject = Subject::Load(Load { base: Base::Frame, offset, width });
        self.test(Condition::new(subject, u32::MAX, compare, value))
    }
}
