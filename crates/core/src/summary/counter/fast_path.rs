//! The keys of SketchVisor's fast path: Misra-Gries with three counters a key.
//!
//! Paper: Huang et al., "SketchVisor: robust network measurement for software packet processing"
//! (SIGCOMM 2017), §4. Of a key that is held, e bounds what it weighed before it came in, r is what is
//! left of its weight since then, and d what was taken off it: the key weighs from r + d to r + d + e.
//! A key that finds no room has a number taken off every key, itself included, and those with nothing
//! left make room. The number is chosen so that several keys leave, which makes this rare.
//!
//! What was taken off a key is what was taken off every key since it came in: with E, the sum of all
//! that was ever taken off, d = E − e. So only e and r + d are kept for a key.

use std::hint::{black_box, select_unpredictable};

use bytemuck::Zeroable;
use flowgauge_kernel::{Digester, Zeroed};

use super::super::codec::{DecodeError, Reader, Writer};
use super::super::{BuildError, Counter, Estimate, Memory};
use super::index::Index;
use super::steps::Steps;
use crate::key::FlowKey;
use crate::sorting::order;

/// What the paper sets δ to, the share of keys that should leave at once, and here do.
const LEAVING: f64 = 0.05;

/// A key with the bound of its weight before it came in, and its weight since then.
#[derive(Clone, Copy, Debug, Zeroable)]
#[repr(C)]
struct Held<K> {
    key: K,
    /// e.
    missed: u64,
    /// r + d.
    counted: u64,
}

impl<K> Held<K> {
    /// r, after `taken` was taken off in all.
    fn left(&self, taken: u64) -> u64 {
        self.counted.saturating_add(self.missed).saturating_sub(taken)
    }
}

/// The keys held, their number fixed.
///
/// Cost: a line of the index and a key a packet; now and then a walk through all keys. Memory in
/// bytes: see [`Self::bytes`].
pub(super) struct FastPath<K> {
    digester: Digester,
    held: Zeroed<Held<K>>,
    index: Index,
    len: usize,
    /// E.
    taken: u64,
}

impl<K: FlowKey> FastPath<K> {
    /// Bytes reserved for so many keys.
    pub(super) const fn bytes(keys: usize) -> usize {
        keys * size_of::<Held<K>>() + Index::memory_bytes(keys)
    }

    pub(super) fn new(
        keys: usize,
        digester: Digester,
        memory: &Memory,
    ) -> Result<Self, BuildError> {
        let (held, index) = (memory.zeroed(keys)?, Index::new(keys, memory)?);
        Ok(Self { digester, held, index, len: 0, taken: 0 })
    }

    /// Keys at most.
    pub(super) fn most(&self) -> usize {
        self.held.len()
    }

    pub(super) fn digester(&self) -> &Digester {
        &self.digester
    }

    #[inline(always)]
    fn find(&self, key: K, digest: u64) -> Option<usize> {
        let held = &*self.held;
        self.index.find(digest, |at| held[at].key == key)
    }

    #[inline(always)]
    pub(super) fn add(&mut self, key: K, digest: u64, weight: u64) {
        match self.find(key, digest) {
            Some(at) => self.held[at].counted = self.held[at].counted.saturating_add(weight),
            None => self.come_in(key, digest, weight),
        }
    }

    #[cold]
    fn come_in(&mut self, key: K, digest: u64, weight: u64) {
        if !self.index.has_room(digest) {
            return self.index.refuse(weight);
        }
        let missed = self.taken;
        if self.len == self.held.len() {
            let off = self.enough(self.threshold(weight));
            self.take_off(off);
            if weight <= off {
                return;
            }
        }
        self.append(Held { key, missed, counted: weight }, digest);
    }

    fn append(&mut self, held: Held<K>, digest: u64) {
        self.index.insert(digest, self.len);
        self.held[self.len] = held;
        self.len += 1;
    }

    /// What to take off: from the two largest weights and the least, the one that comes next to
    /// included, as if the weights followed a power law.
    fn threshold(&self, weight: u64) -> u64 {
        let (mut largest, mut second, mut least) = (weight, 0, weight);
        for left in self.lefts() {
            second = second.max(left.min(largest));
            largest = largest.max(left);
            least = least.min(left);
        }
        if second < 2 {
            return least;
        }
        let ratio = (largest - 1) as f64 / (second - 1) as f64;
        let exponent = -(-LEAVING).ln_1p() / std::f64::consts::LN_2;
        // Not less than the least, so that a key leaves or the one at hand stays out.
        ((least as f64 * ratio.powf(exponent)) as u64).max(least)
    }

    /// `off`, or more where fewer than the share that should leave would, whatever their weights
    /// follow: so there is one walk for that many new keys at most. The others, nineteen of twenty,
    /// lose all of it: all that is ever taken off is at most 1/0.95 of the mean weight of a counter.
    fn enough(&self, off: u64) -> u64 {
        let leaving = (self.len as f64 * LEAVING) as usize;
        let gone = self.lefts().filter(|left| *left <= off).count();
        match leaving.checked_sub(1) {
            Some(last) if gone < leaving => self.ranked(last),
            _ => off,
        }
    }

