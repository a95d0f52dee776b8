//! Tasks that group flows by address: `top-sources`, `top-destinations`, `superspreaders` and
//! `victims`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use flowgauge_core::key::{CanonicalKey, Field, KeyKind};
use flowgauge_core::summary::{Estimate, SizeEstimate};
use flowgauge_core::task::{AddressItem, Report, Side, SpreadItem};
use flowgauge_core::terms::{Measure, Size, SpreadOf, Threshold};

use super::support::{Case, Table, case, check, every_kind, key_of, options, run_once};

/// Sums by plain counting.
fn sums_oracle(case: &Case, side: Side) -> Report {
    let mut items = Vec::new();
    for (key_bytes, table) in &case.tables {
        let bytes = if *key_bytes < 16 { 4 } else { 16 };
        let first = side == Side::Source || !case.key.kind().has(Field::Source);
        let mut sums: BTreeMap<CanonicalKey, (Size, u64)> = BTreeMap::new();
        for (key, size) in &table.flows {
            let address = if first { &key[..bytes] } else { &key[bytes..2 * bytes] };
            let (sum, flows) = sums.entry(CanonicalKey::new(address)).or_default();
            *sum += *size;
            *flows += 1;
        }
        for (address, (sum, flows)) in sums {
            let size = SizeEstimate::between(sum, sum, sum + table.untracked);
            let share = case.context().share(sum.by(case.by) as f64);
            items.push(AddressItem { address, size, flows, share });
        }
    }
    let value = |item: &AddressItem| item.size.by(case.by).unwrap().value;
    items.sort_by(|a, b| value(b).total_cmp(&value(a)).then(a.address.cmp(&b.address)));
    items.truncate(case.top);
    Report::Addresses { side, items, truncated: 0 }
}

fn compare_sums(case: &Case) {
    for (name, side) in [("top-sources", Side::Source), ("top-destinations", Side::Destination)] {
        if !case.key.kind().has(side.address()) {
            continue;
        }
        assert_eq!(run_once(name, &options(), case), sums_oracle(case, side), "{name}");
    }
}

#[test]
fn sums_agree_with_plain_counting() {
    let more =
        every_kind().into_iter().filter(|kind| kind.has_addresses() && kind.fields().count() > 1);
    let keys = key_of(more.collect());
    check(12, case(keys), |case| compare_sums(&case));
}

/// With equal addresses no bucket stands out; with one dominant address the floor is far above the
/// others.
#[test]
fn even_and_uneven_traffic_is_summed_up_alike() {
    for heavy in [1, 1_000_000] {
        let flow = |n: u32| {
            let mut key = (n % 5_000).to_be_bytes().to_vec();
            key.extend((n / 5_000).to_be_bytes());
            (key, Size { packets: if n == 777 { heavy } else { 1 }, bytes: 64 })
        };
        let table = Table { flows: (0..20_000).map(flow).collect(), ..Table::default() };
        for (top, by) in [(1, Measure::Packets), (10, Measure::Bytes), (30_000, Measure::Packets)] {
            compare_sums(&Case {
                key: KeyKind::PAIR.into(),
                tables: vec![(8, table.clone())],
                by,
                threshold: Threshold::Weight(0),
                top,
            });
        }
    }
}

// `superspreaders` and `victims`.

fn canonical(address: IpAddr) -> CanonicalKey {
    match address {
        IpAddr::V4(v4) => CanonicalKey::new(&v4.octets()),
        IpAddr::V6(v6) => CanonicalKey::new(&v6.octets()),
    }
}

/// The fields of a peer that are compared.
type Peer = (Option<IpAddr>, Option<u16>);

