//! Filters and their classic BPF programs, compared with stored answers of libpcap and tested with
//! hostile text.

#![expect(clippy::unwrap_used, reason = "tests")]

#[path = "support/expressions.rs"]
mod expressions;
mod support;

use std::time::{Duration, Instant};

use expressions::expression;
use flowgauge_core::packet::LinkType;
use flowgauge_filter::{Filter, FilterError, Instruction, LONGEST_EXPRESSION};
use support::{LINKS, Random, Sample, cell, samples};

const TABLE: &str = include_str!("data/table.tsv");

/// The indices of the frames that `filter` accepts, or `None` if it cannot be used.
fn accepted(filter: &mut Filter, link: LinkType) -> Option<Vec<usize>> {
    filter.prepare(link).ok()?;
    let mut indices = Vec::new();
    for (index, sample) in samples(link).iter().enumerate() {
        if filter.matches(link, &sample.captured, sample.wire).unwrap() {
            indices.push(index);
        }
    }
    Some(indices)
}

#[test]
fn filters_give_every_answer_of_the_table() {
    let mut answers = 0;
    for line in TABLE.lines().skip(1) {
        let mut cells = line.split('\t');
        let expression = cells.next().unwrap();
        let mut filter = Filter::new(expression).ok();
        for link in LINKS {
            let answer = filter.as_mut().and_then(|filter| accepted(filter, link));
            let answer = answer.map_or("-".to_owned(), |accepted| cell(&accepted));
            assert_eq!(answer, cells.next().unwrap(), "{expression:?} on {link:?}");
            answers += 1;
        }
    }
    assert!(answers > 7_000, "{answers}");
}

/// As documented: an error, and never an answer that differs from tcpdump's.
#[test]
fn differences_from_tcpdump_are_errors() {
    for (expression, reason) in [
        ("ip protochain 6", "use 'proto'"),
        ("geneve", "udp port 6081"),
        ("host localhost", "do not resolve names"),
        ("src foo.example.org", "do not resolve names"),
        ("net loopback", "do not resolve names"),
        ("decnet host 1.2", "no IPv4 addresses"),
        ("byte 0 & 1", "'=', '<' or '>'"),
        ("ip[-1] = 0", "negative offset"),
        ("ip[2 - 3] = 0", "negative offset"),
        ("ip[0] / (1 - 1) = 1", "division by zero"),
        ("gateway snup", "do not resolve"),
        ("ip gateway snup", "do not resolve"),
        ("wlan type mgt", "link layer alone"),
        ("type mgt", "Wi-Fi"),
        ("port 0x100000050", "32 bits"),
    ] {
        let error = Filter::new(expression).unwrap_err().to_string();
        assert!(error.contains(reason), "{expression:?}: {error}");
    }
}

#[test]
fn errors_are_one_line_with_the_place() {
    let error = Filter::new("tcp prot 80").unwrap_err();
    assert!(matches!(error, FilterError::Expression { position: 4, .. }), "{error}");
    let error = Filter::new("host 10.0.0.1 and").unwrap_err();
    assert!(matches!(error, FilterError::Expression { position: 17, .. }), "{error}");
    let odd = format!("port \u{1b}[31m\n\u{202e}\0{}", "x".repeat(9999));
    let error = Filter::new(&odd).unwrap_err().to_string();
    assert!(error.len() < 300 && !error.contains(|odd: char| odd.is_control()), "{error:?}");
    assert!(!error.contains('\u{202e}'), "{error:?}");
}

#[test]
fn a_link_type_is_refused_only_if_it_lacks_the_field() {
    let mut filter = Filter::new("vlan 5 or ip").unwrap();
    assert!(filter.prepare(LinkType::ETHERNET).is_ok());
    let refused = FilterError::LinkType {
        link: LinkType::RAW,
        problem: "frames of this link type do not have VLAN tags".to_owned(),
    };
    assert_eq!(filter.matches(LinkType::RAW, &[0x45; 40], 40), Err(&refused));
    assert_eq!(filter.matches(LinkType::RAW, &[0x45; 40], 40), Err(&refused));
    let unknown = filter.prepare(LinkType(227)).unwrap_err().to_string();
    assert!(unknown.contains("link type 227 (CAN with SocketCAN headers)"), "{unknown}");
    // An expression for another link type is still read to its end.
    assert!(Filter::new("outbound and port 53").is_ok());
    assert!(matches!(Filter::new("ifindex 1 and prt 53"), Err(FilterError::Expression { .. })));
}

#[test]
fn an_address_family_may_have_either_byte_order() {
    let mut filter = Filter::new("ip or ip6").unwrap();
    for family in [2u32, 24, 28, 30] {
        for link in [LinkType::NULL, LinkType::LOOP] {
            let packet = |family: [u8; 4]| [family.as_slice(), &[0; 40]].concat();
            let network = filter.matches(link, &packet(family.to_be_bytes()), 44).unwrap();
            let little = filter.matches(link, &packet(family.to_le_bytes()), 44).unwrap();
            assert_eq!((network, little), (true, link == LinkType::NULL), "{family} {link:?}");
        }
    }
}

