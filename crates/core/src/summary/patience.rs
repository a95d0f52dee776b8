//! How long the reader of a stored form takes for what it says.

/// Steps from place to place that hash tables may still take while they are read: the bytes tell
/// their seed, so that whoever wrote them may have chosen keys that collide.
#[derive(Debug)]
pub(crate) struct Patience(usize);

impl Patience {
    /// Keys that collide by chance take a few steps each; small tables may take more.
    const STEPS_PER_KEY: usize = 64;
    const STEPS: usize = 1 << 20;

    /// For so many `keys`.
    pub(crate) fn new(keys: usize) -> Self {
        Self(Self::STEPS.saturating_add(keys.saturating_mul(Self::STEPS_PER_KEY)))
    }

    /// Steps that are left.
    pub(crate) fn left(&self) -> usize {
        self.0
    }

    /// Takes steps; returns whether there were as many.
    pub(crate) fn take(&mut self, steps: usize) -> bool {
        let enough = steps <= self.0;
        self.0 = self.0.saturating_sub(steps);
        enough
    }
}
