//! `NitroSketch`: what it preserves of a sketch, and when it samples. And sketches that take
//! packets into single rows.

use flowgauge_core::accelerator::{Accelerate, NitroSketch};
use flowgauge_core::batch::Batch;
use flowgauge_core::catalog;
use flowgauge_core::catalog::stored::{decode, encode};
use flowgauge_core::key::{FlowKey, Key8, Key16};
use flowgauge_core::summary::{Info, Options, Parameters, Summary};
use flowgauge_core::terms::Measure;

use super::agg_evict::bounds_hold;
use super::sampler::all_hold;
use super::{build, key};
use crate::stream::{Packet, feed, packets};

const FLOWS: u32 = 300;
const SKETCHES: [&str; 4] = ["count-min", "count-sketch", "k-ary", "univmon"];

/// The accelerator with these parameters.
pub(super) fn nitro(pairs: &[(&str, &str)]) -> (&'static str, Parameters) {
    ("nitro", Parameters::new(pairs.iter().copied()))
}

fn options(by: Measure, parameters: &[(&str, &str)]) -> Options {
    Options { by, ..Options::new(256 << 10, 1).with(parameters.iter().copied()) }
}

/// Small enough that convergence is tested in each window.
fn small(name: &str) -> Vec<(&'static str, &'static str)> {
    let mut parameters = vec![("rows", "4"), ("columns", "1024")];
    if name == "univmon" {
        parameters.extend([("levels", "4"), ("top", "64")]);
    }
    parameters
}

/// Ingests packets with these gaps in time, in batches.
fn feed_timed(summary: &mut dyn Summary<Key8>, packets: &[Packet], gap_ns: i64, batch: usize) {
    let (mut columns, mut time_ns) = (Batch::new(), 1_000_000_000);
    for chunk in packets.chunks(batch) {
        for packet in chunk {
            columns.push(key(packet.flow), packet.bytes, time_ns);
            time_ns += gap_ns;
        }
        summary.ingest(&mut columns);
        columns.clear();
    }
    summary.settle();
}

/// The largest interval: the unit of the cells plus one.
fn one_in(summary: &dyn Summary<Key8>) -> u64 {
    let cells = summary.answers().cells().unwrap();
    let mut numbers = vec![0.0; cells.len()];
    cells.read(&mut numbers);
    numbers[cells.len() - 1] as u64 + 1
}

#[test]
fn it_goes_before_sketches_of_rows() {
    assert_eq!(catalog::able("nitro"), SKETCHES);
    let refusal = |accelerators: &[&str], name: &str| {
        let accelerators: Vec<_> =
            accelerators.iter().map(|name| ((*name).to_owned(), Parameters::default())).collect();
        let options = Options::new(1 << 20, 1);
        let error = catalog::build_accelerated::<Key8>(&accelerators, name, &options).err();
        error.map(|error| error.to_string()).unwrap_or_default()
    };
    for name in ["linear-table", "conservative-count-min", "space-saving", "reversible-sketch"] {
        let refused = refusal(&["nitro"], name);
        assert!(refused.contains("it needs a sketch with unbiased rows"), "{refused}");
        assert!(refused.contains("it supports count-min, count-sketch, k-ary"), "{refused}");
    }
    let behind = refusal(&["nitro", "agg-evict"], "count-min");
    assert!(behind.contains("nitro cannot stand before agg-evict: it needs"), "{behind}");
    for other in ["uniform", "skipper", "nitro"] {
        let refused = refusal(&["nitro", other], "count-min");
        assert!(refused.contains("one sample is enough"), "{refused}");
        let refused = refusal(&[other, "nitro"], "count-min");
        assert!(refused.contains("one sample is enough"), "{refused}");
    }
    assert_eq!(refusal(&["agg-evict", "nitro"], "univmon"), "");
}

#[test]
fn samples_of_rows_keep_the_laws() {
    let sampler = nitro(&[("p", "0.1")]);
    for name in SKETCHES {
        let info = catalog::info(name).unwrap();
        for by in [Measure::Packets, Measure::Bytes] {
            let options = options(by, &[]);
            assert!(all_hold::<Key8, 4>(info, &sampler, &options));
            assert!(all_hold::<Key16, 16>(info, &sampler, &options));
        }
    }
}

