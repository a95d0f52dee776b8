//! What the traits cost: the summaries against hand-written loops that do the same work.
//!
//! Both sides take the same keys in the same batches, in turn, round by round; the ratio is the
//! median over the rounds of thread CPU time against thread CPU time. Prints one line for each
//! summary and table size, and fails where a ratio is above the limit.
#![expect(clippy::unwrap_used, reason = "a benchmark may stop at the first surprise")]

use std::hint::black_box;

use flowgauge_core::batch::{BATCH_PACKETS, Batch};
use flowgauge_core::catalog;
use flowgauge_core::key::{FlowKey, Key13};
use flowgauge_core::summary::Options;
use flowgauge_kernel::{Digester, Isa, Seed, Zeroed, prefetch};
use rustix::time::{ClockId, clock_gettime};

const PACKETS: usize = 4 << 20;
const ROUNDS: usize = 15;
const AHEAD: usize = 32;
const FRAME_BYTES: u32 = 64;
const KEY_BYTES: usize = 13;
/// A summary may take this much longer than its hand-written loop.
const LIMIT: f64 = 1.15;

type Words = [u64; 2];

fn main() {
    let digester = Digester::new(Seed::new(1), Isa::best());
    println!("instruction set {}, {PACKETS} packets of Zipf 1.0, {ROUNDS} rounds", Isa::best());
    println!("summary\ttable\ttraits ns\tby hand ns\tratio");
    let mut worst: f64 = 0.0;
    for (name, bytes) in [("64 KB", 64 << 10), ("4 MB", 4 << 20), ("128 MB", 128 << 20)] {
        let buckets = bytes / 32;
        let keys = zipf(buckets / 2);
        worst = worst.max(compare("linear-table", name, &keys, digester, ("buckets", buckets), {
            let mut table = TableByHand::new(buckets);
            move |words| table.ingest(words, &digester)
        }));
        let columns = bytes / 4;
        worst = worst.max(compare("count-array", name, &keys, digester, ("columns", columns), {
            let mut array = ArrayByHand::new(columns);
            move |words| array.ingest(words, &digester)
        }));
        let columns = bytes / 32;
        worst =
            worst.max(compare("replacing-array", name, &keys, digester, ("columns", columns), {
                let mut array = ReplacingByHand::new(columns);
                move |words| array.ingest(words, &digester)
            }));
    }
    assert!(worst <= LIMIT, "the traits cost {worst:.2} times the hand-written loop");
}

/// Keys of `flows` flows, popularity by Zipf 1.0, in random order.
fn zipf(flows: usize) -> Vec<Words> {
    let mut cumulated: Vec<f64> = Vec::with_capacity(flows);
    let mut sum = 0.0;
    for rank in 1..=flows {
        sum += 1.0 / rank as f64;
        cumulated.push(sum);
    }
    let mut state = 1u64;
    let mut random = move || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    let draw = |_| {
        let rank = cumulated.partition_point(|below| *below < random() * sum) as u64;
        [rank.wrapping_mul(0x9e37_79b9_7f4a_7c15), rank & 0xff_ffff]
    };
    (0..PACKETS).map(draw).collect()
}

fn thread_seconds() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 * 1e-9
}

fn compare(
    algorithm: &str,
    table: &str,
    words: &[Words],
    digester: Digester,
    parameter: (&str, usize),
    mut by_hand: impl FnMut(&[Words]),
) -> f64 {
    let mut options = Options::new(16 << 20, 1).with([(parameter.0, parameter.1)]);
    options.digester = digester;
    let mut summary = catalog::build::<Key13>(algorithm, &options).unwrap();
    let keys: Vec<Key13> = words.iter().map(|words| key(*words)).collect();
    let mut batch = Batch::new();
    let mut times = Vec::new();
    for _ in 0..=ROUNDS {
        let start = thread_seconds();
        for keys in keys.chunks(BATCH_PACKETS) {
            batch.fill(keys, FRAME_BYTES);
            summary.ingest(&mut batch);
        }
        let middle = thread_seconds();
        by_hand(words);
        times.push((middle - start, thread_seconds() - middle));
    }
    black_box(summary.answers().saturated());
    // The first round fills the tables and their pages.
    times.remove(0);
    let median = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let ns = |seconds: f64| seconds / PACKETS as f64 * 1e9;
    let traits = ns(median(times.iter().map(|time| time.0).collect()));
    let hand = ns(median(times.iter().map(|time| time.1).collect()));
    let ratio = median(times.iter().map(|time| time.0 / time.1).collect());
    println!("{algorithm}\t{table}\t{traits:.2}\t{hand:.2}\t{ratio:.2}");
    ratio
}

fn key(words: Words) -> Key13 {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    Key13::from_canonical(&bytes[..KEY_BYTES]).unwrap()
}

#[derive(Clone, Copy, bytemuck::Zeroable)]
#[repr(C)]
struct Bucket {
    words: Words,
    packets: u32,
    bytes: u64,
}

