//! Every flow has its exact size, whatever the state.

use flowgauge_core::catalog;
use flowgauge_core::catalog::stored::encode;
use flowgauge_core::key::{FlowKey, Key4, Key8, Key16, Key37};
use flowgauge_core::summary::{BuildErrorKind, Estimate};
use flowgauge_core::terms::Size;

use super::{
    INLINE, Packet, TABLES, build, feed, info, listed, options, packets, stored_and_back, truth,
    try_build,
};

/// Each state, as parameters.
const STATES: [&[(&str, &str)]; 3] = [&[], &[("state", "distinct")], &[("state", "ewma")]];

fn is_exact<K: FlowKey>(name: &str, parameters: &[(&str, &str)], seed: u64) {
    let options = options(1 << 20, seed, parameters);
    let mut table = match try_build::<K>(name, &options) {
        Ok(table) => table,
        Err(error)
            if matches!(error.kind(), BuildErrorKind::Unfit { .. })
                && !may_have::<K>(parameters) =>
        {
            return;
        }
        Err(error) => panic!("{name} {parameters:?}: {error}"),
    };
    // Up to as many flows as the smallest of these tables holds, key 0 included.
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

/// Whether keys of this type can have this state.
fn may_have<K: FlowKey>(parameters: &[(&str, &str)]) -> bool {
    match parameters.first() {
        Some((_, "distinct")) => matches!(K::BYTES, 4 | 16),
        _ => true,
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
            is_exact::<Key8>(name, parameters, seed);
            is_exact::<Key16>(name, parameters, seed);
            is_exact::<Key37>(name, parameters, seed);
        }
    }
}

/// Tables of parts of the packets merge to the table of all, in each state that the keys can have.
fn shards_merge<K: FlowKey>() {
    for name in TABLES {
        for parameters in STATES.iter().filter(|parameters| may_have::<K>(parameters)) {
            let options = options(2 << 20, 3, parameters);
            let packets = packets(6000, 900, 3);
            let mut whole = build::<K>(name, &options);
            for shard in packets.chunks(700) {
                let mut part = build::<K>(name, &options);
                feed(&mut *part, shard);
                whole.merge(&*part).unwrap();
            }
            assert!(listed(&*whole) == truth::<K>(&packets), "{name} {parameters:?}");
        }
    }
}

#[test]
fn shards_merge_to_the_whole() {
    shards_merge::<Key4>();
    shards_merge::<Key8>();
    for name in TABLES {
        let plain = build::<Key8>(name, &options(1 << 20, 3, &[]));
        let mut other = build::<Key8>(name, &options(1 << 20, 3, &[("state", "ewma")]));
        assert!(other.merge(&*plain).unwrap_err().to_string().contains("types differ"));
    }
}

/// The stored form after these packets, in batches of `batch`.
fn stored<K: FlowKey>(
    name: &str,
    parameters: &[(&str, &str)],
    packets: &[Packet],
    batch: usize,
) -> Vec<u8> {
    let options = options(1 << 20, 3, parameters);
    let mut table = build::<K>(name, &options);
    packets.chunks(batch).for_each(|packets| feed(&mut *table, packets));
    encode(info(name), &options, &*table)
}

/// Tables have the same bytes for the same packets in any order and batch size, in each state that
/// the keys can have.
fn bytes_are_the_same<K: FlowKey>() {
    let packets = packets(3000, 700, 3);
    let reversed: Vec<_> = packets.iter().rev().copied().collect();
    for name in TABLES {
        for parameters in STATES.iter().filter(|parameters| may_have::<K>(parameters)) {
            let bytes = stored::<K>(name, parameters, &packets, 256);
            for batch in [1, 64] {
                let same = stored::<K>(name, parameters, &packets, batch) == bytes;
                assert!(same, "{name} {parameters:?} {batch}");
            }
            // The count of new elements of a filter depends on their order.
            if parameters.first() != Some(&("state", "distinct")) {
                let same = stored::<K>(name, parameters, &reversed, 256) == bytes;
                assert!(same, "{name} {parameters:?}");
            }
        }
    }
}

#[test]
fn equal_contents_have_equal_bytes() {
    bytes_are_the_same::<Key4>();
    bytes_are_the_same::<Key8>();
    bytes_are_the_same::<Key37>();
}

/// Tables of different layouts do not merge.
#[test]
fn layouts_do_not_merge() {
    let options = options(1 << 20, 3, &[]);
    let mut inline = build::<Key8>(INLINE, &options);
    let records = build::<Key8>("linear-table", &options);
    assert!(inline.merge(&*records).unwrap_err().to_string().contains("types differ"));
}

/// A table of 1024 slots reserves the memory of the formula, if a state has `more` bytes than a
/// counter.
fn reserves<K: FlowKey>(state: &str, more: usize) {
    let bytes = |name: &str, buckets| {
        let parameters = [("buckets", buckets), ("state", state)];
        build::<K>(name, &options(1 << 20, 1, &parameters)).memory_bytes()
    };
    let active = if state == "ewma" { 4 } else { 0 };
    let entry: usize = 8 * usize::div_ceil(size_of::<K>() + 12 + more, 8);
    let buckets = 1024 * (size_of::<K>() + 8) + 768 * (4 + 12 + more + active);
    assert_eq!(bytes("linear-table", "1024"), 4 * 1024 + 768 * (entry + active));
    assert_eq!(bytes(INLINE, "1024"), 1024 * entry + 768 * (4 + active));
    assert_eq!(bytes("indirect-table", "1024"), buckets);
    assert_eq!(bytes("cuckoo-1", "1024"), 4 * 1024 + 512 * (entry + active));
    assert_eq!(bytes("cuckoo-4", "256"), 16 * 256 + 976 * (entry + active));
}

#[test]
fn memory_is_reserved_by_the_formula() {
    reserves::<Key16>("counter", 0);
    reserves::<Key16>("ewma", 16);
}

#[test]
fn refused_builds_give_the_reason() {
    let refuse = |name: &str, parameters: &[(&str, &str)]| {
        let built = try_build::<Key8>(name, &options(1 << 20, 1, parameters));
        built.err().unwrap().to_string()
    };
    for name in TABLES {
        assert!(refuse(name, &[("state", "distinct")]).contains("use --key source"));
        assert!(refuse(name, &[("state", "heap")]).contains("one of counter, distinct"));
        let padded = options(1 << 20, 1, &[("padding", "12")]);
        let refused = catalog::build::<Key8>(info(name).name, &padded).err().unwrap().to_string();
        assert!(refused.contains("unknown parameter 'padding'"), "{refused}");
        assert!(refuse(name, &[("buckets", "1000")]).contains("power of two"));
    }
    let refused = refuse("linear-table", &[("layout", "outline")]);
    assert!(refused.contains("one of records, inline"), "{refused}");
    let five = options(1 << 20, 1, &[("state", "distinct")]).for_keys(13);
    let refusal = try_build::<Key16>("linear-table", &five).err().unwrap().to_string();
    assert!(refusal.contains("use --key source"), "{refusal}");
    assert!(refuse("cuckoo-4", &[("buckets", "4294967296")]).contains("from 2 to 1073741824"));
}
