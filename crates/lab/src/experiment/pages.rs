//! Memory for the papers' structures: in huge pages, as the engine's tables and DPDK's are.

use bytemuck::Zeroable;
use flowgauge_kernel::Zeroed;

/// So many items, all zero.
///
/// # Panics
/// As a vector would end the process: when there is no memory.
pub(super) fn zeroed<T: Zeroable>(items: usize) -> Zeroed<T> {
    match Zeroed::new(items) {
        Ok(memory) => memory,
        Err(error) => panic!("{items} items of {} bytes: {error}", size_of::<T>()),
    }
}
