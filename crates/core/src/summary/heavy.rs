//! The keys that became heavy while the epoch runs, for summaries that store no keys.
//!
//! A key joins when its estimate passes the threshold's share of the weight so far. Early in an
//! epoch that is nearly every key, so a full set first drops the members that fell behind.

use bytemuck::Zeroable;
use flowgauge_kernel::{Digester, Zeroed};

use super::codec::{DecodeError, Reader, Writer};
use super::share::Share;
use super::{BuildError, Options};
use crate::key::FlowKey;
use crate::terms::Threshold;

/// Places that a key may be away from its home, in a set that is half full at most: of keys that do
/// not collide on purpose fewer than one in 10⁹ would be further away.
const MOST_PROBES: usize = 128;

/// Heavy keys that are kept, unless asked otherwise or the memory is small.
const MOST_CANDIDATES: usize = 1 << 14;

/// The parameter `candidates`: none, a power of two, or what a quarter of the memory holds of
/// candidates of `bytes` bytes.
pub(crate) fn candidates(options: &Options, bytes: usize) -> Result<usize, BuildError> {
    if options.parameters.get("candidates") == Some("0") {
        return Ok(0);
    }
    let memory_bytes = (options.memory_bytes / 4).min(MOST_CANDIDATES * bytes);
    options.parameters.power_of_two("candidates", memory_bytes, bytes)
}

/// A key with its share.
#[derive(Clone, Copy, Zeroable)]
#[repr(C)]
struct Member<K, S> {
    key: K,
    share: S,
}

/// A set of keys of bounded size, each with a share of what it is heavy by.
///
/// A key's place is found by the low bits of its digest, as its column of an array is: those that
/// share a column are found together.
///
/// Memory in bytes, with `member` for `size_of::<K>() + size_of::<S>()`, rounded up to the
/// alignment: `2 × most × (member + 4) + most × member`.
pub(crate) struct HeavyKeys<K, S = ()> {
    /// Half full at most; empty where the tag is 0.
    members: Zeroed<Member<K, S>>,
    tags: Zeroed<u32>,
    /// Where [`Self::prune`] puts the members that stay.
    kept: Zeroed<Member<K, S>>,
    len: usize,
    /// The set is not pruned again before the threshold has grown to this.
    prune_at: f64,
    overflow: u64,
    /// As [`Options::apart`].
    apart: bool,
}

impl<K: FlowKey, S: Share> HeavyKeys<K, S> {
    /// Bytes reserved for a set of `most` keys.
    pub(crate) const fn memory_bytes(most: usize) -> usize {
        2 * most * (size_of::<Member<K, S>>() + size_of::<u32>()) + most * size_of::<Member<K, S>>()
    }

    /// Reserves a set of `most` keys, a power of two or 0.
    pub(crate) fn new(most: usize, options: &Options) -> Result<Self, BuildError> {
        let memory = &options.memory;
        Ok(Self {
            members: memory.zeroed(2 * most)?,
            tags: memory.zeroed(2 * most)?,
            kept: memory.zeroed(most)?,
            len: 0,
            prune_at: 0.0,
            overflow: 0,
            apart: options.apart,
        })
    }

    /// Keys that there is room for.
    pub(crate) fn most(&self) -> usize {
        self.kept.len()
    }

    /// Where `key` is, or else the empty place where it would go, if there is one near enough.
    #[inline(always)]
    fn find(&self, key: &K, digest: u64) -> Result<usize, Option<usize>> {
        let (members, tags) = (&*self.members, &*self.tags);
        let mask = tags.len() - 1;
        let tag = Self::tag(digest);
        for step in 0..MOST_PROBES {
            let place = (digest as usize).wrapping_add(step) & mask;
            if tags[place] == tag && members[place].key == *key {
                return Ok(place);
            }
            if tags[place] == 0 {
                return Err(Some(place));
            }
        }
        Err(None)
    }

    /// The high half of the digest: no bit of it chooses a place, nor a column of the first row.
    #[inline(always)]
    fn tag(digest: u64) -> u32 {
        (digest >> 32) as u32 | 1
    }

    /// Whether `key` is there, as nearly every heavy packet's is.
    #[inline(always)]
    pub(crate) fn has(&self, key: &K, digest: u64) -> bool {
        self.find(key, digest).is_ok()
    }

