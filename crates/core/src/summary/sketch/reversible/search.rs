//! The search that recovers keys from heavy columns.
//!
//! Paper: Schweller et al., "Reversible sketches" (ToN 2007), on reverse hashing. A key can be
//! heavy only if its column is heavy in every row. The search goes word by word and keeps those
//! prefixes of keys for which every row still has a matching heavy column.
//!
//! With n heavy columns among w in each of d rows, about |U| × (n/w)^d keys match by chance, where
//! U is the set of all keys. So each row contributes only its heaviest columns, as many as leave
//! about one key by chance ([`capacity`]), which also bounds the time. Columns left out are
//! counted. If cells were crafted to defeat this, the search gives up after [`MOST_STEPS`] steps.

use super::hashing::{BYTES, MOST_ROWS, Modular};
use crate::key::FlowKey;

/// Largest number of prefixes that a search follows, which takes about a second; it is smaller if
/// there are too few columns to tell keys apart. With random columns within [`capacity`], no search
/// comes near.
const MOST_STEPS: usize = 1 << 21;
const STEPS_PER_COLUMN: usize = 512;

/// The set of values that a word may have.
type ByteSet = [u64; BYTES / 64];

/// Largest number of heavy columns that a row contributes.
fn capacity(modular: &Modular) -> usize {
    let columns = modular.columns() as f64;
    let bits_per_row = (8 * modular.words) as f64 / modular.all_rows() as f64;
    let by_chance = columns * f64::exp2(-bits_per_row);
    // More would leave too many prefixes in the middle of a search.
    by_chance.min(columns / 64.0).max(1.0) as usize
}

/// The `most` heaviest columns of a row, in at most twice their memory.
pub(crate) struct Heaviest {
    most: usize,
    columns: Vec<(f64, u32)>,
    left_out: u64,
}

impl Heaviest {
    fn new(most: usize) -> Self {
        Self { most, columns: Vec::new(), left_out: 0 }
    }

    pub(crate) fn push(&mut self, value: f64, column: usize) {
        self.columns.push((value, column as u32));
        if self.columns.len() >= 2 * self.most {
            self.shrink();
        }
    }

    fn shrink(&mut self) {
        if let Some(left_out) = self.columns.len().checked_sub(self.most).filter(|more| *more > 0) {
            let heavier = |a: &(f64, u32), b: &(f64, u32)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
            self.columns.select_nth_unstable_by(self.most - 1, heavier);
            self.columns.truncate(self.most);
            self.left_out += left_out as u64;
        }
    }

    /// The sorted columns, and how many were left out.
    fn into_columns(mut self) -> (Vec<u32>, u64) {
        self.shrink();
        let mut columns: Vec<u32> = self.columns.iter().map(|(_, column)| *column).collect();
        columns.sort_unstable();
        (columns, self.left_out)
    }
}

/// Recovers the keys whose column is heavy in every row with modular hashing; `heavy_columns` pushes
/// the heavy columns of a row. Returns the number of columns that the fullest row left out, plus
/// one if the search was given up.
pub(crate) fn recover<K: FlowKey>(
    modular: &Modular,
    heavy_columns: impl Fn(usize, &mut Heaviest),
    visit: &mut dyn FnMut(K),
) -> u64 {
    let (mut left_out, mut heavy) = (0, Vec::with_capacity(modular.rows));
    for row in 0..modular.rows {
        let mut heaviest = Heaviest::new(capacity(modular));
        heavy_columns(row, &mut heaviest);
        let (columns, more) = heaviest.into_columns();
        left_out = more.max(left_out);
        heavy.push(columns);
    }
    let given_up = search(modular, &heavy, &mut |number| {
        if let Some(key) = K::from_canonical(&number.to_le_bytes()[..modular.words]) {
            visit(key);
        }
    });
    left_out + given_up
}

