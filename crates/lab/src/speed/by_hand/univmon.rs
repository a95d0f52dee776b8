//! UnivMon.

use flowgauge_kernel::Zeroed;

use super::{AHEAD, BATCH, ByHand, ask, mix, zeroed};

/// Keys that a level keeps.
const TOP: usize = 128;

/// Places of the index of these keys.
const PLACES: usize = 2 * TOP;

/// The heaviest keys of a level: a heap by what they were estimated at, the least first, and where
/// in it each key is.
struct Top {
    heap: [(i32, u64, u64); TOP],
    index: [u8; PLACES],
    len: usize,
}

impl Top {
    fn new() -> Self {
        Self { heap: [(0, 0, 0); TOP], index: [0; PLACES], len: 0 }
    }

    fn least(&self) -> i32 {
        if self.len == TOP { self.heap[0].0 } else { i32::MIN }
    }

    /// The place in the index of a key, or where it would be.
    #[inline(always)]
    fn find(&self, key: u64, digest: u64) -> usize {
        let mut at = digest as usize % PLACES;
        while self.index[at] != 0 && self.heap[usize::from(self.index[at] - 1) % TOP].1 != key {
            at = (at + 1) % PLACES;
        }
        at
    }

    #[inline(always)]
    fn holds(&self, key: u64, digest: u64) -> bool {
        self.index[self.find(key, digest)] != 0
    }

    /// Which keys are surely held.
    #[inline(never)]
    fn look(&self, keys: &[u64], digests: &[u64], held: &mut [bool]) {
        for ((held, &key), &digest) in held.iter_mut().zip(keys).zip(digests) {
            *held = self.surely_holds(key, digest);
        }
    }

    /// Whether a key is surely held: no branch can be mispredicted, and those that are not in the
    /// first places are left out.
    #[expect(clippy::needless_bitwise_bool, reason = "lazy operators are branches")]
    #[inline(always)]
    fn surely_holds(&self, key: u64, digest: u64) -> bool {
        let held = |at: usize| {
            let number = self.index[at % PLACES];
            (number != 0) & (self.heap[usize::from(number.wrapping_sub(1)) % TOP].1 == key)
        };
        held(digest as usize) | held(digest as usize + 1)
    }

    #[inline(never)]
    fn offer(&mut self, key: u64, digest: u64, value: i32, estimate: impl Fn(u64) -> i32) {
        if self.len < TOP {
            self.len += 1;
            let mut at = self.len - 1;
            self.put(at, (value, key, digest));
            while at > 0 && self.heap[at] < self.heap[(at - 1) / 2] {
                self.swap(at, (at - 1) / 2);
                at = (at - 1) / 2;
            }
            return;
        }
        while self.heap[0].0 < value {
            let now = estimate(self.heap[0].2);
            let stays = now > self.heap[0].0;
            if stays {
                self.heap[0].0 = now;
            } else {
                self.forget();
                self.put(0, (value, key, digest));
            }
            self.sink();
            if !stays {
                return;
            }
        }
    }

    fn put(&mut self, at: usize, entry: (i32, u64, u64)) {
        let place = self.find(entry.1, entry.2);
        self.heap[at] = entry;
        self.index[place] = at as u8 + 1;
    }

    /// Takes the first key out of the index.
    fn forget(&mut self) {
        let mut gap = self.find(self.heap[0].1, self.heap[0].2);
        let mut at = gap;
        loop {
            at = (at + 1) % PLACES;
            if self.index[at] == 0 {
                break;
            }
            let home = self.heap[usize::from(self.index[at]) - 1].2 as usize % PLACES;
            if at.wrapping_sub(home) % PLACES >= at.wrapping_sub(gap) % PLACES {
                self.index[gap] = self.index[at];
                gap = at;
            }
        }
        self.index[gap] = 0;
    }

    fn swap(&mut self, a: usize, b: usize) {
        let places = [a, b].map(|at| self.find(self.heap[at].1, self.heap[at].2));
        self.heap.swap(a, b);
        self.index.swap(places[0], places[1]);
    }

    fn sink(&mut self) {
        let mut at = 0;
        while let Some(least) =
            (2 * at + 1..(2 * at + 3).min(self.len)).min_by_key(|&child| self.heap[child])
        {
            if self.heap[at] <= self.heap[least] {
                return;
            }
            self.swap(at, least);
            at = least;
        }
    }
}

/// Four rows of columns and the heaviest keys.
struct Level<const COLUMNS: usize> {
    rows: Zeroed<[[i32; COLUMNS]; 4]>,
    top: Top,
}