impl Bucket {
    fn count(&mut self) -> bool {
        let (packets, full) = self.packets.overflowing_add(1);
        let (bytes, overflow) = self.bytes.overflowing_add(u64::from(FRAME_BYTES));
        self.packets = if full { u32::MAX } else { packets };
        self.bytes = if overflow { u64::MAX } else { bytes };
        full | overflow
    }
}

/// Runs `visit` for each key with its digest, the memory of `slots` being asked for ahead.
macro_rules! digested {
    ($words:expr, $digester:expr, $slots:expr, |$word:ident, $digest:ident| $visit:block) => {
        let mask = $slots.len() - 1;
        let mut digests = [0; BATCH_PACKETS];
        for batch in $words.chunks(BATCH_PACKETS) {
            let digests = &mut digests[..batch.len()];
            $digester.digest_batch(batch, KEY_BYTES, digests);
            for digest in digests.iter().take(AHEAD) {
                prefetch(&$slots, *digest as usize & mask);
            }
            for i in 0..batch.len() {
                if let Some(digest) = digests.get(i + AHEAD) {
                    prefetch(&$slots, *digest as usize & mask);
                }
                let ($word, $digest) = (batch[i], digests[i]);
                $visit
            }
        }
    };
}

struct TableByHand {
    buckets: Zeroed<Bucket>,
    occupied: Zeroed<u32>,
    flows: usize,
    untracked: u64,
    saturated: u64,
}

impl TableByHand {
    fn new(buckets: usize) -> Self {
        let occupied = Zeroed::new(buckets / 4 * 3).unwrap();
        let buckets = Zeroed::new(buckets).unwrap();
        Self { buckets, occupied, flows: 0, untracked: 0, saturated: 0 }
    }

    fn ingest(&mut self, words: &[Words], digester: &Digester) {
        let buckets: &mut [Bucket] = &mut self.buckets;
        let occupied: &mut [u32] = &mut self.occupied;
        let mut flows = self.flows;
        digested!(words, digester, buckets, |word, digest| {
            let mask = buckets.len() - 1;
            let mut at = digest as usize & mask;
            while buckets[at].packets != 0 && buckets[at].words != word {
                at = (at + 1) & mask;
            }
            let bucket = &mut buckets[at];
            if bucket.packets != 0 {
                if bucket.count() {
                    self.saturated += 1;
                }
            } else if flows < occupied.len() {
                *bucket = Bucket { words: word, packets: 1, bytes: u64::from(FRAME_BYTES) };
                occupied[flows] = at as u32;
                flows += 1;
            } else {
                self.untracked += 1;
            }
        });
        self.flows = flows;
    }
}

/// A counter array with its set of keys over a thousandth of the packets so far.
struct ArrayByHand {
    counters: Zeroed<u32>,
    heavy: Vec<Option<Words>>,
    members: usize,
    packets: u64,
    saturated: u64,
}

impl ArrayByHand {
    fn new(columns: usize) -> Self {
        let counters = Zeroed::new(columns).unwrap();
        Self { counters, heavy: vec![None; 1 << 15], members: 0, packets: 0, saturated: 0 }
    }

    fn ingest(&mut self, words: &[Words], digester: &Digester) {
        let (mut packets, mut saturated) = (self.packets, 0);
        digested!(words, digester, self.counters, |word, digest| {
            let mask = self.counters.len() - 1;
            let counter = &mut self.counters[digest as usize & mask];
            let (count, full) = counter.overflowing_add(1);
            *counter = if full { u32::MAX } else { count };
            saturated += u64::from(full);
            packets += 1;
            if u64::from(*counter) * 1000 > packets && self.members < 1 << 14 {
                let mask = self.heavy.len() - 1;
                let mut at = (digest >> 33) as usize & mask;
                while self.heavy[at].is_some_and(|member| member != word) {
                    at = (at + 1) & mask;
                }
                self.members += usize::from(self.heavy[at].is_none());
                self.heavy[at] = Some(word);
            }
        });
        self.packets = packets;
        self.saturated += saturated;
    }
}

struct ReplacingByHand {
    buckets: Zeroed<Bucket>,
    displaced: u64,
    displaced_bytes: u64,
    saturated: u64,
}

impl ReplacingByHand {
    fn new(columns: usize) -> Self {
        let buckets = Zeroed::new(columns).unwrap();
        Self { buckets, displaced: 0, displaced_bytes: 0, saturated: 0 }
    }

    fn ingest(&mut self, words: &[Words], digester: &Digester) {
        let (mut displaced, mut displaced_bytes) = (0, 0);
        digested!(words, digester, self.buckets, |word, digest| {
            let mask = self.buckets.len() - 1;
            let bucket = &mut self.buckets[digest as usize & mask];
            if bucket.words == word && bucket.packets > 0 {
                if bucket.count() {
                    self.saturated += 1;
                }
            } else {
                displaced += u64::from(bucket.packets);
                displaced_bytes += bucket.bytes;
                *bucket = Bucket { words: word, packets: 1, bytes: u64::from(FRAME_BYTES) };
            }
        });
        self.displaced += displaced;
        self.displaced_bytes += displaced_bytes;
    }
}