/// In any mode, the batch size does not matter, a decoded summary continues identically, and a
/// cleared summary is like a new one.
#[test]
fn modes_keep_the_laws() {
    let stream = packets(45_000, FLOWS, 5);
    let keys: Vec<_> =
        (0..=FLOWS).map(|flow| key::<Key8>(flow).canonical(Key8::BYTES).to_vec()).collect();
    for mode in [
        &[("mode", "line-rate"), ("p", "0.0625")][..],
        &[("mode", "correct"), ("p", "0.125"), ("epsilon", "0.9")][..],
    ] {
        for name in SKETCHES {
            for by in [Measure::Packets, Measure::Bytes] {
                let (info, options) = (catalog::info(name).unwrap(), options(by, &small(name)));
                let build = || build::<Key8>(Some(nitro(mode)), name, &options).unwrap();
                let stored = |summary: &dyn Summary<Key8>| encode(info, &options, summary);
                let mut summary = build();
                let empty = stored(&*summary);
                feed_timed(&mut *summary, &stream, 100, 256);
                assert!(one_in(&*summary) > 1, "{name} {mode:?}");
                bounds_hold(info, &keys, &stream, summary.answers());
                let all = stored(&*summary);
                for batch in [1, 77] {
                    let mut other = build();
                    feed_timed(&mut *other, &stream, 100, batch);
                    assert!(stored(&*other) == all, "{name} {mode:?} by {batch}");
                }
                let mut copy = decode::<Key8>(&all, 2 << 20).unwrap().summary;
                assert!(stored(&*copy) == all, "{name} {mode:?}");
                for summary in [&mut copy, &mut summary] {
                    feed_timed(&mut **summary, &stream, 1000, 256);
                }
                assert!(stored(&*copy) == stored(&*summary), "{name} {mode:?}");
                let twice = [&stream[..], &stream[..]].concat();
                bounds_hold(info, &keys, &twice, summary.answers());
                summary.clear();
                assert!(stored(&*summary) == empty, "{name} {mode:?}");
                feed_timed(&mut *summary, &stream, 100, 256);
                assert!(stored(&*summary) == all, "{name} {mode:?}");
                summary.merge(&*decode::<Key8>(&all, 2 << 20).unwrap().summary).unwrap();
                bounds_hold(info, &keys, &twice, summary.answers());
            }
        }
    }
}

/// The stored form of the sketch alone: the end of the payload.
fn payload(stored: &[u8]) -> &[u8] {
    let is_length = |at: &usize| {
        let length = u64::from_le_bytes(stored[at - 8..*at].try_into().unwrap());
        length == (stored.len() - 4 - at) as u64
    };
    let from = (8..stored.len() - 4).find(is_length).unwrap();
    &stored[from..stored.len() - 4]
}

fn is_the_plain_sketch(info: &Info, by: Measure, mode: &[(&str, &str)], packets: &[Packet]) {
    let options = options(by, &small(info.name));
    let mut plain = build::<Key8>(None, info.name, &options).unwrap();
    feed_timed(&mut *plain, packets, 100, 100);
    let mut summary = build::<Key8>(Some(nitro(mode)), info.name, &options).unwrap();
    feed_timed(&mut *summary, packets, 100, 100);
    let stored = [&plain, &summary].map(|summary| encode(info, &options, &**summary));
    assert!(payload(&stored[1]).ends_with(payload(&stored[0])), "{} {mode:?}", info.name);
    let (one, other) = (plain.answers().size().unwrap(), summary.answers().size().unwrap());
    for flow in 0..=FLOWS {
        let key = key::<Key8>(flow);
        assert_eq!(
            one.estimate(key.canonical(Key8::BYTES)),
            other.estimate(key.canonical(Key8::BYTES))
        );
    }
}

/// With p = 1, and until convergence, the sketch is unchanged to the bit.
#[test]
fn without_a_sample_it_is_the_plain_sketch() {
    let stream = packets(45_000, FLOWS, 7);
    for info in SKETCHES.map(|name| catalog::info(name).unwrap()) {
        for by in [Measure::Packets, Measure::Bytes] {
            is_the_plain_sketch(info, by, &[("p", "1")], &stream);
            is_the_plain_sketch(info, by, &[("mode", "correct")], &stream);
            is_the_plain_sketch(info, by, &[("mode", "line-rate"), ("p", "1")], &stream);
        }
    }
    let univmon =
        |mode| build::<Key8>(Some(nitro(mode)), "univmon", &options(Measure::Packets, &[]));
    let all = univmon(&[("p", "1")]).unwrap();
    assert!(all.answers().cardinality().is_some());
    assert!(all.answers().weight_logs(Measure::Packets).is_some());
    let sampled = univmon(&[("p", "0.5")]).unwrap();
    assert!(sampled.answers().cardinality().is_none());
    assert!(sampled.answers().weight_logs(Measure::Packets).is_none());
}

