//! Sorting at the end of epochs, with one compiled sort for all item types.

use std::cmp::Ordering;

/// The indices of `len` items, fewer than 2³², in sorted order. Stable. Memory: 4 bytes an item.
pub(crate) fn order(len: usize, compare: &dyn Fn(usize, usize) -> Ordering) -> Vec<u32> {
    let mut numbers: Vec<u32> = (0..len as u32).collect();
    numbers.sort_unstable_by(|one, other| {
        compare(*one as usize, *other as usize).then(one.cmp(other))
    });
    numbers
}

/// The indices of `len` strings of bytes, all of the same length and fewer than 2³², in the order of
/// the bytes: sorted by the four bytes behind those that all have in common, which most differ in,
/// and the few that do not by all bytes. Memory: up to 20 bytes a string.
pub(crate) fn order_of_bytes<'a>(len: usize, bytes: &dyn Fn(usize) -> &'a [u8]) -> Vec<u32> {
    if len == 0 {
        return Vec::new();
    }
    let first = bytes(0);
    let mut in_common = first.len();
    for number in 1..len {
        if in_common == 0 {
            break;
        }
        let alike = bytes(number)[..in_common].iter().zip(first);
        in_common = alike.take_while(|(one, other)| one == other).count();
    }
    // Four bytes, and the number of the string.
    let word = |number: usize| {
        let differing = &bytes(number)[in_common..];
        let four = differing.first_chunk().copied().unwrap_or_else(|| {
            let mut four = [0; 4];
            four[..differing.len()].copy_from_slice(differing);
            four
        });
        u64::from(u32::from_be_bytes(four)) << 32 | number as u64
    };
    let mut words: Vec<u64> = (0..len).map(word).collect();
    words.sort_unstable();
    let mut numbers: Vec<u32> = words.iter().map(|word| *word as u32).collect();
    let mut start = 0;
    for tie in words.chunk_by(|one, other| one >> 32 == other >> 32) {
        let numbers = &mut numbers[start..start + tie.len()];
        start += tie.len();
        if tie.len() > 1 {
            let before = numbers.to_vec();
            let in_tie = |place: usize| bytes(before[place] as usize);
            let sorted = order(before.len(), &|one, other| in_tie(one).cmp(in_tie(other)));
            for (number, place) in numbers.iter_mut().zip(sorted) {
                *number = before[place as usize];
            }
        }
    }
    numbers
}

/// Sorts fewer than 2³² items. Stable. Memory: 4 bytes an item.
///
/// ```
/// use flowgauge_core::sorting::sort_by;
///
/// let mut flows = [("b", 2), ("a", 9), ("c", 2)];
/// sort_by(&mut flows, &|one, other| other.1.cmp(&one.1));
/// assert_eq!(flows, [("a", 9), ("b", 2), ("c", 2)]);
/// ```
pub fn sort_by<T>(items: &mut [T], compare: &dyn Fn(&T, &T) -> Ordering) {
    // The index of the item that goes to each place.
    let mut from = order(items.len(), &|one, other| compare(&items[one], &items[other]));
    for start in 0..from.len() {
        // Swaps along a cycle of the permutation, so that each item reaches its place.
        let mut place = start;
        loop {
            let next = std::mem::replace(&mut from[place], place as u32) as usize;
            if next == start {
                break;
            }
            items.swap(place, next);
            place = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sorting_is_stable() {
        let mut state = 1_u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state >> 33
        };
        for len in [0, 1, 2, 3, 30, 1000] {
            // Few values, so that many are equal, each with its number.
            let mut items: Vec<_> = (0..len).map(|number| (random() % 40, number)).collect();
            let mut expected = items.clone();
            expected.sort_by_key(|item| item.0);
            sort_by(&mut items, &|one, other| one.0.cmp(&other.0));
            assert_eq!(items, expected);
        }
    }
}
