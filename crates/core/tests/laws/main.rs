//! What holds of every algorithm of the catalog, whatever it is.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod ask;
mod codec;
mod forged;
mod golden;
mod stream;
#[allow(unreachable_pub, reason = "it serves the fuzz target too")]
#[path = "../../../../fuzz/src/summaries.rs"]
mod summaries;

use flowgauge_core::catalog::{self, ALGORITHMS};
use flowgauge_core::key::{FlowKey, Key4, Key8, Key13, Key16, Key32, Key37};
use flowgauge_core::summary::codec::encode;
use flowgauge_core::summary::{BuildError, Info, Ingest, Merge, Options};

use stream::{Packet, feed, packets};

/// A summary of some `bytes` bytes, or `None` where the algorithm refuses keys of this width.
fn build<K: FlowKey>(info: &Info, options: &Options) -> Option<Box<dyn Ingest<K>>> {
    match catalog::build(info.name, options) {
        Ok(summary) => Some(summary),
        Err(BuildError::Unfit { .. }) => None,
        Err(error) => panic!("{}: {error}", info.name),
    }
}

/// Runs `law` for every algorithm and every key that it takes, at least one.
macro_rules! for_all {
    ($law:ident) => {
        for info in ALGORITHMS {
            let keys = [
                $law::<Key4>(info),
                $law::<Key8>(info),
                $law::<Key13>(info),
                $law::<Key16>(info),
                $law::<Key32>(info),
                $law::<Key37>(info),
            ];
            assert!(keys.contains(&true), "{} takes no key", info.name);
        }
    };
}
pub(crate) use for_all;

/// Its library draws random bits without a seed: the same packets do not give the same bytes.
pub(crate) const UNSEEDED: &str = "kll";

fn small() -> Options {
    Options::new(64 << 10, 1)
}

/// The stored form after these packets in batches of `batch`.
fn stored<K: FlowKey>(info: &Info, packets: &[Packet], batch: usize) -> Option<Vec<u8>> {
    let options = small();
    let mut summary = build::<K>(info, &options)?;
    feed(&mut *summary, packets, batch);
    Some(encode(info, &options, &*summary))
}

fn batches_do_not_matter<K: FlowKey>(info: &Info) -> bool {
    if info.name == UNSEEDED {
        return true;
    }
    let packets = packets(5000, 900, 3);
    let Some(whole) = stored::<K>(info, &packets, 256) else { return false };
    for batch in [1, 64] {
        assert!(stored::<K>(info, &packets, batch).unwrap() == whole, "{}: {batch}", info.name);
    }
    true
}

#[test]
fn the_size_of_batches_does_not_matter() {
    for_all!(batches_do_not_matter);
}

fn a_cleared_summary_is_new<K: FlowKey>(info: &Info) -> bool {
    let options = small();
    let Some(mut summary) = build::<K>(info, &options) else { return false };
    let empty = encode(info, &options, &*summary);
    let memory = summary.memory_bytes();
    let packets = packets(4000, 700, 5);
    feed(&mut *summary, &packets, 256);
    let full = encode(info, &options, &*summary);
    assert!(full != empty, "{} took nothing", info.name);
    summary.clear();
    assert!(encode(info, &options, &*summary) == empty, "{}", info.name);
    feed(&mut *summary, &packets, 256);
    let again = encode(info, &options, &*summary);
    assert!(info.name == UNSEEDED || again == full, "{}", info.name);
    assert_eq!(summary.memory_bytes(), memory, "{}", info.name);
    true
}

#[test]
fn clearing_forgets_everything() {
    for_all!(a_cleared_summary_is_new);
}

/// The shape is given back by the parameters in force, and memory is taken from where it is counted.
fn parameters_give_the_shape_back<K: FlowKey>(info: &Info) -> bool {
    let options = small();
    let Some(summary) = build::<K>(info, &options) else { return false };
    let mut again = Options::new(1, 1).with(summary.parameters());
    again.memory = flowgauge_core::summary::Memory::limited(summary.memory_bytes());
    let twin = build::<K>(info, &again).unwrap();
    assert_eq!(twin.memory_bytes(), summary.memory_bytes(), "{}", info.name);
    assert_eq!(twin.parameters(), summary.parameters(), "{}", info.name);
    assert!(summary.memory_bytes() <= options.memory_bytes, "{} takes too much", info.name);
    again.memory = flowgauge_core::summary::Memory::limited(summary.memory_bytes() - 1);
    let error = catalog::build::<K>(info.name, &again).err().unwrap();
    assert!(matches!(error, BuildError::TooLittleMemory { .. }), "{}: {error}", info.name);
    true
}

