//! A Space-Saving for each node of a hierarchy, in memory that all of them share.

use flowgauge_kernel::Digester;

use super::super::codec::{DecodeError, Reader, Writer};
use super::super::counter::{Monitor, Monitored, counters, excess, size};
use super::super::{BuildError, Estimate, Incompatible, Options, Prefixes, SizeEstimate};
use super::nodes::{Node, nodes};
use crate::batch::BATCH_PACKETS;
use crate::key::{CanonicalKey, FlowKey};
use crate::terms::{Hierarchy, Measure, Size};

/// A node with the counters of its prefixes.
struct Level<K: FlowKey, C: Monitored> {
    node: Node<K>,
    counts: C::Monitor<K>,
}

/// All levels, the keys' own first and the root's last.
///
/// A node has `counters` counters, or as many as it has prefixes. Memory in bytes: that of Space-Saving
/// for each, and the levels themselves.
pub(super) struct Levels<K: FlowKey, C: Monitored> {
    all: Vec<Level<K, C>>,
    digester: Digester,
    hierarchy: Hierarchy,
    counters: usize,
}

impl<K: FlowKey, C: Monitored> Levels<K, C> {
    pub(super) fn new(algorithm: &'static str, options: &Options) -> Result<Self, BuildError> {
        let nodes = nodes::<K>(algorithm, options)?;
        let bytes = |counters: usize| {
            let one = |node: &Node<K>| C::Monitor::<K>::bytes(counters.min(node.prefixes()));
            nodes.iter().map(one).sum::<usize>() + nodes.len() * size_of::<Level<K, C>>()
        };
        let counters = counters(options, bytes)?;
        options.memory.take(nodes.len() * size_of::<Level<K, C>>())?;
        let level = |node: Node<K>| {
            let entries = counters.min(node.prefixes());
            let counts = C::Monitor::<K>::new(entries, options.digester, &options.memory)?;
            Ok(Level { node, counts })
        };
        let all = nodes.into_iter().map(level).collect::<Result<_, BuildError>>()?;
        Ok(Self { all, digester: options.digester, hierarchy: options.hierarchy, counters })
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// The largest number of counters that a node has.
    pub(super) fn counters(&self) -> usize {
        self.counters
    }

    /// Adds the weights of packets, at most a batch of them, at one level.
    #[inline(always)]
    pub(super) fn add(&mut self, level: usize, keys: &[K], weights: &[C]) {
        let Level { node, counts } = &mut self.all[level];
        let mut prefixes = [K::zeroed(); BATCH_PACKETS];
        let prefixes = &mut prefixes[..keys.len()];
        for (prefix, key) in prefixes.iter_mut().zip(keys) {
            *prefix = key.masked(node.mask);
        }
        let mut digests = [0; BATCH_PACKETS];
        let digests = &mut digests[..keys.len()];
        let key_bytes = self.digester.key_bytes();
        self.digester.digest_batch(K::words(prefixes), key_bytes, digests);
        counts.add_all(prefixes, digests, weights);
    }

    /// Adds the weights of packets at all levels, one level after the other.
    pub(super) fn add_all(&mut self, keys: &[K], weights: &[C]) {
        for level in 0..self.all.len() {
            self.add(level, keys, weights);
        }
    }

    /// Weight that the index refused: that of the level that has the most.
    pub(super) fn untracked(&self) -> Size {
        let refused = self.all.iter().map(|level| level.counts.index().refused());
        excess::<C>(refused.max().unwrap_or(0))
    }

    /// Increments that full counters could not take: those of the level that has the most.
    pub(super) fn saturated(&self) -> Size {
        excess::<C>(self.all.iter().map(|level| level.counts.excess()).max().unwrap_or(0))
    }

    /// The weight of a key itself.
    pub(super) fn size(&self, key: &[u8], adjust: impl Fn(Estimate) -> Estimate) -> SizeEstimate {
        size::<C>(adjust(self.estimate(0, key)))
    }

    /// Visits the keys that the first level holds.
    pub(super) fn candidates(
        &self,
        adjust: impl Fn(Estimate) -> Estimate,
        visit: &mut dyn FnMut(CanonicalKey, SizeEstimate),
    ) {
        self.for_each(0, &mut |key, weight| visit(key, size::<C>(adjust(weight))));
    }

    /// What a key that is not among those weighs at most.
    pub(super) fn unheld(&self) -> f64 {
        let counts = &self.all[0].counts;
        counts.highest(counts.unheld().get())
    }

    /// The digest that prefixes are found by.
    pub(super) fn digester(&self) -> &Digester {
        &self.digester
    }

    /// Whether both look at the same prefixes.
    pub(super) fn fits(&self, other: &Self) -> Result<(), Incompatible> {
        if other.hierarchy != self.hierarchy {
            return Err(Incompatible("hierarchies differ"));
        }
        Ok(())
    }

    pub(super) fn merge(&mut self, other: &Self) {
        for (level, other) in self.all.iter_mut().zip(&other.all) {
            level.counts.merge(&other.counts);
        }
    }

    pub(super) fn save(&self, out: &mut Writer) {
        self.all.iter().for_each(|level| level.counts.save(out));
    }

    pub(super) fn load(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.all.iter_mut().try_for_each(|level| level.counts.load(from))
    }

    pub(super) fn clear(&mut self) {
        self.all.iter_mut().for_each(|level| level.counts.clear());
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let counts = self.all.iter().map(|level| level.counts.memory_bytes()).sum::<usize>();
        counts + self.all.len() * size_of::<Level<K, C>>()
    }
}

impl<K: FlowKey, C: Monitored> Prefixes for Levels<K, C> {
    fn measure(&self) -> Measure {
        C::MEASURE
    }

    fn hierarchy(&self) -> Hierarchy {
        self.hierarchy
    }

    fn nodes(&self) -> Vec<(u8, u8)> {
        self.all.iter().map(|level| (level.node.source, level.node.destination)).collect()
    }

    fn for_each(&self, node: usize, visit: &mut dyn FnMut(CanonicalKey, Estimate)) {
        let counts = &self.all[node].counts;
        for entry in counts.entries() {
            visit(entry.key.to_canonical(&self.digester), counts.bounds(&entry));
        }
    }

    fn estimate(&self, node: usize, prefix: &[u8]) -> Estimate {
        let key = K::matching(prefix, &self.digester);
        key.map_or(Estimate::exact(0), |key| self.all[node].counts.weight(key))
    }
}
