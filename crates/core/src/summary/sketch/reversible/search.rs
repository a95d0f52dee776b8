//! Keys from columns: the search that makes a sketch reversible.
//!
//! Paper: Schweller et al., "Reversible sketches" (ToN 2007), on reverse hashing. A key is heavy
//! only if its column is heavy in every row. Word by word, the search keeps the beginnings of keys
//! for which every row still has a heavy column that fits.
//!
//! Of n heavy columns among w in each of d rows, about |U| × (n/w)^d keys fit by chance, U being all
//! keys. So each row names only its heaviest columns, as many as leave about one such key
//! ([`capacity`]), which also bounds the time; what is left out is counted. Cells that were made to
//! defeat this end the search after [`MOST_STEPS`] steps.

use super::hashing::{BYTES, MOST_ROWS, Modular};

/// Beginnings of keys that a search follows; with random columns within [`capacity`] no search
/// comes near. About a second; fewer where the columns are too few to tell keys apart.
const MOST_STEPS: usize = 1 << 21;
const STEPS_PER_COLUMN: usize = 512;

/// Which of the 256 values a word may have.
type ByteSet = [u64; BYTES / 64];

/// Heavy columns that each row may name.
pub(crate) fn capacity(modular: &Modular) -> usize {
    let columns = modular.columns() as f64;
    let bits_per_row = (8 * modular.words) as f64 / modular.all_rows() as f64;
    let by_chance = columns * f64::exp2(-bits_per_row);
    // More of them leave too many beginnings in the middle of a search.
    by_chance.min(columns / 64.0).max(1.0) as usize
}

/// The heaviest columns of a row, at most `most` of them, in at most twice that memory.
pub(crate) struct Heaviest {
    most: usize,
    columns: Vec<(f64, u32)>,
    left_out: u64,
}

impl Heaviest {
    pub(crate) fn new(most: usize) -> Self {
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

    /// The columns in their order, and how many were left out.
    pub(crate) fn into_columns(mut self) -> (Vec<u32>, u64) {
        self.shrink();
        let mut columns: Vec<u32> = self.columns.iter().map(|(_, column)| *column).collect();
        columns.sort_unstable();
        (columns, self.left_out)
    }
}

/// Visits every key whose columns are all among `heavy`, which has the sorted heavy columns of each
/// row; returns how often the search was given up, 0 or 1.
pub(crate) fn search(modular: &Modular, heavy: &[Vec<u32>], visit: &mut dyn FnMut(u64)) -> u64 {
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

/// A row that reads the word in hand.
struct WordTable<'a> {
    row: usize,
    /// Its heavy columns, sorted. The columns that fit a beginning stand together, since earlier
    /// words decide higher bits.
    columns: &'a [u32],
    /// Where the word's part of a column is.
    below: u32,
    mask: u32,
    /// The part that each value of the word has.
    part_of: &'a [u8; BYTES],
    /// The values of the word that have each part.
    words: Vec<ByteSet>,
}

impl WordTable<'_> {
    fn part(&self, column: u32) -> u32 {
        column >> self.below & self.mask
    }

    /// The values that the word may have, of the columns in this range.
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

    /// The columns of this range that a value of the word leaves.
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
    /// For each word, the rows that read it.
    tables: Vec<Vec<WordTable<'a>>>,
    steps_left: usize,
    visit: &'a mut dyn FnMut(u64),
}

impl Search<'_> {
    /// Follows a beginning of `word` words, for which `ranges` has the fitting columns of each row.
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
