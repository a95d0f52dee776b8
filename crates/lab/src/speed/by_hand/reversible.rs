//! Sketches by modular hashing: eight rows indexed by two bytes of the mangled key, and one by the
//! digest.

use flowgauge_core::batch::Batch;
use flowgauge_core::key::{FlowKey, Key8};
use flowgauge_kernel::{Digester, Zeroed};

use super::super::contestant::{Contestant, FRAME_BYTES};
use super::super::stream::Stream;
use super::{BATCH, ByHand, ask, mix, zeroed};

const COLUMNS: usize = 1 << 16;

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

/// Reversible sketch.
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
        let (keys, elements) = (Key8::words(self.batch.keys()), self.batch.elements());
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
