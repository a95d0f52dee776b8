//! A monitor that finds the minimum count by a tournament, for weights of any size: for bytes.
//!
//! Four entries play a match, the winners of four neighbouring matches play the next match, and so
//! on: the overall winner is the entry with the minimum count. Results are kept and may be stale:
//! counts grow, and a match is replayed only when its winner is needed. So a packet of a key with
//! an entry does not touch the tournament; the replays for many packets are done at once when a key
//! without an entry needs the minimum. The winner is valid if its result still equals its count,
//! since no count is below its last result.
//!
//! Replaying a match takes a fixed number of steps without branches. In a heap an entry sinks by a
//! number of levels that the processor cannot predict.

use std::cell::OnceCell;

use bytemuck::Zeroable;
use flowgauge_kernel::{Digester, Zeroed};

use super::index::Index;
use super::{Entry, Monitor};
use crate::key::FlowKey;
use crate::summary::{BuildError, Counter, Memory};

/// Players in a match.
const PLAYERS: usize = 4;

/// The winner of a match: its count at that time, and the number of its entry.
#[derive(Clone, Copy, Zeroable)]
#[repr(C)]
struct Winner {
    count: u64,
    entry: u32,
}

impl Winner {
    /// The player with the smaller count, the first of equal ones. Compiles to a selection, since a
    /// branch would be unpredictable.
    #[inline(always)]
    fn or(self, other: Self) -> Self {
        if other.count < self.count { other } else { self }
    }
}

/// The winner of match number `index` among `players`.
#[inline(always)]
fn play<P>(players: &[P], index: usize, player: impl Fn(usize, &P) -> Winner) -> Winner {
    let first = PLAYERS * index;
    if let Some([a, b, c, d]) = players.get(first..first + PLAYERS) {
        let (a, b) = (player(first, a), player(first + 1, b));
        let (c, d) = (player(first + 2, c), player(first + 3, d));
        return a.or(b).or(c.or(d));
    }
    let rest = players[first..].iter().enumerate();
    rest.map(|(i, other)| player(first + i, other)).reduce(Winner::or).unwrap_or(Winner::zeroed())
}

/// The entries behind an index, and the tournament over them.
///
/// Cost per packet: one index search and one addition; a key without an entry replays log₄(entries)
/// matches. Memory in bytes: see [`Monitor::bytes`].
pub(in crate::summary) struct Tournament<K> {
    digester: Digester,
    entries: Zeroed<Entry<K, u64>>,
    /// The winners, round by round; the last is the overall winner. Valid while all entries are in
    /// use.
    winners: Zeroed<Winner>,
    index: Index,
    len: usize,
    saturated: u64,
    /// The minimum count, if it was computed since the last change.
    min_count: OnceCell<u64>,
}

/// The number of matches in all rounds.
const fn matches(entries: usize) -> usize {
    let mut round = entries.div_ceil(PLAYERS);
    let mut sum = round;
    while round > 1 {
        round = round.div_ceil(PLAYERS);
        sum += round;
    }
    sum
}

impl<K: FlowKey> Tournament<K> {
    #[inline(always)]
    fn find(&self, key: K, digest: u64) -> Option<usize> {
        let entries = &*self.entries;
        self.index.find(digest, |entry| entries[entry].key == key)
    }

    /// Replays match number `index` of the first round and the matches above it.
    #[inline(always)]
    fn play_from(&mut self, mut index: usize) {
        let mut winner = play(&self.entries, index, |entry, player: &Entry<K, u64>| Winner {
            count: player.count,
            entry: entry as u32,
        });
        let (mut start, mut round) = (0, self.entries.len().div_ceil(PLAYERS));
        loop {
            self.winners[start + index] = winner;
            if round == 1 {
                break;
            }
            index /= PLAYERS;
            winner = play(&self.winners[start..start + round], index, |_, player| *player);
            start += round;
            round = round.div_ceil(PLAYERS);
        }
    }

    /// The entry with the minimum count, the first of several.
    #[inline(always)]
    fn find_min(&mut self) -> usize {
        loop {
            let last = self.winners.len() - 1;
            let Winner { count, entry } = self.winners[last];
            let entry = entry as usize;
            if self.entries[entry].count == count {
                return entry;
            }
            self.play_from(entry / PLAYERS);
        }
    }

    /// Puts a key into a free entry, or replaces the key with the minimum count.
    fn replace_min(&mut self, key: K, digest: u64, weight: u64) {
        if self.len < self.entries.len() {
            return self.append(Entry { key, count: weight, error: 0 }, digest);
        }
        let place = self.find_min();
        let Entry { key: before, count: error, .. } = self.entries[place];
        self.index.remove(place, || before.digest(&self.digester));
        self.index.insert(digest, place);
        let mut count = error;
        self.saturated = self.saturated.saturating_add(count.add(weight));
        self.entries[place] = Entry { key, count, error };
        self.play_from(place / PLAYERS);
    }
}

impl<K: FlowKey> Monitor<K, u64> for Tournament<K> {
    fn bytes(entries: usize) -> usize {
        entries * size_of::<Entry<K, u64>>()
            + matches(entries) * size_of::<Winner>()
            + Index::memory_bytes(entries)
    }

    fn new(entries: usize, digester: Digester, memory: &Memory) -> Result<Self, BuildError> {
        Ok(Self {
            digester,
            entries: memory.zeroed(entries)?,
            winners: memory.zeroed(matches(entries))?,
            index: Index::new(entries, memory)?,
            len: 0,
            saturated: 0,
            min_count: OnceCell::new(),
        })
    }

    fn digester(&self) -> &Digester {
        &self.digester
    }

    fn capacity(&self) -> usize {
        self.entries.len()
    }

    #[inline(always)]
    fn index(&self) -> &Index {
        &self.index
    }

    fn index_mut(&mut self) -> &mut Index {
        &mut self.index
    }

    #[inline(always)]
    fn invalidate(&mut self) {
        self.min_count.take();
    }

    #[inline(always)]
    fn add(&mut self, key: K, digest: u64, weight: u64) {
        match self.find(key, digest) {
            Some(entry) => {
                let lost = self.entries[entry].count.add(weight);
                self.saturated = self.saturated.saturating_add(lost);
            }
            None if self.index.has_room(digest) => self.replace_min(key, digest, weight),
            None => self.index.add_untracked(weight),
        }
    }

    fn append(&mut self, entry: Entry<K, u64>, digest: u64) {
        self.invalidate();
        self.entries[self.len] = entry;
        self.index.insert(digest, self.len);
        self.len += 1;
        if self.len == self.entries.len() {
            (0..self.len.div_ceil(PLAYERS)).for_each(|first| self.play_from(first));
        }
    }

    fn entries(&self) -> impl Iterator<Item = Entry<K, u64>> {
        self.entries[..self.len].iter().copied()
    }

    fn entry(&self, key: K) -> Option<Entry<K, u64>> {
        self.find(key, key.digest(&self.digester)).map(|entry| self.entries[entry])
    }

    fn min_count(&self) -> u64 {
        if self.len < self.entries.len() {
            return 0;
        }
        let min = || self.entries.iter().map(|entry| entry.count).min().unwrap_or(0);
        *self.min_count.get_or_init(min)
    }

    fn saturated(&self) -> u64 {
        self.saturated
    }

    fn set_saturated(&mut self, saturated: u64) {
        self.saturated = saturated;
    }

    fn clear(&mut self) {
        self.index.clear();
        (self.len, self.saturated) = (0, 0);
    }
}
