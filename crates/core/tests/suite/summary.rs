//! Laws of summaries, checked against a map of exact counts.

use std::collections::HashMap;

use flowgauge_core::batch::{BATCH_PACKETS, Batch};
use flowgauge_core::catalog;
use flowgauge_core::key::{FlowKey, Key8, Key16, Key37};
use flowgauge_core::summary::{Estimate, Options, Setting, Summary};
use flowgauge_core::terms::{Measure, Size, Threshold};
use proptest::prelude::*;

fn options(parameters: &[(&str, u64)], by: Measure) -> Options {
    Options {
        by,
        threshold: Threshold::Share(0.01),
        ..Options::new(1 << 20, 1).with(parameters.iter().copied())
    }
}

/// The key number `number`, whose bytes are spread over the whole key; 0 is the zero key.
fn key<K: FlowKey>(number: u32) -> K {
    let mut bytes = vec![0; K::BYTES];
    for (i, byte) in number.to_be_bytes().iter().enumerate() {
        bytes[(i * 11) % K::BYTES] ^= byte;
    }
    K::from_canonical(&bytes).unwrap()
}

type Packets = Vec<(u32, u32)>;

/// Packets of up to `keys` flows, some of them heavy: flow number and bytes.
fn packets(keys: u32) -> impl Strategy<Value = Packets> {
    let number = prop_oneof![0..keys, 0..=keys / 8];
    prop::collection::vec((number, 40u32..1500), 0..3000)
}

fn feed<K: FlowKey>(summary: &mut dyn Summary<K>, packets: &[(u32, u32)], batch: usize) {
    let mut columns = Batch::<K>::new();
    for chunk in packets.chunks(batch) {
        for (number, bytes) in chunk {
            columns.push(key(*number), *bytes, 0);
        }
        summary.ingest(&mut columns);
        columns.clear();
    }
    summary.settle();
}

fn truth<K: FlowKey>(packets: &[(u32, u32)]) -> HashMap<Vec<u8>, Size> {
    let mut sizes = HashMap::<_, Size>::new();
    for (number, bytes) in packets {
        let size = sizes.entry(key::<K>(*number).canonical(K::BYTES).to_vec()).or_default();
        size.packets += 1;
        size.bytes += u64::from(*bytes);
    }
    sizes
}

fn listed<K: FlowKey>(summary: &dyn Summary<K>) -> HashMap<Vec<u8>, Size> {
    let mut sizes = HashMap::new();
    let flows = summary.answers().flows().unwrap();
    flows.for_each(&mut |key, size| {
        assert!(sizes.insert(key.to_vec(), size).is_none(), "a flow is listed twice");
    });
    assert_eq!(sizes.len(), flows.len());
    for index in 0..flows.len() {
        let (key, size) = flows.get(index);
        assert_eq!(sizes[key], size);
    }
    sizes
}

fn total(packets: &[(u32, u32)]) -> Size {
    let bytes = packets.iter().map(|(_, bytes)| u64::from(*bytes)).sum();
    Size { packets: packets.len() as u64, bytes }
}

/// Cuts `packets` into about `shards` parts.
fn shards(packets: &[(u32, u32)], shards: usize) -> impl Iterator<Item = &[(u32, u32)]> {
    packets.chunks(packets.len().div_ceil(shards).max(1))
}

