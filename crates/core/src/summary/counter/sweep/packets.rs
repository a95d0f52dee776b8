//! Packets into a sweep.
//!
//! Which packets have an entry cannot be foreseen, and a branch mispredicted costs as much as all
//! else. So the usual packet, whether its key has an entry or takes one over, takes the same steps,
//! where selections decide what is written; what is rare ends the loop.

use std::hint::{black_box, select_unpredictable};

use super::super::index::Index;
use super::super::monitor::Monitor;
use super::super::steps::Steps;
use super::Sweep;
use crate::key::FlowKey;

impl<K: FlowKey> Sweep<K> {
    /// Adds the weights of these packets in the steps of the usual one, for as long as the sweep need
    /// not go on; returns of how many.
    #[inline(always)]
    #[expect(clippy::needless_bitwise_bool, reason = "a branch is what this is to avoid")]
    fn add_swept<const WIDE: bool>(
        &mut self,
        keys: &[K],
        digests: &[u64],
        weights: &[u32],
    ) -> usize {
        let most = self.keys.len();
        let (held, counts) = (&mut self.keys[..most], &mut self.counts[..most]);
        let (errors, mut lines) = (&mut self.errors[..most], self.index.lines::<WIDE>());
        let (start, least, mut pending) = (self.start, self.least, self.pending);
        let mut done = keys.len();
        for (i, ((&key, &digest), &weight)) in keys.iter().zip(digests).zip(weights).enumerate() {
            let look = lines.look(digest);
            let first = lines.first(&look);
            let next = start + pending.trailing_zeros() as usize;
            if first >= most || next >= most {
                done = i;
                break;
            }
            let has = (held[first] == key) & look.is_there();
            let free = (counts[next] == least) & lines.can_take(next) & look.is_all();
            let entry = select_unpredictable(has, first, next);
            let (sum, over) = counts[entry].overflowing_add(weight);
            // Hidden from the compiler, which would make a branch of `has`.
            if !black_box((has | free) & !over) {
                done = i;
                break;
            }
            lines.take(entry, has);
            lines.give(&look, entry, has);
            held[entry] = key;
            errors[entry] = select_unpredictable(has, errors[entry], counts[entry]);
            counts[entry] = sum;
            pending = select_unpredictable(has, pending, pending & pending.wrapping_sub(1));
        }
        self.pending = pending;
        done
    }
}

impl<K: FlowKey> Steps<K, u32> for Sweep<K> {
    #[inline(always)]
    fn index(&self) -> &Index {
        &self.index
    }

    #[inline(always)]
    fn add_usual<const WIDE: bool>(
        &mut self,
        keys: &[K],
        digests: &[u64],
        weights: &[u32],
    ) -> usize {
        self.while_swept(keys.len(), |sweep, at| {
            sweep.add_swept::<WIDE>(&keys[at..], &digests[at..], &weights[at..])
        })
    }

    #[inline(always)]
    fn add_one(&mut self, key: K, digest: u64, weight: u32) {
        self.add(key, digest, weight);
    }
}
