//! Random expressions, mostly valid ones, with values from the sample frames.

use super::Random;

const PROTOCOLS: &[&str] = &[
    "ip", "ip6", "arp", "rarp", "tcp", "udp", "sctp", "icmp", "icmp6", "igmp", "igrp", "pim",
    "vrrp", "carp", "ah", "esp", "atalk", "aarp", "decnet", "lat", "sca", "moprc", "mopdl", "iso",
    "esis", "isis", "clnp", "l1", "l2", "iih", "lsp", "snp", "csnp", "psnp", "stp", "ipx",
    "netbeui",
];
const ACCESSED: &[&str] = &[
    "ether", "ip", "ip6", "arp", "rarp", "tcp", "udp", "sctp", "icmp", "icmp6", "igmp", "pim",
    "vrrp", "carp", "igrp", "decnet", "atalk",
];
const ADDRESSES: &[&str] = &[
    "10.0.0.1",
    "1.0.2.1",
    "204.194.23.128",
    "192.168.1.1",
    "127.0.0.1",
    "10.1",
    "224.0.0.5",
    "fe80::1",
    "ff02::1",
    "::",
    "10::2",
    "0x0a000001",
];
const NETS: &[&str] = &[
    "10.0.0.0/8",
    "192.168.0.0/16",
    "10",
    "1.0",
    "224.0.0.0/4",
    "10.0.0.0 mask 255.0.0.0",
    "fe80::/10",
    "ff00::/8",
    "::/0",
    "0.0.0.0/0",
    "128.0.0.0/1",
];
const PORTS: &[&str] = &["53", "80", "179", "67", "0", "65535", "1812", "5060", "12336"];
const RANGES: &[&str] = &["1-1023", "1024-65535", "80-80", "500-100", "53", "0-65535"];
const DIRECTIONS: &[&str] =
    &["", "", "src ", "dst ", "src or dst ", "src and dst ", "dst or src ", "dst and src "];
const MACS: &[&str] = &["ff:ff:ff:ff:ff:ff", "01:80:c2:00:00:00", "0:0:0:0:0:0", "33-33-0-0-0-1"];
const NUMBERS: &[&str] = &[
    "0",
    "1",
    "2",
    "4",
    "5",
    "6",
    "8",
    "13",
    "14",
    "15",
    "16",
    "17",
    "20",
    "31",
    "44",
    "0x45",
    "0xff",
    "58",
    "64",
    "80",
    "128",
    "255",
    "0x800",
    "1500",
    "65535",
    "0xfffffffe",
    "tcp-syn",
    "icmp-echo",
    "tcpflags",
    "010",
];
const OPERATORS: &[&str] = &["+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>"];
const RELATIONS: &[&str] = &["=", "==", "!=", "<", ">", "<=", ">="];

/// An expression of at most `depth` nested parentheses.
pub(crate) fn expression(random: &mut Random, depth: usize) -> String {
    let mut text = term(random, depth);
    for _ in 0..random.below(4) {
        let join = random.pick(&[" and ", " or ", " && ", " || ", " and ", " or "]);
        text.push_str(join);
        if random.below(6) == 0 {
            text.push_str(&identifier(random, depth));
        } else {
            text.push_str(&term(random, depth));
        }
    }
    text
}

fn identifier(random: &mut Random, depth: usize) -> String {
    let pool = *random.pick(&[&ADDRESSES, &PORTS, &NETS, &NUMBERS]);
    let one = random.pick(pool);
    match random.below(8) {
        0 => format!("not {one}"),
        1 if depth > 0 => format!("({one} or {})", random.pick(pool)),
        2 if depth > 0 => format!("({one} and not {})", random.pick(pool)),
        _ => one.to_owned(),
    }
}

fn term(random: &mut Random, depth: usize) -> String {
    match random.below(12) {
        0 => format!("not {}", term(random, depth)),
        1 => format!("!{}", term(random, depth)),
        2 | 3 if depth > 0 => format!("({})", expression(random, depth - 1)),
        _ => primitive(random, depth),
    }
}

fn primitive(random: &mut Random, depth: usize) -> String {
    let direction = random.pick(DIRECTIONS);
    match random.below(24) {
        0..=2 => random.pick(PROTOCOLS).to_owned(),
        3 | 4 => {
            let protocol = random.pick(&["", "", "ip ", "arp ", "ip6 ", "rarp "]);
            format!("{protocol}{direction}host {}", random.pick(ADDRESSES))
        }
        5 | 6 => format!("{direction}net {}", random.pick(NETS)),
        7..=9 => {
            let protocol = random.pick(&["", "tcp ", "udp ", "sctp "]);
            format!("{protocol}{direction}port {}", random.pick(PORTS))
        }
        10 => {
            let protocol = random.pick(&["", "tcp ", "udp ", "sctp "]);
            format!("{protocol}{direction}portrange {}", random.pick(RANGES))
        }
        11 => {
            let protocol = random.pick(&["", "ip ", "ip6 ", "ether ", "iso ", "isis "]);
            format!("{protocol}proto {}", random.pick(NUMBERS))
        }
        12 => format!("ether {direction}host {}", random.pick(MACS)),
        13 => random.pick(&["vlan", "vlan 100", "vlan 200", "vlan 1"]).to_owned(),
        14 => {
            random.pick(&["mpls", "mpls 16", "mpls 29", "pppoes", "pppoes 1", "pppoed"]).to_owned()
        }
        15 => {
            let kind = random.pick(&["", " i", " s", " u", " ui", " rr", " rnr", " xid", " sabme"]);
            format!("llc{kind}")
        }
        16 => {
            let protocol = random.pick(&["", "ether ", "ip ", "ip6 "]);
            let cast = random.pick(&["multicast", "broadcast"]);
            format!("{protocol}{cast}")
        }
        17 => {
            let length = random.pick(&["less", "greater"]);
            format!("{length} {}", random.pick(NUMBERS))
        }
        18 => random.pick(&["inbound", "outbound", "ifindex 1"]).to_owned(),
        19 => format!(
            "byte {} {} {}",
            random.pick(NUMBERS),
            random.pick(&["=", "<", ">"]),
            random.pick(NUMBERS)
        ),
        _ => {
            let left = arithmetic(random, depth);
            let relation = random.pick(RELATIONS);
            format!("{left} {relation} {}", arithmetic(random, depth))
        }
    }
}

fn arithmetic(random: &mut Random, depth: usize) -> String {
    if depth == 0 {
        return random.pick(&["len", "ip[0]", "4", "tcp[12]", "1"]).to_owned();
    }
    match random.below(8) {
        0 | 1 => random.pick(NUMBERS).to_owned(),
        2 => "len".to_owned(),
        3 | 4 => {
            let width = random.pick(&["", "", ":1", ":2", ":4"]);
            let index = arithmetic(random, depth - 1);
            format!("{}[{index}{width}]", random.pick(ACCESSED))
        }
        5 => format!("({})", arithmetic(random, depth - 1)),
        6 => format!("-{}", arithmetic(random, depth - 1)),
        _ => {
            let left = arithmetic(random, depth - 1);
            let operator = random.pick(OPERATORS);
            format!("{left} {operator} {}", arithmetic(random, depth - 1))
        }
    }
}
