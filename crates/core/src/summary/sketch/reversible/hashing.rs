//! Modular hashing: columns that are put together from hashes of a key's words.
//!
//! Paper: Schweller et al., "Reversible sketches" (ToN 2007). A word is a byte of the mangled key;
//! a table maps it to a few bits of the column, so that a column says something of each word, and
//! [`search`] finds the keys again. This is why the columns are not cut from the digest, whose bits
//! say nothing of a part of the key.
//!
//! A row hashes all four words of a 32-bit key, as in the paper. Of the eight words of a 64-bit key,
//! row r hashes only the two (of over 65536 columns, three) from word r on, in a ring: with two bits
//! for each of eight words, the first half of a key would rule out next to nothing, and the search
//! would drown. Since the key is mangled first, two words of it spread as evenly as all.
//!
//! [`search`]: super::search

use fastrand::Rng;
use flowgauge_kernel::{Digester, Zeroed};

use crate::batch::{BATCH_PACKETS, Batch};
use crate::key::FlowKey;
use crate::summary::codec::{DecodeError, Number, Reader};
use crate::summary::remix::remix;
use crate::summary::{BuildError, Counter, Memory};

/// Rows by modular hashing that there are at most.
pub(crate) const MOST_ROWS: usize = 8;

/// Rows by the digest that there are at most.
pub(crate) const MOST_VERIFY: usize = 4;

/// A word has as many values.
pub(crate) const BYTES: usize = 256;

/// With more bits, the heavy columns would be too many to search.
pub(crate) const MOST_COLUMNS: usize = 1 << 20;

/// What `seed` is mixed with, so that the tables have nothing in common with the digest.
const SALT: u64 = 0x6d6f_6475_6c61_7221;

/// The words of a batch's mangled keys.
pub(crate) type Mangled = [[u8; 8]; BATCH_PACKETS];

/// The hash functions of all rows.
///
/// Memory in bytes: 256 for each word that each row reads, 4096 with 4 rows of a 32-bit key and with
/// 8 rows of a 64-bit key. Cost for a packet: three multiplies, and for each row a look-up for each
/// word it reads, in tables of the first-level cache; the digest, where a row is by it.
pub(crate) struct Modular {
    pub(crate) mangle: Mangle,
    /// Words of a key.
    pub(crate) words: usize,
    /// Rows by modular hashing.
    pub(crate) rows: usize,
    /// Rows by the digest, after these.
    pub(crate) verify: usize,
    /// Words that a row reads.
    window: usize,
    column_bits: u32,
    /// For each row and each word that it reads, in the order of the words: the part of the column
    /// that the word's 256 values have. Each part has equally many values.
    parts: Zeroed<[u8; BYTES]>,
}

/// A word that a row reads.
#[derive(Clone, Copy)]
pub(crate) struct Slot {
    /// Which word of the key.
    pub(crate) word: usize,
    /// Bits of the column that it decides.
    pub(crate) bits: u32,
    /// Bits of the column below those.
    pub(crate) below: u32,
}

/// Words that a row of keys of `K` reads.
pub(crate) fn window<K: FlowKey>(column_bits: u32) -> usize {
    if K::BYTES == 4 { 4 } else { column_bits.div_ceil(8).max(2) as usize }
}

/// The word number `slot` of the `window` that `row` reads, of `words`. The first word decides the
/// highest bits of the column.
fn slot(words: usize, window: usize, column_bits: u32, row: usize, slot: usize) -> Slot {
    let mut read = [0; 4];
    for (step, word) in read[..window].iter_mut().enumerate() {
        *word = (row + step) % words;
    }
    read[..window].sort_unstable();
    let below = |slot: usize| (column_bits as usize * (window - slot) / window) as u32;
    let (above, below) = (below(slot), below(slot + 1));
    Slot { word: read[slot], bits: above - below, below }
}

/// The keys that share all columns with one, in the mean: those whose words all have the same parts,
/// of which `verify` rows by the digest leave what chance does.
pub(crate) fn false_keys<K: FlowKey>([rows, verify]: [usize; 2], columns: usize) -> f64 {
    let column_bits = columns.ilog2();
    let window = window::<K>(column_bits);
    let mut bits = [0; 8];
    for (row, number) in (0..rows).flat_map(|row| (0..window).map(move |slot| (row, slot))) {
        let Slot { word, bits: more, .. } = slot(K::BYTES, window, column_bits, row, number);
        bits[word] += more;
    }
    let of_word = |bits: &u32| 1.0 + (BYTES - 1) as f64 * f64::exp2(-f64::from(*bits));
    let alike: f64 = bits[..K::BYTES].iter().map(of_word).product();
    (alike - 1.0) / (columns as f64).powf(verify as f64)
}

