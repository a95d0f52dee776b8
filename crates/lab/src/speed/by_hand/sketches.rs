//! Rows of counters, alone or with the keys that are heavy in them.

use bytemuck::Zeroable;
use flowgauge_kernel::Zeroed;

use super::{BATCH, ByHand, mix, zeroed};

const COLUMNS: usize = 1 << 16;

/// Four contiguous rows, so that lengths are constants.
type Rows<C> = [[C; COLUMNS]; 4];

/// How a packet updates its four counters.
pub(super) trait Rule {
    type Cell: Zeroable + Copy;
    /// Counts a packet; returns whether its key now exceeds the limit.
    fn add(rows: &mut Rows<Self::Cell>, columns: [usize; 4], digest: u64, limit: u32) -> bool;
}

/// Count-Min.
pub(super) struct CountMin;

impl Rule for CountMin {
    type Cell = u32;

    #[inline(always)]
    fn add(rows: &mut Rows<u32>, columns: [usize; 4], _: u64, limit: u32) -> bool {
        let mut least = u32::MAX;
        for row in 0..4 {
            rows[row][columns[row]] += 1;
            least = least.min(rows[row][columns[row]]);
        }
        least > limit
    }
}

/// Count-Min with conservative update. All counters are written, because a branch on which ones
/// change would be mispredicted.
pub(super) struct Conservative;

impl Rule for Conservative {
    type Cell = u32;

    #[inline(always)]
    fn add(rows: &mut Rows<u32>, columns: [usize; 4], _: u64, limit: u32) -> bool {
        let cells: [u32; 4] = std::array::from_fn(|row| rows[row][columns[row]]);
        let raised = cells[0].min(cells[1]).min(cells[2].min(cells[3])) + 1;
        (0..4).for_each(|row| rows[row][columns[row]] = cells[row].max(raised));
        raised > limit
    }
}

/// K-ary sketch: a key is heavy with at least two counters over the limit.
pub(super) struct KAry;

impl Rule for KAry {
    type Cell = u32;

    #[inline(always)]
    fn add(rows: &mut Rows<u32>, columns: [usize; 4], _: u64, limit: u32) -> bool {
        let mut over = 0;
        for row in 0..4 {
            rows[row][columns[row]] += 1;
            over += u32::from(rows[row][columns[row]] > limit);
        }
        over >= 2
    }
}

/// Count Sketch: signs from another word.
pub(super) struct CountSketch;

impl Rule for CountSketch {
    type Cell = i32;

    #[inline(always)]
    fn add(rows: &mut Rows<i32>, columns: [usize; 4], digest: u64, limit: u32) -> bool {
        let (signs, mut over) = (mix(digest, 0), 0);
        for row in 0..4 {
            let sign = 1 - 2 * ((signs >> row & 1) as i32);
            let cell = &mut rows[row][columns[row]];
            *cell += sign;
            over += u32::from(*cell * sign > limit.cast_signed());
        }
        over >= 2
    }
}

/// Four rows, with `LIST` also the keys over a thousandth of the packets so far.
pub(super) struct Sketch<R: Rule, const LIST: bool> {
    rows: Zeroed<Rows<R::Cell>>,
    heavy: Heavy,
    packets: u64,
}

/// Count-Min alone.
pub(super) type Yardstick = Sketch<CountMin, false>;

impl<R: Rule, const LIST: bool> Sketch<R, LIST> {
    pub(super) fn new() -> Self {
        Self { rows: zeroed(1), heavy: Heavy::new(), packets: 0 }
    }
}

impl<R: Rule, const LIST: bool> ByHand for Sketch<R, LIST> {
    fn clear(&mut self) {
        self.rows.as_flattened_mut().iter_mut().for_each(|row| row.fill(R::Cell::zeroed()));
        self.heavy.clear();
        self.packets = 0;
    }

    #[inline(always)]
    fn update(&mut self, keys: &[u64], digests: &[u64]) {
        let rows = &mut self.rows[0];
        let (mut listed, mut over, mut packets) = ([0_u8; BATCH], 0, self.packets);
        for (i, &digest) in digests.iter().enumerate() {
            packets += 1;
            let limit = (packets * 4_294_968) >> 32;
            let columns = std::array::from_fn(|row| usize::from((digest >> (16 * row)) as u16));
            let is_over = R::add(rows, columns, digest, limit as u32);
            if LIST {
                listed[over % BATCH] = i as u8;
                over += usize::from(is_over);
            }
        }
        self.packets = packets;
        for i in listed[..over].iter().map(|&i| usize::from(i)) {
            self.heavy.note(keys[i], digests[i]);
        }
    }
}

/// Capacity in keys.
const MOST: usize = 1 << 13;

/// Open addressing of tags, counts and keys; tag 0 is empty.
pub(super) struct Heavy {
    places: Vec<(u32, u32, u64)>,
    members: usize,
}

impl Heavy {
    pub(super) fn new() -> Self {
        Self { places: vec![(0, 0, 0); 2 * MOST], members: 0 }
    }

    pub(super) fn clear(&mut self) {
        self.places.fill((0, 0, 0));
        self.members = 0;
    }

    /// Adds a key, unless it is present or the set is full.
    #[inline(always)]
    pub(super) fn note(&mut self, key: u64, digest: u64) {
        self.find(key, digest);
    }

    /// Like [`note`](Self::note), and counts the key's packets from then on.
    #[inline(always)]
    pub(super) fn count(&mut self, key: u64, digest: u64) {
        if let Some(at) = self.find(key, digest) {
            self.places[at].1 = self.places[at].1.saturating_add(1);
        }
    }

    #[inline(always)]
    fn find(&mut self, key: u64, digest: u64) -> Option<usize> {
        let tag = (digest >> 32) as u32 | 1;
        let mut at = (tag >> 1) as usize & (2 * MOST - 1);
        while self.places[at].0 != 0 {
            if self.places[at].0 == tag && self.places[at].2 == key {
                return Some(at);
            }
            at = (at + 1) & (2 * MOST - 1);
        }
        if self.members == MOST {
            return None;
        }
        self.places[at] = (tag, 0, key);
        self.members += 1;
        Some(at)
    }
}
