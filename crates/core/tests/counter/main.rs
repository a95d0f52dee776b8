//! Tests of the counter summaries: the streams that they share, and refusals.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod csm;
mod misra_gries;
mod netflow;
mod sketch_visor;
mod space_saving;
#[path = "../support/zipf.rs"]
mod zipf;

use std::collections::BTreeMap;

use flowgauge_core::batch::Batch;
use flowgauge_core::catalog;
use flowgauge_core::key::{FlowKey, Key4};
use flowgauge_core::summary::{Estimate, Options, Summary};
use flowgauge_core::terms::Measure;

use zipf::Zipf;

/// A flow's number and the bytes of its packet.
type Packet = (u32, u32);

fn key(flow: u32) -> Key4 {
    Key4::from_canonical(&flow.to_be_bytes()).unwrap()
}

/// Packets of 64 to 1500 bytes, of flows drawn by Zipf's law.
fn packets(count: usize, flows: usize, skew: f64, seed: u64) -> Vec<Packet> {
    let mut random = fastrand::Rng::with_seed(seed ^ 0x5eed);
    Zipf::new(flows, skew, seed).take(count).map(|flow| (flow, random.u32(64..=1500))).collect()
}

/// The weight of each flow.
fn weights(packets: &[Packet], by: Measure) -> BTreeMap<u32, u64> {
    let mut weights = BTreeMap::new();
    for &(flow, bytes) in packets {
        *weights.entry(flow).or_default() += if by == Measure::Bytes { bytes.into() } else { 1 };
    }
    weights
}

fn feed(summary: &mut dyn Summary<Key4>, packets: &[Packet]) {
    let mut batch = Batch::new();
    for chunk in packets.chunks(256) {
        batch.clear();
        for (time_ns, &(flow, bytes)) in (0..).zip(chunk) {
            batch.push(key(flow), bytes, time_ns);
        }
        summary.ingest(&mut batch);
    }
}

fn options(by: Measure, seed: u64, parameters: &[(&str, u64)]) -> Options {
    let parameters = parameters.iter().copied();
    Options { by, ..Options::new(1 << 20, seed).with(parameters) }
}

/// A summary that has ingested these packets.
fn summary(name: &str, options: &Options, packets: &[Packet]) -> Box<dyn Summary<Key4>> {
    let mut summary = catalog::build::<Key4>(name, options).unwrap();
    feed(&mut *summary, packets);
    summary
}

fn estimate(summary: &dyn Summary<Key4>, by: Measure, flow: u32) -> Estimate {
    let sizes = summary.answers().size().unwrap();
    sizes.estimate(key(flow).canonical(Key4::BYTES)).by(by).unwrap()
}

/// The flows that the summary names, with their estimates.
fn named(summary: &dyn Summary<Key4>, by: Measure) -> BTreeMap<u32, Estimate> {
    let mut named = BTreeMap::new();
    summary.answers().candidates().unwrap().for_each(&mut |key, size| {
        let flow = u32::from_be_bytes(key.as_bytes().try_into().unwrap());
        assert!(named.insert(flow, size.by(by).unwrap()).is_none(), "{flow} is named twice");
    });
    named
}

/// Seeds of a statistical test: 32, or 256 if `FLOWGAUGE_LONG` is 1.
fn seeds() -> std::ops::Range<u64> {
    let long = std::env::var("FLOWGAUGE_LONG").is_ok_and(|value| value == "1");
    if !long {
        println!("32 seeds; set FLOWGAUGE_LONG=1 for 256");
    }
    0..if long { 256 } else { 32 }
}

/// Checks that the errors of each flow over the seeds have a mean of 0, within 4 standard errors.
fn are_unbiased(errors: &[Vec<f64>]) {
    for (flow, errors) in errors.iter().enumerate() {
        let count = errors.len() as f64;
        let mean = errors.iter().sum::<f64>() / count;
        let variance = errors.iter().map(|error| (error - mean).powi(2)).sum::<f64>() / count;
        let deviations = mean / (variance / count).sqrt();
        assert!(deviations.abs() < 4.0, "{flow}: {mean}, {deviations} standard errors");
    }
}

fn refusal(name: &str, by: Measure, parameters: &[(&str, &str)]) -> String {
    let options = Options::new(1 << 16, 1).with(parameters.iter().copied());
    catalog::build::<Key4>(name, &Options { by, ..options }).err().unwrap().to_string()
}

#[test]
fn sizes_and_targets_are_checked() {
    for name in ["space-saving", "stream-summary", "misra-gries"] {
        let both = refusal(name, Measure::Packets, &[("counters", "10"), ("epsilon", "0.1")]);
        assert!(both.contains("counters and epsilon set the same value"), "{both}");
        let none = refusal(name, Measure::Packets, &[("counters", "0")]);
        assert!(none.contains("'counters=0' is not a whole number from 1"), "{none}");
        let whole = refusal(name, Measure::Packets, &[("epsilon", "1.5")]);
        assert!(whole.contains("'epsilon=1.5' is not a number between 0 and 1"), "{whole}");
    }
    let none = refusal("netflow", Measure::Packets, &[("sample", "0")]);
    assert!(none.contains("'sample=0' is not"), "{none}");
    for (name, value) in [("rate", "0"), ("rate", "1000000001"), ("queue", "0")] {
        let out = refusal("sketch-visor", Measure::Packets, &[(name, value)]);
        assert!(
            out.contains(&format!("'{name}={value}' is not a whole number from 1 to")),
            "{out}"
        );
    }
    let more = refusal("csm", Measure::Packets, &[("counters", "10"), ("shared", "11")]);
    assert!(more.contains("'shared=11' is not a whole number from 1 to 10"), "{more}");
}

#[test]
fn an_error_gives_the_number_of_counters() {
    let options = Options::new(1 << 16, 1).with([("epsilon", "0.003")]);
    let summary = catalog::build::<Key4>("space-saving", &options).unwrap();
    assert_eq!(summary.parameters()[0].1.to_string(), "334");
}

#[test]
fn linked_buckets_count_packets_only() {
    let error = refusal("stream-summary", Measure::Bytes, &[]);
    assert!(error.contains("--algorithm space-saving"), "{error}");
}
