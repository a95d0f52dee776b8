//! Every flow has its exact size for any state. A full table counts the packets of other flows.

use std::collections::HashSet;

use flowgauge_core::catalog;
use flowgauge_core::catalog::stored::{decode, encode};
use flowgauge_core::key::{FlowKey, Key8, Key16, Key37};
use flowgauge_core::summary::{BuildErrorKind, Estimate, Summary};
use flowgauge_core::terms::Size;

use super::{
    INLINE, Packet, TABLES, build, feed, info, key, listed, one_each, options, packets,
    stored_and_back, total, truth, try_build,
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

// Tables that fill up.

/// Listed flows are exact, all other packets are untracked, and the bounds allow for them.
fn accounts_for<K: FlowKey>(name: &str, table: &dyn Summary<K>, packets: &[Packet]) {
    let (truth, listed) = (truth::<K>(packets), listed(table));
    let mut accounted = table.answers().untracked();
    for (key, size) in &listed {
        assert_eq!(*size, truth[key], "{name}");
        accounted += *size;
    }
    assert_eq!(accounted, total(packets), "{name}");
    for (key, size) in &truth {
        let estimate = table.answers().size().unwrap().estimate(key).packets.unwrap();
        let packets = size.packets as f64;
        assert!(estimate.low <= packets && packets <= estimate.high, "{name}");
    }
}

#[test]
fn a_full_table_keeps_its_flows_exact_and_counts_the_rest() {
    for name in TABLES {
        for buckets in ["2", "4", "16", "64", "1024"] {
            for seed in 0..4 {
                let options = options(1 << 20, seed, &[("buckets", buckets)]);
                let mut table = build::<Key8>(name, &options);
                let packets = packets(20_000, 6000, seed);
                feed(&mut *table, &packets);
                accounts_for(name, &*table, &packets);
                let copy = stored_and_back(name, &options, &*table);
                accounts_for(name, &*copy, &packets);
                // Clearing also resets the budget of failed walks.
                let before = listed(&*table);
                table.clear();
                feed(&mut *table, &packets);
                assert!(listed(&*table) == before, "{name}");
            }
        }
    }
}

/// How many of `flows` new flows a table takes.
fn taken(name: &str, buckets: &str, flows: u32, seed: u64) -> usize {
    let mut table = build::<Key8>(name, &options(64 << 20, seed, &[("buckets", buckets)]));
    feed(&mut *table, &one_each(0..flows));
    table.answers().flows().unwrap().len()
}

/// Four slots per bucket: a load of 95 %, in small tables and large ones. One slot: about half; in
/// theory a table of n slots has no room for about n^⅓ of n/2 flows.
#[test]
fn cuckoo_tables_reach_their_load() {
    for seed in 0..8 {
        for (buckets, slots) in [("256", 1 << 10), ("4096", 1 << 14), ("32768", 1 << 17)] {
            let load = taken("cuckoo-4", buckets, slots, seed) as f64 / f64::from(slots);
            assert!((0.95..=0.9532).contains(&load), "{buckets} buckets: {load}");
        }
        for (buckets, slots) in [("1024", 1 << 10), ("16384", 1 << 14), ("131072", 1 << 17)] {
            let load = taken("cuckoo-1", buckets, slots / 2, seed) as f64 / f64::from(slots);
            assert!((0.46..=0.5).contains(&load), "{buckets} buckets: {load}");
        }
    }
}

/// Keys with the same first bucket, as an attacker who knows the seed can send: linear tables take
/// as many as they probe buckets, cuckoo tables move flows, and both terminate.
#[test]
fn a_flood_of_colliding_keys_ends() {
    let options = options(1 << 20, 5, &[("buckets", "1024")]);
    let digester = options.digester.for_keys(Key8::BYTES);
    let collides = |flow: &u32| key::<Key8>(*flow).digest(&digester) % 1024 == 7;
    let flood: Vec<u32> = (0..).filter(collides).take(2000).collect();
    let rounds: Vec<Packet> = (0..20).flat_map(|_| one_each(flood.iter().copied())).collect();
    for name in TABLES {
        let mut table = build::<Key8>(name, &options);
        feed(&mut *table, &rounds);
        accounts_for(name, &*table, &rounds);
        // Second buckets are random.
        let least = match name {
            "linear-table" => 256,
            INLINE | "indirect-table" => 512,
            "cuckoo-1" => 400,
            _ => 768,
        };
        assert!(table.answers().flows().unwrap().len() >= least, "{name}");
    }
}

/// A flow may be listed in one table and untracked in another: the merged bounds include both.
#[test]
fn bounds_of_merged_tables_include_the_untracked_packets_of_both() {
    for name in TABLES {
        // Room for one flow in linear tables, for two or eight in the others.
        let options = options(1 << 20, 1, &[("buckets", "2")]);
        for seed in 0..20 {
            let shards = [seed, seed + 100].map(|seed| packets(60, 12, seed));
            let [mut sum, other] = shards.clone().map(|packets| {
                let mut table = build::<Key8>(name, &options);
                feed(&mut *table, &packets);
                table
            });
            sum.merge(&*other).unwrap();
            let sum = stored_and_back(name, &options, &*sum);
            let truth = truth::<Key8>(&shards.concat());
            let check = |key: &[u8], estimate: Estimate| {
                let packets = truth[key].packets as f64;
                assert!(estimate.low <= packets && packets <= estimate.high, "{name} {estimate:?}");
            };
            for key in truth.keys() {
                check(key, sum.answers().size().unwrap().estimate(key).packets.unwrap());
            }
            sum.answers().candidates().unwrap().for_each(&mut |key, size| {
                check(key.as_bytes(), size.packets.unwrap());
            });
        }
    }
}

/// If flows can move, a flow that found no room may find some later. Its bounds then include its
/// untracked packets; flows that had room before stay exact.
#[test]
fn bounds_hold_of_flows_that_found_room_late() {
    let (mut late, mut exact) = (0, 0);
    for seed in 0..400 {
        let mut table = build::<Key8>("cuckoo-1", &options(1 << 20, seed, &[("buckets", "64")]));
        let mut sent = Vec::new();
        for flow in 0..32 {
            let before = table.answers().untracked();
            let mut packets = one_each(flow..=flow);
            feed(&mut *table, &packets);
            if table.answers().untracked() != before {
                // Failed walks use up their budget, and packets without room add to it.
                let more = one_each([flow; 200].into_iter());
                feed(&mut *table, &more);
                packets.extend(more);
            }
            sent.extend(packets);
        }
        let truth = truth::<Key8>(&sent);
        table.answers().candidates().unwrap().for_each(&mut |key, size| {
            let (size, truth) = (size.packets.unwrap(), truth[key.as_bytes()].packets as f64);
            assert!(size.low <= truth && truth <= size.high, "{size:?} {truth}");
            late += u32::from(size.value < truth);
            exact += u32::from(size.low >= size.high);
        });
    }
    assert!(late > 0 && exact > 400 * 16, "{late} late, {exact} exact");
}

/// Flows kept without packets make room for new ones, also for one that found no room before.
#[test]
fn bounds_hold_of_flows_that_found_room_when_silent_ones_left() {
    for (name, buckets, room, before) in
        [("linear-table", "1024", 256, 0), ("indirect-table", "2048", 512, 256)]
    {
        let options = options(1 << 20, 5, &[("buckets", buckets)]);
        let digester = options.digester.for_keys(Key8::BYTES);
        let collides = |flow: &u32| key::<Key8>(*flow).digest(&digester) % 2048 == 7;
        let mut flood = (0..).filter(collides);
        let mut table = build::<Key8>(name, &options);
        feed(&mut *table, &one_each(flood.by_ref().take(room)));
        assert_eq!(table.answers().untracked(), Size::default(), "{name}");
        table.next_part();
        let late = flood.next().unwrap();
        feed(&mut *table, &one_each([late].into_iter()));
        assert_eq!(table.answers().untracked().packets, 1, "{name}");
        let others = 1 << 30..;
        feed(&mut *table, &one_each(others.clone().take(before)));
        feed(&mut *table, &one_each([late].into_iter().chain(others.skip(before)).take(256)));
        let key = key::<Key8>(late);
        assert!(listed(&*table).contains_key(key.canonical(Key8::BYTES)), "{name}");
        let size = table.answers().size().unwrap().estimate(key.canonical(Key8::BYTES));
        let packets = size.packets.unwrap();
        assert!(packets.low <= 2.0 && 2.0 <= packets.high, "{name}: {packets:?}");
    }
}

/// The stored form under seed 5 of a table with 32,768 buckets, and so many of `flows` whose keys
/// all hash to a few of its buckets, four groups or four runs, under that seed.
fn colliding(name: &str, flows: usize) -> Vec<u8> {
    let (mask, group) = if name == "linear-table" { (4095, 8) } else { (32767, 1) };
    let digester = options(16 << 20, 5, &[]).digester.for_keys(Key8::BYTES);
    let home = |flow: u32| key::<Key8>(flow).digest(&digester) & mask;
    under_seed_5(name, (0..).filter(|flow| home(*flow) * group % 8192 < 8).take(flows))
}

fn under_seed_5(name: &str, flows: impl Iterator<Item = u32>) -> Vec<u8> {
    let other = options(16 << 20, 6, &[("buckets", "32768")]);
    let mut table = build::<Key8>(name, &other);
    feed(&mut *table, &one_each(flows));
    let mut bytes = encode(info(name), &other, &*table);
    // After magic, version, name, key bytes and the kind of seed.
    bytes[4 + 2 + 1 + info(name).name.len() + 2 + 1..][..8].copy_from_slice(&5_u64.to_le_bytes());
    let end = bytes.len() - 4;
    let checksum = crc32fast::hash(&bytes[..end]);
    bytes[end..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// Stored keys that all hash to a few buckets under their seed are refused where they are searched.
#[test]
fn stored_keys_that_collide_are_refused() {
    for name in [INLINE, "indirect-table"] {
        let decoded = decode::<Key8>(&colliding(name, 16_000), 16 << 20);
        let error = decoded.err().unwrap().to_string();
        assert!(error.contains("collides with others"), "{name}: {error}");
        decode::<Key8>(&under_seed_5(name, 0..16_000), 16 << 20).unwrap();
    }
}

/// A linear table finds stored flows by their order. Those that find no room once it takes packets
/// are untracked.
#[test]
fn stored_keys_that_collide_are_untracked_when_packets_come() {
    let flows = 16_000;
    let mut table = decode::<Key8>(&colliding("linear-table", flows), 16 << 20).unwrap().summary;
    assert_eq!((listed(&*table).len(), table.answers().untracked().packets), (flows, 0));
    feed(&mut *table, &one_each(1..2));
    let untracked = table.answers().untracked().packets as usize;
    assert!(untracked > 0);
    let sizes = listed(&*table);
    let packets: u64 = sizes.values().map(|size| size.packets).sum();
    assert_eq!(packets as usize + untracked, flows + 1);
    table.answers().candidates().unwrap().for_each(&mut |_, size| {
        let packets = size.packets.unwrap();
        assert_eq!((packets.low, packets.high), (packets.value, packets.value + untracked as f64));
    });
}

/// A stored table has the sizes of flows by their order, merges with another one of any size as
/// live tables merge, and then takes packets as they do.
#[test]
fn stored_tables_merge_as_live_ones() {
    fn merged<K: FlowKey>(flows: [u32; 2]) {
        let options = options(1 << 20, 11, &[("buckets", "4096")]);
        let streams = flows.map(|flows| packets(4 * flows as usize, flows, flows.into()));
        let [mut live, other] = streams.each_ref().map(|packets| {
            let mut table = build::<K>("linear-table", &options);
            feed(&mut *table, packets);
            table
        });
        let mut stored = stored_and_back("linear-table", &options, &*live);
        let estimate = |table: &dyn Summary<K>, key: &[u8]| {
            table.answers().size().unwrap().estimate(key).packets.unwrap()
        };
        for (key, size) in listed(&*live) {
            assert_eq!(estimate(&*stored, &key), Estimate::exact(size.packets));
        }
        let absent = key::<K>(u32::MAX);
        assert_eq!(estimate(&*stored, absent.canonical(K::BYTES)), Estimate::exact(0));
        let same = |stored: &dyn Summary<K>, live: &dyn Summary<K>| {
            let bytes = |table| encode(info("linear-table"), &options, table);
            assert!(bytes(stored) == bytes(live), "{flows:?}");
        };
        // A table of live flows takes them in, too.
        for streams in [&streams[..0], &streams[..0], &streams, &streams[..1]] {
            for packets in streams {
                feed(&mut *stored, packets);
                feed(&mut *live, packets);
            }
            stored.merge(&*stored_and_back("linear-table", &options, &*other)).unwrap();
            live.merge(&*other).unwrap();
            same(&*stored, &*live);
        }
        stored.next_epoch();
        live.clear();
        feed(&mut *stored, &streams[0]);
        feed(&mut *live, &streams[0]);
        same(&*stored, &*live);
    }
    for flows in [[1, 1], [300, 300], [10, 900], [900, 10], [900, 700], [1, 900]] {
        merged::<Key8>(flows);
        merged::<Key37>(flows);
    }
}

/// Stored tables that do not fit into one are merged as far as they do.
#[test]
fn stored_tables_without_room_count_the_rest() {
    let options = options(1 << 20, 12, &[("buckets", "1024")]);
    let stored = |flows| {
        let mut table = build::<Key8>("linear-table", &options);
        feed(&mut *table, &one_each(flows));
        stored_and_back("linear-table", &options, &*table)
    };
    let mut table = stored(0..500);
    table.merge(&*stored(400..900)).unwrap();
    accounts_for("linear-table", &*table, &one_each((0..500).chain(400..900)));
    assert_eq!(table.answers().untracked().packets, 900 - 768);
}

/// Three flows that share two buckets with one slot each: the third finds no room, and the failed
/// walk loses neither of the others.
#[test]
fn a_failed_walk_is_undone() {
    let options = options(1 << 20, 9, &[("buckets", "1024")]);
    let mut table = build::<Key8>("cuckoo-1", &options);
    let mut flows = HashSet::new();
    let (mut flow, mut failed) = (0, 0);
    while failed < 20 {
        let before = table.answers().untracked();
        feed(&mut *table, &one_each(flow..=flow));
        if table.answers().untracked() == before {
            flows.insert(key::<Key8>(flow).canonical(Key8::BYTES).to_vec());
        } else {
            failed += 1;
        }
        let now: HashSet<_> = listed(&*table).into_keys().collect();
        assert!(now == flows, "after flow {flow}");
        for key in &flows {
            let size = table.answers().size().unwrap().estimate(key);
            assert_eq!(size.packets.unwrap(), Estimate::exact(1));
        }
        flow += 1;
    }
    assert_eq!(table.answers().untracked(), Size { packets: 20, bytes: 20 * 64 });
}
