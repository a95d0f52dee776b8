//! The digest formula over several keys at once, written once for every vector width.
//!
//! A 64 × 64 → 128-bit product is put together from four 32 × 32 → 64-bit ones, which every
//! vector instruction set has. [`crate::scalar`] is the twin.

/// A vector of 64-bit lanes.
///
/// # Safety
/// Every function may only be called where the instruction set of the implementation was
/// detected; being inlined, they compile to it only inside a function that enables it.
pub(crate) unsafe trait Lanes: Copy {
    /// Number of lanes.
    const COUNT: usize;
    /// The same value in every lane.
    unsafe fn splat(value: u64) -> Self;
    /// Lane `i` is `base[i × stride]`; `base` must be readable that far.
    unsafe fn gather(base: *const u64, stride: usize) -> Self;
    /// Lane `i` is `base[i]` of 32 bits, widened.
    unsafe fn widen(base: *const u32) -> Self;
    /// Both words of [`Self::COUNT`] consecutive pairs.
    unsafe fn pairs(base: *const u64) -> [Self; 2];
    /// Writes the lanes to `out`, which must be writable for all of them.
    unsafe fn store(self, out: *mut u64);
    unsafe fn add(self, other: Self) -> Self;
    unsafe fn xor(self, other: Self) -> Self;
    unsafe fn and(self, other: Self) -> Self;
    /// Shifts by 32 bits to the right.
    unsafe fn high(self) -> Self;
    /// Shifts by 32 bits to the left.
    unsafe fn raise(self) -> Self;
    /// Products of the lower 32 bits.
    unsafe fn multiply_low(self, other: Self) -> Self;
}

/// As [`crate::scalar::multiply`].
///
/// # Safety
/// As for [`Lanes`].
#[inline(always)]
unsafe fn multiply<L: Lanes>(a: L, b: L) -> (L, L) {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        let low_half = L::splat(0xffff_ffff);
        let (a_high, b_high) = (a.high(), b.high());
        let low_low = a.multiply_low(b);
        let middle = a_high.multiply_low(b).add(low_low.high());
        let other_middle = a.multiply_low(b_high).add(middle.and(low_half));
        let low = low_low.and(low_half).xor(other_middle.raise());
        let high = a_high.multiply_low(b_high).add(middle.high()).add(other_middle.high());
        (low, high)
    }
}

#[inline(always)]
unsafe fn fold<L: Lanes>(a: L, b: L) -> L {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        let (low, high) = multiply(a, b);
        low.xor(high)
    }
}

/// The secrets in every lane.
struct Secret<L> {
    words: [L; 4],
    bytes: L,
}

impl<L: Lanes> Secret<L> {
    #[inline(always)]
    unsafe fn new(secret: &[u64; 4], bytes: usize) -> Self {
        // SAFETY: the caller vouches for the instruction set.
        unsafe { Self { words: secret.map(|word| L::splat(word)), bytes: L::splat(bytes as u64) } }
    }

    #[inline(always)]
    unsafe fn finish(&self, (low, high): (L, L)) -> L {
        // SAFETY: the caller vouches for the instruction set.
        unsafe { fold(low.xor(self.words[2]).xor(self.bytes), high.xor(self.words[3])) }
    }
}

/// Digests of keys of `words` 64-bit words (0 stands for one 32-bit word). Returns how many keys
/// were digested: all but the last few that do not fill a vector.
///
/// # Safety
/// As for [`Lanes`]; `keys` must be readable and `out` writable for `count` keys.
#[inline(always)]
pub(crate) unsafe fn digest<L: Lanes>(
    secret: &[u64; 4],
    keys: *const u64,
    words: usize,
    bytes: usize,
    count: usize,
    out: *mut u64,
) -> usize {
    // SAFETY: the caller vouches for the instruction set; every access is to one of the first
    // `whole` keys or digests.
    unsafe {
        let secret = Secret::<L>::new(secret, bytes);
        let [s0, s1, ..] = secret.words;
        let whole = count - count % L::COUNT;
        for at in (0..whole).step_by(L::COUNT) {
            let key = keys.add(at * words);
            let product = match words {
                0 => multiply(L::widen(keys.cast::<u32>().add(at)).xor(s0), s1),
                1 => multiply(L::gather(key, 1).xor(s0), s1),
                2 => {
                    let [first, second] = L::pairs(key);
                    multiply(first.xor(s0), second.xor(s1))
                }
                _ => {
                    let word = |index: usize| L::gather(key.add(index), words);
                    let head = fold(word(0).xor(s0), word(1).xor(s1));
                    let (third, fourth) = (word(2).xor(s1).xor(head), word(3).xor(s0));
                    if bytes <= 32 {
                        multiply(third, fourth)
                    } else {
                        multiply(word(4).xor(s0).xor(fold(third, fourth)), s1)
                    }
                }
            };
            secret.finish(product).store(out.add(at));
        }
        whole
    }
}

/// As [`crate::scalar::fold`] of each word, exclusive or `other`, and `factor`. Returns how many were
/// folded: all but the last few that do not fill a vector.
///
/// # Safety
/// As for [`Lanes`]; `words` must be readable and `out` writable for `count` words.
#[inline(always)]
pub(crate) unsafe fn fold_each<L: Lanes>(
    words: *const u64,
    other: u64,
    factor: u64,
    count: usize,
    out: *mut u64,
) -> usize {
    // SAFETY: the caller vouches for the instruction set; every access is to one of the first
    // `whole` words.
    unsafe {
        let (other, factor) = (L::splat(other), L::splat(factor));
        let whole = count - count % L::COUNT;
        for at in (0..whole).step_by(L::COUNT) {
            fold(L::gather(words.add(at), 1).xor(other), factor).store(out.add(at));
        }
        whole
    }
}
