//! Merges: what merged summaries answer, and which ones are refused.

use flowgauge_core::catalog::stored::encode;
use flowgauge_core::key::{FlowKey, Key8, Key16, Key37};
use flowgauge_core::summary::{Answers, Info, Merge, Options, Summary};
use flowgauge_core::terms::{Measure, Size, Threshold};
use flowgauge_core::{catalog, catalog::ALGORITHMS};

use super::stream::{Packet, feed, feed_keys_of, key_of, packets};
use super::{build, for_all, small};

const FLOWS: u32 = 500;
const MEASURES: [Measure; 2] = [Measure::Packets, Measure::Bytes];

/// A summary merged from parts of the packets, in order or in reverse. Each flow is in one part
/// only if the algorithm needs that.
fn merged<K: FlowKey, const BYTES: usize>(
    info: &Info,
    options: &Options,
    packets: &[Packet],
    (shards, backwards): (usize, bool),
) -> Option<Box<dyn Summary<K>>> {
    let disjoint = info.laws.merge == Merge::Disjoint;
    let part = |shard: usize| {
        let shard = if backwards { shards - 1 - shard } else { shard };
        let of = |(i, packet): &(usize, &Packet)| {
            let number = if disjoint { packet.flow as usize } else { i / 7 };
            number % shards == shard
        };
        let part = packets.iter().enumerate();
        let part: Vec<Packet> = part.filter(of).map(|(_, packet)| *packet).collect();
        let mut summary = build::<K>(info, options)?;
        feed_keys_of(BYTES, &mut *summary, &part, 256);
        Some(summary)
    };
    let mut sum = part(0)?;
    for shard in 1..shards {
        sum.merge(&*part(shard)?).unwrap();
    }
    Some(sum)
}

/// The sizes of all flows in both measures, and of one flow without packets.
fn truths(packets: &[Packet]) -> Vec<[u64; 2]> {
    let mut truths = vec![[0; 2]; FLOWS as usize + 1];
    for packet in packets {
        let [packets, bytes] = &mut truths[packet.flow as usize];
        *packets += 1;
        *bytes += u64::from(packet.bytes);
    }
    truths
}

/// Sizes of a merged summary equal those of one summary, or are within the bounds as often as
/// promised.
fn sizes_are_kept(
    info: &Info,
    keys: &[Vec<u8>],
    truths: &[[u64; 2]],
    [one, sum]: [&dyn Answers; 2],
) {
    let (Some(one), Some(sum)) = (one.size(), sum.size()) else { return };
    for (measure, by) in MEASURES.into_iter().enumerate() {
        let (mut outside, mut allowed) = (0.0, 0.0);
        for (key, truth) in keys.iter().zip(truths) {
            let (one, sum) = (one.estimate(key).by(by), sum.estimate(key).by(by));
            let (Some(one), Some(sum)) = (one, sum) else { continue };
            let truth = truth[measure] as f64;
            let within = sum.low <= truth && truth <= sum.high;
            if info.laws.merge != Merge::WithinBounds {
                assert_eq!(one.value.to_bits(), sum.value.to_bits(), "{}", info.name);
            }
            assert!(within || sum.confidence.is_some(), "{}: {sum:?}, not {truth}", info.name);
            outside += f64::from(u8::from(!within));
            allowed += 1.0 - sum.confidence.unwrap_or(1.0);
            if info.name == "conservative-count-min" {
                assert!(truth <= one.value && one.value <= sum.value, "{one:?} {sum:?}");
            }
        }
        // With 500 flows, 5 % more are at least four standard errors.
        assert!(outside <= allowed + 0.05 * keys.len() as f64, "{}: {outside}", info.name);
    }
}

/// Totals over all flows are the same up to rounding.
fn totals_are_kept(info: &Info, [one, sum]: [&dyn Answers; 2]) {
    let same = |one: f64, sum: f64| (one - sum).abs() <= 1e-9 * one.abs();
    assert_eq!(one.cardinality().is_some(), sum.cardinality().is_some());
    if let (Some(one), Some(sum)) = (one.cardinality(), sum.cardinality()) {
        assert!(same(one.value, sum.value), "{}: {one:?} {sum:?}", info.name);
    }
    for by in MEASURES {
        if let (Some(one), Some(sum)) = (one.weight_logs(by), sum.weight_logs(by)) {
            assert!(same(one.value, sum.value), "{}: {one:?} {sum:?}", info.name);
        }
    }
}

