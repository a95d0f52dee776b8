//! Space-Saving, with linked buckets: constant time for packets that count one each.
//!
//! Paper: Metwally, Agrawal, El Abbadi, "Efficient computation of frequent and top-k elements in
//! data streams" (ICDT 2005), §3, the Stream-Summary; "SSL" of Cormode, Hadjieleftheriou, "Finding
//! frequent items in data streams" (VLDB 2008), §3. Entries of equal count hang in one bucket, and
//! the buckets in a list by count: an entry that counts one more moves to the next bucket or to a
//! new one before it. Sizes in bytes would make every entry a bucket of its own, and the way to the
//! new place long.

use bytemuck::Zeroable;
use flowgauge_kernel::{Digester, Zeroed};

use super::super::{
    BuildError, BuildErrorKind, Counter, Describe, Info, Laws, Memory, Options, Summary,
};
use super::capacity::{PARAMETERS, counters};
use super::index::Index;
use super::monitor::{Entry, Monitor};
use super::tracked::Tracked;
use crate::key::FlowKey;
use crate::summary::Counted;
use crate::summary::describe::form;
use crate::terms::Measure;

/// Space-Saving with linked buckets.
///
/// Cost: a line of the index, the entry, its neighbours and a bucket or two a packet. Memory in
/// bytes: `counters × ((size_of::<K>() + 16, rounded up to the key's alignment) + 24.9)`, and up
/// to 3 KiB more for fewer than 448 counters.
pub struct StreamSummary;

impl Describe for StreamSummary {
    const INFO: Info = Info {
        name: "stream-summary",
        idea: "a new key takes over the smallest counter (linked buckets, packets only)",
        paper: "Metwally et al. (ICDT 2005), section 3",
        parameters: &PARAMETERS,
        memory: "counters x ((key + 16, rounded up to 4 or 8) + 24.9); up to 3 KiB more below \
                 448 counters",
        // Sums are counted right, but their way along the buckets may be long.
        forms: &[form![Size(Counted::Packets), Candidates]],
        laws: Laws { commutable: true, sizes: true, ..Laws::NONE },
    };

    fn fits(options: &Options) -> Result<(), BuildError> {
        if options.by == Measure::Bytes {
            return Err(BuildErrorKind::Unfit {
                algorithm: Self::INFO.name,
                reason: "its linked buckets count packets, not bytes; use --by packets, or \
                         --algorithm space-saving"
                    .to_owned(),
            }
            .into());
        }
        Ok(())
    }

    fn build<K: FlowKey>(options: &Options) -> Result<Box<dyn Summary<K>>, BuildError> {
        Self::fits(options)?;
        let entries = counters(options, Linked::<K>::bytes)?;
        let monitor = Linked::<K>::new(entries, options.digester, &options.memory)?;
        Ok(Box::new(Tracked::<K, u32, _>::new(monitor)))
    }
}

/// Numbers of entries and buckets are counted from 1, so that 0 ends a list.
type Link = u32;

/// A key, its error, its bucket and its neighbours there.
#[derive(Clone, Copy, Zeroable)]
#[repr(C)]
struct Node<K> {
    key: K,
    error: u32,
    bucket: Link,
    before: Link,
    after: Link,
}

/// Entries of one count, and the buckets of the next lesser and larger one.
#[derive(Clone, Copy, Zeroable)]
#[repr(C)]
struct Bucket {
    count: u32,
    /// Its entry that came last.
    first: Link,
    lesser: Link,
    larger: Link,
}

struct Linked<K> {
    digester: Digester,
    nodes: Zeroed<Node<K>>,
    buckets: Zeroed<Bucket>,
    index: Index,
    taken: usize,
    /// The bucket of the least count.
    least: Link,
    /// Buckets without entries, by their `larger`.
    free: Link,
    /// Buckets that were ever in use.
    used: usize,
    excess: u64,
}

impl<K: FlowKey> Linked<K> {
    #[inline(always)]
    fn find(&self, key: K, digest: u64) -> Option<usize> {
        let nodes = &*self.nodes;
        self.index.find(digest, |node| nodes[node].key == key)
    }

    #[inline(always)]
    fn bucket(&mut self, link: Link) -> &mut Bucket {
        &mut self.buckets[link as usize - 1]
    }

    #[inline(always)]
    fn node(&mut self, link: Link) -> &mut Node<K> {
        &mut self.nodes[link as usize - 1]
    }

    /// Makes a bucket of this count between two others.
    fn insert_bucket(&mut self, count: u32, lesser: Link, larger: Link) -> Link {
        let link = self.free;
        let link = if link == 0 {
            self.used += 1;
            self.used as Link
        } else {
            self.free = self.bucket(link).larger;
            link
        };
        *self.bucket(link) = Bucket { count, first: 0, lesser, larger };
        self.link(lesser, link);
        self.link(link, larger);
        link
    }

    /// Makes two buckets neighbours; 0 is the end on either side.
    #[inline(always)]
    fn link(&mut self, lesser: Link, larger: Link) {
        if lesser == 0 {
            self.least = larger;
        } else {
            self.bucket(lesser).larger = larger;
        }
        if larger != 0 {
            self.bucket(larger).lesser = lesser;
        }
    }

