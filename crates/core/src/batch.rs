//! Batches: up to 256 packets in columns, which all stages pass on.

use flowgauge_kernel::{Digester, prefetch};

use crate::key::FlowKey;
use crate::packet::Column;
use crate::terms::Size;

/// Maximum number of packets in a batch.
pub const BATCH_PACKETS: usize = 256;

/// Bytes of a cache line.
const LINE_BYTES: usize = 64;

/// Up to [`BATCH_PACKETS`] packets of one key type, in columns of equal length.
///
/// Memory: `256 × (size_of::<K>() + 36)` bytes, allocated once.
///
/// ```
/// use flowgauge_core::batch::Batch;
/// use flowgauge_core::key::{FlowKey, Key8};
///
/// let mut batch = Batch::new();
/// for host in [1, 2, 1] {
///     batch.push(Key8::from_canonical(&[10, 0, 0, host]).unwrap(), 60, 0);
/// }
/// assert_eq!(batch.keys()[0], batch.keys()[2]);
/// assert_eq!(batch.size().bytes, 180);
/// ```
pub struct Batch<K> {
    len: usize,
    digested: bool,
    /// The bytes of all rows, if each is one packet.
    total_bytes: u64,
    /// Whether a row may represent several packets.
    sums: bool,
    /// The number of leading rows that [`Self::fill`] gave time 0 and this number of bytes.
    filled: (usize, u64),
    keys: Box<[K; BATCH_PACKETS]>,
    digests: Box<[u64; BATCH_PACKETS]>,
    packets: Box<[u32; BATCH_PACKETS]>,
    bytes: Box<[u64; BATCH_PACKETS]>,
    times_ns: Box<[i64; BATCH_PACKETS]>,
    elements: Box<[u64; BATCH_PACKETS]>,
}

/// All columns at full length, so that loops over part of a batch need no bounds checks. Only the
/// rows of the batch are meaningful.
#[derive(Clone, Copy)]
pub(crate) struct Columns<'a, K> {
    pub(crate) keys: &'a [K; BATCH_PACKETS],
    pub(crate) digests: &'a [u64; BATCH_PACKETS],
    pub(crate) packets: &'a [u32; BATCH_PACKETS],
    pub(crate) bytes: &'a [u64; BATCH_PACKETS],
    pub(crate) elements: &'a [u64; BATCH_PACKETS],
}

impl<K: FlowKey> Batch<K> {
    /// Memory in bytes.
    pub(crate) const BYTES: usize = BATCH_PACKETS * (size_of::<K>() + 36);

    /// An empty batch.
    pub fn new() -> Self {
        Self {
            len: 0,
            digested: false,
            total_bytes: 0,
            sums: false,
            filled: (0, 0),
            keys: Box::new([K::zeroed(); BATCH_PACKETS]),
            digests: Box::new([0; BATCH_PACKETS]),
            packets: Box::new([1; BATCH_PACKETS]),
            bytes: Box::new([0; BATCH_PACKETS]),
            times_ns: Box::new([0; BATCH_PACKETS]),
            elements: Box::new([0; BATCH_PACKETS]),
        }
    }

    /// Adds one packet. A full batch must be cleared first.
    ///
    /// # Panics
    /// When the batch is full.
    #[inline(always)]
    pub fn push(&mut self, key: K, bytes: u32, time_ns: i64) {
        let at = self.len;
        self.keys[at] = key;
        self.bytes[at] = u64::from(bytes);
        self.times_ns[at] = time_ns;
        self.total_bytes += u64::from(bytes);
        self.len = at + 1;
    }

    /// Adds one packet with its element: a digest, such as that of the peer of the key's address.
    ///
    /// # Panics
    /// When the batch is full.
    #[inline(always)]
    pub fn push_with_element(&mut self, key: K, bytes: u32, time_ns: i64, element: u64) {
        self.elements[self.len] = element;
        self.push(key, bytes, time_ns);
    }

    /// The free part of the key column, for [`Self::extend`].
    #[inline(always)]
    pub fn free_keys(&mut self) -> &mut [K] {
        &mut self.keys[self.len..]
    }

    /// Adds packets of so many bytes whose keys were written to the start of [`Self::free_keys`].
    /// Their bytes are added up; columns that are read must be set afterwards.
    ///
    /// # Panics
    /// When there is no room for them.
    #[inline(always)]
    pub fn extend(&mut self, bytes: &[u32]) {
        self.len += bytes.len();
        assert!(self.len <= BATCH_PACKETS, "a batch is full");
        self.total_bytes += bytes.iter().copied().map(u64::from).sum::<u64>();
    }

