//! Rows of counters, with or without the keys that are heavy in them, and modular hashing.

use bytemuck::Zeroable;
use flowgauge_core::batch::Batch;
use flowgauge_core::key::Key8;
use flowgauge_kernel::{Digester, Zeroed};

use super::super::contestant::{Contestant, FRAME_BYTES};
use super::super::stream::Stream;
use super::{BATCH, ByHand, ask, mix, words, zeroed};

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

/// Rows by modular hashing, and rows in all.
const ROWS: usize = 8;
const ALL_ROWS: usize = ROWS + 1;

/// Bitmaps per row, words per bitmap, and columns that share one.
const BITMAPS: usize = 1 << 12;
const WORDS: usize = 4;
const SHARED: usize = COLUMNS / BITMAPS;

/// Permutations of bytes: two for each row with modular hashing.
struct Modular {
    tables: [[[u8; 256]; 2]; ROWS],
}

impl Modular {
    fn new() -> Self {
        let mut tables = [[std::array::from_fn(|byte| byte as u8); 2]; ROWS];
        for (number, table) in tables.as_flattened_mut().iter_mut().enumerate() {
            for at in 1..table.len() {
                table.swap(at, mix(number as u64, at as u64) as usize % (at + 1));
            }
        }
        Self { tables }
    }

    fn mangle(keys: &[u64], mangled: &mut [[u8; 8]; BATCH]) {
        for (&key, mangled) in keys.iter().zip(mangled) {
            let mut key = key;
            for odd in [0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb, 0x9e37_79b9_7f4a_7c15_u64] {
                key = (key ^ odd >> 1).wrapping_mul(odd);
                key ^= key >> 32;
            }
            *mangled = key.to_le_bytes();
        }
    }

    /// Calls `each` with the number of every packet and its column in `row`.
    #[inline(always)]
    fn columns(
        &self,
        row: usize,
        mangled: &[[u8; 8]],
        digests: &[u64],
        mut each: impl FnMut(usize, u16),
    ) {
        if row == ROWS {
            digests.iter().enumerate().for_each(|(i, digest)| each(i, mix(*digest, 0) as u16));
            return;
        }
        let [above, below] = &self.tables[row];
        for (i, bytes) in mangled.iter().enumerate() {
            let (first, second) = (bytes[row], bytes[(row + 1) % ROWS]);
            let parts = [above[usize::from(first)], below[usize::from(second)]];
            each(i, u16::from_be_bytes(parts));
        }
    }
}

/// Reversible sketch: eight rows indexed by two bytes of the mangled key, and one by the digest.
pub(super) struct Reversible {
    modular: Modular,
    rows: Zeroed<[u32; COLUMNS]>,
    packets: u64,
}

impl Reversible {
    pub(super) fn new() -> Self {
        Self { modular: Modular::new(), rows: zeroed(ALL_ROWS), packets: 0 }
    }
}

impl ByHand for Reversible {
    fn clear(&mut self) {
        self.rows.iter_mut().for_each(|row| row.fill(0));
        self.packets = 0;
    }

    #[inline(always)]
    fn update(&mut self, keys: &[u64], digests: &[u64]) {
        let (mut mangled, mut columns) = ([[0; 8]; BATCH], [0_u16; BATCH]);
        Modular::mangle(keys, &mut mangled);
        for (number, row) in self.rows.iter_mut().enumerate() {
            self.modular.columns(number, &mangled[..keys.len()], digests, |i, column| {
                ask(row, usize::from(column));
                columns[i % BATCH] = column;
            });
            for &column in &columns[..keys.len()] {
                row[usize::from(column)] += 1;
            }
        }
        self.packets += keys.len() as u64;
    }
}

/// The two-level sketch, for packets with elements.
pub(super) struct TwoLevel {
    digester: Digester,
    batch: Batch<Key8>,
    modular: Modular,
    rows: Zeroed<([u32; COLUMNS], [u64; BITMAPS * WORDS])>,
    packets: u64,
}

/// Reserves the rows of [`TwoLevel`].
pub(in super::super) fn two_level(digester: Digester) -> Box<dyn Contestant> {
    let (batch, modular) = (Batch::new(), Modular::new());
    Box::new(TwoLevel { digester, batch, modular, rows: zeroed(ALL_ROWS), packets: 0 })
}

impl TwoLevel {
    fn update(&mut self) {
        self.batch.digest(&self.digester);
        let (keys, elements) = (words(&self.batch), self.batch.elements());
        let (mut mangled, mut bit_of) = ([[0; 8]; BATCH], [0; BATCH]);
        Modular::mangle(keys, &mut mangled);
        for (bit, element) in bit_of.iter_mut().zip(elements) {
            *bit = (element >> 56) as usize;
        }
        let (mut columns, mut bits) = ([0_u16; BATCH], [0; BATCH]);
        for (number, (counters, words)) in self.rows.iter_mut().enumerate() {
            let (mangled, digests) = (&mangled[..keys.len()], self.batch.digests());
            self.modular.columns(number, mangled, digests, |i, column| {
                let bit = usize::from(column) / SHARED * (64 * WORDS) + bit_of[i % BATCH];
                ask(counters, usize::from(column));
                ask(words, bit / 64);
                (columns[i % BATCH], bits[i % BATCH]) = (column, bit);
            });
            for (&column, &bit) in columns[..keys.len()].iter().zip(&bits) {
                counters[usize::from(column)] += 1;
                words[bit / 64 % words.len()] |= 1 << (bit % 64);
            }
        }
        self.packets += keys.len() as u64;
    }
}

impl Contestant for TwoLevel {
    fn begin(&mut self, earlier: &[Key8]) {
        debug_assert!(earlier.is_empty(), "they have no elements");
        for (counters, words) in self.rows.iter_mut() {
            counters.fill(0);
            words.fill(0);
        }
        self.packets = 0;
    }

    fn take(&mut self, stream: &mut Stream) -> usize {
        for (keys, elements) in stream.keys.chunks(BATCH).zip(stream.elements.chunks(BATCH)) {
            self.batch.fill_with_elements(keys, elements, FRAME_BYTES);
            self.update();
        }
        stream.keys.len()
    }
}