    /// The share of `key`, if it is there.
    #[inline(always)]
    pub(crate) fn share(&mut self, key: &K, digest: u64) -> Option<&mut S> {
        let place = self.find(key, digest).ok()?;
        Some(&mut self.members[place].share)
    }

    /// The keys that share a column with the key of this digest, itself among them, in an array of
    /// `columns` columns, a power of two, that the low bits of a digest name.
    pub(crate) fn of_column(
        &self,
        digest: u64,
        columns: usize,
        digester: &Digester,
    ) -> impl Iterator<Item = (K, &S)> {
        let (places, column) = (self.tags.len(), digest as usize & (columns - 1));
        // Of few columns each has many first places.
        let step = columns.min(places).max(1);
        let first = (column & (step - 1)..places).step_by(step);
        first.flat_map(move |first| {
            let run = (first..first + places.min(MOST_PROBES)).map(move |at| at & (places - 1));
            let run = run.take_while(|place| self.tags[*place] != 0);
            run.map(|place| &self.members[place]).filter_map(move |member| {
                let digest = member.key.digest(digester) as usize;
                let same = digest & (columns - 1) == column && digest & (places - 1) == first;
                same.then_some((member.key, &member.share))
            })
        })
    }

    /// Puts a member where its key is or would go, and returns whether there is such a place; does
    /// not count it.
    fn put(&mut self, member: Member<K, S>, digest: u64) -> bool {
        let (Ok(place) | Err(Some(place))) = self.find(&member.key, digest) else { return false };
        self.members[place] = member;
        self.tags[place] = Self::tag(digest);
        true
    }

    /// Keys that find room without anything being dropped.
    #[inline(always)]
    pub(crate) fn room(&self) -> usize {
        self.kept.len() - self.len
    }

    /// Whether nothing is dropped for keys that join at thresholds up to this one, however many they are.
    pub(crate) fn drops_nothing(&self, threshold: f64) -> bool {
        threshold < self.prune_at
    }

    /// Adds `key`, which must not be there, with its share. A full set is pruned of the keys whose
    /// `estimate` does not pass `threshold` any more; where that frees nothing, or where too many keys
    /// collide with this one, the overflow is counted.
    #[cold]
    #[inline(never)]
    pub(crate) fn join(
        &mut self,
        (key, digest, share): (K, u64, S),
        threshold: f64,
        digester: &Digester,
        estimate: &dyn Fn(&Self, K) -> f64,
    ) {
        if self.len == self.kept.len() {
            if threshold >= self.prune_at {
                self.prune(threshold, digester, estimate);
            }
            if self.len == self.kept.len() {
                self.overflow = self.overflow.saturating_add(1);
                return;
            }
        }
        self.count(Member { key, share }, digest);
    }

    /// Puts a new member into a set that is not full, and counts it, or else the overflow.
    fn count(&mut self, member: Member<K, S>, digest: u64) {
        if self.put(member, digest) {
            self.len += 1;
        } else {
            self.overflow = self.overflow.saturating_add(1);
        }
    }

    fn prune(&mut self, threshold: f64, digester: &Digester, estimate: &dyn Fn(&Self, K) -> f64) {
        self.retain(digester, &|set, key| estimate(set, key) > threshold);
        // Pruning costs the set's size: a share of it must be due again. A threshold of 0 drops
        // nobody, however often.
        self.prune_at = (threshold * 1.125).max(f64::MIN_POSITIVE);
    }

    /// Keeps the keys that stay, as it is seen before any of them goes.
    fn retain(&mut self, digester: &Digester, stays: &dyn Fn(&Self, K) -> bool) {
        let mut kept = 0;
        for place in 0..self.tags.len() {
            let member = self.members[place];
            if self.tags[place] != 0 && stays(self, member.key) {
                self.kept[kept] = member;
                kept += 1;
            }
        }
        self.tags.fill(0);
        self.len = 0;
        for index in 0..kept {
            let member = self.kept[index];
            self.count(member, member.key.digest(digester));
        }
    }