fn linear_table_is_exact<K: FlowKey>(packets: &Packets, batch: usize) {
    let options = options(&[("buckets", 4096)], Measure::Packets);
    let mut table = catalog::build::<K>("linear-table", &options).unwrap();
    for _ in 0..2 {
        feed(&mut *table, packets, batch);
        let truth = truth::<K>(packets);
        assert_eq!(listed(&*table), truth);
        for (key, size) in &truth {
            let estimate = table.answers().size().unwrap().estimate(key).packets.unwrap();
            assert_eq!(estimate, Estimate::exact(size.packets));
        }
        table.clear();
        assert!(table.answers().flows().unwrap().is_empty());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn linear_table_is_exact_for_every_key(packets in packets(2000), batch in 1..=BATCH_PACKETS) {
        linear_table_is_exact::<Key8>(&packets, batch);
        linear_table_is_exact::<Key16>(&packets, batch);
        linear_table_is_exact::<Key37>(&packets, batch);
    }

    #[test]
    fn a_full_table_keeps_its_flows_exact_and_counts_the_rest(packets in packets(2000)) {
        let options = options(&[("buckets", 64)], Measure::Packets);
        let mut table = catalog::build::<Key16>("linear-table", &options).unwrap();
        feed(&mut *table, &packets, 256);
        let truth = truth::<Key16>(&packets);
        let listed = listed(&*table);
        prop_assert_eq!(listed.len(), truth.len().min(48));
        let mut accounted = table.answers().untracked();
        for (key, size) in &listed {
            prop_assert_eq!(*size, truth[key]);
            accounted.packets += size.packets;
            accounted.bytes += size.bytes;
        }
        prop_assert_eq!(accounted, total(&packets));
        for (key, size) in &truth {
            let estimate = table.answers().size().unwrap().estimate(key).packets.unwrap();
            let packets = size.packets as f64;
            prop_assert!(estimate.low <= packets && packets <= estimate.high);
        }
    }

    #[test]
    fn shards_of_a_table_merge_to_the_whole(packets in packets(500), parts in 1usize..=16) {
        let options = options(&[("buckets", 4096)], Measure::Packets);
        let build = || catalog::build::<Key8>("linear-table", &options).unwrap();
        let mut merged = build();
        for shard in shards(&packets, parts) {
            let mut part = build();
            feed(&mut *part, shard, 100);
            merged.merge(&*part).unwrap();
        }
        prop_assert_eq!(listed(&*merged), truth::<Key8>(&packets));
    }

    #[test]
    fn an_additive_array_is_never_under_and_names_every_heavy_key(
        packets in packets(2000), columns in 4u32..12, bytes in any::<bool>(), parts in 1usize..=16,
    ) {
        let by = if bytes { Measure::Bytes } else { Measure::Packets };
        let options = options(&[("columns", 1 << columns), ("candidates", 2048)], by);
        let build = || catalog::build::<Key16>("count-array", &options).unwrap();
        let mut array = build();
        feed(&mut *array, &packets, 256);
        let mut merged = build();
        for shard in shards(&packets, parts) {
            let mut part = build();
            feed(&mut *part, shard, 256);
            merged.merge(&*part).unwrap();
        }
        let truth = truth::<Key16>(&packets);
        for array in [&array, &merged] {
            let answers = array.answers();
            let mut candidates = HashMap::new();
            answers.candidates().unwrap().for_each(&mut |key, size| {
                candidates.insert(key.as_bytes().to_vec(), size);
            });
            prop_assert_eq!(answers.candidates().unwrap().overflow(), 0);
            for (key, size) in &truth {
                let estimate = answers.size().unwrap().estimate(key).by(by).unwrap();
                let size = size.by(by) as f64;
                prop_assert!(estimate.value >= size && estimate.high >= size);
                prop_assert!(estimate.low <= estimate.value);
                if size > 0.01 * total(&packets).by(by) as f64 {
                    prop_assert!(candidates.contains_key(key), "a heavy key is not named");
                }
            }
        }
        // Subtracting the own parts of other keys never makes an estimate too low.
        let estimates = |array: &dyn Summary<Key16>| {
            let sizes = array.answers().size().unwrap();
            let of = |key: &Vec<u8>| sizes.estimate(key).by(by).unwrap();
            truth.keys().map(of).collect::<Vec<_>>()
        };
        let [bare, little] = [0, 8].map(|candidates| {
            let options =
                self::options(&[("columns", 1 << columns), ("candidates", candidates)], by);
            let mut array = catalog::build::<Key16>("count-array", &options).unwrap();
            feed(&mut *array, &packets, 256);
            estimates(&*array)
        });
        for found in [estimates(&*array), estimates(&*merged), little] {
            for ((found, bare), size) in found.iter().zip(&bare).zip(truth.values()) {
                let size = size.by(by) as f64;
                prop_assert!(size <= found.value && found.value <= bare.value);
                prop_assert!(found.low <= size || found.low <= bare.low);
            }
        }
    }

    #[test]
    fn the_heavy_keys_of_an_additive_array_do_not_depend_on_the_batches(
        packets in packets(2000), columns in 4u32..12, bytes in any::<bool>(),
        share in 0.0001f64..0.3, batch in 2..=BATCH_PACKETS,
    ) {
        let by = if bytes { Measure::Bytes } else { Measure::Packets };
        let parameters = [("columns", 1 << columns), ("candidates", 2048)];
        let options =
            Options { threshold: Threshold::Share(share), ..options(&parameters, by) };
        let candidates = |batch| {
            let mut array = catalog::build::<Key16>("count-array", &options).unwrap();
            feed(&mut *array, &packets, batch);
            let mut named = HashMap::new();
            array.answers().candidates().unwrap().for_each(&mut |key, size| {
                named.insert(key.as_bytes().to_vec(), size);
            });
            named
        };
        prop_assert_eq!(candidates(batch), candidates(1));
    }

    #[test]
    fn a_replacing_array_is_never_over_and_counts_displaced_packets(
        packets in packets(2000), columns in 1u32..12,
        candidates in prop::sample::select(vec![0, 4, 1024]), share in 0.0001f64..0.3,
    ) {
        let parameters = [("columns", 1 << columns), ("candidates", candidates)];
        let options = Options {
            threshold: Threshold::Share(share),
            ..options(&parameters, Measure::Packets)
        };
        let build = || catalog::build::<Key37>("replacing-array", &options).unwrap();
        let (mut array, mut merged, mut half) = (build(), build(), build());
        feed(&mut *array, &packets, 256);
        feed(&mut *merged, &packets[..packets.len() / 2], 256);
        feed(&mut *half, &packets[packets.len() / 2..], 256);
        merged.merge(&*half).unwrap();
        for array in [array, merged] {
            let mut sum = array.answers().untracked();
            array.answers().candidates().unwrap().for_each(&mut |_, size| {
                sum.packets += size.packets.unwrap().value as u64;
                sum.bytes += size.bytes.unwrap().value as u64;
            });
            prop_assert_eq!(sum, total(&packets));
            for (key, size) in truth::<Key37>(&packets) {
                let estimate = array.answers().size().unwrap().estimate(&key).bytes.unwrap();
                prop_assert!(estimate.value <= size.bytes as f64);
                prop_assert!(size.bytes as f64 <= estimate.high);
            }
        }
    }
}

/// If the set of candidates is too small, the overflow counts it.
#[test]
fn heavy_keys_beyond_the_set_are_counted() {
    let parameters = [("columns", 1 << 16), ("candidates", 4)];
    let options =
        Options { threshold: Threshold::Weight(10), ..options(&parameters, Measure::Packets) };
    let mut array = catalog::build::<Key8>("count-array", &options).unwrap();
    let packets: Packets = (0..20 * 12).map(|i| (i % 20, 64)).collect();
    feed(&mut *array, &packets, 256);
    let mut named = 0;
    let candidates = array.answers().candidates().unwrap();
    candidates.for_each(&mut |_, _| named += 1);
    // Twenty keys of 12 packets: each exceeds 5 seven times. The first four are dropped once, as
    // they have not exceeded 10; otherwise sixteen keys find no room.
    assert_eq!((named, candidates.overflow()), (4, 7 * 16 - 4));
}

/// A 32-bit counter, filled by merging two summaries into each other.
#[test]
fn full_counters_stay_full_and_the_excess_is_counted() {
    for name in ["linear-table", "count-array", "replacing-array"] {
        let options = options(&[], Measure::Packets);
        let build = || catalog::build::<Key8>(name, &options).unwrap();
        let (mut large, mut small) = (build(), build());
        feed(&mut *large, &[(7, 64); 200], 256);
        feed(&mut *small, &[(7, 64); 200], 256);
        let (mut count, mut other) = (200u64, 200u64);
        while u32::try_from(count).is_ok() {
            std::mem::swap(&mut large, &mut small);
            large.merge(&*small).unwrap();
            (count, other) = (count + other, count);
        }
        let answers = large.answers();
        let size = answers
            .size()
            .unwrap()
            .estimate(key::<Key8>(7).canonical(Key8::BYTES))
            .packets
            .unwrap();
        assert_eq!(size.value as u64, u64::from(u32::MAX), "{name}");
        assert_eq!(size.high as u64, count, "{name}");
        assert_eq!(answers.saturated().packets, count - u64::from(u32::MAX), "{name}");
    }
}

#[test]
fn memory_equals_the_catalogs_formula() {
    let bytes = |name: &str, parameters: &[(&str, u64)], by| {
        catalog::build::<Key16>(name, &options(parameters, by)).unwrap().memory_bytes()
    };
    let (packets, array) = (Measure::Packets, [("columns", 512), ("candidates", 64)]);
    assert_eq!(bytes("linear-table", &[("buckets", 1024)], packets), 4 * 1024 + 768 * 32);
    assert_eq!(bytes("replacing-array", &array, packets), 512 * 32 + 64 * (32 + 8));
    let bare = [("columns", 512), ("candidates", 0)];
    assert_eq!(bytes("replacing-array", &bare, packets), 512 * 32);
    assert_eq!(bytes("count-array", &array, packets), 512 * 4 + 64 * 80);
    assert_eq!(bytes("count-array", &array, Measure::Bytes), 512 * 8 + 64 * 80);
    // By default a table fills its memory, up to a power of two.
    for name in ["linear-table", "replacing-array"] {
        let little = Options { memory_bytes: 4 << 20, ..options(&[], Measure::Packets) };
        let bytes = catalog::build::<Key16>(name, &little).unwrap().memory_bytes();
        assert!((1 << 21..=1 << 22).contains(&bytes), "{name} takes {bytes} bytes");
    }
    // Other summaries have a default size, which only a small memory shrinks.
    for (name, rows, columns) in
        [("count-array", 1, 1 << 18), ("count-min", 4, 1 << 15), ("count-sketch", 5, 1 << 16)]
    {
        let built = |memory_bytes| {
            let options =
                Options { memory_bytes, ..options(&[("candidates", 0)], Measure::Packets) };
            catalog::build::<Key16>(name, &options).unwrap().memory_bytes()
        };
        assert_eq!(built(256 << 20), 4 * rows * columns, "{name}");
        assert!((100 << 10..=200 << 10).contains(&built(200 << 10)), "{name}");
    }
    for name in ["space-saving", "stream-summary", "misra-gries"] {
        let built = |memory_bytes| {
            let options = Options { memory_bytes, ..options(&[], Measure::Packets) };
            catalog::build::<Key16>(name, &options).unwrap().parameters()[0].1
        };
        assert_eq!(built(256 << 20), Setting::Integer(10_000), "{name}");
        assert!(matches!(built(64 << 10), Setting::Integer(500..=2500)), "{name}");
    }
}

#[test]
fn refused_merges_and_builds_give_the_reason() {
    let plain = options(&[], Measure::Packets);
    let mut table = catalog::build::<Key8>("linear-table", &plain).unwrap();
    let array = catalog::build::<Key8>("count-array", &plain).unwrap();
    assert!(table.merge(&*array).unwrap_err().to_string().contains("types differ"));

    let refuse = |name: &str, parameters: &[(&str, u64)]| {
        let built = catalog::build::<Key8>(name, &options(parameters, Measure::Packets));
        built.err().unwrap().to_string()
    };
    assert!(refuse("linear-tabel", &[]).contains("did you mean 'linear-table'?"));
    assert!(refuse("linear-table", &[("rows", 4)]).contains("available: buckets"));
    assert!(refuse("count-array", &[("columns", 1000)]).contains("power of two"));
    let little = Options { memory_bytes: 10, ..plain };
    let error = catalog::build::<Key8>("linear-table", &little).err().unwrap().to_string();
    assert!(error.contains("raise --memory"), "{error}");
}
