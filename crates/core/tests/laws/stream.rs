//! Small streams of packets with known flows, and a test of decoded bytes: it asks a summary every
//! question, and continues to use it.

use flowgauge_core::batch::Batch;
use flowgauge_core::catalog::stored::{Decoded, decode, encode};
use flowgauge_core::key::FlowKey;
use flowgauge_core::summary::codec::DecodeError;
use flowgauge_core::summary::{Answers, Summary};
use flowgauge_core::terms::Measure;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet {
    /// The flow's number; 0 is the zero key.
    pub(crate) flow: u32,
    pub(crate) bytes: u32,
    /// The number of its peer.
    pub(crate) peer: u32,
}

/// The key of a flow, its number spread over all `bytes` bytes.
pub(crate) fn key_of<K: FlowKey>(flow: u32, bytes: usize) -> K {
    let canonical: Vec<u8> = (0..bytes).map(|at| flow.to_be_bytes()[(3 + at) % 4]).collect();
    K::from_canonical(&canonical).unwrap()
}

/// `count` packets of `flows` flows, the lower numbers heavier.
pub(crate) fn packets(count: usize, flows: u32, seed: u64) -> Vec<Packet> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut packet = || {
        let skewed = random.f64().powi(3) * f64::from(flows);
        Packet { flow: skewed as u32, bytes: random.u32(64..1500), peer: random.u32(0..300) }
    };
    (0..count).map(|_| packet()).collect()
}

/// Feeds packets to a summary, a microsecond apart, and settles it.
pub(crate) fn feed<K: FlowKey>(summary: &mut dyn Summary<K>, packets: &[Packet], batch: usize) {
    feed_keys_of(K::BYTES, summary, packets, batch);
}

/// As [`feed`], with keys of so many bytes.
pub(crate) fn feed_keys_of<K: FlowKey>(
    bytes: usize,
    summary: &mut dyn Summary<K>,
    packets: &[Packet],
    batch: usize,
) {
    let mut columns = Batch::<K>::new();
    let mut time_ns = 0;
    for chunk in packets.chunks(batch) {
        for packet in chunk {
            let element = u64::from(packet.peer).wrapping_mul(0x9e37_79b9_7f4a_7c15).swap_bytes();
            let key = key_of(packet.flow, bytes);
            columns.push_with_element(key, packet.bytes, time_ns, element);
            time_ns += 1000;
        }
        summary.ingest(&mut columns);
        columns.clear();
    }
    summary.settle();
}

/// Thresholds of keys that are recovered from cells.
const THRESHOLDS: [f64; 3] = [0.0, 100.0, 1e12];

/// Decodes `bytes` within `limit` bytes of memory, and uses the summary in every way.
///
/// # Errors
/// When the bytes are refused, which is fine, too.
pub(crate) fn decode_and_use<K: FlowKey>(bytes: &[u8], limit: usize) -> Result<(), DecodeError> {
    let Decoded { info, options, mut summary } = decode::<K>(bytes, limit)?;
    let (memory, key_bytes) = (summary.memory_bytes(), options.key_bytes.unwrap());
    assert!(memory <= limit, "{memory} bytes are reserved, of {limit}");
    ask(key_bytes, &*summary);
    // Whatever was read, the summary can be stored and decoded again.
    let stored = encode(info, &options, &*summary);
    let again = decode::<K>(&stored, limit)?;
    assert!(encode(info, &again.options, &*again.summary) == stored, "{}", info.name);
    // The same bytes decode twice; a merge may still be refused.
    let _ = summary.merge(&*decode::<K>(bytes, limit)?.summary);
    feed_keys_of(key_bytes, &mut *summary, &packets(300, 60, 19), 128);
    ask(key_bytes, &*summary);
    summary.next_epoch();
    feed_keys_of(key_bytes, &mut *summary, &packets(50, 20, 23), 64);
    summary.clear();
    ask(key_bytes, &*summary);
    assert_eq!(summary.memory_bytes(), memory);
    Ok(())
}

/// Calls the whole read side.
fn ask<K: FlowKey>(key_bytes: usize, summary: &dyn Summary<K>) {
    let answers = summary.answers();
    let _ = (summary.parameters(), summary.reads());
    let _ = (answers.untracked(), answers.saturated());
    let mut seen = 0;
    if let Some(flows) = answers.flows() {
        assert!(flows.len() <= flows.most());
        flows.for_each(&mut |flow, _| seen += flow.len());
        assert_eq!(seen, flows.len() * key_bytes);
        (0..flows.len()).for_each(|index| assert_eq!(flows.get(index).0.len(), key_bytes));
    }
    if let Some(candidates) = answers.candidates() {
        candidates.for_each(&mut |_, _| seen += 1);
        let _ = candidates.overflow();
    }
    if let Some(sizes) = answers.size() {
        (0..40)
            .for_each(|flow| _ = sizes.estimate(key_of::<K>(flow, key_bytes).canonical(key_bytes)));
    }
    let _ = (answers.cardinality(), answers.distribution());
    let _ = [Measure::Packets, Measure::Bytes].map(|by| answers.weight_logs(by));
    if let Some(quantiles) = answers.quantiles() {
        let _ = (quantiles.of(), quantiles.count(), quantiles.error(), quantiles.confidence());
        let sizes = [0.0, 64.0, quantiles.largest(), f64::MAX];
        let _ = sizes.map(|size| quantiles.rank(size));
        let _ = [0.0, 0.5, 1.0].map(|q| quantiles.key(q));
    }
    if let Some(spread) = answers.spread() {
        spread.for_each(&mut |_, _| seen += 1);
        let _ = spread.overflow();
    }
    if let Some(forecasts) = answers.forecasts() {
        forecasts.for_each(&mut |_, _| seen += 1);
    }
    prefixes::<K>(key_bytes, answers);
    cells::<K>(key_bytes, answers);
}

fn prefixes<K: FlowKey>(key_bytes: usize, answers: &dyn Answers) {
    let Some(prefixes) = answers.prefixes() else { return };
    let _ = (prefixes.measure(), prefixes.hierarchy(), prefixes.sampling());
    for node in 0..prefixes.nodes().len() {
        prefixes.for_each(node, &mut |_, _| ());
        prefixes.estimate(node, key_of::<K>(1, key_bytes).canonical(key_bytes));
    }
}

fn cells<K: FlowKey>(key_bytes: usize, answers: &dyn Answers) {
    let Some(cells) = answers.cells() else { return };
    let _ = (cells.measure(), cells.is_empty());
    let mut values = vec![0.0; cells.len()];
    cells.read(&mut values);
    cells.seal(&mut values);
    for flow in 0..5 {
        cells.estimate(&values, key_of::<K>(flow, key_bytes).canonical(key_bytes));
    }
    for threshold in THRESHOLDS {
        cells.recover(&values, threshold, &mut |_| ());
    }
}
