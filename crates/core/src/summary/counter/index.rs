//! A hash index of counters, in memory of fixed size.

use flowgauge_kernel::{Zeroed, prefetch};

use super::super::{BuildError, Memory};

/// Chains for so many counters: two for each, and while that is less than a first-level cache can
/// spare, up to eight. So a key without a counter mostly finds an empty chain, and one branch tells that;
/// with 128 counters Space-Saving takes 18 ns with four or eight, 24 ns with two, and 41 ns with
/// a half full table and its probing, whose loops have unforeseeable lengths.
const fn chains(counters: usize) -> usize {
    let few = if counters < 128 { 8 * counters } else { 1024 };
    if few > 2 * counters { few } else { 2 * counters }
}

/// Finds a counter's number by the digest of its key: short chains, the newest counter first.
/// Numbers are counted from 1, and 0 ends a chain. The caller has the keys, and compares them.
///
/// Memory in bytes: `12 × counters`, and up to 3 KiB more for fewer than 512.
pub(super) struct Index {
    first: Zeroed<u32>,
    next: Zeroed<u32>,
}

impl Index {
    /// Bytes reserved for so many counters.
    pub(super) const fn memory_bytes(counters: usize) -> usize {
        (chains(counters) + counters) * size_of::<u32>()
    }

    pub(super) fn new(counters: usize, memory: &Memory) -> Result<Self, BuildError> {
        Ok(Self { first: memory.zeroed(chains(counters))?, next: memory.zeroed(counters)? })
    }

    #[inline(always)]
    fn chain(&self, digest: u64) -> usize {
        ((u64::from(digest as u32) * self.first.len() as u64) >> 32) as usize
    }

    /// Asks for the cache line where the search for this digest begins.
    #[inline(always)]
    pub(super) fn prefetch(&self, digest: u64) {
        prefetch(&self.first, self.chain(digest));
    }

    /// The number of the counter of this digest that `holds` the key.
    #[inline(always)]
    pub(super) fn find(&self, digest: u64, holds: impl Fn(usize) -> bool) -> Option<usize> {
        let mut at = self.first[self.chain(digest)];
        while at != 0 {
            let counter = at as usize - 1;
            if holds(counter) {
                return Some(counter);
            }
            at = self.next[counter];
        }
        None
    }

    /// Adds a counter that is in no chain.
    #[inline(always)]
    pub(super) fn insert(&mut self, digest: u64, counter: usize) {
        let chain = self.chain(digest);
        self.next[counter] = self.first[chain];
        self.first[chain] = counter as u32 + 1;
    }

    /// Removes a counter from the chain of its key.
    #[inline(always)]
    pub(super) fn remove(&mut self, digest: u64, counter: usize) {
        let chain = self.chain(digest);
        let (wanted, after) = (counter as u32 + 1, self.next[counter]);
        let mut at = self.first[chain];
        if at == wanted {
            self.first[chain] = after;
            return;
        }
        while at != 0 {
            let before = at as usize - 1;
            at = self.next[before];
            if at == wanted {
                self.next[before] = after;
                return;
            }
        }
    }

    pub(super) fn clear(&mut self) {
        self.first.fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against a plain list, with digests of few chains so that they grow long.
    #[test]
    fn the_index_finds_what_a_list_finds() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut index = Index::new(16, &Memory::unlimited()).expect("it is small");
        let mut list: Vec<Option<u64>> = vec![None; 16];
        for _ in 0..20_000 {
            let counter = random.usize(0..16);
            if let Some(digest) = list[counter].take() {
                index.remove(digest, counter);
            } else {
                let digest = random.u64(..) << 32 | random.u64(0..4) << 28;
                index.insert(digest, counter);
                list[counter] = Some(digest);
            }
            for (counter, digest) in list.iter().enumerate() {
                let found = |digest: u64| index.find(digest, |found| found == counter);
                match digest {
                    Some(digest) => assert_eq!(found(*digest), Some(counter)),
                    None => assert!((0..4).all(|digest| found(digest << 28).is_none())),
                }
            }
        }
    }
}
