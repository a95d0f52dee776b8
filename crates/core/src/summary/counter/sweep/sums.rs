//! Sums of packets into a sweep.
//!
//! Hardly a sum's key has an entry: had it many packets, it would not have been summed up for so
//! long. So most of a batch takes the few least entries over, one after the other, and only whoever
//! comes last stays. Here the index hears of those only: first all keys are looked up, then entries
//! change hands, and at last the index follows. What is left is what one sum after the other leaves.

use std::hint::{black_box, select_unpredictable};

use super::super::monitor::Monitor;
use super::Sweep;
use crate::batch::BATCH_PACKETS;
use crate::key::FlowKey;

/// The entry of who has none.
const NONE: u32 = u32::MAX;

/// Words of the set of digests, of 64 bits each.
const SEEN: usize = 64;

/// Sums of different keys, each with the entry that its key has, or [`NONE`].
struct LookedUp<'a, K> {
    keys: &'a [K],
    digests: &'a [u64],
    weights: &'a [u32],
    entries: [u32; BATCH_PACKETS],
}

impl<K: FlowKey> Sweep<K> {
    /// Adds the weights of these sums.
    pub(super) fn add_summed(&mut self, keys: &[K], digests: &[u64], weights: &[u32]) {
        self.index.prefetch_all(digests);
        let mut at = 0;
        loop {
            at += self.add_together(&keys[at..], &digests[at..], &weights[at..]);
            if at == keys.len() {
                break;
            }
            self.add(keys[at], digests[at], weights[at]);
            at += 1;
        }
    }

    /// Adds sums while they are usual; returns how many.
    fn add_together(&mut self, keys: &[K], digests: &[u64], weights: &[u32]) -> usize {
        if !self.sweeps() {
            return 0;
        }
        let mut sums = self.look_up(keys, digests, weights);
        let done = self.while_swept(sums.keys.len(), |sweep, at| sweep.hand_over(&mut sums, at));
        // Keys that took an entry over and still have it; some may find no room in the index.
        let (mut refused, mut count) = ([NONE; BATCH_PACKETS], 0);
        for (i, &entry) in sums.entries[..done].iter().enumerate() {
            if entry != NONE && self.keys[entry as usize] == sums.keys[i] {
                // Its last key went over no line, or it would not have been handed over.
                self.index.remove(entry as usize, || sums.digests[i]);
                if self.index.has_room(sums.digests[i]) {
                    self.index.insert(sums.digests[i], entry as usize);
                } else {
                    refused[count] = entry;
                    count += 1;
                }
            }
        }
        self.drop_entries(&mut refused[..count]);
        done
    }

    /// Gives up entries whose keys the index refused. What they count is refused: at least the least
    /// count, so that it covers what any other key without an entry may weigh, too, now that there are
    /// entries that nothing is in.
    #[inline]
    fn drop_entries(&mut self, entries: &mut [u32]) {
        entries.sort_unstable();
        for &mut entry in entries.iter_mut().rev() {
            let (entry, last) = (entry as usize, self.taken - 1);
            self.index.refuse(self.counts[entry].into());
            if entry != last {
                self.index.renumber(last, entry);
                self.keys[entry] = self.keys[last];
                self.counts[entry] = self.counts[last];
                self.errors[entry] = self.errors[last];
            }
            self.taken = last;
        }
    }

    /// Looks the first sums up, up to one whose key has no entry and is there a second time.
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