impl Modular {
    /// Tables for `rows` rows by modular hashing, beside `verify` rows by the digest, of `columns`
    /// columns, a power of two.
    pub(crate) fn new<K: FlowKey>(
        rows: usize,
        verify: usize,
        columns: usize,
        digester: &Digester,
        memory: &Memory,
    ) -> Result<Self, BuildError> {
        let mut random = Rng::with_seed(digester.seed().tables() ^ SALT);
        let mangle = Mangle::new(8 * K::BYTES.min(8) as u32, &mut random);
        let column_bits = columns.ilog2();
        let (words, window) = (K::BYTES, window::<K>(column_bits));
        let parts = memory.zeroed(rows * window)?;
        let mut modular = Self { mangle, words, rows, verify, window, column_bits, parts };
        for row in 0..rows {
            for slot in 0..window {
                let bits = modular.slot(row, slot).bits;
                let mut values: [u8; BYTES] = std::array::from_fn(|value| value as u8);
                random.shuffle(&mut values);
                modular.parts[row * window + slot] =
                    values.map(|value| (u32::from(value) >> (8 - bits)) as u8);
            }
        }
        Ok(modular)
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.parts.memory_bytes()
    }

    pub(crate) fn columns(&self) -> usize {
        1 << self.column_bits
    }

    /// Rows of both kinds.
    pub(crate) fn all_rows(&self) -> usize {
        self.rows + self.verify
    }

    /// Numbers of rows and columns.
    pub(crate) fn shape(&self) -> [usize; 3] {
        [self.rows, self.verify, self.columns()]
    }

    /// The word number `slot` that `row` reads.
    fn slot(&self, row: usize, slot: usize) -> Slot {
        self::slot(self.words, self.window, self.column_bits, row, slot)
    }

    /// The words that `row` reads, each with its table.
    pub(crate) fn slots(&self, row: usize) -> impl Iterator<Item = (Slot, &[u8; BYTES])> {
        let tables = &self.parts[row * self.window..][..self.window];
        tables.iter().enumerate().map(move |(slot, table)| (self.slot(row, slot), table))
    }

    /// The places of a key in a matrix of all rows: its column in each of them.
    pub(crate) fn places<K: FlowKey>(
        &self,
        key: &K,
        digester: &Digester,
    ) -> impl Iterator<Item = usize> {
        let mangled = self.mangle.apply(number(key));
        let digest = if self.verify > 0 { key.digest(digester) } else { 0 };
        (0..self.all_rows()).map(move |row| {
            let column = match row.checked_sub(self.rows) {
                None => self.column(row, mangled),
                Some(verify) => by_digest(digest, verify, self.columns() - 1),
            };
            row * self.columns() + column
        })
    }

    /// The column of a mangled key in a row by modular hashing.
    fn column(&self, row: usize, mangled: u64) -> usize {
        self.slots(row).fold(0, |column, (slot, table)| {
            let word = (mangled >> (8 * slot.word)) as u8;
            column | usize::from(table[usize::from(word)]) << slot.below
        })
    }

    /// Mangles a batch's keys into `out`, and digests them, where a row needs it.
    #[inline]
    pub(crate) fn prepare<K: FlowKey>(
        &self,
        batch: &mut Batch<K>,
        digester: &Digester,
        out: &mut Mangled,
    ) {
        if self.verify > 0 {
            batch.digest(digester);
        }
        for (key, out) in batch.keys().iter().zip(out) {
            *out = self.mangle.apply(number(key)).to_le_bytes();
        }
    }

    /// Calls `each` with the number of every packet of a prepared batch, and its key's column in
    /// `row`.
    #[inline(always)]
    pub(crate) fn columns_of<K: FlowKey>(
        &self,
        row: usize,
        batch: &Batch<K>,
        mangled: &Mangled,
        mut each: impl FnMut(usize, u32),
    ) {
        let mangled = &mangled[..batch.len()];
        match (row.checked_sub(self.rows), self.window) {
            (Some(verify), _) => {
                let mask = self.columns() - 1;
                for (i, digest) in batch.digests().iter().enumerate() {
                    each(i, by_digest(*digest, verify, mask) as u32);
                }
            }
            (None, 2) => self.columns_from::<2>(row, mangled, each),
            (None, 3) => self.columns_from::<3>(row, mangled, each),
            (None, _) => self.columns_from::<4>(row, mangled, each),
        }
    }

    #[inline(always)]
    fn columns_from<const WINDOW: usize>(
        &self,
        row: usize,
        mangled: &[[u8; 8]],
        mut each: impl FnMut(usize, u32),
    ) {
        let tables: &[[u8; BYTES]] = &self.parts[row * WINDOW..][..WINDOW];
        let tables: [&[u8; BYTES]; WINDOW] = std::array::from_fn(|slot| &tables[slot]);
        let slots: [Slot; WINDOW] = std::array::from_fn(|slot| self.slot(row, slot));
        for (i, mangled) in mangled.iter().enumerate() {
            let mut column = 0;
            for (slot, table) in slots.iter().zip(&tables) {
                let part = table[usize::from(mangled[slot.word % mangled.len()])];
                column = column << slot.bits | u32::from(part);
            }
            each(i, column);
        }
    }
}

