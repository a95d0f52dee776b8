//! Names of protocols, ports, header faults and keys.

use std::net::IpAddr;

use flowgauge_core::key::{CanonicalKey, Field, Fields, KeyKind, KeySpec, TcpFlags};
use flowgauge_core::packet::{Fault, Layer, NoKey};
use flowgauge_core::summary::QuantileOf;
use flowgauge_core::task::Side;

/// The name of an IP protocol, if it is well known.
pub(super) fn protocol_name(protocol: u8) -> Option<&'static str> {
    Some(match protocol {
        0 => "hop-by-hop",
        1 => "icmp",
        2 => "igmp",
        4 => "ipv4",
        6 => "tcp",
        17 => "udp",
        33 => "dccp",
        41 => "ipv6",
        43 => "routing",
        44 => "fragment",
        46 => "rsvp",
        47 => "gre",
        50 => "esp",
        51 => "ah",
        58 => "icmpv6",
        59 => "no-next",
        60 => "options",
        88 => "eigrp",
        89 => "ospf",
        94 => "ipip",
        97 => "etherip",
        103 => "pim",
        108 => "ipcomp",
        112 => "vrrp",
        115 => "l2tp",
        124 => "isis",
        132 => "sctp",
        135 => "mobility",
        136 => "udplite",
        137 => "mpls",
        _ => return None,
    })
}

/// The name of a protocol, or its number.
pub(super) fn protocol(protocol: u8) -> String {
    protocol_name(protocol).map_or_else(|| format!("protocol {protocol}"), str::to_owned)
}

/// The name of a port's usual service, if it is well known.
pub(super) fn service_name(port: u16) -> Option<&'static str> {
    Some(match port {
        7 => "echo",
        19 => "chargen",
        20 => "ftp-data",
        21 => "ftp",
        22 => "ssh",
        23 => "telnet",
        25 => "smtp",
        37 => "time",
        43 => "whois",
        49 => "tacacs",
        53 => "dns",
        67 | 68 => "dhcp",
        69 => "tftp",
        79 => "finger",
        80 => "http",
        88 => "kerberos",
        102 => "iso-tsap",
        110 => "pop3",
        111 => "rpcbind",
        119 => "nntp",
        123 => "ntp",
        135 => "msrpc",
        137..=139 => "netbios",
        143 => "imap",
        161 | 162 => "snmp",
        179 => "bgp",
        389 => "ldap",
        443 => "https",
        445 => "smb",
        465 | 587 => "submission",
        500 | 4500 => "ipsec",
        502 => "modbus",
        514 => "syslog",
        515 => "lpd",
        520 => "rip",
        546 | 547 => "dhcpv6",
        554 => "rtsp",
        631 => "ipp",
        636 => "ldaps",
        853 => "dns-tls",
        873 => "rsync",
        993 => "imaps",
        995 => "pop3s",
        1080 => "socks",
        1194 => "openvpn",
        1433 => "mssql",
        1521 => "oracle",
        1701 => "l2tp",
        1723 => "pptp",
        1812 | 1813 => "radius",
        1883 => "mqtt",
        1900 => "ssdp",
        2049 => "nfs",
        2123 | 2152 => "gtp",
        3074 => "xbox",
        3128 => "http-proxy",
        3268 => "ldap-gc",
        3306 => "mysql",
        3389 => "rdp",
        3478 => "stun",
        4789 => "vxlan",
        5060 | 5061 => "sip",
        5222 => "xmpp",
        5353 => "mdns",
        5355 => "llmnr",
        5432 => "postgresql",
        5672 => "amqp",
        5900 => "vnc",
        6081 => "geneve",
        6379 => "redis",
        6443 => "kubernetes",
        6667 => "irc",
        6881 => "bittorrent",
        8080 => "http-alt",
        8443 => "https-alt",
        9092 => "kafka",
        9100 => "printer",
        9200 => "elasticsearch",
        11211 => "memcached",
        20000 => "dnp3",
        25565 => "minecraft",
        27017 => "mongodb",
        51820 => "wireguard",
        _ => return None,
    })
}

/// A reason for `no_key`: its name in JSON, and in words.
pub(crate) fn no_key(reason: NoKey) -> (&'static str, &'static str) {
    match reason {
        NoKey::LinkType => ("link-type", "of an unsupported link type"),
        NoKey::Arp => ("arp", "ARP"),
        NoKey::Llc => ("llc", "LLC without IP"),
        NoKey::Pppoe => ("pppoe", "PPPoE discovery"),
        NoKey::Ppp => ("ppp", "PPP without IP"),
        NoKey::WifiControl => ("wifi-control", "802.11 management and control"),
        NoKey::WifiProtected => ("wifi-protected", "encrypted 802.11"),
        NoKey::WifiParts => ("wifi-parts", "802.11 fragments and aggregates"),
        NoKey::Macsec => ("macsec", "MACsec"),
        NoKey::Mpls => ("mpls", "MPLS without IP"),
        NoKey::OtherProtocol => ("other-protocol", "of another protocol"),
        NoKey::NoFrame => ("no-frame", "given as headers, without a field of the key"),
    }
}

