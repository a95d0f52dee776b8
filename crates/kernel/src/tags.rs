//! Finding one of sixteen tags, as every processor of the architecture can.

/// Sixteen tags, half a cache line.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(32))]
pub struct Tags(pub [u16; 16]);

impl Tags {
    /// The first of the tags that is `tag`.
    ///
    /// With AVX2 or AVX-512, and so a copy of each loop for either, it is no faster.
    #[inline(always)]
    pub fn find(&self, tag: u16) -> Option<usize> {
        #[cfg(target_arch = "x86_64")]
        return std::num::NonZero::new(self.equal(tag)).map(|bits| bits.trailing_zeros() as usize);
        #[cfg(not(target_arch = "x86_64"))]
        self.find_by_scalar(tag)
    }

    /// The tags that are `tag`, as bits.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn equal(&self, tag: u16) -> u16 {
        use std::arch::x86_64::*;
        // SAFETY: SSE2 is part of x86-64; both loads are of 16 bytes within the 32 of the tags,
        // which are aligned.
        let bits = unsafe {
            let tag = _mm_set1_epi16(tag.cast_signed());
            let equal =
                |at: usize| _mm_cmpeq_epi16(_mm_load_si128(self.0.as_ptr().add(at).cast()), tag);
            _mm_movemask_epi8(_mm_packs_epi16(equal(0), equal(8)))
        };
        bits as u16
    }

    /// The twin.
    #[cfg(any(test, not(target_arch = "x86_64")))]
    fn find_by_scalar(&self, tag: u16) -> Option<usize> {
        self.0.iter().position(|other| *other == tag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_find_what_the_scalar_twin_does() {
        let mut state = 1_u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 32) as u16
        };
        let tags = [0, 1, 0x80, 0x8000, 0xff00, u16::MAX, 0xbeef];
        let mut found = [0; 17];
        for _ in 0..20_000 {
            let line = Tags(std::array::from_fn(|_| match usize::from(random()) % 60 {
                at @ 0..7 => tags[at],
                _ => random(),
            }));
            for tag in tags {
                let place = line.find(tag);
                assert_eq!(place, line.find_by_scalar(tag), "{tag} in {:?}", line.0);
                found[place.unwrap_or(16)] += 1;
            }
        }
        assert!(found.iter().all(|times| *times > 0), "{found:?}");
    }
}
