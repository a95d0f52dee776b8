//! The captured bytes of a frame, as an array of C holds them.

use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;

/// The captured bytes of a frame: in memory, a pointer and then a number of bytes. Rust does not say
/// how its own slices lie in memory; an array of these that a driver filled is lent without a copy.
///
/// ```
/// use flowgauge_kernel::Captured;
///
/// let captured = Captured::from(&[1, 2, 3][..]);
/// assert_eq!(captured.bytes(), [1, 2, 3]);
/// assert_eq!(size_of_val(&captured), 16);
/// ```
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Captured<'a> {
    start: NonNull<u8>,
    len: usize,
    lent: PhantomData<&'a [u8]>,
}

// SAFETY: it stands for a shared slice of bytes, which any thread may hold.
unsafe impl Send for Captured<'_> {}
// SAFETY: as above.
unsafe impl Sync for Captured<'_> {}

impl<'a> Captured<'a> {
    /// The bytes.
    #[inline(always)]
    pub const fn bytes(self) -> &'a [u8] {
        // SAFETY: it was made from a slice, or stands in an array of C whose owner lends the bytes.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<'a> From<&'a [u8]> for Captured<'a> {
    #[inline(always)]
    fn from(bytes: &'a [u8]) -> Self {
        Self { start: NonNull::from(bytes).cast(), len: bytes.len(), lent: PhantomData }
    }
}

impl fmt::Debug for Captured<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bytes().fmt(f)
    }
}
