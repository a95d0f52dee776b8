//! Weighted updates of a sweep: rows that stand for several packets of a key.
//!
//! Few of these keys have an entry: keys with many packets stay in the accelerator that aggregates
//! them. So most rows of a batch replace each other in the few entries with the minimum count, and
//! only the last key of each entry stays. The index is updated for those keys only: first all keys
//! are looked up, then entries change keys, and finally the index follows. The result is the same
//! as adding the rows one by one.

use std::hint::{black_box, select_unpredictable};

use super::Monitor;
use super::sweep::Sweep;
use crate::batch::BATCH_PACKETS;
use crate::key::FlowKey;

/// Marks a key without an entry.
const NONE: u32 = u32::MAX;

/// Words of 64 bits in the set of digests seen in a batch.
const SEEN: usize = 64;

/// Weighted rows of distinct keys, each with the entry of its key or [`NONE`].
struct LookedUp<'a, K> {
    keys: &'a [K],
    digests: &'a [u64],
    weights: &'a [u32],
    entries: [u32; BATCH_PACKETS],
}

impl<K: FlowKey> Sweep<K> {
    /// Adds the weights of all rows.
    pub(super) fn add_weighted_rows(&mut self, keys: &[K], digests: &[u64], weights: &[u32]) {
        self.index.prefetch_all(digests);
        let mut at = 0;
        loop {
            at += self.add_common_rows(&keys[at..], &digests[at..], &weights[at..]);
            if at == keys.len() {
                break;
            }
            self.add(keys[at], digests[at], weights[at]);
            at += 1;
        }
    }

    /// Adds rows until one needs a branch; returns the number of rows added.
    fn add_common_rows(&mut self, keys: &[K], digests: &[u64], weights: &[u32]) -> usize {
        if !self.sweeps() {
            return 0;
        }
        let mut rows = self.look_up(keys, digests, weights);
        let done =
            self.add_while_sweeping(rows.keys.len(), |sweep, at| sweep.replace_keys(&mut rows, at));
        // Keys that got an entry and still have it; the index may lack room for some.
        let (mut refused, mut count) = ([NONE; BATCH_PACKETS], 0);
        for (i, &entry) in rows.entries[..done].iter().enumerate() {
            if entry != NONE && self.keys[entry as usize] == rows.keys[i] {
                // The entry was in its home line: `replace_keys` requires it.
                self.index.remove(entry as usize, || rows.digests[i]);
                if self.index.has_room(rows.digests[i]) {
                    self.index.insert(rows.digests[i], entry as usize);
                } else {
                    refused[count] = entry;
                    count += 1;
                }
            }
        }
        self.drop_entries(&mut refused[..count]);
        done
    }

    /// Frees entries whose keys found no room in the index, and adds their counts to the untracked
    /// weight. Each count is at least the minimum count, so the untracked weight also covers every
    /// other key without an entry, although the minimum count is 0 while entries are free.
    #[inline]
    fn drop_entries(&mut self, entries: &mut [u32]) {
        entries.sort_unstable();
        for &mut entry in entries.iter_mut().rev() {
            let (entry, last) = (entry as usize, self.len - 1);
            self.index.add_untracked(self.counts[entry].into());
            if entry != last {
                self.index.renumber(last, entry);
                self.keys[entry] = self.keys[last];
                self.counts[entry] = self.counts[last];
                self.errors[entry] = self.errors[last];
            }
            self.len = last;
        }
    }

