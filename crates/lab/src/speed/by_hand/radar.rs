//! FlowRadar.

use bytemuck::Zeroable;
use flowgauge_kernel::Zeroed;

use super::{AHEAD, BATCH, ByHand, FRAME, ask, mix, zeroed};

/// Cells of each hash.
const PART: usize = 1 << 16;

/// Lines of 512 bits of the filter: a third of what the cells take.
const LINES: usize = 1 << 15;

#[derive(Clone, Copy, Zeroable)]
#[repr(C)]
struct Cell {
    key: u64,
    packets: u32,
    flows: u32,
    bytes: u64,
}

/// A filter of four bits a flow in one line, and four cells a flow.
pub(super) struct FlowRadar {
    cells: Zeroed<[Cell; PART]>,
    filter: Zeroed<[u64; 8]>,
    packets: u64,
}

impl FlowRadar {
    pub(super) fn new() -> Self {
        Self { cells: zeroed(4), filter: zeroed(LINES), packets: 0 }
    }
}

/// The line, its bits, and the cells of a flow.
#[derive(Clone, Copy, Default)]
struct Places {
    bits: u64,
    cells: [u16; 4],
}

impl Places {
    fn line(self) -> usize {
        (self.bits >> 48) as usize % LINES
    }
}

impl ByHand for FlowRadar {
    fn clear(&mut self) {
        self.cells.iter_mut().for_each(|cells| cells.fill(Cell::zeroed()));
        self.filter.fill([0; 8]);
        self.packets = 0;
    }

    #[inline(always)]
    fn update(&mut self, keys: &[u64], digests: &[u64]) {
        let mut places = [Places::default(); BATCH];
        for (places, &digest) in places.iter_mut().zip(digests) {
            let cells = std::array::from_fn(|hash| (digest >> (16 * hash)) as u16);
            *places = Places { bits: mix(digest, 0), cells };
        }
        let (cells, filter) = (&mut self.cells[..4], &mut self.filter[..LINES]);
        for (i, &key) in keys.iter().enumerate() {
            if let Some(&ahead) = places.get(i + AHEAD) {
                ask(filter, ahead.line());
                (0..4).for_each(|hash| ask(&cells[hash], usize::from(ahead.cells[hash])));
            }
            let line = &mut filter[places[i].line()];
            let bit = |hash: u32| {
                let bits = places[i].bits >> (9 * hash);
                ((bits >> 6) as usize % 8, 1_u64 << (bits % 64))
            };
            let new = (0..4).map(bit).any(|(word, mask)| line[word] & mask == 0);
            if new {
                (0..4).map(bit).for_each(|(word, mask)| line[word] |= mask);
            }
            for (cells, &place) in cells.iter_mut().zip(&places[i].cells) {
                let cell = &mut cells[usize::from(place)];
                if new {
                    cell.key ^= key;
                    cell.flows += 1;
                }
                cell.packets += 1;
                cell.bytes += FRAME;
            }
        }
        self.packets += keys.len() as u64;
    }
}
