//! The set of heavy keys of a summary that stores no keys.
//!
//! A key joins when its estimate passes the threshold, a share of the weight so far. Early in an
//! epoch nearly every key does, so a full set first drops the keys that have fallen below the
//! threshold.

use bytemuck::Zeroable;
use flowgauge_kernel::{Digester, Zeroed};

use super::codec::{DecodeError, Reader, Writer};
use super::state::{Ewma, State};
use super::{BuildError, Counter, Options};
use crate::key::FlowKey;
use crate::terms::Threshold;

/// Probes for a key at most, in a set that is at most half full. Of keys that do not collide on
/// purpose, fewer than one in 10⁹ would need more.
const MOST_PROBES: usize = 128;

/// The default of the parameter `candidates`, unless the memory is small.
const MOST_CANDIDATES: usize = 1 << 14;

/// The parameter `candidates`: 0, a power of two, or by default as many candidates of `bytes` bytes
/// as fit into a quarter of the memory.
pub(crate) fn candidates(options: &Options, bytes: usize) -> Result<usize, BuildError> {
    if options.parameters.get("candidates") == Some("0") {
        return Ok(0);
    }
    let memory_bytes = (options.memory_bytes / 4).min(MOST_CANDIDATES * bytes);
    options.parameters.power_of_two("candidates", memory_bytes, bytes)
}

/// What is counted for a heavy key alone: its own part of a cell that other keys hash to as well.
/// All zero is an empty part.
pub(crate) trait OwnPart: Copy + Zeroable + Send + 'static {
    /// Bytes of the stored form.
    const STORED_BYTES: usize;
    /// Adds another part of the same key.
    fn merge(&mut self, other: &Self);
    fn save(&self, out: &mut Writer);
    fn load(from: &mut Reader<'_>) -> Result<Self, DecodeError>;
}

/// Nothing: a set of keys alone.
impl OwnPart for () {
    const STORED_BYTES: usize = 0;

    fn merge(&mut self, (): &Self) {}

    fn save(&self, _: &mut Writer) {}

    fn load(_: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(())
    }
}

/// Packets or bytes.
impl<C: Counter> OwnPart for C {
    const STORED_BYTES: usize = size_of::<C>();

    /// The excess needs no note: where this counter is full, the cell is full, too.
    fn merge(&mut self, other: &Self) {
        let _ = self.add(*other);
    }

    fn save(&self, out: &mut Writer) {
        out.number(*self);
    }

    fn load(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        from.number("share of a candidate")
    }
}

/// Sizes with their forecast.
impl OwnPart for Ewma {
    const STORED_BYTES: usize = <Self as State>::STORED_BYTES;

    fn merge(&mut self, other: &Self) {
        let _ = State::merge(self, other);
    }

    fn save(&self, out: &mut Writer) {
        State::save(self, out);
    }

    fn load(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Self::load_any(from)
    }
}

/// A key with its own part.
#[derive(Clone, Copy, Zeroable)]
#[repr(C)]
struct Member<K, S> {
    key: K,
    own: S,
}

/// A hash set of keys of bounded size, each with its own part of its cell.
///
/// The low bits of the digest choose the first bucket, as they choose the column of an array: so
/// the keys of one column are found together.
///
/// Memory in bytes, with `member` for `size_of::<K>() + size_of::<S>()`, rounded up to the
/// alignment: `2 × most × (member + 4) + most × member`.
pub(crate) struct HeavyKeys<K, S = ()> {
    /// Half full at most. A bucket is empty where its tag is 0.
    members: Zeroed<Member<K, S>>,
    tags: Zeroed<u32>,
    /// Scratch space for [`Self::prune`]: the members that stay.
    kept: Zeroed<Member<K, S>>,
    len: usize,
    /// The set is pruned again once the threshold has grown to this.
    prune_at: f64,
    overflow: u64,
    /// As [`Options::apart`].
    apart: bool,
}

impl<K: FlowKey, S: OwnPart> HeavyKeys<K, S> {
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

    /// The capacity of the set.
    pub(crate) fn most(&self) -> usize {
        self.kept.len()
    }

    /// The bucket of `key`, or else the empty bucket where it would go, if there is one within
    /// reach.
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

    /// The high half of the digest: none of its bits chooses a bucket, nor a column of the first
    /// row.
    #[inline(always)]
    fn tag(digest: u64) -> u32 {
        (digest >> 32) as u32 | 1
    }

    /// Whether `key` is in the set, as the keys of nearly all heavy packets are.
    #[inline(always)]
    pub(crate) fn has(&self, key: &K, digest: u64) -> bool {
        self.find(key, digest).is_ok()
    }

    /// The own part of `key`, if it is in the set.
    #[inline(always)]
    pub(crate) fn own_part(&mut self, key: &K, digest: u64) -> Option<&mut S> {
        let place = self.find(key, digest).ok()?;
        Some(&mut self.members[place].own)
    }

    /// The keys in the column of this digest, the digest's own key included, of an array whose
    /// `columns` columns, a power of two, are chosen by the low bits of the digest.
    pub(crate) fn of_column(
        &self,
        digest: u64,
        columns: usize,
        digester: &Digester,
    ) -> impl Iterator<Item = (K, &S)> {
        let (places, column) = (self.tags.len(), digest as usize & (columns - 1));
        // With fewer columns than buckets, a column has several first buckets.
        let step = columns.min(places).max(1);
        let first = (column & (step - 1)..places).step_by(step);
        first.flat_map(move |first| {
            let run = (first..first + places.min(MOST_PROBES)).map(move |at| at & (places - 1));
            let run = run.take_while(|place| self.tags[*place] != 0);
            run.map(|place| &self.members[place]).filter_map(move |member| {
                let digest = member.key.digest(digester) as usize;
                let same = digest & (columns - 1) == column && digest & (places - 1) == first;
                same.then_some((member.key, &member.own))
            })
        })
    }

