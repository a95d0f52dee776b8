//! The digest: every instruction set equals the scalar twin, values are frozen, quality is high.

use flowgauge_kernel::{Digester, Isa, Seed, Words, scalar};

/// A small generator for the tests: `SplitMix64`.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// All lengths from 0 to 257 at all alignments of a cache line: 258 × 16 batches or more per type.
fn equals_twin<W: Words>(bytes: usize, make: impl Fn(&mut Random) -> W) {
    let mut random = Random(bytes as u64);
    for isa in Isa::available() {
        let mut cases = 0;
        let keys: Vec<W> = (0..257 + 16).map(|_| make(&mut random)).collect();
        let mut out = vec![0; 257 + 16];
        for len in 0..=257 {
            let digester = Digester::new(Seed::number(random.next()), isa);
            for shift in 0..16 {
                let (keys, out) =
                    (&keys[shift..shift + len], &mut out[15 - shift..15 - shift + len]);
                digester.digest_batch(keys, bytes, out);
                for (key, digest) in keys.iter().zip(&*out) {
                    assert_eq!(*digest, key.digest(digester.seed().secret(), bytes), "{isa} {len}");
                    cases += 1;
                }
            }
        }
        assert!(cases > 100_000, "{cases} cases");
    }
}

#[test]
fn every_instruction_set_equals_the_scalar_twin() {
    equals_twin(4, |random| [random.next() as u32, 0]);
    equals_twin(8, |random| [random.next() as u32, random.next() as u32]);
    equals_twin(8, Random::next);
    equals_twin(13, |random| [random.next(), random.next() & 0xff_ffff_ffff]);
    equals_twin(16, |random| [random.next(), random.next()]);
    equals_twin(32, |random| {
        std::array::from_fn::<u64, 5, _>(|i| if i < 4 { random.next() } else { 0 })
    });
    for bytes in [37, 40] {
        equals_twin(bytes, |random| std::array::from_fn::<u64, 5, _>(|_| random.next()));
    }
    // Extremes, where carries run through every bit.
    for word in [0, 1, u64::MAX, 1 << 63, 0xffff_ffff, 0xffff_ffff_0000_0000] {
        equals_twin(16, |random| [word, if random.next() & 1 == 0 { word } else { !word }]);
    }
}

#[test]
fn words_of_digests_are_folded_alike_on_every_instruction_set() {
    let mut random = Random(1);
    let extremes = [0, 1, u64::MAX, 1 << 63, 0xffff_ffff, 0xffff_ffff_0000_0000];
    let words: Vec<u64> = extremes.into_iter().chain((0..300).map(|_| random.next())).collect();
    let mut out = vec![0; words.len()];
    for isa in Isa::available() {
        let digester = Digester::new(Seed::number(1), isa);
        for (other, factor) in [(0, u64::MAX), (random.next(), random.next())] {
            for from in 0..words.len() {
                let (words, out) = (&words[from..], &mut out[from..]);
                digester.fold_batch(words, other, factor, out);
                for (word, folded) in words.iter().zip(&*out) {
                    assert_eq!(*folded, scalar::fold(word ^ other, factor), "{isa} {from}");
                }
            }
        }
    }
}

/// The values that `docs/digest.md` prints: they may never change.
#[test]
fn the_formula_is_frozen() {
    let seed = Seed::number(1);
    let secret = seed.secret();
    let word = |from: u8| u64::from_le_bytes(std::array::from_fn(|i| from + i as u8));
    let digests = [
        scalar::digest1(secret, 0x0302_0100, 4),
        scalar::digest1(secret, word(0), 8),
        scalar::digest2(secret, [word(0), 0x0c_0b0a_0908], 13),
        scalar::digest2(secret, [word(0), word(8)], 16),
        scalar::digest4(secret, [word(0), word(8), word(16), word(24)], 32),
        scalar::digest5(secret, [word(0), word(8), word(16), word(24), 0x24_2322_2120], 37),
        scalar::digest5(secret, [word(0), word(8), word(16), word(24), word(32)], 40),
    ];
    let frozen: [u64; 7] = [
        0x194c_1cc3_ffb5_11ac,
        0x4d47_ef44_b79d_b4a4,
        0x77b4_f38f_ab72_35b5,
        0xe2c6_e331_543a_c6ba,
        0x5641_2829_79f3_1ab0,
        0xec01_a1e2_e7ec_4081,
        0xe1fb_0da2_8274_2b24,
    ];
    assert_eq!(digests.map(|d| format!("{d:016x}")), frozen.map(|d| format!("{d:016x}")));
    let page = include_str!("../../../docs/digest.md");
    for digest in frozen {
        assert!(page.contains(&format!("`{digest:016x}`")), "docs/digest.md lacks {digest:016x}");
    }
}

/// How many words have a one at each of their 64 places. Bit j of the counts is one word, so that an
/// addition carries for all places at once.
#[derive(Clone, Default)]
struct Ones([u64; 17]);

impl Ones {
    fn add(&mut self, mut word: u64) {
        for bits in &mut self.0 {
            if word == 0 {
                return;
            }
            (*bits, word) = (*bits ^ word, *bits & word);
        }
    }

    fn count(&self, at: usize) -> u32 {
        self.0.iter().zip(0..).map(|(bits, j)| ((bits >> at & 1) as u32) << j).sum()
    }
}