/// The interval is 64 at 40 million packets a second, 16 at 10 million, and 1 at 0.6 million.
#[test]
fn the_rate_of_the_line_is_told_by_the_times() {
    let stream = packets(20_500, FLOWS, 1);
    for (gap_ns, expected) in [(25, 64), (100, 16), (1_666, 1), (3, 128)] {
        let options = options(Measure::Packets, &small("k-ary"));
        let mut summary =
            build::<Key8>(Some(nitro(&[("mode", "line-rate")])), "k-ary", &options).unwrap();
        feed_timed(&mut *summary, &stream, gap_ns, 64);
        assert_eq!(one_in(&*summary), expected, "{gap_ns} ns");
        // The next epoch continues with the current interval.
        summary.next_epoch();
        feed_timed(&mut *summary, &stream[..100], gap_ns, 64);
        assert_eq!(one_in(&*summary), expected, "{gap_ns} ns");
        // Packets without times, from streams in memory, are all taken.
        summary.clear();
        let (mut batch, keys) = (Batch::new(), [key::<Key8>(1); 200]);
        for _ in 0..60 {
            batch.fill(&keys, 64);
            summary.ingest(&mut batch);
        }
        summary.settle();
        assert_eq!(one_in(&*summary), 1);
    }
}

/// Rows that represent several packets are sampled as that many packets.
#[test]
fn sums_are_sampled() {
    let stream = packets(30_000, FLOWS, 9);
    let keys: Vec<_> =
        (0..=FLOWS).map(|flow| key::<Key8>(flow).canonical(Key8::BYTES).to_vec()).collect();
    let aggregator = ("agg-evict".to_owned(), Parameters::new([("rows", 4)]));
    for mode in [&[("p", "0.1")][..], &[("mode", "line-rate"), ("p", "0.125")]] {
        let (name, parameters) = nitro(mode);
        let accelerators = [aggregator.clone(), (name.to_owned(), parameters)];
        for by in [Measure::Packets, Measure::Bytes] {
            let options = options(by, &[]);
            for algorithm in SKETCHES {
                let build = || {
                    catalog::build_accelerated::<Key8>(&accelerators, algorithm, &options).unwrap()
                };
                let mut summary = build();
                feed(&mut *summary, &stream, 256);
                let info = catalog::info(algorithm).unwrap();
                bounds_hold(info, &keys, &stream, summary.answers());
                let mut other = build();
                feed(&mut *other, &stream, 256);
                summary.merge(&*other).unwrap();
                let twice = [&stream[..], &stream[..]].concat();
                bounds_hold(info, &keys, &twice, summary.answers());
            }
        }
    }
}

/// Forged bytes decode to a working summary, or to none.
#[test]
fn forged_bytes_do_no_harm() {
    let stream = packets(45_000, FLOWS, 5);
    let mut random = fastrand::Rng::with_seed(1);
    for mode in [&[("p", "0.1")][..], &[("mode", "line-rate")], &[("mode", "correct")]] {
        for name in SKETCHES {
            let (info, options) = (catalog::info(name).unwrap(), options(Measure::Packets, &[]));
            let options = options.with([("rows", "4"), ("columns", "64")]);
            let mut summary = build::<Key8>(Some(nitro(mode)), name, &options).unwrap();
            feed_timed(&mut *summary, &stream, 100, 256);
            let stored = encode(info, &options, &*summary);
            let from = stored.len() - 4 - payload(&stored).len();
            let mut taken = 0;
            for _ in 0..200 {
                // Mostly in the 73 bytes of the accelerator's own state.
                let mut forged = stored.clone();
                for _ in 0..random.usize(1..4) {
                    let most = if random.bool() { 73 } else { payload(&stored).len() };
                    let at = from + random.usize(..most);
                    forged[at] = [0, 1, 127, 128, 255, random.u8(..)][random.usize(..6)];
                }
                let end = forged.len() - 4;
                let checksum = crc32fast::hash(&forged[..end]);
                forged[end..].copy_from_slice(&checksum.to_le_bytes());
                let Ok(decoded) = decode::<Key8>(&forged, 2 << 20) else { continue };
                let mut copy = decoded.summary;
                taken += 1;
                feed_timed(&mut *copy, &stream[..20_000], 25, 256);
                copy.merge(&*summary).unwrap();
                let size =
                    copy.answers().size().unwrap().estimate(key::<Key8>(1).canonical(Key8::BYTES));
                let size = size.packets.unwrap();
                assert!(size.low <= size.high, "{size:?}");
            }
            assert!(taken > 20, "{name} {mode:?}: {taken}");
        }
    }
}

