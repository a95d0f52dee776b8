//! Hierarchical heavy hitters: prefixes of any length that are heavy.
//!
//! A hierarchy has a node for each prefix length, or for each pair of them. The algorithms count
//! the prefixes of every node in a Space-Saving of its own.

mod mst;
mod rhhh;

pub use mst::Mst;
pub use rhhh::Rhhh;

use flowgauge_kernel::Digester;

use crate::batch::BATCH_PACKETS;
use crate::key::{CanonicalKey, FlowKey, prefix_mask};
use crate::sorting::sort_by;
use crate::summary::codec::{DecodeError, Reader, Writer};
use crate::summary::counter::{Monitor, Monitored, counters, exact_size, size};
use crate::summary::{
    BuildError, BuildErrorKind, Estimate, Incompatible, Options, Prefixes, SizeEstimate,
};
use crate::terms::{Hierarchy, Measure, Size};

/// The prefix lengths of a node, and the mask that cuts a key to them.
#[derive(Clone, Copy)]
struct Node<K> {
    /// Prefix length of the source, or of the only address.
    source: u8,
    /// Prefix length of the destination; 0 if there is one address.
    destination: u8,
    mask: K,
}

impl<K: FlowKey> Node<K> {
    fn new(key_bytes: usize, address_bytes: usize, source: u8, destination: u8) -> Option<Self> {
        let mut mask = [0; 32];
        for (at, bits) in [(0, source), (address_bytes, destination)] {
            let bytes = prefix_mask(bits).to_be_bytes();
            mask[at..at + address_bytes].copy_from_slice(&bytes[..address_bytes]);
        }
        Some(Self { source, destination, mask: K::from_canonical(mask.get(..key_bytes)?)? })
    }

    /// The number of possible prefixes, saturating.
    fn prefixes(&self) -> usize {
        1usize
            .checked_shl(u32::from(self.source) + u32::from(self.destination))
            .unwrap_or(usize::MAX)
    }
}

/// The maximum number of nodes: pairs of IPv6 addresses by bytes.
const MOST_NODES: usize = 17 * 17;

/// The number of nodes of a hierarchy over IPv4 addresses.
fn ipv4_nodes(hierarchy: Hierarchy) -> usize {
    match hierarchy {
        Hierarchy::Bytes => 5,
        Hierarchy::Bits => 33,
        Hierarchy::Pair => 5 * 5,
    }
}

/// Checks that the key of the options suits their hierarchy.
fn fits(algorithm: &'static str, options: &Options) -> Result<(), BuildError> {
    let (hierarchy, key_bytes) = (options.hierarchy, options.digester.key_bytes());
    let keys = match hierarchy {
        Hierarchy::Bytes | Hierarchy::Bits => [4, 16],
        Hierarchy::Pair => [8, 32],
    };
    if !keys.contains(&key_bytes) {
        let reason = match hierarchy {
            Hierarchy::Pair => "--hierarchy pair needs --key pair",
            _ if [8, 32].contains(&key_bytes) => {
                "this hierarchy is over one address; use --hierarchy pair, --key source or destination"
            }
            _ => "this hierarchy is over one address; use --key source or destination",
        };
        return Err(BuildErrorKind::Unfit { algorithm, reason: reason.to_owned() }.into());
    }
    Ok(())
}

/// The nodes of a hierarchy over keys of type `K`, longer prefixes first.
fn nodes<K: FlowKey>(
    algorithm: &'static str,
    options: &Options,
) -> Result<Vec<Node<K>>, BuildError> {
    let (hierarchy, key_bytes) = (options.hierarchy, options.digester.key_bytes());
    fits(algorithm, options)?;
    let step = if hierarchy == Hierarchy::Bits { 1 } else { 8 };
    let one_address = hierarchy != Hierarchy::Pair;
    let address_bytes = if one_address { key_bytes } else { key_bytes / 2 };
    let bits = 8 * address_bytes as u8;
    let mut nodes: Vec<Node<K>> = Vec::new();
    for source in (0..=bits).step_by(step) {
        let most = if one_address { 0 } else { bits };
        let destinations = (0..=most).step_by(step);
        let node = |bits| Node::new(key_bytes, address_bytes, source, bits);
        nodes.extend(destinations.filter_map(node));
    }
    let bits = |node: &Node<K>| u16::from(node.source) + u16::from(node.destination);
    sort_by(&mut nodes, &|one, other| bits(other).cmp(&bits(one)));
    Ok(nodes)
}

/// A node with the counters of its prefixes.
struct NodeCounters<K: FlowKey, C: Monitored> {
    node: Node<K>,
    counts: C::Monitor<K>,
}

/// All nodes of a hierarchy: whole keys first, the root last.
///
/// A node has `counters` counters, or as many as it has prefixes if that is fewer. Memory in bytes:
/// a Space-Saving for each node, and the nodes themselves.
struct Lattice<K: FlowKey, C: Monitored> {
    nodes: Vec<NodeCounters<K, C>>,
    digester: Digester,
    hierarchy: Hierarchy,
    counters: usize,
}

