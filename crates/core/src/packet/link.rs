//! Link types, by the numbers of the registry that pcap and pcapng share, and their headers.

use std::fmt;

use super::cursor::Cursor;
use super::ip::Network;
use super::{Layer, Malformed, NoKey, ethernet};

/// The protocol of a frame's first header.
///
/// ```
/// use flowgauge_core::packet::LinkType;
///
/// assert_eq!(LinkType(113), LinkType::LINUX_SLL);
/// assert_eq!(LinkType(113).to_string(), "113 (Linux cooked capture)");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinkType(pub u16);

impl LinkType {
    /// BSD loopback: the address family in the byte order of the capturing host.
    pub const NULL: Self = Self(0);
    /// Ethernet.
    pub const ETHERNET: Self = Self(1);
    /// PPP, with or without HDLC-like framing.
    pub const PPP: Self = Self(9);
    /// Raw IP, by the number that most systems use internally; some files carry it.
    pub const DLT_RAW: Self = Self(12);
    /// Raw IP, by the number that `OpenBSD` uses internally; some files carry it.
    pub const DLT_RAW_OPENBSD: Self = Self(14);
    /// PPP in HDLC-like framing, or Cisco HDLC.
    pub const PPP_HDLC: Self = Self(50);
    /// A session of `PPPoE` without its Ethernet header.
    pub const PPP_ETHER: Self = Self(51);
    /// Raw IP, version 4 or 6 by its first bits.
    pub const RAW: Self = Self(101);
    /// Cisco HDLC.
    pub const C_HDLC: Self = Self(104);
    /// IEEE 802.11.
    pub const IEEE802_11: Self = Self(105);
    /// `OpenBSD` loopback: the address family in network order.
    pub const LOOP: Self = Self(108);
    /// Linux cooked capture.
    pub const LINUX_SLL: Self = Self(113);
    /// IEEE 802.11 behind radiotap.
    pub const IEEE802_11_RADIOTAP: Self = Self(127);
    /// PPI, mostly in front of IEEE 802.11.
    pub const PPI: Self = Self(192);
    /// PPP behind a direction byte.
    pub const PPP_WITH_DIR: Self = Self(204);
    /// Raw IPv4.
    pub const IPV4: Self = Self(228);
    /// Raw IPv6.
    pub const IPV6: Self = Self(229);
    /// Packets logged by Linux's netfilter.
    pub const NFLOG: Self = Self(239);
    /// Linux cooked capture, version 2.
    pub const LINUX_SLL2: Self = Self(276);
}

