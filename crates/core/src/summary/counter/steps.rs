//! Batches in the steps of the usual packet, and one packet at a time where it is not usual.

use super::index::Index;

/// What finds its counters by an index, and counts the usual packet without a branch.
pub(super) trait Steps<K: Copy, C: Copy> {
    /// Where the counters are found.
    fn index(&self) -> &Index;

    /// Adds the weights of these packets while that takes only the usual steps; returns of how many.
    /// `WIDE` is [`Index::is_wide`].
    fn add_usual<const WIDE: bool>(&mut self, keys: &[K], digests: &[u64], weights: &[C]) -> usize;

    /// Adds the weight of any packet.
    fn add_one(&mut self, key: K, digest: u64, weight: C);

    /// Adds the weights of these packets, one after the other.
    #[inline(always)]
    fn add_in_steps(&mut self, keys: &[K], digests: &[u64], weights: &[C]) {
        self.index().prefetch_all(digests);
        let mut at = 0;
        loop {
            let rest = (&keys[at..], &digests[at..], &weights[at..]);
            at += if self.index().is_wide() {
                self.add_usual::<true>(rest.0, rest.1, rest.2)
            } else {
                self.add_usual::<false>(rest.0, rest.1, rest.2)
            };
            if at == keys.len() {
                break;
            }
            self.add_one(keys[at], digests[at], weights[at]);
            at += 1;
        }
    }
}
