//! A counter of distinct elements: a small Bloom filter (Simple, §4.2).
//!
//! An element that finds one of its three bits clear is new for sure, and is counted. So the count
//! is never above the truth; of 129 elements 1.2 are overlooked on average, and none in one case of
//! three. Where the filter is fuller, the number of its bits tells more than the count, until some
//! 2365 elements have set them all.

use bytemuck::Zeroable;

use super::super::Estimate;
use super::super::codec::{DecodeError, Reader, Writer};
use super::{Count, State};
use crate::terms::{Measure, Size};

const BITS: u32 = 1024;
const WORDS: usize = BITS as usize / 32;
const HASHES: u32 = 3;

/// The number of elements by the bits of a full filter, which no count passes.
const MOST: u32 = 2366;

/// From a count above this on the bits decide: it lacks one element in twenty here, four in ten of
/// 1000, and never passes 1024.
const COUNTED: u32 = 256;

/// Standard errors of a normal distribution that 95 % are within.
const ERRORS: f64 = 1.96;
const CONFIDENCE: f64 = 0.95;

/// A counter, and a Bloom filter of 1024 bits and 3 hashes with the number of elements that were
/// new to it. 144 bytes.
#[derive(Clone, Copy, Zeroable)]
#[repr(C)]
pub(crate) struct Distinct {
    count: Count,
    /// After a merge an estimate, and before it never above the truth.
    fresh: u32,
    bits: [u32; WORDS],
}

impl Distinct {
    /// A spread that a filter can still tell from a larger one.
    pub(crate) const MOST_SPREAD: u64 = MOST as u64 - 2;

    /// The number of elements, by the count while that is near the truth; 0 only before the first
    /// packet.
    pub(crate) fn elements(&self) -> f64 {
        let fresh = f64::from(self.fresh);
        if self.fresh > COUNTED { self.by_bits().0.max(fresh) } else { fresh }
    }

    /// Whether there are more elements than `spread`. Mostly the count alone tells.
    #[inline(always)]
    pub(crate) fn exceeds(&self, spread: u64) -> bool {
        let fresh = self.fresh;
        u64::from(fresh) > spread || fresh > COUNTED && self.elements() > spread as f64
    }

    fn bits_set(&self) -> u32 {
        self.bits.iter().map(|word| word.count_ones()).sum()
    }

    /// By the number of bits set: −m/k · ln(share of zero bits), and its standard error, that of
    /// linear counting of k times as many elements. A full filter is taken to lack one bit.
    fn by_bits(&self) -> (f64, f64) {
        let (bits, hashes) = (f64::from(BITS), f64::from(HASHES));
        let load = (bits / f64::from((BITS - self.bits_set()).max(1))).ln();
        (load * bits / hashes, (bits * (load.exp() - load - 1.0)).sqrt() / hashes)
    }

    /// The number of distinct elements of a key that has no more packets beside its own than
    /// `unseen` that never came to this filter and `uncounted` that only its counter had no room for.
    ///
    /// The value is that of the bits, but at least what was counted as new. The bounds are its
    /// 95 % interval, and never outside what is sure: each element sets three bits at most, and
    /// brings a packet; each packet unseen may bring another. Of a full filter only that is known,
    /// without a confidence: at least.
    pub(crate) fn estimate(&self, unseen: u64, uncounted: u64) -> Estimate {
        let set = self.bits_set();
        let least = f64::from(set.div_ceil(HASHES));
        let most = self.size().packets.saturating_add(uncounted) as f64;
        let unseen = unseen as f64;
        let (by_bits, error) = self.by_bits();
        let fresh = f64::from(self.fresh);
        let value = by_bits.max(fresh).min(most);
        if set == BITS {
            return Estimate::between(least, value, most + unseen);
        }
        Estimate {
            value,
            low: (by_bits - ERRORS * error).min(fresh).max(least),
            high: (by_bits + ERRORS * error).max(value).min(most) + unseen,
            confidence: Some(CONFIDENCE),
        }
    }
}

impl State for Distinct {
    const NAME: &'static str = "distinct";
    const ELEMENTS: bool = true;
    const STORED_BYTES: usize = Count::STORED_BYTES + (1 + WORDS) * size_of::<u32>();

    #[inline(always)]
    fn add(&mut self, packets: u32, bytes: u64, element: u64) -> Size {
        let mut new = false;
        for hash in 0..HASHES {
            let bit = (element >> (10 * hash)) as u32 % BITS;
            let (word, mask) = (&mut self.bits[bit as usize / 32], 1 << (bit % 32));
            new |= *word & mask == 0;
            *word |= mask;
        }
        self.fresh += u32::from(new);
        self.count.add(packets, bytes, element)
    }

    /// How many elements are new in both cannot be known: where both have some, the bits decide,
    /// between the larger count and the sum.
    fn merge(&mut self, other: &Self) -> Size {
        for (word, other) in self.bits.iter_mut().zip(other.bits) {
            *word |= other;
        }
        let (largest, sum) = (self.fresh.max(other.fresh), self.fresh + other.fresh);
        self.fresh = (self.by_bits().0.ceil() as u32).clamp(largest, sum);
        self.count.merge(&other.count)
    }

    #[inline(always)]
    fn size(&self) -> Size {
        self.count.size()
    }

    fn save(&self, out: &mut Writer) {
        self.count.save(out);
        out.number(self.fresh);
        out.numbers(&self.bits);
    }

    fn load(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let count = Count::load(from)?;
        let mut state = Self { count, fresh: from.number("distinct")?, ..Self::zeroed() };
        from.numbers("bits", &mut state.bits)?;
        // No element is new without a packet and a bit, nor sets more than three.
        let least = state.bits_set().div_ceil(HASHES).max(1);
        let most = state.size().packets.min(MOST.into());
        if state.fresh < least || u64::from(state.fresh) > most {
            let width = (1 + WORDS) * size_of::<u32>();
            return Err(from.invalid("distinct", width, "it contradicts its bits and packets"));
        }
        Ok(state)
    }

    #[inline(always)]
    fn outweighs(&self, limit: f64, _: Measure) -> bool {
        self.exceeds(limit as u64)
    }

    fn distinct(&self) -> Option<&Distinct> {
        Some(self)
    }
}
