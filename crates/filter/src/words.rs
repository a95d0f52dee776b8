//! The words of the filter language.

use super::machine::Binary;
use super::offsets::carried;

/// The protocol of a primitive, by the way to test for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    /// `ether` and its synonyms.
    Link,
    /// Carried by the link layer; the number is one of [`carried`].
    Network(u32),
    /// Carried by IPv4 or IPv6.
    Ip(u8),
    /// Carried by IPv4 only.
    Ipv4(u8),
    /// ICMP of IPv6.
    Icmp6,
    /// An OSI protocol, by its network layer protocol identifier.
    Osi(u8),
    /// Packets of IS-IS of these types.
    Isis(&'static [u8]),
}

pub(super) const IPV4: Protocol = Protocol::Network(carried::IPV4);
pub(super) const IPV6: Protocol = Protocol::Network(carried::IPV6);
pub(super) const ARP: Protocol = Protocol::Network(carried::ARP);
pub(super) const RARP: Protocol = Protocol::Network(carried::RARP);
pub(super) const OSI: Protocol = Protocol::Network(carried::LLC_OSI);
pub(super) const TCP: Protocol = Protocol::Ip(6);
pub(super) const UDP: Protocol = Protocol::Ip(17);
pub(super) const SCTP: Protocol = Protocol::Ip(132);
/// The identifier of IS-IS itself.
pub(super) const ISIS: u8 = 0x83;

/// The direction qualifier: which of the two addresses or ports of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Source,
    Destination,
    Either,
    Both,
}

/// The type qualifier: the meaning of an identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Host,
    Net,
    Port,
    PortRange,
    Protocol,
}

/// A comparison operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Relation {
    Equal,
    NotEqual,
    Greater,
    GreaterEqual,
    Less,
    LessEqual,
}

/// A token with a fixed spelling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    Protocol(Protocol),
    Source,
    Destination,
    Kind(Kind),
    Mask,
    Less,
    Greater,
    Byte,
    Broadcast,
    Multicast,
    And,
    Or,
    Not,
    Length,
    Inbound,
    Outbound,
    InterfaceIndex,
    Vlan,
    Mpls,
    PppoeDiscovery,
    PppoeSession,
    Llc,
    /// `rnr`, a type of LLC packets and a word of pf.
    ReceiverNotReady,
    /// A word for unsupported link types or features, with the reason.
    Unsupported(&'static str),
    Open,
    Close,
    OpenIndex,
    CloseIndex,
    Colon,
    Operator(Binary),
    Relation(Relation),
}

/// The token of a word of the language.
pub(super) fn keyword(text: &str) -> Option<Word> {
    use Protocol::{Icmp6, Ip, Ipv4, Isis, Link, Network, Osi};
    let protocol = match text {
        "link" | "ether" | "ppp" | "slip" | "fddi" | "tr" | "wlan" => Link,
        "ip" => IPV4,
        "ip6" => IPV6,
        "arp" => ARP,
        "rarp" => RARP,
        "tcp" => TCP,
        "udp" => UDP,
        "sctp" => SCTP,
        "icmp" => Ipv4(1),
        "igmp" => Ipv4(2),
        "igrp" => Ipv4(9),
        "vrrp" | "carp" => Ipv4(112),
        "pim" => Ip(103),
        "ah" => Ip(51),
        "esp" => Ip(50),
        "icmp6" => Icmp6,
        "atalk" => Network(carried::ATALK),
        "aarp" => Network(carried::AARP),
        "decnet" => Network(carried::DECNET),
        "lat" => Network(carried::LAT),
        "sca" => Network(carried::SCA),
        "mopdl" => Network(carried::MOP_LOAD),
        "moprc" => Network(carried::MOP_CONSOLE),
        "stp" => Network(carried::LLC_STP),
        "ipx" => Network(carried::LLC_IPX),
        "netbeui" => Network(carried::LLC_NETBEUI),
        "iso" => OSI,
        "clnp" => Osi(0x81),
        "esis" | "es-is" => Osi(0x82),
        "isis" | "is-is" => Osi(ISIS),
        "l1" => Isis(&[15, 17, 18, 24, 26]),
        "l2" => Isis(&[16, 17, 20, 25, 27]),
        "iih" => Isis(&[15, 16, 17]),
        "lsp" => Isis(&[18, 20]),
        "snp" => Isis(&[24, 25, 26, 27]),
        "csnp" => Isis(&[24, 25]),
        "psnp" => Isis(&[26, 27]),
        _ => return other_keyword(text),
    };
    Some(Word::Protocol(protocol))
}

fn other_keyword(text: &str) -> Option<Word> {
    Some(match text {
        "src" => Word::Source,
        "dst" => Word::Destination,
        "host" => Word::Kind(Kind::Host),
        "net" => Word::Kind(Kind::Net),
        "port" => Word::Kind(Kind::Port),
        "portrange" => Word::Kind(Kind::PortRange),
        "proto" => Word::Kind(Kind::Protocol),
        "mask" => Word::Mask,
        "less" => Word::Less,
        "greater" => Word::Greater,
        "byte" => Word::Byte,
        "broadcast" => Word::Broadcast,
        "multicast" => Word::Multicast,
        "and" => Word::And,
        "or" => Word::Or,
        "not" => Word::Not,
        "len" | "length" => Word::Length,
        "inbound" => Word::Inbound,
        "outbound" => Word::Outbound,
        "ifindex" => Word::InterfaceIndex,
        "vlan" => Word::Vlan,
        "mpls" => Word::Mpls,
        "pppoed" => Word::PppoeDiscovery,
        "pppoes" => Word::PppoeSession,
        "llc" => Word::Llc,
        "rnr" | "rulenum" => Word::ReceiverNotReady,
        _ => return unsupported(text).map(Word::Unsupported),
    })
}

