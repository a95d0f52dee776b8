//! Classic BPF programs accept the packets that their filters accept, and hardly any others.
#![expect(clippy::unwrap_used, reason = "tests")]
#![allow(dead_code, reason = "what is shared serves other tests too")]

#[path = "support/expressions.rs"]
mod expressions;
mod support;

use expressions::expression;
use flowgauge_filter::{Filter, Instruction};
use support::{LINKS, Random, Sample, samples};

const TABLE: &str = include_str!("data/table.tsv");
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
