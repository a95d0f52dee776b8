//! A monitor whose least entry is found by a tournament, for weights of any size: for bytes.
//!
//! Four entries play a match, four winners of neighbouring matches play the next, and so on: the
//! winner of all is the entry of the least count. Results are kept, and may be old: counts grow, and
//! a match is played again only when its winner is asked for. So a packet of a key with an entry does
//! not touch the tournament, and what its count has outgrown is made up for, many packets at once,
//! when a key without an entry asks for the least. The winner stands where its result is still its
//! count, since no other entry's count is below its last result.
//!
//! A match again takes a fixed number of steps without a branch; a heap's sinking entry stops
//! somewhere, which a processor cannot foresee.

use std::cell::OnceCell;

use bytemuck::Zeroable;
use flowgauge_kernel::{Digester, Zeroed};

use super::super::{BuildError, Counter, Memory};
use super::index::Index;
use super::monitor::{Entry, Monitor};
use crate::key::FlowKey;

/// Players of a match.
const PLAYERS: usize = 4;

/// The winner of a match: its count at that time, and the number of the entry.
#[derive(Clone, Copy, Zeroable)]
#[repr(C)]
struct Winner {
    count: u64,
    entry: u32,
}

impl Winner {
    /// The first of the lesser count: selected without a branch, whose outcome would be random.
    #[inline(always)]
    fn or(self, other: Self) -> Self {
        if other.count < self.count { other } else { self }
    }
}

/// The winner of the match number `index` among `players`.
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

/// Entries behind an index, and the tournament over them.
///
/// Cost: one search in the index and one add; a key without an entry has one match for every factor
/// of four in their number played again. Memory in bytes: see [`Monitor::bytes`].
pub(in crate::summary) struct Tournament<K> {
    digester: Digester,
    entries: Zeroed<Entry<K, u64>>,
    /// The winners, round after round; the last is the winner of all. In use while all entries are
    /// taken.
    winners: Zeroed<Winner>,
    index: Index,
    taken: usize,
    excess: u64,
    /// The least count, where it was asked for since it changed.
    unheld: OnceCell<u64>,
}

/// Matches of all rounds among so many entries.
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

    /// Plays the matches number `index` and above that its winner goes on to, round by round.
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

    /// The entry of the least count, the first of several.
    #[inline(always)]
    fn least(&mut self) -> usize {
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

    /// Puts a key into the entry of the least count.
    fn take_over(&mut self, key: K, digest: u64, weight: u64) {
        if self.taken < self.entries.len() {
            return self.append(Entry { key, count: weight, error: 0 }, digest);
        }
        let place = self.least();
        let Entry { key: before, count: error, .. } = self.entries[place];
        self.index.remove(place, || before.digest(&self.digester));
        self.index.insert(digest, place);
        let mut count = error;
        self.excess = self.excess.saturating_add(count.add(weight));
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
            taken: 0,
            excess: 0,
            unheld: OnceCell::new(),
        })
    }

    fn digester(&self) -> &Digester {
        &self.digester
    }

    fn most(&self) -> usize {
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
    fn change(&mut self) {
        self.unheld.take();
    }

    #[inline(always)]
    fn add(&mut self, key: K, digest: u64, weight: u64) {
        match self.find(key, digest) {
            Some(entry) => {
                let excess = self.entries[entry].count.add(weight);
                self.excess = self.excess.saturating_add(excess);
            }
            None if self.index.has_room(digest) => self.take_over(key, digest, weight),
            None => self.index.refuse(weight),
        }
    }

    fn append(&mut self, entry: Entry<K, u64>, digest: u64) {
        self.change();
        self.entries[self.taken] = entry;
        self.index.insert(digest, self.taken);
        self.taken += 1;
        if self.taken == self.entries.len() {
            (0..self.taken.div_ceil(PLAYERS)).for_each(|first| self.play_from(first));
        }
    }

    fn entries(&self) -> impl Iterator<Item = Entry<K, u64>> {
        self.entries[..self.taken].iter().copied()
    }

    fn entry(&self, key: K) -> Option<Entry<K, u64>> {
        self.find(key, key.digest(&self.digester)).map(|entry| self.entries[entry])
    }

    fn unheld(&self) -> u64 {
        if self.taken < self.entries.len() {
            return 0;
        }
        let least = || self.entries.iter().map(|entry| entry.count).min().unwrap_or(0);
        *self.unheld.get_or_init(least)
    }

    fn excess(&self) -> u64 {
        self.excess
    }

    fn set_excess(&mut self, excess: u64) {
        self.excess = excess;
    }

    fn clear(&mut self) {
        self.index.clear();
        (self.taken, self.excess) = (0, 0);
    }
}
