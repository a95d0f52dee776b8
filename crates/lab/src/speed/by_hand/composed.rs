//! Structures of several parts: Elastic Sketch, FlowRadar, SketchVisor, UnivMon and hierarchies.

use std::hint::black_box;

use bytemuck::Zeroable;
use flowgauge_core::key::{FlowKey, Key8};
use flowgauge_kernel::{Digester, Zeroed};

use super::counters::{MisraGries, SpaceSaving};
use super::sketches::{CountMin, Sketch};
use super::{AHEAD, BATCH, ByHand, FRAME, ask, mix, zeroed};

/// Buckets of Elastic Sketch, its small counters, and flows per bucket.
const BUCKETS: usize = 1 << 11;
const LIGHT: usize = 1 << 19;
const SLOTS: usize = 7;

#[derive(Clone, Copy, Zeroable)]
#[repr(C)]
struct Bucket {
    votes: [u32; SLOTS],
    against: u32,
    marked: u32,
    keys: [u64; SLOTS],
}

/// Elastic Sketch: buckets of seven flows, and a row of small counters.
pub(super) struct Elastic {
    buckets: Zeroed<Bucket>,
    light: Zeroed<u8>,
    light_total: u64,
}

impl Elastic {
    pub(super) fn new() -> Self {
        Self { buckets: zeroed(BUCKETS), light: zeroed(LIGHT), light_total: 0 }
    }
}

impl ByHand for Elastic {
    fn clear(&mut self) {
        self.buckets.fill(Bucket::zeroed());
        self.light.fill(0);
        self.light_total = 0;
    }

    #[inline(always)]
    fn update(&mut self, keys: &[u64], digests: &[u64]) {
        let (buckets, light) = (&mut self.buckets[..BUCKETS], &mut self.light[..LIGHT]);
        let mut lighten = |digest: u64, packets: u32| {
            let counter = &mut light[mix(digest, 1) as usize % LIGHT];
            *counter = counter.saturating_add(packets.min(255) as u8);
            self.light_total += u64::from(packets);
        };
        let mut places = [0; BATCH];
        for (place, &digest) in places.iter_mut().zip(digests) {
            *place = mix(digest, 0) as usize % BUCKETS;
        }
        for (i, &digest) in digests.iter().enumerate() {
            let bucket = &mut buckets[places[i % BATCH]];
            let found = (0..SLOTS).fold(0, |found, slot| {
                let (same, taken) = (bucket.keys[slot] == keys[i], bucket.votes[slot] > 0);
                found | (u32::from(same) & u32::from(taken)) << slot
            });
            if found != 0 {
                bucket.votes[found.trailing_zeros() as usize % SLOTS] += 1;
                continue;
            }
            // Votes with the slot number in the low bits, so the minimum gives both.
            let votes = |slot: usize| u64::from(bucket.votes[slot]) << 3 | slot as u64;
            let least = (0..SLOTS).map(votes).fold(u64::MAX, u64::min);
            let (slot, votes) = (least as usize % 8 % SLOTS, (least >> 3) as u32);
            if votes > 0 {
                bucket.against = bucket.against.saturating_add(1);
                if bucket.against / 8 < votes {
                    lighten(digest, 1);
                    continue;
                }
                // The digest of the evicted flow costs as much as another one of this flow.
                lighten(mix(bucket.keys[slot], 2), votes);
                bucket.against = 0;
            }
            bucket.marked &= !(1 << slot);
            bucket.marked |= u32::from(votes > 0) << slot;
            (bucket.keys[slot], bucket.votes[slot]) = (keys[i], 1);
        }
    }
}

/// Cells per hash function.
const PART: usize = 1 << 16;

/// Lines of 512 bits in the filter: a third of the cells' memory.
const LINES: usize = (4 * PART * 20 / 3).div_ceil(64);

/// The part of a cell that the first packet of a flow changes.
#[derive(Clone, Copy, Zeroable)]
#[repr(C, packed(4))]
struct Entered {
    key: u64,
    flows: u16,
    high_bytes: u16,
}

/// FlowRadar: a filter with four bits per flow in one line, and four cells per flow.
pub(super) struct FlowRadar {
    /// Packets in the low half, the low 32 bits of the bytes in the high half.
    counts: Zeroed<[u64; PART]>,
    entered: Zeroed<[Entered; PART]>,
    filter: Zeroed<[u64; 8]>,
    packets: u64,
    bytes: u64,
}

impl FlowRadar {
    pub(super) fn new() -> Self {
        Self { counts: zeroed(4), entered: zeroed(4), filter: zeroed(LINES), packets: 0, bytes: 0 }
    }
}

