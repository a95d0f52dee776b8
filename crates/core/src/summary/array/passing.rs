//! Which packets of a batch find their column heavy.
//!
//! A batch is counted first, and the packets that may find a heavy column are listed by comparing whole
//! numbers, without a branch: which they are cannot be foretold. Those listed are looked at afterwards.

use super::super::Counter;
use super::super::heavy::HeavyKeys;
use super::super::share::Share;
use crate::key::FlowKey;
use crate::terms::Threshold;

/// A column is heavy from this part of the threshold on, so that of what makes a key pass the
/// threshold in the end a part is known to be its own.
const PART: f64 = 0.5;

/// Packets of a small block, which has a shorter list of heavy ones to begin with.
pub(super) const SMALL_BLOCK: usize = 16;

/// What a heavy column passes in an epoch of so much weight, rounded down.
#[inline(always)]
pub(super) fn limit(threshold: Threshold, total: u64) -> u64 {
    (PART * threshold.weight(total)) as u64
}

/// How many of so many packets are counted at once, `threshold` being that after all of them: no more than
/// the set of heavy keys has room for, unless it drops nothing. What it drops depends on all columns, and
/// batches of any size must see the same.
#[inline(always)]
pub(super) fn at_once<K: FlowKey, S: Share>(
    packets: usize,
    heavy: &HeavyKeys<K, S>,
    threshold: impl Fn() -> f64,
) -> usize {
    let room = heavy.room();
    if room >= packets || heavy.most() == 0 || heavy.drops_nothing(threshold()) {
        return packets;
    }
    room.max(1)
}

/// Visits those of the packets listed whose column passes the limit of the weight so far, their own
/// included: batches of any size agree. All packets weigh `before` before the batch and `after` after it,
/// its own `weights`, and `count` is what the column of one of them had just after it.
#[inline(always)]
pub(super) fn passing<C: Counter>(
    listed: &[u8],
    threshold: Threshold,
    [before, after]: [u64; 2],
    weights: &[C],
    count: impl Fn(usize) -> u64,
    mut visit: impl FnMut(usize),
) {
    // A threshold only grows: what passes it as it is after the batch passed it in the batch.
    let high = limit(threshold, after);
    let (mut so_far, mut summed) = (before, 0);
    for &i in listed {
        let i = usize::from(i);
        let count = count(i);
        if count <= high {
            let more = weights[summed..=i].iter().map(|weight| weight.get());
            so_far = more.fold(so_far, u64::saturating_add);
            summed = i + 1;
            if count <= limit(threshold, so_far) {
                continue;
            }
        }
        visit(i);
    }
}
