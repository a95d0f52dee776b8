//! Heavy states that other keys displaced, in a small exact table.
//!
//! A slot that two keys share changes hands with each of their packets, and the heavier key would
//! lose all it had. So a state that outweighs an eighth of the threshold is kept here, added to the
//! earlier state of its key. A share θ of the weight leaves fewer than 8/θ such states: a full
//! table first drops those that have become lighter than that.

use flowgauge_kernel::Digester;

use crate::key::FlowKey;
use crate::summary::codec::{DecodeError, Reader, StepBudget, Writer};
use crate::summary::ingest::Basis;
use crate::summary::state::{Past, State};
use crate::summary::table::{Layout, Linear, MOST_BUCKETS};
use crate::summary::{BuildError, BuildErrorKind, Options};
use crate::terms::{Measure, Size, Threshold};

/// Weight above which a displaced state is kept, as a fraction of the threshold.
const PART: f64 = 1.0 / 8.0;

/// Up to `most` displaced states, one per key.
///
/// Memory in bytes: `most × (8 + size_of::<K>() + size_of::<S>(), rounded up to the key's
/// alignment)`.
pub(super) struct Displaced<K, S> {
    digester: Digester,
    /// `None` if no states are kept.
    table: Option<Linear<K, S>>,
    by: Measure,
    threshold: Threshold,
    spread: u64,
    /// The total weight of the last epoch.
    before: u64,
    /// The limit that must be reached before the table is pruned again.
    prune_at: f64,
    overflow: u64,
    /// The weight of lost states.
    pub(super) lost: Size,
}

impl<K: FlowKey, S: State> Displaced<K, S> {
    /// Bytes reserved per state.
    pub(super) const BYTES_PER_STATE: usize = Linear::<K, S>::bytes_per_flow();

    /// Reserves room for `most` states, a power of two or 0.
    pub(super) fn new(most: usize, options: &Options) -> Result<Self, BuildError> {
        if most as u64 > MOST_BUCKETS / 2 {
            return Err(BuildErrorKind::OutOfRange {
                name: "candidates",
                value: most.to_string(),
                range: format!("0 or a power of two from 2 to {}", MOST_BUCKETS / 2),
            }
            .into());
        }
        let table = if most == 0 { None } else { Some(Linear::with_room(most, &options.memory)?) };
        Ok(Self {
            digester: options.digester,
            table,
            by: options.by,
            threshold: options.threshold,
            spread: options.spread,
            before: 0,
            prune_at: 0.0,
            overflow: 0,
            lost: Size::default(),
        })
    }

