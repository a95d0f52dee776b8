//! Headers of captured frames: a total parser that never fails, never reads beyond the captured
//! bytes, and reports how far it got.

pub(crate) mod common;
mod cursor;
mod ethernet;
mod extras;
mod frames;
mod ip;
mod link;
#[cfg(not(test))]
pub(crate) mod mixed;
mod parse;
mod tunnel;

pub use extras::{Extras, tcp_flags};
pub use flowgauge_kernel::Captured;
pub use frames::{Column, Frame, FrameColumns, Frames};
pub use ip::{Transport, has_ports};
pub use link::LinkType;
pub use parse::{Tunnels, parse, parse_inner, parse_transport};

/// Maximum number of nested headers: VLAN tags, MPLS labels, `FabricPath`, PPI, IPv6 extension
/// headers, tunnels and GTP-U extension headers, counted together. One more is a
/// [`Fault::Contradiction`].
pub const MAX_NESTED: u8 = 16;

/// The headers of a frame, as far as they could be read.
///
/// ```
/// use flowgauge_core::packet::{Headers, LinkType, Ports, parse};
///
/// let mut frame = [0; 28];
/// frame[0] = 0x45; // IPv4 with a header of 20 bytes
/// frame[9] = 17; // UDP
/// frame[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
/// frame[20..24].copy_from_slice(&[0x30, 0x39, 0, 53]);
/// let Headers::V4(ip) = parse(LinkType::IPV4, &frame) else { panic!("not IPv4") };
/// assert_eq!(ip.addresses[..4], [10, 0, 0, 1]);
/// assert_eq!(ip.ports, Ports::Found(12345 << 16 | 53));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Headers {
    /// An IPv4 packet.
    V4(Ip<8>),
    /// An IPv6 packet.
    V6(Ip<32>),
    /// A sound frame without an IP header that the parser follows.
    NoKey(NoKey),
    /// A frame of a link type that the parser does not read, on its own or behind PPI.
    Unread(LinkType),
    /// A frame that ends before its IP header does, or that contradicts itself.
    Malformed(Malformed),
}

/// The five-tuple fields of an IP packet. `N` is the number of bytes of both addresses together.
///
/// ```
/// use flowgauge_core::packet::{Ip, Ports};
///
/// let (addresses, ports) = ([10, 0, 0, 1, 10, 0, 0, 2], Ports::Found(50_000 << 16 | 443));
/// let back = Ip { addresses, protocol: 6, ports }.reversed();
/// assert_eq!(back.addresses, [10, 0, 0, 2, 10, 0, 0, 1]);
/// assert_eq!(back.ports, Ports::Found(443 << 16 | 50_000));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ip<const N: usize> {
    /// Source address, then destination address, in network order.
    pub addresses: [u8; N],
    /// The protocol of IPv4. For IPv6, the first header that is not an extension header, or the
    /// extension header that could not be read where the ports are [`Ports::Unreached`].
    pub protocol: u8,
    /// Source and destination port.
    pub ports: Ports,
}

impl<const N: usize> Ip<N> {
    /// The packet of the opposite direction: addresses and ports exchanged.
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
    /// An IPv6 extension header is malformed, so even the protocol is unknown.
    Unreached(Malformed),
}

/// Why a sound frame has no key.
///
/// ```
/// use flowgauge_core::packet::{Headers, LinkType, NoKey, parse};
///
/// let mut frame = [0; 60];
/// frame[12..14].copy_from_slice(&[0x08, 0x06]);
/// assert_eq!(parse(LinkType::ETHERNET, &frame), Headers::NoKey(NoKey::Arp));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NoKey {
    /// A link type that the parser does not read.
    LinkType,
    /// ARP or RARP.
    Arp,
    /// LLC (including SNAP) with a payload other than IP.
    Llc,
    /// A `PPPoE` discovery packet, which sets up or ends a session.
    Pppoe,
    /// PPP, with or without `PPPoE`, with a payload other than IP.
    Ppp,
    /// An 802.11 frame without data: management, control, or an empty payload.
    WifiControl,
    /// An encrypted 802.11 frame.
    WifiProtected,
    /// An 802.11 frame that is not one packet: a later fragment, or an aggregate of several
    /// packets.
    WifiParts,
    /// `MACsec`.
    Macsec,
    /// MPLS with a payload other than IP.
    Mpls,
    /// Any other protocol above the link layer.
    OtherProtocol,
    /// Headers that a program parsed itself, without a field that the key needs: VLAN, MAC
    /// addresses or TCP flags.
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