/// Visits every key whose columns are all in `heavy`, the sorted heavy columns of each row. Returns
/// how often the search was given up, 0 or 1.
fn search(modular: &Modular, heavy: &[Vec<u32>], visit: &mut dyn FnMut(u64)) -> u64 {
    let mut ranges = [(0, 0); MOST_ROWS];
    for (range, columns) in ranges.iter_mut().zip(heavy) {
        range.1 = columns.len();
    }
    let mut tables: Vec<Vec<WordTable<'_>>> = (0..modular.words).map(|_| Vec::new()).collect();
    for (row, columns) in heavy.iter().enumerate() {
        for (slot, part_of) in modular.slots(row) {
            let mut words = [ByteSet::default(); BYTES];
            for (word, part) in part_of.iter().enumerate() {
                words[usize::from(*part)][word / 64] |= 1 << (word % 64);
            }
            let (below, mask) = (slot.below, (1 << slot.bits) - 1);
            let words = words[..1 << slot.bits].to_vec();
            tables[slot.word].push(WordTable { row, columns, below, mask, part_of, words });
        }
    }
    let steps_left = MOST_STEPS.min(STEPS_PER_COLUMN * modular.columns());
    let mut search = Search { modular, tables, steps_left, visit };
    search.follow(0, 0, &ranges);
    u64::from(search.steps_left == 0)
}

/// The part of a row's columns that one word of a key decides.
struct WordTable<'a> {
    row: usize,
    /// The row's heavy columns, sorted. Columns that match a prefix are adjacent, since earlier
    /// words decide higher bits.
    columns: &'a [u32],
    /// Position of the word's bits in a column.
    below: u32,
    mask: u32,
    /// The word's bits of a column, for each value of the word.
    part_of: &'a [u8; BYTES],
    /// The values of the word, for each value of its bits.
    words: Vec<ByteSet>,
}

impl WordTable<'_> {
    fn part(&self, column: u32) -> u32 {
        column >> self.below & self.mask
    }

    /// The values of the word that match columns in this range.
    fn possible(&self, (start, end): (usize, usize)) -> ByteSet {
        let mut columns = &self.columns[start..end];
        let mut possible = ByteSet::default();
        while let Some(&column) = columns.first() {
            let part = self.part(column);
            for (possible, words) in possible.iter_mut().zip(self.words[part as usize]) {
                *possible |= words;
            }
            columns = &columns[columns.partition_point(|column| self.part(*column) <= part)..];
        }
        possible
    }

    /// The columns of this range that match a value of the word.
    fn narrow(&self, (start, end): (usize, usize), word: usize) -> (usize, usize) {
        let columns = &self.columns[start..end];
        let part = u32::from(self.part_of[word]);
        let first = columns.partition_point(|column| self.part(*column) < part);
        let count = columns[first..].partition_point(|column| self.part(*column) == part);
        (start + first, start + first + count)
    }
}

struct Search<'a> {
    modular: &'a Modular,
    /// For each word, a table of each row that hashes it.
    tables: Vec<Vec<WordTable<'a>>>,
    steps_left: usize,
    visit: &'a mut dyn FnMut(u64),
}

impl Search<'_> {
    /// Follows a prefix of `word` words, for which `ranges` has the matching columns of each row.
    fn follow(&mut self, word: usize, mangled: u64, ranges: &[(usize, usize); MOST_ROWS]) {
        if word == self.modular.words {
            (self.visit)(self.modular.mangle.undo(mangled));
            return;
        }
        let mut possible = [u64::MAX; BYTES / 64];
        for table in &self.tables[word] {
            let words = table.possible(ranges[table.row]);
            possible.iter_mut().zip(words).for_each(|(possible, words)| *possible &= words);
        }
        for value in 0..BYTES {
            if possible[value / 64] >> (value % 64) & 1 == 0 {
                continue;
            }
            if self.steps_left == 0 {
                return;
            }
            self.steps_left -= 1;
            let mut narrowed = *ranges;
            for table in &self.tables[word] {
                narrowed[table.row] = table.narrow(ranges[table.row], value);
            }
            self.follow(word + 1, mangled | (value as u64) << (8 * word), &narrowed);
        }
    }
}
