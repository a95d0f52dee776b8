//! Modular hashing: columns composed of hashes of a key's words.
//!
//! Paper: Schweller et al., "Reversible sketches" (ToN 2007). A word is a byte of the mangled key.
//! A table maps it to a few bits of the column, so that a column reveals something about each word,
//! and [`search`] recovers the keys. The digest cannot be used, since its bits reveal nothing about
//! a part of the key.
//!
//! A row hashes all four words of a 32-bit key, as in the paper. Of the eight words of a 64-bit
//! key, row r hashes only two (three with over 65536 columns) from word r on, cyclically. With two
//! bits for each of eight words, the first half of a key would rule out next to nothing, and the
//! search would take too long. Since the key is mangled first, two of its words spread as evenly as
//! all.
//!
//! Mangling is an invertible map that makes any keys look random (on IP mangling in the paper).
//! Without it, keys with words in common, such as the addresses of one network, would crowd into
//! few columns, since words are hashed separately.
//!
//! [`search`]: super::search

use fastrand::Rng;
use flowgauge_kernel::{Digester, Zeroed};

use crate::batch::{BATCH_PACKETS, Batch};
use crate::key::FlowKey;
use crate::summary::codec::{DecodeError, Number, Reader};
use crate::summary::remix::remix;
use crate::summary::{BuildError, Counter, Memory};

/// Largest number of rows with modular hashing.
pub(crate) const MOST_ROWS: usize = 8;

/// Largest number of rows indexed by the digest.
pub(crate) const MOST_VERIFY: usize = 4;

/// Number of values of a word.
pub(crate) const BYTES: usize = 256;

/// Largest number of columns. With more, there would be too many heavy columns to search.
pub(crate) const MOST_COLUMNS: usize = 1 << 20;

/// Mixed into the seed, so that the tables have nothing in common with the digest.
const SALT: u64 = 0x6d6f_6475_6c61_7221;

/// The words of the mangled keys of a batch.
pub(crate) type Mangled = [[u8; 8]; BATCH_PACKETS];

/// The hash functions of all rows.
///
/// Memory in bytes: 256 per row and word that it hashes; 4096 with 4 rows for 32-bit keys or 8 rows
/// for 64-bit keys. Cost per packet: three multiplies; per row, a look-up for each word that it
/// hashes, in tables that fit the first-level cache; and the digest, if a row is indexed by it.
pub(crate) struct Modular {
    pub(crate) mangle: Mangle,
    /// Number of words of a key.
    pub(crate) words: usize,
    /// Number of rows with modular hashing.
    pub(crate) rows: usize,
    /// Number of rows indexed by the digest, after the others.
    pub(crate) verify: usize,
    /// Number of words that a row hashes.
    window: usize,
    column_bits: u32,
    /// For each row and each word that it hashes, in the order of the words: the bits of the column
    /// for each of the word's 256 values. Every bit pattern has equally many values.
    parts: Zeroed<[u8; BYTES]>,
}

/// A word that a row hashes.
#[derive(Clone, Copy)]
pub(crate) struct Slot {
    /// Index of the word in the key.
    pub(crate) word: usize,
    /// Number of bits of the column that it decides.
    pub(crate) bits: u32,
    /// Number of bits of the column below these.
    pub(crate) below: u32,
}

/// How many of the `words` words of a key a row hashes.
pub(crate) fn window(words: usize, column_bits: u32) -> usize {
    if words == 4 { 4 } else { column_bits.div_ceil(8).max(2) as usize }
}

/// The `slot`-th of the `window` words that `row` hashes, of `words` in all. The first word decides
/// the highest bits of the column.
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

/// Expected number of other keys that share all columns with a given key: all their words hash to
/// the same bits. `verify` rows by the digest leave those that match by chance.
pub(crate) fn false_keys(words: usize, [rows, verify]: [usize; 2], columns: usize) -> f64 {
    let column_bits = columns.ilog2();
    let window = window(words, column_bits);
    let mut bits = [0; 8];
    for (row, number) in (0..rows).flat_map(|row| (0..window).map(move |slot| (row, slot))) {
        let Slot { word, bits: more, .. } = slot(words, window, column_bits, row, number);
        bits[word] += more;
    }
    let of_word = |bits: &u32| 1.0 + (BYTES - 1) as f64 * f64::exp2(-f64::from(*bits));
    let alike: f64 = bits[..words].iter().map(of_word).product();
    (alike - 1.0) / (columns as f64).powf(verify as f64)
}

/// The expected number of recovered keys without a packet up to which each key is taken for one with
/// packets.
pub(crate) const FEW_FALSE: f64 = 0.01;