/// An oracle: distinct peers as sets of fields.
fn spread_oracle(case: &Case, victims: bool, more_than: u64, of: SpreadOf) -> Report {
    let mut items = Vec::new();
    for (_, table) in &case.tables {
        let mut peers = BTreeMap::<IpAddr, BTreeSet<Peer>>::new();
        for (key, _) in &table.flows {
            let fields = case.key.fields(key);
            let source = (fields.source, fields.source_port);
            let destination = (fields.destination, fields.destination_port);
            let (this, peer) = if victims { (destination, source) } else { (source, destination) };
            let (address, port) = (
                peer.0.filter(|_| of != SpreadOf::Port),
                peer.1.filter(|_| of != SpreadOf::Address),
            );
            peers.entry(this.0.unwrap()).or_default().insert((address, port));
        }
        for (address, peers) in peers {
            let distinct = peers.len() as u64;
            if distinct > more_than {
                let high = (distinct + table.untracked.packets) as f64;
                let distinct = Estimate::between(distinct as f64, distinct as f64, high);
                items.push(SpreadItem { address: canonical(address), distinct });
            }
        }
    }
    items.sort_by(|a, b| {
        b.distinct.value.total_cmp(&a.distinct.value).then(a.address.cmp(&b.address))
    });
    let side = if victims { Side::Destination } else { Side::Source };
    Report::Spread { side, of, threshold: more_than, items, truncated: 0 }
}

fn compare_spread(case: &Case, more_than: u64) {
    for (name, victims) in [("superspreaders", false), ("victims", true)] {
        let (this, peer, port) = if victims {
            (Field::Destination, Field::Source, Field::SourcePort)
        } else {
            (Field::Source, Field::Destination, Field::DestinationPort)
        };
        let kind = case.key.kind();
        for (_, of) in SpreadOf::ALL {
            if !kind.has(this) || !kind.has(if of == SpreadOf::Port { port } else { peer }) {
                continue;
            }
            let mut options = options();
            (options.spread, options.spread_of) = (more_than, of);
            let report = run_once(name, &options, case);
            assert_eq!(report, spread_oracle(case, victims, more_than, of), "{name} {of:?}");
        }
    }
}

#[test]
fn spreaders_are_those_of_plain_sets() {
    let keys = key_of(every_kind());
    check(11, (case(keys), 0u64..6), |(case, more_than)| compare_spread(&case, more_than));
}

#[test]
fn a_scan_stands_out_of_many_flows() {
    // Of 30,000 flows one source reaches 129 endpoints of 128 addresses (10 of them twice, by
    // another protocol), and another exactly 128; the rest have few.
    let mut flows: BTreeSet<[u8; 13]> = BTreeSet::new();
    for i in 0..30_000u32 {
        let [_, a, b, c] = i.wrapping_mul(2_654_435_761).to_be_bytes();
        flows.insert([10, 0, a, b, 10, 1, c, a, b, c, 0, 80, 6]);
    }
    for (source, endpoints) in [(1, 129u8), (2, 128)] {
        for i in 0..endpoints {
            let key = [172, 16, 0, source, 10, 9, 9, i.min(127), 7, i, 0, 80 + i / 128, 6];
            flows.insert(key);
            if i < 10 {
                flows.insert([key[0], key[1], key[2], key[3], 10, 9, 9, i, 8, i, 0, 80, 17]);
            }
        }
    }
    let size = Size { packets: 1, bytes: 40 };
    let flows = flows.into_iter().map(|key| (key.to_vec(), size)).collect();
    let table = Table { flows, ..Table::default() };
    let case = Case {
        key: KeyKind::FIVE_TUPLE.into(),
        tables: vec![(13, table)],
        by: Measure::Packets,
        threshold: Threshold::Weight(0),
        top: 0,
    };
    let Report::Spread { items, .. } = run_once("superspreaders", &options(), &case) else {
        panic!()
    };
    assert_eq!(items.len(), 1);
    assert_eq!(items[0].address.as_bytes(), [172, 16, 0, 1]);
    assert_eq!(items[0].distinct, Estimate::exact(129));
    for more_than in [0, 3, 100, 127, 128] {
        compare_spread(&case, more_than);
    }
}

#[test]
fn an_epoch_without_flows_has_no_spreaders() {
    let tables = vec![(13, Table::default()), (37, Table::default())];
    let (by, threshold) = (Measure::Packets, Threshold::Share(0.001));
    compare_spread(&Case { key: KeyKind::FIVE_TUPLE.into(), tables, by, threshold, top: 9 }, 0);
}
