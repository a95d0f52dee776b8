//! The truth of hierarchical heavy hitters: source prefixes of whole bytes.

use crate::exact::Exact;

/// A prefix of the address that a key begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Prefix {
    /// The address as the highest bits of a number, host bits zero.
    pub(crate) address: u128,
    /// Bits that count.
    pub(crate) bits: u8,
}

impl Prefix {
    /// The last key below it.
    fn last(self) -> u128 {
        self.address | u128::MAX.checked_shr(self.bits.into()).unwrap_or(0)
    }

    /// Whether `other` lies below it, or is the same.
    fn holds(self, other: Self) -> bool {
        self.bits <= other.bits && (self.address..=self.last()).contains(&other.address)
    }

    /// The weight of all keys below it.
    pub(crate) fn total(self, keys: &Exact) -> u64 {
        keys.between(self.address, self.last())
    }

    /// The weight of the keys below it that are below no other prefix of this set.
    pub(crate) fn discounted(self, keys: &Exact, set: &[Self]) -> u64 {
        let below = |other: &Self| *other != self && self.holds(*other);
        // Only those that no other one in between covers already.
        let covered = set.iter().filter(|&&prefix| {
            below(&prefix)
                && !set.iter().any(|&other| below(&other) && other != prefix && other.holds(prefix))
        });
        self.total(keys) - covered.map(|prefix| prefix.total(keys)).sum::<u64>()
    }
}

/// Every prefix whose weight, less that of its heavy descendants, exceeds the threshold, with that
/// discounted weight.
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
        // The third part of the packets is left for no prefix of 24 bits but this one.
        assert_eq!(heavy, [(hosts(32, address(1)), 60), (hosts(32, address(3)), 30)]);
        let with_rest = super::heavy(&keys, 12.0);
        assert_eq!(with_rest[1], (hosts(32, address(2)), 15));
        let set: Vec<Prefix> = heavy.iter().map(|(prefix, _)| *prefix).collect();
        let network = hosts(24, address(0));
        assert_eq!((network.total(&keys), network.discounted(&keys, &set)), (105, 15));
        let nested = [&set[..], &[network]].concat();
        assert_eq!(hosts(0, 0).discounted(&keys, &nested), 0);
    }
}