impl Modular {
    /// The expected number of keys, of all possible ones, whose cells are all among a random `share` of
    /// the cells: by chance, or since they share all columns but the digest's with such a key.
    pub(crate) fn keys_within(&self, share: f64) -> f64 {
        let all = 256f64.powf(self.words as f64);
        let alike = self.columns() as f64 * false_keys(self.words, [self.rows, 0], self.columns());
        all * share.powf(self.all_rows() as f64) + alike * share.powf(self.verify as f64 + 1.0)
    }

    /// Builds the tables of `rows` rows with modular hashing, beside `verify` rows by the digest,
    /// of `columns` columns, a power of two.
    pub(crate) fn new(
        rows: usize,
        verify: usize,
        columns: usize,
        digester: &Digester,
        memory: &Memory,
    ) -> Result<Self, BuildError> {
        let words = digester.key_bytes();
        let mut random = Rng::with_seed(digester.seed().tables() ^ SALT);
        let mangle = Mangle::new(8 * words as u32, &mut random);
        let column_bits = columns.ilog2();
        let window = window(words, column_bits);
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

    /// Number of rows of both kinds.
    pub(crate) fn all_rows(&self) -> usize {
        self.rows + self.verify
    }

    /// The numbers of rows with modular hashing, of rows by the digest, and of columns.
    pub(crate) fn shape(&self) -> [usize; 3] {
        [self.rows, self.verify, self.columns()]
    }

    /// The `slot`-th word that `row` hashes.
    fn slot(&self, row: usize, slot: usize) -> Slot {
        self::slot(self.words, self.window, self.column_bits, row, slot)
    }

    /// The words that `row` hashes, each with its table.
    pub(crate) fn slots(&self, row: usize) -> impl Iterator<Item = (Slot, &[u8; BYTES])> {
        let tables = &self.parts[row * self.window..][..self.window];
        tables.iter().enumerate().map(move |(slot, table)| (self.slot(row, slot), table))
    }

    /// The index of a key's counter in each row.
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

    /// The column of a mangled key in a row with modular hashing.
    fn column(&self, row: usize, mangled: u64) -> usize {
        self.slots(row).fold(0, |column, (slot, table)| {
            let word = (mangled >> (8 * slot.word)) as u8;
            column | usize::from(table[usize::from(word)]) << slot.below
        })
    }

    /// Mangles the keys of a batch into `out`, and digests them if a row needs that.
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

    /// Calls `each` with the index of every packet of a prepared batch and its key's column in
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

/// Loads the counters of all rows.
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

/// The column in a row by the digest.
#[inline(always)]
fn by_digest(digest: u64, row: usize, mask: usize) -> usize {
    remix(digest, row as u64) as usize & mask
}

const ROUNDS: usize = 3;

/// A seeded permutation of the integers of 32 or 64 bits that keys of 4 or 8 bytes are.
///
/// Each round mixes in a secret by exclusive or, multiplies by a secret odd number, which carries
/// every bit into the higher half, and folds that half onto the lower one. Cost: three multiplies.
pub(crate) struct Mangle {
    half_bits: u32,
    mask: u64,
    add: [u64; ROUNDS],
    multiply: [u64; ROUNDS],
    /// The inverses of the multipliers.
    divide: [u64; ROUNDS],
}

/// A key of at most 8 bytes as an integer.
#[inline(always)]
pub(crate) fn number<K: FlowKey>(key: &K) -> u64 {
    let mut bytes = [0; 8];
    let width = K::BYTES.min(8);
    bytes[..width].copy_from_slice(key.canonical(width));
    u64::from_le_bytes(bytes)
}

impl Mangle {
    /// A permutation of the integers of `bits` bits, 32 or 64.
    pub(crate) fn new(bits: u32, random: &mut Rng) -> Self {
        let mask = u64::MAX >> (64 - bits);
        let add = std::array::from_fn(|_| random.u64(..) & mask);
        let multiply: [u64; ROUNDS] = std::array::from_fn(|_| (random.u64(..) & mask) | 1);
        let divide = multiply.map(inverse);
        Self { half_bits: bits / 2, mask, add, multiply, divide }
    }

    /// Mangles a number.
    #[inline(always)]
    pub(crate) fn apply(&self, mut number: u64) -> u64 {
        for round in 0..ROUNDS {
            number = (number ^ self.add[round]).wrapping_mul(self.multiply[round]) & self.mask;
            number ^= number >> self.half_bits;
        }
        number
    }

    /// Undoes [`Self::apply`].
    pub(crate) fn undo(&self, mut number: u64) -> u64 {
        for round in (0..ROUNDS).rev() {
            number ^= number >> self.half_bits;
            number = (number.wrapping_mul(self.divide[round]) & self.mask) ^ self.add[round];
        }
        number
    }
}

/// The inverse of an odd number modulo 2⁶⁴, by Newton's iteration: each step doubles the correct
/// bits, three at the start.
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

    /// Each byte of the mangled addresses of a network of 4096 takes every value about 16 times.
    /// With 255 degrees of freedom, chi-square of random bytes exceeds 400 once in 10⁸ times.
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
