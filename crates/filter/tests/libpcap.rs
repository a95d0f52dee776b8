//! Filters compared with libpcap, if it is installed: `cargo test … -- --nocapture` prints its
//! version. Filters equal the programs of `tcpdump -O`; programs that libpcap's
//! optimizer has changed are compared only if that makes no difference.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::env;

#[path = "support/expressions.rs"]
mod expressions;
#[path = "support/libpcap.rs"]
mod libpcap;
mod support;

use expressions::expression;
use flowgauge_core::packet::LinkType;
use flowgauge_filter::{Filter, FilterError};
use libpcap::{Capture, Libpcap};
use support::{LINKS, Random, Sample, cell, samples};

const SEED: u64 = 7;
const TABLE: &str = include_str!("data/table.tsv");

/// Words in the errors of filters for expressions that libpcap accepts.
const REFUSED: [&str; 4] = ["negative offset", "more than 31 bits", "division by zero", "no frame"];
/// Words in the errors of libpcap for expressions that filters accept.
const ACCEPTED: [&str; 3] = ["division by zero", "modulus by zero", "more than 31 bits"];

fn libpcap() -> Option<Libpcap> {
    let libpcap = Libpcap::load();
    match &libpcap {
        Some(libpcap) => println!("compared with {}, seed {SEED}", libpcap.version()),
        None => println!("skipped: libpcap.so.0.8 is not installed"),
    }
    libpcap
}

/// Compares one expression on all samples; `Some` when both sides accept it.
fn compare(
    capture: &Capture<'_>,
    link: LinkType,
    expression: &str,
    samples: &[Sample],
) -> Option<()> {
    let ours = Filter::new(expression)
        .and_then(|mut filter| filter.prepare(link).map(|()| filter))
        .map_err(|error: FilterError| error.to_string());
    let (mut ours, theirs) = match (ours, capture.compile(expression, false)) {
        (Ok(ours), Ok(theirs)) => (ours, theirs),
        (Err(_), Err(_)) => return None,
        (Err(error), Ok(_)) => {
            let known = REFUSED.iter().any(|known| error.contains(known));
            assert!(known, "only libpcap accepts {expression:?} on {link:?}: {error}");
            return None;
        }
        (Ok(_), Err(error)) => {
            let known = ACCEPTED.iter().any(|known| error.contains(known));
            assert!(known, "libpcap rejects {expression:?} on {link:?}: {error}");
            return None;
        }
    };
    for sample in samples {
        let expected = theirs.matches(&sample.captured, sample.wire);
        let answer = ours.matches(link, &sample.captured, sample.wire);
        assert_eq!(answer, Ok(expected), "{expression:?} on {link:?}: {sample:02x?}");
    }
    Some(())
}

/// The samples, and each of them once more cut at a random place.
fn with_cut(link: LinkType, random: &mut Random) -> Vec<Sample> {
    let whole = samples(link);
    let cut = whole.iter().map(|sample| {
        let length = random.below(sample.captured.len().min(90) + 1);
        Sample { captured: sample.captured[..length].to_vec(), wire: sample.wire }
    });
    let cut: Vec<_> = cut.collect();
    whole.into_iter().chain(cut).collect()
}

#[test]
fn the_expressions_of_the_table_agree() {
    let Some(libpcap) = libpcap() else { return };
    let mut random = Random(SEED);
    let names = [
        "port domain",
        "tcp port http",
        "udp port ntp",
        "port ssh or https",
        "udp port http",
        "portrange ftp-ssh",
        "ip proto \\tcp",
        "proto gre",
        "ip6 proto ipv6-icmp",
        "port nonsense",
        "ip proto nonsense",
        "ip proto \\icmp and port 53",
    ];
    for link in LINKS {
        let capture = libpcap.open(link);
        let samples = with_cut(link, &mut random);
        let expressions = TABLE.lines().skip(1).map(|line| line.split('\t').next().unwrap());
        let both = expressions
            .chain(names)
            .filter(|expression| compare(&capture, link, expression, &samples).is_some())
            .count();
        println!("link type {}: {both} expressions accepted by both agree", link.0);
        assert!(both > 400, "{both} expressions compared on {link:?}");
    }
}

#[test]
fn random_expressions_agree() {
    const EXPRESSIONS: usize = 6_000;
    let Some(libpcap) = libpcap() else { return };
    let mut random = Random(SEED);
    let each = LINKS.map(|link| (link, libpcap.open(link), with_cut(link, &mut random)));
    let mut both = 0;
    for _ in 0..EXPRESSIONS {
        let expression = expression(&mut random, 3);
        // Half of them on Ethernet, where most of the language has a meaning.
        let (link, capture, samples) = &each[random.below(2) * random.below(LINKS.len())];
        both += usize::from(compare(capture, *link, &expression, samples).is_some());
    }
    println!("{both} of {EXPRESSIONS} random expressions were accepted by both, and agree");
    assert!(both > EXPRESSIONS / 3);
}

/// Rewrites the table of expected answers for its expressions, if `make golden` asks for it.
#[test]
fn the_table_is_written_where_it_is_asked_for() {
    if env::var_os("FLOWGAUGE_GOLDEN").is_none_or(|what| what != "write") {
        println!("skipped: FLOWGAUGE_GOLDEN=write is not set");
        return;
    }
    let libpcap = Libpcap::load().unwrap();
    let each = LINKS.map(|link| (libpcap.open(link), samples(link)));
    let mut table = format!("expression\t{}\n", LINKS.map(|link| link.0.to_string()).join("\t"));
    for line in TABLE.lines().skip(1) {
        let expression = line.split('\t').next().unwrap();
        table.push_str(expression);
        for (capture, samples) in &each {
            let cell = capture.compile(expression, false).map(|compiled| {
                let accepted = samples
                    .iter()
                    .enumerate()
                    .filter(|(_, sample)| compiled.matches(&sample.captured, sample.wire));
                cell(&accepted.map(|(index, _)| index).collect::<Vec<_>>())
            });
            table.push('\t');
            table.push_str(cell.as_deref().unwrap_or("-"));
        }
        table.push('\n');
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/table.tsv");
    std::fs::write(path, table).unwrap();
}