fn columns<const COLUMNS: usize>(digest: u64) -> [usize; 4] {
    std::array::from_fn(|row| (digest >> (COLUMNS.ilog2() as usize * row)) as usize % COLUMNS)
}

#[inline(always)]
fn signs(digest: u64) -> [i32; 4] {
    let bits = mix(digest, 17) as u32;
    [1, 2, 4, 8].map(|bit| if bits & bit == 0 { 0 } else { -1 })
}

fn middle([a, b, c, d]: [i32; 4]) -> i32 {
    let (low, high) = (a.min(b).max(c.min(d)), a.max(b).min(c.max(d)));
    low.midpoint(high)
}

impl<const COLUMNS: usize> Level<COLUMNS> {
    fn new() -> Self {
        Self { rows: zeroed(1), top: Top::new() }
    }

    fn clear(&mut self) {
        self.rows[0].iter_mut().for_each(|row| row.fill(0));
        self.top = Top::new();
    }

    #[inline(never)]
    fn update(&mut self, keys: &[u64], digests: &[u64]) {
        let rows = &mut self.rows[0];
        let mut least = self.top.least();
        let mut held = [false; BATCH];
        self.top.look(keys, digests, &mut held);
        for (i, &digest) in digests.iter().enumerate() {
            if let Some(&ahead) = digests.get(i + AHEAD) {
                let columns = columns::<COLUMNS>(ahead);
                (0..4).for_each(|row| ask(&rows[row], columns[row]));
            }
            let (columns, signs) = (columns::<COLUMNS>(digest), signs(digest));
            let cells: [i32; 4] = std::array::from_fn(|row| rows[row][columns[row]]);
            let values: [i32; 4] =
                std::array::from_fn(|row| ((cells[row] ^ signs[row]) - signs[row]) + 1);
            (0..4)
                .for_each(|row| rows[row][columns[row]] = (values[row] ^ signs[row]) - signs[row]);
            let over: i32 = values.iter().map(|value| i32::from(*value > least)).sum();
            if over > 1 + 4 * i32::from(held[i % BATCH]) {
                let value = middle(values);
                if value > least && !self.top.holds(keys[i], digest) {
                    self.top.offer(keys[i], digest, value, |digest| {
                        let (columns, signs) =
                            (self::columns::<COLUMNS>(digest), self::signs(digest));
                        middle(std::array::from_fn(|row| {
                            (rows[row][columns[row]] ^ signs[row]) - signs[row]
                        }))
                    });
                    least = self.top.least();
                    self.top.look(&keys[i..], &digests[i..], &mut held[i..]);
                }
            }
        }
    }
}

/// Four levels, half of whose keys are in the next one.
pub(super) struct UnivMon {
    levels: (Level<65536>, Level<32768>, Level<16384>, Level<8192>),
}

impl UnivMon {
    pub(super) fn new() -> Self {
        Self { levels: (Level::new(), Level::new(), Level::new(), Level::new()) }
    }
}

impl ByHand for UnivMon {
    fn clear(&mut self) {
        self.levels.0.clear();
        self.levels.1.clear();
        self.levels.2.clear();
        self.levels.3.clear();
    }

    #[inline(always)]
    fn update(&mut self, keys: &[u64], digests: &[u64]) {
        self.levels.0.update(keys, digests);
        let (mut kept_keys, mut words, mut own) = ([0; BATCH], [0; BATCH], [0; BATCH]);
        // Of the keys in a level, those with another one bit are in the next.
        let mut depths = [0; BATCH];
        for (depth, &digest) in depths.iter_mut().zip(digests) {
            *depth = mix(digest, 0);
        }
        let mut count = digests.len();
        kept_keys[..count].copy_from_slice(keys);
        words[..count].copy_from_slice(digests);
        for level in 1..4 {
            let mut kept = 0;
            for i in 0..count {
                (kept_keys[kept], words[kept], depths[kept]) = (kept_keys[i], words[i], depths[i]);
                kept += (depths[i] >> (level - 1) & 1) as usize ^ 1;
            }
            count = kept;
            for (own, &word) in own.iter_mut().zip(&words[..count]) {
                *own = mix(word, level);
            }
            let (keys, own) = (&kept_keys[..count], &own[..count]);
            match level {
                1 => self.levels.1.update(keys, own),
                2 => self.levels.2.update(keys, own),
                _ => self.levels.3.update(keys, own),
            }
        }
    }
}
