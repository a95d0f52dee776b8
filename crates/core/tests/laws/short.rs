//! Keys shorter than the type that stores them: IPv4 five-tuples of 13 bytes in 16.

use std::collections::HashSet;

use flowgauge_core::catalog;
use flowgauge_core::catalog::stored::{decode, encode};
use flowgauge_core::key::{FlowKey, Key16};
use flowgauge_core::summary::{Answers, Info, Options, Summary};

use super::ask::decode_and_use;
use super::golden::LIMIT;
use super::stream::{feed, feed_keys_of, key_of, packets};
use super::{UNSEEDED, build, small};

/// Canonical bytes of a key.
const BYTES: usize = 13;

const FLOWS: u32 = 400;

fn canonical(flow: u32) -> Vec<u8> {
    key_of::<Key16>(flow, BYTES).canonical(BYTES).to_vec()
}

/// A summary of such keys; `None` if the algorithm refuses them.
fn filled(info: &Info, options: &Options) -> Option<Box<dyn Summary<Key16>>> {
    let mut summary = build::<Key16>(info, options)?;
    feed_keys_of(BYTES, &mut *summary, &packets(3000, FLOWS, 13), 256);
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
    let sent: HashSet<Vec<u8>> = (0..FLOWS).map(canonical).collect();
    let options = small().for_keys(BYTES);
    let mut names = HashSet::new();
    for info in catalog::ALGORITHMS {
        let Some(summary) = filled(info, &options) else { continue };
        named(summary.answers(), &mut |key| {
            assert!(sent.contains(key), "{}: {key:02x?}", info.name);
            names.insert(info.name);
        });
        let bytes = encode(info, &options, &*summary);
        let decoded = decode::<Key16>(&bytes, LIMIT).unwrap();
        assert_eq!(decoded.options.key_bytes, Some(BYTES));
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
    let options = Options::new(1 << 20, 1).for_keys(BYTES);
    for info in catalog::ALGORITHMS {
        let Some(summary) = filled(info, &options) else { continue };
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
    let (short, long) = (small().for_keys(BYTES), small());
    for info in catalog::ALGORITHMS {
        let Some(mut summary) = filled(info, &short) else { continue };
        let before = encode(info, &short, &*summary);
        let Some(mut other) = build::<Key16>(info, &long) else { continue };
        feed(&mut *other, &packets(500, 50, 8), 256);
        let error = summary.merge(&*other).unwrap_err().to_string();
        assert!(error.contains("key lengths differ"), "{}: {error}", info.name);
        assert!(encode(info, &short, &*summary) == before, "{}", info.name);
    }
}
