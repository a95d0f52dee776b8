//! Memory for the papers' structures, in huge pages like the tables of the engine and of DPDK.

use bytemuck::Zeroable;
use flowgauge_kernel::Zeroed;

/// A zeroed array.
///
/// # Panics
/// There is no memory, as for a vector.
pub(super) fn zeroed<T: Zeroable>(items: usize) -> Zeroed<T> {
    match Zeroed::new(items) {
        Ok(memory) => memory,
        Err(error) => panic!("{items} items of {} bytes: {error}", size_of::<T>()),
    }
}
