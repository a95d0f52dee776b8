//! A counter of distinct elements: a small Bloom filter (Simple, §4.2).
//!
//! An element that finds one of its three bits clear is certainly new, and is counted. So the count
//! never exceeds the truth; of 129 elements it misses 1.2 on average, and none in one case of
//! three. Once the filter is fuller, the number of set bits is the better estimate, until some 2365
//! elements have set all bits.

use bytemuck::Zeroable;

use super::{Count, State};
use crate::summary::Estimate;
use crate::summary::codec::{DecodeError, Reader, Writer};
use crate::terms::{Measure, Size};

const BITS: u32 = 1024;
const WORDS: usize = BITS as usize / 32;
const HASHES: u32 = 3;

/// The estimate of a full filter, which no count exceeds.
const MOST: u32 = 2366;

/// Above this count the bits decide: the count misses one element in twenty here, four in ten of
/// 1000, and never exceeds 1024.
const COUNTED: u32 = 256;

/// Standard errors of the 95 % interval of a normal distribution.
const ERRORS: f64 = 1.96;
const CONFIDENCE: f64 = 0.95;

/// A counter, and a Bloom filter of 1024 bits and 3 hashes with the number of elements that were
/// new to it. 144 bytes.
#[derive(Clone, Copy, Zeroable)]
#[repr(C)]
pub(crate) struct Distinct {
    count: Count,
    /// The number of new elements: never above the truth, except that a merge estimates it.
    fresh: u32,
    bits: [u32; WORDS],
}

impl Distinct {
    /// The largest spread that a filter can tell from a larger one.
    pub(crate) const MOST_SPREAD: u64 = MOST as u64 - 2;

    /// The number of elements: the count while that is accurate, else by the bits; 0 only before
    /// the first packet.
    pub(crate) fn elements(&self) -> f64 {
        let fresh = f64::from(self.fresh);
        if self.fresh > COUNTED { self.by_bits().0.max(fresh) } else { fresh }
    }

    /// Whether there are more elements than `spread`. Mostly the count alone decides.
    #[inline(always)]
    pub(crate) fn exceeds(&self, spread: u64) -> bool {
        let fresh = self.fresh;
        u64::from(fresh) > spread || fresh > COUNTED && self.elements() > spread as f64
    }

    fn bits_set(&self) -> u32 {
        self.bits.iter().map(|word| word.count_ones()).sum()
    }

    /// The estimate by the number of set bits, −m/k · ln(share of zero bits), and its standard
    /// error, that of linear counting with k times as many elements. A full filter counts as one
    /// bit short.
    fn by_bits(&self) -> (f64, f64) {
        let (bits, hashes) = (f64::from(BITS), f64::from(HASHES));
        let load = (bits / f64::from((BITS - self.bits_set()).max(1))).ln();
        (load * bits / hashes, (bits * (load.exp() - load - 1.0)).sqrt() / hashes)
    }

    /// The number of distinct elements of a key. Besides the packets counted here it has at most
    /// `unseen` packets that never reached this filter, and `uncounted` ones that reached it after
    /// the packet counter was full.
    ///
    /// The value is the estimate by the bits, but at least the count. The bounds are its 95 %
    /// interval, limited to what is certain: an element sets at most three bits, and comes with a
    /// packet; each unseen packet may bring another element. A full filter has only the certain
    /// bounds, without a confidence.
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

    /// It is unknown how many elements both have counted as new, so the bits decide, between the
    /// larger count and the sum of both.
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
        // A new element takes a packet, and sets one to three bits.
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
