//! WSAF, the working set of active flows: a flow table that evicts.
//!
//! Paper: InstaMeasure (ICDCS 2019), §3.B. Triangular probing (h + i/2 + i²/2) up to a limit. A new
//! flow that finds no empty entry within the limit takes over one that has expired, and else the
//! least of those that were not updated since they were last passed over: their second chance.

mod summary;

use bytemuck::Zeroable;
use flowgauge_kernel::{Digester, Zeroed, prefetch};

use super::super::{BuildError, Counter, Options, Parameter};
use crate::key::FlowKey;
use crate::terms::Size;

/// Entries that are probed for a flow. Longer paths cost more where the table is full, shorter
/// ones evict before it is.
const PROBES: u64 = 16;

/// Seconds without a packet after which a flow may go before others.
const TIMEOUT_SECONDS: u64 = 15;

pub(super) const ENTRIES: Parameter = Parameter {
    name: "entries",
    help: "entries of the flow table, a power of two (default: what fits into the memory)",
};
pub(super) const PROBE_LIMIT: Parameter = Parameter {
    name: "probes",
    help: "entries that a flow may use before one of them is evicted (default: 16)",
};
pub(super) const TIMEOUT: Parameter = Parameter {
    name: "timeout",
    help: "seconds without a packet after which a flow is evicted first (default: 15)",
};

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
struct Entry<K> {
    key: K,
    id: u32,
    /// Packets that reached the table.
    packets: u32,
    /// Bytes of these.
    bytes: u64,
    /// Time of the last of them.
    time_ns: i64,
}

impl<K: FlowKey> Entry<K> {
    /// Bytes of the stored form beside the key.
    const STORED_BYTES: usize = 4 + 4 + 4 + 8 + 8;

    #[inline(always)]
    fn is_of(&self, key: K, digest: u64) -> bool {
        (self.id ^ id(digest)) & !(REFERENCED | WHOLE) == 0 && self.key == key
    }

    /// What reached the table.
    fn size(&self) -> Size {
        Size { packets: u64::from(self.packets), bytes: self.bytes }
    }

    /// Whether it lost no part of its flow to an earlier eviction.
    fn is_whole(&self) -> bool {
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
/// Cost: an entry, asked for ahead. Memory in bytes: `entries × (size_of::<K>() + 24, rounded up to
/// 8) + 4 × entries`, these to list the occupied ones: 44 for each IPv4 five-tuple, 68 for IPv6.
pub struct WorkingSet<K> {
    digester: Digester,
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
    const ENTRY_BYTES: usize = size_of::<Entry<K>>() + size_of::<u32>();

    /// A table of as many entries as its parameters say, or as fit into `memory_bytes`.
    ///
    /// # Errors
    /// When a parameter is out of range, or the memory does not suffice.
    pub fn from_options(options: &Options, memory_bytes: usize) -> Result<Self, BuildError> {
        let parameters = &options.parameters;
        let entries = parameters.power_of_two("entries", memory_bytes, Self::ENTRY_BYTES)?;
        let probes = parameters.integer("probes", 1..=1024)?.unwrap_or(PROBES) as u32;
        let timeout = parameters.integer("timeout", 1..=u64::from(u32::MAX))?;
        Ok(Self {
            digester: options.digester,
            entries: options.memory.zeroed(entries)?,
            occupied: options.memory.zeroed(entries)?,
            flows: 0,
            probes,
            timeout_ns: timeout.unwrap_or(TIMEOUT_SECONDS).saturating_mul(1_000_000_000),
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
    fn get(&self, key: K, digest: u64) -> Option<&Entry<K>> {
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

    /// The flows in it.
    fn iter(&self) -> impl Iterator<Item = &Entry<K>> {
        let occupied = &self.occupied[..self.flows];
        occupied.iter().enumerate().map(move |(index, &at)| {
            if let Some(&ahead) = occupied.get(index + PREFETCH_AHEAD) {
                prefetch(&self.entries, ahead as usize);
            }
            &self.entries[at as usize]
        })
    }
}