    /// Adds the options that kept states depend on to `basis`.
    pub(super) fn basis<'a>(&self, basis: Basis<'a>) -> Basis<'a> {
        match (&self.table, S::ELEMENTS) {
            (None, _) => basis,
            (_, true) => Basis { spread: Some(self.spread), ..basis },
            _ => Basis { by: Some(self.by), threshold: Some(self.threshold), ..basis },
        }
    }

    /// Weight above which a displaced state is kept, after packets of `total` weight.
    pub(super) fn limit(&self, total: u64) -> f64 {
        match &self.table {
            None => f64::INFINITY,
            Some(_) if S::ELEMENTS => PART * self.spread as f64,
            // A forecast is weighed by the last epoch.
            Some(_) => PART * self.threshold.weight(total.max(self.before)),
        }
    }

    /// Largest number of states.
    pub(super) fn most(&self) -> usize {
        self.table.as_ref().map_or(0, Layout::most)
    }

    /// Keeps a displaced state if it outweighs the limit and there is room; otherwise it is lost.
    /// Returns what a counter had no room for.
    #[cold]
    #[inline(never)]
    pub(super) fn take(&mut self, key: K, state: &S, total: u64, past: &mut Past) -> Size {
        let limit = self.limit(total);
        if state.outweighs(limit, self.by) {
            if let Some(own) = self.place(key, limit, past) {
                return own.merge(state);
            }
            self.overflow = self.overflow.saturating_add(1);
        }
        lose(state, &mut self.lost, past);
        Size::default()
    }

    /// The state of this key, inserted if there is none and there is room.
    fn place(&mut self, key: K, limit: f64, past: &mut Past) -> Option<&mut S> {
        let digest = key.digest(&self.digester);
        let table = self.table.as_ref()?;
        let found = table.find(key, digest);
        if found.is_none() && table.len() == table.most() && limit >= self.prune_at {
            // Pruning costs a pass over the table: the limit must have grown by an eighth before
            // the next.
            self.prune_at = (limit * 1.125).max(f64::MIN_POSITIVE);
            self.retain(limit, past, &mut |_| true);
        }
        let table = self.table.as_mut()?;
        let flow = found.or_else(|| table.insert(key, digest, &self.digester, None))?;
        Some(table.state_mut(flow))
    }

    /// Keeps the states for which `stays` returns true, if they then outweigh `limit`.
    fn retain(&mut self, limit: f64, past: &mut Past, stays: &mut dyn FnMut(&mut S) -> bool) {
        let Some(table) = &mut self.table else { return };
        let (by, lost) = (self.by, &mut self.lost);
        table.retain(&self.digester, &mut |state| {
            let stays = stays(state) && state.outweighs(limit, by);
            if !stays {
                lose(state, lost, past);
            }
            stays
        });
    }

    /// The displaced state of this key.
    pub(super) fn find(&self, key: K, digest: u64) -> Option<&S> {
        let table = self.table.as_ref()?;
        table.find(key, digest).map(|flow| table.state(flow))
    }

    /// All displaced states with their keys.
    pub(super) fn iter(&self) -> impl Iterator<Item = (K, &S)> {
        self.table
            .iter()
            .flat_map(|table| (0..table.len()).map(|flow| (*table.key(flow), table.state(flow))))
    }

    /// Number of states above the limit that found no room.
    pub(super) fn overflow(&self) -> u64 {
        self.overflow
    }

    /// Begins an epoch after one of `total` weight with the past `past`. States that then do not
    /// outweigh the limit are lost to the past `now`.
    pub(super) fn next_epoch(&mut self, total: u64, past: &Past, now: &mut Past) {
        self.forget();
        self.before = total;
        self.retain(self.limit(total), now, &mut |state| state.next_epoch(past));
        self.lost = Size::default();
    }

    pub(super) fn clear(&mut self) {
        if let Some(table) = &mut self.table {
            table.clear(&self.digester);
        }
        self.forget();
        self.before = 0;
    }

    fn forget(&mut self) {
        (self.prune_at, self.overflow, self.lost) = (0.0, 0, Size::default());
    }

    /// Adds the states of `other` that outweigh the limit after packets of `total` weight; returns
    /// what counters had no room for.
    pub(super) fn merge(&mut self, other: &Self, total: u64, past: &mut Past) -> Size {
        self.before = self.before.saturating_add(other.before);
        self.lost += other.lost;
        self.overflow = self.overflow.saturating_add(other.overflow);
        other.iter().map(|(key, state)| self.take(key, state, total, past)).sum()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.table.as_ref().map_or(0, Layout::memory_bytes)
    }

    pub(super) fn save(&self, out: &mut Writer) {
        out.size(self.lost);
        if S::LASTING {
            out.number(self.before);
        }
        out.number(self.overflow);
        out.number(self.prune_at);
        out.number(self.table.as_ref().map_or(0, Layout::len) as u64);
        out.sorted(out.key_bytes() + S::STORED_BYTES, |out| {
            for (key, state) in self.iter() {
                out.key(key);
                state.save(out);
            }
        });
    }

    /// Loads saved states; this table must be empty.
    pub(super) fn load(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.lost = from.size("displaced")?;
        if S::LASTING {
            self.before = from.number("total before")?;
        }
        self.overflow = from.number("overflow of the candidates")?;
        self.prune_at = from.number("threshold of the candidates")?;
        if !(0.0..=f64::MAX).contains(&self.prune_at) {
            return Err(from.invalid("threshold of the candidates", 8, "it is not a weight"));
        }
        let count = from.count("number of candidates", self.most())?;
        let Some(table) = &mut self.table else { return Ok(()) };
        let (mut budget, mut before) = (StepBudget::new(count), None);
        for _ in 0..count {
            let key: K = from.next_key("candidate", &mut before)?;
            let state = S::load(from)?;
            let digest = key.digest(&self.digester);
            let Some(flow) = table.insert(key, digest, &self.digester, Some(&mut budget)) else {
                let width = from.key_bytes() + S::STORED_BYTES;
                return Err(from.invalid("candidate", width, "it collides with other keys"));
            };
            *table.state_mut(flow) = state;
        }
        Ok(())
    }
}

/// Records a lost state.
#[inline(always)]
pub(super) fn lose<S: State>(state: &S, lost: &mut Size, past: &mut Past) {
    *lost += state.size();
    if let Some(ewma) = state.ewma() {
        past.lose(ewma);
    }
}
