//! The cost of the traits: summaries against hand-written loops that do the same work.
//!
//! Both sides take the same keys in the same batches, alternating by round, into tables of the same
//! flows and number of buckets. The ratio is the median over the rounds of the ratio of thread CPU
//! times. Prints one line for each summary and table size, and fails if a ratio is above the limit.
#![expect(clippy::unwrap_used, reason = "a benchmark may stop at the first surprise")]

use flowgauge_core::batch::{BATCH_PACKETS, Batch};
use flowgauge_core::catalog;
use flowgauge_core::key::{FlowKey, Key16};
use flowgauge_core::summary::{Options, Summary};
use flowgauge_kernel::{Digester, Isa, Seed, Zeroed, prefetch};
use rustix::time::{ClockId, clock_gettime};

const PACKETS: usize = 4 << 20;
const ROUNDS: usize = 15;
const FRAME_BYTES: u32 = 64;
const KEY_BYTES: usize = 13;
/// A summary may take this much longer than its hand-written loop.
const LIMIT: f64 = 1.15;

type Words = [u64; 2];

fn main() {
    let digester = Digester::new(Seed::number(1), Isa::best());
    println!("instruction set {}, {PACKETS} packets of Zipf 1.0, {ROUNDS} rounds", Isa::best());
    println!("summary\ttable\ttraits ns\tby hand ns\tratio");
    let mut worst: f64 = 0.0;
    for (name, bytes) in [("64 KB", 64 << 10), ("4 MB", 4 << 20), ("128 MB", 128 << 20)] {
        let buckets = bytes / 32;
        let flows = buckets / 2;
        let packets = zipf(flows);
        worst = worst.max(compare(
            "linear-table",
            name,
            flows,
            &packets,
            digester,
            ("buckets", buckets),
            {
                let mut table = TableByHand::new(buckets);
                move |words| table.ingest(words, &digester)
            },
        ));
        let columns = bytes / 4;
        worst = worst.max(compare(
            "count-array",
            name,
            flows,
            &packets,
            digester,
            ("columns", columns),
            {
                let mut array = ArrayByHand::new(columns);
                move |words| array.ingest(words, &digester)
            },
        ));
        let columns = bytes / 32;
        worst = worst.max(compare(
            "replacing-array",
            name,
            flows,
            &packets,
            digester,
            ("columns", columns),
            {
                let mut array = ReplacingByHand::new(columns);
                move |words| array.ingest(words, &digester)
            },
        ));
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
        let place = random() * sum;
        flow(cumulated.partition_point(|below| *below < place) as u64)
    };
    (0..PACKETS).map(draw).collect()
}

/// The key of the flow of this rank.
fn flow(rank: u64) -> Words {
    [rank.wrapping_mul(0x9e37_79b9_7f4a_7c15), rank & 0xff_ffff]
}

fn thread_seconds() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 * 1e-9
}

