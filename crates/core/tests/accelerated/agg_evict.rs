//! Accelerators that pass on sums of packets: Agg-Evict before every algorithm that it can precede,
//! and FlowRegulator before all tables. The error of FlowRegulator is tested together with
//! InstaMeasure's.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use flowgauge_core::accelerator::{Accelerate, AggEvict};
use flowgauge_core::batch::Batch;
use flowgauge_core::catalog;
use flowgauge_core::catalog::stored::encode;
use flowgauge_core::key::{FlowKey, Key4, Key8, Key16, Key37};
use flowgauge_core::summary::codec::{DecodeError, DecodeErrorKind, Reader, Writer};
use flowgauge_core::summary::{
    Answers, Incompatible, Info, Ingest, Merge, Options, Parameters, Summary,
};
use flowgauge_core::terms::Measure;
use flowgauge_kernel::{Digester, Isa, Seed};

use super::build;
use super::stream::{Packet, decode_and_use, feed, key, packets};

const AGG_EVICT: &str = "agg-evict";
const FLOWS: u32 = 700;

fn options(by: Measure) -> Options {
    Options { by, ..Options::new(256 << 10, 1) }
}

/// Sizes of all flows in both measures, and of an absent flow, are within the bounds as often as
/// these say: of 701 flows, 5 % more outside are at least six standard errors.
pub(super) fn bounds_hold(
    info: &Info,
    keys: &[Vec<u8>],
    packets: &[Packet],
    answers: &dyn Answers,
) {
    let Some(sizes) = answers.size() else { return };
    let mut truths = vec![[0u64; 2]; keys.len()];
    for packet in packets {
        truths[packet.flow as usize][0] += 1;
        truths[packet.flow as usize][1] += u64::from(packet.bytes);
    }
    for (measure, by) in [Measure::Packets, Measure::Bytes].into_iter().enumerate() {
        let (mut outside, mut allowed) = (0.0, 0.0);
        for (key, truth) in keys.iter().zip(&truths) {
            let Some(estimate) = sizes.estimate(key).by(by) else { continue };
            let truth = truth[measure] as f64;
            let within = estimate.low <= truth && truth <= estimate.high;
            assert!(within || estimate.confidence.is_some(), "{} {estimate:?} {truth}", info.name);
            outside += f64::from(u8::from(!within));
            allowed += 1.0 - estimate.confidence.unwrap_or(1.0);
        }
        assert!(outside <= allowed + 0.05 * keys.len() as f64, "{}: {outside}", info.name);
    }
}

fn changes_nothing<K: FlowKey>(info: &Info) -> bool {
    let packets = packets(6000, FLOWS, 5);
    let keys: Vec<_> =
        (0..=FLOWS).map(|flow| key::<K>(flow).canonical(K::BYTES).to_vec()).collect();
    let mut built = false;
    for by in [Measure::Packets, Measure::Bytes] {
        let mut options = options(by);
        if ["count-min", "count-sketch", "k-ary"].contains(&info.name) {
            options = options.with([("candidates", "0")]);
        }
        let Some(mut plain) = build::<K>(None, info.name, &options) else { continue };
        built = true;
        feed(&mut *plain, &packets, 256);
        let expected = encode(info, &options, &*plain);
        // From a table in which nearly every packet evicts to one that is never full.
        for (rows, policy, tags, batch) in [
            ("1", "round-robin", "digest", 256),
            ("4", "lru", "digest", 7),
            ("7", "round-robin", "xor", 33),
            ("16", "round-robin", "digest", 64),
            ("32", "random", "digest", 256),
            ("64", "lru", "digest", 1),
            ("50", "random", "xor", 256),
        ] {
            let parameters = Parameters::new([("rows", rows), ("policy", policy), ("tags", tags)]);
            let accelerator = (AGG_EVICT, parameters.clone());
            let options =
                Options { parameters: Parameters::new(plain.parameters()), ..options.clone() };
            let mut summary = build::<K>(Some(accelerator), info.name, &options).unwrap();
            feed(&mut *summary, &packets, batch);
            bounds_hold(info, &keys, &packets, summary.answers());
            // Bitmaps and sums are equal to the bit, except for the lists of heavy keys, which
            // depend on when a key was seen.
            if info.laws.merge == Merge::Equal && plain.answers().candidates().is_none() {
                let stored = encode(info, &options, &*summary);
                assert!(stored == expected, "{}, {rows} rows, {policy}, {tags}", info.name);
            }
            assert_eq!(flows(summary.answers()), flows(plain.answers()), "{}", info.name);
            if info.laws.merge == Merge::Equal {
                let [one, other] = [&plain, &summary].map(|summary| summary.answers());
                assert_eq!(one.cardinality(), other.cardinality(), "{}", info.name);
                if let (Some(one), Some(other)) = (one.size(), other.size()) {
                    let same = |key: &Vec<u8>| one.estimate(key) == other.estimate(key);
                    assert!(keys.iter().all(same), "{}, {rows} rows, {policy}", info.name);
                }
            }
            // Nothing is left of an epoch in the next, and the batch size does not matter.
            summary.clear();
            feed(&mut *summary, &packets, 256);
            let again = encode(info, &options, &*summary);
            let mut other = build::<K>(Some((AGG_EVICT, parameters)), info.name, &options).unwrap();
            feed(&mut *other, &packets, 33);
            if info.name != "kll" {
                assert!(encode(info, &options, &*other) == again, "{}: {rows}", info.name);
            }
        }
    }
    built
}