/// Flipping any input bit flips each output bit in half of the keys: with 65,536 keys a deviation
/// of 0.01 is 5.1 standard errors, so that 304 × 64 honest bits fail together once in 150 runs of
/// other seeds; this seed passes.
#[test]
fn avalanche_is_within_a_hundredth() {
    const TRIALS: u32 = 65_536;
    let bits = |bytes: usize| 8 * bytes;
    for bytes in [4, 8, 13, 37, 40] {
        let mut random = Random(7 + bytes as u64);
        let seed = Seed::number(99);
        let mut flips = vec![Ones::default(); bits(bytes)];
        for _ in 0..TRIALS {
            let mut key = [0u8; 40];
            for (i, byte) in key.iter_mut().enumerate().take(bytes) {
                *byte = (random.next() >> (i % 8)) as u8;
            }
            let plain = digest(&seed, &key, bytes);
            for (bit, flips) in flips.iter_mut().enumerate() {
                key[bit / 8] ^= 1 << (bit % 8);
                let changed = plain ^ digest(&seed, &key, bytes);
                key[bit / 8] ^= 1 << (bit % 8);
                flips.add(changed);
            }
        }
        for (bit, flips) in flips.iter().enumerate() {
            for at in 0..64 {
                let share = f64::from(flips.count(at)) / f64::from(TRIALS);
                assert!((share - 0.5).abs() < 0.01, "{bytes} bytes, bit {bit} to {at}: {share}");
            }
        }
    }
}

fn digest(seed: &Seed, key: &[u8; 40], bytes: usize) -> u64 {
    let word = |i: usize| u64::from_le_bytes(std::array::from_fn(|j| key[8 * i + j]));
    match bytes {
        ..=8 => scalar::digest1(seed.secret(), word(0), bytes),
        9..=16 => scalar::digest2(seed.secret(), [word(0), word(1)], bytes),
        17..=32 => scalar::digest4(seed.secret(), std::array::from_fn(word), bytes),
        _ => scalar::digest5(seed.secret(), std::array::from_fn(word), bytes),
    }
}

/// Makes key number `i`: its words and its bytes.
type Make = fn(u64) -> ([u64; 2], usize);

/// Chi-square over 2¹⁶ buckets of the low, middle and high bits, for keys as networks have them.
/// With 65,535 degrees of freedom the statistic is normal to a good approximation; |z| < 4.06 on
/// each of the 36 tests is p > 5 × 10⁻⁵ on each side: one false alarm in some 550 choices of seed.
#[test]
fn structured_keys_spread_evenly() {
    const KEYS: u64 = 1 << 20;
    let seeds = [3, 4, 5];
    let families: [(&str, Make); 4] = [
        ("sequential addresses", |i| ([(0x0a00_0000 + i).swap_bytes() >> 32, 0], 4)),
        ("fixed ports", |i| ([i << 40 | 0x0001_000a, 0x0011_bb01_5000], 13)),
        ("a /24 sweep", |i| {
            ([(i & 0xff) << 56 | 0x0a00_0a00_0000 | i >> 8, 0x0006_5000_0000 | i >> 8], 13)
        }),
        ("pairs of neighbours", |i| ([(i >> 10) | (i & 1023) << 32, 0], 8)),
    ];
    for seed in seeds {
        let seed = Seed::number(seed);
        for (name, make) in families {
            for shift in [0, 24, 48] {
                let mut buckets = vec![0u32; 1 << 16];
                for i in 0..KEYS {
                    let (words, bytes) = make(i);
                    let digest = if bytes <= 8 {
                        scalar::digest1(seed.secret(), words[0], bytes)
                    } else {
                        scalar::digest2(seed.secret(), words, bytes)
                    };
                    buckets[(digest >> shift & 0xffff) as usize] += 1;
                }
                let expected = KEYS as f64 / 65_536.0;
                let chi: f64 =
                    buckets.iter().map(|&n| (f64::from(n) - expected).powi(2) / expected).sum();
                let z = (chi - 65_535.0) / (2.0f64 * 65_535.0).sqrt();
                assert!(z.abs() < 4.06, "{name}, seed {}, shift {shift}: z = {z}", seed.id());
            }
        }
    }
}

/// Structured pairs that collide under one seed must not collide under another.
#[test]
fn no_pair_collides_under_every_seed() {
    let mut digests: Vec<(u64, u64)> = Vec::new();
    let (one, two) = (Seed::number(11), Seed::number(12));
    for i in 0..1_000_000u64 {
        let words = [(i & 1023) | (i >> 10) << 32, (i * 0x0001_0001) & 0xff_ffff_ffff];
        let under = |seed: &Seed| scalar::digest2(seed.secret(), words, 13);
        digests.push((under(&one), under(&two)));
    }
    digests.sort_unstable();
    let twice = digests.windows(2).filter(|pair| pair[0] == pair[1]).count();
    assert_eq!(twice, 0);
    // 10¹² / 2 pairs of 64-bit digests: 2.7 × 10⁻⁸ collisions are expected under one seed.
    let once = digests.windows(2).filter(|pair| pair[0].0 == pair[1].0).count();
    assert_eq!(once, 0);
}

#[test]
fn the_instruction_set_can_be_named() {
    let names: Vec<_> = Isa::available().iter().map(|isa| isa.name()).collect();
    assert_eq!(names[0], "scalar");
    assert!(names.contains(&Isa::best().name()));
}
