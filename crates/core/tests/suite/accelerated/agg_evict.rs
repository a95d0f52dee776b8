//! Accelerators that pass on sums of packets: Agg-Evict before every algorithm that it can precede,
//! and FlowRegulator before all tables. The error of FlowRegulator is tested together with
//! InstaMeasure's.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use flowgauge_core::accelerator::{Accelerate, AggEvict};
use flowgauge_core::batch::Batch;
use flowgauge_core::catalog;
use flowgauge_core::catalog::stored::encode;
use flowgauge_core::key::{FlowKey, Key8, Key16, Key37};
use flowgauge_core::summary::codec::{DecodeError, DecodeErrorKind, Reader, Writer};
use flowgauge_core::summary::{
    Answers, Incompatible, Info, Ingest, Merge, Options, Parameters, Summary,
};
use flowgauge_core::terms::Measure;
use flowgauge_kernel::{Digester, Isa, Seed};

use super::{build, key};
use crate::stream::{Packet, decode_and_use, feed, feed_keys_of, key_of, packets};

const AGG_EVICT: &str = "agg-evict";
const FLOWS: u32 = 700;

const POLICIES: [&str; 3] = ["round-robin", "lru", "random"];

/// A choice of tag, bits and index.
type Tagging = [(&'static str, &'static str); 3];

/// All choices, the default first.
fn taggings() -> impl Iterator<Item = Tagging> {
    ["digest", "xor"].into_iter().flat_map(|tag| {
        ["16", "32"].into_iter().flat_map(move |bits| {
            ["digest", "modulo"].map(|index| [("tag", tag), ("bits", bits), ("index", index)])
        })
    })
}

/// The paper's.
const PAPER: Tagging = [("tag", "xor"), ("bits", "32"), ("index", "modulo")];

/// The parameters of an aggregator.
fn parameters(rows: &'static str, policy: &'static str, tagging: Tagging) -> Parameters {
    Parameters::new([("rows", rows), ("policy", policy)].into_iter().chain(tagging))
}

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

