//! A Space-Saving for each of the 25 prefixes of a pair of addresses.

use flowgauge_core::key::{FlowKey, Key8};
use flowgauge_kernel::Digester;

use super::counters::SpaceSaving;
use super::{BATCH, ByHand};

/// Counters of a node with more prefixes than that.
const COUNTERS: usize = 1400;

const NODES: usize = 25;

struct Node {
    mask: u64,
    counts: SpaceSaving<2048, 256>,
}

fn nodes(digester: Digester) -> Vec<Node> {
    let mut nodes = Vec::new();
    for (source, destination) in
        (0..=4).flat_map(|source| (0..=4).map(move |bytes| (source, bytes)))
    {
        let kept = |bytes: usize, at: usize| if at < bytes { 0xff } else { 0 };
        let mask =
            std::array::from_fn(|at| kept(source, at) | kept(destination, at.wrapping_sub(4)));
        let prefixes = 1usize << (8 * (source + destination)).min(32);
        let counts = SpaceSaving::new(digester, COUNTERS.min(prefixes));
        nodes.push(Node { mask: u64::from_ne_bytes(mask), counts });
    }
    nodes
}

impl Node {
    #[inline(always)]
    fn update(&mut self, digester: &Digester, keys: &[u64]) {
        let (mut prefixes, mut digests) = ([0; BATCH], [0; BATCH]);
        let (prefixes, digests) = (&mut prefixes[..keys.len()], &mut digests[..keys.len()]);
        for (prefix, key) in prefixes.iter_mut().zip(keys) {
            *prefix = key & self.mask;
        }
        digester.digest_batch(prefixes, Key8::BYTES, digests);
        self.counts.update(prefixes, digests);
    }
}

/// Counts every packet in every node.
pub(super) struct Mst {
    digester: Digester,
    nodes: Vec<Node>,
}

impl Mst {
    pub(super) fn new(digester: Digester) -> Self {
        Self { digester, nodes: nodes(digester) }
    }
}

impl ByHand for Mst {
    const DIGESTS: bool = false;

    fn clear(&mut self) {
        self.nodes.iter_mut().for_each(|node| node.counts.clear());
    }

    #[inline(always)]
    fn update(&mut self, keys: &[u64], _: &[u64]) {
        for node in &mut self.nodes {
            node.update(&self.digester, keys);
        }
    }
}

/// Counts every packet in one random node.
pub(super) struct Rhhh {
    all: Mst,
    random: fastrand::Rng,
    packets: u64,
}

impl Rhhh {
    pub(super) fn new(digester: Digester) -> Self {
        Self { all: Mst::new(digester), random: fastrand::Rng::with_seed(1), packets: 0 }
    }
}

impl ByHand for Rhhh {
    const DIGESTS: bool = false;

    fn clear(&mut self) {
        self.all.clear();
        self.packets = 0;
    }

    #[inline(always)]
    fn update(&mut self, keys: &[u64], _: &[u64]) {
        let (mut drawn, mut ends, mut random) =
            ([0_u8; BATCH], [0; NODES + 1], self.random.clone());
        for node in &mut drawn[..keys.len()] {
            *node = ((u64::from(random.u32(..)) * NODES as u64) >> 32) as u8;
            ends[usize::from(*node) % NODES + 1] += 1;
        }
        self.random = random;
        for node in 0..NODES {
            ends[node + 1] += ends[node];
        }
        let mut sorted = [0; BATCH];
        for (&key, &node) in keys.iter().zip(&drawn) {
            let end = &mut ends[usize::from(node) % NODES];
            sorted[*end % BATCH] = key;
            *end += 1;
        }
        let mut begin = 0;
        for (node, &end) in self.all.nodes.iter_mut().zip(&ends) {
            if begin < end {
                node.update(&self.all.digester, &sorted[begin..end]);
            }
            begin = end;
        }
        self.packets += keys.len() as u64;
    }
}
