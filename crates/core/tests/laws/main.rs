//! Laws that hold for every algorithm of the catalog.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod ask;
mod bounds;
mod codec;
mod golden;
mod merge;
mod outline;
mod short;
mod stream;
#[allow(unreachable_pub, reason = "it serves the fuzz target too")]
#[path = "../../../../fuzz/src/summaries.rs"]
mod summaries;

use flowgauge_core::catalog::stored::encode;
use flowgauge_core::catalog::{self, ALGORITHMS};
use flowgauge_core::key::{FlowKey, Key4, Key8, Key16, Key37};
use flowgauge_core::summary::{Answers, BuildErrorKind, Info, Merge, Options, Parameters, Summary};

use stream::{Packet, feed, packets};

/// Builds a summary; `None` if the algorithm refuses keys of this width.
fn build<K: FlowKey>(info: &Info, options: &Options) -> Option<Box<dyn Summary<K>>> {
    match catalog::build(info.name, options) {
        Ok(summary) => Some(summary),
        Err(error) if matches!(error.kind(), BuildErrorKind::Unfit { .. }) => None,
        Err(error) => panic!("{}: {error}", info.name),
    }
}

/// Runs `law` for every algorithm and every key type; each algorithm must accept at least one.
macro_rules! for_all {
    ($law:ident) => {
        for info in ALGORITHMS {
            let keys =
                [$law::<Key4>(info), $law::<Key8>(info), $law::<Key16>(info), $law::<Key37>(info)];
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

/// Packets in order and in reverse: sizes and totals are the same.
fn orders_do_not_matter<K: FlowKey>(info: &Info) -> bool {
    let mut packets = packets(5000, 900, 3);
    let Some(mut forwards) = build::<K>(info, &small()) else { return false };
    feed(&mut *forwards, &packets, 256);
    packets.reverse();
    let mut backwards = build::<K>(info, &small()).unwrap();
    feed(&mut *backwards, &packets, 256);
    let answers = [forwards.answers(), backwards.answers()];
    // Estimates that use the heaviest keys depend on which of nearly equal keys these are.
    if answers[0].candidates().is_none() {
        let [forwards, backwards] = answers.map(Answers::cardinality);
        assert_eq!(forwards, backwards, "{}", info.name);
    }
    let [Some(forwards), Some(backwards)] = answers.map(Answers::size) else { return true };
    for flow in 0..900 {
        let key = stream::key::<K>(flow);
        let sizes = [forwards, backwards].map(|sizes| sizes.estimate(key.canonical(K::BYTES)));
        assert_eq!(sizes[0], sizes[1], "{}: flow {flow}", info.name);
    }
    true
}

#[test]
fn the_order_does_not_matter_where_the_catalog_says_so() {
    // For other algorithms only the bounds hold in any order.
    let laws = |info: &&Info| info.laws.commutable && info.laws.merge == Merge::Equal;
    for info in ALGORITHMS.iter().filter(laws) {
        assert!(orders_do_not_matter::<Key4>(info) | orders_do_not_matter::<Key8>(info));
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

/// The effective parameters rebuild the same shape, and its memory counts against the limit.
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