    /// Sets the bytes of the packets from `first` on.
    #[inline(always)]
    pub fn set_bytes(&mut self, first: usize, bytes: &[u32]) {
        for (to, bytes) in self.bytes[first..self.len].iter_mut().zip(bytes) {
            *to = u64::from(*bytes);
        }
    }

    /// Sets the times of the packets from `first` on.
    ///
    /// # Panics
    /// When the numbers differ.
    #[inline(always)]
    pub fn set_times(&mut self, first: usize, times_ns: Column<'_, i64>) {
        times_ns.copy_to(&mut self.times_ns[first..self.len]);
    }

    /// Sets the elements of the packets from `first` on.
    #[inline(always)]
    pub fn set_elements(&mut self, first: usize, elements: impl Iterator<Item = u64>) {
        for (to, element) in self.elements[first..self.len].iter_mut().zip(elements) {
            *to = element;
        }
    }

    /// Adds these rows of another batch, with all their columns; with their digests if the other
    /// batch has them.
    ///
    /// # Panics
    /// When they exceed the free room.
    #[inline]
    pub fn push_rows(&mut self, from: &Self, rows: &[u8]) {
        let places = self.len..self.len + rows.len();
        gather(&mut self.keys[places.clone()], &from.keys, rows);
        gather(&mut self.digests[places.clone()], &from.digests, rows);
        gather(&mut self.bytes[places.clone()], &from.bytes, rows);
        self.total_bytes += self.bytes[places.clone()].iter().sum::<u64>();
        gather(&mut self.times_ns[places.clone()], &from.times_ns, rows);
        gather(&mut self.elements[places.clone()], &from.elements, rows);
        self.digested = from.digested;
        self.len = places.end;
    }

    /// Replaces the contents by packets with these keys, of `bytes` bytes and time 0. Meant for
    /// streams of keys in memory: it prefetches the keys behind the slice.
    ///
    /// # Panics
    /// When there are more than [`BATCH_PACKETS`] keys.
    #[inline]
    pub fn fill(&mut self, keys: &[K], bytes: u32) {
        let (rows, bytes) = (keys.len(), u64::from(bytes));
        let (filled, with) = self.filled;
        self.clear();
        self.len = rows;
        self.keys[..rows].copy_from_slice(keys);
        if filled < rows || with != bytes {
            self.bytes[..rows].fill(bytes);
            self.times_ns[..rows].fill(0);
        }
        prefetch_next(keys);
        // Rows pushed later may differ.
        self.filled = (rows, bytes);
        self.total_bytes = rows as u64 * bytes;
    }

    /// As [`Self::fill`], with the packets' elements, which are digests.
    ///
    /// # Panics
    /// When there are more than [`BATCH_PACKETS`] keys, or the lengths differ.
    #[inline]
    pub fn fill_with_elements(&mut self, keys: &[K], elements: &[u64], bytes: u32) {
        self.fill(keys, bytes);
        self.elements[..keys.len()].copy_from_slice(elements);
        prefetch_next(elements);
    }

    /// Adds a row that represents several packets of a flow, the last of them at this time. A batch
    /// with such rows has no others.
    ///
    /// # Panics
    /// When the batch is full.
    #[inline(always)]
    pub(crate) fn push_sum(
        &mut self,
        key: K,
        packets: u32,
        bytes: u64,
        time_ns: i64,
        element: u64,
    ) {
        let at = self.len;
        self.keys[at] = key;
        self.packets[at] = packets;
        self.bytes[at] = bytes;
        self.times_ns[at] = time_ns;
        self.elements[at] = element;
        self.sums = true;
        self.len = at + 1;
    }

    /// Replaces the contents by rows of key, packets, bytes and element. Each row represents several
    /// packets of a flow at this time. Takes at most [`BATCH_PACKETS`] rows.
    #[inline(always)]
    pub(crate) fn fill_sums(
        &mut self,
        rows: impl Iterator<Item = (K, u32, u64, u64)>,
        time_ns: i64,
    ) {
        self.clear();
        let columns = self.keys.iter_mut().zip(self.packets.iter_mut());
        let columns = columns.zip(self.bytes.iter_mut()).zip(self.elements.iter_mut());
        for ((((key, packets), bytes), element), row) in columns.zip(rows) {
            (*key, *packets, *bytes, *element) = row;
            self.len += 1;
        }
        self.times_ns[..self.len].fill(time_ns);
        self.sums = true;
    }

