//! `hierarchical` against the definition, node by node.

use flowgauge_core::key::{CanonicalKey, KeyKind};
use flowgauge_core::summary::Estimate;
use flowgauge_core::task::{HierarchyItem, Report};
use flowgauge_core::terms::{Hierarchy, Measure, Size, Threshold};

use super::support::{Case, Table, case, check, check_some, every_kind, key_of, options, run_once};

fn prefix(address: &[u8], bits: u8) -> Vec<u8> {
    let keep = |at: usize| (usize::from(bits).saturating_sub(8 * at)).min(8) as u32;
    let mask = |at| u8::MAX.checked_shl(8 - keep(at)).unwrap_or(0);
    address.iter().enumerate().map(|(at, byte)| byte & mask(at)).collect()
}

fn levels(step: usize, bits: u8) -> Vec<u8> {
    let mut levels: Vec<u8> = (0..=bits).step_by(step).collect();
    if levels.last() != Some(&bits) {
        levels.push(bits);
    }
    levels
}

/// A prefix of each address in the hierarchy.
type Node = Vec<(Vec<u8>, u8)>;

fn contains(node: &Node, flow: &[Vec<u8>]) -> bool {
    node.iter().zip(flow).all(|((bytes, bits), address)| prefix(address, *bits) == *bytes)
}

fn is_below(node: &Node, above: &Node) -> bool {
    node != above
        && node.iter().zip(above).all(|((bytes, bits), (other, shorter))| {
            bits >= shorter && prefix(bytes, *shorter) == *other
        })
}

/// An oracle: decides every node after all longer ones.
fn oracle(case: &Case, hierarchy: Hierarchy) -> Report {
    let threshold = case.threshold();
    let mut items = Vec::new();
    for (key_bytes, table) in &case.tables {
        let size = if *key_bytes < 16 { 4 } else { 16 };
        let step = if hierarchy == Hierarchy::Bits { 1 } else { 8 };
        let fields = case.key.kind().fields().filter(|field| field.is_address());
        let levels: Vec<_> =
            fields.map(|field| levels(step, case.key.bits(field, *key_bytes))).collect();
        let flows: Vec<(Vec<Vec<u8>>, u64)> = table
            .flows
            .iter()
            .map(|(key, weight)| {
                let count = if hierarchy == Hierarchy::Pair { 2 } else { 1 };
                let addresses = key.chunks(size).take(count).map(<[u8]>::to_vec).collect();
                (addresses, weight.by(case.by))
            })
            .collect();
        let mut nodes: Vec<Node> = Vec::new();
        for (addresses, _) in &flows {
            for &i in &levels[0] {
                match addresses.as_slice() {
                    [one] => nodes.push(vec![(prefix(one, i), i)]),
                    [one, two] => {
                        for &j in &levels[1] {
                            nodes.push(vec![(prefix(one, i), i), (prefix(two, j), j)]);
                        }
                    }
                    _ => unreachable!(),
                }
            }
        }
        let length = |node: &Node| node.iter().map(|(_, bits)| u16::from(*bits)).sum::<u16>();
        nodes.sort_by(|a, b| length(b).cmp(&length(a)).then(a.cmp(b)));
        nodes.dedup();
        let mut heavy: Vec<Node> = Vec::new();
        for node in nodes {
            let below: Vec<&Node> = heavy.iter().filter(|other| is_below(other, &node)).collect();
            let (mut total, mut discounted) = (0, 0);
            for (flow, weight) in flows.iter().filter(|(flow, _)| contains(&node, flow)) {
                total += weight;
                if !below.iter().any(|other| contains(other, flow)) {
                    discounted += weight;
                }
            }
            if discounted as f64 > threshold {
                let untracked = table.untracked.by(case.by);
                let bounded =
                    |w: u64| Estimate::between(w as f64, w as f64, (w + untracked) as f64);
                items.push(HierarchyItem {
                    source: CanonicalKey::new(&node[0].0),
                    source_bits: node[0].1,
                    destination: node.get(1).map(|(to, bits)| (CanonicalKey::new(to), *bits)),
                    total: bounded(total),
                    discounted: bounded(discounted),
                });
                heavy.push(node);
            }
        }
    }
    items.sort_by(|a, b| {
        let by_value = b.discounted.value.total_cmp(&a.discounted.value);
        let by_source = (a.source, a.source_bits).cmp(&(b.source, b.source_bits));
        by_value.then(by_source).then(a.destination.cmp(&b.destination))
    });
    Report::Hierarchical { threshold, items, truncated: 0 }
}

fn compare(case: &Case, hierarchy: Hierarchy) {
    let mut options = options();
    options.hierarchy = hierarchy;
    assert_eq!(run_once("hierarchical", &options, case), oracle(case, hierarchy));
}

/// The kinds that have all these fields.
fn with(fields: KeyKind) -> Vec<KeyKind> {
    every_kind().into_iter().filter(|kind| kind.has_all(fields)).collect()
}

/// The kinds with an address.
fn one() -> Vec<KeyKind> {
    [with(KeyKind::SOURCE), with(KeyKind::DESTINATION)].concat()
}

#[test]
fn prefixes_by_bytes_are_those_of_the_definition() {
    check(31, case(key_of(one())), |case| compare(&case, Hierarchy::Bytes));
}

#[test]
fn prefixes_by_bits_are_those_of_the_definition() {
    check(32, case(key_of(one())), |case| compare(&case, Hierarchy::Bits));
}

#[test]
fn pairs_of_prefixes_are_those_of_the_definition() {
    let keys = key_of(with(KeyKind::PAIR));
    check_some(150, 33, case(keys), |case| compare(&case, Hierarchy::Pair));
}

#[test]
fn pairs_of_many_ipv4_flows_are_those_of_the_definition() {
    // A denser universe than the random one: each byte is one of three.
    let mut state = 5u64;
    let mut byte = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        [0, 10, 200][(state >> 33) as usize % 3]
    };
    let mut flows: Vec<(Vec<u8>, Size)> = Vec::new();
    for i in 0..400 {
        let key: Vec<u8> = (0..8).map(|_| byte()).collect();
        if !flows.iter().any(|(known, _)| *known == key) {
            flows.push((key, Size { packets: 1 + 300 / (i + 1), bytes: 64 }));
        }
    }
    let table = Table { flows, ..Table::default() };
    for weight in [0, 1, 2, 3, 5, 8, 13, 40, 100, 1000] {
        let case = Case {
            key: KeyKind::PAIR.into(),
            tables: vec![(8, table.clone())],
            by: Measure::Packets,
            threshold: Threshold::Weight(weight),
            top: 1,
        };
        compare(&case, Hierarchy::Pair);
    }
}

#[test]
fn the_root_counts_packets_that_no_other_prefix_covers() {
    let flow = |n: u8| (vec![n, 0, 0, 1], Size { packets: 1, bytes: 40 });
    let table = Table { flows: (0..20).map(flow).collect(), ..Table::default() };
    let case = Case {
        key: KeyKind::SOURCE.into(),
        tables: vec![(4, table)],
        by: Measure::Packets,
        threshold: Threshold::Weight(19),
        top: 1,
    };
    let report = run_once("hierarchical", &options(), &case);
    let Report::Hierarchical { items, .. } = report else { panic!("{report:?}") };
    assert_eq!(items.len(), 1);
    assert_eq!((items[0].source.as_bytes(), items[0].source_bits), (&[0u8; 4][..], 0));
    assert_eq!(items[0].discounted, Estimate::exact(20));
}