#[test]
fn parameters_are_checked_and_the_bound_is_told() {
    let refusal = |pairs: &[(&str, &str)]| {
        let (name, parameters) = nitro(pairs);
        let accelerators = [(name.to_owned(), parameters)];
        let options = Options::new(1 << 20, 1);
        let error = catalog::build_accelerated::<Key8>(&accelerators, "count-min", &options).err();
        error.map(|error| error.to_string()).unwrap_or_default()
    };
    assert!(refusal(&[("p", "0")]).contains("a number from 1/65536 to 1"));
    assert!(refusal(&[("mode", "fast")]).contains("fixed, line-rate, correct"));
    assert!(refusal(&[("epsilon", "1")]).contains("between 0 and 1"));
    assert!(refusal(&[("sample", "1")]).contains("available: p, mode, epsilon"));
    let promise = |pairs: &[(&str, &str)]| {
        NitroSketch::promise(&Parameters::new(pairs.iter().copied())).unwrap().unwrap_or_default()
    };
    let fixed = promise(&[]);
    assert!(fixed.contains("one packet in 100;") && fixed.contains("320000 columns"), "{fixed}");
    let correct = promise(&[("mode", "correct"), ("p", "0.01")]);
    // 11 · 400 · 64, and the same times √(1 + 0.05/8).
    assert!(correct.contains("281600 columns") && correct.contains("282479"), "{correct}");
    assert_eq!(promise(&[("p", "1")]), "");
}

/// Adds each packet to each row separately.
fn feed_rows(summary: &mut dyn Summary<Key16>, by: Measure, packets: &[Packet]) {
    let rows = summary.rows().unwrap();
    let (mut batch, mut of, mut total) = (Batch::new(), Vec::new(), 0);
    for packet in packets {
        total += if by == Measure::Packets { 1 } else { u64::from(packet.bytes) };
        for row in 0..rows.rows() {
            batch.push(key(packet.flow), packet.bytes, 0);
            of.push(row as u8);
        }
        if batch.len() + rows.rows() > 256 {
            rows.ingest_rows(&mut batch, &of);
            batch.clear();
            of.clear();
        }
    }
    rows.ingest_rows(&mut batch, &of);
    rows.sampled_from(total, 0);
}

fn sketches() -> [(&'static str, Vec<(&'static str, &'static str)>); 8] {
    let wide = vec![("rows", "4"), ("columns", "65536"), ("candidates", "0")];
    // Columns that need several words of the digest.
    let deep = vec![("rows", "11"), ("columns", "1024"), ("candidates", "0")];
    [
        ("count-min", wide.clone()),
        ("count-min", deep.clone()),
        ("count-sketch", wide.clone()),
        ("count-sketch", deep.clone()),
        ("k-ary", wide),
        ("k-ary", deep),
        ("univmon", vec![("levels", "4"), ("rows", "4"), ("columns", "1024"), ("top", "512")]),
        ("univmon", vec![("levels", "3"), ("rows", "9"), ("columns", "512"), ("top", "512")]),
    ]
}

/// Adding packets to all rows one by one equals adding them to all rows at once.
#[test]
fn all_rows_are_the_whole() {
    let stream = packets(10_000, FLOWS, 3);
    for by in [Measure::Packets, Measure::Bytes] {
        for (name, parameters) in sketches() {
            let options = Options { by, ..Options::new(1 << 20, 1).with(parameters) };
            let info = catalog::info(name).unwrap();
            let mut plain = build::<Key16>(None, name, &options).unwrap();
            feed(&mut *plain, &stream, 256);
            let mut summary = build::<Key16>(None, name, &options).unwrap();
            feed_rows(&mut *summary, by, &stream);
            if name == "univmon" {
                // Its heaps keep the estimate from when the key got its place.
                let cells = |summary: &dyn Summary<Key16>| {
                    let cells = summary.answers().cells().unwrap();
                    let mut numbers = vec![0.0; cells.len()];
                    cells.read(&mut numbers);
                    numbers
                };
                assert!(cells(&*plain) == cells(&*summary));
                assert_eq!(plain.answers().cardinality(), summary.answers().cardinality());
            } else {
                let [plain, summary] = [&plain, &summary].map(|s| encode(info, &options, &**s));
                assert!(plain == summary, "{name} {by:?}");
            }
        }
    }
}

/// L2² is known within the error of 1024 columns: √(8/1024) in at least half of the rows.
#[test]
fn the_squares_are_known() {
    let stream = packets(10_000, FLOWS, 3);
    for (name, parameters) in sketches() {
        let options = Options::new(1 << 20, 1).with(parameters);
        let mut summary = build::<Key16>(None, name, &options).unwrap();
        feed(&mut *summary, &stream, 256);
        let mut sizes = vec![0.0f64; FLOWS as usize];
        for packet in &stream {
            sizes[packet.flow as usize] += 1.0;
        }
        let truth: f64 = sizes.iter().map(|size| size * size).sum();
        let found = summary.rows().unwrap().squared_l2();
        assert!((found / truth - 1.0).abs() < 0.1, "{name}: {found} {truth}");
    }
}

/// Only sketches with rows of independent counters can be sampled by row.
#[test]
fn other_summaries_have_no_such_rows() {
    for info in catalog::ALGORITHMS {
        let Some(mut summary) = build::<Key16>(None, info.name, &Options::new(1 << 20, 1)) else {
            continue;
        };
        assert_eq!(summary.rows().is_some(), info.laws.rows, "{}", info.name);
    }
}
