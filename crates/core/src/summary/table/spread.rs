//! Spreading an open-addressing table over more buckets, in place.

use super::super::slot::Slot;

/// One bit for each bucket whose key has not found its place yet.
struct Unplaced<'a>(&'a mut [u32]);

impl Unplaced<'_> {
    fn has(&self, bucket: usize) -> bool {
        self.0.get(bucket / 32).is_some_and(|word| word >> (bucket % 32) & 1 == 1)
    }

    fn remove(&mut self, bucket: usize) {
        self.0[bucket / 32] &= !(1 << (bucket % 32));
    }
}

/// Moves the keys of the first `used` buckets to where linear probing finds them among all `slots`;
/// both numbers are powers of two of at least 32, and the other buckets are empty. `digest` is a
/// key's digest; `marks` is overwritten, and needs a bit for each used bucket.
///
/// Each key goes to the first bucket of its way that is empty or holds a key without a place, and
/// takes that key's turn. A key that has its place never moves again, so that no way to a key ever
/// gets a hole. Cost: a random access or two for each key, and a walk through the used buckets.
pub(super) fn spread<K: Copy>(
    slots: &mut [Slot<K>],
    used: usize,
    marks: &mut [u32],
    digest: impl Fn(&K) -> u64,
) {
    let mask = slots.len() - 1;
    let marks = &mut marks[..used / 32];
    marks.fill(0);
    for (bucket, _) in slots[..used].iter().enumerate().filter(|(_, slot)| !slot.is_empty()) {
        marks[bucket / 32] |= 1 << (bucket % 32);
    }
    let mut unplaced = Unplaced(marks);
    for bucket in 0..used {
        while unplaced.has(bucket) {
            let mut place = digest(&slots[bucket].key) as usize & mask;
            while !slots[place].is_empty() && !unplaced.has(place) {
                place = (place + 1) & mask;
            }
            if place == bucket {
                unplaced.remove(bucket);
            } else if slots[place].is_empty() {
                slots[place] = slots[bucket];
                slots[bucket].packets = 0;
                unplaced.remove(bucket);
            } else {
                slots.swap(place, bucket);
                unplaced.remove(place);
            }
        }
    }
}