    /// Puts an entry into the first bucket from `larger` on that counts `count`, or into a new one;
    /// all buckets up to `lesser`, which is before `larger`, count less.
    #[inline(always)]
    fn attach(&mut self, node: Link, count: u32, mut lesser: Link, mut larger: Link) {
        while larger != 0 && self.bucket(larger).count < count {
            (lesser, larger) = (larger, self.bucket(larger).larger);
        }
        let bucket = if larger != 0 && self.bucket(larger).count == count {
            larger
        } else {
            self.insert_bucket(count, lesser, larger)
        };
        let after = std::mem::replace(&mut self.bucket(bucket).first, node);
        if after != 0 {
            self.node(after).before = node;
        }
        let node = self.node(node);
        (node.bucket, node.before, node.after) = (bucket, 0, after);
    }

    /// Adds weight to an entry.
    #[inline(always)]
    fn grow(&mut self, node: Link, weight: u32) {
        let Node { bucket, before, after, .. } = *self.node(node);
        let Bucket { mut count, first, lesser, larger } = *self.bucket(bucket);
        let excess = count.add(weight);
        self.excess = self.excess.saturating_add(excess);
        if first == node && after == 0 {
            // It was alone: its bucket grows with it, unless the next one is in the way.
            if larger == 0 || count < self.bucket(larger).count {
                self.bucket(bucket).count = count;
                return;
            }
            self.link(lesser, larger);
            self.bucket(bucket).larger = self.free;
            self.free = bucket;
            return self.attach(node, count, lesser, larger);
        }
        if before == 0 {
            self.bucket(bucket).first = after;
        } else {
            self.node(before).after = after;
        }
        if after != 0 {
            self.node(after).before = before;
        }
        self.attach(node, count, bucket, larger);
    }

    /// The numbers of the entries, the least first.
    fn in_order(&self) -> impl Iterator<Item = usize> {
        let bucket = |link: Link| (link as usize).checked_sub(1).map(|at| self.buckets[at]);
        let node = |link: Link| (link as usize).checked_sub(1);
        let buckets = std::iter::successors(bucket(self.least), move |b| bucket(b.larger));
        buckets.flat_map(move |bucket| {
            std::iter::successors(node(bucket.first), move |&at| node(self.nodes[at].after))
        })
    }

    fn entry_at(&self, at: usize) -> Entry<K, u32> {
        let Node { key, error, bucket, .. } = self.nodes[at];
        Entry { key, count: self.buckets[bucket as usize - 1].count, error }
    }
}

impl<K: FlowKey> Monitor<K, u32> for Linked<K> {
    fn bytes(entries: usize) -> usize {
        entries * (size_of::<Node<K>>() + size_of::<Bucket>()) + Index::memory_bytes(entries)
    }

    fn new(entries: usize, digester: Digester, memory: &Memory) -> Result<Self, BuildError> {
        Ok(Self {
            digester,
            nodes: memory.zeroed(entries)?,
            buckets: memory.zeroed(entries)?,
            index: Index::new(entries, memory)?,
            taken: 0,
            least: 0,
            free: 0,
            used: 0,
            excess: 0,
        })
    }

    fn digester(&self) -> &Digester {
        &self.digester
    }

    fn most(&self) -> usize {
        self.nodes.len()
    }

    #[inline(always)]
    fn index(&self) -> &Index {
        &self.index
    }

    fn index_mut(&mut self) -> &mut Index {
        &mut self.index
    }

    #[inline(always)]
    fn add(&mut self, key: K, digest: u64, weight: u32) {
        if let Some(node) = self.find(key, digest) {
            return self.grow(node as Link + 1, weight);
        }
        if !self.index.has_room(digest) {
            return self.index.refuse(weight.into());
        }
        if self.taken < self.nodes.len() {
            return self.append(Entry { key, count: weight, error: 0 }, digest);
        }
        let least = *self.bucket(self.least);
        let node = least.first;
        let before = self.nodes[node as usize - 1].key;
        self.index.remove(node as usize - 1, || before.digest(&self.digester));
        self.index.insert(digest, node as usize - 1);
        self.node(node).key = key;
        self.node(node).error = least.count;
        self.grow(node, weight);
    }

    fn append(&mut self, Entry { key, count, error }: Entry<K, u32>, digest: u64) {
        self.index.insert(digest, self.taken);
        self.taken += 1;
        let node = self.taken as Link;
        self.node(node).key = key;
        self.node(node).error = error;
        self.attach(node, count, 0, self.least);
    }

    fn entries(&self) -> impl Iterator<Item = Entry<K, u32>> {
        (0..self.taken).map(|at| self.entry_at(at))
    }

    /// In the order of the lists; the last comes first, so that each that is appended goes to the
    /// front.
    fn stored(&self) -> impl Iterator<Item = Entry<K, u32>> {
        let places: Vec<usize> = self.in_order().collect();
        places.into_iter().rev().map(|at| self.entry_at(at))
    }

    fn follows(&self, entry: &Entry<K, u32>) -> bool {
        let least = (self.least as usize).checked_sub(1);
        least.is_none_or(|least| entry.count <= self.buckets[least].count)
    }

    fn entry(&self, key: K) -> Option<Entry<K, u32>> {
        self.find(key, key.digest(&self.digester)).map(|at| self.entry_at(at))
    }

    fn unheld(&self) -> u32 {
        match (self.least as usize).checked_sub(1) {
            Some(least) if self.taken == self.nodes.len() => self.buckets[least].count,
            _ => 0,
        }
    }

    fn excess(&self) -> u64 {
        self.excess
    }

    fn set_excess(&mut self, excess: u64) {
        self.excess = excess;
    }

    fn clear(&mut self) {
        self.index.clear();
        (self.taken, self.used, self.excess) = (0, 0, 0);
        (self.least, self.free) = (0, 0);
    }
}
