//! The secret of the digest: a number for tests, random bits, or the bytes of a file.

use std::fmt;

/// Bytes that a seed file has at least.
pub const LEAST_SEED_BYTES: usize = 16;

/// The secret of the digest, and where random draws start: summaries merge only when they agree on it.
///
/// With the seed known, packets can be made whose keys all share one digest. It is drawn from the
/// operating system ([`Seed::random`]) or kept in a file ([`Seed::file`]); a number ([`Seed::number`])
/// is for tests and comparisons.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Seed {
    id: SeedId,
    /// What everything else is derived from; zeros where that is a number.
    root: [u8; 32],
    secret: [u64; 4],
    draws: u64,
    tables: u64,
}

impl Seed {
    /// Expands a number to the four odd secrets of the formula, by `SplitMix64`.
    pub fn number(value: u64) -> Self {
        let mut state = value;
        let secret = std::array::from_fn(|_| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            (z ^ (z >> 31)) | 1
        });
        let id = SeedId::Number(value);
        Self { id, root: [0; 32], secret, draws: value, tables: value }
    }

    /// A seed of 256 random bits.
    pub fn random(bits: [u8; 32]) -> Self {
        Self::derive(bits, SeedId::Random)
    }

    /// The seed that `bytes` are the secret of, or `None` where they are fewer than
    /// [`LEAST_SEED_BYTES`].
    pub fn file(bytes: &[u8]) -> Option<Self> {
        let root = || blake3::derive_key("flowgauge 2026-11-23 seed file", bytes);
        (bytes.len() >= LEAST_SEED_BYTES).then(|| Self::derive(root(), SeedId::File))
    }

    /// All parts of a seed, each by a derivation of its own: none tells anything of another.
    fn derive(root: [u8; 32], id: fn(u64) -> SeedId) -> Self {
        let word = |bytes: &[u8]| bytes.iter().rfold(0, |word, byte| word << 8 | u64::from(*byte));
        let first = |context: &str| word(&blake3::derive_key(context, &root)[..8]);
        let secret = blake3::derive_key("flowgauge 2026-11-23 digest secrets", &root);
        Self {
            id: id(first("flowgauge 2026-11-23 seed identity")),
            root,
            secret: std::array::from_fn(|i| word(&secret[8 * i..][..8]) | 1),
            draws: first("flowgauge 2026-11-23 random draws"),
            tables: first("flowgauge 2026-11-23 sketch tables"),
        }
    }

    /// What may be told of it.
    pub fn id(&self) -> SeedId {
        self.id
    }

    /// The 256 bits that all of it is derived from, unless it is a number: as secret as the seed.
    pub fn root(&self) -> &[u8; 32] {
        &self.root
    }

    /// The four secrets, for the scalar twin.
    pub fn secret(&self) -> &[u64; 4] {
        &self.secret
    }

    /// Where samplers start their random draws.
    pub fn draws(&self) -> u64 {
        self.draws
    }

    /// Where sketches that hash by tables of their own start filling these.
    pub fn tables(&self) -> u64 {
        self.tables
    }
}

impl fmt::Debug for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.id.fmt(f)
    }
}

impl From<u64> for Seed {
    fn from(value: u64) -> Self {
        Self::number(value)
    }
}

/// What may be told of a seed: equal seeds have equal identities, from which no secret follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeedId {
    /// The number itself, which is no secret.
    Number(u64),
    /// A check value derived from random bits.
    Random(u64),
    /// A check value derived from the bytes of a file.
    File(u64),
}

impl SeedId {
    /// Where the seed is from: `number`, `random` or `file`.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Number(_) => "number",
            Self::Random(_) => "random",
            Self::File(_) => "file",
        }
    }
}

/// The number, or 16 hexadecimal digits.
impl fmt::Display for SeedId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(value) => value.fmt(f),
            Self::Random(check) | Self::File(check) => write!(f, "{check:016x}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stored summaries and merges rest on these derivations, which are as frozen as the digest's formula.
    #[test]
    fn derivations_stay() {
        let bits = std::array::from_fn(|i| i as u8);
        let random = Seed::random(bits);
        let file = Seed::file(&bits).unwrap_or(random);
        assert_eq!(random, Seed::random(*random.root()));
        let told = [random, file].map(|seed| {
            let [first, .., last] = seed.secret;
            format!("{:?} {first:x} {last:x} {:x} {:x}", seed, seed.draws, seed.tables)
        });
        assert_eq!(
            told,
            [
                "Random(17141202121213168686) 58de456899c94271 3f71aa8ad8fc4a27 6d74064c06b7db16 \
                 2ec5e495a6cb8f91",
                "File(13646617896016586465) 20d264a918748af5 6c140cee7878d9c9 3a12bf860d4ef3d0 \
                 7703cd8df105aed9",
            ]
        );
    }

    #[test]
    fn a_file_has_at_least_16_bytes() {
        assert_eq!(Seed::file(&[7; 15]), None);
        assert_ne!(Seed::file(&[7; 16]), Seed::file(&[7; 17]));
    }

    #[test]
    fn no_secret_is_told() {
        let seed = Seed::random([9; 32]);
        let told = format!("{seed:?} {} {}", seed.id(), seed.id().kind());
        for word in seed.secret.iter().chain([&seed.draws, &seed.tables]) {
            assert!(!told.contains(&format!("{word:016x}")), "{told}");
        }
        assert!(!told.contains("0909") && !told.contains("9, 9"), "{told}");
    }
}