fn unsupported(text: &str) -> Option<&'static str> {
    Some(match text {
        "protochain" => "'protochain' is not supported; use 'proto', or 'ip6[6]' and the like",
        "geneve" => "'geneve' is not supported; filter by 'udp port 6081'",
        "gateway" => "'gateway' needs host names, which filters do not resolve",
        "radio" | "type" | "subtype" | "direction" | "dir" | "address1" | "addr1" | "address2"
        | "addr2" | "address3" | "addr3" | "address4" | "addr4" | "ra" | "ta" => {
            "this word is for Wi-Fi captures, which are not supported"
        }
        "lane" | "metac" | "bcc" | "oam" | "oamf4" | "oamf4ec" | "oamf4sc" | "sc" | "ilmic"
        | "vpi" | "vci" | "connectmsg" | "metaconnect" => {
            "this word is for ATM captures, which are not supported"
        }
        "on" | "ifname" | "rset" | "ruleset" | "srnr" | "subrulenum" | "reason" | "action" => {
            "this word is for captures of pf's log, which are not supported"
        }
        "fisu" | "lssu" | "lsu" | "msu" | "hfisu" | "hlssu" | "hmsu" | "sio" | "opc" | "dpc"
        | "sls" | "hsio" | "hopc" | "hdpc" | "hsls" => {
            "this word is for SS7 captures, which are not supported"
        }
        _ => return None,
    })
}

/// The value of a named constant.
pub(super) fn constant(text: &str) -> Option<u32> {
    Some(match text {
        "icmptype" | "icmp6type" | "icmp-echoreply" => 0,
        "icmpcode" | "icmp6code" | "tcp-fin" | "icmp6-destinationunreach" => 1,
        "tcp-syn" | "icmp6-packettoobig" => 2,
        "icmp-unreach" | "icmp6-timeexceeded" => 3,
        "tcp-rst" | "icmp-sourcequench" | "icmp6-parameterproblem" => 4,
        "icmp-redirect" => 5,
        "tcp-push" | "icmp-echo" => 8,
        "icmp-routeradvert" => 9,
        "icmp-routersolicit" => 10,
        "icmp-timxceed" => 11,
        "icmp-paramprob" => 12,
        "tcpflags" | "icmp-tstamp" => 13,
        "icmp-tstampreply" => 14,
        "icmp-ireq" => 15,
        "tcp-ack" | "icmp-ireqreply" => 16,
        "icmp-maskreq" => 17,
        "icmp-maskreply" => 18,
        "tcp-urg" => 32,
        "tcp-ece" => 64,
        "tcp-cwr" | "icmp6-echo" => 128,
        "icmp6-echoreply" => 129,
        "icmp6-multicastlistenerquery" => 130,
        "icmp6-multicastlistenerreportv1" => 131,
        "icmp6-multicastlistenerdone" => 132,
        "icmp6-routersolicit" => 133,
        "icmp6-routeradvert" => 134,
        "icmp6-neighborsolicit" => 135,
        "icmp6-neighboradvert" => 136,
        "icmp6-redirect" => 137,
        "icmp6-routerrenum" => 138,
        "icmp6-nodeinformationquery" => 139,
        "icmp6-nodeinformationresponse" => 140,
        "icmp6-ineighbordiscoverysolicit" => 141,
        "icmp6-ineighbordiscoveryadvert" => 142,
        "icmp6-multicastlistenerreportv2" => 143,
        "icmp6-homeagentdiscoveryrequest" => 144,
        "icmp6-homeagentdiscoveryreply" => 145,
        "icmp6-mobileprefixsolicit" => 146,
        "icmp6-mobileprefixadvert" => 147,
        "icmp6-certpathsolicit" => 148,
        "icmp6-certpathadvert" => 149,
        "icmp6-multicastrouteradvert" => 151,
        "icmp6-multicastroutersolicit" => 152,
        "icmp6-multicastrouterterm" => 153,
        _ => return None,
    })
}

/// The number of a named `EtherType` or LLC service.
pub(super) fn carried_protocol(name: &str) -> Option<u32> {
    Some(match name {
        "aarp" => carried::AARP,
        "arp" => carried::ARP,
        "atalk" => carried::ATALK,
        "decnet" => carried::DECNET,
        "ip" => carried::IPV4,
        "ip6" => carried::IPV6,
        "lat" => carried::LAT,
        "loopback" => carried::LOOPBACK,
        "mopdl" => carried::MOP_LOAD,
        "moprc" => carried::MOP_CONSOLE,
        "rarp" => carried::RARP,
        "sca" => carried::SCA,
        "iso" => carried::LLC_OSI,
        "stp" => carried::LLC_STP,
        "ipx" => carried::LLC_IPX,
        "netbeui" => carried::LLC_NETBEUI,
        _ => return None,
    })
}
