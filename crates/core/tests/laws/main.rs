//! Laws that hold for every algorithm of the catalog, with full and shorter keys, and for the
//! outlines of summaries.

#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod asking;
mod bounds;
mod codec;
mod merge;
mod reads;
mod stream;
#[allow(unreachable_pub, reason = "it serves the fuzz target too")]
#[path = "../../../../fuzz/src/summaries.rs"]
mod summaries;
#[path = "../suite/zipf.rs"]
mod zipf;

use std::collections::HashSet;

use codec::LIMIT;
use flowgauge_core::accelerator::AcceleratorInfo;
use flowgauge_core::catalog::stored::{decode, encode};
use flowgauge_core::catalog::{self, ACCELERATORS, ALGORITHMS, Outline};
use flowgauge_core::key::{CanonicalKey, FlowKey, Key8, Key16, Key37};
use flowgauge_core::summary::{
    Answers, BuildErrorKind, Info, Merge, Options, Parameters, Quantiles, Summary,
};
use flowgauge_core::terms::{Hierarchy, Measure};
use stream::{Packet, decode_and_use, feed, feed_keys_of, key_of, packets};

/// Builds a summary; `None` if the algorithm refuses keys of this width.
fn build<K: FlowKey>(info: &Info, options: &Options) -> Option<Box<dyn Summary<K>>> {
    match catalog::build(info.name, options) {
        Ok(summary) => Some(summary),
        Err(error) if matches!(error.kind(), BuildErrorKind::Unfit { .. }) => None,
        Err(error) => panic!("{}: {error}", info.name),
    }
}

/// Runs `law` for every algorithm with keys of every type; each algorithm must accept some.
macro_rules! for_all {
    ($law:ident) => {
        for info in ALGORITHMS {
            let keys = [
                $law::<Key8, 4>(info),
                $law::<Key8, 8>(info),
                $law::<Key16, 16>(info),
                $law::<Key37, 40>(info),
            ];
            assert!(keys.contains(&true), "{} takes no key", info.name);
        }
    };
}
pub(crate) use for_all;

/// This algorithm's library draws random bits without a seed, so equal packets give different
/// bytes.
pub(crate) const UNSEEDED: &str = "kll";

fn small() -> Options {
    Options::new(64 << 10, 1)
}

/// The stored form after these packets in batches of `batch`.
fn stored<K: FlowKey, const BYTES: usize>(
    info: &Info,
    packets: &[Packet],
    batch: usize,
) -> Option<Vec<u8>> {
    let options = small().for_keys(BYTES);
    let mut summary = build::<K>(info, &options)?;
    feed_keys_of(BYTES, &mut *summary, packets, batch);
    Some(encode(info, &options, &*summary))
}

fn batches_do_not_matter<K: FlowKey, const BYTES: usize>(info: &Info) -> bool {
    if info.name == UNSEEDED {
        return true;
    }
    let packets = packets(5000, 900, 3);
    let Some(whole) = stored::<K, BYTES>(info, &packets, 256) else { return false };
    for batch in [1, 64] {
        assert!(
            stored::<K, BYTES>(info, &packets, batch).unwrap() == whole,
            "{}: {batch}",
            info.name
        );
    }
    true
}

#[test]
fn the_size_of_batches_does_not_matter() {
    for_all!(batches_do_not_matter);
}

/// Packets in order and in reverse: sizes and totals are the same.
fn orders_do_not_matter<K: FlowKey, const BYTES: usize>(info: &Info) -> bool {
    let mut packets = packets(5000, 900, 3);
    let Some(mut forwards) = build::<K>(info, &small().for_keys(BYTES)) else { return false };
    feed_keys_of(BYTES, &mut *forwards, &packets, 256);
    packets.reverse();
    let mut backwards = build::<K>(info, &small().for_keys(BYTES)).unwrap();
    feed_keys_of(BYTES, &mut *backwards, &packets, 256);
    let answers = [forwards.answers(), backwards.answers()];
    // Estimates that use the heaviest keys depend on which of nearly equal keys these are.
    if answers[0].candidates().is_none() {
        let [forwards, backwards] = answers.map(Answers::cardinality);
        assert_eq!(forwards, backwards, "{}", info.name);
    }
    let [Some(forwards), Some(backwards)] = answers.map(Answers::size) else { return true };
    for flow in 0..900 {
        let key = key_of::<K>(flow, BYTES);
        let sizes = [forwards, backwards].map(|sizes| sizes.estimate(key.canonical(BYTES)));
        assert_eq!(sizes[0], sizes[1], "{}: flow {flow}", info.name);
    }
    true
}

#[test]
fn the_order_does_not_matter_where_the_catalog_says_so() {
    // For other algorithms only the bounds hold in any order.
    let laws = |info: &&Info| info.laws.commutable && info.laws.merge == Merge::Equal;
    for info in ALGORITHMS.iter().filter(laws) {
        assert!(orders_do_not_matter::<Key8, 8>(info));
    }
}

