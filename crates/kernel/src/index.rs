//! An index from digests to the numbers of flows, in groups of buckets that are compared at once.

use crate::group::equal_in_group;
use crate::isa::{Isa, Level};
use crate::memory::prefetch;

/// Buckets of a group, which is a cache line. If half of all buckets are occupied, one group in a
/// hundred and twenty is full.
pub const GROUP: usize = 16;

/// The place of a digest in an index: a group, and what tells its bucket from the others there.
///
/// A bucket holds the number of a flow, counted from 1, in as many low bits as can count all
/// buckets, and above them the lowest bits of the flow's digest. 0 is empty.
///
/// ```
/// use flowgauge_kernel::Home;
///
/// // The two lowest bits choose one of four groups.
/// let home = Home::new(0x1236, 0b11);
/// let mut group = [0; 16];
/// group[0] = Home::new(0x4322, 0b11).bucket(8);
/// group[1] = home.bucket(5);
/// assert_eq!((home.group, home.same_in(&group)), (2, 0b10));
/// assert_eq!(home.flow(group[1]), 5);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Home {
    /// The index of the group.
    pub group: usize,
    /// What a bucket holds of the digest.
    tag: u32,
    /// Mask of the bits of a bucket that hold the number.
    number: u32,
}

impl Home {
    /// The place in an index where `bits` masks the bits of the digest that choose the group.
    #[inline(always)]
    pub fn new(digest: u64, bits: usize) -> Self {
        let number = (bits * GROUP + GROUP - 1) as u32;
        let tag = (digest as u32).wrapping_mul(GROUP as u32) & !number;
        Self { group: digest as usize & bits, tag, number }
    }

    /// The bucket of a flow with this digest.
    #[inline(always)]
    pub fn bucket(self, flow: usize) -> u32 {
        self.tag | (flow as u32 + 1)
    }

    /// The flow in a bucket; `usize::MAX` if it is empty.
    #[inline(always)]
    pub fn flow(self, bucket: u32) -> usize {
        ((bucket & self.number) as usize).wrapping_sub(1)
    }

    /// Bit `i` is set where bucket `i` holds the same bits of a digest, or is empty and they are 0.
    #[inline(always)]
    pub fn same_in(self, group: &[u32; GROUP]) -> u32 {
        equal_in_group(group, !self.number, self.tag)
    }
}

/// Guesses the flow of each digest: the one in the first bucket with the same bits of the digest; any
/// number or `usize::MAX` if there is none. A mask of the digest's bits chooses the group. Costs a
/// cache line per digest; those of a whole batch are prefetched first.
///
/// # Panics
/// When the number of groups is no power of two, or there are fewer `guesses` than `digests`.
#[inline]
pub fn guess_flows(isa: Isa, groups: &[[u32; GROUP]], digests: &[u64], guesses: &mut [usize]) {
    assert!(groups.len().is_power_of_two(), "{} groups cannot be chosen by a mask", groups.len());
    let guesses = &mut guesses[..digests.len()];
    match isa.level() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: holding an `Isa` of this level proves that it was detected.
        Level::Avx512 => unsafe { x86::guess_with_avx512(groups, digests, guesses) },
        // With AVX2 a table is no faster than with SSE2.
        _ => guess(groups, digests, guesses, equal_in_group),
    }
}

/// As [`guess_flows`]; `equal` is as [`equal_in_group`].
#[inline(always)]
fn guess(
    groups: &[[u32; GROUP]],
    digests: &[u64],
    guesses: &mut [usize],
    equal: impl Fn(&[u32; GROUP], u32, u32) -> u32,
) {
    let bits = groups.len() - 1;
    for &digest in digests {
        prefetch(groups, Home::new(digest, bits).group);
    }
    for (guess, &digest) in guesses.iter_mut().zip(digests) {
        let home = Home::new(digest, bits);
        let group = &groups[home.group];
        let same = equal(group, !home.number, home.tag);
        *guess = home.flow(group[same.trailing_zeros() as usize % GROUP]);
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{GROUP, guess};

    /// As [`guess`].
    ///
    /// # Safety
    /// AVX-512F must have been detected.
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn guess_with_avx512(
        groups: &[[u32; GROUP]],
        digests: &[u64],
        guesses: &mut [usize],
    ) {
        guess(groups, digests, guesses, |group, mask, value| {
            let [mask, value] = [mask, value].map(|word| _mm512_set1_epi32(word.cast_signed()));
            // SAFETY: the group is as long as the vector; the load needs no alignment.
            let all = unsafe { _mm512_loadu_si512(group.as_ptr().cast()) };
            u32::from(_mm512_cmpeq_epi32_mask(_mm512_and_si512(all, mask), value))
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scalar::fold;

    /// Every flow is guessed that is alone in its group with its tag, and all instruction sets
    /// guess the same for every digest.
    #[test]
    fn guesses_are_the_same_on_all_instruction_sets() {
        let digest = |number: usize| fold(number as u64 + 1, 0x9e37_79b9_7f4a_7c15);
        for groups in [1, 2, 64, 4096] {
            let mut index = vec![[0; GROUP]; groups];
            let (mut inserted, mut unsure) = (Vec::new(), 0);
            for flow in 0..groups * GROUP / 2 {
                let home = Home::new(digest(flow), groups - 1);
                let group = &mut index[home.group];
                unsure +=
                    usize::from(home.same_in(group) & !equal_in_group(group, u32::MAX, 0) != 0);
                if let Some(bucket) = group.iter_mut().find(|bucket| **bucket == 0) {
                    *bucket = home.bucket(flow);
                    inserted.push(flow);
                }
            }
            let absent = groups * GROUP..groups * GROUP + 1000;
            let digests: Vec<u64> = inserted.iter().copied().chain(absent).map(digest).collect();
            let guesses = |isa| {
                let mut guesses = vec![0; digests.len()];
                guess_flows(isa, &index, &digests, &mut guesses);
                guesses
            };
            let expected = guesses(Isa::scalar());
            let wrong =
                inserted.iter().zip(&expected).filter(|(flow, guess)| flow != guess).count();
            assert!(wrong <= unsure && unsure <= 8 + inserted.len() / 64, "{wrong} {unsure}");
            for isa in Isa::available() {
                assert_eq!(guesses(isa), expected, "{isa}, {groups} groups");
            }
        }
    }
}
