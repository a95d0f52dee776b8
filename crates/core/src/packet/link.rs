//! Link types, by the numbers of the registry that pcap and pcapng share.

use std::fmt;

/// What the first bytes of a frame are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinkType(pub u16);

impl LinkType {
    /// BSD loopback: the address family in the byte order of the capturing host.
    pub const NULL: Self = Self(0);
    /// Ethernet.
    pub const ETHERNET: Self = Self(1);
    /// PPP, with or without HDLC-like framing.
    pub const PPP: Self = Self(9);
    /// Raw IP by the number that most systems use inside, which some files carry.
    pub const DLT_RAW: Self = Self(12);
    /// Raw IP by the number that `OpenBSD` uses inside, which some files carry.
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
    /// PPP behind a byte that tells the direction.
    pub const PPP_WITH_DIR: Self = Self(204);
    /// Raw IPv4.
    pub const IPV4: Self = Self(228);
    /// Raw IPv6.
    pub const IPV6: Self = Self(229);
    /// Packets that Linux's netfilter logged.
    pub const NFLOG: Self = Self(239);
    /// Linux cooked capture, version 2.
    pub const LINUX_SLL2: Self = Self(276);
}

impl LinkType {
    /// What the registry calls a well-known one.
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
    /// The number, and the name of a well-known one.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(out, "{} ({name})", self.0),
            None => write!(out, "{}", self.0),
        }
    }
}
