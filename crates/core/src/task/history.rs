//! The forecasts of flows, in a table of fixed size.
//!
//! Records stand one after the other in the order of arrival; an index with linear probing finds
//! them by key. Forgetting closes the gaps and builds the index anew.

use std::io;

use flowgauge_kernel::{Seed, Zeroed, scalar};

use super::registry::HistoryShape;
use crate::key::CanonicalKey;

/// Words of the longest key.
const KEY_WORDS: usize = CanonicalKey::MAX_BYTES.div_ceil(8);

/// Words of a record before its key: the forecast, as the bits of a float, and the last size.
const HEAD: usize = 2;

/// Places of the index that a record may be away from its home, half of which are free: of keys that
/// do not collide on purpose fewer than one in 10⁹ would be further away.
const MOST_PROBES: usize = 128;

/// What is remembered of a flow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Record {
    /// Its forecast for the epoch that is open.
    pub(super) forecast: f64,
    /// Its size in the epoch before.
    pub(super) before: u64,
}

/// Up to a fixed number of records by key.
///
/// Memory for each of `flows` of five-tuple keys: a record of 32 bytes (IPv4) or 56 (IPv6), 8
/// bytes of index, and a bit.
pub(super) struct History {
    key_bytes: usize,
    capacity: usize,
    len: usize,
    secret: [u64; 4],
    records: Zeroed<u64>,
    /// Record numbers counted from 1; 0 is free. Less than half of it is taken.
    index: Zeroed<u32>,
    /// One bit for each record that the epoch has seen.
    seen: Zeroed<u64>,
}

impl History {
    /// Reserves the table.
    pub(super) fn new(shape: HistoryShape, seed: &Seed) -> io::Result<Self> {
        let HistoryShape { key_bytes, flows, .. } = shape;
        let too_many = || io::Error::from(io::ErrorKind::OutOfMemory);
        u32::try_from(flows).map_err(|_| too_many())?;
        let words = HEAD + key_bytes.div_ceil(8);
        Ok(Self {
            key_bytes,
            capacity: flows,
            len: 0,
            secret: *seed.secret(),
            records: Zeroed::new(flows.checked_mul(words).ok_or_else(too_many)?)?,
            index: Zeroed::new(2 * flows + 1)?,
            seen: Zeroed::new(flows.div_ceil(64))?,
        })
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.records.memory_bytes() + self.index.memory_bytes() + self.seen.memory_bytes()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The record of this key: its number.
    pub(super) fn find(&self, key: &[u8]) -> Option<usize> {
        let words = self.words_of(key);
        let record = self.index[self.slot_of(&words)?];
        (record != 0).then(|| record as usize - 1)
    }

    pub(super) fn get(&self, record: usize) -> Record {
        let at = record * self.stride();
        Record { forecast: f64::from_bits(self.records[at]), before: self.records[at + 1] }
    }

    /// Replaces a record, which counts as seen until the next [`Self::sweep`].
    pub(super) fn see(&mut self, record: usize, new: Record) {
        self.seen[record / 64] |= 1 << (record % 64);
        self.set(record, new);
    }

    /// Adds the record of a key that has none; `false` where there is no room, or none near enough.
    pub(super) fn insert(&mut self, key: &[u8], new: Record) -> bool {
        if self.len == self.capacity {
            return false;
        }
        let words = self.words_of(key);
        let Some(slot) = self.slot_of(&words) else { return false };
        let record = self.len;
        self.len += 1;
        self.index[slot] = self.len as u32;
        let (start, stride) = (record * self.stride(), self.stride());
        self.records[start + HEAD..start + stride].copy_from_slice(&words[..stride - HEAD]);
        self.set(record, new);
        true
    }

    /// Offers each record that was not seen to `renew`, and forgets those for which it returns
    /// none. Afterwards none counts as seen.
    pub(super) fn sweep(&mut self, mut renew: impl FnMut(&[u8], Record) -> Option<Record>) {
        let stride = self.stride();
        let mut kept = 0;
        for record in 0..self.len {
            if self.seen[record / 64] >> (record % 64) & 1 == 0 {
                match renew(self.key(record), self.get(record)) {
                    Some(new) => self.set(record, new),
                    None => continue,
                }
            }
            self.records.copy_within(record * stride..(record + 1) * stride, kept * stride);
            kept += 1;
        }
        self.seen.fill(0);
        if kept < self.len {
            self.len = kept;
            self.rebuild();
        }
    }

    /// No record is further from its home than before, since those before it are fewer and in the same
    /// order.
    fn rebuild(&mut self) {
        self.index.fill(0);
        for record in 0..self.len {
            let words = self.words_of(self.key(record));
            if let Some(slot) = self.free_slot(&words) {
                self.index[slot] = record as u32 + 1;
            }
        }
    }

    fn set(&mut self, record: usize, new: Record) {
        let at = record * self.stride();
        self.records[at] = new.forecast.to_bits();
        self.records[at + 1] = new.before;
    }

    fn stride(&self) -> usize {
        HEAD + self.key_bytes.div_ceil(8)
    }

    fn key(&self, record: usize) -> &[u8] {
        let words = &self.records[record * self.stride() + HEAD..(record + 1) * self.stride()];
        &bytemuck::cast_slice(words)[..self.key_bytes]
    }

    fn words_of(&self, key: &[u8]) -> [u64; KEY_WORDS] {
        let mut words = [0; KEY_WORDS];
        bytemuck::bytes_of_mut(&mut words)[..self.key_bytes].copy_from_slice(key);
        words
    }

    /// The slot that holds the key's record, or the free one where it would stand, if one is near
    /// enough.
    fn slot_of(&self, words: &[u64; KEY_WORDS]) -> Option<usize> {
        let stride = self.stride();
        self.probe(words, |record| {
            let start = record * stride;
            self.records[start + HEAD..start + stride] == words[..stride - HEAD]
        })
    }

    fn free_slot(&self, words: &[u64; KEY_WORDS]) -> Option<usize> {
        self.probe(words, |_| false)
    }

    /// The first slot from the key's own onwards that is free or whose record is `wanted`.
    fn probe(&self, words: &[u64; KEY_WORDS], wanted: impl Fn(usize) -> bool) -> Option<usize> {
        let slots = self.index.len();
        // The digest as a fraction of 2⁶⁴, so that the number of slots need not be a power of two.
        let mut slot = scalar::multiply(self.digest(words), slots as u64).1 as usize;
        for _ in 0..MOST_PROBES {
            match self.index[slot] {
                0 => return Some(slot),
                record if wanted(record as usize - 1) => return Some(slot),
                _ if slot + 1 < slots => slot += 1,
                _ => slot = 0,
            }
        }
        None
    }

    fn digest(&self, words: &[u64; KEY_WORDS]) -> u64 {
        let key = words.map(u64::from_le);
        let (secret, bytes) = (&self.secret, self.key_bytes);
        match bytes {
            0..=8 => scalar::digest1(secret, key[0], bytes),
            9..=16 => scalar::digest2(secret, [key[0], key[1]], bytes),
            17..=32 => scalar::digest4(secret, [key[0], key[1], key[2], key[3]], bytes),
            _ => scalar::digest5(secret, key, bytes),
        }
    }
}
