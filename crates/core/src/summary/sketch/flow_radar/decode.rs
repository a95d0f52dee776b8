//! Decoding one FlowRadar: cells of one flow are peeled until none is left.
//!
//! A cell that counts one flow names it. The flow is taken out of its other cells, some of which
//! then count one flow too. What is left when that ends are cells of flows that cannot be told from
//! each other.
//!
//! A flow that the Bloom filter took for a known one was never entered, but its packets are in its
//! cells. They make the sizes wrong that are read from these cells, and leave something behind in
//! cells that should be empty in the end. So an emptied cell bears witness: clean if nothing is
//! left in it, or if the size that was read from it is certain. A flow is certain when most of the
//! other cells that can bear witness are clean; since a flow taken out of a cell has its size read
//! before the cell is emptied, the flows are judged from the last to the first. An error stays
//! hidden only where it cancels another in two cells at once.

use std::cell::{Cell, OnceCell};

use flowgauge_kernel::{Digester, Zeroed};

use super::cells::{BlockedBloom, Cells, Shape};
use crate::key::FlowKey;
use crate::summary::{BuildError, Memory};
use crate::terms::Size;

/// What a cell says.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Witness {
    /// Flows are left in it.
    None,
    Clean,
    Dirty,
}

/// Of [`Decoded::states`]: a flow was read from this cell, and stands in it.
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

/// The flows that could be told.
pub(super) struct Decoded<K> {
    /// A copy of the cells; those that named a flow keep it, the others what was not taken out.
    pub(super) rest: Cells<K>,
    /// The cells that named a flow, those of certain size first; while peeling, in the order of that
    /// and with cells waiting behind them.
    named: Zeroed<u32>,
    states: Zeroed<u8>,
    flows: usize,
    /// Flows whose size is certain, and what they weigh. The size of another may include packets of
    /// a flow that the filter missed.
    certain: usize,
    certain_size: Size,
    /// Flows that cannot be told from each other.
    pub(super) undecoded: u64,
}

/// What is decoded.
pub(super) struct Source<'a, K> {
    pub(super) cells: &'a Cells<K>,
    pub(super) filter: &'a BlockedBloom,
    pub(super) shape: Shape,
    pub(super) digester: &'a Digester,
}

impl<K: FlowKey> Source<'_, K> {
    /// The digest of the flow that a cell of one flow names, unless it is none that could be in
    /// this cell: damaged contents name no flow.
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

    /// Decodes. Cost: some 100 ns a flow.
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
            // Its flow may have been read from another cell by now.
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
                    rest.leave(&cell.key);
                    rest.discount(cell.size());
                });
                // A cell comes to one flow once.
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
            let digest = self.rest.get(named).key.digest(from.digester);
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

    /// Number of flows told.
    pub(super) fn len(&self) -> usize {
        self.flows
    }

    /// Number of flows told whose size is certain.
    pub(super) fn certain(&self) -> usize {
        self.certain
    }

    /// What they weigh.
    pub(super) fn certain_size(&self) -> Size {
        self.certain_size
    }

    /// Number of flows told whose size is not certain.
    pub(super) fn uncertain(&self) -> usize {
        self.flows - self.certain
    }

    /// Whether every flow was told.
    pub(super) fn is_complete(&self) -> bool {
        self.undecoded == 0
    }

    /// Whether every flow was told, and its size is certain.
    pub(super) fn is_exact(&self) -> bool {
        self.is_complete() && self.uncertain() == 0
    }

    /// The cells that name flows, those of certain size first.
    pub(super) fn cells(&self) -> impl Iterator<Item = usize> {
        self.named[..self.flows].iter().map(|cell| *cell as usize)
    }

    /// The flow number `index` of those whose size is certain: its canonical key, of `bytes` bytes,
    /// and size.
    pub(super) fn certain_flow(&self, index: usize, bytes: usize) -> (&[u8], Size) {
        let cell = self.named[..self.certain][index] as usize;
        (self.rest.canonical(cell, bytes), self.rest.size(cell))
    }

    /// The flow that a cell names.
    pub(super) fn flow(&self, cell: usize) -> (K, Size) {
        let cell = self.rest.get(cell);
        (cell.key, cell.size())
    }

    /// Whether the cell names this flow.
    pub(super) fn names(&self, cell: usize, key: &K) -> bool {
        self.states[cell] & NAMED != 0 && self.rest.get(cell).key == *key
    }

    /// Whether nothing but certain flows is in the cell; of a cell that names a flow, whether that
    /// one's size is certain.
    pub(super) fn is_clean(&self, cell: usize) -> bool {
        witness(self.states[cell]) == Witness::Clean
    }
}

/// Memory of which `T` is made, and which it still is while nobody asks.
pub(super) struct Lazy<T> {
    done: OnceCell<T>,
    spare: Cell<Option<T>>,
}

impl<T> Lazy<T> {
    pub(super) fn new(spare: T) -> Self {
        Self { done: OnceCell::new(), spare: Cell::new(Some(spare)) }
    }

    /// The value, which `fill` computes where it was not since [`Self::forget`].
    pub(super) fn get(&self, fill: impl FnOnce(&mut T)) -> &T {
        self.done.get_or_init(|| {
            let Some(mut value) = self.spare.take() else {
                unreachable!("the memory is in one of the two places")
            };
            fill(&mut value);
            value
        })
    }

    /// The value holds no more.
    #[inline(always)]
    pub(super) fn forget(&mut self) {
        if let Some(value) = self.done.take() {
            self.spare.set(Some(value));
        }
    }
}
