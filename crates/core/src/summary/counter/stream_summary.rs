//! Space-Saving with linked buckets: constant time per packet.
//!
//! Paper: Metwally, Agrawal, El Abbadi, "Efficient computation of frequent and top-k elements in
//! data streams" (ICDT 2005), §3, the Stream-Summary; "SSL" of Cormode, Hadjieleftheriou, "Finding
//! frequent items in data streams" (VLDB 2008), §3. Entries of equal count share a bucket, and the
//! buckets form a list sorted by count. An entry that counts one more packet moves to the next
//! bucket or to a new one before it. With bytes, nearly every entry would have a bucket of its own,
//! and would pass many buckets on its way.

use bytemuck::Zeroable;
use flowgauge_kernel::{Digester, Zeroed};

use super::space_saving::{Entry, Index, Monitor, Tracked};
use super::{PARAMETERS, counters};
use crate::key::FlowKey;
use crate::summary::describe::form;
use crate::summary::{
    BuildError, BuildErrorKind, Counted, Counter, Describe, Info, Laws, Memory, Options, Summary,
};
use crate::terms::Measure;

/// Space-Saving with linked buckets, in the catalog as `stream-summary`.
///
/// Cost per packet: one line of the index, the entry, its neighbours, and one or two buckets.
/// Memory in bytes: `counters × ((size_of::<K>() + 16, rounded up to the key's alignment) + 24.9)`,
/// and up to 3 KiB more for fewer than 448 counters.
///
/// ```
/// use flowgauge_core::batch::Batch;
/// use flowgauge_core::catalog;
/// use flowgauge_core::key::{FlowKey, Key8};
/// use flowgauge_core::summary::Options;
///
/// let options = Options::new(64 << 10, 1).for_keys(4).with([("counters", 100)]);
/// let mut summary = catalog::build::<Key8>("stream-summary", &options).unwrap();
/// let mut batch = Batch::new();
/// for packet in 0..200u32 {
///     batch.push(Key8::from_canonical(&(packet % 10).to_be_bytes()).unwrap(), 64, 0);
/// }
/// summary.ingest(&mut batch);
/// // No flow was replaced: sizes are exact.
/// let size = summary.answers().size().unwrap().estimate(&7u32.to_be_bytes());
/// assert_eq!(size.packets.map(|found| (found.low, found.high)), Some((20.0, 20.0)));
/// ```
pub struct StreamSummary;

impl Describe for StreamSummary {
    const INFO: Info = Info {
        name: "stream-summary",
        idea: "a new key takes over the smallest counter (linked buckets, packets only)",
        paper: "Metwally et al. (ICDT 2005), section 3",
        parameters: &PARAMETERS,
        memory: "counters x ((key + 16, rounded up to 4 or 8) + 24.9); up to 3 KiB more below \
                 448 counters",
        // Weighted updates are counted correctly, but may pass many buckets.
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
        let entries = counters(options, &Linked::<K>::bytes)?;
        let monitor = Linked::<K>::new(entries, options.digester, &options.memory)?;
        Ok(Box::new(Tracked::<K, u32, _>::new(monitor)))
    }
}

/// The number of an entry or a bucket, counted from 1, so that 0 ends a list.
type Link = u32;

/// An entry: a key, its error, its bucket, and its neighbours in the bucket.
#[derive(Clone, Copy, Zeroable)]
#[repr(C)]
struct Node<K> {
    key: K,
    error: u32,
    bucket: Link,
    before: Link,
    after: Link,
}

/// The entries of one count, and the neighbouring buckets.
#[derive(Clone, Copy, Zeroable)]
#[repr(C)]
struct Bucket {
    count: u32,
    /// The entry added last.
    first: Link,
    smaller: Link,
    larger: Link,
}

/// The entries and buckets behind an index.
struct Linked<K> {
    digester: Digester,
    nodes: Zeroed<Node<K>>,
    buckets: Zeroed<Bucket>,
    index: Index,
    len: usize,
    /// The bucket of the minimum count.
    min: Link,
    /// List of empty buckets, linked by `larger`.
    free: Link,
    /// Number of buckets that were ever in use.
    used: usize,
    saturated: u64,
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

    /// Inserts a bucket between two others.
    fn insert_bucket(&mut self, count: u32, smaller: Link, larger: Link) -> Link {
        let link = self.free;
        let link = if link == 0 {
            self.used += 1;
            self.used as Link
        } else {
            self.free = self.bucket(link).larger;
            link
        };
        *self.bucket(link) = Bucket { count, first: 0, smaller, larger };
        self.link(smaller, link);
        self.link(link, larger);
        link
    }