    fn members(&self) -> impl Iterator<Item = &Member<K, S>> {
        let members = self.members.iter().zip(self.tags.iter());
        members.filter(|(_, tag)| **tag != 0).map(|(member, _)| member)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = K> {
        self.members().map(|member| member.key)
    }

    pub(crate) fn shares_mut(&mut self) -> impl Iterator<Item = &mut S> {
        let members = self.members.iter_mut().zip(self.tags.iter());
        members.filter(|(_, tag)| **tag != 0).map(|(member, _)| &mut member.share)
    }

    /// Times that a heavy key found no room.
    pub(crate) fn overflow(&self) -> u64 {
        self.overflow
    }

    pub(crate) fn clear(&mut self) {
        self.tags.fill(0);
        self.len = 0;
        self.prune_at = 0.0;
        self.overflow = 0;
    }

    /// Begins an epoch with the keys that stay from the one before.
    pub(crate) fn next_epoch(&mut self, digester: &Digester, stays: &dyn Fn(&Self, K) -> bool) {
        self.retain(digester, stays);
        self.prune_at = 0.0;
        self.overflow = 0;
    }

    pub(crate) fn save(&self, out: &mut Writer) {
        out.number(self.overflow);
        out.number(self.prune_at);
        out.number(self.len as u64);
        out.sorted(out.key_bytes() + S::STORED_BYTES, |out| {
            for member in self.members() {
                out.key(member.key);
                member.share.save(out);
            }
        });
    }

    /// Takes over a saved set; this one is empty.
    pub(crate) fn load(
        &mut self,
        from: &mut Reader<'_>,
        digester: &Digester,
    ) -> Result<(), DecodeError> {
        self.overflow = from.number("overflow of the candidates")?;
        self.prune_at = from.number("threshold of the candidates")?;
        if !(0.0..=f64::MAX).contains(&self.prune_at) {
            return Err(from.invalid("threshold of the candidates", 8, "it is not a weight"));
        }
        let count = from.count("number of candidates", self.kept.len())?;
        let mut before = None;
        for _ in 0..count {
            let key: K = from.next_key("candidate", &mut before)?;
            let share = S::load(from)?;
            self.len += 1;
            if !self.put(Member { key, share }, key.digest(digester)) {
                let width = from.key_bytes() + S::STORED_BYTES;
                return Err(from.invalid("candidate", width, "it collides with other keys"));
            }
        }
        Ok(())
    }

    /// Takes note that sets of packets with these `totals` are merged. A key over a share of the sum
    /// is over that share of one of them; a key over a fixed weight need not be over it in any, unless
    /// all of it is in one, and so may be missing.
    pub(crate) fn note_parts(&mut self, threshold: Threshold, totals: [u64; 2]) {
        let [own, other] = totals;
        let hidden =
            |weight| weight > 0 && own > 0 && other > 0 && own.saturating_add(other) > weight;
        if !self.apart && matches!(threshold, Threshold::Weight(weight) if hidden(weight)) {
            self.overflow = self.overflow.saturating_add(1);
        }
    }

    /// Adds the keys of `other` with their shares.
    pub(crate) fn merge(
        &mut self,
        other: &Self,
        threshold: f64,
        digester: &Digester,
        estimate: &dyn Fn(&Self, K) -> f64,
    ) {
        for member in other.members() {
            let digest = member.key.digest(digester);
            if let Some(share) = self.share(&member.key, digest) {
                share.merge(&member.share);
            } else {
                let member = (member.key, digest, member.share);
                self.join(member, threshold, digester, estimate);
            }
        }
        self.overflow = self.overflow.saturating_add(other.overflow);
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
mod tests {
    use std::cell::Cell;

    use flowgauge_kernel::{Isa, Seed};

    use super::*;
    use crate::key::Key4;

    /// A full set that nobody can be dropped from is not searched for each packet.
    #[test]
    fn a_set_that_stays_full_is_pruned_once() {
        let digester = Digester::new(Seed::number(1), Isa::best()).for_keys(Key4::BYTES);
        for threshold in [0.0, 5.0] {
            let mut set = HeavyKeys::<Key4>::new(16, &Options::new(0, 1)).unwrap();
            let asked = Cell::new(0);
            for number in 0u32..1000 {
                let key = Key4::from_canonical(&number.to_be_bytes()).unwrap();
                let digest = key.digest(&digester);
                set.join((key, digest, ()), threshold, &digester, &|_, _| {
                    asked.set(asked.get() + 1);
                    10.0
                });
            }
            assert_eq!((asked.get(), set.overflow()), (16, 1000 - 16), "{threshold}");
        }
    }
}
