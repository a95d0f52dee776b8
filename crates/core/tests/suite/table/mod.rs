//! Exact tables, and the states that they keep for each key, checked against maps.

mod arrays;
mod exact;
mod lacking;
mod states;

use std::collections::HashMap;

use flowgauge_core::batch::Batch;
use flowgauge_core::catalog;
use flowgauge_core::catalog::stored::{Decoded, decode, encode};
use flowgauge_core::key::FlowKey;
use flowgauge_core::summary::{BuildError, Info, Options, Summary};
use flowgauge_core::terms::Size;

/// The linear table with keys and states in its buckets.
const INLINE: &str = "linear-table:layout=inline";

/// Every exact table.
const TABLES: [&str; 5] = ["linear-table", INLINE, "indirect-table", "cuckoo-1", "cuckoo-4"];

/// A packet: the number of its flow, its bytes, and the digest of its peer.
#[derive(Clone, Copy)]
struct Packet {
    flow: u32,
    bytes: u32,
    element: u64,
}

/// The key number `flow`, 0 being the zero key.
fn key<K: FlowKey>(flow: u32) -> K {
    let mut bytes = vec![0; K::BYTES];
    for (i, byte) in flow.to_be_bytes().iter().enumerate() {
        bytes[(i * 11) % K::BYTES] ^= byte;
    }
    K::from_canonical(&bytes).unwrap()
}

fn options(memory_bytes: usize, seed: u64, parameters: &[(&str, &str)]) -> Options {
    Options::new(memory_bytes, seed).with(parameters.iter().copied())
}

/// The algorithm that `name` begins with.
fn info(name: &str) -> &'static Info {
    catalog::info(name.split(':').next().unwrap()).unwrap()
}

/// Builds a summary; `name` is an algorithm and optionally a parameter, as in [`INLINE`].
fn try_build<K: FlowKey>(name: &str, options: &Options) -> Result<Box<dyn Summary<K>>, BuildError> {
    let info = info(name);
    let given = info.parameters.iter().filter_map(|parameter| {
        options.parameters.get(parameter.name).map(|value| (parameter.name, value))
    });
    let behind = name.split_once(':').and_then(|(_, parameter)| parameter.split_once('='));
    catalog::build(info.name, &options.clone().with(given.chain(behind)))
}

fn build<K: FlowKey>(name: &str, options: &Options) -> Box<dyn Summary<K>> {
    try_build(name, options).unwrap()
}

fn feed<K: FlowKey>(summary: &mut dyn Summary<K>, packets: &[Packet]) {
    let mut batch = Batch::<K>::new();
    for chunk in packets.chunks(256) {
        for packet in chunk {
            batch.push_with_element(key(packet.flow), packet.bytes, 0, packet.element);
        }
        summary.ingest(&mut batch);
        batch.clear();
    }
    summary.settle();
}

/// `count` packets of up to `flows` flows, the lower numbers heavier.
fn packets(count: usize, flows: u32, seed: u64) -> Vec<Packet> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut packet = || Packet {
        flow: (random.f64().powi(2) * f64::from(flows)) as u32,
        bytes: random.u32(40..1500),
        element: random.u64(..),
    };
    (0..count).map(|_| packet()).collect()
}

/// One packet of each flow.
fn one_each(flows: impl Iterator<Item = u32>) -> Vec<Packet> {
    flows.map(|flow| Packet { flow, bytes: 64, element: 0 }).collect()
}

fn total(packets: &[Packet]) -> Size {
    let bytes = packets.iter().map(|packet| u64::from(packet.bytes)).sum();
    Size { packets: packets.len() as u64, bytes }
}

fn truth<K: FlowKey>(packets: &[Packet]) -> HashMap<Vec<u8>, Size> {
    let mut sizes = HashMap::<_, Size>::new();
    for packet in packets {
        let size = sizes.entry(key::<K>(packet.flow).canonical(K::BYTES).to_vec()).or_default();
        *size += Size { packets: 1, bytes: packet.bytes.into() };
    }
    sizes
}

/// The flows of a summary, which `for_each` and `get` must list alike.
fn listed<K: FlowKey>(summary: &dyn Summary<K>) -> HashMap<Vec<u8>, Size> {
    let flows = summary.answers().flows().unwrap();
    let (mut sizes, mut index) = (HashMap::new(), 0);
    flows.for_each(&mut |key, size| {
        assert_eq!(flows.get(index), (key, size));
        assert!(sizes.insert(key.to_vec(), size).is_none(), "a flow is listed twice");
        index += 1;
    });
    assert_eq!(index, flows.len());
    assert!(index <= flows.most());
    sizes
}

/// Raises the first counter of `packets` that is followed by `bytes`, so that one more packet fills
/// it.
fn nearly_full<K: FlowKey>(
    name: &str,
    options: &Options,
    summary: &dyn Summary<K>,
    (packets, bytes): (u32, &[u8]),
) -> Box<dyn Summary<K>> {
    let mut stored = encode(info(name), options, summary);
    let end = stored.len() - 4;
    let counter = [&packets.to_le_bytes(), bytes].concat();
    let at = (0..end).find(|at| stored[*at..].starts_with(&counter)).unwrap();
    stored[at..at + 4].copy_from_slice(&(u32::MAX - 1).to_le_bytes());
    let checksum = crc32fast::hash(&stored[..end]);
    stored[end..].copy_from_slice(&checksum.to_le_bytes());
    decode(&stored, 4 << 20).unwrap().summary
}

/// Stores and decodes a summary, which must not change it.
fn stored_and_back<K: FlowKey>(
    name: &str,
    options: &Options,
    summary: &dyn Summary<K>,
) -> Box<dyn Summary<K>> {
    let info = info(name);
    let bytes = encode(info, options, summary);
    let Decoded { options, summary, .. } = decode(&bytes, 64 << 20).unwrap();
    assert!(encode(info, &options, &*summary) == bytes, "{name}");
    summary
}
