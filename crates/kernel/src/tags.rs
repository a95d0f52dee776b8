//! Finding one of sixteen tags, on the instruction set found at start.
//!
//! A loop over packets that looks for a tag for each of them is compiled once per instruction set: it
//! is a [`WithTags`], and [`Isa::with_tags`] calls the right one.

use std::num::NonZero;

use crate::detect::{Isa, Level};

/// Sixteen tags, half a cache line.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(32))]
pub struct Tags(pub [u16; 16]);

/// How an instruction set finds tags. Only [`Isa::with_tags`] hands them out, so that having one
/// proves that its instruction set was detected.
pub trait FindTag: Copy {
    /// The first of the tags that is `tag`.
    fn find(self, tags: &Tags, tag: u16) -> Option<usize>;
}

/// A loop that finds tags. `run` must be `#[inline(always)]`, or else each search is a call.
pub trait WithTags {
    /// What the loop returns.
    type Output;
    /// Runs the loop.
    fn run<T: FindTag>(self, tags: T) -> Self::Output;
}

impl Isa {
    /// Runs the loop as compiled for this instruction set.
    #[inline]
    pub fn with_tags<W: WithTags>(self, body: W) -> W::Output {
        match self.level() {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: holding an `Isa` of this level proves that it was detected.
            Level::Avx2 => unsafe { x86::with_avx2(body) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Level::Avx512 => unsafe { x86::with_avx512(body) },
            _ => body.run(portable()),
        }
    }
}

/// The lowest bit's number, of those of sixteen tags.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn first(equal: u16) -> Option<usize> {
    NonZero::new(equal).map(|equal| equal.trailing_zeros() as usize)
}

/// The search that every processor of this architecture has.
#[cfg(target_arch = "x86_64")]
fn portable() -> impl FindTag {
    x86::Sse2(())
}

/// The search that every processor of this architecture has.
#[cfg(not(target_arch = "x86_64"))]
fn portable() -> impl FindTag {
    Scalar(())
}

/// The twin of all others.
#[cfg(any(test, not(target_arch = "x86_64")))]
#[derive(Clone, Copy)]
struct Scalar(());

#[cfg(any(test, not(target_arch = "x86_64")))]
impl FindTag for Scalar {
    #[inline(always)]
    fn find(self, tags: &Tags, tag: u16) -> Option<usize> {
        tags.0.iter().position(|other| *other == tag)
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{FindTag, Tags, WithTags, first};

    #[derive(Clone, Copy)]
    pub(super) struct Sse2(pub(super) ());

    impl FindTag for Sse2 {
        #[inline(always)]
        fn find(self, tags: &Tags, tag: u16) -> Option<usize> {
            // SAFETY: SSE2 is part of x86-64; both loads are of 16 bytes within the 32 of the tags,
            // which are aligned.
            let equal = unsafe {
                let tag = _mm_set1_epi16(tag.cast_signed());
                let equal = |at: usize| {
                    _mm_cmpeq_epi16(_mm_load_si128(tags.0.as_ptr().add(at).cast()), tag)
                };
                _mm_movemask_epi8(_mm_packs_epi16(equal(0), equal(8)))
            };
            first(equal as u16)
        }
    }

    #[derive(Clone, Copy)]
    struct Avx2(());

    impl FindTag for Avx2 {
        #[inline(always)]
        fn find(self, tags: &Tags, tag: u16) -> Option<usize> {
            // SAFETY: only `with_avx2` makes one, whose caller detected AVX2; the load is of the 32
            // bytes of the tags, which are aligned.
            let equal = unsafe {
                let tags = _mm256_load_si256(tags.0.as_ptr().cast());
                let equal = _mm256_cmpeq_epi16(tags, _mm256_set1_epi16(tag.cast_signed()));
                let (low, high) =
                    (_mm256_castsi256_si128(equal), _mm256_extracti128_si256::<1>(equal));
                _mm_movemask_epi8(_mm_packs_epi16(low, high))
            };
            first(equal as u16)
        }
    }

    #[derive(Clone, Copy)]
    struct Avx512(());

    impl FindTag for Avx512 {
        #[inline(always)]
        fn find(self, tags: &Tags, tag: u16) -> Option<usize> {
            // SAFETY: only `with_avx512` makes one, whose caller detected AVX-512BW and VL; the load
            // is of the 32 bytes of the tags, which are aligned.
            first(unsafe {
                let tags = _mm256_load_si256(tags.0.as_ptr().cast());
                _mm256_cmpeq_epi16_mask(tags, _mm256_set1_epi16(tag.cast_signed()))
            })
        }
    }

    /// # Safety
    /// AVX2 must have been detected.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn with_avx2<W: WithTags>(body: W) -> W::Output {
        body.run(Avx2(()))
    }

    /// # Safety
    /// AVX-512BW and VL must have been detected.
    #[target_feature(enable = "avx512bw,avx512vl")]
    pub(super) unsafe fn with_avx512<W: WithTags>(body: W) -> W::Output {
        body.run(Avx512(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks for each tag of a list among each sixteen of another.
    struct All<'a>(&'a [Tags], &'a [u16]);

    impl WithTags for All<'_> {
        type Output = Vec<Option<usize>>;

        #[inline(always)]
        fn run<T: FindTag>(self, find: T) -> Self::Output {
            let Self(lines, tags) = self;
            let of = |line| tags.iter().map(move |&tag| find.find(line, tag));
            lines.iter().flat_map(of).collect()
        }
    }

    #[test]
    fn every_instruction_set_finds_what_the_scalar_twin_does() {
        let mut state = 1_u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 32) as u16
        };
        let tags = [0, 1, 0x80, 0x8000, 0xff00, u16::MAX, 0xbeef];
        let lines: Vec<Tags> = (0..500)
            .map(|_| {
                Tags(std::array::from_fn(|_| match usize::from(random()) % 60 {
                    at @ 0..7 => tags[at],
                    _ => random(),
                }))
            })
            .collect();
        let expected = All(&lines, &tags).run(Scalar(()));
        for place in (0..16).map(Some).chain([None]) {
            assert!(expected.contains(&place), "{place:?}");
        }
        for isa in Isa::available() {
            assert!(isa.with_tags(All(&lines, &tags)) == expected, "{isa}");
        }
    }
}