/// Summaries that read the lengths, times or elements of single packets take no aggregated updates.
#[test]
fn laws_depend_on_the_parameters() {
    let laws = |name, parameter: (&str, &str)| {
        let laws = catalog::laws(name, &Parameters::new([parameter])).unwrap();
        (laws.commutable, laws.aggregatable)
    };
    assert_eq!(laws("kll", ("of", "key")), (true, true));
    assert_eq!(laws("kll", ("of", "size")), (true, false));
    assert_eq!(laws("kll", ("of", "gap")), (false, false));
    for name in ["linear-table", "indirect-table", "cuckoo-1", "cuckoo-4", "count-array"] {
        assert_eq!(laws(name, ("state", "counter")), (true, true));
        assert_eq!(laws(name, ("state", "distinct")), (true, false));
    }
    assert!(catalog::laws("kll", &Parameters::new([("kk", "1")])).is_err());
}

fn a_cleared_summary_is_new<K: FlowKey, const BYTES: usize>(info: &Info) -> bool {
    let options = small().for_keys(BYTES);
    let Some(mut summary) = build::<K>(info, &options) else { return false };
    let empty = encode(info, &options, &*summary);
    let memory = summary.memory_bytes();
    let packets = packets(4000, 700, 5);
    feed_keys_of(BYTES, &mut *summary, &packets, 256);
    let full = encode(info, &options, &*summary);
    assert!(full != empty, "{} took nothing", info.name);
    summary.clear();
    assert!(encode(info, &options, &*summary) == empty, "{}", info.name);
    feed_keys_of(BYTES, &mut *summary, &packets, 256);
    let again = encode(info, &options, &*summary);
    assert!(info.name == UNSEEDED || again == full, "{}", info.name);
    assert_eq!(summary.memory_bytes(), memory, "{}", info.name);
    true
}

#[test]
fn clearing_forgets_everything() {
    for_all!(a_cleared_summary_is_new);
}

/// The effective parameters rebuild the same shape, and its memory counts against the limit.
fn parameters_give_the_shape_back<K: FlowKey, const BYTES: usize>(info: &Info) -> bool {
    let options = small().for_keys(BYTES);
    let Some(summary) = build::<K>(info, &options) else { return false };
    let mut again = Options::new(1, 1).for_keys(BYTES).with(summary.parameters());
    again.memory = flowgauge_core::summary::Memory::limited(summary.memory_bytes());
    let twin = build::<K>(info, &again).unwrap();
    assert_eq!(twin.memory_bytes(), summary.memory_bytes(), "{}", info.name);
    assert_eq!(twin.parameters(), summary.parameters(), "{}", info.name);
    assert!(summary.memory_bytes() <= options.memory_bytes, "{} takes too much", info.name);
    again.memory = flowgauge_core::summary::Memory::limited(summary.memory_bytes() - 1);
    let error = catalog::build::<K>(info.name, &again).err().unwrap();
    assert!(
        matches!(error.kind(), BuildErrorKind::TooLittleMemory { .. }),
        "{}: {error}",
        info.name
    );
    true
}

#[test]
fn memory_is_counted_and_the_parameters_are_the_whole_shape() {
    for_all!(parameters_give_the_shape_back);
}

// Keys shorter than the type that stores them: IPv4 five-tuples of 13 bytes in 16.

/// Canonical bytes of a key.
const SHORT: usize = 13;

const SHORT_FLOWS: u32 = 400;

fn canonical(flow: u32) -> Vec<u8> {
    key_of::<Key16>(flow, SHORT).canonical(SHORT).to_vec()
}

/// A summary of such keys; `None` if the algorithm refuses them.
fn filled_short(info: &Info, options: &Options) -> Option<Box<dyn Summary<Key16>>> {
    let mut summary = build::<Key16>(info, options)?;
    feed_keys_of(SHORT, &mut *summary, &packets(3000, SHORT_FLOWS, 13), 256);
    Some(summary)
}

/// Calls `visit` with every key that is named.
fn named(answers: &dyn Answers, visit: &mut dyn FnMut(&[u8])) {
    if let Some(flows) = answers.flows() {
        flows.for_each(&mut |key, _| visit(key));
        (0..flows.len()).for_each(|index| visit(flows.get(index).0));
    }
    if let Some(candidates) = answers.candidates() {
        candidates.for_each(&mut |key, _| visit(key.as_bytes()));
    }
    if let Some(spread) = answers.spread() {
        spread.for_each(&mut |key, _| visit(key.as_bytes()));
    }
    if let Some(forecasts) = answers.forecasts() {
        forecasts.for_each(&mut |key, _| visit(key.as_bytes()));
    }
    if let Some(quantiles) = answers.quantiles() {
        let keys = [0.0, 0.5, 1.0].map(|q| quantiles.key(q));
        keys.iter().flatten().for_each(|key| visit(key.as_bytes()));
    }
}