#[test]
fn a_packet_cut_where_the_filter_reads_is_rejected() {
    let mut port = Filter::new("tcp port 80").unwrap();
    let mut not = Filter::new("not tcp port 80").unwrap();
    let mut frame = vec![0u8; 12];
    frame.extend([0x08, 0x00, 0x45]);
    frame.resize(14 + 9, 0);
    frame.push(6);
    frame.resize(14 + 20, 0);
    frame.extend([0, 80, 0, 81]);
    for cut in 0..=frame.len() {
        // The protocol is tested first, then the fragment offset, then the source port.
        let accepted = port.matches(LinkType::ETHERNET, &frame[..cut], 60).unwrap();
        assert_eq!(accepted, cut >= 36, "{cut}");
        assert_eq!(not.matches(LinkType::ETHERNET, &frame[..cut], 60), Ok(false), "{cut}");
    }
}

#[test]
fn hostile_expressions_neither_hang_nor_overflow() {
    let long = |text: &str| text.repeat(LONGEST_EXPRESSION / text.len());
    let started = Instant::now();
    for (text, sound) in [
        (long("(").clone(), false),
        (long("not "), false),
        (format!("{}ip", "not ".repeat(60_000)), true),
        (format!("{}ip", "! ".repeat(100_001)), true),
        (format!("{}ip{}", "(".repeat(99), ")".repeat(99)), true),
        (format!("{}ip{}", "(".repeat(60_000), ")".repeat(60_000)), false),
        (format!("{}ip", long("port 1 or ").split_at(200_000).0), true),
        (format!("port 1{}", " or 1".repeat(40_000)), true),
        (format!("port 1{}", " and (1 or not 1)".repeat(10_000)), true),
        (format!("{}1 = 1", "1 + ".repeat(60_000)), true),
        (format!("{}1 = 1", "len * ".repeat(40_000)), true),
        (format!("{}1 = 1", "len % ".repeat(40_000)), false),
        (format!("{}1 = 1", "- ".repeat(90_000)), false),
        (format!("{}0", "ip[".repeat(80_000)), false),
        (format!("{}0{} = 1", "ip[".repeat(30), "]".repeat(30)), true),
        (format!("ip and {}", "( ! ".repeat(50_000)), false),
        (format!("vlan {}", "and vlan ".repeat(25_000)), true),
        (format!("mpls {}", "and mpls ".repeat(25_000)), true),
        (format!("pppoes {}", "or pppoes ".repeat(20_000)), true),
        (long(":"), false),
        (long("1:"), false),
        (long("a."), false),
        (long("-"), false),
        (long("\\"), false),
        (long("é"), false),
    ] {
        let excerpt: String = text.chars().take(30).collect();
        let filter = Filter::new(&text);
        assert_eq!(filter.is_ok(), sound, "{excerpt}: {:?}", filter.err());
        if let Ok(mut filter) = filter {
            for sample in samples(LinkType::ETHERNET).iter().take(20) {
                filter.matches(LinkType::ETHERNET, &sample.captured, sample.wire).unwrap();
            }
        }
    }
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    let error = Filter::new(&" ".repeat(LONGEST_EXPRESSION + 1)).unwrap_err();
    assert_eq!(error, FilterError::TooLong(LONGEST_EXPRESSION + 1));
}

#[test]
fn random_text_is_read_or_refused() {
    const WORDS: &[&str] = &[
        "ip",
        "tcp",
        "port",
        "host",
        "net",
        "80",
        "10.0.0.1",
        "fe80::1",
        "/",
        "8",
        "and",
        "or",
        "not",
        "(",
        ")",
        "[",
        "]",
        ":",
        "=",
        "<",
        "len",
        "vlan",
        "mask",
        "src",
        "dst",
        "proto",
        "-",
        "&",
        "+",
        "%",
        "ether",
        "1:2:3:4:5:6",
        "llc",
        "rnr",
        "broadcast",
        "\\tcp",
        "less",
        "é",
    ];
    let seed = 11;
    let mut random = Random(seed);
    let mut sound = 0;
    for _ in 0..20_000 {
        let words: Vec<_> = (0..random.below(9)).map(|_| random.pick(WORDS)).collect();
        sound += u32::from(Filter::new(&words.join(random.pick(&[" ", " ", ""]))).is_ok());
    }
    assert!(sound > 500, "seed {seed}: {sound}");
}

// Classic BPF programs accept the packets that their filters accept, and hardly any others.

const SEED: u64 = 11;