fn compare(
    algorithm: &str,
    table: &str,
    flows: usize,
    packets: &[Words],
    digester: Digester,
    parameter: (&str, usize),
    mut by_hand: impl FnMut(&[Words]),
) -> f64 {
    let mut options =
        Options::new(16 << 20, 1).for_keys(KEY_BYTES).with([(parameter.0, parameter.1)]);
    options.digester = digester;
    let mut summary = catalog::build::<Key16>(algorithm, &options).unwrap();
    let mut batch = Batch::new();
    let mut ingest = |summary: &mut dyn Summary<Key16>, keys: &[Key16]| {
        for keys in keys.chunks(BATCH_PACKETS) {
            batch.fill(keys, FRAME_BYTES);
            summary.ingest(&mut batch);
        }
    };
    let keys = |words: &[Words]| words.iter().map(|words| key(*words)).collect::<Vec<_>>();
    let all: Vec<Words> = (0..flows as u64).map(flow).collect();
    let (all_keys, packet_keys) = (keys(&all), keys(packets));
    // A table that grows with its flows is as large as the hand-written one from here on.
    ingest(&mut *summary, &all_keys);
    summary.clear();
    let mut round = |words: &[Words], keys: &[Key16]| {
        let start = thread_seconds();
        ingest(&mut *summary, keys);
        let middle = thread_seconds();
        by_hand(words);
        (middle - start, thread_seconds() - middle)
    };
    // Both get the flows in the same order; flows without packets come last.
    round(packets, &packet_keys);
    round(&all, &all_keys);
    let times: Vec<_> = (0..ROUNDS).map(|_| round(packets, &packet_keys)).collect();
    if let Some(listed) = summary.answers().flows() {
        assert_eq!(listed.len(), flows, "a flow is missing");
    }
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

fn key(words: Words) -> Key16 {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    Key16::from_canonical(&bytes[..KEY_BYTES]).unwrap()
}

#[derive(Clone, Copy, bytemuck::Zeroable)]
#[repr(C)]
struct Bucket {
    words: Words,
    packets: u32,
    bytes: u64,
}

impl Bucket {
    #[inline(always)]
    fn count(&mut self) -> bool {
        let packets = self.packets.checked_add(1);
        let bytes = self.bytes.checked_add(u64::from(FRAME_BYTES));
        self.packets = packets.unwrap_or(u32::MAX);
        self.bytes = bytes.unwrap_or(u64::MAX);
        packets.is_none() || bytes.is_none()
    }
}

/// Runs `visit` for each key with its index in the batch and its digest, and `finish` after each
/// batch. Prefetches `slots` by `ahead` keys.
///
/// The batch is copied first: digesting keys directly from uncached memory takes longer.
macro_rules! digested {
    (
        $words:expr, $digester:expr, $slots:expr, $ahead:expr,
        |$i:ident, $word:ident, $digest:ident| $visit:block
        $(, |$batch:ident, $digests:ident| $finish:block)?
    ) => {
        let mask = $slots.len() - 1;
        let mut digests = [0; BATCH_PACKETS];
        let mut held = [[0; 2]; BATCH_PACKETS];
        for batch in $words.chunks(BATCH_PACKETS) {
            let held = &mut held[..batch.len()];
            held.copy_from_slice(batch);
            let batch = &*held;
            let digests = &mut digests[..batch.len()];
            $digester.digest_batch(batch, KEY_BYTES, digests);
            for digest in digests.iter().take($ahead) {
                prefetch($slots, *digest as usize & mask);
            }
            for $i in 0..batch.len() {
                if let Some(digest) = digests.get($i + $ahead) {
                    prefetch($slots, *digest as usize & mask);
                }
                let ($word, $digest) = (&batch[$i], digests[$i]);
                $visit
            }
            $(
                let ($batch, $digests) = (batch, &*digests);
                $finish
            )?
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
        digested!(words, digester, buckets, 64, |_i, word, digest| {
            let mask = buckets.len() - 1;
            let mut at = digest as usize & mask;
            while buckets[at].packets != 0 && buckets[at].words != *word {
                at = (at + 1) & mask;
            }
            let bucket = &mut buckets[at];
            if bucket.packets != 0 {
                if bucket.count() {
                    self.saturated += 1;
                }
            } else if flows < occupied.len() {
                *bucket = Bucket { words: *word, packets: 1, bytes: u64::from(FRAME_BYTES) };
                occupied[flows] = at as u32;
                flows += 1;
            } else {
                self.untracked += 1;
            }
        });
        self.flows = flows;
    }
}

/// A counter array with a separately counted set of keys over 1/2000 of the packets so far.
struct ArrayByHand {
    counters: Zeroed<u32>,
    heavy: Vec<Option<(Words, u32)>>,
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
        let counters: &mut [u32] = &mut self.counters;
        let heavy: &mut [Option<(Words, u32)>] = &mut self.heavy;
        let (mut packets, mut saturated, mut members) = (self.packets, 0, self.members);
        let (mut listed, mut counts) = ([0u8; BATCH_PACKETS], [0u32; BATCH_PACKETS]);
        let mut over = 0;
        let mut low = packets / 2000;
        let mask = counters.len() - 1;
        digested!(
            words,
            digester,
            counters,
            32,
            |i, _word, digest| {
                let counter = &mut counters[digest as usize & mask];
                let count = counter.checked_add(1);
                *counter = count.unwrap_or(u32::MAX);
                if count.is_none() {
                    saturated += 1;
                }
                counts[i] = *counter;
                listed[over] = i as u8;
                over += usize::from(u64::from(*counter) > low);
            },
            |batch, digests| {
                let mask = heavy.len() - 1;
                for &i in &listed[..over] {
                    let i = usize::from(i);
                    if u64::from(counts[i]) * 2000 > packets + i as u64 + 1 && members < 1 << 14 {
                        let word = &batch[i];
                        let mut at = (digests[i] >> 33) as usize & mask;
                        loop {
                            let Some((member, own)) = &mut heavy[at] else {
                                heavy[at] = Some((*word, 1));
                                members += 1;
                                break;
                            };
                            if member == word {
                                *own = own.saturating_add(1);
                                break;
                            }
                            at = (at + 1) & mask;
                        }
                    }
                }
                packets += batch.len() as u64;
                low = packets / 2000;
                over = 0;
            }
        );
        self.members = members;
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
        let buckets: &mut [Bucket] = &mut self.buckets;
        let mask = buckets.len() - 1;
        digested!(words, digester, buckets, 32, |_i, word, digest| {
            let bucket = &mut buckets[digest as usize & mask];
            if bucket.words == *word && bucket.packets > 0 {
                if bucket.count() {
                    self.saturated += 1;
                }
            } else {
                displaced += u64::from(bucket.packets);
                displaced_bytes += bucket.bytes;
                *bucket = Bucket { words: *word, packets: 1, bytes: u64::from(FRAME_BYTES) };
            }
        });
        self.displaced += displaced;
        self.displaced_bytes += displaced_bytes;
    }
}