fn changes_nothing<K: FlowKey, const BYTES: usize>(info: &Info) -> bool {
    let packets = packets(6000, FLOWS, 5);
    let keys: Vec<_> =
        (0..=FLOWS).map(|flow| key_of::<K>(flow, BYTES).canonical(BYTES).to_vec()).collect();
    let mut built = false;
    for by in [Measure::Packets, Measure::Bytes] {
        let mut options = options(by).for_keys(BYTES);
        if ["count-min", "count-sketch", "k-ary"].contains(&info.name) {
            options = options.with([("candidates", "0")]);
        }
        let Some(mut plain) = build::<K>(None, info.name, &options) else { continue };
        built = true;
        feed_keys_of(BYTES, &mut *plain, &packets, 256);
        let expected = encode(info, &options, &*plain);
        // From a table in which nearly every packet evicts to one that is never full.
        let default = taggings().next().unwrap();
        for (rows, policy, tagging, batch) in [
            ("1", "round-robin", default, 256),
            ("4", "lru", default, 7),
            ("7", "round-robin", PAPER, 33),
            ("16", "round-robin", default, 64),
            ("32", "random", default, 256),
            ("64", "lru", default, 1),
            ("50", "random", PAPER, 256),
        ] {
            let parameters = parameters(rows, policy, tagging);
            let accelerator = (AGG_EVICT, parameters.clone());
            let options =
                Options { parameters: Parameters::new(plain.parameters()), ..options.clone() };
            let mut summary = build::<K>(Some(accelerator), info.name, &options).unwrap();
            feed_keys_of(BYTES, &mut *summary, &packets, batch);
            bounds_hold(info, &keys, &packets, summary.answers());
            // Bitmaps and sums are equal to the bit, except for the lists of heavy keys, which
            // depend on when a key was seen.
            if info.laws.merge == Merge::Equal && plain.answers().candidates().is_none() {
                let stored = encode(info, &options, &*summary);
                assert!(stored == expected, "{}: {parameters:?}", info.name);
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
            feed_keys_of(BYTES, &mut *summary, &packets, 256);
            let again = encode(info, &options, &*summary);
            let mut other = build::<K>(Some((AGG_EVICT, parameters)), info.name, &options).unwrap();
            feed_keys_of(BYTES, &mut *other, &packets, 33);
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
            changes_nothing::<Key8, 4>(info),
            changes_nothing::<Key8, 8>(info),
            changes_nothing::<Key16, 16>(info),
            changes_nothing::<Key37, 40>(info),
        ];
        assert!(keys.contains(&true), "{name}");
    }
}

/// Exact tables of packets and bytes, and sketches that read elements, are the same with each
/// policy, tag and row.
#[test]
fn tags_and_rows_change_no_sum() {
    fn unchanged<K: FlowKey, const BYTES: usize>(name: &str) {
        let packets = packets(6000, FLOWS, 5);
        let info = catalog::info(name).unwrap();
        let options = Options::new(1 << 20, 1).for_keys(BYTES);
        let mut plain = build::<K>(None, name, &options).unwrap();
        feed_keys_of(BYTES, &mut *plain, &packets, 256);
        let options = Options { parameters: Parameters::new(plain.parameters()), ..options };
        let expected = encode(info, &options, &*plain);
        for (tagging, policy) in taggings().flat_map(|tagging| POLICIES.map(|one| (tagging, one))) {
            let rows = if tagging[2].1 == "modulo" { "7" } else { "8" };
            let parameters = parameters(rows, policy, tagging);
            let mut summary =
                build::<K>(Some((AGG_EVICT, parameters.clone())), name, &options).unwrap();
            feed_keys_of(BYTES, &mut *summary, &packets, 100);
            assert!(encode(info, &options, &*summary) == expected, "{name}: {parameters:?}");
        }
    }
    unchanged::<Key8, 4>("linear-table");
    unchanged::<Key8, 8>("linear-table");
    unchanged::<Key16, 16>("linear-table");
    unchanged::<Key37, 40>("linear-table");
    unchanged::<Key8, 4>("two-level");
    unchanged::<Key8, 8>("two-level");
}

/// With `auto`, batches go either way, in a trial at least: exact tables and sketches that read
/// elements are the same, and others keep their bounds. Batches of 4 make a trial of 1,472 packets.
#[test]
fn trials_change_no_sum() {
    fn unchanged<K: FlowKey, const BYTES: usize>(name: &str) -> bool {
        let stream = packets(20_000, FLOWS, 5);
        let info = catalog::info(name).unwrap();
        let options = Options::new(1 << 20, 1).for_keys(BYTES);
        let Some(mut plain) = build::<K>(None, name, &options) else { return false };
        feed_keys_of(BYTES, &mut *plain, &stream, 256);
        let options = Options { parameters: Parameters::new(plain.parameters()), ..options };
        let parameters = Parameters::new([("rows", "64"), ("auto", "yes")]);
        let mut summary = build::<K>(Some((AGG_EVICT, parameters)), name, &options).unwrap();
        for epoch in 0..3 {
            feed_keys_of(BYTES, &mut *summary, &stream, 4);
            if info.laws.merge == Merge::Equal && plain.answers().candidates().is_none()
                || flows(plain.answers()).is_some()
            {
                assert_eq!(flows(summary.answers()), flows(plain.answers()), "{name}, {epoch}");
                let [one, other] = [&plain, &summary].map(|one| encode(info, &options, &**one));
                assert!(one == other, "{name}, {epoch}");
            }
            let keys: Vec<_> = (0..=FLOWS)
                .map(|flow| key_of::<K>(flow, BYTES).canonical(BYTES).to_vec())
                .collect();
            bounds_hold(info, &keys, &stream, summary.answers());
            summary.next_epoch();
        }
        true
    }
    for name in catalog::able(AGG_EVICT) {
        assert!(unchanged::<Key8, 8>(name) | unchanged::<Key8, 4>(name), "{name}");
    }
}

/// A table counts exactly: flows with equal tags take turns in one pair.
#[test]
fn flows_of_one_tag_are_told_apart() {
    let digester = Digester::new(Seed::number(1), Isa::best()).for_keys(Key8::BYTES);
    let mut seen = HashMap::new();
    let mut of_digest = Vec::new();
    // About 10 of 300,000² / 2 pairs agree in 32 bits; tags are these, or 16 of them.
    for number in 0u64..300_000 {
        let key = key8(number);
        if let Some(other) = seen.insert(key.digest(&digester) as u32, key) {
            of_digest.push([key, other]);
        }
    }
    assert!(of_digest.len() > 3, "{}", of_digest.len());
    let of_words: Vec<_> = (1..9).map(|host| [pair(host, 77), pair(77, host)]).collect();
    for collisions in [of_digest, of_words] {
        for tagging in taggings() {
            for policy in POLICIES {
                told_apart(parameters("1", policy, tagging), &collisions);
            }
        }
    }
}

fn key8(number: u64) -> Key8 {
    Key8::from_canonical(&number.to_be_bytes()).unwrap()
}

/// A pair of addresses.
fn pair(from: u32, to: u32) -> Key8 {
    key8(u64::from(from) << 32 | u64::from(to))
}

/// Any two of these flows are counted separately.
fn told_apart(parameters: Parameters, collisions: &[[Key8; 2]]) {
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

/// The number of evictions of 17 flows in turn, one too many for a row, 6000 packets in all.
fn evictions<K: FlowKey>(rows: &'static str, tagging: Tagging, flow: impl Fn(u32) -> K) -> usize {
    let parameters = [("rows", rows)].into_iter().chain(tagging);
    passed_on(parameters, (0..6000).map(|i| flow(i % 17))).len()
}

/// With the paper's choice, the row of a key is the remainder of the XOR of its words. Flows with
/// equal remainders share 16 pairs; flows with other remainders do not.
#[test]
fn the_papers_tags_choose_rows_by_their_remainder() {
    let passed = |tagging, step: u32| {
        evictions("2000", tagging, |flow| {
            Key8::from_canonical(&(flow * step).to_le_bytes()).unwrap()
        })
    };
    assert_eq!((passed(PAPER, 2000), passed(PAPER, 2001)), (6000, 17));
    // The remainder of the digest depends on the seed.
    let of_digest = [("tag", "digest"), ("bits", "32"), ("index", "modulo")];
    assert_eq!(passed(of_digest, 2000), 17);
}

/// Keys whose words have the same XOR, such as those that a sender chooses, share a row only where
/// the row is the remainder of that XOR.
#[test]
fn rows_by_digest_spread_keys_of_one_xor() {
    for [tag, bits, index] in taggings() {
        let passed = evictions("2048", [tag, bits, index], |flow| pair(flow, flow ^ 0x4d));
        let share_one = (tag.1, index.1) == ("xor", "modulo");
        assert_eq!(passed, if share_one { 6000 } else { 17 }, "{tag:?} {bits:?} {index:?}");
    }
}

/// Two flows in one row whose tags agree in 16 bits, but not in 32, evict each other only with tags
/// of 16 bits.
#[test]
fn short_tags_collide_where_long_ones_differ() {
    let digester = Digester::new(Seed::number(1), Isa::best()).for_keys(Key8::BYTES);
    let mut seen = HashMap::new();
    let of_digest = (0..10_000).find_map(|number| {
        let other = seen.insert(key8(number).digest(&digester) as u16, key8(number))?;
        Some([key8(number), other])
    });
    // Swapped halves have the same XOR of 16-bit words.
    let of_words = [pair(0x0001_0002, 0), pair(0x0002_0001, 0)];
    for (tag, flows) in [("digest", of_digest.unwrap()), ("xor", of_words)] {
        for index in ["digest", "modulo"] {
            let passed = |bits| {
                let parameters = [("rows", "1"), ("tag", tag), ("bits", bits), ("index", index)];
                passed_on(parameters, (0..6000).map(|i| flows[i % 2])).len()
            };
            assert_eq!((passed("16"), passed("32")), (6000, 2), "{tag} {index}");
        }
    }
}

/// A power of two of rows by the remainder of the digest evicts as the default does, which has
/// other code.
#[test]
fn the_default_is_a_case_of_the_others() {
    let stream = packets(6000, FLOWS, 5);
    for policy in POLICIES {
        let passed = |index| {
            let parameters = [("rows", "8"), ("policy", policy), ("index", index)];
            passed_on(parameters, stream.iter().map(|packet| key::<Key8>(packet.flow)))
        };
        assert!(passed("digest") == passed("modulo"), "{policy}");
    }
}

#[test]
fn refused_tags_name_the_remedy() {
    let refusal = |parameters: &[(&str, &str)]| {
        let chain = [(AGG_EVICT.to_owned(), Parameters::new(parameters.iter().copied()))];
        let built =
            catalog::build_accelerated::<Key8>(&chain, "count-min", &Options::new(1 << 20, 1));
        built.err().map(|error| error.to_string())
    };
    let any_number =
        "'rows=2000' is not a power of two up to 65536 (index=modulo takes any number)";
    assert_eq!(refusal(&[("rows", "2000")]).unwrap(), any_number);
    assert_eq!(refusal(&[("rows", "2000"), ("tag", "xor")]).unwrap(), any_number);
    assert_eq!(refusal(&[("rows", "2000"), ("index", "modulo")]), None);
    for (name, value, expected) in [
        ("tag", "crc", "'tag=crc' is not one of digest, xor"),
        ("bits", "24", "'bits=24' is not one of 16, 32"),
        (
            "index",
            "modulus",
            "'index=modulus' is not one of digest, modulo; did you mean 'modulo'?",
        ),
        ("tags", "xor", "unknown parameter 'tags' of agg-evict; did you mean 'tag'?"),
    ] {
        assert_eq!(refusal(&[(name, value)]).unwrap(), expected);
    }
}

/// Reports name the choice, unless it is the default.
#[test]
fn the_choice_is_a_parameter_in_force() {
    for (number, tagging) in taggings().enumerate() {
        let accelerator = (AGG_EVICT, parameters("2", "round-robin", tagging));
        let options = Options::new(1 << 20, 1);
        let summary = build::<Key8>(Some(accelerator), "count-min", &options).unwrap();
        let named: Vec<_> = summary.accelerators()[0].1[2..]
            .iter()
            .map(|(name, value)| (*name, value.to_string()))
            .collect();
        let expected = tagging.map(|(name, value)| (name, value.to_owned()));
        assert_eq!(named, if number == 0 { &[][..] } else { &expected });
    }
}

/// The flow of all zeros, whose pair looks empty, is counted like any other.
#[test]
fn the_zero_key_is_counted() {
    let accelerator = (AGG_EVICT, Parameters::new([("rows", "1")]));
    let mut summary =
        build::<Key8>(Some(accelerator), "linear-table", &Options::new(1 << 20, 1)).unwrap();
    let zero = |flow| Packet { flow, bytes: 64, peer: 0 };
    let packets: Vec<Packet> = (0..2000).flat_map(|i| [zero(0), zero(i % 20)]).collect();
    feed(&mut *summary, &packets, 256);
    let flows = flows(summary.answers()).unwrap();
    assert_eq!(flows[&vec![0; 8]], (2100, 2100 * 64));
    assert_eq!(flows.values().map(|(packets, _)| packets).sum::<u64>(), 4000);
}

/// A summary that records its input.
pub(super) struct Log(pub(super) Arc<Mutex<Vec<(u64, u32)>>>);

impl Answers for Log {}

impl<K: FlowKey> Ingest<K> for Log {
    fn ingest(&mut self, batch: &mut Batch<K>) {
        let rows = batch.keys().iter().zip(batch.packets());
        let rows = rows.map(|(key, packets)| (number(key), *packets));
        self.0.lock().unwrap().extend(rows);
    }
}

impl<K: FlowKey> Summary<K> for Log {
    fn answers(&self) -> &dyn Answers {
        self
    }
    fn merge(&mut self, _: &dyn Summary<K>) -> Result<(), Incompatible> {
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

/// The number in a key of up to 8 bytes.
fn number<K: FlowKey>(key: &K) -> u64 {
    key.canonical(K::BYTES).iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// The rows that reach the summary for packets with these keys: keys as numbers, and packets.
fn passed_on<K: FlowKey>(
    parameters: impl IntoIterator<Item = (&'static str, &'static str)>,
    keys: impl Iterator<Item = K>,
) -> Vec<(u64, u32)> {
    let log = Arc::default();
    let options = Options::new(1 << 20, 1).with(parameters).for_keys(K::BYTES);
    let inner = Box::new(Log(Arc::clone(&log)));
    let mut summary = AggEvict::build::<K>(&options, inner).unwrap();
    let mut batch = Batch::new();
    for key in keys {
        batch.push(key, 64, 0);
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
fn through_a_row(policy: &'static str, flows: impl Iterator<Item = u32>) -> Vec<(u64, u32)> {
    passed_on([("rows", "1"), ("policy", policy)], flows.map(key::<Key8>))
}

/// A flow in every second packet is never evicted by `lru`, once in each turn by `round-robin`, and
/// as often on average by `random`.
#[test]
fn the_policies_drop_the_flows_of_their_definition() {
    let digester = Digester::new(Seed::number(1), Isa::best()).for_keys(Key8::BYTES);
    // A flow with the same tag would take the other's pair.
    let fingerprint = |flow| key::<Key8>(flow).digest(&digester) as u16;
    let others: Vec<u32> =
        (1..).filter(|i| fingerprint(*i) != fingerprint(0xffff_ffff)).take(1600).collect();
    let flows = || others.iter().flat_map(|i| [0xffff_ffff, *i]);
    let hot = |policy| {
        let rows = through_a_row(policy, flows());
        assert_eq!(rows.iter().map(|(_, packets)| packets).sum::<u32>(), 3200);
        rows.into_iter().filter(|(key, _)| *key == u64::MAX).count()
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

/// The memory is that of the catalog's formula, which is exact for rows.
#[test]
fn its_memory_is_that_of_the_catalog() {
    fn as_told<K: FlowKey>(name: &str, by: Measure, peers: bool) {
        let options = Options { by, ..Options::new(4 << 20, 1) };
        let plain = build::<K>(None, name, &options).unwrap();
        let options = Options { parameters: Parameters::new(plain.parameters()), ..options };
        for (number, tagging) in taggings().enumerate() {
            for policy in POLICIES {
                let parameters = parameters("64", policy, tagging);
                let summary =
                    build::<K>(Some((AGG_EVICT, parameters.clone())), name, &options).unwrap();
                let bytes = by == Measure::Bytes || number > 0;
                let mut pair = 4 + K::BYTES;
                if bytes {
                    pair += 4;
                }
                if peers {
                    pair += 8;
                }
                if number > 0 {
                    pair += 2;
                }
                let policy = if policy == "lru" { 8 } else { 0 };
                let rows = 64 * ((16 * pair).next_multiple_of(64) + policy);
                let most =
                    256 * (3 * K::BYTES + 60) + 6144 * (usize::from(bytes) + usize::from(peers));
                let least = 256 * (3 * K::BYTES + 52);
                let own = summary.memory_bytes() - plain.memory_bytes();
                let told = rows + least..=rows + most;
                assert!(told.contains(&own), "{name}, {parameters:?}: {own} is not in {told:?}");
            }
        }
    }
    for by in [Measure::Packets, Measure::Bytes] {
        as_told::<Key8>("count-min", by, false);
        as_told::<Key16>("count-min", by, false);
        as_told::<Key37>("count-min", by, false);
        as_told::<Key8>("two-level", by, true);
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
        let error = catalog::build_accelerated::<Key8>(&accelerators, name, &options).err();
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
        let error = catalog::build_accelerated::<Key8>(&accelerators, "cuckoo-4", &options).err();
        let error = error.unwrap().to_string();
        assert!(error.starts_with(&format!("'{name}={value}' is not ")), "{error}");
    }
}

/// With any byte changed, the stored form is refused, or decodes without harm.
#[test]
fn no_bytes_do_harm() {
    let options = Options::new(BYTES, 1).with([("buckets", 64)]);
    let mut summary = build::<Key8>(Some(small()), "linear-table", &options).unwrap();
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
            used += u32::from(decode_and_use::<Key8>(&bytes, BYTES).is_ok());
        }
    }
    assert!(used > 1000, "{used}");
    for end in 0..stored.len() {
        let cut = decode_and_use::<Key8>(&stored[..end], BYTES).unwrap_err();
        assert!(matches!(
            cut.kind(),
            DecodeErrorKind::Cut { .. } | DecodeErrorKind::Invalid { .. }
        ));
    }
}
