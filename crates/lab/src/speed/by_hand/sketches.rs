//! Rows of counters.

use flowgauge_kernel::Zeroed;

use super::{ByHand, zeroed};

const COLUMNS: usize = 1 << 16;

type Row = [u32; COLUMNS];

/// Count-Min without anything else: the yardstick.
pub(super) struct Plain {
    rows: Zeroed<Row>,
}

impl Plain {
    pub(super) fn new() -> Self {
        Self { rows: zeroed(4) }
    }
}

impl ByHand for Plain {
    fn clear(&mut self) {
        self.rows.fill([0; COLUMNS]);
    }

    #[inline(always)]
    fn update(&mut self, _: &[u64], digests: &[u64]) {
        let [a, b, c, d] = &mut *self.rows else { return };
        for &digest in digests {
            a[usize::from(digest as u16)] += 1;
            b[usize::from((digest >> 16) as u16)] += 1;
            c[usize::from((digest >> 32) as u16)] += 1;
            d[usize::from((digest >> 48) as u16)] += 1;
        }
    }
}
