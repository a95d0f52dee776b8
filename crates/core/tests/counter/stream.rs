//! Streams of Zipf's packets with their exact weights, and summaries of them.

use std::collections::BTreeMap;

use flowgauge_core::batch::Batch;
use flowgauge_core::catalog;
use flowgauge_core::key::{FlowKey, Key4};
use flowgauge_core::summary::{Estimate, Options, Summary};
use flowgauge_core::terms::Measure;

use crate::zipf::Zipf;

/// A flow's number and the bytes of its packet.
pub(crate) type Packet = (u32, u32);

pub(crate) fn key(flow: u32) -> Key4 {
    Key4::from_canonical(&flow.to_be_bytes()).unwrap()
}

/// Packets of flows drawn with Zipf's frequencies, of 64 to 1500 bytes.
pub(crate) fn packets(count: usize, flows: usize, skew: f64, seed: u64) -> Vec<Packet> {
    let mut random = fastrand::Rng::with_seed(seed ^ 0x5eed);
    Zipf::new(flows, skew, seed).take(count).map(|flow| (flow, random.u32(64..=1500))).collect()
}

/// The weight of each flow.
pub(crate) fn weights(packets: &[Packet], by: Measure) -> BTreeMap<u32, u64> {
    let mut weights = BTreeMap::new();
    for &(flow, bytes) in packets {
        *weights.entry(flow).or_default() += if by == Measure::Bytes { bytes.into() } else { 1 };
    }
    weights
}

pub(crate) fn feed(summary: &mut dyn Summary<Key4>, packets: &[Packet]) {
    let mut batch = Batch::new();
    for chunk in packets.chunks(256) {
        batch.clear();
        for (time_ns, &(flow, bytes)) in (0..).zip(chunk) {
            batch.push(key(flow), bytes, time_ns);
        }
        summary.ingest(&mut batch);
    }
}

pub(crate) fn options(by: Measure, seed: u64, parameters: &[(&str, u64)]) -> Options {
    let parameters = parameters.iter().copied();
    Options { by, ..Options::new(1 << 20, seed).with(parameters) }
}

/// A summary that has seen these packets.
pub(crate) fn summary(name: &str, options: &Options, packets: &[Packet]) -> Box<dyn Summary<Key4>> {
    let mut summary = catalog::build::<Key4>(name, options).unwrap();
    feed(&mut *summary, packets);
    summary
}

pub(crate) fn estimate(summary: &dyn Summary<Key4>, by: Measure, flow: u32) -> Estimate {
    let sizes = summary.answers().size().unwrap();
    sizes.estimate(key(flow).canonical(Key4::BYTES)).by(by).unwrap()
}

/// The flows that the summary names, with their estimates.
pub(crate) fn named(summary: &dyn Summary<Key4>, by: Measure) -> BTreeMap<u32, Estimate> {
    let mut named = BTreeMap::new();
    summary.answers().candidates().unwrap().for_each(&mut |key, size| {
        let flow = u32::from_be_bytes(key.as_bytes().try_into().unwrap());
        assert!(named.insert(flow, size.by(by).unwrap()).is_none(), "{flow} is named twice");
    });
    named
}

/// Seeds of a statistical test: 32 of them, or 256 where `FLOWGAUGE_LONG` is 1.
pub(crate) fn seeds() -> std::ops::Range<u64> {
    let long = std::env::var("FLOWGAUGE_LONG").is_ok_and(|value| value == "1");
    if !long {
        println!("32 seeds; set FLOWGAUGE_LONG=1 for 256");
    }
    0..if long { 256 } else { 32 }
}