/// A layer of headers: its name in JSON, and in words.
pub(crate) fn layer(layer: Layer) -> (&'static str, &'static str) {
    match layer {
        Layer::Link => ("link", "link-layer"),
        Layer::Vlan => ("vlan", "VLAN"),
        Layer::Ppp => ("ppp", "PPP"),
        Layer::Mpls => ("mpls", "MPLS"),
        Layer::Ipv4 => ("ipv4", "IPv4"),
        Layer::Ipv6 => ("ipv6", "IPv6"),
        Layer::Transport => ("transport", "transport"),
        Layer::Tunnel => ("tunnel", "tunnel"),
    }
}

/// A fault of a header: its name in JSON, and in words before "header".
pub(crate) fn fault(fault: Fault) -> (&'static str, &'static str) {
    match fault {
        Fault::Cut => ("cut", "cut short in the"),
        Fault::Contradiction => ("contradiction", "with a contradictory"),
    }
}

/// An address, with the prefix length if the key has only a prefix.
pub(super) fn address(spec: KeySpec, field: Field, address: IpAddr) -> String {
    match spec.prefix_of(field, address) {
        Some(bits) => format!("{address}/{bits}"),
        None => address.to_string(),
    }
}

/// The word for a key of this kind, singular and plural.
pub(super) fn key_words(kind: KeyKind) -> (&'static str, &'static str) {
    match kind {
        KeyKind::SOURCE => ("source", "sources"),
        KeyKind::DESTINATION => ("destination", "destinations"),
        KeyKind::HOST => ("host", "hosts"),
        KeyKind::PAIR => ("pair", "pairs"),
        KeyKind::CONVERSATION => ("conversation", "conversations"),
        KeyKind::PROTOCOL => ("protocol", "protocols"),
        KeyKind::SOURCE_PORT => ("source port", "source ports"),
        KeyKind::DESTINATION_PORT => ("destination port", "destination ports"),
        kind => match kind.name() {
            Some("vlan") => ("VLAN", "VLANs"),
            Some("tcp-flags") => ("set of TCP flags", "sets of TCP flags"),
            Some("source-mac") => ("source MAC address", "source MAC addresses"),
            Some("destination-mac") => ("destination MAC address", "destination MAC addresses"),
            Some("mac") => ("MAC address", "MAC addresses"),
            _ => ("flow", "flows"),
        },
    }
}

/// The fields of a key other than endpoints and protocol, each in words.
pub(super) fn others(fields: &Fields) -> Vec<String> {
    let vlan = fields.vlan.map(|vlan| match vlan {
        0 => "untagged".to_owned(),
        vlan => format!("VLAN {vlan}"),
    });
    let macs = match (fields.source_mac.or(fields.mac), fields.destination_mac) {
        (Some(source), Some(destination)) => Some(format!("{source} → {destination}")),
        (mac, other) => mac.or(other).map(|mac| mac.to_string()),
    };
    let flags = fields.tcp_flags.map(|flags| match flags {
        TcpFlags(0) => "no TCP flags".to_owned(),
        flags => flags.to_string(),
    });
    [macs, vlan, flags].into_iter().flatten().collect()
}

/// The addresses of a key, by their fields.
pub(super) fn addresses(fields: &Fields) -> impl Iterator<Item = (Field, IpAddr)> {
    let all = [
        (Field::Source, fields.source),
        (Field::Destination, fields.destination),
        (Field::Host, fields.host),
    ];
    all.into_iter().filter_map(|(field, address)| Some((field, address?)))
}

/// The fields of an item that is a single address, for any key.
pub(super) fn address_fields(spec: KeySpec, side: Side, key: &CanonicalKey) -> Fields {
    spec.alone(side.address()).fields(key.as_bytes())
}

/// A prefix of a hierarchy, such as `10.0.0.0/8`.
pub(super) fn prefix(address: &CanonicalKey, bits: u8) -> String {
    let fields = KeySpec::from(KeyKind::SOURCE).fields(address.as_bytes());
    fields.source.map_or_else(String::new, |address| format!("{address}/{bits}"))
}

/// The quantity of quantiles, as one word.
pub(super) fn quantiles(of: QuantileOf) -> &'static str {
    match of {
        QuantileOf::FlowPackets => "flow-packets",
        QuantileOf::FlowBytes => "flow-bytes",
        QuantileOf::Key => "key",
        QuantileOf::PacketBytes => "packet-bytes",
        QuantileOf::GapNs => "gap-ns",
    }
}