/// All flows, where the summary lists them.
fn flows(answers: &dyn Answers) -> Option<HashMap<Vec<u8>, (u64, u64)>> {
    let mut all = HashMap::new();
    answers.flows()?.for_each(&mut |flow, size| {
        all.insert(flow.to_vec(), (size.packets, size.bytes));
    });
    Some(all)
}

#[test]
fn summaries_are_equal_to_those_without() {
    for name in catalog::able(AGG_EVICT) {
        let info = catalog::info(name).unwrap();
        let keys = [
            changes_nothing::<Key4>(info),
            changes_nothing::<Key8>(info),
            changes_nothing::<Key16>(info),
            changes_nothing::<Key37>(info),
        ];
        assert!(keys.contains(&true), "{name}");
    }
}

/// A table counts exactly: flows with equal tags take turns in one pair.
#[test]
fn flows_of_one_tag_are_told_apart() {
    let digester = Digester::new(Seed::number(1), Isa::best()).for_keys(Key8::BYTES);
    let mut seen = HashMap::new();
    let mut of_digest = Vec::new();
    // About 10 of 300,000² / 2 pairs agree in 32 bits; tags are 16 of these.
    for number in 0u64..300_000 {
        let key = Key8::from_canonical(&number.to_be_bytes()).unwrap();
        if let Some(other) = seen.insert(key.digest(&digester) as u32, key) {
            of_digest.push([key, other]);
        }
    }
    assert!(of_digest.len() > 3, "{}", of_digest.len());
    // Both directions of a pair of addresses.
    let pair = |from: u32, to: u32| {
        Key8::from_canonical(&(u64::from(from) << 32 | u64::from(to)).to_be_bytes()).unwrap()
    };
    let of_words: Vec<_> = (1..9).map(|host| [pair(host, 77), pair(77, host)]).collect();
    for (tags, collisions) in [("digest", of_digest), ("xor", of_words)] {
        for policy in ["round-robin", "lru", "random"] {
            told_apart(policy, tags, &collisions);
        }
    }
}

/// Any two of these flows are counted separately.
fn told_apart(policy: &str, tags: &str, collisions: &[[Key8; 2]]) {
    let parameters = Parameters::new([("rows", "1"), ("policy", policy), ("tags", tags)]);
    let accelerator = (AGG_EVICT, parameters);
    let mut summary =
        build::<Key8>(Some(accelerator), "linear-table", &Options::new(1 << 20, 1)).unwrap();
    let mut batch = Batch::new();
    for _ in 0..50 {
        for [key, other] in collisions {
            for key in [key, key, other, key, other] {
                batch.push(*key, 100, 0);
            }
        }
        if batch.len() > 150 {
            summary.ingest(&mut batch);
            batch.clear();
        }
    }
    summary.ingest(&mut batch);
    summary.settle();
    let flows = flows(summary.answers()).unwrap();
    assert_eq!(flows.len(), 2 * collisions.len());
    for [key, other] in collisions {
        assert_eq!(flows[key.canonical(Key8::BYTES)], (150, 15_000));
        assert_eq!(flows[other.canonical(Key8::BYTES)], (100, 10_000));
    }
}

