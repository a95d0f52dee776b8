//! The working set of active flows (WSAF): a flow table that evicts.
//!
//! Paper: InstaMeasure (ICDCS 2019), §3.B. Triangular probing (h + i/2 + i²/2) up to a limit. A new
//! flow that finds no empty entry within the limit evicts an expired one. If none has expired, it
//! evicts the smallest of the entries that were not updated since the last eviction on their path
//! (second chance).

use bytemuck::Zeroable;
use flowgauge_kernel::{Digester, Zeroed, prefetch};

use crate::batch::Batch;
use crate::key::{CanonicalKey, FlowKey};
use crate::summary::codec::{DecodeError, Reader, Writer};
use crate::summary::ingest::{Basis, twin};
use crate::summary::{
    Answers, BuildError, Candidates, Counter, Incompatible, Ingest, Options, Parameter, Setting,
    SizeEstimate, SizeQuery, Summary,
};
use crate::terms::Size;

/// Default probe limit. A longer path costs more in a full table, a shorter one evicts before the
/// table is full.
const PROBES: u64 = 16;

/// Default number of seconds without a packet after which a flow is evicted first.
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

/// Entries between the prefetch of an entry and its visit.
const PREFETCH_AHEAD: usize = 64;

/// Flags next to the upper digest bits in [`Entry::id`].
const OCCUPIED: u32 = 1;
/// Updated since its insertion or the last eviction on its path.
const REFERENCED: u32 = 2;
/// Inserted before any eviction, so that it counts all packets of its flow.
const WHOLE: u32 = 4;
const FLAGS: u32 = OCCUPIED | REFERENCED | WHOLE;

/// An entry of the working set: a flow.
#[derive(Clone, Copy, Zeroable)]
#[repr(C)]
struct Entry<K> {
    key: K,
    id: u32,
    /// Packets that reached the table.
    packets: u32,
    /// Bytes of these packets.
    bytes: u64,
    /// Time of the last of these packets.
    time_ns: i64,
}

impl<K: FlowKey> Entry<K> {
    /// Bytes of the stored form without the key.
    const STORED_BYTES: usize = 4 + 4 + 4 + 8 + 8;

    #[inline(always)]
    fn is_of(&self, key: K, digest: u64) -> bool {
        (self.id ^ id(digest)) & !(REFERENCED | WHOLE) == 0 && self.key == key
    }

    fn size(&self) -> Size {
        Size { packets: u64::from(self.packets), bytes: self.bytes }
    }

    /// Whether no packet of the flow can have been evicted.
    fn is_whole(&self) -> bool {
        self.id & WHOLE != 0
    }
}

/// The flow id of an occupied entry.
#[inline(always)]
fn id(digest: u64) -> u32 {
    (digest >> 32) as u32 & !FLAGS | OCCUPIED
}

/// The result of a search for a key.
enum Place {
    Found(usize),
    Empty(usize),
    Full,
}

/// The flow table. All its sizes count the packets that reached it.
///
/// Cost per packet: one prefetched entry. Memory in bytes: `entries × (size_of::<K>() + 24, rounded
/// up to 8) + 4 × entries` (the list of entries in use): 44 per entry for IPv4 five-tuples, 68 for
/// IPv6.
///
/// ```
/// use flowgauge_core::batch::Batch;
/// use flowgauge_core::key::{FlowKey, Key8};
/// use flowgauge_core::summary::instant::WorkingSet;
/// use flowgauge_core::summary::{Ingest, Options, SizeQuery};
///
/// let options = Options::new(1 << 16, 1).for_keys(4);
/// let mut table = WorkingSet::<Key8>::from_options(&options, 1 << 16).unwrap();
/// let key = Key8::from_canonical(&[192, 0, 2, 1]).unwrap();
/// let mut batch = Batch::new();
/// (0..200).for_each(|time_ns| batch.push(key, 64, time_ns));
/// table.ingest(&mut batch);
/// let bytes = table.estimate(&[192, 0, 2, 1]).bytes.unwrap();
/// assert_eq!((bytes.low, bytes.high), (12_800.0, 12_800.0));
/// ```
pub struct WorkingSet<K> {
    digester: Digester,
    entries: Zeroed<Entry<K>>,
    /// Numbers of the entries in use, in the order of their first use.
    occupied: Zeroed<u32>,
    flows: usize,
    probes: u32,
    timeout_ns: u64,
    evictions: u64,
    evicted: Size,
    saturated: Size,
}

impl<K: FlowKey> WorkingSet<K> {
    const ENTRY_BYTES: usize = size_of::<Entry<K>>() + size_of::<u32>();