impl LinkType {
    /// The registry's name of a well-known link type.
    fn name(self) -> Option<&'static str> {
        Some(match self.0 {
            0 => "BSD loopback",
            1 => "Ethernet",
            3 => "AX.25",
            6 => "Token Ring",
            7 => "ARCNET",
            8 => "SLIP",
            9 => "PPP",
            10 => "FDDI",
            50 => "PPP in HDLC-like framing",
            51 => "PPPoE",
            100 => "LLC in ATM",
            12 | 14 | 101 => "raw IP",
            104 => "Cisco HDLC",
            105 => "IEEE 802.11",
            106 => "Classical IP over ATM",
            107 => "Frame Relay",
            108 => "OpenBSD loopback",
            113 => "Linux cooked capture",
            117 => "OpenBSD pflog",
            119 => "IEEE 802.11 with Prism headers",
            122 => "IP over Fibre Channel",
            123 => "SunATM",
            127 => "IEEE 802.11 with radiotap headers",
            129 => "Linux ARCNET",
            130..=137 | 164 | 167 | 168 | 174 | 178..=181 | 183 | 194 | 200 | 232..=234 | 238 => {
                "Juniper Networks"
            }
            138 => "IP over IEEE 1394",
            139 => "MTP2 with headers",
            140 => "MTP2",
            141 => "MTP3",
            143 => "DOCSIS",
            144 => "Linux IrDA",
            147..=162 => "private use",
            163 => "IEEE 802.11 with AVS headers",
            165 => "BACnet MS/TP",
            166 => "PPP of pppd",
            169 => "GPRS LLC",
            175 => "Endace ERF of Ethernet",
            176 => "Endace ERF of SONET",
            177 => "Linux LAPD",
            182 => "Multilink Frame Relay",
            186 => "FreeBSD USB",
            187 => "Bluetooth HCI",
            189 => "Linux USB",
            192 => "PPI",
            195 => "IEEE 802.15.4",
            197 => "Endace ERF",
            201 => "Bluetooth HCI with directions",
            202 => "AX.25 with KISS headers",
            204 => "PPP with directions",
            205 => "Cisco HDLC with directions",
            206 => "Frame Relay with directions",
            207 => "LAPB with directions",
            209 => "Linux I2C",
            210 => "FlexRay",
            212 => "LIN",
            215 => "IEEE 802.15.4 with PHY headers",
            219 => "MPLS",
            220 => "Linux USB, memory-mapped",
            224 => "Fibre Channel",
            225 => "Fibre Channel with delimiters",
            226 => "Solaris ipnet",
            227 => "CAN with SocketCAN headers",
            228 => "raw IPv4",
            229 => "raw IPv6",
            230 => "IEEE 802.15.4 without FCS",
            231 => "D-Bus",
            239 => "Linux NFLOG",
            240 => "Ethernet with netANALYZER headers",
            241 => "Ethernet with netANALYZER headers and preambles",
            242 => "IP over InfiniBand",
            243 => "MPEG-2 transport stream",
            247 => "InfiniBand",
            248 => "SCTP",
            249 => "USBPcap",
            251 => "Bluetooth Low Energy",
            252 => "upper protocols of Wireshark",
            253 => "Linux Netlink",
            254 => "Bluetooth Linux Monitor",
            256 => "Bluetooth Low Energy with radio headers",
            258 => "Apple PKTAP",
            266 => "Darwin USB",
            276 => "Linux cooked capture, version 2",
            281 => "Ethernet with Broadcom switch tags",
            282 => "Ethernet behind Broadcom switch tags",
            283 => "IEEE 802.15.4 with TAP headers",
            284 => "Ethernet with Marvell DSA switch tags",
            285 => "Ethernet with Marvell EDSA switch tags",
            _ => return None,
        })
    }
}

impl fmt::Display for LinkType {
    /// Writes the number, and the name of a well-known link type.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(out, "{} ({name})", self.0),
            None => write!(out, "{}", self.0),
        }
    }
}

/// Moves to the first header above the link layer.
pub(super) fn read(link: LinkType, cursor: &mut Cursor<'_>) -> Result<Network, Malformed> {
    match link {
        LinkType::ETHERNET => ethernet::read(cursor),
        LinkType::RAW | LinkType::DLT_RAW | LinkType::DLT_RAW_OPENBSD => raw(cursor),
        LinkType::IPV4 => Ok(Network::Ipv4),
        LinkType::IPV6 => Ok(Network::Ipv6),
        LinkType::LINUX_SLL => cooked_v1(cursor),
        LinkType::LINUX_SLL2 => cooked_v2(cursor),
        LinkType::NULL => bsd_loopback(cursor),
        LinkType::LOOP => openbsd_loopback(cursor),
        LinkType::PPP => ethernet::ppp(cursor),
        LinkType::PPP_HDLC => ethernet::serial(cursor),
        LinkType::PPP_ETHER => ethernet::pppoe(cursor),
        LinkType::PPP_WITH_DIR => {
            cursor.skip(1, Layer::Link)?;
            ethernet::ppp(cursor)
        }
        LinkType::C_HDLC => ethernet::cisco_hdlc(cursor),
        LinkType::NFLOG => nflog(cursor),
        LinkType::IEEE802_11 => wifi(cursor, false),
        LinkType::IEEE802_11_RADIOTAP => radiotap(cursor),
        LinkType::PPI => ppi(cursor),
        link => Ok(Network::Unread(link)),
    }
}