/// Summaries name keys that were sent, in their own length, also after being stored and decoded.
#[test]
fn short_keys_are_named_and_stored_as_such() {
    let sent: HashSet<Vec<u8>> = (0..SHORT_FLOWS).map(canonical).collect();
    let options = small().for_keys(SHORT);
    let mut names = HashSet::new();
    for info in catalog::ALGORITHMS {
        let Some(summary) = filled_short(info, &options) else { continue };
        named(summary.answers(), &mut |key| {
            assert!(sent.contains(key), "{}: {key:02x?}", info.name);
            names.insert(info.name);
        });
        let bytes = encode(info, &options, &*summary);
        let decoded = decode::<Key16>(&bytes, LIMIT).unwrap();
        assert_eq!(decoded.options.key_bytes, Some(SHORT));
        assert!(encode(info, &decoded.options, &*decoded.summary) == bytes, "{}", info.name);
        let copy = decoded.summary.answers();
        named(copy, &mut |key| assert!(sent.contains(key), "{}: {key:02x?}", info.name));
        decode_and_use::<Key16>(&bytes, LIMIT).unwrap();
    }
    for name in
        ["linear-table", "count-min", "space-saving", "elastic-sketch", "insta-measure", UNSEEDED]
    {
        assert!(names.contains(name), "{name} names no key");
    }
}

/// Flows are found by their keys, and not by keys of another length.
#[test]
fn short_keys_are_found() {
    let options = Options::new(1 << 20, 1).for_keys(SHORT);
    for info in catalog::ALGORITHMS {
        let Some(summary) = filled_short(info, &options) else { continue };
        let answers = summary.answers();
        let (Some(sizes), Some(flows)) = (answers.size(), answers.flows()) else { continue };
        flows.for_each(&mut |key, size| {
            let found = sizes.estimate(key).packets.unwrap();
            assert!(found.low <= size.packets as f64 && found.high >= size.packets as f64);
            assert!(found.value > 0.0, "{}: {key:02x?}", info.name);
            let longer = sizes.estimate(&[key, &[0; 3]].concat()).packets.unwrap();
            assert!(longer.value <= 0.0, "{}: {key:02x?}", info.name);
        });
    }
}

/// Keys of other lengths have other digests, even if their words are equal.
#[test]
fn keys_of_different_lengths_do_not_merge() {
    let (short, long) = (small().for_keys(SHORT), small());
    for info in catalog::ALGORITHMS {
        let Some(mut summary) = filled_short(info, &short) else { continue };
        let before = encode(info, &short, &*summary);
        let Some(mut other) = build::<Key16>(info, &long) else { continue };
        feed(&mut *other, &packets(500, 50, 8), 256);
        let error = summary.merge(&*other).unwrap_err().to_string();
        assert!(error.contains("key lengths differ"), "{}: {error}", info.name);
        assert!(encode(info, &short, &*summary) == before, "{}", info.name);
    }
}

// The catalog's outline of a summary answers what the built summary answers.

/// The capabilities that tasks and workers check before the first packet.
fn shape(answers: &dyn Answers, key_bytes: usize) -> String {
    let any = &[0; CanonicalKey::MAX_BYTES][..key_bytes];
    let size = answers.size().map(|size| {
        let size = size.estimate(any);
        [size.packets.is_some(), size.bytes.is_some()]
    });
    let logs = [Measure::Packets, Measure::Bytes].map(|by| answers.weight_logs(by).is_some());
    let cells = answers.cells().map(|cells| (cells.measure(), cells.sampled()));
    let prefixes = answers.prefixes().map(|prefixes| (prefixes.measure(), prefixes.hierarchy()));
    format!(
        "flows: {}, size: {size:?}, candidates: {}, cardinality: {}, weight logs: {logs:?}, \
         distribution: {}, quantiles: {:?}, spread: {}, forecasts: {}, cells: {cells:?}, \
         prefixes: {prefixes:?}",
        answers.flows().is_some(),
        answers.candidates().is_some(),
        answers.cardinality().is_some(),
        answers.distribution().is_some(),
        answers.quantiles().map(Quantiles::of),
        answers.spread().is_some(),
        answers.forecasts().is_some(),
    )
}

type Before = Vec<(String, Parameters)>;

