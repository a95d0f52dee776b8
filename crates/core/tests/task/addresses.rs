//! `top-sources` and `top-destinations`.

use std::collections::BTreeMap;

use flowgauge_core::key::{CanonicalKey, Field, KeyKind};
use flowgauge_core::summary::SizeEstimate;
use flowgauge_core::task::{AddressItem, Report, Side};
use flowgauge_core::terms::{Measure, Size, Threshold};

use crate::support::{Case, Table, case, check, every_kind, key_of, options, run_once};

/// Sums by plain counting.
fn oracle(case: &Case, side: Side) -> Report {
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

fn compare(case: &Case) {
    for (name, side) in [("top-sources", Side::Source), ("top-destinations", Side::Destination)] {
        if !case.key.kind().has(side.address()) {
            continue;
        }
        assert_eq!(run_once(name, &options(), case), oracle(case, side), "{name}");
    }
}

#[test]
fn sums_agree_with_plain_counting() {
    let more =
        every_kind().into_iter().filter(|kind| kind.has_addresses() && kind.fields().count() > 1);
    let keys = key_of(more.collect());
    check(12, case(keys), |case| compare(&case));
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
            compare(&Case {
                key: KeyKind::PAIR.into(),
                tables: vec![(8, table.clone())],
                by,
                threshold: Threshold::Weight(0),
                top,
            });
        }
    }
}
