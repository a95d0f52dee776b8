//! FlowRadar.

use bytemuck::Zeroable;
use flowgauge_kernel::Zeroed;

use super::{BATCH, ByHand, FRAME, ask, mix, zeroed};

/// Cells per hash function.
const PART: usize = 1 << 16;

/// Lines of 512 bits in the filter: a third of the cells' memory.
const LINES: usize = (4 * PART * 20 / 3).div_ceil(64);

/// The part of a cell that the first packet of a flow changes.
#[derive(Clone, Copy, Zeroable)]
#[repr(C, packed(4))]
struct Entered {
    key: u64,
    flows: u16,
    high_bytes: u16,
}

/// FlowRadar: a filter with four bits per flow in one line, and four cells per flow.
pub(super) struct FlowRadar {
    /// Packets in the low half, the low 32 bits of the bytes in the high half.
    counts: Zeroed<[u64; PART]>,
    entered: Zeroed<[Entered; PART]>,
    filter: Zeroed<[u64; 8]>,
    packets: u64,
    bytes: u64,
}

impl FlowRadar {
    pub(super) fn new() -> Self {
        Self { counts: zeroed(4), entered: zeroed(4), filter: zeroed(LINES), packets: 0, bytes: 0 }
    }
}

fn cells(digest: u64) -> [usize; 4] {
    std::array::from_fn(|hash| usize::from((digest >> (16 * hash)) as u16))
}

/// The word and bit for hash number `hash`.
fn bit(word: u64, hash: u32) -> (usize, u64) {
    let bits = word >> (9 * hash);
    ((bits >> 6) as usize % 8, bits % 64)
}

fn holds(line: &[u64; 8], word: u64) -> bool {
    let bits = (0..4).map(|hash| bit(word, hash));
    bits.fold(1, |held, (at, shift)| held & line[at] >> shift) != 0
}

impl ByHand for FlowRadar {
    fn clear(&mut self) {
        self.counts.iter_mut().for_each(|counts| counts.fill(0));
        self.entered.iter_mut().for_each(|entered| entered.fill(Entered::zeroed()));
        self.filter.fill([0; 8]);
        (self.packets, self.bytes) = (0, 0);
    }

    #[inline(always)]
    fn update(&mut self, keys: &[u64], digests: &[u64]) {
        let (counts, entered) = (&mut self.counts[..4], &mut self.entered[..4]);
        let filter = &mut self.filter[..LINES];
        let mut words = [(0_u64, 0_u32); BATCH];
        for (entry, &digest) in words.iter_mut().zip(digests) {
            let word = mix(digest, 0);
            *entry = (word, (((word >> 40) * LINES as u64) >> 24) as u32);
            ask(filter, entry.1 as usize);
        }
        for &digest in digests {
            counts.iter().zip(cells(digest)).for_each(|(counts, cell)| ask(counts, cell));
        }
        let (mut new, mut many) = ([0_u8; BATCH], 0);
        for (i, &(word, line)) in words[..digests.len()].iter().enumerate() {
            new[many % BATCH] = i as u8;
            many += usize::from(!holds(&filter[line as usize], word));
        }
        for &i in &new[..many] {
            let digest = digests[usize::from(i)];
            entered.iter().zip(cells(digest)).for_each(|(entered, cell)| ask(entered, cell));
        }
        for &digest in digests {
            for hash in 0..4 {
                let cell = cells(digest)[hash];
                let (sum, carry) = counts[hash][cell].overflowing_add(FRAME << 32 | 1);
                counts[hash][cell] = sum;
                if carry {
                    entered[hash][cell].high_bytes += 1;
                }
            }
        }
        for &i in &new[..many] {
            let (word, line) = words[usize::from(i)];
            let line = &mut filter[line as usize];
            if holds(line, word) {
                continue;
            }
            (0..4).map(|hash| bit(word, hash)).for_each(|(at, shift)| line[at] |= 1 << shift);
            let key = keys[usize::from(i)];
            for (entered, cell) in entered.iter_mut().zip(cells(digests[usize::from(i)])) {
                entered[cell].key ^= key;
                entered[cell].flows += 1;
            }
        }
        self.packets += keys.len() as u64;
        self.bytes += keys.len() as u64 * FRAME;
    }
}