#[test]
fn memory_is_counted_and_the_parameters_are_the_whole_shape() {
    for_all!(parameters_give_the_shape_back);
}

/// Parts of the packets, merged in order, each of which has flows of its own where that is asked.
fn merged<K: FlowKey>(
    info: &Info,
    packets: &[Packet],
    shards: usize,
) -> Option<Box<dyn Ingest<K>>> {
    let options = Options { memory_bytes: 256 << 10, ..small() };
    let disjoint = info.laws.merge == Merge::Disjoint;
    let mut parts = (0..shards).map(|shard| {
        let part: Vec<Packet> = packets
            .iter()
            .enumerate()
            .filter(
                |(i, packet)| if disjoint { packet.flow as usize } else { i / 7 } % shards == shard,
            )
            .map(|(_, packet)| *packet)
            .collect();
        let mut summary = build::<K>(info, &options)?;
        feed(&mut *summary, &part, 256);
        Some(summary)
    });
    let mut sum = parts.next()??;
    for part in parts {
        sum.merge(&*part?).unwrap();
    }
    Some(sum)
}

/// Sizes of any flow after a merge: the same as of one summary, or within the bounds.
fn merges_keep_their_promise<K: FlowKey>(info: &Info) -> bool {
    let packets = packets(6000, 500, 7);
    let Some(one) = merged::<K>(info, &packets, 1) else { return false };
    for shards in [2, 5, 16] {
        let sum = merged::<K>(info, &packets, shards).unwrap();
        let (Some(one), Some(sum)) = (one.answers().size(), sum.answers().size()) else { continue };
        for flow in 0..500 {
            let key = stream::key::<K>(flow);
            let (one, sum) = (one.estimate(key.canonical()), sum.estimate(key.canonical()));
            let truth = packets.iter().filter(|packet| packet.flow == flow).count() as f64;
            if let (Some(one), Some(sum)) = (one.packets, sum.packets) {
                match info.laws.merge {
                    Merge::Equal | Merge::Disjoint => {
                        let same = one.value.to_bits() == sum.value.to_bits();
                        assert!(same, "{}: {shards} shards", info.name);
                    }
                    Merge::WithinBounds if sum.confidence.is_none() => {
                        assert!(sum.low <= truth && truth <= sum.high, "{}: {sum:?}", info.name);
                    }
                    Merge::WithinBounds => {}
                }
            }
        }
    }
    true
}

#[test]
fn merged_shards_answer_as_the_catalog_says() {
    for_all!(merges_keep_their_promise);
}

fn another_seed_is_refused<K: FlowKey>(info: &Info) -> bool {
    let Some(mut summary) = build::<K>(info, &small()) else { return false };
    let other = build::<K>(info, &Options::new(64 << 10, 2)).unwrap();
    let error = summary.merge(&*other).unwrap_err().to_string();
    assert!(error.contains("seeds differ"), "{}: {error}", info.name);
    true
}

#[test]
fn summaries_of_different_seeds_do_not_merge() {
    for_all!(another_seed_is_refused);
}

/// Bounds without a confidence hold always, of flows that were seen and of one that was not.
fn sure_bounds_hold<K: FlowKey>(info: &Info) -> bool {
    let packets = packets(8000, 1500, 11);
    let Some(mut summary) = build::<K>(info, &small()) else { return false };
    feed(&mut *summary, &packets, 256);
    let Some(sizes) = summary.answers().size() else { return true };
    for flow in 0..=1500 {
        let estimate = sizes.estimate(stream::key::<K>(flow).canonical());
        let of_flow = || packets.iter().filter(|packet| packet.flow == flow);
        let truths = [of_flow().count() as u64, of_flow().map(|p| u64::from(p.bytes)).sum()];
        for (estimate, truth) in [estimate.packets, estimate.bytes].into_iter().zip(truths) {
            let Some(estimate) = estimate else { continue };
            assert!(estimate.low <= estimate.value && estimate.value <= estimate.high);
            if estimate.confidence.is_none() {
                let truth = truth as f64;
                assert!(
                    estimate.low <= truth && truth <= estimate.high,
                    "{}: flow {flow} has {truth}, and not {estimate:?}",
                    info.name
                );
            }
        }
    }
    true
}

#[test]
fn bounds_without_a_confidence_always_hold() {
    for_all!(sure_bounds_hold);
}
