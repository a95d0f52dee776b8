//! Small streams of packets with known flows.

use flowgauge_core::batch::Batch;
use flowgauge_core::key::FlowKey;
use flowgauge_core::summary::Summary;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet {
    /// The flow's number; 0 is the zero key.
    pub(crate) flow: u32,
    pub(crate) bytes: u32,
    /// The number of its peer.
    pub(crate) peer: u32,
}

/// The key of a flow, its number spread over all of the key's bytes.
pub(crate) fn key<K: FlowKey>(flow: u32) -> K {
    key_of(flow, K::BYTES)
}

/// As [`key`], of so many bytes.
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