/// The row of a key is the remainder of the XOR of its words. Flows with equal remainders share 16
/// pairs; flows with other remainders do not.
#[test]
fn the_papers_tags_choose_rows_by_their_remainder() {
    let flows = |step: u32| (0..6000).map(move |i| i % 17 * step);
    let passed = |step: u32| {
        let parameters = [("rows", "2000"), ("tags", "xor")];
        passed_on(&parameters, flows(step).map(u32::to_le_bytes)).len()
    };
    // 17 flows in turn: one too many for a row.
    assert_eq!((passed(2000), passed(2001)), (6000, 17));
    let refused = catalog::build_accelerated::<Key4>(
        &[(AGG_EVICT.to_owned(), Parameters::new([("rows", "2000")]))],
        "count-min",
        &Options::new(1 << 20, 1),
    );
    assert!(refused.err().unwrap().to_string().contains("any number with tags=xor"));
}

/// The flow of all zeros, whose pair looks empty, is counted like any other.
#[test]
fn the_zero_key_is_counted() {
    let accelerator = (AGG_EVICT, Parameters::new([("rows", "1")]));
    let mut summary =
        build::<Key4>(Some(accelerator), "linear-table", &Options::new(1 << 20, 1)).unwrap();
    let zero = |flow| Packet { flow, bytes: 64, peer: 0 };
    let packets: Vec<Packet> = (0..2000).flat_map(|i| [zero(0), zero(i % 20)]).collect();
    feed(&mut *summary, &packets, 256);
    let flows = flows(summary.answers()).unwrap();
    assert_eq!(flows[&vec![0; 4]], (2100, 2100 * 64));
    assert_eq!(flows.values().map(|(packets, _)| packets).sum::<u64>(), 4000);
}

/// A summary that records its input.
pub(super) struct Log(pub(super) Arc<Mutex<Vec<(u32, u32)>>>);

impl Answers for Log {}

impl Ingest<Key4> for Log {
    fn ingest(&mut self, batch: &mut Batch<Key4>) {
        let rows = batch.keys().iter().zip(batch.packets());
        let rows = rows.map(|(key, packets)| {
            (u32::from_be_bytes(key.canonical(Key4::BYTES).try_into().unwrap()), *packets)
        });
        self.0.lock().unwrap().extend(rows);
    }
}

impl Summary<Key4> for Log {
    fn answers(&self) -> &dyn Answers {
        self
    }
    fn merge(&mut self, _: &dyn Summary<Key4>) -> Result<(), Incompatible> {
        Ok(())
    }
    fn save(&self, _: &mut Writer) {}
    fn load(&mut self, _: &mut Reader<'_>) -> Result<(), DecodeError> {
        Ok(())
    }
    fn clear(&mut self) {}
    fn memory_bytes(&self) -> usize {
        0
    }
}

/// The rows that reach the summary for packets with these keys: keys as numbers, and packets.
fn passed_on(parameters: &[(&str, &str)], keys: impl Iterator<Item = [u8; 4]>) -> Vec<(u32, u32)> {
    let log = Arc::default();
    let options = Options::new(1 << 20, 1).with(parameters.iter().copied());
    let options = options.for_keys(Key4::BYTES);
    let inner = Box::new(Log(Arc::clone(&log)));
    let mut summary = AggEvict::build(&options, inner).unwrap();
    let mut batch = Batch::new();
    for key in keys {
        batch.push(Key4::from_canonical(&key).unwrap(), 64, 0);
        if batch.len() == 256 {
            summary.ingest(&mut batch);
            batch.clear();
        }
    }
    summary.ingest(&mut batch);
    summary.settle();
    let log = log.lock().unwrap();
    log.clone()
}

/// The same for these flows, with a table of one row.
fn through_a_row(policy: &str, flows: impl Iterator<Item = u32>) -> Vec<(u32, u32)> {
    passed_on(&[("rows", "1"), ("policy", policy)], flows.map(|flow| key4(flow).to_be_bytes()))
}