fn cells(digest: u64) -> [usize; 4] {
    std::array::from_fn(|hash| usize::from((digest >> (16 * hash)) as u16))
}

/// The word and bit for hash number `hash`.
fn bit(word: u64, hash: u32) -> (usize, u64) {
    let bits = word >> (9 * hash);
    ((bits >> 6) as usize % 8, bits % 64)
}

fn holds(line: &[u64; 8], word: u64) -> bool {
    let bits = (0..4).map(|hash| bit(word, hash));
    bits.fold(1, |held, (at, shift)| held & line[at] >> shift) != 0
}

impl ByHand for FlowRadar {
    fn clear(&mut self) {
        self.counts.iter_mut().for_each(|counts| counts.fill(0));
        self.entered.iter_mut().for_each(|entered| entered.fill(Entered::zeroed()));
        self.filter.fill([0; 8]);
        (self.packets, self.bytes) = (0, 0);
    }

    #[inline(always)]
    fn update(&mut self, keys: &[u64], digests: &[u64]) {
        let (counts, entered) = (&mut self.counts[..4], &mut self.entered[..4]);
        let filter = &mut self.filter[..LINES];
        let mut words = [(0_u64, 0_u32); BATCH];
        for (entry, &digest) in words.iter_mut().zip(digests) {
            let word = mix(digest, 0);
            *entry = (word, (((word >> 40) * LINES as u64) >> 24) as u32);
            ask(filter, entry.1 as usize);
        }
        for &digest in digests {
            counts.iter().zip(cells(digest)).for_each(|(counts, cell)| ask(counts, cell));
        }
        let (mut new, mut many) = ([0_u8; BATCH], 0);
        for (i, &(word, line)) in words[..digests.len()].iter().enumerate() {
            new[many % BATCH] = i as u8;
            many += usize::from(!holds(&filter[line as usize], word));
        }
        for &i in &new[..many] {
            let digest = digests[usize::from(i)];
            entered.iter().zip(cells(digest)).for_each(|(entered, cell)| ask(entered, cell));
        }
        for &digest in digests {
            for hash in 0..4 {
                let cell = cells(digest)[hash];
                let (sum, carry) = counts[hash][cell].overflowing_add(FRAME << 32 | 1);
                counts[hash][cell] = sum;
                if carry {
                    entered[hash][cell].high_bytes += 1;
                }
            }
        }
        for &i in &new[..many] {
            let (word, line) = words[usize::from(i)];
            let line = &mut filter[line as usize];
            if holds(line, word) {
                continue;
            }
            (0..4).map(|hash| bit(word, hash)).for_each(|(at, shift)| line[at] |= 1 << shift);
            let key = keys[usize::from(i)];
            for (entered, cell) in entered.iter_mut().zip(cells(digests[usize::from(i)])) {
                entered[cell].key ^= key;
                entered[cell].flows += 1;
            }
        }
        self.packets += keys.len() as u64;
        self.bytes += keys.len() as u64 * FRAME;
    }
}

/// Time of the normal path per packet, and its maximum backlog, in picoseconds.
const SERVICE: u64 = 1_000_000_000_000 / 2_000_000;
const BOUND: u64 = 1024 * SERVICE;

/// SketchVisor: Count-Min, and Misra-Gries for the packets that find its queue full.
pub(super) struct SketchVisor {
    times_ns: [i64; BATCH],
    last_ns: i64,
    backlog: u64,
    normal: Sketch<CountMin, true>,
    fast: MisraGries<1024, 128>,
}

impl SketchVisor {
    pub(super) fn new(digester: Digester) -> Self {
        let (normal, fast) = (Sketch::new(), MisraGries::new(digester));
        Self { times_ns: [0; BATCH], last_ns: i64::MIN, backlog: 0, normal, fast }
    }
}

/// The packets that take one path.
struct Taken {
    keys: [u64; BATCH],
    digests: [u64; BATCH],
    len: usize,
}

impl Taken {
    fn new() -> Self {
        Self { keys: [0; BATCH], digests: [0; BATCH], len: 0 }
    }

    #[inline(always)]
    fn push(&mut self, key: u64, digest: u64) {
        (self.keys[self.len % BATCH], self.digests[self.len % BATCH]) = (key, digest);
        self.len += 1;
    }
}

impl ByHand for SketchVisor {
    fn clear(&mut self) {
        (self.last_ns, self.backlog) = (i64::MIN, 0);
        self.normal.clear();
        self.fast.clear();
    }

