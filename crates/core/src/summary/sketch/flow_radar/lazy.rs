//! A value that is computed when it is first asked for, in memory reserved before.

use std::cell::{Cell, OnceCell};

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