/// A flow in every second packet is never evicted by `lru`, once in each turn by `round-robin`, and
/// as often on average by `random`.
#[test]
fn the_policies_drop_the_flows_of_their_definition() {
    let digester = Digester::new(Seed::number(1), Isa::best()).for_keys(Key4::BYTES);
    // A flow with the same tag would take the other's pair.
    let fingerprint = |flow| key::<Key4>(flow).digest(&digester) as u16;
    let others: Vec<u32> =
        (1..).filter(|i| fingerprint(*i) != fingerprint(0xffff_ffff)).take(1600).collect();
    let flows = || others.iter().flat_map(|i| [0xffff_ffff, *i]);
    let hot = |policy| {
        let rows = through_a_row(policy, flows());
        assert_eq!(rows.iter().map(|(_, packets)| packets).sum::<u32>(), 3200);
        rows.into_iter().filter(|(key, _)| *key == key4(0xffff_ffff)).count()
    };
    assert_eq!(hot("lru"), 1);
    let turns = hot("round-robin");
    assert!((90..=110).contains(&turns), "{turns}");
    // Each of 1,600 flows evicts it with probability 1/16: 100 on average, with a standard
    // deviation of 10.
    let by_chance = hot("random");
    assert!((60..=140).contains(&by_chance) && by_chance != turns, "{by_chance}");
}

/// A pair counts packets in 16 bits. A sum that is evicted for that is followed by another.
#[test]
fn a_flow_of_many_packets_leaves_in_parts() {
    let rows = through_a_row("round-robin", std::iter::repeat_n(7, 200_000));
    let parts: Vec<u32> = rows.into_iter().map(|(_, packets)| packets).collect();
    assert_eq!(parts, [65_535, 65_535, 65_535, 3395]);
}

/// The number in the key of a flow.
fn key4(flow: u32) -> u32 {
    u32::from_be_bytes(key::<Key4>(flow).canonical(Key4::BYTES).try_into().unwrap())
}

#[test]
fn summaries_that_it_would_change_are_refused_with_those_that_suit() {
    let refusal = |name: &str, parameter: Option<(&str, &str)>| {
        let options = Options::new(1 << 20, 1).with(parameter);
        let accelerators = [(AGG_EVICT.to_owned(), Parameters::default())];
        let error = catalog::build_accelerated::<Key8>(&accelerators, name, &options).err();
        error.map(|error| error.to_string()).unwrap_or_default()
    };
    let conservative = refusal("conservative-count-min", None);
    assert!(conservative.contains("it depends on the order of packets"), "{conservative}");
    assert!(conservative.contains("count-min, count-sketch"), "{conservative}");
    let sizes = refusal("kll", Some(("of", "size")));
    assert!(sizes.contains("it does not accept weighted updates"), "{sizes}");
    assert!(refusal("replacing-array", None).contains("order"));
    assert_eq!(refusal("kll", Some(("of", "key"))), "");
    assert_eq!(refusal("count-min", None), "");
}

/// Its memory is part of the given memory.
#[test]
fn it_stays_within_the_memory() {
    for bytes in [64 << 10, 1 << 20, 16 << 20] {
        for name in catalog::able(AGG_EVICT) {
            let accelerator = (AGG_EVICT, Parameters::default());
            let options = Options::new(bytes, 1);
            let Some(summary) = build::<Key8>(Some(accelerator), name, &options) else { continue };
            assert!(
                summary.memory_bytes() <= bytes,
                "{name}: {} of {bytes}",
                summary.memory_bytes()
            );
            let (accelerator, parameters) = &summary.accelerators()[0];
            assert_eq!(*accelerator, AGG_EVICT);
            assert!(parameters.iter().any(|(name, _)| *name == "rows"));
        }
    }
}

/// The draws of `policy=random` depend only on the seed. Space-Saving's contents depend on the
/// order of its input, so another order of evictions shows.
#[test]
fn random_evictions_repeat_under_a_seed() {
    let packets = packets(6000, FLOWS, 5);
    let info = catalog::info("space-saving").unwrap();
    let stored = |policy: &str| {
        let options = options(Measure::Packets).with([("counters", "64")]);
        let parameters = Parameters::new([("rows", "4"), ("policy", policy)]);
        let built = build::<Key8>(Some((AGG_EVICT, parameters)), info.name, &options);
        let mut summary = built.unwrap();
        feed(&mut *summary, &packets, 64);
        encode(info, &options, &*summary)
    };
    assert!(stored("random") == stored("random"), "the draws are not those of the seed");
    assert!(stored("random") != stored("round-robin"), "the order of evictions does not show");
    assert!(stored("random") != stored("lru"), "the order of evictions does not show");
}

