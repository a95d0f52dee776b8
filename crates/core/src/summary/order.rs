//! Sorting at the end of epochs, compiled once for whatever is sorted.

use std::cmp::Ordering;

/// The numbers of `len` items, fewer than 2³², in the order of the items. Takes 4 bytes for each.
pub(crate) fn order(len: usize, compare: &dyn Fn(usize, usize) -> Ordering) -> Vec<u32> {
    let mut numbers: Vec<u32> = (0..len as u32).collect();
    numbers.sort_unstable_by(|one, other| compare(*one as usize, *other as usize));
    numbers
}
