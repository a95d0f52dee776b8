//! Exact counts by key: the ground truth.

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
}