// FlowRegulator before all tables. Its error is tested together with InstaMeasure's.

const FLOW_REGULATOR: &str = "flow-regulator";
const BYTES: usize = 128 << 10;

fn small() -> (&'static str, Parameters) {
    (FLOW_REGULATOR, Parameters::new([("sketch", 512)]))
}

/// The listed flows with their sizes.
fn listed(answers: &dyn Answers) -> Vec<(Vec<u8>, String)> {
    let mut all = Vec::new();
    answers.candidates().unwrap().for_each(&mut |key, size| {
        all.push((key.as_bytes().to_vec(), format!("{size:?}")));
    });
    all.sort();
    all
}

/// With one seed, the same packets are let through for any key and table.
fn equals_insta_measure<K: FlowKey>() {
    let stream = packets(20_000, 300, 5);
    let options = Options::new(BYTES, 1);
    let mut insta =
        build::<K>(None, "insta-measure", &options.clone().with([("sketch", 512)])).unwrap();
    feed(&mut *insta, &stream, 256);
    for name in catalog::able(FLOW_REGULATOR) {
        let mut summary = build::<K>(Some(small()), name, &options).unwrap();
        feed(&mut *summary, &stream, 100);
        let [one, other] = [&summary, &insta].map(|summary| summary.answers().size().unwrap());
        for flow in 0..=300 {
            let key = key::<K>(flow);
            assert_eq!(
                one.estimate(key.canonical(K::BYTES)),
                other.estimate(key.canonical(K::BYTES)),
                "{name}"
            );
        }
        assert_eq!(listed(summary.answers()), listed(insta.answers()), "{name}");
        assert!(summary.memory_bytes() <= BYTES, "{name}: {}", summary.memory_bytes());
    }
}

#[test]
fn a_table_behind_it_is_insta_measure() {
    equals_insta_measure::<Key4>();
    equals_insta_measure::<Key8>();
    equals_insta_measure::<Key16>();
    equals_insta_measure::<Key37>();
}

/// Sizes are at least the number of packets let through.
#[test]
fn an_aggregator_behind_it_changes_nothing() {
    let stream = packets(20_000, 300, 5);
    let options = Options::new(BYTES, 1);
    let aggregator = ("agg-evict".to_owned(), Parameters::new([("rows", 1)]));
    let (name, parameters) = small();
    let regulator = (name.to_owned(), parameters);
    let mut both =
        catalog::build_accelerated::<Key8>(&[regulator, aggregator], "linear-table", &options)
            .unwrap();
    let mut alone = build::<Key8>(Some(small()), "linear-table", &options).unwrap();
    for summary in [&mut both, &mut alone] {
        feed(&mut **summary, &stream, 256);
    }
    let [both, alone] = [&both, &alone].map(|summary| summary.answers().size().unwrap());
    for flow in 0..=300 {
        let key = key::<Key8>(flow);
        assert_eq!(
            both.estimate(key.canonical(Key8::BYTES)),
            alone.estimate(key.canonical(Key8::BYTES))
        );
    }
}

/// Packets that are held back belong to their epoch; the next epoch is like the first.
#[test]
fn an_epoch_begins_without_packets() {
    let stream = packets(20_000, 300, 5);
    for state in ["counter", "ewma"] {
        let options = Options::new(BYTES, 1).with([("state", state)]);
        let mut summary = build::<Key8>(Some(small()), "linear-table", &options).unwrap();
        feed(&mut *summary, &stream, 256);
        let first = listed(summary.answers());
        assert!(first.len() > 20, "{state}: {}", first.len());
        summary.next_epoch();
        assert_eq!(listed(summary.answers()), [], "{state}");
        let unknown =
            summary.answers().size().unwrap().estimate(key::<Key8>(0).canonical(Key8::BYTES));
        assert!(unknown.packets.unwrap().high <= 0.0, "{state}");
        feed(&mut *summary, &stream, 100);
        assert_eq!(listed(summary.answers()), first, "{state}");
    }
}