/// Raw IP: a frame that does not begin with an IP header is wrong.
fn raw(cursor: &Cursor<'_>) -> Result<Network, Malformed> {
    match Network::by_version(cursor, Layer::Link, NoKey::OtherProtocol)? {
        Network::Other(_) => Err(cursor.contradiction(Layer::Link)),
        ip => Ok(ip),
    }
}

fn cooked_v1(cursor: &mut Cursor<'_>) -> Result<Network, Malformed> {
    let &[.., high, low] = cursor.take::<16>(Layer::Link)?;
    cooked_payload(cursor, u16::from_be_bytes([high, low]))
}

fn cooked_v2(cursor: &mut Cursor<'_>) -> Result<Network, Malformed> {
    let &[high, low, ..] = cursor.take::<20>(Layer::Link)?;
    cooked_payload(cursor, u16::from_be_bytes([high, low]))
}

/// The protocol of a Linux cooked capture is an `EtherType`, or one of Linux's own small numbers.
fn cooked_payload(cursor: &mut Cursor<'_>, protocol: u16) -> Result<Network, Malformed> {
    match protocol {
        // Novell's form of IEEE 802.3.
        1 => Ok(Network::Other(NoKey::Llc)),
        4 => ethernet::llc(cursor),
        ..1536 => Ok(Network::Other(NoKey::OtherProtocol)),
        ether_type => ethernet::payload(cursor, ether_type),
    }
}

/// BSD loopback: the address family in the byte order of the capturing host, which the file does
/// not state reliably.
fn bsd_loopback(cursor: &mut Cursor<'_>) -> Result<Network, Malformed> {
    let family = u32::from_be_bytes(*cursor.take(Layer::Link)?);
    // Families are below 256, so only one byte order makes sense.
    Ok(loopback_payload(family.min(family.swap_bytes())))
}

/// `OpenBSD` loopback: the address family in network order.
fn openbsd_loopback(cursor: &mut Cursor<'_>) -> Result<Network, Malformed> {
    let family = u32::from_be_bytes(*cursor.take(Layer::Link)?);
    Ok(loopback_payload(family))
}

fn loopback_payload(family: u32) -> Network {
    match family {
        2 => Network::Ipv4,
        // Linux, then NetBSD and OpenBSD, FreeBSD, Darwin.
        10 | 24 | 28 | 30 => Network::Ipv6,
        _ => Network::Other(NoKey::OtherProtocol),
    }
}

/// NFLOG: a header and attributes. One attribute is the packet. Lengths and types are in the byte
/// order of the capturing host; types are below 256, so only one byte order makes sense.
fn nflog(cursor: &mut Cursor<'_>) -> Result<Network, Malformed> {
    const IPV4: u8 = 2;
    const ARP: u8 = 3;
    const IPV6: u8 = 10;
    /// The type of the attribute that holds the packet.
    const PAYLOAD: u16 = 9;

    let &[family, version, _, _] = cursor.peek(Layer::Link)?;
    if version != 0 {
        return Err(cursor.contradiction(Layer::Link));
    }
    cursor.at += 4;
    loop {
        let &[one, other, first, last] = cursor.peek(Layer::Link)?;
        let number: fn([u8; 2]) -> u16 =
            if first == 0 { u16::from_be_bytes } else { u16::from_le_bytes };
        let length = usize::from(number([one, other]));
        if length < 4 {
            return Err(cursor.contradiction(Layer::Link));
        }
        if number([first, last]) == PAYLOAD {
            cursor.bound(length);
            cursor.at += 4;
            return Ok(match family {
                IPV4 => Network::Ipv4,
                IPV6 => Network::Ipv6,
                ARP => Network::Other(NoKey::Arp),
                _ => Network::Other(NoKey::OtherProtocol),
            });
        }
        cursor.skip(length.next_multiple_of(4), Layer::Link)?;
    }
}

