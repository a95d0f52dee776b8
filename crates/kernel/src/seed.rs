//! The secret of the digest: a number for tests, random bits, or the bytes of a file.

use std::fmt;

/// Minimum length of a seed file in bytes.
pub const LEAST_SEED_BYTES: usize = 16;

/// The secret of the digest and the start of all random draws. Summaries merge only if their seeds
/// are equal.
///
/// An attacker who knows the seed can craft packets whose keys all have one digest. So the seed
/// comes from the operating system ([`Seed::random`]) or a file ([`Seed::file`]); a number
/// ([`Seed::number`]) is for tests and comparisons.
///
/// ```
/// use flowgauge_kernel::{Seed, SeedId};
///
/// assert_eq!(Seed::number(7).id(), SeedId::Number(7));
/// assert_ne!(Seed::random([1; 32]), Seed::random([2; 32]));
/// // A file needs 16 bytes or more. Only a check value of a seed is ever printed.
/// assert_eq!(Seed::file(b"too short"), None);
/// let seed = Seed::file(b"sixteen bytes or more");
/// assert_eq!(seed.map(|seed| seed.id().to_string().len()), Some(16));
/// ```
#[derive(Clone, Copy)]
pub struct Seed {
    id: SeedId,
    /// The bits that all other fields are derived from; zeros for a number.
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

    /// The seed whose secret is `bytes`. `None` if there are fewer than [`LEAST_SEED_BYTES`].
    pub fn file(bytes: &[u8]) -> Option<Self> {
        let root = || blake3::derive_key("flowgauge 2026-11-23 seed file", bytes);
        (bytes.len() >= LEAST_SEED_BYTES).then(|| Self::derive(root(), SeedId::File))
    }

    /// Derives each part of a seed under its own context, so that no part reveals another.
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

    /// The public identity.
    pub fn id(&self) -> SeedId {
        self.id
    }

    /// The 256 bits that the seed is derived from, as secret as the seed; zeros for a number.
    pub fn root(&self) -> &[u8; 32] {
        &self.root
    }

    /// The same seed with draws of their own for each number; those of 0 are unchanged.
    ///
    /// ```
    /// use flowgauge_kernel::Seed;
    ///
    /// let (seed, other) = (Seed::number(7), Seed::number(7).drawing(1));
    /// assert!(seed == other && seed.draws() != other.draws());
    /// ```
    #[must_use]
    pub fn drawing(self, number: u64) -> Self {
        Self { draws: self.draws ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15), ..self }
    }

    /// The four secrets, for the scalar twin.
    pub fn secret(&self) -> &[u64; 4] {
        &self.secret
    }

    /// The start of the samplers' random draws.
    pub fn draws(&self) -> u64 {
        self.draws
    }

    /// The start of the random numbers that fill the hash tables of sketches with their own
    /// hashing.
    pub fn tables(&self) -> u64 {
        self.tables
    }
}

/// Equal seeds may draw differently.
impl PartialEq for Seed {
    fn eq(&self, other: &Self) -> bool {
        (self.id, self.root) == (other.id, other.root)
    }
}

impl Eq for Seed {}

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

/// The public identity of a seed. Equal seeds have equal identities; an identity reveals no secret.
///
/// ```
/// use flowgauge_kernel::{Seed, SeedId};
///
/// assert_eq!(Seed::number(7).id(), SeedId::Number(7));
/// assert!(matches!(Seed::random([9; 32]).id(), SeedId::Random(_)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeedId {
    /// The number itself, which is not secret.
    Number(u64),
    /// A check value derived from random bits.
    Random(u64),
    /// A check value derived from the bytes of a file.
    File(u64),
}

impl SeedId {
    /// The origin of the seed: `number`, `random` or `file`.
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

    /// Stored summaries depend on these derivations, which are frozen like the digest formula.
    #[test]
    fn derivations_are_frozen() {
        let bits = std::array::from_fn(|i| i as u8);
        let random = Seed::random(bits);
        let file = Seed::file(&bits).unwrap_or(random);
        assert_eq!(random, Seed::random(*random.root()));
        let printed = [random, file].map(|seed| {
            let [first, .., last] = seed.secret;
            format!("{:?} {first:x} {last:x} {:x} {:x}", seed, seed.draws, seed.tables)
        });
        assert_eq!(
            printed,
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
    fn no_secret_is_printed() {
        let seed = Seed::random([9; 32]);
        let printed = format!("{seed:?} {} {}", seed.id(), seed.id().kind());
        for word in seed.secret.iter().chain([&seed.draws, &seed.tables]) {
            assert!(!printed.contains(&format!("{word:016x}")), "{printed}");
        }
        assert!(!printed.contains("0909") && !printed.contains("9, 9"), "{printed}");
    }
}
