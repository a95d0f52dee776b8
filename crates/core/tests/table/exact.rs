//! Every flow with its exact size, in whatever state it is kept.

use flowgauge_core::catalog;
use flowgauge_core::key::{FlowKey, Key4, Key16, Key37};
use flowgauge_core::summary::{BuildError, Estimate, Size};

use super::{TABLES, build, feed, listed, options, packets, stored_and_back, truth};

/// Each state, as parameters.
const STATES: [&[(&str, &str)]; 6] = [
    &[],
    &[("state", "padded")],
    &[("state", "padded"), ("padding", "28")],
    &[("state", "padded"), ("padding", "60")],
    &[("state", "distinct")],
    &[("state", "ewma")],
];

fn is_exact<K: FlowKey>(name: &str, parameters: &[(&str, &str)], seed: u64) {
    let options = options(1 << 20, seed, parameters);
    let mut table = match catalog::build::<K>(name, &options) {
        Ok(table) => table,
        Err(BuildError::Unfit { .. }) if !matches!(K::BYTES, 4 | 16) => return,
        Err(error) => panic!("{name} {parameters:?}: {error}"),
    };
    // As many flows as the smallest of these tables holds, and key 0 among them.
    for flows in [1, 40, 1400] {
        let packets = packets(5000, flows, seed + u64::from(flows));
        feed(&mut *table, &packets);
        let truth = truth::<K>(&packets);
        assert!(truth.contains_key(key0::<K>().canonical(K::BYTES)));
        for table in [&*table, &*stored_and_back(name, &options, &*table)] {
            assert_eq!(table.answers().untracked(), Size::default(), "{name} {parameters:?}");
            assert!(listed(table) == truth, "{name} {parameters:?} {flows}");
            for (key, size) in &truth {
                let estimate = table.answers().size().unwrap().estimate(key).bytes.unwrap();
                assert_eq!(estimate, Estimate::exact(size.bytes));
            }
        }
        table.clear();
        assert!(table.answers().flows().unwrap().is_empty());
    }
}

fn key0<K: FlowKey>() -> K {
    super::key(0)
}

#[test]
fn tables_are_exact_for_every_key_and_state() {
    for name in TABLES {
        for (parameters, seed) in STATES.iter().zip(1..) {
            is_exact::<Key4>(name, parameters, seed);
            is_exact::<Key16>(name, parameters, seed);
            is_exact::<Key37>(name, parameters, seed);
        }
    }
}

#[test]
fn shards_merge_to_the_whole() {
    for name in TABLES {
        for parameters in STATES {
            let options = options(2 << 20, 3, parameters);
            let packets = packets(6000, 900, 3);
            let mut whole = build::<Key4>(name, &options);
            for shard in packets.chunks(700) {
                let mut part = build(name, &options);
                feed(&mut *part, shard);
                whole.merge(&*part).unwrap();
            }
            assert!(listed(&*whole) == truth::<Key4>(&packets), "{name} {parameters:?}");
        }
        let plain = build::<Key4>(name, &options(1 << 20, 3, &[]));
        let mut other = build::<Key4>(name, &options(1 << 20, 3, &[("state", "padded")]));
        assert!(other.merge(&*plain).unwrap_err().to_string().contains("types differ"));
    }
}

#[test]
fn memory_is_reserved_by_the_formula() {
    let bytes = |name: &str, parameters: &[(&str, &str)]| {
        build::<Key16>(name, &options(1 << 20, 1, parameters)).memory_bytes()
    };
    for (state, more) in [("counter", 0), ("padded", 12), ("ewma", 16)] {
        let with = |buckets| [("buckets", buckets), ("state", state)];
        let active = if state == "ewma" { 4 } else { 0 };
        let entry: usize = 8 * usize::div_ceil(16 + 12 + more, 8);
        let buckets = 1024 * 24 + 768 * (4 + 12 + more + active);
        assert_eq!(bytes("linear-table", &with("1024")), 4 * 1024 + 768 * (entry + active));
        assert_eq!(bytes("indirect-table", &with("1024")), buckets);
        assert_eq!(bytes("cuckoo-1", &with("1024")), 4 * 1024 + 512 * (entry + active));
        assert_eq!(bytes("cuckoo-4", &with("256")), 16 * 256 + 976 * (entry + active));
    }
}

#[test]
fn what_cannot_be_built_says_why() {
    let refuse = |name: &str, parameters: &[(&str, &str)]| {
        let built = catalog::build::<Key16>(name, &options(1 << 20, 1, parameters));
        built.err().unwrap().to_string()
    };
    for name in TABLES {
        assert!(refuse(name, &[("state", "distinct")]).contains("use the key source"));
        assert!(refuse(name, &[("state", "heap")]).contains("one of counter, padded"));
        assert!(refuse(name, &[("padding", "12")]).contains("without state=padded"));
        assert!(refuse(name, &[("state", "padded"), ("padding", "13")]).contains("12, 28, 60"));
        assert!(refuse(name, &[("buckets", "1000")]).contains("power of two"));
    }
    assert!(refuse("cuckoo-4", &[("buckets", "4294967296")]).contains("from 2 to 1073741824"));
}
