//! The captured bytes of a frame, in memory as a program in C has them.

use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;

/// The captured bytes of a frame: a slice that consists, unlike Rust's own, of a pointer and a
/// number of bytes in this order. So an array that a driver fills is lent out without a copy.
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
        // SAFETY: only a slice is made into this, or an array of C whose owner lends the bytes.
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
