//! Exact counts by key and by prefix: the ground truth.

use std::collections::BTreeMap;

/// The canonical bytes of an IPv4 key as a number in the same order (first byte highest).
pub(crate) fn number(canonical: &[u8]) -> u128 {
    let mut bytes = [0; 16];
    bytes[..canonical.len()].copy_from_slice(canonical);
    u128::from_be_bytes(bytes)
}

/// Keys with exact weights, sorted by key.
#[derive(Debug, Default)]
pub(crate) struct Exact {
    keys: Vec<u128>,
    /// Prefix sums: the weight of all keys before this one, and the total at the end.
    before: Vec<u64>,
}

impl Exact {
    /// Counts keys.
    pub(crate) fn count(mut keys: Vec<u128>) -> Self {
        keys.sort_unstable();
        let mut before = vec![0];
        let mut counted = 0;
        let mut distinct = Vec::new();
        for run in keys.chunk_by(|a, b| a == b) {
            counted += run.len() as u64;
            distinct.push(run[0]);
            before.push(counted);
        }
        Self { keys: distinct, before }
    }

    /// The number of keys.
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// The weight of all keys.
    pub(crate) fn total(&self) -> u64 {
        self.before.last().copied().unwrap_or(0)
    }

    /// Every key with its weight, sorted by key.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u128, u64)> {
        self.keys.iter().zip(self.before.windows(2)).map(|(&key, sums)| (key, sums[1] - sums[0]))
    }

    /// The weight of a key.
    pub(crate) fn get(&self, key: u128) -> u64 {
        self.between(key, key)
    }

    /// The weight of all keys from `first` to `last`.
    pub(crate) fn between(&self, first: u128, last: u128) -> u64 {
        let from = self.keys.partition_point(|key| *key < first);
        let to = self.keys.partition_point(|key| *key <= last);
        self.before[to] - self.before[from]
    }

    /// The weights, smallest first.
    pub(crate) fn sorted_weights(&self) -> Vec<u64> {
        let mut weights: Vec<u64> = self.iter().map(|(_, weight)| weight).collect();
        weights.sort_unstable();
        weights
    }
}

/// A prefix of a key's first address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Prefix {
    /// The address in the highest bits of a number, with zero host bits.
    pub(crate) address: u128,
    /// Prefix length.
    pub(crate) bits: u8,
}

impl Prefix {
    /// The last key in it.
    fn last(self) -> u128 {
        self.address | u128::MAX.checked_shr(self.bits.into()).unwrap_or(0)
    }

    /// The weight of all keys in it.
    pub(crate) fn total(self, keys: &Exact) -> u64 {
        keys.between(self.address, self.last())
    }

    /// The prefix with this length.
    fn cut(self, bits: u8) -> Self {
        Self { address: self.address & !u128::MAX.checked_shr(bits.into()).unwrap_or(0), bits }
    }
}

/// For each prefix of a set, the weight of its keys that are in no longer prefix of the set.
pub(crate) fn discounted(keys: &Exact, set: &[Prefix]) -> Vec<u64> {
    let places: BTreeMap<Prefix, usize> = set.iter().copied().zip(0..).collect();
    let mut weights: Vec<u64> = set.iter().map(|prefix| prefix.total(keys)).collect();
    for prefix in places.keys() {
        let mut above = (0..prefix.bits).rev().map(|bits| prefix.cut(bits));
        if let Some(parent) = above.find_map(|prefix| places.get(&prefix)) {
            weights[*parent] -= prefix.total(keys);
        }
    }
    weights
}

/// Every prefix whose discounted weight (without heavy descendants) exceeds the threshold, with
/// that weight.
pub(crate) fn heavy(keys: &Exact, threshold: f64) -> Vec<(Prefix, u64)> {
    let mut nodes: Vec<(u128, u64)> = keys.iter().collect();
    let mut heavy = Vec::new();
    for bits in [32, 24, 16, 8, 0] {
        let mask = !u128::MAX.checked_shr(bits.into()).unwrap_or(0);
        for (address, _) in &mut nodes {
            *address &= mask;
        }
        nodes.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            if same {
                kept.1 += next.1;
            }
            same
        });
        for (address, uncovered) in &mut nodes {
            if *uncovered as f64 > threshold {
                heavy.push((Prefix { address: *address, bits }, std::mem::take(uncovered)));
            }
        }
    }
    heavy
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_counted_and_found() {
        let exact = Exact::count(vec![7, 3, 7, 9, 7]);
        assert_eq!(exact.iter().collect::<Vec<_>>(), [(3, 1), (7, 3), (9, 1)]);
        assert_eq!((exact.len(), exact.total()), (3, 5));
        assert_eq!((exact.get(7), exact.get(8), exact.between(4, 9)), (3, 0, 4));
        assert_eq!(exact.sorted_weights(), [1, 1, 3]);
        assert_eq!(number(&[1, 2]), 0x0102 << 112);
    }

    #[test]
    fn heavy_descendants_are_discounted() {
        let address = |host: u8| number(&[10, 0, 0, host]);
        let keys = Exact::count(
            [vec![address(1); 60], vec![address(2); 15], vec![address(3); 30]].concat(),
        );
        let heavy = heavy(&keys, 20.0);
        let hosts = |bits, address| Prefix { address, bits };
        // The remaining 15 packets make no 24-bit prefix heavy.
        assert_eq!(heavy, [(hosts(32, address(1)), 60), (hosts(32, address(3)), 30)]);
        let with_rest = super::heavy(&keys, 12.0);
        assert_eq!(with_rest[1], (hosts(32, address(2)), 15));
        let network = hosts(24, address(0));
        let set = [hosts(0, 0), heavy[0].0, network, heavy[1].0];
        // The root keeps nothing, because the network has everything; the network keeps one host.
        assert_eq!(discounted(&keys, &set), [0, 60, 15, 30]);
        assert_eq!(network.total(&keys), 105);
    }
}
