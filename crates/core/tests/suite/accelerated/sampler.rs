//! All samplers, before every algorithm that they can precede; and uniform sampling.

use flowgauge_core::batch::Batch;
use flowgauge_core::catalog;
use flowgauge_core::catalog::stored::{Decoded, decode, decode_again, encode};
use flowgauge_core::key::{FlowKey, Key8, Key16, Key37};
use flowgauge_core::summary::{Info, Options, Parameters, Summary};
use flowgauge_core::terms::Measure;

use super::agg_evict::bounds_hold;
use super::nitro::nitro;
use super::{build, key};
use crate::stream::{Packet, feed, feed_keys_of, key_of, packets};

const FLOWS: u32 = 300;
const BYTES: usize = 256 << 10;

/// The samplers, with parameters that skip most of a short stream.
fn samplers() -> [(&'static str, Parameters); 2] {
    [
        ("uniform", Parameters::new([("sample", 10)])),
        ("skipper", Parameters::new([("epsilon", "0.1"), ("delta", "0.05")])),
    ]
}

/// These samplers, and FlowRegulator, which lets through some packets of each flow.
fn all() -> [(&'static str, Parameters); 3] {
    let [uniform, skipper] = samplers();
    [uniform, skipper, ("flow-regulator", Parameters::new([("sketch", 1024)]))]
}

fn options(by: Measure, seed: u64) -> Options {
    Options { by, ..Options::new(BYTES, seed) }
}

/// Whether each level of a summary with levels is a separate sample.
fn samples_levels((name, parameters): &(&'static str, Parameters)) -> bool {
    match *name {
        "skipper" => true,
        "nitro" => parameters.get("mode").is_some_and(|mode| mode != "fixed"),
        _ => false,
    }
}

pub(super) fn all_hold<K: FlowKey, const KEY_BYTES: usize>(
    info: &Info,
    sampler: &(&'static str, Parameters),
    options: &Options,
) -> bool {
    let options = &options.clone().for_keys(KEY_BYTES);
    let by = options.by;
    let stream = packets(12_000, FLOWS, 5);
    let keys: Vec<_> = (0..=FLOWS)
        .map(|flow| key_of::<K>(flow, KEY_BYTES).canonical(KEY_BYTES).to_vec())
        .collect();
    let Some(mut summary) = build::<K>(Some(sampler.clone()), info.name, options) else {
        return false;
    };
    // Without packets, all answers are 0.
    summary.ingest(&mut Batch::new());
    summary.settle();
    bounds_hold(info, &keys, &[], summary.answers());
    let stored = |summary: &dyn Summary<K>| encode(info, options, summary);
    let empty = stored(&*summary);

    // The batch size does not matter.
    feed_keys_of(KEY_BYTES, &mut *summary, &stream, 256);
    bounds_hold(info, &keys, &stream, summary.answers());
    let all = stored(&*summary);
    for batch in [1, 33] {
        let mut other = build::<K>(Some(sampler.clone()), info.name, options).unwrap();
        feed_keys_of(KEY_BYTES, &mut *other, &stream, batch);
        assert!(stored(&*other) == all, "{} by {batch}", info.name);
    }

    // The stored form contains the sample with its bounds, and continues identically.
    let decoded = decode::<K>(&all, 2 * BYTES).unwrap();
    let mut copy = decoded.summary;
    assert_eq!(copy.accelerators(), summary.accelerators());
    assert!(stored(&*copy) == all, "{}", info.name);
    for summary in [&mut copy, &mut summary] {
        feed_keys_of(KEY_BYTES, &mut **summary, &stream, 256);
    }
    assert!(stored(&*copy) == stored(&*summary), "{}", info.name);

    // So it does when decoded into the memory of a fuller summary.
    let spare = Decoded { summary: copy, ..decoded };
    let mut again = decode_again(&all, 2 * BYTES, None, spare).unwrap().summary;
    assert!(stored(&*again) == all, "{}", info.name);
    feed_keys_of(KEY_BYTES, &mut *again, &stream, 256);
    assert!(stored(&*again) == stored(&*summary), "{}", info.name);

    // The bounds hold for twice the packets, whether ingested or merged.
    let twice = [&stream[..], &stream[..]].concat();
    bounds_hold(info, &keys, &twice, summary.answers());
    summary.clear();
    assert!(stored(&*summary) == empty, "{}", info.name);
    feed_keys_of(KEY_BYTES, &mut *summary, &stream, 256);
    assert!(stored(&*summary) == all, "{}", info.name);
    let other = decode::<K>(&all, 2 * BYTES).unwrap().summary;
    summary.merge(&*other).unwrap();
    if info.name != "flow-radar" {
        bounds_hold(info, &keys, &twice, summary.answers());
    }

    // No answer exceeds the total, and a sample does not answer what it cannot estimate.
    let total: u64 = twice
        .iter()
        .map(|packet| if by == Measure::Packets { 1 } else { packet.bytes.into() })
        .sum();
    let answers = summary.answers();
    if let Some(candidates) = answers.candidates() {
        candidates.for_each(&mut |_, size| {
            let other = if by == Measure::Packets { size.bytes } else { size.packets };
            assert_eq!(other.is_some(), sampler.0 == "flow-regulator");
            assert!(size.by(by).unwrap().high <= total as f64, "{size:?}");
        });
    }
    assert!(answers.flows().is_none() && answers.distribution().is_none());
    let levels = info.name == "univmon" && samples_levels(sampler);
    assert!(levels || answers.cardinality().is_none() && answers.weight_logs(by).is_none());
    assert!(answers.spread().is_none() && answers.forecasts().is_none());
    assert!(answers.quantiles().is_none());
    // Cells are sampled where each row, or each level, has its own sample.
    assert_eq!(answers.cells().is_some(), levels || sampler.0 == "nitro");

    // A summary of all packets and one of a sample do not merge.
    let mut plain = build::<K>(None, info.name, options).unwrap();
    assert_eq!(plain.merge(&*summary).unwrap_err().0, "types differ", "{}", info.name);
    assert_eq!(summary.merge(&*plain).unwrap_err().0, "types differ", "{}", info.name);
    true
}

#[test]
fn samples_keep_the_laws() {
    for sampler in &all() {
        for name in catalog::able(sampler.0) {
            let info = catalog::info(name).unwrap();
            let held = [Measure::Packets, Measure::Bytes].map(|by| {
                let options = options(by, 1);
                all_hold::<Key8, 4>(info, sampler, &options)
                    | all_hold::<Key16, 16>(info, sampler, &options)
            });
            assert!(held.contains(&true), "{name}");
        }
    }
}

/// Rows that represent several packets are sampled as that many packets.
#[test]
fn sums_are_sampled_and_samples_are_summed() {
    let stream = packets(30_000, FLOWS, 9);
    let keys: Vec<_> =
        (0..=FLOWS).map(|flow| key::<Key8>(flow).canonical(Key8::BYTES).to_vec()).collect();
    let aggregator = ("agg-evict".to_owned(), Parameters::new([("rows", 4)]));
    for (name, parameters) in samplers() {
        let sampler = (name.to_owned(), parameters);
        for accelerators in
            [[aggregator.clone(), sampler.clone()], [sampler.clone(), aggregator.clone()]]
        {
            for by in [Measure::Packets, Measure::Bytes] {
                let options = options(by, 1);
                let build = |name| {
                    catalog::build_accelerated::<Key8>(&accelerators, name, &options).unwrap()
                };
                for algorithm in ["linear-table", "count-min", "space-saving"] {
                    let mut summary = build(algorithm);
                    feed(&mut *summary, &stream, 256);
                    let info = catalog::info(algorithm).unwrap();
                    bounds_hold(info, &keys, &stream, summary.answers());
                    let mut other = build(algorithm);
                    feed(&mut *other, &stream, 256);
                    summary.merge(&*other).unwrap();
                    let twice = [&stream[..], &stream[..]].concat();
                    bounds_hold(info, &keys, &twice, summary.answers());
                }
            }
        }
    }
}

#[test]
fn questions_that_a_sample_cannot_answer_are_refused_with_the_reason() {
    let refusal = |accelerators: &[&str], name: &str, parameter: Option<(&str, &str)>| {
        let options = Options::new(1 << 20, 1).with(parameter);
        let accelerators: Vec<_> =
            accelerators.iter().map(|name| ((*name).to_owned(), Parameters::default())).collect();
        let error = catalog::build_accelerated::<Key8>(&accelerators, name, &options).err();
        error.map(|error| error.to_string()).unwrap_or_default()
    };
    for (sampler, _) in samplers() {
        for name in ["fm", "linear-counting", "hyperloglog", "two-level", "kll", "mrac"] {
            let refused = refusal(&[sampler], name, None);
            assert!(refused.contains("cannot be estimated from a sample"), "{name}: {refused}");
            assert!(refused.contains("count-min, count-sketch"), "{refused}");
        }
        for name in ["csm", "stream-summary", "elastic-sketch", "rcc", "insta-measure"] {
            let refused = refusal(&[sampler], name, None);
            assert!(refused.contains("it does not accept weighted updates"), "{name}: {refused}");
        }
        let distinct = refusal(&[sampler], "linear-table", Some(("state", "distinct")));
        assert!(distinct.contains("it does not accept weighted updates"), "{distinct}");
        for other in ["uniform", "skipper"] {
            let refused = refusal(&[sampler, "agg-evict", other], "count-min", None);
            let reason = format!("{sampler} cannot stand before {other}: one sample is enough");
            assert!(refused.contains(&reason), "{refused}");
        }
        assert_eq!(refusal(&["agg-evict", sampler], "count-min", None), "");
        assert_eq!(refusal(&[sampler, "agg-evict"], "count-min", None), "");
    }
}

#[test]
fn parameters_are_checked() {
    let refusal = |name: &str, pairs: &[(&str, &str)]| {
        let accelerators = [(name.to_owned(), Parameters::new(pairs.iter().copied()))];
        let options = Options::new(1 << 20, 1);
        let error = catalog::build_accelerated::<Key8>(&accelerators, "count-min", &options).err();
        error.map(|error| error.to_string()).unwrap_or_default()
    };
    assert!(refusal("uniform", &[("sample", "0")]).contains("from 1 to 2147483648"));
    assert!(refusal("uniform", &[("p", "0.01")]).contains("available: sample, before"));
    assert!(refusal("skipper", &[("epsilon", "1")]).contains("between 0 and 1"));
    assert!(refusal("skipper", &[("gamma", "2")]).contains("chernoff, paper"));
    let half = refusal("skipper", &[("gamma", "paper"), ("delta", "0.6")]);
    assert!(half.contains("less than 0.5"), "{half}");
    assert_eq!(refusal("skipper", &[("gamma", "paper"), ("epsilon", "1e-300")]), "");
    assert!(refusal("skipper", &[("l2", "1")]).contains("own, paper"));
    assert!(
        refusal("skipper", &[("l2", "own"), ("gamma", "paper")]).contains("set the same value")
    );
    assert!(refusal("skipper", &[("p", "0.1")]).contains("not supported without l2=own"));
}

/// Their batch is part of the given memory.
#[test]
fn they_stay_within_the_memory() {
    for sampler in all().into_iter().chain([nitro(&[])]) {
        for bytes in [64 << 10, 16 << 20] {
            for name in catalog::able(sampler.0) {
                let options = Options::new(bytes, 1);
                let Some(summary) = build::<Key37>(Some(sampler.clone()), name, &options) else {
                    continue;
                };
                let taken = summary.memory_bytes();
                assert!(taken <= bytes, "{name}: {taken} of {bytes}");
            }
        }
    }
}

/// The weights of prefixes carry their sampling error.
#[test]
fn prefixes_are_sampled() {
    let stream = packets(40_000, FLOWS, 3);
    for sampler in samplers() {
        let mut summary =
            build::<Key8>(Some(sampler), "mst", &options(Measure::Packets, 1).for_keys(4)).unwrap();
        feed_keys_of(4, &mut *summary, &stream, 256);
        let prefixes = summary.answers().prefixes().unwrap();
        let sampling = prefixes.sampling().unwrap();
        let nodes = prefixes.nodes();
        let node = |bits| nodes.iter().position(|node| *node == (bits, 0)).unwrap();
        let mut outside = 0;
        for flow in 0..FLOWS {
            let size = prefixes.estimate(node(32), key_of::<Key8>(flow, 4).canonical(4));
            let truth = stream.iter().filter(|packet| packet.flow == flow).count() as f64;
            let low = size.low - sampling.error(size.low);
            let high = size.high + sampling.error(size.high);
            outside += u32::from(!(low..=high).contains(&truth));
        }
        assert!(outside <= 15, "{outside} of 300, for a chance of 0.05 at most");
        let all = prefixes.estimate(node(0), &[0; 4]);
        assert!((all.value - 40_000.0).abs() <= sampling.error(40_000.0), "{all:?}");
    }
}

/// Over 1,000 seeds, the mean of each flow is within 3 standard errors. Of 18 means, one is outside
/// in one of 20 sets of seeds.
#[test]
fn uniform_sizes_are_right_on_average() {
    // Flow 0 has half of the packets, flow 1 a quarter, flow 2 an eighth.
    let stream: Vec<Packet> = (1..3000u32)
        .map(|i| Packet { flow: i.trailing_zeros(), bytes: 64 + i % 7 * 200, peer: 0 })
        .collect();
    let mut batches: Vec<Batch<Key8>> = Vec::new();
    for chunk in stream.chunks(100) {
        let mut batch = Batch::new();
        for packet in chunk {
            batch.push(key(packet.flow), packet.bytes, 0);
        }
        batches.push(batch);
    }
    for sample in [2, 10, 50] {
        for by in [Measure::Packets, Measure::Bytes] {
            let mut sums = [0.0; 3];
            for seed in 0..1000 {
                let options = Options { by, ..Options::new(64 << 10, seed) };
                let sampler = ("uniform", Parameters::new([("sample", sample)]));
                let mut summary = build(Some(sampler), "linear-table", &options).unwrap();
                for batch in &mut batches {
                    summary.ingest(batch);
                }
                summary.settle();
                let sizes = summary.answers().size().unwrap();
                for (flow, sum) in (0..).zip(&mut sums) {
                    *sum += sizes
                        .estimate(key::<Key8>(flow).canonical(Key8::BYTES))
                        .by(by)
                        .unwrap()
                        .value;
                }
            }
            for (flow, sum) in (0..).zip(sums) {
                let of_flow = stream.iter().filter(|packet| packet.flow == flow);
                let weights = of_flow.map(|p| match by {
                    Measure::Packets => 1.0,
                    Measure::Bytes => f64::from(p.bytes),
                });
                let (truth, squares) = weights
                    .fold((0.0, 0.0), |(t, s), weight: f64| (t + weight, s + weight * weight));
                let error = (squares * (f64::from(sample) - 1.0) / 1000.0).sqrt();
                let mean = sum / 1000.0;
                assert!((mean - truth).abs() < 3.0 * error, "1/{sample}: {mean}, {truth}");
            }
        }
    }
}

/// One packet in one is exactly all packets.
#[test]
fn uniform_of_all_packets_is_no_sample() {
    let mut batch = Batch::<Key8>::new();
    (0..200).for_each(|i| batch.push(key(i % 7), 100, 0));
    let options = Options::new(64 << 10, 1);
    let sampler = ("uniform", Parameters::new([("sample", 1)]));
    let mut summary = build(Some(sampler), "linear-table", &options).unwrap();
    summary.ingest(&mut batch);
    let size = summary.answers().size().unwrap().estimate(key::<Key8>(3).canonical(Key8::BYTES));
    let size = size.packets.unwrap();
    assert_eq!((size.low, size.value, size.high, size.confidence), (29.0, 29.0, 29.0, None));
}
