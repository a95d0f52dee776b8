//! Decoding a FlowRadar: cells with one flow are peeled until none is left.
//!
//! A cell that counts one flow gives its key. The flow is removed from its other cells, some of
//! which then count one flow, too. Cells that remain at the end hold flows that cannot be
//! separated.
//!
//! A flow that the Bloom filter falsely recognized was never entered, but its packets are in its
//! cells. They falsify the sizes read from these cells, and leave a remainder in cells that should
//! be empty at the end. So an emptied cell is a witness: clean if nothing is left in it, or if the
//! size read from it is certain; otherwise dirty. A flow is certain if most witnesses among its
//! other cells are clean. Since a flow's size is read before the cells it is removed from are
//! emptied, flows are judged from the last to the first. An error stays hidden only if it cancels
//! another one in two cells at once, and then makes no flow larger than its cells.

use std::cell::{Cell, OnceCell};

use flowgauge_kernel::{Digester, Zeroed};

use super::cells::{BlockedBloom, Cells, Shape};
use crate::key::FlowKey;
use crate::summary::{BuildError, Memory};
use crate::terms::Size;

/// The testimony of a cell about the flows in it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Witness {
    /// Flows are left in the cell.
    None,
    Clean,
    Dirty,
}

/// Bits of [`Decoded::states`]: a flow was read from this cell and remains in it; the cell is
/// clean; it is dirty.
const NAMED: u8 = 1;
const CLEAN: u8 = 2;
const DIRTY: u8 = 4;

fn witness(state: u8) -> Witness {
    match state & (CLEAN | DIRTY) {
        CLEAN => Witness::Clean,
        DIRTY => Witness::Dirty,
        _ => Witness::None,
    }
}

/// The decoded flows.
pub(super) struct Decoded<K> {
    /// A copy of the cells. Those that gave a flow keep it, the others hold what was not removed.
    pub(super) rest: Cells<K>,
    /// The cells that gave a flow, those of certain size first. While peeling, they are in the
    /// order of decoding, and followed by cells that wait.
    named: Zeroed<u32>,
    states: Zeroed<u8>,
    flows: usize,
    /// Number and total of flows of certain size. The size of others may include packets of a flow
    /// that the filter missed.
    certain: usize,
    certain_size: Size,
    /// Number of flows that cannot be separated.
    pub(super) undecoded: u64,
}

/// The input of decoding.
pub(super) struct Source<'a, K> {
    pub(super) cells: &'a Cells<K>,
    pub(super) filter: &'a BlockedBloom,
    pub(super) shape: Shape,
    pub(super) digester: &'a Digester,
}

impl<K: FlowKey> Source<'_, K> {
    /// The digest of the flow in a cell of one flow; `None` if that flow cannot be in this cell,
    /// which happens with damaged contents.
    pub(super) fn digest(&self, cell: usize, key: &K) -> Option<u64> {
        let digest = key.digest(self.digester);
        let fits = self.shape.cells_of(digest).any(|of| of == cell)
            && self.filter.holds(Shape::filter_word(digest));
        fits.then_some(digest)
    }
}

impl<K: FlowKey> Decoded<K> {
    /// Bytes reserved for each cell.
    pub(super) const CELL_BYTES: usize =
        Cells::<K>::CELL_BYTES + size_of::<u32>() + size_of::<u8>();

    pub(super) fn new(cells: usize, memory: &Memory) -> Result<Self, BuildError> {
        Ok(Self {
            rest: Cells::new(cells, memory)?,
            named: memory.zeroed(cells)?,
            states: memory.zeroed(cells)?,
            flows: 0,
            certain: 0,
            certain_size: Size::default(),
            undecoded: 0,
        })
    }

    /// Decodes all cells. Cost: some 100 ns per flow.
    pub(super) fn run(&mut self, from: &Source<'_, K>) {
        self.rest.copy_from(from.cells);
        self.states.fill(0);
        self.peel(from);
        let mut dirty = false;
        for (cell, state) in self.rest.iter().zip(self.states.iter_mut()) {
            if *state == 0 && cell.flows() == 0 {
                *state = if cell.is_zero() { CLEAN } else { DIRTY };
                dirty |= *state == DIRTY;
            }
        }
        let unnamed = |cell: &usize| self.states[*cell] == 0;
        let part = (0..from.shape.part).filter(unnamed);
        self.undecoded = part.map(|cell| self.rest.flows(cell)).sum();
        self.judge(from, dirty);
        self.put_certain_first();
    }

