//! WSAF, the working set of active flows: a flow table that evicts.
//!
//! Paper: InstaMeasure (ICDCS 2019), §3.B. Triangular probing (h + i/2 + i²/2) up to a limit. A new
//! flow that finds no empty entry within the limit takes over one that has expired, and else the
//! least of those that were not updated since they were last passed over: their second chance.

use bytemuck::Zeroable;
use flowgauge_kernel::{Digester, Zeroed, prefetch};

use super::super::codec::{DecodeError, Reader, Writer};
use super::super::{BuildError, Counter, Memory, Size};
use crate::key::FlowKey;

/// Entries whose cache lines are asked for ahead of the one in hand, in a visit of all.
const PREFETCH_AHEAD: usize = 64;

/// Flags beside the upper digest bits in [`Entry::id`].
const OCCUPIED: u32 = 1;
/// Updated since it was inserted or passed over.
const REFERENCED: u32 = 2;
/// Nothing had been evicted when it was inserted, so that it counts all of its flow.
const WHOLE: u32 = 4;
const FLAGS: u32 = OCCUPIED | REFERENCED | WHOLE;

/// A flow of the working set.
#[derive(Clone, Copy, Zeroable)]
#[repr(C)]
pub(super) struct Entry<K> {
    pub(super) key: K,
    id: u32,
    /// Packets that reached the table, each of which stands for many.
    packets: u32,
    /// Bytes of these.
    bytes: u64,
    /// Time of the last of them.
    time_ns: i64,
}

impl<K: FlowKey> Entry<K> {
    /// Bytes of the stored form.
    const STORED_BYTES: usize = K::BYTES + 4 + 4 + 4 + 8 + 8;

    #[inline(always)]
    fn is_of(&self, key: K, digest: u64) -> bool {
        (self.id ^ id(digest)) & !(REFERENCED | WHOLE) == 0 && self.key == key
    }

    /// What reached the table.
    pub(super) fn size(&self) -> Size {
        Size { packets: u64::from(self.packets), bytes: self.bytes }
    }

    /// Whether it lost no part of its flow to an earlier eviction.
    pub(super) fn is_whole(&self) -> bool {
        self.id & WHOLE != 0
    }
}

/// The flow id of an occupied entry.
#[inline(always)]
fn id(digest: u64) -> u32 {
    (digest >> 32) as u32 & !FLAGS | OCCUPIED
}

/// Where a key is, or would go.
enum Place {
    Found(usize),
    Empty(usize),
    Full,
}

/// The flow table. All sizes in it are of packets that reached it.
///
/// Memory in bytes: `entries × (size_of::<K>() + 24, rounded up to 8) + 4 × entries`, these to
/// list the occupied ones.
pub(super) struct WorkingSet<K> {
    entries: Zeroed<Entry<K>>,
    /// Entries that hold a flow, in the order in which they were first taken.
    occupied: Zeroed<u32>,
    flows: usize,
    probes: u32,
    timeout_ns: u64,
    evictions: u64,
    evicted: Size,
    saturated: Size,
}

impl<K: FlowKey> WorkingSet<K> {
    /// Bytes of an entry.
    pub(super) const ENTRY_BYTES: usize = size_of::<Entry<K>>() + size_of::<u32>();

    pub(super) fn new(
        entries: usize,
        probes: u32,
        timeout_ns: u64,
        memory: &Memory,
    ) -> Result<Self, BuildError> {
        debug_assert!(entries.is_power_of_two());
        Ok(Self {
            entries: memory.zeroed(entries)?,
            occupied: memory.zeroed(entries)?,
            flows: 0,
            probes,
            timeout_ns,
            evictions: 0,
            evicted: Size::default(),
            saturated: Size::default(),
        })
    }

    /// The places that a key may have, in the order of probing.
    #[inline(always)]
    fn path(&self, digest: u64) -> impl Iterator<Item = usize> + use<K> {
        let mask = self.entries.len() - 1;
        (0..self.probes as usize).scan(digest as usize, move |at, step| {
            *at = at.wrapping_add(step);
            Some(*at & mask)
        })
    }

    fn find(&self, key: K, digest: u64) -> Place {
        for at in self.path(digest) {
            let entry = &self.entries[at];
            if entry.is_of(key, digest) {
                return Place::Found(at);
            }
            if entry.id == 0 {
                return Place::Empty(at);
            }
        }
        Place::Full
    }

    /// The entry of a flow.
    pub(super) fn get(&self, key: K, digest: u64) -> Option<&Entry<K>> {
        match self.find(key, digest) {
            Place::Found(at) => Some(&self.entries[at]),
            Place::Empty(_) | Place::Full => None,
        }
    }

    /// Asks for the entry where a flow with this digest most likely is.
    #[inline(always)]
    pub(super) fn prefetch(&self, digest: u64) {
        prefetch(&self.entries, digest as usize & (self.entries.len() - 1));
    }