fn merges_keep_their_promise<K: FlowKey, const BYTES: usize>(info: &Info) -> bool {
    let packets = packets(6000, FLOWS, 7);
    let (truths, mut built) = (truths(&packets), false);
    let keys: Vec<_> =
        (0..=FLOWS).map(|flow| key_of::<K>(flow, BYTES).canonical(BYTES).to_vec()).collect();
    for by in MEASURES {
        let options = Options { by, memory_bytes: 256 << 10, ..small().for_keys(BYTES) };
        let Some(one) = merged::<K, BYTES>(info, &options, &packets, (1, false)) else { continue };
        built = true;
        for order in [(2, true), (5, false), (16, true)] {
            let sum = merged::<K, BYTES>(info, &options, &packets, order).unwrap();
            let answers = [one.answers(), sum.answers()];
            sizes_are_kept(info, &keys, &truths, answers);
            if info.laws.merge == Merge::Equal {
                totals_are_kept(info, answers);
                // Which keys are kept as heavy may depend on the order of packets.
                if answers[0].candidates().is_none() || answers[0].flows().is_some() {
                    let [one, sum] = [&one, &sum].map(|summary| encode(info, &options, &**summary));
                    assert!(one == sum, "{}: {order:?}", info.name);
                }
            }
        }
    }
    built
}

/// Merges the parts of the last epoch, which one summary counts one after the other, beginning each
/// by `next`. Returns the stored sum, and whether it has no untracked packets.
fn of_parts<K: FlowKey, const BYTES: usize>(
    info: &Info,
    options: &Options,
    epochs: &[&[Packet]],
    next: fn(&mut dyn Summary<K>),
) -> Option<(Vec<u8>, bool)> {
    let (mut sum, mut part) = (build::<K>(info, options)?, build::<K>(info, options)?);
    for packets in epochs {
        sum.next_epoch();
        for packets in packets.chunks(500) {
            feed_keys_of(BYTES, &mut *part, packets, 64);
            sum.merge(&*part).unwrap();
            next(&mut *part);
        }
    }
    let complete = sum.answers().untracked() == Size::default();
    Some((encode(info, options, &*sum), complete))
}

fn parts_add_up_as_cleared_summaries_do<K: FlowKey, const BYTES: usize>(info: &Info) -> bool {
    // Other algorithms keep no entries of flows.
    if !info.laws.flows || info.laws.merge != Merge::Equal {
        return true;
    }
    // The two epochs have different flows: nothing of the first may show in the second.
    let mut packets = packets(6000, FLOWS / 2, 7);
    let (first, second) = packets.split_at_mut(3000);
    for packet in &mut *second {
        packet.flow += FLOWS / 2;
    }
    let mut built = false;
    // From much room to too little.
    for memory_bytes in [256 << 10, 48 << 10, 24 << 10, 12 << 10] {
        let options = Options { memory_bytes, ..small().for_keys(BYTES) };
        let epochs: [&[Packet]; 2] = [first, second];
        let cleared = of_parts::<K, BYTES>(info, &options, &epochs, Summary::next_epoch);
        let kept = of_parts::<K, BYTES>(info, &options, &epochs, Summary::next_part);
        built |= kept.is_some();
        // Which flows find no room depends on their order.
        if cleared.as_ref().is_some_and(|(_, complete)| *complete) {
            assert!(cleared == kept, "{} of {memory_bytes} bytes", info.name);
        }
    }
    built
}

#[test]
fn parts_of_an_epoch_add_up() {
    for_all!(parts_add_up_as_cleared_summaries_do);
}

#[test]
fn merged_shards_answer_as_the_catalog_says() {
    for_all!(merges_keep_their_promise);
}

/// Refuses to merge a summary of the options `others`, for this reason, and is unchanged.
fn refuses<K: FlowKey, const BYTES: usize>(
    info: &Info,
    options: &Options,
    others: &Options,
    reason: &str,
) -> bool {
    let Some(mut summary) = build::<K>(info, options) else { return false };
    feed_keys_of(BYTES, &mut *summary, &packets(500, 50, 7), 256);
    let before = encode(info, options, &*summary);
    let mut other = build::<K>(info, others).unwrap();
    feed_keys_of(BYTES, &mut *other, &packets(500, 50, 8), 256);
    if reason.is_empty() && other.parameters() == summary.parameters() {
        return true;
    }
    let error = summary.merge(&*other).err().map(|error| error.to_string());
    assert!(error.as_ref().is_some_and(|error| error.contains(reason)), "{}: {error:?}", info.name);
    assert!(encode(info, options, &*summary) == before, "{}: {reason}", info.name);
    true
}