/// IEEE 802.11: moves to the packet of a data frame. The header is padded to whole words where
/// `padded` is set.
fn wifi(cursor: &mut Cursor<'_>, padded: bool) -> Result<Network, Malformed> {
    // Version, type and subtype, in the first byte of the header.
    const VERSION: u8 = 0x03;
    const TYPE: u8 = 0x0c;
    const DATA: u8 = 0x08;
    const WITHOUT_DATA: u8 = 0x40;
    const QOS: u8 = 0x80;
    // Flags, in the second byte.
    const BOTH_SYSTEMS: u8 = 0x03;
    const PROTECTED: u8 = 0x40;
    const HIGH_THROUGHPUT: u8 = 0x80;
    /// The fragment number, in the first byte of sequence control.
    const FRAGMENT: u8 = 0x0f;
    /// In the first byte of QoS control: the frame carries several packets.
    const AGGREGATE: u8 = 0x80;

    let &[kind, flags] = cursor.peek(Layer::Link)?;
    if kind & VERSION != 0 {
        return Err(cursor.contradiction(Layer::Link));
    }
    if kind & TYPE != DATA || kind & WITHOUT_DATA != 0 {
        return Ok(Network::Other(NoKey::WifiControl));
    }
    if flags & PROTECTED != 0 {
        return Ok(Network::Other(NoKey::WifiProtected));
    }
    let start = cursor.at;
    // Control, duration, three addresses, sequence control; a fourth address between access points.
    let &[.., sequence, _] = cursor.take::<24>(Layer::Link)?;
    if flags & BOTH_SYSTEMS == BOTH_SYSTEMS {
        cursor.skip(6, Layer::Link)?;
    }
    let mut parts = sequence & FRAGMENT != 0;
    if kind & QOS != 0 {
        let &[control, _] = cursor.take(Layer::Link)?;
        parts |= control & AGGREGATE != 0;
        if flags & HIGH_THROUGHPUT != 0 {
            cursor.skip(4, Layer::Link)?;
        }
    }
    if parts {
        return Ok(Network::Other(NoKey::WifiParts));
    }
    if padded {
        cursor.at = start + (cursor.at - start).next_multiple_of(4);
    }
    ethernet::llc(cursor)
}

/// Radiotap, which describes the reception of the 802.11 frame behind it. Fields follow all words
/// of the presence mask and are aligned relative to the first byte.
fn radiotap(cursor: &mut Cursor<'_>) -> Result<Network, Malformed> {
    // Bits of the presence mask.
    const TIME: u32 = 1;
    const FLAGS: u32 = 2;
    const ANOTHER_WORD: u32 = 1 << 31;
    /// In the flags field: the frame's header is padded to whole words.
    const PADDED: u8 = 0x20;

    let &[version, _, low, high, ref present @ ..] = cursor.peek::<8>(Layer::Link)?;
    let length = usize::from(u16::from_le_bytes([low, high]));
    if version != 0 || length < 8 {
        return Err(cursor.contradiction(Layer::Link));
    }
    let mut field = cursor.clone();
    field.bound(length);
    cursor.skip(length, Layer::Link)?;

    let first = u32::from_le_bytes(*present);
    let start = field.at;
    field.at += 4;
    while u32::from_le_bytes(*field.take(Layer::Link)?) & ANOTHER_WORD != 0 {}
    if first & FLAGS == 0 {
        return wifi(cursor, false);
    }
    if first & TIME != 0 {
        field.at = start + (field.at - start).next_multiple_of(8) + 8;
    }
    let &[flags] = field.peek(Layer::Link)?;
    wifi(cursor, flags & PADDED != 0)
}

/// PPI, which names the link type of the frame behind it.
fn ppi(cursor: &mut Cursor<'_>) -> Result<Network, Malformed> {
    let &[version, _, low, high, ref link @ ..] = cursor.peek::<8>(Layer::Link)?;
    let length = usize::from(u16::from_le_bytes([low, high]));
    let Ok(link) = u16::try_from(u32::from_le_bytes(*link)) else {
        return Err(cursor.contradiction(Layer::Link));
    };
    if version != 0 || length < 8 {
        return Err(cursor.contradiction(Layer::Link));
    }
    cursor.nest(Layer::Link)?;
    cursor.skip(length, Layer::Link)?;
    read(LinkType(link), cursor)
}
