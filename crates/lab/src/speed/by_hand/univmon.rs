//! UnivMon.

use flowgauge_kernel::Zeroed;

use super::{AHEAD, BATCH, ByHand, ask, mix, zeroed};

/// Keys kept per depth.
const TOP: usize = 128;

/// Slots of the index of these keys.
const PLACES: usize = 2 * TOP;

/// The heaviest keys of a depth: a min-heap by estimate, and an index of positions by key.
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

    /// The index slot of a key, or the slot where it would go.
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

    /// Whether a key is certainly held: branch-free, and without keys beyond their first slots.
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

    /// Removes the first key from the index.
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

/// Number of levels: half of the keys of a level are also in the next one.
const LEVELS: usize = 4;

/// Total columns of a row: 65536 for the first level, then half as many from level to level.
const WIDTH: usize = 65536 + 32768 + 16384 + 8192;
const STARTS: [usize; LEVELS] = [0, 65536, 65536 + 32768, 65536 + 32768 + 16384];

/// The deepest level of a key.
#[inline(always)]
fn depth(digest: u64) -> usize {
    (mix(digest, 0) | 1 << (LEVELS - 1)).trailing_zeros() as usize
}

#[inline(always)]
fn columns(digest: u64, depth: usize) -> [usize; 4] {
    let column = |row: usize| (digest >> (16 * row)) as usize & (65535 >> depth);
    std::array::from_fn(|row| (STARTS[depth] + column(row)) % WIDTH)
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

/// Four rows, and the heaviest keys of each depth.
pub(super) struct UnivMon {
    rows: Zeroed<[[i32; WIDTH]; 4]>,
    tops: [Top; LEVELS],
}

impl UnivMon {
    pub(super) fn new() -> Self {
        Self { rows: zeroed(1), tops: std::array::from_fn(|_| Top::new()) }
    }
}

impl ByHand for UnivMon {
    fn clear(&mut self) {
        self.rows[0].iter_mut().for_each(|row| row.fill(0));
        self.tops = std::array::from_fn(|_| Top::new());
    }

    #[inline(always)]
    fn update(&mut self, keys: &[u64], digests: &[u64]) {
        let (rows, tops) = (&mut self.rows[0], &mut self.tops);
        let (mut depths, mut held) = ([0; BATCH], [false; BATCH]);
        for (i, (&key, &digest)) in keys.iter().zip(digests).enumerate() {
            let depth = depth(digest);
            (depths[i], held[i]) = (depth as u8, tops[depth].surely_holds(key, digest));
        }
        let mut least = std::array::from_fn::<_, LEVELS, _>(|depth| tops[depth].least());
        for (i, &digest) in digests.iter().enumerate() {
            if let Some(&ahead) = digests.get(i + AHEAD) {
                let columns = columns(ahead, usize::from(depths[i + AHEAD]) % LEVELS);
                (0..4).for_each(|row| ask(&rows[row], columns[row]));
            }
            let depth = usize::from(depths[i]) % LEVELS;
            let (columns, signs) = (columns(digest, depth), signs(digest));
            let cells: [i32; 4] = std::array::from_fn(|row| rows[row][columns[row]]);
            let values: [i32; 4] =
                std::array::from_fn(|row| ((cells[row] ^ signs[row]) - signs[row]) + 1);
            (0..4)
                .for_each(|row| rows[row][columns[row]] = (values[row] ^ signs[row]) - signs[row]);
            let over: i32 = values.iter().map(|value| i32::from(*value > least[depth])).sum();
            if over > 1 + 4 * i32::from(held[i]) {
                let (value, top) = (middle(values), &mut tops[depth]);
                if value > least[depth] && !top.holds(keys[i], digest) {
                    top.offer(keys[i], digest, value, |digest| {
                        let columns = self::columns(digest, depth);
                        let signs = self::signs(digest);
                        middle(std::array::from_fn(|row| {
                            (rows[row][columns[row]] ^ signs[row]) - signs[row]
                        }))
                    });
                    least[depth] = top.least();
                    for later in i + 1..keys.len() {
                        if usize::from(depths[later]) == depth {
                            held[later] = top.surely_holds(keys[later], digests[later]);
                        }
                    }
                }
            }
        }
    }
}
