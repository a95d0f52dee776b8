//! NetFlow: a table of one in a hundred packets.

use std::hint::black_box;

use flowgauge_core::key::Key8;
use flowgauge_kernel::Digester;

use super::tables::LinearTable;
use super::{BATCH, ByHand, FRAME};

const SAMPLE: f64 = 100.0;

/// NetFlow. It draws the number of packets to skip.
pub(super) struct NetFlow {
    digester: Digester,
    table: LinearTable<{ 1 << 15 }>,
    random: fastrand::Rng,
    skip: usize,
    /// Totals of all packets, sampled or not.
    total: (u64, u64),
    largest: u64,
    sizes: [u64; BATCH],
}

impl NetFlow {
    pub(super) fn new(digester: Digester) -> Self {
        let random = fastrand::Rng::with_seed(1);
        Self {
            digester,
            table: LinearTable::new(),
            random,
            skip: 0,
            total: (0, 0),
            largest: 0,
            sizes: [FRAME; BATCH],
        }
    }
}

impl ByHand for NetFlow {
    const DIGESTS: bool = false;

    fn clear(&mut self) {
        self.table.clear();
    }

    #[inline(always)]
    fn update(&mut self, keys: &[u64], _: &[u64]) {
        while let Some(key) = keys.get(self.skip) {
            let mut digest = [0];
            self.digester.digest_batch(&[*key], size_of::<Key8>(), &mut digest);
            self.table.update(&[*key], &digest);
            let uniform = (self.random.u64(..) >> 11) as f64 + 0.5;
            let log = (uniform / (1_u64 << 53) as f64).ln();
            self.skip += 1 + (log / (-1.0 / SAMPLE).ln_1p()) as usize;
        }
        let sizes = &black_box(&self.sizes)[..keys.len()];
        let both = |(sum, bits): (u64, u64), size: &u64| (sum + size, bits | size);
        let (sum, bits) = sizes.iter().fold((0, 0), both);
        self.total = (self.total.0 + keys.len() as u64, self.total.1 + sum);
        if bits > self.largest {
            self.largest = sizes.iter().copied().fold(self.largest, u64::max);
        }
        self.skip -= keys.len();
    }
}
