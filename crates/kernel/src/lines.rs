//! Comparing a whole cache line of words, on the instruction set found at start.
//!
//! A loop over packets that compares a line for each of them is compiled once per instruction set:
//! it is a [`WithLines`], and [`Isa::with_lines`] calls the right one.

use crate::detect::{Isa, Level};

/// Sixteen words that fill a cache line.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
pub struct Line(pub [u32; 16]);

/// How an instruction set compares a line. Only [`Isa::with_lines`] hands them out, so that having
/// one proves that its instruction set was detected.
pub trait CompareLines: Copy {
    /// Which of the words equal `value`: one bit each, the first word's lowest.
    fn equal(self, line: &Line, value: u32) -> u32;
}

/// A loop that compares lines. `run` must be `#[inline(always)]`, or else the comparison is a call.
pub trait WithLines {
    /// What the loop returns.
    type Output;
    /// Runs the loop.
    fn run<C: CompareLines>(self, compare: C) -> Self::Output;
}

impl Isa {
    /// Runs the loop as compiled for this instruction set.
    #[inline]
    pub fn with_lines<W: WithLines>(self, body: W) -> W::Output {
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

/// The comparison that every processor of this architecture has.
#[cfg(target_arch = "x86_64")]
fn portable() -> impl CompareLines {
    x86::Sse2(())
}

/// The comparison that every processor of this architecture has.
#[cfg(not(target_arch = "x86_64"))]
fn portable() -> impl CompareLines {
    Scalar(())
}

/// The twin of all others.
#[cfg(any(test, not(target_arch = "x86_64")))]
#[derive(Clone, Copy)]
struct Scalar(());

#[cfg(any(test, not(target_arch = "x86_64")))]
impl CompareLines for Scalar {
    #[inline(always)]
    fn equal(self, line: &Line, value: u32) -> u32 {
        (0..16).fold(0, |equal, at| equal | u32::from(line.0[at] == value) << at)
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{CompareLines, Line, WithLines};

    #[derive(Clone, Copy)]
    pub(super) struct Sse2(pub(super) ());

    impl CompareLines for Sse2 {
        #[inline(always)]
        fn equal(self, line: &Line, value: u32) -> u32 {
            // SAFETY: SSE2 is part of x86-64; the four loads are of 16 bytes each within the 64 of
            // the line, which is aligned.
            unsafe {
                let value = _mm_set1_epi32(value.cast_signed());
                let equal = |at: usize| {
                    _mm_cmpeq_epi32(_mm_load_si128(line.0.as_ptr().add(at).cast()), value)
                };
                let low = _mm_packs_epi32(equal(0), equal(4));
                let high = _mm_packs_epi32(equal(8), equal(12));
                _mm_movemask_epi8(_mm_packs_epi16(low, high)).cast_unsigned()
            }
        }
    }

    #[derive(Clone, Copy)]
    struct Avx2(());

    impl CompareLines for Avx2 {
        #[inline(always)]
        fn equal(self, line: &Line, value: u32) -> u32 {
            // SAFETY: only `with_avx2` makes one, whose caller detected AVX2; both loads are of 32
            // bytes within the 64 of the line, which is aligned.
            unsafe {
                let value = _mm256_set1_epi32(value.cast_signed());
                let equal = |at: usize| {
                    let words = _mm256_load_si256(line.0.as_ptr().add(at).cast());
                    let equal = _mm256_cmpeq_epi32(words, value);
                    _mm256_movemask_ps(_mm256_castsi256_ps(equal)).cast_unsigned()
                };
                equal(0) | equal(8) << 8
            }
        }
    }

    #[derive(Clone, Copy)]
    struct Avx512(());

    impl CompareLines for Avx512 {
        #[inline(always)]
        fn equal(self, line: &Line, value: u32) -> u32 {
            // SAFETY: only `with_avx512` makes one, whose caller detected AVX-512F; the load is of
            // the 64 bytes of the line, which is aligned.
            unsafe {
                let value = _mm512_set1_epi32(value.cast_signed());
                let words = _mm512_load_si512(line.0.as_ptr().cast());
                u32::from(_mm512_cmpeq_epi32_mask(words, value))
            }
        }
    }

    /// # Safety
    /// AVX2 must have been detected.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn with_avx2<W: WithLines>(body: W) -> W::Output {
        body.run(Avx2(()))
    }

    /// # Safety
    /// AVX-512F must have been detected.
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn with_avx512<W: WithLines>(body: W) -> W::Output {
        body.run(Avx512(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares each line of a list with each value.
    struct All<'a>(&'a [Line], &'a [u32]);

    impl WithLines for All<'_> {
        type Output = Vec<u32>;

        #[inline(always)]
        fn run<C: CompareLines>(self, compare: C) -> Vec<u32> {
            let Self(lines, values) = self;
            let of = |line| values.iter().map(move |&value| compare.equal(line, value));
            lines.iter().flat_map(of).collect()
        }
    }

    #[test]
    fn every_instruction_set_compares_as_the_scalar_twin() {
        let mut state = 1_u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 32) as u32
        };
        let values = [0, 1, 0x8000_0000, u32::MAX, 0xdead_beef];
        let lines: Vec<Line> = (0..500)
            .map(|_| {
                Line(std::array::from_fn(|_| match random() as usize % 7 {
                    at @ 0..5 => values[at],
                    _ => random(),
                }))
            })
            .collect();
        let expected = All(&lines, &values).run(Scalar(()));
        assert!(expected.iter().any(|equal| equal.count_ones() > 1) && expected.contains(&0));
        for isa in Isa::available() {
            assert!(isa.with_lines(All(&lines, &values)) == expected, "{isa}");
        }
    }
}