    /// Writes a member to the bucket of its key, or to an empty one; returns whether one was within
    /// reach. Does not change the length.
    fn put(&mut self, member: Member<K, S>, digest: u64) -> bool {
        let (Ok(place) | Err(Some(place))) = self.find(&member.key, digest) else { return false };
        self.members[place] = member;
        self.tags[place] = Self::tag(digest);
        true
    }

    /// Keys that can join before any is dropped.
    #[inline(always)]
    pub(crate) fn room(&self) -> usize {
        self.kept.len() - self.len
    }

    /// Whether no key is dropped for others that join at thresholds up to this one, however many.
    pub(crate) fn drops_nothing(&self, threshold: f64) -> bool {
        threshold < self.prune_at
    }

    /// Adds `key`, which must not be in the set, with its own part. A full set first drops the keys
    /// whose `estimate` no longer passes `threshold`. If that frees no room, or too many keys
    /// collide with this one, the overflow is counted.
    #[cold]
    #[inline(never)]
    pub(crate) fn join(
        &mut self,
        (key, digest, own): (K, u64, S),
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
        self.insert(Member { key, own }, digest);
    }

    /// Inserts a new member into a set that is not full; if its keys collide, counts the overflow.
    fn insert(&mut self, member: Member<K, S>, digest: u64) {
        if self.put(member, digest) {
            self.len += 1;
        } else {
            self.overflow = self.overflow.saturating_add(1);
        }
    }

    fn prune(&mut self, threshold: f64, digester: &Digester, estimate: &dyn Fn(&Self, K) -> f64) {
        self.retain(digester, &|set, key| estimate(set, key) > threshold);
        // Pruning visits the whole set, so it must pay: the threshold has to grow by an eighth
        // first. A threshold of 0 never drops a key.
        self.prune_at = (threshold * 1.125).max(f64::MIN_POSITIVE);
    }

    /// Keeps the keys that `stays` accepts; it sees the set before any key is removed.
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
            self.insert(member, member.key.digest(digester));
        }
    }

    fn members(&self) -> impl Iterator<Item = &Member<K, S>> {
        let members = self.members.iter().zip(self.tags.iter());
        members.filter(|(_, tag)| **tag != 0).map(|(member, _)| member)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = K> {
        self.members().map(|member| member.key)
    }

    pub(crate) fn own_parts_mut(&mut self) -> impl Iterator<Item = &mut S> {
        let members = self.members.iter_mut().zip(self.tags.iter());
        members.filter(|(_, tag)| **tag != 0).map(|(member, _)| &mut member.own)
    }

    /// How often a heavy key found no room.
    pub(crate) fn overflow(&self) -> u64 {
        self.overflow
    }

    pub(crate) fn clear(&mut self) {
        self.tags.fill(0);
        self.len = 0;
        self.prune_at = 0.0;
        self.overflow = 0;
    }

    /// Begins an epoch with the keys of the last one that `stays` accepts.
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
                member.own.save(out);
            }
        });
    }

    /// Reads a saved set into this empty one.
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
            let own = S::load(from)?;
            self.len += 1;
            if !self.put(Member { key, own }, key.digest(digester)) {
                let width = from.key_bytes() + S::STORED_BYTES;
                return Err(from.invalid("candidate", width, "it collides with other keys"));
            }
        }
        Ok(())
    }

    /// Counts an overflow if the merge of two parts with these `totals` may miss a heavy key. A key
    /// above a share of the sum is above that share in one of the parts. A key above a fixed weight
    /// may be below it in both, unless each key is in one part only.
    pub(crate) fn note_parts(&mut self, threshold: Threshold, totals: [u64; 2]) {
        let [own, other] = totals;
        let hidden =
            |weight| weight > 0 && own > 0 && other > 0 && own.saturating_add(other) > weight;
        if !self.apart && matches!(threshold, Threshold::Weight(weight) if hidden(weight)) {
            self.overflow = self.overflow.saturating_add(1);
        }
    }

    /// Adds the keys of `other` with their own parts.
    pub(crate) fn merge(
        &mut self,
        other: &Self,
        threshold: f64,
        digester: &Digester,
        estimate: &dyn Fn(&Self, K) -> f64,
    ) {
        for member in other.members() {
            let digest = member.key.digest(digester);
            if let Some(own) = self.own_part(&member.key, digest) {
                own.merge(&member.own);
            } else {
                let member = (member.key, digest, member.own);
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
    use crate::key::Key8;

    /// A full set that cannot drop any key is not searched again for each packet.
    #[test]
    fn a_set_that_stays_full_is_pruned_once() {
        let digester = Digester::new(Seed::number(1), Isa::best()).for_keys(Key8::BYTES);
        for threshold in [0.0, 5.0] {
            let mut set = HeavyKeys::<Key8>::new(16, &Options::new(0, 1)).unwrap();
            let asked = Cell::new(0);
            for number in 0u32..1000 {
                let key = Key8::from_canonical(&number.to_be_bytes()).unwrap();
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
