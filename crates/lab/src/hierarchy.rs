//! Ground truth of hierarchical heavy hitters: source prefixes of whole bytes.

use std::collections::BTreeMap;

use crate::exact::Exact;

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
    use crate::exact::number;

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
