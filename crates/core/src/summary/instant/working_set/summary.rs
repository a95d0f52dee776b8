//! The working set as a summary: what it counts, and what it may have lost.

use super::super::super::codec::{DecodeError, Reader, Writer};
use super::super::super::ingest::{Basis, twin};
use super::super::super::{
    Answers, Candidates, Incompatible, Ingest, Setting, SizeEstimate, SizeQuery, Summary,
};
use super::{Entry, FLAGS, OCCUPIED, Place, WHOLE, WorkingSet, id};
use crate::batch::Batch;
use crate::key::{CanonicalKey, FlowKey};
use crate::terms::Size;

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
            // Of any flow here, a part may have been there.
            for &at in &self.occupied[..self.flows] {
                self.entries[at as usize].id &= !WHOLE;
            }
        }
        self.evictions = self.evictions.saturating_add(other.evictions);
        self.evicted += other.evicted;
        self.saturated += other.saturated;
        Ok(())
    }

    /// Entries are stored with their places, which depend on what was evicted.
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
            return Err(from.invalid("entries", 0, "a flow is not where its key leads"));
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
    /// The size of a flow of which `size` was counted; `whole` says that no part of it was evicted.
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