/// Accelerators, alone and in pairs, with default parameters and with some that pass on everything.
fn stacks() -> Vec<Before> {
    let one = |info: &AcceleratorInfo| (info.name.to_owned(), Parameters::default());
    let mut all: Vec<Before> = vec![Vec::new()];
    for info in ACCELERATORS {
        all.push(vec![one(info)]);
        all.extend(ACCELERATORS.iter().map(|other| vec![one(info), one(other)]));
    }
    let with = |name: &str, parameter, value| {
        vec![(name.to_owned(), Parameters::new([(parameter, value)]))]
    };
    all.extend([
        with("nitro", "p", "1"),
        with("nitro", "mode", "correct"),
        with("nitro", "mode", "line-rate"),
        with("uniform", "sample", "1"),
        with("skipper", "l2", "own"),
    ]);
    all
}

/// The parameters of each form, and some that change no answer.
fn parameters(info: &Info) -> Vec<Parameters> {
    let mut all: Vec<Parameters> =
        info.forms.iter().map(|form| Parameters::new(form.parameters.iter().copied())).collect();
    if info.parameters.iter().any(|parameter| parameter.name == "layout") {
        all.push(Parameters::new([("state", "ewma"), ("layout", "inline")]));
    }
    all
}

/// How many summaries were built, and how many refused.
#[derive(Default)]
struct Seen {
    built: usize,
    refused: usize,
}

fn compare<K: FlowKey>(key_bytes: usize, info: &Info, seen: &mut Seen) {
    let asked = [
        (Measure::Packets, Hierarchy::Bytes, 128),
        (Measure::Bytes, Hierarchy::Pair, 128),
        (Measure::Packets, Hierarchy::Bits, 1 << 20),
    ];
    for (by, hierarchy, spread) in asked {
        for parameters in parameters(info) {
            for before in stacks() {
                let options = Options {
                    parameters: parameters.clone(),
                    by,
                    hierarchy,
                    spread,
                    ..Options::new(1 << 20, 1).for_keys(key_bytes)
                };
                let case = format!("{before:?} {} {parameters:?} {by:?} {key_bytes}", info.name);
                let outline = Outline::new(key_bytes, &before, info.name, &options);
                let built = catalog::build_accelerated::<K>(&before, info.name, &options);
                match (outline, built) {
                    (Ok(outline), Ok(built)) => {
                        let said = shape(&outline, key_bytes);
                        assert_eq!(said, shape(built.answers(), key_bytes), "{case}");
                        let elements = outline.spread().is_some();
                        assert!(!elements || built.reads().elements, "{case}");
                        seen.built += 1;
                    }
                    (Err(said), Err(refused)) => {
                        assert_eq!(said.to_string(), refused.to_string(), "{case}");
                        seen.refused += 1;
                    }
                    (Ok(_), Err(refused)) => panic!("{case}: not built, {refused}"),
                    (Err(said), Ok(_)) => panic!("{case}: built, though {said}"),
                }
            }
        }
    }
}

#[test]
fn an_outline_gives_the_answers_of_the_summary() {
    let mut seen = Seen::default();
    for info in ALGORITHMS {
        compare::<Key8>(4, info, &mut seen);
        compare::<Key8>(8, info, &mut seen);
        compare::<Key16>(13, info, &mut seen);
        compare::<Key16>(16, info, &mut seen);
        compare::<Key37>(32, info, &mut seen);
        compare::<Key37>(37, info, &mut seen);
    }
    assert!(seen.built > 1000 && seen.refused > 1000, "{} {}", seen.built, seen.refused);
}

/// A concurrent summary answers what its outline says, or is refused alike.
#[test]
fn an_outline_gives_the_answers_of_a_concurrent_summary() {
    let mut seen = Seen::default();
    for info in ALGORITHMS {
        for parameters in parameters(info) {
            let options = Options { parameters, ..Options::new(1 << 20, 1).for_keys(16) };
            let case = format!("{} {:?}", info.name, options.parameters);
            let outline = Outline::concurrent(16, info.name, &options);
            match (outline, catalog::build_concurrent::<Key16>(info.name, &options)) {
                (Ok(outline), Ok(built)) => {
                    let answers = built.ordinary().answers();
                    assert_eq!(shape(&outline, 16), shape(answers, 16), "{case}");
                    seen.built += 1;
                }
                (Err(said), Err(refused)) => {
                    assert_eq!(said.to_string(), refused.to_string(), "{case}");
                    seen.refused += 1;
                }
                (said, _) => panic!("{case}: {:?}", said.err()),
            }
        }
    }
    assert!(seen.built >= catalog::CONCURRENT.len() && seen.refused > 30, "{}", seen.refused);
}

/// The first form is the default, and no two forms have the same parameters.
#[test]
fn forms_are_told_apart_by_their_parameters() {
    for info in ALGORITHMS {
        assert!(info.forms[0].parameters.is_empty(), "{}", info.name);
        for form in info.forms {
            let asked = info.form(&Parameters::new(form.parameters.iter().copied()));
            assert!(std::ptr::eq(asked, form), "{} {:?}", info.name, form.parameters);
        }
    }
}