    fn peel(&mut self, from: &Source<'_, K>) {
        let (mut head, mut tail) = (0, 0);
        self.flows = 0;
        for cell in 0..self.rest.len() {
            if self.rest.flows(cell) == 1 {
                self.named[tail] = cell as u32;
                tail += 1;
            }
        }
        while head < tail {
            let named = self.named[head] as usize;
            head += 1;
            let cell = self.rest.get(named);
            // Its flow may have been read from another cell meanwhile.
            if cell.flows() != 1 {
                continue;
            }
            let Some(digest) = from.digest(named, &cell.key) else { continue };
            self.states[named] = NAMED;
            self.named[self.flows] = named as u32;
            self.flows += 1;
            for other in from.shape.cells_of(digest).filter(|other| *other != named) {
                let before = self.rest.flows(other);
                self.rest.change(other, |rest| {
                    rest.remove_key(&cell.key);
                    rest.remove_size(cell.size());
                });
                // A cell gets down to one flow only once.
                if before == 2 {
                    self.named[tail] = other as u32;
                    tail += 1;
                }
            }
        }
    }

    fn judge(&mut self, from: &Source<'_, K>, dirty: bool) {
        let sure = !dirty && self.undecoded == 0;
        for index in (0..self.flows).rev() {
            let named = self.named[index] as usize;
            if sure {
                self.states[named] = NAMED | CLEAN;
                continue;
            }
            let flow = self.rest.get(named);
            let (digest, size) = (flow.key.digest(from.digester), flow.size());
            let holds = |most: Size| size.packets <= most.packets && size.bytes <= most.bytes;
            if !from.shape.cells_of(digest).all(|cell| holds(from.cells.size(cell))) {
                self.states[named] |= DIRTY;
                continue;
            }
            let (mut clean, mut dirty) = (0, 0);
            for other in from.shape.cells_of(digest).filter(|other| *other != named) {
                match witness(self.states[other]) {
                    Witness::Clean => clean += 1,
                    Witness::Dirty => dirty += 1,
                    Witness::None => {}
                }
            }
            self.states[named] |= match (clean, dirty) {
                (0, 0) => 0,
                (clean, dirty) if clean > dirty => CLEAN,
                _ => DIRTY,
            };
        }
    }

    fn put_certain_first(&mut self) {
        (self.certain, self.certain_size) = (0, Size::default());
        for index in 0..self.flows {
            let cell = self.named[index] as usize;
            if self.is_clean(cell) {
                self.named.swap(self.certain, index);
                self.certain += 1;
                self.certain_size += self.rest.size(cell);
            }
        }
    }

    /// Number of decoded flows.
    pub(super) fn len(&self) -> usize {
        self.flows
    }

    /// Number of decoded flows of certain size.
    pub(super) fn certain(&self) -> usize {
        self.certain
    }

    /// Total size of these.
    pub(super) fn certain_size(&self) -> Size {
        self.certain_size
    }

    /// Number of decoded flows of uncertain size.
    pub(super) fn uncertain(&self) -> usize {
        self.flows - self.certain
    }

    /// Whether every flow was decoded.
    pub(super) fn is_complete(&self) -> bool {
        self.undecoded == 0
    }

    /// Whether every flow was decoded with a certain size.
    pub(super) fn is_exact(&self) -> bool {
        self.is_complete() && self.uncertain() == 0
    }

    /// The cells that gave flows, those of certain size first.
    pub(super) fn cells(&self) -> impl Iterator<Item = usize> {
        self.named[..self.flows].iter().map(|cell| *cell as usize)
    }

    /// The flow with this index among those of certain size: its canonical key of `bytes` bytes,
    /// and its size.
    pub(super) fn certain_flow(&self, index: usize, bytes: usize) -> (&[u8], Size) {
        let cell = self.named[..self.certain][index] as usize;
        (self.rest.canonical(cell, bytes), self.rest.size(cell))
    }

    /// The flow that a cell gave.
    pub(super) fn flow(&self, cell: usize) -> (K, Size) {
        let cell = self.rest.get(cell);
        (cell.key, cell.size())
    }

    /// Whether the cell gave this flow.
    pub(super) fn names(&self, cell: usize, key: &K) -> bool {
        self.states[cell] & NAMED != 0 && self.rest.get(cell).key == *key
    }

    /// Whether only certain flows were in the cell; for a cell that gave a flow, whether the flow's
    /// size is certain.
    pub(super) fn is_clean(&self, cell: usize) -> bool {
        witness(self.states[cell]) == Witness::Clean
    }
}

/// A value computed on demand, in memory reserved at the start.
pub(super) struct Lazy<T> {
    done: OnceCell<T>,
    spare: Cell<Option<T>>,
}

impl<T> Lazy<T> {
    pub(super) fn new(spare: T) -> Self {
        Self { done: OnceCell::new(), spare: Cell::new(Some(spare)) }
    }

    /// The value; `fill` computes it if that has not happened since [`Self::forget`].
    pub(super) fn get(&self, fill: impl FnOnce(&mut T)) -> &T {
        self.done.get_or_init(|| {
            let Some(mut value) = self.spare.take() else {
                unreachable!("the memory is in one of the two places")
            };
            fill(&mut value);
            value
        })
    }

    /// Invalidates the value.
    #[inline(always)]
    pub(super) fn forget(&mut self) {
        if let Some(value) = self.done.take() {
            self.spare.set(Some(value));
        }
    }
}