    #[inline(always)]
    fn update(&mut self, keys: &[u64], digests: &[u64]) {
        let times_ns = &black_box(&self.times_ns)[..keys.len()];
        let (mut queued, mut passed) = (Taken::new(), Taken::new());
        for (i, &time_ns) in times_ns.iter().enumerate() {
            if time_ns > self.last_ns {
                let idle = time_ns.abs_diff(self.last_ns).saturating_mul(1000);
                self.backlog = self.backlog.saturating_sub(idle);
                self.last_ns = time_ns;
            }
            if self.backlog + SERVICE <= BOUND {
                self.backlog += SERVICE;
                queued.push(keys[i], digests[i]);
            } else {
                passed.push(keys[i], digests[i]);
            }
        }
        self.normal.update(&queued.keys[..queued.len], &queued.digests[..queued.len]);
        self.fast.update(&passed.keys[..passed.len], &passed.digests[..passed.len]);
    }
}

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

/// UnivMon: four rows, and the heaviest keys of each depth.
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

/// Counters of a node with more prefixes than that.
const COUNTERS: usize = 1400;

const NODES: usize = 25;

struct Node {
    mask: u64,
    counts: SpaceSaving<2048, 256>,
}

fn nodes(digester: Digester) -> Vec<Node> {
    let mut nodes = Vec::new();
    for (source, destination) in
        (0..=4).flat_map(|source| (0..=4).map(move |bytes| (source, bytes)))
    {
        let kept = |bytes: usize, at: usize| if at < bytes { 0xff } else { 0 };
        let mask =
            std::array::from_fn(|at| kept(source, at) | kept(destination, at.wrapping_sub(4)));
        let prefixes = 1usize << (8 * (source + destination)).min(32);
        let counts = SpaceSaving::new(digester, COUNTERS.min(prefixes));
        nodes.push(Node { mask: u64::from_ne_bytes(mask), counts });
    }
    nodes
}

impl Node {
    #[inline(always)]
    fn update(&mut self, digester: &Digester, keys: &[u64]) {
        let (mut prefixes, mut digests) = ([0; BATCH], [0; BATCH]);
        let (prefixes, digests) = (&mut prefixes[..keys.len()], &mut digests[..keys.len()]);
        for (prefix, key) in prefixes.iter_mut().zip(keys) {
            *prefix = key & self.mask;
        }
        digester.digest_batch(prefixes, Key8::BYTES, digests);
        self.counts.update(prefixes, digests);
    }
}

/// MST: counts every packet in every node, a Space-Saving per prefix.
pub(super) struct Mst {
    digester: Digester,
    nodes: Vec<Node>,
}

impl Mst {
    pub(super) fn new(digester: Digester) -> Self {
        Self { digester, nodes: nodes(digester) }
    }
}

impl ByHand for Mst {
    const DIGESTS: bool = false;

    fn clear(&mut self) {
        self.nodes.iter_mut().for_each(|node| node.counts.clear());
    }

    #[inline(always)]
    fn update(&mut self, keys: &[u64], _: &[u64]) {
        for node in &mut self.nodes {
            node.update(&self.digester, keys);
        }
    }
}

/// RHHH: counts every packet in one random node.
pub(super) struct Rhhh {
    all: Mst,
    random: fastrand::Rng,
    packets: u64,
}

impl Rhhh {
    pub(super) fn new(digester: Digester) -> Self {
        Self { all: Mst::new(digester), random: fastrand::Rng::with_seed(1), packets: 0 }
    }
}

impl ByHand for Rhhh {
    const DIGESTS: bool = false;

    fn clear(&mut self) {
        self.all.clear();
        self.packets = 0;
    }

    #[inline(always)]
    fn update(&mut self, keys: &[u64], _: &[u64]) {
        let (mut drawn, mut ends, mut random) =
            ([0_u8; BATCH], [0; NODES + 1], self.random.clone());
        for node in &mut drawn[..keys.len()] {
            *node = ((u64::from(random.u32(..)) * NODES as u64) >> 32) as u8;
            ends[usize::from(*node) % NODES + 1] += 1;
        }
        self.random = random;
        for node in 0..NODES {
            ends[node + 1] += ends[node];
        }
        let mut sorted = [0; BATCH];
        for (&key, &node) in keys.iter().zip(&drawn) {
            let end = &mut ends[usize::from(node) % NODES];
            sorted[*end % BATCH] = key;
            *end += 1;
        }
        let mut begin = 0;
        for (node, &end) in self.all.nodes.iter_mut().zip(&ends) {
            if begin < end {
                node.update(&self.all.digester, &sorted[begin..end]);
            }
            begin = end;
        }
        self.packets += keys.len() as u64;
    }
}