/// Runs a program on a packet as the kernel does: another machine than the one under test, written
/// from the manual page bpf(4). Jumps and the end are checked as the kernel checks them.
fn accepts(program: &[Instruction], packet: &[u8], wire: u32) -> bool {
    let (mut a, mut x, mut memory, mut at) = (0_u32, 0_u32, [0_u32; 16], 0);
    let load = |at: u64, bytes: usize| {
        let place = usize::try_from(at).unwrap();
        let bytes = packet.get(place..place + bytes)?;
        Some(bytes.iter().fold(0, |value, &byte| value << 8 | u32::from(byte)))
    };
    loop {
        let Instruction { code, jt, jf, k } = program[at];
        at += 1;
        let operand = if code & 0x08 == 0 { k } else { x };
        let bytes = [4, 2, 1, 0][usize::from(code >> 3 & 3)];
        let loaded = match code {
            0x00 => Some(k),
            0x20 | 0x28 | 0x30 => load(u64::from(k), bytes),
            0x40 | 0x48 | 0x50 => load(u64::from(x.wrapping_add(k)), bytes),
            0x60 => Some(memory[k as usize]),
            0x80 => Some(wire),
            _ => Some(a),
        };
        let Some(loaded) = loaded else { return false };
        a = loaded;
        match code {
            0x00 | 0x20 | 0x28 | 0x30 | 0x40 | 0x48 | 0x50 | 0x60 | 0x80 => {}
            0x61 => x = memory[k as usize],
            0xb1 => match load(u64::from(k), 1) {
                Some(byte) => x = 4 * (byte & 15),
                None => return false,
            },
            0x02 => memory[k as usize] = a,
            0x07 => x = a,
            0x04 | 0x0c => a = a.wrapping_add(operand),
            0x1c => a = a.wrapping_sub(x),
            0x2c => a = a.wrapping_mul(x),
            0x3c | 0x9c if x == 0 => return false,
            0x3c => a /= x,
            0x9c => a %= x,
            0x4c => a |= x,
            0x54 | 0x5c => a &= operand,
            0x6c => a <<= x,
            0x7c => a >>= x,
            0xac => a ^= x,
            0x84 => a = a.wrapping_neg(),
            0x05 => at += k as usize,
            0x15 | 0x1d => at += usize::from(if a == operand { jt } else { jf }),
            0x25 | 0x2d => at += usize::from(if a > operand { jt } else { jf }),
            0x35 | 0x3d => at += usize::from(if a >= operand { jt } else { jf }),
            0x06 => return k > 0,
            code => panic!("no instruction is {code:#x}"),
        }
    }
}

/// The results of comparisons.
#[derive(Debug, Default)]
struct Found {
    programs: usize,
    /// Expressions without a program.
    none: usize,
    /// Samples judged by both, and those that only the program accepts: where an index becomes
    /// negative, it wraps around in the kernel.
    judged: usize,
    more: usize,
}

/// Compares an expression on all samples of all link types.
fn compare(expression: &str, samples: &[(usize, Vec<Sample>)], found: &mut Found) {
    let Ok(mut filter) = Filter::new(expression) else { return };
    for (link, samples) in samples {
        let link = LINKS[*link];
        let Ok(program) = filter.classic(link) else { continue };
        let Some(program) = program else {
            found.none += 1;
            continue;
        };
        found.programs += 1;
        assert_eq!(program.last().unwrap().code, 6, "{expression:?} ends by returning");
        for sample in samples {
            let accepted = filter.matches(link, &sample.captured, sample.wire).unwrap();
            let classic = accepts(&program, &sample.captured, sample.wire);
            assert!(classic || !accepted, "{expression:?} on {link:?}: {sample:?}");
            assert!(classic == accepted || expression.contains("[len"), "{expression:?}");
            found.judged += 1;
            found.more += usize::from(classic != accepted);
        }
    }
}

fn all() -> Vec<(usize, Vec<Sample>)> {
    (0..LINKS.len()).map(|link| (link, samples(LINKS[link]))).collect()
}

#[test]
fn expressions_of_the_table_become_programs_that_accept_the_same() {
    let (samples, mut found) = (all(), Found::default());
    for line in TABLE.lines() {
        compare(line.split('\t').next().unwrap(), &samples, &mut found);
    }
    println!("{found:?}");
    // Expressions without a program shift by a number from the packet.
    assert_eq!((found.programs, found.none), (5750, 16));
    assert!(found.more < found.judged / 100_000, "{found:?}");
}

#[test]
fn random_expressions_become_programs_that_accept_the_same() {
    println!("seed {SEED}");
    let (samples, mut random, mut found) = (all(), Random(SEED), Found::default());
    for _ in 0..500 {
        compare(&expression(&mut random, 2), &samples, &mut found);
    }
    assert!(found.programs > 1000, "{found:?}");
}

#[test]
fn jumps_may_be_long() {
    let hosts: Vec<String> =
        (0..400).map(|i| format!("host 10.0.{}.{}", i / 200, i % 200)).collect();
    let mut found = Found::default();
    compare(&format!("not ({})", hosts.join(" or ")), &all(), &mut found);
    assert!(found.programs > 4 && found.none == 0, "{found:?}");
}

#[test]
fn shifts_by_a_number_from_the_packet_have_no_program() {
    let classic = |expression| Filter::new(expression).unwrap().classic(LINKS[0]).unwrap();
    assert_eq!(classic("ether[0] << ether[1] > 3"), None);
    assert!(classic("ether[0] & 1 = 0").is_some());
}
