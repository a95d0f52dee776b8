//! Count-Min with conservative update.

use flowgauge_kernel::Zeroed;

use super::heavy::Heavy;
use super::{BATCH, ByHand, zeroed};

const COLUMNS: usize = 1 << 16;

/// Four rows with the keys over a thousandth of the packets so far.
pub(super) struct Conservative {
    rows: Zeroed<[[u32; COLUMNS]; 4]>,
    heavy: Heavy,
    packets: u64,
}

impl Conservative {
    pub(super) fn new() -> Self {
        Self { rows: zeroed(1), heavy: Heavy::new(), packets: 0 }
    }
}

impl ByHand for Conservative {
    fn clear(&mut self) {
        self.rows[0].iter_mut().for_each(|row| row.fill(0));
        self.heavy.clear();
        self.packets = 0;
    }

    #[inline(always)]
    fn update(&mut self, keys: &[u64], digests: &[u64]) {
        let rows = &mut self.rows[0];
        let (mut listed, mut over, mut packets) = ([0_u8; BATCH], 0, self.packets);
        for (i, &digest) in digests.iter().enumerate() {
            packets += 1;
            let columns: [usize; 4] =
                std::array::from_fn(|row| usize::from((digest >> (16 * row)) as u16));
            let cells: [u32; 4] = std::array::from_fn(|row| rows[row][columns[row]]);
            let raised = cells[0].min(cells[1]).min(cells[2].min(cells[3])) + 1;
            // Written always: whether it changes is not to be predicted.
            (0..4).for_each(|row| rows[row][columns[row]] = cells[row].max(raised));
            listed[over % BATCH] = i as u8;
            over += usize::from(u64::from(raised) > (packets * 4_294_968) >> 32);
        }
        self.packets = packets;
        for i in listed[..over].iter().map(|&i| usize::from(i)) {
            self.heavy.note(keys[i], digests[i]);
        }
    }
}
