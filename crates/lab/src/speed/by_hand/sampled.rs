//! One packet in a hundred, in a table.

use flowgauge_core::key::Key8;
use flowgauge_kernel::Digester;

use super::arrays::LinearTable;
use super::{ByHand, FRAME};

const SAMPLE: f64 = 100.0;

/// NetFlow: what is drawn is how many packets to pass over.
pub(super) struct NetFlow {
    digester: Digester,
    table: LinearTable<{ 1 << 15 }>,
    random: fastrand::Rng,
    skip: usize,
    largest: u64,
}

impl NetFlow {
    pub(super) fn new(digester: Digester) -> Self {
        let random = fastrand::Rng::with_seed(1);
        Self { digester, table: LinearTable::new(), random, skip: 0, largest: 0 }
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
            self.largest = self.largest.max(FRAME);
        }
        self.skip -= keys.len();
    }
}