    /// Makes two buckets neighbours; 0 stands for either end of the list.
    #[inline(always)]
    fn link(&mut self, smaller: Link, larger: Link) {
        if smaller == 0 {
            self.min = larger;
        } else {
            self.bucket(smaller).larger = larger;
        }
        if larger != 0 {
            self.bucket(larger).smaller = smaller;
        }
    }

    /// Puts an entry into the bucket of `count`, or into a new one, searching from `larger` on. All
    /// buckets up to `smaller`, the neighbour before `larger`, have smaller counts.
    #[inline(always)]
    fn attach(&mut self, node: Link, count: u32, mut smaller: Link, mut larger: Link) {
        while larger != 0 && self.bucket(larger).count < count {
            (smaller, larger) = (larger, self.bucket(larger).larger);
        }
        let bucket = if larger != 0 && self.bucket(larger).count == count {
            larger
        } else {
            self.insert_bucket(count, smaller, larger)
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
        let Bucket { mut count, first, smaller, larger } = *self.bucket(bucket);
        let lost = count.add(weight);
        self.saturated = self.saturated.saturating_add(lost);
        if first == node && after == 0 {
            // The only entry of its bucket: raise the bucket's count if it stays below the next
            // one.
            if larger == 0 || count < self.bucket(larger).count {
                self.bucket(bucket).count = count;
                return;
            }
            self.link(smaller, larger);
            self.bucket(bucket).larger = self.free;
            self.free = bucket;
            return self.attach(node, count, smaller, larger);
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

    /// The entries in ascending order of their counts.
    fn in_order(&self) -> impl Iterator<Item = usize> {
        let bucket = |link: Link| (link as usize).checked_sub(1).map(|at| self.buckets[at]);
        let node = |link: Link| (link as usize).checked_sub(1);
        let buckets = std::iter::successors(bucket(self.min), move |b| bucket(b.larger));
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
            len: 0,
            min: 0,
            free: 0,
            used: 0,
            saturated: 0,
        })
    }

    fn digester(&self) -> &Digester {
        &self.digester
    }

    fn capacity(&self) -> usize {
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
            return self.index.add_untracked(weight.into());
        }
        if self.len < self.nodes.len() {
            return self.append(Entry { key, count: weight, error: 0 }, digest);
        }
        let min = *self.bucket(self.min);
        let node = min.first;
        let before = self.nodes[node as usize - 1].key;
        self.index.remove(node as usize - 1, || before.digest(&self.digester));
        self.index.insert(digest, node as usize - 1);
        self.node(node).key = key;
        self.node(node).error = min.count;
        self.grow(node, weight);
    }

    fn append(&mut self, Entry { key, count, error }: Entry<K, u32>, digest: u64) {
        self.index.insert(digest, self.len);
        self.len += 1;
        let node = self.len as Link;
        self.node(node).key = key;
        self.node(node).error = error;
        self.attach(node, count, 0, self.min);
    }

    fn entries(&self) -> impl Iterator<Item = Entry<K, u32>> {
        (0..self.len).map(|at| self.entry_at(at))
    }

    /// In reverse order of the lists, since each appended entry goes to the front.
    fn stored(&self) -> impl Iterator<Item = Entry<K, u32>> {
        let places: Vec<usize> = self.in_order().collect();
        places.into_iter().rev().map(|at| self.entry_at(at))
    }

    fn follows(&self, entry: &Entry<K, u32>) -> bool {
        let min = (self.min as usize).checked_sub(1);
        min.is_none_or(|min| entry.count <= self.buckets[min].count)
    }

    fn entry(&self, key: K) -> Option<Entry<K, u32>> {
        self.find(key, key.digest(&self.digester)).map(|at| self.entry_at(at))
    }

    fn min_count(&self) -> u32 {
        match (self.min as usize).checked_sub(1) {
            Some(min) if self.len == self.nodes.len() => self.buckets[min].count,
            _ => 0,
        }
    }

    fn saturated(&self) -> u64 {
        self.saturated
    }

    fn set_saturated(&mut self, saturated: u64) {
        self.saturated = saturated;
    }

    fn clear(&mut self) {
        self.index.clear();
        (self.len, self.used, self.saturated) = (0, 0, 0);
        (self.min, self.free) = (0, 0);
    }
}