    /// A table of as many entries as its parameters give, or as fit into `memory_bytes`.
    ///
    /// # Errors
    /// If a parameter is out of range, or the memory does not suffice.
    ///
    /// # Panics
    /// When no key of type `K` has the length that the options give.
    pub fn from_options(options: &Options, memory_bytes: usize) -> Result<Self, BuildError> {
        let parameters = &options.parameters;
        let entries = parameters.power_of_two("entries", memory_bytes, Self::ENTRY_BYTES)?;
        let probes = parameters.integer("probes", 1..=1024)?.unwrap_or(PROBES) as u32;
        let timeout = parameters.integer("timeout", 1..=u64::from(u32::MAX))?;
        Ok(Self {
            digester: options.digester_for::<K>(),
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

    /// The entries to probe for a key, in order.
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

    fn get(&self, key: K, digest: u64) -> Option<&Entry<K>> {
        match self.find(key, digest) {
            Place::Found(at) => Some(&self.entries[at]),
            Place::Empty(_) | Place::Full => None,
        }
    }

    /// Prefetches the first entry to probe for a flow with this digest.
    #[inline(always)]
    pub(super) fn prefetch(&self, digest: u64) {
        prefetch(&self.entries, digest as usize & (self.entries.len() - 1));
    }

    /// Counts `packets` packets with `bytes` bytes in total.
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

    /// The entry on its path that a new flow evicts.
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

impl<K: FlowKey> Ingest<K> for WorkingSet<K> {
    fn ingest(&mut self, batch: &mut Batch<K>) {
        batch.digest(&self.digester);
        for &digest in batch.digests() {
            self.prefetch(digest);
        }
        for (i, &digest) in batch.digests().iter().enumerate() {
            let (packets, bytes) = (batch.packets()[i], batch.bytes()[i]);
            self.add(batch.keys()[i], digest, packets, bytes, batch.times_ns()[i]);
        }
    }
}

impl<K: FlowKey> Summary<K> for WorkingSet<K> {
    fn answers(&self) -> &dyn Answers {
        self
    }

    fn merge(&mut self, other: &dyn Summary<K>) -> Result<(), Incompatible> {
        let other = twin(self, other, |table| Basis::of(&table.digester))?;
        for entry in other.iter() {
            let digest = entry.key.digest(&self.digester);
            self.add(entry.key, digest, entry.packets, entry.bytes, entry.time_ns);
        }
        if other.evictions > 0 {
            // Packets of any flow may have been evicted from the other table.
            for &at in &self.occupied[..self.flows] {
                self.entries[at as usize].id &= !WHOLE;
            }
        }
        self.evictions = self.evictions.saturating_add(other.evictions);
        self.evicted += other.evicted;
        self.saturated += other.saturated;
        Ok(())
    }

    /// Entries are stored with their places, which depend on earlier evictions.
    fn save(&self, out: &mut Writer) {
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

    fn load(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.evictions = from.number("evictions")?;
        self.evicted = from.size("evicted")?;
        self.saturated = from.size("saturated")?;
        for _ in 0..from.count("number of flows", self.entries.len())? {
            let at: u32 = from.number("place of an entry")?;
            let key: K = from.key("key")?;
            let flags: u32 = from.number("flags")?;
            let (packets, bytes) = (from.number("packets")?, from.number("bytes")?);
            let time_ns = from.number("time")?;
            let digest = key.digest(&self.digester);
            let free = self.entries.get(at as usize).is_some_and(|entry| entry.id == 0);
            if !free || flags & !FLAGS != 0 || flags & OCCUPIED == 0 || packets == 0 {
                let width = from.key_bytes() + Entry::<K>::STORED_BYTES;
                return Err(from.invalid("entry", width, "it belongs to no flow"));
            }
            self.entries[at as usize] =
                Entry { key, id: id(digest) | flags, packets, bytes, time_ns };
            self.occupied[self.flows] = at;
            self.flows += 1;
        }
        let lost = |at: u32| {
            let key = self.entries[at as usize].key;
            let place = self.find(key, key.digest(&self.digester));
            !matches!(place, Place::Found(found) if found == at as usize)
        };
        if self.occupied[..self.flows].iter().any(|&at| lost(at)) {
            return Err(from.invalid("entries", 0, "an entry is not where its key is looked up"));
        }
        Ok(())
    }

    fn clear(&mut self) {
        for &at in &self.occupied[..self.flows] {
            self.entries[at as usize].id = 0;
        }
        self.flows = 0;
        self.evictions = 0;
        self.evicted = Size::default();
        self.saturated = Size::default();
    }

    fn parameters(&self) -> Vec<(&'static str, Setting)> {
        vec![
            ("entries", Setting::Integer(self.entries.len() as u64)),
            ("probes", Setting::Integer(self.probes.into())),
            ("timeout", Setting::Integer(self.timeout_ns / 1_000_000_000)),
        ]
    }

    fn memory_bytes(&self) -> usize {
        self.entries.memory_bytes() + self.occupied.memory_bytes()
    }
}

impl<K: FlowKey> WorkingSet<K> {
    /// The size of a flow of which `size` was counted; `whole` means that no part of it was
    /// evicted.
    fn counted(&self, size: Size, whole: bool) -> SizeEstimate {
        let evicted = if whole { Size::default() } else { self.evicted };
        SizeEstimate::between(size, size, size + self.saturated + evicted)
    }
}

impl<K: FlowKey> Answers for WorkingSet<K> {
    fn untracked(&self) -> Size {
        self.evicted
    }
    fn saturated(&self) -> Size {
        self.saturated
    }
    fn size(&self) -> Option<&dyn SizeQuery> {
        Some(self)
    }
    fn candidates(&self) -> Option<&dyn Candidates> {
        Some(self)
    }
}

impl<K: FlowKey> SizeQuery for WorkingSet<K> {
    fn estimate(&self, key: &[u8]) -> SizeEstimate {
        let Some(key) = K::matching(key, &self.digester) else {
            return SizeEstimate::exact(Size::default());
        };
        match self.get(key, key.digest(&self.digester)) {
            Some(entry) => self.counted(entry.size(), entry.is_whole()),
            None => self.counted(Size::default(), self.evictions == 0),
        }
    }
}

impl<K: FlowKey> Candidates for WorkingSet<K> {
    fn for_each(&self, visit: &mut dyn FnMut(CanonicalKey, SizeEstimate)) {
        for entry in self.iter() {
            let size = self.counted(entry.size(), entry.is_whole());
            visit(entry.key.to_canonical(&self.digester), size);
        }
    }

    fn overflow(&self) -> u64 {
        self.evictions
    }
}