    /// Adds the sums from this one on in the steps of the usual one, for as long as the sweep need
    /// not go on; returns of how many. Those that took an entry over have it noted down, the others
    /// [`NONE`].
    #[inline(always)]
    #[expect(clippy::needless_bitwise_bool, reason = "a branch is what this is to avoid")]
    fn hand_over(&mut self, sums: &mut LookedUp<'_, K>, at: usize) -> usize {
        let most = self.keys.len();
        let (held, counts) = (&mut self.keys[..most], &mut self.counts[..most]);
        let (errors, index) = (&mut self.errors[..most], &self.index);
        let (start, least, mut pending) = (self.start, self.least, self.pending);
        let entries = &mut sums.entries[at..sums.keys.len()];
        let mut done = entries.len();
        let rows = entries.iter_mut().zip(&sums.keys[at..]).zip(&sums.weights[at..]);
        for (i, ((noted, &key), &weight)) in rows.enumerate() {
            let next = start + pending.trailing_zeros() as usize;
            if next >= most {
                done = i;
                break;
            }
            let has = *noted != NONE;
            let entry = select_unpredictable(has, *noted as usize, next);
            // Its key may have lost the entry in the meantime.
            let kept = has & (held[entry] == key);
            let free = !has & (counts[next] == least) & index.is_home(next);
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
    use crate::key::Key4;
    use crate::summary::Memory;

    /// Many keys and few, so that hardly any and nearly all have an entry; entries for more than a
    /// block, and so many that lines of the index are full; weights that fill a counter.
    #[test]
    fn sums_together_are_sums_one_by_one() {
        let digester = Digester::new(Seed::number(1), Isa::best()).for_keys(Key4::BYTES);
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
            let new = || Sweep::<Key4>::new(entries, digester, &Memory::unlimited()).unwrap();
            let (mut together, mut one_by_one) = (new(), new());
            for _ in 0..400 {
                let sums: Vec<_> = (0..random.usize(1..=BATCH_PACKETS))
                    .map(|_| {
                        let key = random.u32(0..keys).min(random.u32(0..keys));
                        let key = Key4::from_canonical(&key.to_be_bytes()).unwrap();
                        (key, key.digest(&digester), random.u32(1..=heaviest))
                    })
                    .collect();
                let keys: Vec<_> = sums.iter().map(|sum| sum.0).collect();
                let digests: Vec<_> = sums.iter().map(|sum| sum.1).collect();
                let weights: Vec<_> = sums.iter().map(|sum| sum.2).collect();
                together.add_sums(&keys, &digests, &weights);
                for (key, digest, weight) in &sums {
                    one_by_one.change();
                    one_by_one.add(*key, *digest, *weight);
                }
                assert_eq!(together.excess(), one_by_one.excess());
                assert_eq!(together.taken, one_by_one.taken);
                for (ours, theirs) in together.entries().zip(one_by_one.entries()) {
                    let parts = |entry: &Entry<Key4, u32>| {
                        (entry.key.canonical(4).to_vec(), entry.count, entry.error)
                    };
                    assert_eq!(parts(&ours), parts(&theirs));
                    assert!(together.entry(ours.key).is_some());
                }
                assert_eq!(together.unheld(), one_by_one.unheld());
                full += usize::from(together.excess() > 0);
            }
        }
        assert!(full > 0 && full < 400);
    }

    /// Sums whose keys collide, as many as fill all of their lines and more: what the index refuses is in
    /// the bounds of all keys, and each key that is held is found.
    #[test]
    fn sums_that_collide_are_refused() {
        let digester = Digester::new(Seed::number(1), Isa::best()).for_keys(4);
        let mut sweep = Sweep::<Key4>::new(5000, digester, &Memory::unlimited()).unwrap();
        let key = |number: u32| Key4::from_canonical(&number.to_be_bytes()).unwrap();
        let (mut truth, mut first) = (vec![0_u64; 6000], 0);
        for round in 0..200 {
            let numbers: Vec<u32> = (first..first + 256).map(|number| number % 6000).collect();
            first += 256;
            let keys: Vec<_> = numbers.iter().map(|number| key(*number)).collect();
            // From a full sweep on, all share a line and a tag.
            let digests: Vec<_> =
                keys.iter().map(|key| if round < 20 { key.digest(&digester) } else { 0 }).collect();
            let weights = [round + 1; 256];
            if round == 20 {
                // The keys so far have other digests: they are others.
                truth.fill(0);
                sweep.clear();
                for entry in 0..5000 {
                    let key = key(1 << 20 | entry);
                    sweep.append(Entry { key, count: 1, error: 0 }, key.digest(&digester));
                }
            }
            sweep.add_sums(&keys, &digests, &weights);
            for number in numbers {
                truth[number as usize] += u64::from(round) + 1;
            }
        }
        assert!(sweep.index.refused() > 0);
        let colliding = sweep.entries().filter(|entry| entry.key.canonical(4)[0] == 0);
        for entry in colliding.filter(|entry| entry.key.canonical(4)[1] < 16) {
            let found = sweep.find(entry.key, 0).unwrap();
            assert!(sweep.keys[found] == entry.key);
            let number = u32::from_be_bytes(entry.key.canonical(4).try_into().unwrap());
            let (low, high) = (entry.count - entry.error, sweep.highest(entry.count.into()));
            let truth = truth[number as usize];
            assert!(u64::from(low) <= truth && truth as f64 <= high, "{number}");
        }
        let most = sweep.highest(sweep.unheld().into());
        assert!(truth.iter().all(|truth| *truth as f64 <= most), "{most}");
    }
}
