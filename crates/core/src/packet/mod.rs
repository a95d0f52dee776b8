//! Bytes to headers: a total parser that never fails, never reads past what was captured, and
//! says how far it got.

pub(crate) mod common;
mod cooked;
mod counts;
mod cursor;
mod ethernet;
mod extras;
mod frames;
mod hdlc;
mod ipv4;
mod ipv6;
mod link;
mod llc;
mod loopback;
mod mpls;
mod network;
mod nflog;
mod parse;
mod ppp;
mod radiotap;
mod transport;
mod tunnel;
mod vlan;
mod wifi;

pub use counts::KeylessCounts;
pub use extras::{Extras, tcp_flags};
pub use frames::{Frame, FrameColumns, Frames};
pub use link::LinkType;
pub use parse::{Tunnels, parse, parse_inner, parse_transport};
pub use transport::{Transport, has_ports};

/// Nested headers that are followed: VLAN tags, MPLS labels, `FabricPath`, PPI, IPv6 extension headers,
/// tunnels and the extension headers of GTP-U, all counted together. One more is a [`Fault::Contradiction`].
pub const MAX_NESTED: u8 = 16;

/// What a frame's headers say, as far as they could be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Headers {
    /// An IPv4 packet.
    V4(Ip<8>),
    /// An IPv6 packet.
    V6(Ip<32>),
    /// A sound frame without an IP header that this parser follows.
    NoKey(NoKey),
    /// A frame of a link type that this parser does not read: of this type itself, or behind PPI.
    Unread(LinkType),
    /// Bytes that end before the IP header does, or that contradict themselves.
    Malformed(Malformed),
}

/// The fields of an IP packet that keys are made from. `N` is the size of both addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ip<const N: usize> {
    /// Source address, then destination address, in network order.
    pub addresses: [u8; N],
    /// The protocol of IPv4; of IPv6 the first header that is not an extension, or the extension
    /// that could not be read where the ports are [`Ports::Unreached`].
    pub protocol: u8,
    /// Source and destination port, where there are any.
    pub ports: Ports,
}

impl<const N: usize> Ip<N> {
    /// The packet that answers this one.
    #[must_use]
    pub fn reversed(mut self) -> Self {
        self.addresses.rotate_left(N / 2);
        if let Ports::Found(ports) = &mut self.ports {
            *ports = ports.rotate_left(16);
        }
        self
    }
}

/// Source and destination port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ports {
    /// TCP, UDP or SCTP: the source port in the high half, the destination port in the low one.
    Found(u32),
    /// A non-first fragment, or a protocol without ports: both count as 0.
    Absent,
    /// The protocol has ports, but the bytes end before them or contradict themselves.
    Malformed(Malformed),
    /// An extension header of IPv6 is malformed, so that not even the protocol is known.
    Unreached(Malformed),
}

/// Why a sound frame has no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NoKey {
    /// A link type that this parser does not read.
    LinkType,
    /// ARP or RARP.
    Arp,
    /// LLC (SNAP included) that carries something else than IP.
    Llc,
    /// `PPPoE` that sets up or ends a session.
    Pppoe,
    /// PPP, in a session of `PPPoE` or without, that carries something else than IP.
    Ppp,
    /// An 802.11 frame without data: management, control, or of no payload.
    WifiControl,
    /// An encrypted 802.11 frame.
    WifiProtected,
    /// An 802.11 frame that is not one packet: a later fragment, or several packets.
    WifiParts,
    /// `MACsec`.
    Macsec,
    /// MPLS that carries something else than IP.
    Mpls,
    /// Any other protocol above the link layer.
    OtherProtocol,
    /// Headers that a program read, without a field of the key: VLAN, MAC addresses or TCP flags.
    NoFrame,
}

impl NoKey {
    /// Every reason.
    pub const ALL: [Self; 12] = [
        Self::LinkType,
        Self::Arp,
        Self::Llc,
        Self::Pppoe,
        Self::Ppp,
        Self::WifiControl,
        Self::WifiProtected,
        Self::WifiParts,
        Self::Macsec,
        Self::Mpls,
        Self::OtherProtocol,
        Self::NoFrame,
    ];
}

/// Where and why the bytes of a packet are not sound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The layer whose header could not be read.
    pub layer: Layer,
    /// The offset of that header in the frame, in bytes.
    pub offset: u32,
    /// What is wrong with it.
    pub fault: Fault,
}

/// A layer of headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Layer {
    /// Ethernet, 802.11 and what stands in front of it, LLC, Cisco HDLC, Linux cooked, NFLOG, null,
    /// loopback, or raw IP that is of no version.
    Link,
    /// VLAN or `QinQ`.
    Vlan,
    /// `PPPoE` or PPP.
    Ppp,
    /// MPLS.
    Mpls,
    /// IPv4 with its options.
    Ipv4,
    /// IPv6 with its extension headers.
    Ipv6,
    /// TCP, UDP or SCTP.
    Transport,
    /// GRE, VXLAN, Geneve, GTP-U, Teredo or IP in IP.
    Tunnel,
}

impl Layer {
    /// Every layer.
    pub const ALL: [Self; 8] = [
        Self::Link,
        Self::Vlan,
        Self::Ppp,
        Self::Mpls,
        Self::Ipv4,
        Self::Ipv6,
        Self::Transport,
        Self::Tunnel,
    ];
}

/// What is wrong with a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fault {
    /// The captured bytes end before the header does.
    Cut,
    /// The header contradicts itself: a wrong version, IHL below 5, a length that ends too early,
    /// more than [`MAX_NESTED`] headers in each other.
    Contradiction,
}

impl Fault {
    /// Every fault.
    pub const ALL: [Self; 2] = [Self::Cut, Self::Contradiction];
}