    /// Looks up the keys of the first rows, up to a key without an entry that occurs a second time.
    fn look_up<'a>(
        &self,
        keys: &'a [K],
        digests: &'a [u64],
        weights: &'a [u32],
    ) -> LookedUp<'a, K> {
        let (mut entries, mut seen) = ([NONE; BATCH_PACKETS], [0_u64; SEEN]);
        let mut len = keys.len().min(BATCH_PACKETS);
        for i in 0..len {
            if let Some(entry) = self.find(keys[i], digests[i]) {
                entries[i] = entry as u32;
                continue;
            }
            let word = &mut seen[(digests[i] >> 6) as usize % SEEN];
            let bit = 1 << (digests[i] % 64);
            if *word & bit != 0 && keys[..i].contains(&keys[i]) {
                len = i;
                break;
            }
            *word |= bit;
        }
        LookedUp { keys: &keys[..len], digests: &digests[..len], weights: &weights[..len], entries }
    }

    /// Adds the rows from `at` on without branches until the sweep must advance; returns the number
    /// of rows added. Sets `entries` to the entry of each key that got one, and to [`NONE`] for
    /// others.
    #[inline(always)]
    #[expect(clippy::needless_bitwise_bool, reason = "avoids a branch")]
    fn replace_keys(&mut self, rows: &mut LookedUp<'_, K>, at: usize) -> usize {
        let most = self.keys.len();
        let (held, counts) = (&mut self.keys[..most], &mut self.counts[..most]);
        let (errors, index) = (&mut self.errors[..most], &self.index);
        let (start, min, mut pending) = (self.start, self.min, self.pending);
        let entries = &mut rows.entries[at..rows.keys.len()];
        let mut done = entries.len();
        let rows = entries.iter_mut().zip(&rows.keys[at..]).zip(&rows.weights[at..]);
        for (i, ((noted, &key), &weight)) in rows.enumerate() {
            let next = start + pending.trailing_zeros() as usize;
            if next >= most {
                done = i;
                break;
            }
            let has = *noted != NONE;
            let entry = select_unpredictable(has, *noted as usize, next);
            // An earlier row may have replaced the key.
            let kept = has & (held[entry] == key);
            let free = !has & (counts[next] == min) & index.is_home(next);
            let (sum, over) = counts[entry].overflowing_add(weight);
            if !black_box((kept | free) & !over) {
                done = i;
                break;
            }
            *noted = select_unpredictable(has, NONE, next as u32);
            held[entry] = key;
            errors[entry] = select_unpredictable(has, errors[entry], counts[entry]);
            counts[entry] = sum;
            pending = select_unpredictable(has, pending, pending & pending.wrapping_sub(1));
        }
        self.pending = pending;
        done
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
mod tests {
    use flowgauge_kernel::{Digester, Isa, Seed};

    use super::super::Entry;
    use super::*;
    use crate::key::Key8;
    use crate::summary::Memory;

    /// Many keys and few, so that hardly any or nearly all have an entry; more entries than a
    /// block, and enough to fill lines of the index; weights that saturate counters.
    #[test]
    fn rows_added_together_equal_rows_added_one_by_one() {
        let digester = Digester::new(Seed::number(1), Isa::best()).for_keys(Key8::BYTES);
        let mut random = fastrand::Rng::with_seed(1);
        let mut full = 0;
        for (entries, keys, heaviest) in [
            (3, 5, 9),
            (128, 100_000, 50),
            (128, 140, 3),
            (128, 1000, u32::MAX / 20),
            (200, 300, 4000),
            (5000, 20_000, 10),
            (20_000, 60_000, 4),
        ] {
            let new = || Sweep::<Key8>::new(entries, digester, &Memory::unlimited()).unwrap();
            let (mut together, mut one_by_one) = (new(), new());
            for _ in 0..400 {
                let rows: Vec<_> = (0..random.usize(1..=BATCH_PACKETS))
                    .map(|_| {
                        let key = random.u32(0..keys).min(random.u32(0..keys));
                        let key = Key8::from_canonical(&key.to_be_bytes()).unwrap();
                        (key, key.digest(&digester), random.u32(1..=heaviest))
                    })
                    .collect();
                let keys: Vec<_> = rows.iter().map(|sum| sum.0).collect();
                let digests: Vec<_> = rows.iter().map(|sum| sum.1).collect();
                let weights: Vec<_> = rows.iter().map(|sum| sum.2).collect();
                together.add_weighted(&keys, &digests, &weights);
                for (key, digest, weight) in &rows {
                    one_by_one.invalidate();
                    one_by_one.add(*key, *digest, *weight);
                }
                assert_eq!(together.saturated(), one_by_one.saturated());
                assert_eq!(together.len, one_by_one.len);
                for (ours, theirs) in together.entries().zip(one_by_one.entries()) {
                    let parts = |entry: &Entry<Key8, u32>| {
                        (entry.key.canonical(4).to_vec(), entry.count, entry.error)
                    };
                    assert_eq!(parts(&ours), parts(&theirs));
                    assert!(together.entry(ours.key).is_some());
                }
                assert_eq!(together.min_count(), one_by_one.min_count());
                full += usize::from(together.saturated() > 0);
            }
        }
        assert!(full > 0 && full < 400);
    }

    /// More colliding keys than their lines have room for: the untracked weight is in the bounds of
    /// all keys, and every key with an entry is found.
    #[test]
    fn rows_that_collide_are_untracked() {
        let digester = Digester::new(Seed::number(1), Isa::best()).for_keys(4);
        let mut sweep = Sweep::<Key8>::new(5000, digester, &Memory::unlimited()).unwrap();
        let key = |number: u32| Key8::from_canonical(&number.to_be_bytes()).unwrap();
        let (mut truth, mut first) = (vec![0_u64; 6000], 0);
        for round in 0..200 {
            let numbers: Vec<u32> = (first..first + 256).map(|number| number % 6000).collect();
            first += 256;
            let keys: Vec<_> = numbers.iter().map(|number| key(*number)).collect();
            // From round 20 on, all keys have the same line and tag.
            let digests: Vec<_> =
                keys.iter().map(|key| if round < 20 { key.digest(&digester) } else { 0 }).collect();
            let weights = [round + 1; 256];
            if round == 20 {
                // Earlier keys had other digests: start over with full entries.
                truth.fill(0);
                sweep.clear();
                for entry in 0..5000 {
                    let key = key(1 << 20 | entry);
                    sweep.append(Entry { key, count: 1, error: 0 }, key.digest(&digester));
                }
            }
            sweep.add_weighted(&keys, &digests, &weights);
            for number in numbers {
                truth[number as usize] += u64::from(round) + 1;
            }
        }
        assert!(sweep.index.untracked() > 0);
        let colliding = sweep.entries().filter(|entry| entry.key.canonical(4)[0] == 0);
        for entry in colliding.filter(|entry| entry.key.canonical(4)[1] < 16) {
            let found = sweep.find(entry.key, 0).unwrap();
            assert!(sweep.keys[found] == entry.key);
            let number = u32::from_be_bytes(entry.key.canonical(4).try_into().unwrap());
            let (low, high) = (entry.count - entry.error, sweep.upper_bound(entry.count.into()));
            let truth = truth[number as usize];
            assert!(u64::from(low) <= truth && truth as f64 <= high, "{number}");
        }
        let most = sweep.upper_bound(sweep.min_count().into());
        assert!(truth.iter().all(|truth| *truth as f64 <= most), "{most}");
    }
}