    /// Sets the number of packets that each row represents; its bytes stay those of the packet that
    /// was read.
    pub fn weigh(&mut self, packets: u32) {
        if packets > 1 || self.sums {
            self.packets[..self.len].fill(packets);
            self.sums = packets > 1;
        }
    }

    /// Whether every row is known to be one packet.
    #[inline(always)]
    pub(crate) fn is_plain(&self) -> bool {
        !self.sums
    }

    /// The number of rows in the batch.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the batch has no row.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Empties the batch.
    #[inline(always)]
    pub fn clear(&mut self) {
        self.len = 0;
        self.digested = false;
        self.total_bytes = 0;
        self.filled.0 = 0;
    }

    /// Computes the digests, unless they are known already.
    #[inline]
    pub fn digest(&mut self, digester: &Digester) {
        if !self.digested {
            let (len, key_bytes) = (self.len, digester.key_bytes());
            debug_assert!(K::holds(key_bytes), "the digester is for other keys");
            digester.digest_batch(K::words(&self.keys[..len]), key_bytes, &mut self.digests[..len]);
            self.digested = true;
        }
    }

    /// Packets and bytes of a batch of single packets.
    #[inline]
    pub fn size(&self) -> Size {
        Size { packets: self.len as u64, bytes: self.total_bytes }
    }

    /// The keys.
    #[inline(always)]
    pub fn keys(&self) -> &[K] {
        &self.keys[..self.len]
    }

    /// The digests. Requires a call of [`Self::digest`].
    #[inline(always)]
    pub fn digests(&self) -> &[u64] {
        debug_assert!(self.digested, "the digest column was not filled");
        &self.digests[..self.len]
    }

    /// Number of packets that each row represents: 1, until an accelerator sums or weights packets.
    #[inline(always)]
    pub fn packets(&self) -> &[u32] {
        &self.packets[..self.len]
    }

    /// Number of bytes on the wire that each row represents. Meaningless where they were not written.
    #[inline(always)]
    pub fn bytes(&self) -> &[u64] {
        &self.bytes[..self.len]
    }

    /// The packets' elements. Meaningless where packets were pushed without them.
    #[inline(always)]
    pub fn elements(&self) -> &[u64] {
        &self.elements[..self.len]
    }

    /// The columns. The digests require a call of [`Self::digest`].
    pub(crate) fn columns(&self) -> Columns<'_, K> {
        Columns {
            keys: &self.keys,
            digests: &self.digests,
            packets: &self.packets,
            bytes: &self.bytes,
            elements: &self.elements,
        }
    }

    /// Packet times in nanoseconds since the UNIX epoch. Meaningless where they were not written.
    #[inline(always)]
    pub fn times_ns(&self) -> &[i64] {
        &self.times_ns[..self.len]
    }
}

/// Prefetches as many values as the slice has, behind it, while those in it are counted. This saves
/// 0.5 ns a packet. The last value may reach into one more line.
#[inline(always)]
fn prefetch_next<T>(values: &[T]) {
    let rows = values.len();
    for next in (rows..2 * rows).step_by((LINE_BYTES / size_of::<T>()).max(1)) {
        prefetch(values, next);
    }
    prefetch(values, (2 * rows).saturating_sub(1));
}

/// Copies rows of one column. Columns are copied one after the other: their cache lines may be in
/// another core, and each is then waited for once.
#[inline(always)]
fn gather<T: Copy>(to: &mut [T], from: &[T; BATCH_PACKETS], rows: &[u8]) {
    for (to, row) in to.iter_mut().zip(rows) {
        *to = from[usize::from(*row)];
    }
}

impl<K: FlowKey> Default for Batch<K> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use bytemuck::Zeroable;

    use super::*;
    use crate::key::Key8;

    /// Rows pushed after a fill do not survive the next fill.
    #[test]
    fn a_batch_can_be_filled_again() {
        let keys = [Key8::zeroed(); BATCH_PACKETS];
        let mut batch = Batch::new();
        let check = |batch: &Batch<Key8>, bytes: u64| {
            assert!(batch.bytes().iter().all(|other| *other == bytes));
            assert!(batch.times_ns().iter().all(|time| *time == 0));
        };
        for (rows, bytes) in [(256, 64), (9, 64), (256, 64), (7, 65), (256, 64)] {
            batch.fill(&keys[..rows], bytes);
            check(&batch, bytes.into());
            if rows < BATCH_PACKETS {
                batch.push(keys[0], 7, 1);
            }
        }
        batch.clear();
        batch.push(keys[0], 7, 1);
        batch.fill(&keys, 64);
        check(&batch, 64);
    }
}