    /// What is left of each key.
    fn lefts(&self) -> impl Iterator<Item = u64> {
        self.held[..self.len].iter().map(|held| held.left(self.taken))
    }

    /// What is left of the key of this rank, the least being 0: byte by byte, without memory for them.
    fn ranked(&self, mut rank: usize) -> u64 {
        let (mut found, bits) = (0, u64::BITS - self.lefts().max().unwrap_or(0).leading_zeros());
        for shift in (0..bits).step_by(8).rev() {
            let mut counts = [0; 256];
            for left in self.lefts().filter(|left| left >> shift >> 8 == found) {
                counts[(left >> shift) as usize % 256] += 1;
            }
            let mut byte = 0;
            while byte < 255 && rank >= counts[byte] {
                rank -= counts[byte];
                byte += 1;
            }
            found = found << 8 | byte as u64;
        }
        found
    }

    /// Takes `off` off every key; those with nothing left leave.
    fn take_off(&mut self, off: u64) {
        self.taken = self.taken.saturating_add(off);
        let mut stay = 0;
        for at in 0..self.len {
            let held = self.held[at];
            if held.left(self.taken) > 0 {
                self.held[stay] = held;
                self.index.renumber(at, stay);
                stay += 1;
            } else {
                self.index.remove(at, || held.key.digest(&self.digester));
            }
        }
        self.len = stay;
    }

    fn bounds(&self, held: &Held<K>) -> Estimate {
        let most = held.counted.saturating_add(held.missed).saturating_add(self.refused());
        let counted = held.counted as f64;
        Estimate::between(counted, counted, most as f64)
    }

    /// The weight of the packets whose keys found no room in the index, which is in all bounds.
    pub(super) fn refused(&self) -> u64 {
        self.index.refused()
    }

    /// From r + d to r + d + e; a key that is not held weighs E at most; and what was refused.
    pub(super) fn weight(&self, key: K) -> Estimate {
        match self.find(key, key.digest(&self.digester)) {
            Some(at) => self.bounds(&self.held[at]),
            None => self.unheld(),
        }
    }

    /// The weight of a key that is not held.
    pub(super) fn unheld(&self) -> Estimate {
        Estimate::between(0.0, 0.0, self.taken.saturating_add(self.refused()) as f64)
    }

    /// The keys held, with their weights.
    pub(super) fn iter(&self) -> impl Iterator<Item = (K, Estimate)> {
        self.held[..self.len].iter().map(|held| (held.key, self.bounds(held)))
    }

    /// Adds what is left of each key, and takes the most that does not fit off all of them (Agarwal
    /// et al., "Mergeable summaries", PODS 2012, §3). A key that one side lacks may weigh E there.
    pub(super) fn merge(&mut self, other: &Self) {
        let mut sum = Vec::with_capacity(self.len + other.len);
        for held in &self.held[..self.len] {
            let there = other.find(held.key, held.key.digest(&self.digester));
            let (missed, counted) = there
                .map_or((other.taken, 0), |at| (other.held[at].missed, other.held[at].counted));
            sum.push(Held {
                key: held.key,
                missed: held.missed.saturating_add(missed),
                counted: held.counted.saturating_add(counted),
            });
        }
        for held in &other.held[..other.len] {
            if self.find(held.key, held.key.digest(&self.digester)).is_none() {
                sum.push(Held { missed: held.missed.saturating_add(self.taken), ..*held });
            }
        }
        let taken = self.taken.saturating_add(other.taken);
        let order = order(sum.len(), &|a, b| sum[b].left(taken).cmp(&sum[a].left(taken)));
        let off = order.get(self.most()).map_or(0, |at| sum[*at as usize].left(taken));
        let refused = self.refused().saturating_add(other.refused());
        self.clear();
        self.taken = taken.saturating_add(off);
        self.index.refuse(refused);
        for held in order.into_iter().map(|at| sum[at as usize]) {
            let digest = held.key.digest(&self.digester);
            if held.left(self.taken) == 0 || self.len == self.held.len() {
                continue;
            }
            if self.index.has_room(digest) {
                self.append(held, digest);
            } else {
                self.index.refuse(held.counted.saturating_add(held.missed));
            }
        }
    }

    pub(super) fn save(&self, out: &mut Writer) {
        out.numbers(&[self.taken, self.refused()]);
        out.number(self.len as u64);
        out.sorted(out.key_bytes() + Self::STORED_BYTES, |out| {
            for held in &self.held[..self.len] {
                out.key(held.key);
                out.numbers(&[held.missed, held.counted]);
            }
        });
    }

    /// Bytes of the stored form of a key's weights.
    const STORED_BYTES: usize = 2 * size_of::<u64>();