    /// Counts `packets` packets of `bytes` bytes in all.
    #[inline(never)]
    pub(super) fn add(&mut self, key: K, digest: u64, packets: u32, bytes: u64, time_ns: i64) {
        let at = match self.find(key, digest) {
            Place::Found(at) => {
                let entry = &mut self.entries[at];
                entry.id |= REFERENCED;
                entry.time_ns = entry.time_ns.max(time_ns);
                self.saturated +=
                    Size { packets: entry.packets.add(packets), bytes: entry.bytes.add(bytes) };
                return;
            }
            Place::Empty(at) => {
                self.occupied[self.flows] = at as u32;
                self.flows += 1;
                at
            }
            Place::Full => {
                let at = self.victim(digest, time_ns);
                self.evictions = self.evictions.saturating_add(1);
                self.evicted += self.entries[at].size();
                at
            }
        };
        let whole = if self.evictions == 0 { WHOLE } else { 0 };
        self.entries[at] = Entry { key, id: id(digest) | whole, packets, bytes, time_ns };
    }

    /// The entry that a new flow takes over, of those on its path.
    #[cold]
    fn victim(&mut self, digest: u64, now_ns: i64) -> usize {
        let expired = |at: &usize| {
            let age_ns = now_ns.saturating_sub(self.entries[*at].time_ns);
            u64::try_from(age_ns).is_ok_and(|age_ns| age_ns > self.timeout_ns)
        };
        if let Some(expired) = self.path(digest).find(expired) {
            return expired;
        }
        let rank = |at: &usize| {
            let entry = &self.entries[*at];
            (entry.id & REFERENCED, entry.packets)
        };
        let home = digest as usize & (self.entries.len() - 1);
        let victim = self.path(digest).min_by_key(rank).unwrap_or(home);
        for at in self.path(digest) {
            self.entries[at].id &= !REFERENCED;
        }
        victim
    }

    /// Adds the flows of `other`.
    pub(super) fn merge(&mut self, other: &Self, digester: &Digester) {
        for entry in other.iter() {
            let digest = entry.key.digest(digester);
            self.add(entry.key, digest, entry.packets, entry.bytes, entry.time_ns);
        }
        if other.evictions > 0 {
            // Of any flow here, a part may have been there.
            for &at in &self.occupied[..self.flows] {
                self.entries[at as usize].id &= !WHOLE;
            }
        }
        self.evictions = self.evictions.saturating_add(other.evictions);
        self.evicted += other.evicted;
        self.saturated += other.saturated;
    }

    /// The flows in it.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry<K>> {
        let occupied = &self.occupied[..self.flows];
        occupied.iter().enumerate().map(move |(index, &at)| {
            if let Some(&ahead) = occupied.get(index + PREFETCH_AHEAD) {
                prefetch(&self.entries, ahead as usize);
            }
            &self.entries[at as usize]
        })
    }

    /// Flows that were evicted to make room, the same one more than once if it came back.
    pub(super) fn evictions(&self) -> u64 {
        self.evictions
    }

    /// What evicted flows had.
    pub(super) fn evicted(&self) -> Size {
        self.evicted
    }

    /// What full counters could not take.
    pub(super) fn saturated(&self) -> Size {
        self.saturated
    }

    /// Number of entries, probe limit, and timeout in nanoseconds.
    pub(super) fn shape(&self) -> (usize, u32, u64) {
        (self.entries.len(), self.probes, self.timeout_ns)
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.entries.memory_bytes() + self.occupied.memory_bytes()
    }

    pub(super) fn clear(&mut self) {
        for &at in &self.occupied[..self.flows] {
            self.entries[at as usize].id = 0;
        }
        self.flows = 0;
        self.evictions = 0;
        self.evicted = Size::default();
        self.saturated = Size::default();
    }

    /// Entries are stored with their places, which depend on what was evicted.
    pub(super) fn save(&self, out: &mut Writer) {
        out.number(self.evictions);
        out.size(self.evicted);
        out.size(self.saturated);
        out.number(self.flows as u64);
        for &at in &self.occupied[..self.flows] {
            let entry = &self.entries[at as usize];
            out.number(at);
            out.key(entry.key);
            out.number(entry.id & FLAGS);
            out.number(entry.packets);
            out.number(entry.bytes);
            out.number(entry.time_ns);
        }
    }

    /// Takes over a saved table; this one is empty.
    pub(super) fn load(
        &mut self,
        from: &mut Reader<'_>,
        digester: &Digester,
    ) -> Result<(), DecodeError> {
        self.evictions = from.number("evictions")?;
        self.evicted = from.size("evicted")?;
        self.saturated = from.size("saturated")?;
        for _ in 0..from.count("number of flows", self.entries.len())? {
            let at: u32 = from.number("place of an entry")?;
            let key: K = from.key("key")?;
            let flags: u32 = from.number("flags")?;
            let (packets, bytes) = (from.number("packets")?, from.number("bytes")?);
            let time_ns = from.number("time")?;
            let digest = key.digest(digester);
            let free = self.entries.get(at as usize).is_some_and(|entry| entry.id == 0);
            if !free || flags & !FLAGS != 0 || flags & OCCUPIED == 0 || packets == 0 {
                return Err(from.invalid("entry", Entry::<K>::STORED_BYTES, "it is no flow's"));
            }
            self.entries[at as usize] =
                Entry { key, id: id(digest) | flags, packets, bytes, time_ns };
            self.occupied[self.flows] = at;
            self.flows += 1;
        }
        let lost = |at: u32| {
            let key = self.entries[at as usize].key;
            !matches!(self.find(key, key.digest(digester)), Place::Found(found) if found == at as usize)
        };
        if self.occupied[..self.flows].iter().any(|&at| lost(at)) {
            return Err(from.invalid("entries", 0, "a flow is not where its key leads"));
        }
        Ok(())
    }
}