/// Where and why a packet is malformed.
///
/// ```
/// use flowgauge_core::packet::{Fault, Headers, Layer, LinkType, parse};
///
/// // The first ten bytes of an IPv4 packet.
/// let Headers::Malformed(malformed) = parse(LinkType::IPV4, &[0x45; 10]) else {
///     panic!("the header is cut")
/// };
/// assert_eq!((malformed.layer, malformed.fault), (Layer::Ipv4, Fault::Cut));
/// assert_eq!(malformed.offset, 0);
/// ```
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
    /// Ethernet, 802.11 with radiotap or PPI, LLC, Cisco HDLC, Linux cooked, NFLOG, null, loopback,
    /// or raw IP of an unknown version.
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
    /// more than [`MAX_NESTED`] nested headers.
    Contradiction,
}

impl Fault {
    /// Every fault.
    pub const ALL: [Self; 2] = [Self::Cut, Self::Contradiction];
}

/// Numbers of packets without a key, by reason. Its size is fixed, so counting never allocates.
///
/// ```
/// use flowgauge_core::packet::{Headers, KeylessCounts, LinkType, NoKey, parse};
///
/// let mut arp = [0; 42];
/// arp[12..14].copy_from_slice(&[0x08, 0x06]);
/// let mut counts = KeylessCounts::default();
/// if let Headers::NoKey(reason) = parse(LinkType::ETHERNET, &arp) {
///     counts.count_no_key(reason);
/// }
/// assert_eq!(counts.no_key_reasons().collect::<Vec<_>>(), [(NoKey::Arp, 1)]);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeylessCounts {
    malformed: [[u64; Fault::ALL.len()]; Layer::ALL.len()],
    no_key: [u64; NoKey::ALL.len()],
    unread: Option<LinkType>,
}

impl KeylessCounts {
    /// Counts a malformed packet.
    #[cold]
    pub fn count_malformed(&mut self, malformed: Malformed) {
        *self.malformed_mut(malformed.layer, malformed.fault) += 1;
    }

    /// The number of malformed packets with this layer and fault.
    pub fn malformed_mut(&mut self, layer: Layer, fault: Fault) -> &mut u64 {
        &mut self.malformed[layer as usize][fault as usize]
    }

    /// Counts a sound packet without a key.
    #[cold]
    pub fn count_no_key(&mut self, reason: NoKey) {
        *self.no_key_mut(reason) += 1;
    }

    /// Counts a packet of a link type that the parser does not read.
    #[cold]
    pub fn count_unread(&mut self, link: LinkType) {
        *self.no_key_mut(NoKey::LinkType) += 1;
        self.unread = least(self.unread, Some(link));
    }

    /// The lowest-numbered link type that the parser met and does not read.
    pub fn unread(&self) -> Option<LinkType> {
        self.unread
    }

    /// The number of sound packets without a key for this reason.
    pub fn no_key_mut(&mut self, reason: NoKey) -> &mut u64 {
        &mut self.no_key[reason as usize]
    }

    /// The number of all malformed packets.
    pub fn malformed(&self) -> u64 {
        self.malformed.iter().flatten().sum()
    }

    /// The number of all sound packets without a key.
    pub fn no_key(&self) -> u64 {
        self.no_key.iter().sum()
    }

    /// Malformed packets by layer and fault, in the order of the enums; without zero counts.
    pub fn malformed_reasons(&self) -> impl Iterator<Item = (Layer, Fault, u64)> {
        let of = |layer: Layer| {
            Fault::ALL.map(|fault| (layer, fault, self.malformed[layer as usize][fault as usize]))
        };
        Layer::ALL.into_iter().flat_map(of).filter(|(.., packets)| *packets > 0)
    }

    /// Sound packets without a key by reason, in the order of the enum; without zero counts.
    pub fn no_key_reasons(&self) -> impl Iterator<Item = (NoKey, u64)> {
        let of = |reason: NoKey| (reason, self.no_key[reason as usize]);
        NoKey::ALL.into_iter().map(of).filter(|(_, packets)| *packets > 0)
    }

    /// Adds the counts of other packets.
    pub fn add(&mut self, other: &Self) {
        let own = self.malformed.iter_mut().flatten().chain(&mut self.no_key);
        let others = other.malformed.iter().flatten().chain(&other.no_key);
        own.zip(others).for_each(|(own, other)| *own += other);
        self.unread = least(self.unread, other.unread);
    }
}

/// The lowest-numbered link type.
fn least(one: Option<LinkType>, other: Option<LinkType>) -> Option<LinkType> {
    one.into_iter().chain(other).min_by_key(|link| link.0)
}