impl<K: FlowKey, C: Monitored> Lattice<K, C> {
    fn new(algorithm: &'static str, options: &Options) -> Result<Self, BuildError> {
        let nodes = nodes::<K>(algorithm, options)?;
        let bytes = |counters: usize| {
            let one = |node: &Node<K>| C::Monitor::<K>::bytes(counters.min(node.prefixes()));
            nodes.iter().map(one).sum::<usize>() + nodes.len() * size_of::<NodeCounters<K, C>>()
        };
        let counters = counters(options, &bytes)?;
        options.memory.take(nodes.len() * size_of::<NodeCounters<K, C>>())?;
        let with_counters = |node: Node<K>| {
            let entries = counters.min(node.prefixes());
            let counts = C::Monitor::<K>::new(entries, options.digester, &options.memory)?;
            Ok(NodeCounters { node, counts })
        };
        let nodes = nodes.into_iter().map(with_counters).collect::<Result<_, BuildError>>()?;
        Ok(Self { nodes, digester: options.digester, hierarchy: options.hierarchy, counters })
    }

    fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The maximum number of counters of a node.
    fn counters(&self) -> usize {
        self.counters
    }

    /// Adds the weights of the rows, at most a batch, at one node.
    #[inline(always)]
    fn add(&mut self, node: usize, keys: &[K], weights: &[C]) {
        let NodeCounters { node, counts } = &mut self.nodes[node];
        let mut prefixes = [K::zeroed(); BATCH_PACKETS];
        let prefixes = &mut prefixes[..keys.len()];
        for (prefix, key) in prefixes.iter_mut().zip(keys) {
            *prefix = key.masked(node.mask);
        }
        let mut digests = [0; BATCH_PACKETS];
        let digests = &mut digests[..keys.len()];
        let key_bytes = self.digester.key_bytes();
        self.digester.digest_batch(K::words(prefixes), key_bytes, digests);
        counts.add_packets(prefixes, digests, weights);
    }

    /// Adds the weights of the rows at all nodes, one node after the other.
    fn add_to_all(&mut self, keys: &[K], weights: &[C]) {
        for node in 0..self.nodes.len() {
            self.add(node, keys, weights);
        }
    }

    /// Weight of packets without a counter, at the node that has the most.
    fn untracked(&self) -> Size {
        let untracked = self.nodes.iter().map(|node| node.counts.index().untracked());
        exact_size::<C>(untracked.max().unwrap_or(0))
    }

    /// Weight that full counters could not add, at the node that has the most.
    fn saturated(&self) -> Size {
        let saturated = self.nodes.iter().map(|node| node.counts.saturated());
        exact_size::<C>(saturated.max().unwrap_or(0))
    }

    /// The size of a whole key, with its estimate passed through `adjust`.
    fn size(&self, key: &[u8], adjust: impl Fn(Estimate) -> Estimate) -> SizeEstimate {
        size::<C>(adjust(self.estimate(0, key)))
    }

    /// Visits the keys that have counters at the first node.
    fn candidates(
        &self,
        adjust: impl Fn(Estimate) -> Estimate,
        visit: &mut dyn FnMut(CanonicalKey, SizeEstimate),
    ) {
        self.for_each(0, &mut |key, weight| visit(key, size::<C>(adjust(weight))));
    }

    /// The maximum weight of a key that is not among the candidates.
    fn unnamed(&self) -> f64 {
        let counts = &self.nodes[0].counts;
        counts.upper_bound(counts.min_count().get())
    }

    fn digester(&self) -> &Digester {
        &self.digester
    }

    /// Checks that both have the same hierarchy.
    fn matches(&self, other: &Self) -> Result<(), Incompatible> {
        if other.hierarchy != self.hierarchy {
            return Err(Incompatible("hierarchies differ"));
        }
        Ok(())
    }

    fn merge(&mut self, other: &Self) {
        for (node, other) in self.nodes.iter_mut().zip(&other.nodes) {
            node.counts.merge(&other.counts);
        }
    }

    fn save(&self, out: &mut Writer) {
        self.nodes.iter().for_each(|node| node.counts.save(out));
    }

    fn load(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.nodes.iter_mut().try_for_each(|node| node.counts.load(from))
    }

    fn clear(&mut self) {
        self.nodes.iter_mut().for_each(|node| node.counts.clear());
    }

    fn memory_bytes(&self) -> usize {
        let counts = self.nodes.iter().map(|node| node.counts.memory_bytes()).sum::<usize>();
        counts + self.nodes.len() * size_of::<NodeCounters<K, C>>()
    }
}

impl<K: FlowKey, C: Monitored> Prefixes for Lattice<K, C> {
    fn measure(&self) -> Measure {
        C::MEASURE
    }

    fn hierarchy(&self) -> Hierarchy {
        self.hierarchy
    }

    fn nodes(&self) -> Vec<(u8, u8)> {
        self.nodes.iter().map(|node| (node.node.source, node.node.destination)).collect()
    }

    fn for_each(&self, node: usize, visit: &mut dyn FnMut(CanonicalKey, Estimate)) {
        let counts = &self.nodes[node].counts;
        for entry in counts.entries() {
            visit(entry.key.to_canonical(&self.digester), counts.bounds(&entry));
        }
    }

    fn estimate(&self, node: usize, prefix: &[u8]) -> Estimate {
        let key = K::matching(prefix, &self.digester);
        key.map_or(Estimate::exact(0), |key| self.nodes[node].counts.estimate(key))
    }
}