#[test]
fn other_summaries_than_tables_are_refused_with_the_reason() {
    let refusal = |accelerators: &[&str], name: &str, parameter: Option<(&str, &str)>| {
        let options = Options::new(1 << 20, 1).with(parameter);
        let accelerators: Vec<_> =
            accelerators.iter().map(|name| ((*name).to_owned(), Parameters::default())).collect();
        let error = catalog::build_accelerated::<Key4>(&accelerators, name, &options).err();
        error.map(|error| error.to_string()).unwrap_or_default()
    };
    let tables = ["linear-table", "indirect-table", "cuckoo-1", "cuckoo-4"];
    assert_eq!(catalog::able(FLOW_REGULATOR), tables);
    for info in catalog::ALGORITHMS.iter().filter(|info| !tables.contains(&info.name)) {
        let refused = refusal(&[FLOW_REGULATOR], info.name, None);
        assert!(refused.contains("it needs a flow table"), "{refused}");
        let able =
            "it supports linear-table, indirect-table, cuckoo-1, cuckoo-4, with their default";
        assert!(refused.contains(able), "{refused}");
    }
    let distinct = refusal(&[FLOW_REGULATOR], "linear-table", Some(("state", "distinct")));
    assert!(distinct.contains("it does not accept weighted updates"), "{distinct}");
    assert_eq!(refusal(&[FLOW_REGULATOR], "linear-table", Some(("state", "ewma"))), "");
    // Behind it the order of packets matters, for any table.
    let before = refusal(&["agg-evict", FLOW_REGULATOR], "linear-table", None);
    assert!(
        before.contains("agg-evict cannot stand before flow-regulator: it depends on the order"),
        "{before}"
    );
    for sampler in ["skipper", "uniform"] {
        let two = refusal(&[sampler, FLOW_REGULATOR], "linear-table", None);
        assert!(two.contains("cannot stand before flow-regulator: one sample is enough"), "{two}");
        let two = refusal(&[FLOW_REGULATOR, "agg-evict", sampler], "linear-table", None);
        assert!(two.contains("flow-regulator cannot stand before"), "{two}");
    }
    assert_eq!(refusal(&[FLOW_REGULATOR, "agg-evict"], "linear-table", None), "");
    for parameter in ["sketch=32", "sketch=1000", "word=16", "levels=2"] {
        let (name, value) = parameter.split_once('=').unwrap();
        let accelerators = [(FLOW_REGULATOR.to_owned(), Parameters::new([(name, value)]))];
        let options = Options::new(1 << 20, 1);
        let error = catalog::build_accelerated::<Key4>(&accelerators, "cuckoo-4", &options).err();
        let error = error.unwrap().to_string();
        assert!(error.starts_with(&format!("'{name}={value}' is not ")), "{error}");
    }
}

/// With any byte changed, the stored form is refused, or decodes without harm.
#[test]
fn no_bytes_do_harm() {
    let options = Options::new(BYTES, 1).with([("buckets", 64)]);
    let mut summary = build::<Key4>(Some(small()), "linear-table", &options).unwrap();
    feed(&mut *summary, &packets(8000, 100, 13), 256);
    let info = catalog::info("linear-table").unwrap();
    let stored = encode(info, &options, &*summary);
    let mut used = 0;
    for at in 0..stored.len() - 4 {
        for mask in [1, 0x80, 0xff] {
            let mut bytes = stored.clone();
            bytes[at] ^= mask;
            let end = bytes.len() - 4;
            let checksum = crc32fast::hash(&bytes[..end]);
            bytes[end..].copy_from_slice(&checksum.to_le_bytes());
            used += u32::from(decode_and_use::<Key4>(&bytes, BYTES).is_ok());
        }
    }
    assert!(used > 1000, "{used}");
    for end in 0..stored.len() {
        let cut = decode_and_use::<Key4>(&stored[..end], BYTES).unwrap_err();
        assert!(matches!(
            cut.kind(),
            DecodeErrorKind::Cut { .. } | DecodeErrorKind::Invalid { .. }
        ));
    }
}