fn another_seed_is_refused<K: FlowKey, const BYTES: usize>(info: &Info) -> bool {
    refuses::<K, BYTES>(
        info,
        &small().for_keys(BYTES),
        &Options::new(64 << 10, 2).for_keys(BYTES),
        "seeds differ",
    )
}

#[test]
fn summaries_of_different_seeds_do_not_merge() {
    for_all!(another_seed_is_refused);
}

/// Unless the parameters are the same for any memory.
fn another_size_is_refused<K: FlowKey, const BYTES: usize>(info: &Info) -> bool {
    refuses::<K, BYTES>(
        info,
        &small().for_keys(BYTES),
        &Options { memory_bytes: 256 << 10, ..small().for_keys(BYTES) },
        "",
    )
}

#[test]
fn summaries_of_different_sizes_do_not_merge() {
    for_all!(another_size_is_refused);
}

/// Options that the contents depend on, besides parameters and seed.
#[test]
fn summaries_of_different_options_do_not_merge() {
    let by = Options { by: Measure::Bytes, ..small().for_keys(4) };
    let threshold = Options { threshold: Threshold::Weight(1000), ..small().for_keys(4) };
    let spread = Options { spread: 200, ..small().for_keys(4) };
    let shapes = [("columns", "64"), ("buckets", "64")];
    for (name, state, other, reason) in [
        ("count-array", "counter", &threshold, "thresholds differ"),
        ("count-array", "ewma", &threshold, "thresholds differ"),
        ("count-array", "ewma", &by, "measures differ"),
        ("count-array", "distinct", &spread, "spreads differ"),
        ("replacing-array", "ewma", &by, "measures differ"),
        ("replacing-array", "distinct", &spread, "spreads differ"),
        ("linear-table", "ewma", &by, "measures differ"),
        ("cuckoo-4", "distinct", &spread, "spreads differ"),
        ("count-min", "", &threshold, "thresholds differ"),
        ("count-min", "", &by, "types differ"),
    ] {
        let info = catalog::info(name).unwrap();
        let parameters: Vec<_> = shapes
            .into_iter()
            .chain([("state", state)])
            .filter(|(name, value)| {
                !value.is_empty() && info.parameters.iter().any(|known| known.name == *name)
            })
            .collect();
        let with = |options: &Options| options.clone().with(parameters.iter().copied());
        assert!(refuses::<Key8, 4>(info, &with(&small().for_keys(4)), &with(other), reason));
    }
    // Options that a summary does not depend on may differ.
    for other in [&by, &threshold, &spread] {
        let info = catalog::info("linear-table").unwrap();
        let mut summary = build::<Key8>(info, &small().for_keys(4)).unwrap();
        summary.merge(&*build::<Key8>(info, other).unwrap()).unwrap();
    }
}

/// A key may exceed a fixed weight in the sum, but in neither part: the overflow counts that,
/// unless each key is in one part only. A key above a share of the sum is above that share in one
/// part.
#[test]
fn keys_heavy_only_in_the_sum_count_as_overflow() {
    let heavy = [Packet { flow: 7, bytes: 64, peer: 0 }; 600];
    let merged = |name: &str, threshold: Threshold, apart, parts: [usize; 2]| {
        let options = Options { threshold, apart, ..small() };
        let info = catalog::info(name).unwrap();
        let [mut sum, other] = parts.map(|packets| {
            let mut part = build::<Key8>(info, &options).unwrap();
            feed(&mut *part, &heavy[..packets], 256);
            part
        });
        sum.merge(&*other).unwrap();
        let mut named = 0;
        let candidates = sum.answers().candidates().unwrap();
        candidates.for_each(&mut |_, _| named += 1);
        (named, candidates.overflow())
    };
    let overflow = |name: &str, threshold, parts| merged(name, threshold, false, parts);
    for name in ["count-array", "count-min", "count-sketch", "k-ary"] {
        // An array keeps keys above half the threshold, and so has this one.
        let named = usize::from(name == "count-array");
        assert_eq!(overflow(name, Threshold::Weight(1000), [600, 600]), (named, 1), "{name}");
        assert_eq!(overflow(name, Threshold::Weight(1000), [400, 500]), (0, 0), "{name}");
        assert_eq!(overflow(name, Threshold::Weight(100), [600, 0]), (1, 0), "{name}");
        assert_eq!(overflow(name, Threshold::Share(0.5), [600, 600]), (1, 0), "{name}");
        assert_eq!(merged(name, Threshold::Weight(1000), true, [600, 600]), (named, 0), "{name}");
    }
}