/// Reads the saved counters of all rows.
pub(crate) fn load_counters<C: Counter + Number>(
    from: &mut Reader<'_>,
    counters: &mut Zeroed<C>,
    total: u64,
) -> Result<(), DecodeError> {
    from.numbers("counters", counters)?;
    if counters.iter().all(|counter| counter.get() <= total) {
        return Ok(());
    }
    Err(from.invalid("counters", counters.memory_bytes(), "one is above the total"))
}

/// The column of the row by the digest that has this number.
#[inline(always)]
fn by_digest(digest: u64, row: usize, mask: usize) -> usize {
    remix(digest, row as u64) as usize & mask
}

const ROUNDS: usize = 3;

/// A seeded permutation of the numbers of 32 or 64 bits that keys of 4 or 8 bytes are.
///
/// Each round adds a secret by exclusive or, multiplies by a secret odd number, which carries every
/// bit to the higher half, and folds that half onto the lower one. Cost: three multiplies.
pub(crate) struct Mangle {
    half_bits: u32,
    mask: u64,
    add: [u64; ROUNDS],
    multiply: [u64; ROUNDS],
    /// What undoes the multiplications.
    divide: [u64; ROUNDS],
}

/// The number that a key of at most 8 bytes is.
#[inline(always)]
pub(crate) fn number<K: FlowKey>(key: &K) -> u64 {
    let mut bytes = [0; 8];
    let width = K::BYTES.min(8);
    bytes[..width].copy_from_slice(key.canonical(width));
    u64::from_le_bytes(bytes)
}

impl Mangle {
    /// A permutation of the numbers of `bits` bits, 32 or 64.
    pub(crate) fn new(bits: u32, random: &mut Rng) -> Self {
        let mask = u64::MAX >> (64 - bits);
        let add = std::array::from_fn(|_| random.u64(..) & mask);
        let multiply: [u64; ROUNDS] = std::array::from_fn(|_| (random.u64(..) & mask) | 1);
        let divide = multiply.map(inverse);
        Self { half_bits: bits / 2, mask, add, multiply, divide }
    }

    /// The mangled number.
    #[inline(always)]
    pub(crate) fn apply(&self, mut number: u64) -> u64 {
        for round in 0..ROUNDS {
            number = (number ^ self.add[round]).wrapping_mul(self.multiply[round]) & self.mask;
            number ^= number >> self.half_bits;
        }
        number
    }

    /// The number that was mangled.
    pub(crate) fn undo(&self, mut number: u64) -> u64 {
        for round in (0..ROUNDS).rev() {
            number ^= number >> self.half_bits;
            number = (number.wrapping_mul(self.divide[round]) & self.mask) ^ self.add[round];
        }
        number
    }
}

/// The inverse of an odd number modulo 2⁶⁴, by Newton's iteration: each step doubles the bits that
/// are right, of which an odd number has three to begin with.
fn inverse(odd: u64) -> u64 {
    (0..5).fold(odd, |x, _| x.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(x))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn undo_is_the_inverse() {
        let mut random = Rng::with_seed(1);
        for bits in [32, 64] {
            let mangle = Mangle::new(bits, &mut random);
            for number in [0, 1, mangle.mask].into_iter().chain((0..1000).map(|n| n << 20)) {
                let number = number & mangle.mask;
                let mangled = mangle.apply(number);
                assert!(mangled <= mangle.mask);
                assert_eq!(mangle.undo(mangled), number);
            }
        }
    }

    /// Of the 4096 addresses of a network, each byte of the mangled numbers takes every value about
    /// 16 times: chi-square of 255 degrees of freedom, over 400 once in 10⁸ times for random ones.
    #[test]
    fn keys_of_one_network_spread_over_every_byte() {
        for (seed, bits) in (0..32).flat_map(|seed| [(seed, 32), (seed, 64)]) {
            let mangle = Mangle::new(bits, &mut Rng::with_seed(seed));
            for step in [1, 1 << 8, 1 << 20] {
                for byte in 0..bits / 8 {
                    let mut counts = [0f64; 256];
                    for n in 0..4096u64 {
                        counts[(mangle.apply(n * step) >> (8 * byte)) as usize & 0xff] += 1.0;
                    }
                    let chi: f64 = counts.iter().map(|count| (count - 16.0).powi(2) / 16.0).sum();
                    assert!(
                        chi < 400.0,
                        "seed {seed}, {bits} bits, step {step}, byte {byte}: {chi}"
                    );
                }
            }
        }
    }
}