    pub(super) fn load(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.taken = from.number("taken off in all")?;
        self.index.refuse(from.number("refused weight")?);
        for _ in 0..from.count("number of keys", self.held.len())? {
            let key = from.key("key")?;
            let (missed, counted) = (from.number("weight before")?, from.number("weight")?);
            let held: Held<K> = Held { key, missed, counted };
            let digest = key.digest(&self.digester);
            if self.find(key, digest).is_some()
                || !self.index.has_room(digest)
                || missed > self.taken
                || counted < self.taken - missed
            {
                let reason =
                    "it occurs twice, collides with others, or weighs less than was subtracted";
                let width = from.key_bytes() + Self::STORED_BYTES;
                return Err(from.invalid("key", width, reason));
            }
            self.append(held, digest);
        }
        Ok(())
    }

    pub(super) fn clear(&mut self) {
        self.index.clear();
        self.len = 0;
        self.taken = 0;
    }

    pub(super) fn memory_bytes(&self) -> usize {
        Self::bytes(self.held.len())
    }
}

impl<K: FlowKey, C: Counter> Steps<K, C> for FastPath<K> {
    #[inline(always)]
    fn index(&self) -> &Index {
        &self.index
    }

    /// Packets whose keys are held or find room. Which of both cannot be foreseen, so that both take
    /// the same steps.
    #[inline(always)]
    fn add_usual<const WIDE: bool>(&mut self, keys: &[K], digests: &[u64], weights: &[C]) -> usize {
        let (most, taken, mut len) = (self.held.len(), self.taken, self.len);
        let (held, mut lines) = (&mut self.held[..most], self.index.lines::<WIDE>());
        let mut done = keys.len();
        for (i, ((&key, &digest), &weight)) in keys.iter().zip(digests).zip(weights).enumerate() {
            let look = lines.look(digest);
            let first = lines.first(&look);
            let has = (held[first].key == key) & look.is_there();
            let room = (len < most) & look.is_all();
            // Hidden from the compiler, which would make a branch of `has`.
            if !black_box(has | room) {
                done = i;
                break;
            }
            let at = select_unpredictable(has, first, len);
            lines.give(&look, at, has);
            let Held { missed, counted, .. } = held[at];
            held[at] = Held {
                key,
                missed: select_unpredictable(has, missed, taken),
                counted: select_unpredictable(has, counted, 0).saturating_add(weight.get()),
            };
            len += usize::from(!has);
        }
        self.len = len;
        done
    }

    #[inline(always)]
    fn add_one(&mut self, key: K, digest: u64, weight: C) {
        self.add(key, digest, weight.get());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use flowgauge_kernel::{Isa, Seed};

    use super::*;
    use crate::key::Key4;

    /// The two largest weights are equal, so that the power law has no exponent, and others come one
    /// above the least: a walk for each would cost as many steps as there are keys.
    #[test]
    #[expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
    fn walks_are_few_whatever_the_weights() {
        let digester = Digester::new(Seed::number(1), Isa::best()).for_keys(Key4::BYTES);
        for (most, walks_at_most) in [(1000, 10_000 / 50 + 1), (20, 10_000), (3, 10_000)] {
            let mut path = FastPath::<Key4>::new(most, digester, &Memory::unlimited()).unwrap();
            let mut truths = BTreeMap::new();
            let (mut walks, mut total) = (0, 0);
            for number in 0..most as u32 + 10_000 {
                let key = Key4::from_canonical(&number.to_be_bytes()).unwrap();
                let least = path.lefts().min().unwrap_or(0);
                let weight = if number < 2 { 1 << 40 } else { least + 1 + u64::from(number % 7) };
                let before = path.taken;
                path.add(key, key.digest(&digester), weight);
                walks += usize::from(path.taken > before);
                truths.insert(number, (key, weight));
                total += weight;
            }
            assert!(walks <= walks_at_most, "{walks} walks of {most} keys");
            assert!(path.taken as f64 <= total as f64 / (0.95 * most as f64), "{most}");
            for (key, weight) in truths.into_values() {
                let Estimate { low, high, .. } = path.weight(key);
                assert!(low <= weight as f64 && weight as f64 <= high);
            }
        }
    }

    #[test]
    #[expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
    fn weights_are_ranked() {
        let digester = Digester::new(Seed::number(1), Isa::best()).for_keys(Key4::BYTES);
        let mut path = FastPath::<Key4>::new(300, digester, &Memory::unlimited()).unwrap();
        let mut random = fastrand::Rng::with_seed(1);
        let mut weights: Vec<u64> = (0..300).map(|_| random.u64(..) >> random.u32(0..64)).collect();
        for (number, weight) in (0..300u32).zip(&weights) {
            let key = Key4::from_canonical(&number.to_be_bytes()).unwrap();
            path.add(key, key.digest(&digester), *weight);
        }
        weights.sort_unstable();
        assert!(weights.iter().enumerate().all(|(rank, weight)| path.ranked(rank) == *weight));
    }
}
